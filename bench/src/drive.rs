//! Runs streams of operations against an engine, closed or open loop.

use crate::engine::{Batch, Engine};
use crate::host::{now_ns, thread_read_calls, wait_until};
use crate::limit::Throttle;
use crate::record::{Kind, Recorder};
use crate::workload::Stream;
use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Schedule of the operations of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Start of the phase.
    pub start_ns: u64,
    /// Latest end.
    pub end_ns: u64,
    /// Open loop schedule; `None` for a closed loop.
    pub open: Option<OpenLoop>,
    /// Operations per batch.
    pub batch: u64,
    /// Entries visited by each scan.
    pub scan_length: u64,
    /// Whether writes follow the engine's durability; otherwise they are never synced.
    pub durable: bool,
}

/// Schedule of a thread in an open loop.
#[derive(Clone, Copy, Debug)]
pub struct OpenLoop {
    /// Delay of the first operation after the start.
    pub first_ns: f64,
    /// Time between operations.
    pub interval_ns: f64,
}

impl OpenLoop {
    /// Returns the schedule of one of `threads` threads at a total rate in operations per second.
    pub fn share(rate: f64, thread: u64, threads: u64) -> Self {
        let each = 1e9 / rate;
        OpenLoop { first_ns: each * thread as f64, interval_ns: each * threads as f64 }
    }
}

/// Operations of all streams of this process, in steps of [`DONE_STEP`].
static DONE: AtomicU64 = AtomicU64::new(0);
/// Operations of a client between two updates, so that progress costs the measured loop nothing.
const DONE_STEP: u64 = 1024;

/// Returns the approximate number of operations of this process.
pub fn operations_done() -> u64 {
    DONE.load(Ordering::Relaxed)
}

/// Runs a stream to its end, to its end time, until `stop`, or until the throttle of its puts gives
/// up.
pub fn drive(
    engine: &dyn Engine,
    mut stream: Stream,
    pace: Pace,
    throttle: Option<&Throttle>,
    stop: &AtomicBool,
) -> Result<Recorder> {
    engine.thread_begin();
    let mut client = Client {
        engine,
        pace,
        throttle,
        stop,
        record: Recorder::new(pace.start_ns),
        batch: Batch::default(),
        value: Vec::new(),
        done: 0,
    };
    let read_calls = thread_read_calls();
    let outcome = client.run(&mut stream);
    client.record.read_calls = thread_read_calls() - read_calls;
    engine.thread_end();
    outcome.map(|()| client.record)
}

struct Client<'a> {
    engine: &'a dyn Engine,
    pace: Pace,
    throttle: Option<&'a Throttle<'a>>,
    stop: &'a AtomicBool,
    record: Recorder,
    batch: Batch,
    value: Vec<u8>,
    done: u64,
}

impl Client<'_> {
    fn run(&mut self, stream: &mut Stream) -> Result<()> {
        while stream.left() > 0 && !self.stop.load(Ordering::Relaxed) {
            let due_ns = match self.pace.open {
                None => now_ns(),
                Some(open) => {
                    let after = open.first_ns + open.interval_ns * self.done as f64;
                    let due_ns = self.pace.start_ns + after as u64;
                    wait_until(due_ns);
                    due_ns
                }
            };
            if due_ns >= self.pace.end_ns {
                break;
            }
            let steps = self.done / DONE_STEP;
            if !self.one(stream, due_ns)? {
                break;
            }
            if self.done / DONE_STEP > steps {
                DONE.fetch_add(DONE_STEP, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Waits for space if the operation is a put; returns false if there will be none.
    fn admit(&self) -> bool {
        self.throttle.is_none_or(|throttle| throttle.admit(self.stop))
    }

    /// Runs an operation, or a batch of puts. In a closed loop the clock starts when the operation
    /// is ready, so that generating keys and values is not charged to the engine. Returns false
    /// without space.
    fn one(&mut self, stream: &mut Stream, due_ns: u64) -> Result<bool> {
        let closed = self.pace.open.is_none();
        let (begin_ns, ops, bytes) = match stream.kind() {
            Kind::Put if self.pace.batch > 1 => {
                self.fill(stream);
                let begin_ns = if closed { now_ns() } else { due_ns };
                if !self.admit() {
                    return Ok(false);
                }
                self.engine.write(&self.batch, self.pace.durable)?;
                (begin_ns, self.batch.len() as u64, self.batch.byte_len() as u64)
            }
            _ => {
                stream.advance();
                let kind = stream.kind();
                self.record.plan(kind, &stream.key, stream.value_len());
                let begin_ns = if closed { now_ns() } else { due_ns };
                if kind.puts() && !self.admit() {
                    return Ok(false);
                }
                let scan_length = stream.scan_length.unwrap_or(self.pace.scan_length);
                (begin_ns, 1, single(self.engine, stream, scan_length, &mut self.value)?)
            }
        };
        self.record.complete_of(stream.kind(), begin_ns, now_ns(), ops, bytes);
        self.done += ops;
        Ok(true)
    }

    fn fill(&mut self, stream: &mut Stream) {
        self.batch.clear();
        while (self.batch.len() as u64) < self.pace.batch && stream.advance() {
            self.record.plan(Kind::Put, &stream.key, stream.value_len());
            self.batch.put(&stream.key, &stream.value);
        }
    }
}

/// Runs an operation of a stream and checks its result; returns the bytes written or read.
pub(crate) fn single(
    engine: &dyn Engine,
    stream: &Stream,
    scan_length: u64,
    value: &mut Vec<u8>,
) -> Result<u64> {
    let key_len = stream.key.len() as u64;
    match stream.kind() {
        Kind::Put | Kind::Insert => {
            engine.put(&stream.key, &stream.value)?;
            Ok(key_len + stream.value.len() as u64)
        }
        Kind::Get => {
            get(engine, stream, value)?;
            Ok(key_len + value.len() as u64)
        }
        // Only the written bytes count.
        Kind::ReadModifyWrite => {
            get(engine, stream, value)?;
            engine.put(&stream.key, &stream.value)?;
            Ok(key_len + stream.value.len() as u64)
        }
        Kind::Scan => scan(engine, stream, scan_length),
    }
}

fn get(engine: &dyn Engine, stream: &Stream, value: &mut Vec<u8>) -> Result<()> {
    if !engine.get(&stream.key, value)? {
        return Err(wrong(stream, "is missing"));
    }
    if !stream.check(value) {
        return Err(wrong(stream, "has a value that was never written for it"));
    }
    Ok(())
}

fn scan(engine: &dyn Engine, stream: &Stream, length: u64) -> Result<u64> {
    let mut bytes = 0;
    let mut first = None;
    engine.scan(&stream.key, length, &mut |key, value| {
        if first.is_none() {
            first = Some(key == stream.key && stream.check(value));
        }
        bytes += (key.len() + value.len()) as u64;
    })?;
    match first {
        Some(true) => Ok(bytes),
        _ => Err(wrong(stream, "was not the first entry of a scan from it")),
    }
}

pub(crate) fn wrong(stream: &Stream, what: &str) -> Error {
    format!(
        "wrong answer: key {} {what}; the run has no result: report it",
        String::from_utf8_lossy(&stream.key)
    )
    .into()
}
