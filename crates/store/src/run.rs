//! Who runs jobs, when, and how fast.
//!
//! * `scheduler`: jobs in classes, on threads or in simulation. `works`: those of two engines on one store.
//! * `rate_limit`: a bound on what jobs write. `rate`: how fast something goes.

mod rate;
mod rate_limit;
mod scheduler;
mod works;

pub use rate::Rate;
pub use rate_limit::RateLimit;
pub use scheduler::{Duty, Job, JobClass, Progress, Scheduler, Work};
pub use works::Works;
