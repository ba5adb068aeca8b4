//! The garbage collection job: copies the live records of its inputs to new files, in bounded steps.
//!
//! ```text
//! dense keys of all inputs, merged -> window -> lookup in the tables of the version -> live or not
//!     -> runs of live records, read from exact offsets -> verified, copied verbatim in key order -> outputs
//! ```
//!
//! All of it overlaps: records are read while others are copied and the next window is judged (`pipeline`).
//!
//! Values are read last, and only the live ones (lazy read, Scavenger+); compressed records are copied as they are, with
//! nothing but the checksum's mask changed, so the lengths in references stay right. A step judges or copies a few
//! milliseconds' worth; between steps a scheduler (or a simulation with a single thread) does other work.
//!
//! ## Rules
//!
//! 1. A record is live if and only if its exact internal key is physically there as a reference that leads to its file,
//!    in the version that the job was made for, whatever snapshots see. Memtables are never asked: one that is lost in a
//!    crash would bring back what was collected.
//! 2. Liveness only falls (see [`crate::pins`]): what is dead in that version is dead at the install, however many edits
//!    lie between, and what died meanwhile is garbage of the output.
//! 3. What was found is compared with what the version says is referenced: if fewer records turn up than tables
//!    reference under names that lead to the inputs alone, the job fails with `Corruption` and replaces nothing.
//! 4. A record that fails its checksum is never copied: the job fails, naming file and offset.
//! 5. A job whose garbage was only estimated (a name leads to an input and to another file) stops when an eighth of the records shows much less garbage
//!    than was expected, and reports what it measured. Nothing is installed. (An exact estimate is not corrected by a
//!    part of the keys: their garbage may well lie at the end.)
//!
//! ## The names
//!
//! Each output takes over every name of every input. The names of an input lead to the output that has the key; with one
//! output, which is what the choice of inputs aims at, an alias has one target.
//!
//! ## Failure
//!
//! After an error every further step returns the same error. [`GcJob::created`] lists every file made, finished or not:
//! the caller deletes them, also after [`GcOutcome::Abandoned`]. Nothing else has been touched.

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
use table::{Fetched, Ksst, Source, Vsst, VsstBuilder, Want};
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

/// Keys that a step moves into the window.
const FILL_STEP: usize = 8 << 10;
/// Tables that a step looks at.
const SURVEY_STEP: usize = 512;

/// The world around a job, lent to it for a step.
pub trait GcWorld {
    /// The open table of `file`.
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>>;
    /// The open vSST of `meta`.
    fn vsst(&self, meta: &VsstMeta) -> Result<Arc<Vsst>>;
    /// Begins an output, whose records have this alignment and class.
    fn create(&mut self, alignment: u32, class: VsstClass) -> Result<OutputVsst>;
    /// The clock by which lookups are timed, so that the cheaper kind is chosen. `None`: they are estimated.
    fn now_ns(&self) -> Option<u64> {
        None
    }
    /// Reads what lookups want (ascending, each once), all of it together where that is possible, and hands it over.
    fn read_wanted(&self, fetched: &mut Fetched, wants: &[Want]) {
        for want in wants {
            let read = read_now(&want.file, want.extent);
            if read.is_ok() {
                fetched.counters().count_request(want.extent.len);
            }
            fetched.put(want, read);
        }
    }
    /// A queue for reads of records that go on between and beside the steps of the job. `None`: they are waited for.
    fn reads(&self) -> Option<ReadQueue> {
        None
    }
}

/// What was found in one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The file.
    pub file: u64,
    /// Bytes of the records that were judged.
    pub judged_bytes: u64,
    /// Bytes of those that are garbage.
    pub garbage_bytes: u64,
}

/// What a job came to.
#[derive(Clone, Debug)]
pub enum GcOutcome {
    /// The outputs, finished and synced, in key order, take the place of the inputs. None: nothing was live.
    Replace {
        /// The files replaced.
        inputs: Vec<u64>,
        /// The files that take over.
        outputs: Vec<VsstMeta>,
    },
    /// There was too little garbage. The outputs begun (see [`GcJob::created`]) are to be removed.
    Abandoned {
        /// What was found, input by input.
        measured: Vec<Measured>,
    },
}

/// What a step came to.
#[derive(Debug)]
pub enum GcStep {
    /// There is more to do.
    More,
    /// The job is done.
    Done(GcOutcome),
}

/// Counts of a job so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcStats {
    /// Keys of the inputs that were judged.
    pub keys: u64,
    /// Those that are live.
    pub live_keys: u64,
    /// Bytes of the records judged.
    pub judged_bytes: u64,
    /// Bytes of the live ones.
    pub live_bytes: u64,
    /// Keys looked up in tables one by one.
    pub point_lookups: u64,
    /// References passed in merge joins.
    pub joined_references: u64,
    /// Bytes read from tables for lookups (what was not cached).
    pub lookup_read_bytes: u64,
    /// Bytes of keys read from the inputs.
    pub key_read_bytes: u64,
    /// Requests that read records.
    pub record_reads: u64,
    /// Those of them that went on while the job did something else.
    pub record_reads_ahead: u64,
    /// Bytes of all, gaps included.
    pub record_read_bytes: u64,
    /// The most bytes of records that were held at a time.
    pub held_bytes_max: u64,
}

enum State {
    New,
    /// Tables that may use names of the inputs are looked for, from this one of this level on.
    Survey(usize, usize),
    /// Inputs are opened, one in a step.
    Open,
    /// Windows are judged, and their live records copied.
    Run,
    /// The last output is finished.
    Finish,
    Done,
    Failed(Error),
}

/// A garbage collection in progress. See the module.
pub struct GcJob {
    gc: Gc,
    /// The tables of the version; none after the survey. Only those asked are held on to, and no vSST but the inputs:
    /// what other jobs replace meanwhile may go.
    levels: Vec<Level>,
    options: GcOptions,
    names: Names,
    /// Tables that may use one of the names, from level 0 down; none once all keys are judged.
    tables: Vec<Arc<FileMeta>>,
    /// The inputs opened so far.
    inputs: Vec<Arc<Vsst>>,
    keys: MergedKeys,
    /// The window that is filled, and then judged.
    window: Window,
    judging: Option<Box<Lookup>>,
    /// The last step copied: the next one judges, while what it wrote is being written.
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
    /// A job for `gc`, which was picked from `version`. Nothing is read yet.
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

    /// Does a bounded amount of work: judges some thousand keys, or copies about `step_bytes` of records.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, for a record that fails its checksum: nothing damaged is copied. Those of
    /// tables, vSSTs and outputs. After an error every further step returns the same.
    ///
    /// # Panics
    /// If the job is done already.
    pub fn step(&mut self, world: &mut dyn GcWorld) -> Result<GcStep> {
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
                // What is on its way is waited for: nobody goes on with it.
                self.pipeline.end();
                self.state = State::Failed(e.clone());
                Err(e)
            }
        }
    }

    /// What it collects.
    pub fn gc(&self) -> &Gc {
        &self.gc
    }

    /// Every file begun so far, finished or not: number and path.
    pub fn created(&self) -> &[(u64, PathBuf)] {
        self.outputs.created()
    }

    /// Counts so far.
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

    /// Bytes read since the last call, or begun to be: what a rate limiter is charged after each step.
    pub fn take_read_bytes(&mut self) -> u64 {
        let stats = self.stats();
        let total = stats.lookup_read_bytes + stats.key_read_bytes + stats.record_read_bytes;
        let new = total.saturating_sub(self.reported_read_bytes);
        self.reported_read_bytes = self.reported_read_bytes.max(total);
        new
    }

    /// Bytes written since the last call (estimated for the file that is open).
    pub fn take_written_bytes(&mut self) -> u64 {
        self.outputs.take_written_bytes()
    }

    fn begin(&mut self) -> Result<Next> {
        if self.names.are_dead() {
            return Ok(Next::End(self.replaced()));
        }
        if let Some(file) = self.gc.inputs.iter().find(|v| v.global_seq.is_some()) {
            let why = format!("vSST {} was ingested: its records cannot be collected yet", file.number);
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

    fn open(&mut self, world: &mut dyn GcWorld) -> Result<Next> {
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

    /// The alignment of the outputs: the finest of the inputs, which fits the records of all.
    fn alignment(&self) -> u32 {
        self.inputs.iter().map(|v| v.alignment()).min().unwrap_or(1)
    }

    /// Has the next batches read, and does one thing meanwhile: copies one that is there and judges by turns, and waits for one only if nothing is to be
    /// judged.
    fn run(&mut self, world: &mut dyn GcWorld) -> Result<Next> {
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

    fn judge(&mut self, mut lookup: Box<Lookup>, world: &mut dyn GcWorld) -> Result<Next> {
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
            // Nothing is asked any more: what compactions replace while values are copied may go.
            self.tables.clear();
        }
        if self.is_hopeless() {
            return Ok(Next::End(GcOutcome::Abandoned { measured: self.measured.clone() }));
        }
        self.window = self.pipeline.take(std::mem::take(&mut self.window));
        Ok(Next::Go(State::Run))
    }

    /// True if the keys judged so far show that the estimate was far too high.
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

    /// Copies of the next batch, which is waited for, as much as is one step's. False: there is none.
    fn copy(&mut self, world: &mut dyn GcWorld) -> Result<bool> {
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
                "tables reference {expected} values in vSSTs {:?}, of which {found} are there: verify the store",
                self.gc.numbers().collect::<Vec<_>>()
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

/// What comes after a step.
enum Next {
    Go(State),
    End(GcOutcome),
}

/// True if an output has its size. A little more is better than a second file that is nearly empty and gives every
/// name two targets.
fn is_full(builder: &VsstBuilder, gc: &Gc, options: &GcOptions, written: u64) -> bool {
    let left = gc.expected_write.saturating_sub(written);
    let slack = options.file_bytes / 4;
    let len = builder.len_estimate();
    len >= options.file_bytes && (left > slack || len >= options.file_bytes + 2 * slack)
}
