//! Who runs jobs, when, and how fast.
//!
//! * `scheduler`: jobs in classes, on threads or in simulation.
//! * `rate_limit`: a bound on what jobs write. `rate`: how fast something goes.

mod rate;
mod rate_limit;
mod scheduler;

pub use rate::Rate;
pub use rate_limit::RateLimit;
pub use scheduler::{Duty, Job, JobClass, Progress, Scheduler, Work};
