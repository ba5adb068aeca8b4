//! The traced operations, each on a store that is ready for it.

use crate::Result;
use clap::ValueEnum;
use io::{Priority, Spawner, ThreadHandle};
use lavastore::testing::SimEnv;
use lavastore::{Db, Env, GcRequest, Options};
use nix::sys::{ptrace, signal};
use std::sync::Arc;

/// An operation that can be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// A buffered put of 200 B.
    Put,
    /// A get of 200 B from a table whose blocks are in the cache.
    Get,
    /// A flush of eight entries.
    Flush,
    /// A collection of one file of values, half of which are dead.
    Collect,
}

impl Operation {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Flush => "flush",
            Operation::Collect => "collect",
        }
    }
}

/// Prepares a store, and runs the operation on it between two stops.
pub fn run(operation: Operation) -> Result<()> {
    match operation {
        Operation::Put => put(),
        Operation::Get => get(),
        Operation::Flush => flush(),
        Operation::Collect => collect(),
    }
}

/// Runs `operation` for the tracer, which waits at both ends.
fn traced<T>(operation: impl FnOnce() -> lavastore::Result<T>) -> Result<()> {
    ptrace::traceme()?;
    signal::raise(signal::Signal::SIGTRAP)?;
    let outcome = operation();
    signal::raise(signal::Signal::SIGTRAP)?;
    outcome?;
    Ok(())
}

fn key(number: u32) -> [u8; 8] {
    u64::from(number.wrapping_mul(2_654_435_761)).to_be_bytes()
}

/// The usual put: it opens no page of the log, the kept verdict on the rate of writes holds, and it is not one of those that
/// are timed. No background thread runs beside it, so each run is the same.
fn put() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("lavastore-trace-{}", std::process::id()));
    let env = Env { spawner: Some(Arc::new(NoThreads)), ..Env::kernel() };
    let db = Db::open_in(&env, &dir, &Options::default())?;
    let before = 1010;
    for number in 0..before {
        db.put(key(number), [1; 200])?;
    }
    let outcome = traced(|| db.put(key(before), [1; 200]));
    // A close would wait for its threads.
    std::mem::forget(db);
    std::fs::remove_dir_all(&dir)?;
    outcome
}

/// Starts no thread, although it says so: the put needs none.
#[derive(Debug)]
struct NoThreads;

impl Spawner for NoThreads {
    fn spawn(
        &self,
        _name: &str,
        _priority: Priority,
        _body: Box<dyn FnOnce() + Send>,
    ) -> lavastore::Result<Box<dyn ThreadHandle>> {
        Ok(Box::new(NoThreads))
    }
}

impl ThreadHandle for NoThreads {
    fn join(self: Box<Self>) -> bool {
        true
    }
}

fn get() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("lavastore-trace-{}", std::process::id()));
    let db = Db::open(&dir)?;
    for number in 0..1_000 {
        db.put(key(number), [1; 200])?;
    }
    db.flush()?;
    db.get(key(500))?;
    let outcome = traced(|| db.get(key(500)));
    drop(db);
    std::fs::remove_dir_all(&dir)?;
    outcome
}

/// A store on a simulated machine: its background work is done by the caller.
fn simulated() -> Result<Db> {
    Ok(Db::open_in(&SimEnv::new(1).env(), "/store", &Options::default())?)
}

fn flush() -> Result<()> {
    let db = simulated()?;
    for number in 0..8 {
        db.put(key(number), [1; 200])?;
    }
    traced(|| db.flush())
}

fn collect() -> Result<()> {
    let db = simulated()?;
    for round in 0..2u8 {
        for number in (0..16).step_by(1 + usize::from(round)) {
            db.put(key(number), [round; 4_000])?;
        }
        db.flush()?;
    }
    db.compact_range(..)?;
    traced(|| db.collect_garbage(&GcRequest::default()))
}
