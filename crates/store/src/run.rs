//! Scheduling of background jobs.
//!
//! * `scheduler`: jobs in classes, on threads or in simulation. `workers`: the threads. `works`: the
//!   jobs of two engines.
//! * `requested`: checkpoints for other processes.
//! * `rate`: throughput estimates.

mod rate;
mod requested;
mod scheduler;
mod workers;
mod works;

pub use rate::Rate;
pub use requested::Checkpointer;
pub use scheduler::{AsyncRequests, Job, JobClass, Progress, Scheduler, Work, WorkerRole};
pub use works::EngineWork;
