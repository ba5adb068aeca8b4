//! A space limit that changes during writes.
//!
//! Keys are overwritten at random while the limit falls and rises. A write refused for lack of
//! space is followed by a delete, which must succeed. The files are sampled continuously: a store
//! keeps its limit, and one above a lowered limit grows no further. At the end every key is read,
//! also after a reopen.

use crate::args::BenchArgs;
use crate::engine::{Engine, EngineSettings, Opener};
use crate::full::{Full, Model};
use crate::host::now_ns;
use crate::limit::SAMPLE_NS;
use crate::record::Kind;
use crate::workload::{KeySpace, Role, Stream};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The limits in percent of the limit of the run.
const PERCENTS: [u64; 8] = [100, 60, 150, 40, 100, 80, 200, 50];
/// Maximum time of retries of a refused delete in nanoseconds.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Changes of the limit.
    pub changes: u64,
    /// Samples of the store's space.
    pub looks: u64,
    /// Samples above the allowed space.
    pub breaches: u64,
    /// Writes, deletes and reads.
    pub calls: Full,
}

impl Changed {
    /// Returns true if all guarantees were kept.
    pub fn is_kept(&self) -> bool {
        let calls = &self.calls;
        let sound = calls.reads_wrong == 0 && calls.files_damaged == 0 && calls.failure.is_none();
        self.breaches == 0 && calls.deletes_refused == 0 && sound
    }

    /// Formats the counts as text.
    pub fn text(&self) -> String {
        let calls = &self.calls;
        let mut text = format!(
            "changed        {} limits; {} writes taken, {} refused for want of space; {} deletes, {} refused, longest {:.1} ms; \
             above what it may have in {} of {} looks; {} of {} reads wrong\n",
            self.changes,
            calls.writes,
            calls.enospc,
            calls.deletes,
            calls.deletes_refused,
            calls.longest_delete_ms,
            self.breaches,
            self.looks,
            calls.reads_wrong,
            calls.reads,
        );
        calls.failure.iter().for_each(|failure| text.push_str(&format!("  NOT KEPT: {failure}\n")));
        text
    }

    /// Runs for `seconds` in `dir`. `None`: the engine cannot change its limit.
    pub fn run(
        args: &BenchArgs,
        opener: &dyn Opener,
        dir: &Path,
        limit_bytes: u64,
        seconds: f64,
    ) -> Result<Option<Changed>> {
        let (settings, space) = (EngineSettings::of(args)?, KeySpace::new(args));
        let mut model = Model::new(args, &space);
        let engine = opener.open(dir, &settings)?;
        if engine.change_space_limit(limit_bytes)?.is_none() {
            engine.close()?;
            return Ok(None);
        }
        let mut changed = Changed::default();
        let end_ns = now_ns() + (seconds * 1e9) as u64;
        let slice_ns = (seconds * 1e9) as u64 / (2 * PERCENTS.len() as u64);
        let mut updates = Stream::new(&space, Role::Client, Kind::Put, u64::MAX, 0, 1);
        let mut phases = Ok(());
        for percent in PERCENTS.iter().cycle() {
            if now_ns() >= end_ns || phases.is_err() {
                break;
            }
            let slice = (limit_bytes * percent / 100, now_ns() + slice_ns);
            phases = changed.slice((engine.as_ref(), dir), &mut model, &mut updates, slice);
        }
        let read = phases.and_then(|()| model.read_all(engine.as_ref()));
        let closed = engine.close();
        let failure = read.and(closed).and(model.reopened(opener, dir, &settings)).err();
        model.full.failure = failure.map(|e: Error| e.to_string());
        changed.calls = model.full;
        Ok(Some(changed))
    }

    /// Runs with one limit until a time.
    fn slice(
        &mut self,
        (engine, dir): (&dyn Engine, &Path),
        model: &mut Model<'_>,
        updates: &mut Stream,
        (limit_bytes, until_ns): (u64, u64),
    ) -> Result<()> {
        let most = engine.change_space_limit(limit_bytes)?.unwrap_or(u64::MAX);
        self.changes += 1;
        let mut look_ns = now_ns() + SAMPLE_NS;
        while now_ns() < until_ns && updates.advance() {
            if !model.put(engine, updates)? {
                model.delete_key(engine, updates.index as usize, now_ns() + PATIENCE_NS)?;
            }
            if now_ns() >= look_ns {
                self.looks += 1;
                self.breaches += u64::from(engine.allocated(dir).bytes > most);
                look_ns = now_ns() + SAMPLE_NS;
            }
        }
        Ok(())
    }
}
