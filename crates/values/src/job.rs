//! The garbage collection job: copies the live records of its inputs to new files, in bounded
//! steps.
//!
//! ```text
//! dense keys of all inputs, merged -> window -> lookup in the tables of the version -> live or not
//!     -> runs of live records, read from exact offsets -> verified, copied verbatim in key order -> outputs
//! ```
//!
//! The stages overlap: records are read while others are copied and the next window is judged
//! (`pipeline`).
//!
//! Values are read last, and only the live ones (lazy read, Scavenger+). Compressed records are
//! copied unchanged, except for the checksum's mask, so the lengths in references stay right. A
//! step judges or copies for a few milliseconds; between steps a scheduler (or a simulation with a
//! single thread) does other work.
//!
//! ## Rules
//!
//! 1. A record is live if and only if a table of the job's version has a reference with its exact
//!    internal key that resolves to the record's file. Snapshots do not matter. Memtables are never
//!    consulted: a memtable that is lost in a crash would bring back a collected record.
//! 2. Liveness only decreases (see [`crate::pins`]). A record that is dead in that version is dead
//!    at the install, however many edits lie between. A record that dies meanwhile is garbage of
//!    the output.
//! 3. The number of live records found is compared with the references in the version. If it is
//!    lower than the number of references under blob ids that resolve to the inputs alone, the job
//!    fails with `Corruption` and replaces nothing.
//! 4. A record that fails its checksum is never copied: the job fails, and names file and offset.
//! 5. A job with estimated garbage (a blob id resolves to an input and to another file) may be
//!    abandoned. It stops when an eighth of the records shows much less garbage than was expected,
//!    and reports its measurements. Nothing is installed. (An exact estimate is not corrected by a
//!    part of the keys: their garbage may be at the end.)
//!
//! ## Blob ids
//!
//! Each output takes over every blob id of every input. The blob ids of an input resolve to the
//! output that has the key. With one output, which the choice of inputs aims at, an alias has one
//! target. An output takes over a blob id even if it has only a part of its keys. While the job
//! runs, another job may replace a neighboring file under the same alias, and then the borders
//! between the targets of the alias move.
//!
//! ## Failure
//!
//! After an error every further step returns the same error. [`GcJob::created`] lists every file
//! made, finished or not: the caller deletes them, also after [`GcOutcome::Abandoned`]. Nothing
//! else has changed.

pub(crate) use copy::GAP_UNKNOWN;
pub use forecast::LookupForecast;

use crate::outputs::{OutputVsst, Outputs};
use crate::pick::{Gc, GcOptions};
use base::{Error, ErrorKind, Result};
use io::ReadQueue;
use lookup::{Lookup, LookupContext, LookupStats};
use names::Names;
use pipeline::Pipeline;
use std::path::PathBuf;
use std::sync::Arc;
use table::source::read_now;
use table::{BlockRequest, FetchedBlocks, Ksst, Source, Vsst, VsstBuilder};
use version::{FileMeta, Level, Version, VsstClass, VsstMeta};
use window::{MergedKeys, Window};

mod copy;
mod forecast;
mod lookup;
mod names;
mod pace;
mod pipeline;
mod points;
mod window;

/// Number of keys that a step moves into the window.
const FILL_STEP: usize = 8 << 10;
/// Number of tables that a step checks.
const SURVEY_STEP: usize = 512;

/// Environment of a job, passed to it for one step.
pub trait GcEnv {
    /// Returns the open table of `file`.
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>>;
    /// Returns the open vSST of `meta`.
    fn vsst(&self, meta: &VsstMeta) -> Result<Arc<Vsst>>;
    /// Starts an output, whose records have this alignment and class.
    fn create(&mut self, alignment: u32, class: VsstClass) -> Result<OutputVsst>;
    /// Returns the time of the clock that times lookups, so that the cheaper kind is chosen.
    /// `None`: they are estimated.
    fn now_ns(&self) -> Option<u64> {
        None
    }
    /// Reads the extents that lookups want (ascending, each once) in one batch if possible, and
    /// delivers them.
    fn read_wanted(&self, fetched: &mut FetchedBlocks, wants: &[BlockRequest]) {
        for want in wants {
            let read = read_now(&want.file, want.extent);
            if read.is_ok() {
                fetched.counters().count_request(want.extent.len);
            }
            fetched.put(want, read);
        }
    }
    /// Returns a queue for reads of records that go on between the steps of the job. `None`: the
    /// job waits for each read.
    fn reads(&self) -> Option<ReadQueue> {
        None
    }
}

/// Measurements of one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Number of the file.
    pub file: u64,
    /// Bytes of the judged records.
    pub judged_bytes: u64,
    /// Bytes of the judged records that are garbage.
    pub garbage_bytes: u64,
}

/// Result of a job.
#[derive(Clone, Debug)]
pub enum GcOutcome {
    /// The outputs, finished and synced, in key order, replace the inputs. There are none if no
    /// record was live.
    Replace {
        /// Files to replace.
        inputs: Vec<u64>,
        /// Files that take over.
        outputs: Vec<VsstMeta>,
    },
    /// There was too little garbage. The outputs begun (see [`GcJob::created`]) must be removed.
    Abandoned {
        /// Measurements of each input.
        measured: Vec<Measured>,
    },
}

/// Result of a step.
#[derive(Debug)]
pub enum GcStep {
    /// More steps are needed.
    More,
    /// The job is done.
    Done(GcOutcome),
}

/// Counters of a job so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcStats {
    /// Number of judged keys of the inputs.
    pub keys: u64,
    /// Number of live keys among them.
    pub live_keys: u64,
    /// Bytes of the judged records.
    pub judged_bytes: u64,
    /// Bytes of the live records.
    pub live_bytes: u64,
    /// Number of keys looked up in tables one by one.
    pub point_lookups: u64,
    /// Number of references passed in merge joins.
    pub joined_references: u64,
    /// Bytes read from tables for lookups, without cached ones.
    pub lookup_read_bytes: u64,
    /// Bytes of keys read from the inputs.
    pub key_read_bytes: u64,
    /// Number of requests that read records.
    pub record_reads: u64,
    /// Number of these requests that ran in the background.
    pub record_reads_ahead: u64,
    /// Bytes of all these requests, gaps included.
    pub record_read_bytes: u64,
    /// Maximum bytes of records held at a time.
    pub held_bytes_max: u64,
}

enum State {
    New,
    /// Searches the tables that may use blob ids of the inputs, from this index of this level on.
    Survey(usize, usize),
    /// Opens the inputs, one in a step.
    Open,
    /// Judges windows, and copies their live records.
    Run,
    /// Finishes the last output.
    Finish,
    Done,
    Failed(Error),
}

/// A garbage collection in progress: see the module.
pub struct GcJob {
    gc: Gc,
    /// Tables of the version; none after the survey. The job keeps only the tables that it looks
    /// up, and no vSST but the inputs, so files that other jobs replace meanwhile may be deleted.
    levels: Vec<Level>,
    options: GcOptions,
    names: Names,
    /// Tables that may use one of the blob ids, from level 0 down; none once all keys are judged.
    tables: Vec<Arc<FileMeta>>,
    /// Inputs opened so far.
    inputs: Vec<Arc<Vsst>>,
    keys: MergedKeys,
    /// The window being filled, and then judged.
    window: Window,
    judging: Option<Box<Lookup>>,
    /// True if the last step copied: then the next one judges, while the copied bytes are being
    /// written.
    copied: bool,
    pipeline: Pipeline,
    outputs: Outputs,
    measured: Vec<Measured>,
    stats: GcStats,
    lookup: LookupStats,
    reported_read_bytes: u64,
    state: State,
}

impl GcJob {
    /// Returns a job for `gc`, which was picked from `version`. It reads nothing yet.
    pub fn new(gc: Gc, version: &Version, options: GcOptions) -> Self {
        let names = Names::new(version, &gc.inputs);
        let measured = gc.numbers().map(|file| Measured { file, ..Measured::default() }).collect();
        GcJob {
            names,
            gc,
            levels: version.levels.clone(),
            options,
            tables: Vec::new(),
            inputs: Vec::new(),
            keys: MergedKeys::default(),
            window: Window::default(),
            judging: None,
            copied: false,
            pipeline: Pipeline::default(),
            outputs: Outputs::default(),
            measured,
            stats: GcStats::default(),
            lookup: LookupStats::default(),
            reported_read_bytes: 0,
            state: State::New,
        }
    }

    /// Does a bounded amount of work: judges some thousand keys, or copies about `step_bytes` of
    /// records.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, for a record that fails its checksum: nothing damaged is
    /// copied. The errors of tables, vSSTs and outputs. After an error every further step returns
    /// the same error.
    ///
    /// # Panics
    /// If the job is already done.
    pub fn step(&mut self, world: &mut dyn GcEnv) -> Result<GcStep> {
        let state = std::mem::replace(&mut self.state, State::Done);
        let next = match state {
            State::New => self.begin(),
            State::Survey(level, from) => self.survey(level, from),
            State::Open => self.open(world),
            State::Run => self.run(world),
            State::Finish => self.finish(),
            State::Done => panic!("a step after the job was done"),
            State::Failed(e) => Err(e),
        };
        match next {
            Ok(Next::Go(state)) => {
                self.state = state;
                Ok(GcStep::More)
            }
            Ok(Next::End(outcome)) => {
                self.pipeline.end();
                Ok(GcStep::Done(outcome))
            }
            Err(e) => {
                // Waits for reads in flight, since no step will.
                self.pipeline.end();
                self.state = State::Failed(e.clone());
                Err(e)
            }
        }
    }

    /// Returns the collection of this job.
    pub fn gc(&self) -> &Gc {
        &self.gc
    }

    /// Returns the number and path of every file begun so far, finished or not.
    pub fn created(&self) -> &[(u64, PathBuf)] {
        self.outputs.created()
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> GcStats {
        GcStats {
            point_lookups: self.lookup.point_lookups,
            joined_references: self.lookup.joined_references,
            lookup_read_bytes: self.lookup.counters.device_read_bytes,
            key_read_bytes: self.keys.counters().device_read_bytes,
            record_reads: self.pipeline.stats.reads,
            record_reads_ahead: self.pipeline.stats.reads_ahead,
            record_read_bytes: self.pipeline.stats.read_bytes,
            held_bytes_max: self.pipeline.stats.held_bytes_max,
            ..self.stats
        }
    }

    /// Returns the bytes read, or requested, since the last call. The caller charges them to the
    /// rate limiter after each step.
    pub fn take_read_bytes(&mut self) -> u64 {
        let stats = self.stats();
        let total = stats.lookup_read_bytes + stats.key_read_bytes + stats.record_read_bytes;
        let new = total.saturating_sub(self.reported_read_bytes);
        self.reported_read_bytes = self.reported_read_bytes.max(total);
        new
    }

    /// Returns the bytes written since the last call, estimated for the open file.
    pub fn take_written_bytes(&mut self) -> u64 {
        self.outputs.take_written_bytes()
    }

    fn begin(&mut self) -> Result<Next> {
        if self.names.are_dead() {
            return Ok(Next::End(self.replaced()));
        }
        if let Some(file) = self.gc.inputs.iter().find(|v| v.global_seq.is_some()) {
            let why = format!(
                "the value file (vSST) {} was ingested and cannot be collected, so its records stay: \
                 collect them after the next compaction",
                file.number
            );
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        Ok(Next::Go(State::Survey(0, 0)))
    }

    fn survey(&mut self, level: usize, from: usize) -> Result<Next> {
        let part = self.levels.get(level).and_then(|files| files.get(from..)).unwrap_or_default();
        let part = part.get(..SURVEY_STEP).unwrap_or(part);
        self.tables.extend(part.iter().filter(|f| self.names.may_be_used_by(f)).cloned());
        if !part.is_empty() {
            return Ok(Next::Go(State::Survey(level, from + part.len())));
        }
        if level + 1 < self.levels.len() {
            return Ok(Next::Go(State::Survey(level + 1, 0)));
        }
        self.levels.clear();
        Ok(Next::Go(State::Open))
    }

    fn open(&mut self, world: &mut dyn GcEnv) -> Result<Next> {
        let Some(meta) = self.gc.inputs.get(self.inputs.len()) else {
            let queue = if self.options.pipelined { world.reads() } else { None };
            self.pipeline = Pipeline::new(&self.options, &self.inputs, queue);
            return Ok(Next::Go(State::Run));
        };
        let input = world.vsst(meta)?;
        self.keys.add(&input)?;
        self.inputs.push(input);
        Ok(Next::Go(State::Open))
    }

    /// Returns the alignment of the outputs: the finest of the inputs, which fits all records.
    fn alignment(&self) -> u32 {
        self.inputs.iter().map(|v| v.alignment()).min().unwrap_or(1)
    }

    /// Starts the reads of the next batches, and does one thing meanwhile: alternately copies a
    /// batch that was read and judges. Waits for a batch only if nothing is left to judge.
    fn run(&mut self, world: &mut dyn GcEnv) -> Result<Next> {
        self.pipeline.fill(&self.inputs)?;
        let is_judged = self.keys.is_done() && self.window.len() == 0;
        let is_turn = self.copied || !self.pipeline.has_landed();
        self.copied = !(is_turn && !is_judged && self.pipeline.may_judge());
        if !self.copied {
            return match self.judging.take() {
                None => self.fill(),
                Some(lookup) => self.judge(lookup, world),
            };
        }
        Ok(Next::Go(if self.copy(world)? || !is_judged { State::Run } else { State::Finish }))
    }

    fn fill(&mut self) -> Result<Next> {
        let limits = self.pipeline.window_max(&self.options);
        let full = self.keys.fill(&mut self.window, FILL_STEP, limits)?;
        if full || self.keys.is_done() {
            self.judging = Some(Box::new(Lookup::new(&self.tables, &self.window)));
        }
        Ok(Next::Go(State::Run))
    }

    fn judge(&mut self, mut lookup: Box<Lookup>, world: &mut dyn GcEnv) -> Result<Next> {
        let context = LookupContext {
            names: &self.names,
            inputs: &self.inputs,
            world: &*world,
            lookups: self.options.lookups,
        };
        if !lookup.step(&context, &mut self.window, &mut self.lookup)? {
            self.judging = Some(lookup);
            return Ok(Next::Go(State::Run));
        }
        for entry in &self.window.entries {
            let (bytes, live) = (u64::from(entry.stored_len), u64::from(entry.live));
            self.stats.keys += 1;
            self.stats.live_keys += live;
            self.stats.judged_bytes += bytes;
            self.stats.live_bytes += bytes * live;
            let measured = &mut self.measured[entry.input as usize];
            measured.judged_bytes += bytes;
            measured.garbage_bytes += bytes * (1 - live);
        }
        if self.keys.is_done() {
            // No further lookups: tables that compactions replace while values are copied may be
            // deleted.
            self.tables.clear();
        }
        if self.is_hopeless() {
            return Ok(Next::End(GcOutcome::Abandoned { measured: self.measured.clone() }));
        }
        self.window = self.pipeline.take(std::mem::take(&mut self.window));
        Ok(Next::Go(State::Run))
    }

    /// Returns true if the keys judged so far show that the estimate was far too high.
    fn is_hopeless(&self) -> bool {
        if !self.names.are_parted() {
            return false;
        }
        let all: u128 = self.gc.inputs.iter().map(|v| u128::from(v.record_bytes)).sum();
        let judged = u128::from(self.stats.judged_bytes);
        let garbage = u128::from(self.stats.judged_bytes - self.stats.live_bytes);
        // garbage / judged < expected / all * percent / 100
        let expected = u128::from(self.gc.expected_free) * u128::from(self.options.abandon_percent);
        judged * 8 >= all && garbage * all * 100 < expected * judged
    }

    /// Copies the records of one step from the next batch, and waits for its reads. Returns false
    /// if there is no batch.
    fn copy(&mut self, world: &mut dyn GcEnv) -> Result<bool> {
        let Some(mut batch) = self.pipeline.next()? else { return Ok(false) };
        let alignment = self.alignment();
        let (mut bytes, mut copied) = (0, batch.copied);
        for (record, entry) in batch.entries() {
            if bytes >= self.options.step_bytes.max(1) {
                break;
            }
            (bytes, copied) = (bytes + u64::from(entry.stored_len), record + 1);
            let record = batch.open(record, &self.inputs)?;
            if !entry.live {
                continue;
            }
            let record_bytes = self.outputs.record_bytes();
            let full = |builder: &VsstBuilder| is_full(builder, &self.gc, &self.options, record_bytes);
            let create = || world.create(alignment, self.gc.class);
            let key = batch.window.user_key(entry);
            let builder = self.outputs.file_for(key, self.names.took_over(), full, create)?;
            let lens = builder.copy(&record)?;
            debug_assert_eq!(lens.stored_len, record.stored.len() as u64, "copied verbatim");
            self.outputs.added(&lens);
        }
        batch.copied = copied;
        self.pipeline.copied(batch);
        Ok(true)
    }

    fn finish(&mut self) -> Result<Next> {
        let (found, expected) = (self.lookup.whole_live, self.names.expected());
        if found != expected {
            let why = format!(
                "key tables refer to {expected} values in the value files (vSSTs) {}, but {found} of them \
                 were found: garbage collection leaves these files unchanged",
                self.gc.numbers().map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
            );
            return Err(Error::corruption(why));
        }
        assert_eq!(self.stats.live_bytes, self.outputs.record_bytes(), "every live record was copied");
        self.outputs.finish_file(self.names.took_over())?;
        Ok(Next::End(self.replaced()))
    }

    fn replaced(&mut self) -> GcOutcome {
        GcOutcome::Replace { inputs: self.gc.numbers().collect(), outputs: self.outputs.take_finished() }
    }
}

/// Outcome of a step.
enum Next {
    Go(State),
    End(GcOutcome),
}

/// Returns true if an output has its size. It may exceed its size a little, to avoid a second file
/// that is nearly empty and gives every blob id two targets.
fn is_full(builder: &VsstBuilder, gc: &Gc, options: &GcOptions, written: u64) -> bool {
    let left = gc.expected_write.saturating_sub(written);
    let slack = options.file_bytes / 4;
    let len = builder.len_estimate();
    len >= options.file_bytes && (left > slack || len >= options.file_bytes + 2 * slack)
}
