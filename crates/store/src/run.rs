//! Scheduling of background jobs.
//!
//! * `scheduler`: jobs in classes, on threads or in simulation. `works`: the jobs of two engines.
//! * `requested`: checkpoints for other processes.
//! * `rate`: throughput estimates.

mod rate;
mod requested;
mod scheduler;
mod works;

pub use rate::Rate;
pub use requested::Checkpointer;
pub use scheduler::{Duty, Foreground, Job, JobClass, Progress, Scheduler, Work};
pub use works::Works;
