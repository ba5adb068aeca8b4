//! Who runs jobs, when, and how fast.
//!
//! * `scheduler`: jobs in classes, on threads or in simulation. `works`: those of two engines on one store.
//! * `requested`: checkpoints for other processes.
//! * `rate`: how fast something goes.

mod rate;
mod requested;
mod scheduler;
mod works;

pub use rate::Rate;
pub use requested::Checkpointer;
pub use scheduler::{Duty, Foreground, Job, JobClass, Progress, Scheduler, Work};
pub use works::Works;
