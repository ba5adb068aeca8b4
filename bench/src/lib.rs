//! One benchmark for every engine: the same keys, values, operations, counters and report.
//!
//! An engine takes part by implementing [`Engine`] and [`Opener`]; [`lava`] does so for LavaStore, and the workspace
//! `peers/` for others. [`run()`] then makes one run:
//!
//! 1. **Load** (not measured, except by the workload `load`): every key once, in random order, in batches, never synced;
//!    then the engine settles (background idle, waited for at most 120 s).
//! 2. **Reopen and warm-up** (workloads that read, `ycsb`): the store is closed and opened, so that no cache is warm from
//!    loading, then a tenth of the operations, or as many as `--warmup` says, runs unmeasured.
//! 3. **Measured phase**: closed loop, or open loop at a fixed rate with latencies from the *intended* start, so that
//!    a stalled engine is charged for the requests that it kept waiting.
//! 4. **Settle** (at most 120 s), whose bytes and CPU belong to the run.
//! 5. **Clean up**: the store is removed unless the caller named its directory.
//!
//! What the operations are depends on the seed alone, never on time: [`Report::ops_hash`] is a hash of them (kind, key,
//! value length), and two runs that print the same hash did the same work. A benchmark that reads checks what it gets:
//! a missing or wrong value ends the run with an error.
//!
//! Words: *user bytes* are keys plus values as handed to the engine; *write amplification* is the bytes that the process
//! wrote to storage (the kernel's count, WAL included) over user bytes; a *space ratio* is the allocated bytes of all
//! files over the raw bytes of live keys and values; *no progress* is when at least one operation waits and none
//! completes; *reads per get* are the reads from storage that the engine counts for gets or, of an engine that does not
//! count them, the read system calls of the threads that get ([`kernel_reads`] is what the kernel counted beside that). A run whose process did not get to run for a second or
//! more, because it was stopped, says so: its times are void, its bytes and space are not.

pub mod ablation;
pub mod args;
pub mod changed;
pub mod contract;
pub mod costs;
pub mod distribution;
pub mod drive;
pub mod engine;
pub mod families;
pub mod flight;
pub mod fs;
pub mod full;
pub mod host;
pub mod kernel_reads;
pub mod keys;
pub mod lava;
pub mod limit;
pub mod logs;
pub mod multi_get;
pub mod pages;
pub mod pauses;
pub mod phases;
pub mod queue;
pub mod record;
pub mod recovery;
pub mod report;
pub mod rest;
pub mod run;
pub mod scale_meta;
pub mod space;
pub mod spread;
pub mod tail;
pub mod values;
pub mod volume;
pub mod workload;
pub mod ycsb;

pub use args::{BenchArgs, Distribution, Workload};
pub use costs::Costs;
pub use engine::{Batch, Engine, EngineSettings, Opener, Phase};
pub use report::{Latency, Report};
pub use run::run;

/// Any failure of a run: a message for a person.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of anything here.
pub type Result<T> = std::result::Result<T, Error>;
