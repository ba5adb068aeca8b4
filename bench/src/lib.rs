//! A common benchmark for all engines: the same keys, values, operations, counters and report.
//!
//! An engine takes part by implementing [`Engine`] and [`Opener`]; [`lava`] does so for LavaStore,
//! and the workspace `peers/` for others. [`run()`] executes a run:
//!
//! 1. **Load** (measured only by the workload `load`): every key once, in random order, in batches,
//!    never synced. Then wait at most 120 s for background work.
//! 2. **Reopen and warm-up** (reading workloads, `ycsb`): the store is reopened, so that the load
//!    leaves no warm cache. Then a tenth of the operations, or `--warmup`, runs unmeasured.
//! 3. **Measured phase**: closed loop, or open loop at a fixed rate. Open-loop latencies count from
//!    the *intended* start, so a stalled engine is charged for all delayed requests.
//! 4. **Settle** (at most 120 s); its bytes and CPU time belong to the run.
//! 5. **Clean up**: the store is removed unless the caller named its directory.
//!
//! The operations depend on the seed only, never on time. [`Report::ops_hash`] is a hash of them
//! (kind, key, value length), and runs with equal hashes did the same work. A reading benchmark
//! checks its results: a missing or wrong value ends the run with an error.
//!
//! Terms: *user bytes* are keys plus values as passed to the engine. *Write amplification* is the
//! bytes that the process wrote to storage (as counted by the kernel, including the WAL) over user
//! bytes. A *space ratio* is the allocated bytes of all files over the raw bytes of live keys and
//! values. *No progress* means that an operation waits and none completes. *Reads per get* are the
//! storage reads that the engine counts for gets, or otherwise the read system calls of the client
//! threads. [`kernel_reads`] has the kernel's counters. A run whose process was suspended for a
//! second or more says so: its times are void, its bytes and space are not.

pub mod ablation;
pub mod args;
pub mod changed;
pub mod contract;
pub mod costs;
pub mod counters;
pub mod distribution;
pub mod drive;
pub mod engine;
pub mod families;
pub mod flight;
pub mod fs;
pub mod full;
pub mod graph;
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
pub mod transactions;
pub mod values;
pub mod volume;
pub mod workload;
pub mod ycsb;

pub use args::{BenchArgs, Distribution, Workload};
pub use costs::Costs;
pub use engine::{Batch, Engine, EngineSettings, Opener, Phase};
pub use report::{Latency, Report};
pub use run::run;

/// Any failure of a run: a message for the user.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// Result type of the crate.
pub type Result<T> = std::result::Result<T, Error>;
