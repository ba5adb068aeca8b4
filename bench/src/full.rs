//! A store without free space: writes, deletes, and writes after deletes.
//!
//! 1. **Fill**: every key is written, then keys are overwritten at random for a time. A write may
//!    be slow or fail with `NoSpace`.
//! 2. **Reads** work: every key is read while the store is full.
//! 3. **Deletes**: a third of the keys is deleted, which must always succeed.
//! 4. **Writes resume** on their own, without a reopen.
//! 5. **Reopen**: the store is closed and opened, every key is read, and every byte of its files is
//!    checked.
//!
//! The model has a checksum of the last acknowledged value of each key. So a refused write must not
//! be there, and an accepted one must.
//!
//! Any failure except `NoSpace` ends the phase and is reported; the store is still closed and
//! checked. This also detects a poisoned engine, which refuses all later calls.

use crate::args::BenchArgs;
use crate::engine::{Engine, EngineSettings, Opener};
use crate::host::{now_ns, wait_until};
use crate::record::Kind;
use crate::workload::{KeySpace, Role, Stream};
use crate::{Error, Result};
use lavastore::ErrorKind;
use serde::{Deserialize, Serialize};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// One in this many keys is deleted.
const DELETE_EVERY: usize = 3;
/// Timeout of writes to resume after deletes, and of refused deletes to succeed.
const RESUME_NS: u64 = 60_000_000_000;
/// Writes have resumed after this many accepted writes in a row, or half the number of deleted
/// keys: a small store has no space for more.
const RESUMED_WRITES: u64 = 1000;
/// Delay after a write refused for lack of space.
const RETRY_NS: u64 = 10_000_000;

/// Observations of a full store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Full {
    /// Accepted writes before the deletes.
    pub writes: u64,
    /// Writes refused for lack of space before the deletes.
    pub enospc: u64,
    /// Longest write, accepted or refused.
    pub longest_wait_ms: f64,
    /// Number of deleted keys.
    pub deletes: u64,
    /// Deletes refused at first for lack of space.
    pub deletes_refused: u64,
    /// Longest delete.
    pub longest_delete_ms: f64,
    /// True if all deletes succeeded and writes resumed after them.
    pub resumed: bool,
    /// Time from the deletes until then.
    pub resumed_after_ms: f64,
    /// Keys read in the full and the reopened store.
    pub reads: u64,
    /// Of these, values other than the last acknowledged one.
    pub reads_wrong: u64,
    /// Damaged files after the reopen.
    pub files_damaged: u64,
    /// First failure except lack of space.
    pub failure: Option<String>,
}

impl Full {
    /// Returns true if all guarantees were kept.
    pub fn is_kept(&self) -> bool {
        let sound = self.reads_wrong == 0 && self.files_damaged == 0 && self.failure.is_none();
        self.resumed && self.deletes_refused == 0 && sound
    }

    /// Formats a line of counts, and one for each broken guarantee.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} writes taken, {} refused for want of space, longest {:.1} ms; {} deletes, longest {:.1} ms; {}; \
             {} reads\n",
            self.writes,
            self.enospc,
            self.longest_wait_ms,
            self.deletes,
            self.longest_delete_ms,
            match self.resumed {
                true => format!("writes resumed after {:.1} ms", self.resumed_after_ms),
                false => "writes did NOT resume".to_owned(),
            },
            self.reads,
        );
        let mut broken = |count: u64, what: &str| {
            text.push_str(&if count > 0 { format!("  NOT KEPT: {count} {what}\n") } else { String::new() });
        };
        broken(self.deletes_refused, "deletes were refused for want of space");
        broken(self.reads_wrong, "reads did not find what was acknowledged last");
        broken(self.files_damaged, "files are damaged");
        self.failure.iter().for_each(|failure| text.push_str(&format!("  NOT KEPT: {failure}\n")));
        text
    }

    /// Fills the store in `dir`, overwrites keys for `seconds`, and so on; see the module.
    /// `watched` is called with the open store, and calls back.
    pub fn run(args: &BenchArgs, opener: &dyn Opener, dir: &Path, seconds: f64) -> Result<Full> {
        let settings = EngineSettings::of(args)?;
        let space = KeySpace::new(args);
        let mut model = Model::new(args, &space);
        let engine = opener.open(dir, &settings)?;
        let phases = model.phases(args, engine.as_ref(), seconds);
        let closed = engine.close();
        let reopened = model.reopened(opener, dir, &settings);
        let failure = phases.and(closed).and(reopened).err();
        model.full.failure = failure.map(|e| e.to_string());
        Ok(model.full)
    }
}

/// A store near a limit, and its expected contents.
pub(crate) struct Model<'a> {
    pub full: Full,
    space: &'a KeySpace,
    /// Checksum of the value of each key; `None` if it must not exist.
    acknowledged: Vec<Option<u64>>,
}

impl<'a> Model<'a> {
    pub fn new(args: &BenchArgs, space: &'a KeySpace) -> Model<'a> {
        Model { full: Full::default(), space, acknowledged: vec![None; args.keys() as usize] }
    }

    fn phases(&mut self, args: &BenchArgs, engine: &dyn Engine, seconds: f64) -> Result<()> {
        let mut load = Stream::new(self.space, Role::Load, Kind::Put, args.keys(), 0, 1);
        while load.advance() {
            // A key without space now would have none later.
            self.put(engine, &load)?;
        }
        let mut updates = Stream::new(self.space, Role::Client, Kind::Put, u64::MAX, 0, 1);
        let end_ns = now_ns() + (seconds * 1e9) as u64;
        while now_ns() < end_ns && updates.advance() {
            if !self.put(engine, &updates)? {
                wait_until(now_ns() + RETRY_NS);
            }
        }
        self.read_all(engine)?;
        let deleted = self.delete(engine)?;
        let refused = self.full.enospc;
        let taken = self.full.writes;
        let begin_ns = now_ns();
        let resumed = deleted && self.resumes(engine, &mut updates)?;
        (self.full.resumed, self.full.resumed_after_ms) = (resumed, millis(now_ns() - begin_ns));
        // Refusals while deletes take effect do not count.
        (self.full.enospc, self.full.writes) = (refused, taken);
        Ok(())
    }

    /// Deletes a part of the keys; returns false if some were refused until the timeout.
    fn delete(&mut self, engine: &dyn Engine) -> Result<bool> {
        let end_ns = now_ns() + RESUME_NS;
        for index in (0..self.acknowledged.len()).step_by(DELETE_EVERY) {
            if !self.delete_key(engine, index, end_ns)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Deletes a key, with retries until `end_ns`; returns false if it was refused.
    pub fn delete_key(&mut self, engine: &dyn Engine, index: usize, end_ns: u64) -> Result<bool> {
        let (mut key, mut refused) = (Vec::new(), false);
        self.space.keys.write(index as u64, &mut key);
        loop {
            let begin_ns = now_ns();
            let outcome = engine.delete(&key);
            self.full.longest_delete_ms = self.full.longest_delete_ms.max(millis(now_ns() - begin_ns));
            if is_taken(outcome)? {
                break;
            }
            self.full.deletes_refused += u64::from(!refused);
            refused = true;
            if now_ns() >= end_ns {
                return Ok(false);
            }
            wait_until(now_ns() + RETRY_NS);
        }
        self.acknowledged[index] = None;
        self.full.deletes += 1;
        Ok(true)
    }

    /// Returns true once enough writes in a row were accepted.
    fn resumes(&mut self, engine: &dyn Engine, updates: &mut Stream) -> Result<bool> {
        let (end_ns, mut in_a_row) = (now_ns() + RESUME_NS, 0);
        let wanted = RESUMED_WRITES.min(self.full.deletes / 2);
        while in_a_row < wanted && now_ns() < end_ns && updates.advance() {
            if self.put(engine, updates)? {
                in_a_row += 1;
            } else {
                in_a_row = 0;
                wait_until(now_ns() + RETRY_NS);
            }
        }
        Ok(in_a_row >= wanted)
    }

    pub fn reopened(&mut self, opener: &dyn Opener, dir: &Path, settings: &EngineSettings) -> Result<()> {
        let engine = opener.open(dir, settings)?;
        let outcome = self.read_all(engine.as_ref()).and_then(|()| engine.files_damaged());
        self.full.files_damaged = *outcome.as_ref().unwrap_or(&0);
        let closed = engine.close();
        outcome.and(closed)
    }

    /// Writes a value; returns false without space.
    pub fn put(&mut self, engine: &dyn Engine, stream: &Stream) -> Result<bool> {
        let begin_ns = now_ns();
        let outcome = engine.put(&stream.key, &stream.value);
        self.full.longest_wait_ms = self.full.longest_wait_ms.max(millis(now_ns() - begin_ns));
        let taken = is_taken(outcome)?;
        if taken {
            self.full.writes += 1;
            self.acknowledged[stream.index as usize] = Some(xxh3_64(&stream.value));
        } else {
            self.full.enospc += 1;
        }
        Ok(taken)
    }

    /// Reads and checks every key.
    pub fn read_all(&mut self, engine: &dyn Engine) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for (index, expected) in self.acknowledged.iter().enumerate() {
            self.space.keys.write(index as u64, &mut key);
            let found = engine.get(&key, &mut value)?.then(|| xxh3_64(&value));
            self.full.reads += 1;
            self.full.reads_wrong += u64::from(found != *expected);
        }
        Ok(())
    }
}

fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Returns false for lack of space; other errors are returned.
fn is_taken(outcome: Result<()>) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(e) if is_no_space(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

fn is_no_space(e: &Error) -> bool {
    e.downcast_ref::<lavastore::Error>().is_some_and(|e| e.kind() == ErrorKind::NoSpace)
}
