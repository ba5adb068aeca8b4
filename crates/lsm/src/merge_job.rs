//! The merge job: the engine of flush and compaction.
//!
//! It reads sorted runs through one merged cursor, drops the entries that no snapshot can see, and
//! writes the rest to new files. The module `rules` decides which entries to drop. The module
//! `output` decides where files end, and which part of each range tombstone goes into which file.
//! This module drives the two in bounded steps, so that a scheduler (or a simulation with a single
//! thread) can put other work between the steps.
//!
//! ## Snapshots
//!
//! The caller passes every sequence that a reader may hold, ascending, **with the visible frontier
//! at the job's start as the last one**. They cut the sequences into stripes. Two versions of a key
//! in the same stripe look the same to every reader, so the newer one is enough. Versions above the
//! last snapshot are copied unchanged.
//!
//! ## Contract for the inputs
//!
//! For every user key in their range, the inputs hold a contiguous part of its history. Versions
//! newer than an input entry lie above the job or in it; older versions lie in it or below (see
//! [`crate::below`]). Pickers ensure this by taking the oldest files of level 0 and all overlapping
//! files of the output level.
//!
//! ## Failure
//!
//! After an error every further step returns the same error. [`MergeJob::created`] lists every file
//! that the job made, finished or not: the caller deletes them. Nothing else has changed, since
//! inputs are only read.

use crate::below::OlderEntryCheck;
use crate::filter::JobFilter;
use crate::operator::MergeOperator;
use base::key::{self, ValueKind, encode};
use base::range_del::{FragmentedRangeTombstones, RangeTombstone};
use base::{Error, InternalIterator, MAX_SEQ, Result, SeqNo};
use cache::BlockSlice;
use output::Output;
use rules::Rules;
use std::path::PathBuf;
use std::sync::Arc;

mod output;
mod rules;

pub use output::{MergeOutput, OutputCutter, OutputFile, OutputFiles, OutputSize, OutputTable, SizeCutter};

/// Options of a merge job.
#[derive(Clone)]
pub struct MergeOptions {
    /// Every sequence that a reader may hold, ascending; the last is the visible frontier at the
    /// job's start. If empty, nothing is dropped.
    pub snapshots: Vec<SeqNo>,
    /// First user key to merge; `None`: no lower bound.
    pub lower: Option<Vec<u8>>,
    /// First user key after the merged range; `None`: no upper bound.
    pub upper: Option<Vec<u8>>,
    /// Approximate number of input bytes that a step reads.
    pub step_bytes: u64,
    /// Whether to zero the sequences of inline values that all snapshots see and that have nothing
    /// underneath, so that they compress better. Must be off for outputs to level 0, whose files
    /// are ordered by their sequences.
    pub zero_sequences: bool,
    /// Folds merge operands; without it they are copied.
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// Removes or changes entries of this compaction.
    pub filter: Option<JobFilter>,
}

impl MergeOptions {
    /// Returns the default options for `snapshots`.
    pub fn new(snapshots: Vec<SeqNo>) -> Self {
        MergeOptions {
            snapshots,
            lower: None,
            upper: None,
            step_bytes: 256 << 10,
            zero_sequences: true,
            operator: None,
            filter: None,
        }
    }
}

/// Result of a [`ValueHook`] for an entry's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// The value is written unchanged.
    Keep,
    /// The value is replaced by the buffer, whose content has this kind (`Value` or `Reference`).
    As(ValueKind),
}

/// Sees every kept value and reference in key order before it is written. Flushes use it to
/// separate values into vSSTs; compactions use it to renew references or relocate values.
pub trait ValueHook {
    /// Rewrites the value of entry `(user_key, seq)`. The entry keeps this sequence if the result
    /// is a reference. `out` is empty on entry.
    fn rewrite(
        &mut self,
        user_key: &[u8],
        seq: SeqNo,
        kind: ValueKind,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Rewrite>;

    /// Returns the separated value of entry `(user_key, seq)`, to fold merge operands into it.
    /// `None`: the operands are kept beside it, as the default does.
    fn base(&mut self, _user_key: &[u8], _seq: SeqNo, _reference: &[u8]) -> Result<Option<BlockSlice>> {
        Ok(None)
    }
}

/// Reason for dropping an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// A newer version of the key in the same snapshot stripe hides the entry.
    Shadowed,
    /// A range tombstone in the same stripe covers the entry.
    Covered,
    /// A single delete and the value that it deletes cancel each other.
    Annihilated,
    /// The entry is a tombstone with nothing underneath.
    Obsolete,
    /// A merge operator folded the entry into a value.
    Folded,
}

/// Observes dropped entries.
pub trait DropObserver {
    /// Called for each dropped entry. The value is empty for a tombstone that was held back.
    fn dropped(&mut self, user_key: &[u8], seq: SeqNo, kind: ValueKind, value: &[u8], reason: DropReason);
}

/// Environment of a job, passed to it for one step.
pub struct JobEnv<'a, T: OutputTable> {
    /// Creates output files.
    pub files: &'a mut dyn OutputFiles<T>,
    /// Decides where output files end.
    pub cutter: &'a mut dyn OutputCutter,
    /// Tells whether older entries may exist under the output.
    pub below: &'a mut dyn OlderEntryCheck,
    /// Rewrites values.
    pub values: Option<&'a mut dyn ValueHook>,
    /// Observes dropped entries.
    pub observer: Option<&'a mut dyn DropObserver>,
}

/// Counters of a job so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeStats {
    /// Point entries read.
    pub input_entries: u64,
    /// Bytes of their keys and values.
    pub input_bytes: u64,
    /// Point entries written.
    pub output_entries: u64,
    /// Bytes of their keys and values.
    pub output_bytes: u64,
    /// Entries dropped because of [`DropReason::Shadowed`].
    pub shadowed: u64,
    /// Entries dropped because of [`DropReason::Covered`].
    pub covered: u64,
    /// Entries dropped because of [`DropReason::Annihilated`].
    pub annihilated: u64,
    /// Entries dropped because of [`DropReason::Obsolete`].
    pub obsolete: u64,
    /// Entries dropped because of [`DropReason::Folded`].
    pub folded: u64,
    /// Runs of operands that the merge operator rejected; they were copied.
    pub fold_failures: u64,
    /// Entries that the filter removed, which became tombstones.
    pub filter_removals: u64,
    /// Entries whose value the filter changed.
    pub filter_changes: u64,
    /// Failures of the filter: one at most, since it is not asked again.
    pub filter_failures: u64,
    /// Entries whose sequence was zeroed.
    pub zeroed: u64,
    /// Range tombstones read, counted as fragments times sequences.
    pub input_range_tombstones: u64,
    /// Range tombstones written, counted as pieces in each file.
    pub output_range_tombstones: u64,
}

impl MergeStats {
    /// Returns the number of all dropped entries.
    pub fn dropped(&self) -> u64 {
        self.shadowed + self.covered + self.annihilated + self.obsolete + self.folded
    }
}

/// Result of a step.
#[derive(Debug)]
pub enum Step<F> {
    /// More steps are needed.
    More,
    /// The job is done. Its outputs are in key order and synced.
    Done(Vec<MergeOutput<F>>),
}

#[derive(Debug)]
enum State {
    New,
    Running,
    Done,
    Failed(Error),
}

/// A flush or compaction in progress: see the module.
pub struct MergeJob<T: OutputTable, I = crate::MergingIterator> {
    input: I,
    rules: Rules,
    output: Output<T>,
    upper: Option<Vec<u8>>,
    lower: Option<Vec<u8>>,
    step_bytes: u64,
    /// Trailer of the last entry read.
    last_trailer: u64,
    reported_bytes: u64,
    state: State,
}

impl<T: OutputTable, I: InternalIterator> MergeJob<T, I> {
    /// Returns a job over `input` and the range tombstones of the same sources. It reads nothing
    /// yet.
    pub fn new(input: I, tombstones: &[Arc<FragmentedRangeTombstones>], options: MergeOptions) -> Self {
        let MergeOptions { snapshots, lower, upper, step_bytes, zero_sequences, operator, filter } = options;
        assert!(snapshots.is_sorted(), "snapshots are not in ascending order");
        let tombstones = clip(tombstones, lower.as_deref(), upper.as_deref());
        MergeJob {
            input,
            rules: Rules::new(snapshots, tombstones, zero_sequences, (operator, filter)),
            output: Output::new(lower.clone()),
            upper,
            lower,
            step_bytes: step_bytes.max(1),
            last_trailer: 0,
            reported_bytes: 0,
            state: State::New,
        }
    }

    /// Does a bounded amount of work: about `step_bytes` of input, and the files that end
    /// meanwhile.
    ///
    /// # Errors
    /// The errors of inputs, outputs and hooks; `Corruption` if the input is out of order. See the
    /// module on failure.
    ///
    /// # Panics
    /// If the job is already done, or if the entry counts do not add up.
    pub fn step(&mut self, hooks: &mut JobEnv<'_, T>) -> Result<Step<T::Finished>> {
        let result = match &self.state {
            State::Done => panic!("a step after the job was done"),
            State::Failed(e) => return Err(e.clone()),
            State::New => self.begin(hooks).and_then(|()| self.run(hooks)),
            State::Running => self.run(hooks),
        };
        match result {
            Ok(done) => {
                self.state = if done { State::Done } else { State::Running };
                Ok(if done { Step::Done(self.output.take_finished()) } else { Step::More })
            }
            Err(e) => {
                self.state = State::Failed(e.clone());
                Err(e)
            }
        }
    }

    /// Returns the number and path of every file that the job made so far, finished or not.
    pub fn created(&self) -> &[(u64, PathBuf)] {
        self.output.created()
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> &MergeStats {
        &self.rules.stats
    }

    /// Returns the physical bytes written since the last call, estimated for the open file. The
    /// caller charges them to the rate limiter after each step.
    pub fn take_written_bytes(&mut self) -> u64 {
        let total = self.output.written_bytes();
        let new = total.saturating_sub(self.reported_bytes);
        self.reported_bytes = self.reported_bytes.max(total);
        new
    }

    /// Returns the input cursor, for its statistics.
    pub fn input(&self) -> &I {
        &self.input
    }

    fn begin(&mut self, hooks: &mut JobEnv<'_, T>) -> Result<()> {
        let retained = self.rules.retained(hooks.below);
        self.output.set_tombstones(retained);
        match &self.lower {
            Some(lower) => self.input.seek(&encode(lower, MAX_SEQ, ValueKind::Seek)),
            None => self.input.seek_to_first(),
        }
    }

    /// Runs one step. Returns true when the job is done.
    fn run(&mut self, hooks: &mut JobEnv<'_, T>) -> Result<bool> {
        let until = self.rules.stats.input_bytes.saturating_add(self.step_bytes);
        while self.rules.stats.input_bytes < until {
            if !self.input.valid() {
                return self.finish(hooks);
            }
            let (user_key, trailer) = key::split(self.input.key());
            match user_key.cmp(self.rules.key()) {
                std::cmp::Ordering::Equal if self.rules.has_key() => {
                    if trailer >= self.last_trailer {
                        return Err(disorder(user_key));
                    }
                }
                std::cmp::Ordering::Less => return Err(disorder(user_key)),
                _ => {
                    if self.upper.as_deref().is_some_and(|upper| upper <= user_key) {
                        return self.finish(hooks);
                    }
                    self.rules.end_key(hooks, &mut self.output)?;
                    self.rules.begin_key(user_key);
                }
            }
            self.last_trailer = trailer;
            self.rules.entry(hooks, &mut self.output, trailer, self.input.value())?;
            self.input.next()?;
        }
        Ok(false)
    }

    fn finish(&mut self, hooks: &mut JobEnv<'_, T>) -> Result<bool> {
        self.rules.end_key(hooks, &mut self.output)?;
        self.rules.note_filter();
        self.output.finish(hooks)?;
        let stats = &mut self.rules.stats;
        stats.output_range_tombstones = self.output.range_tombstones();
        assert_eq!(
            stats.input_entries,
            stats.output_entries + stats.dropped(),
            "entries in = entries out + dropped: {stats:?}"
        );
        Ok(true)
    }
}

fn disorder(user_key: &[u8]) -> Error {
    Error::corruption(format!(
        "a key table in a compaction has the key \"{}\" at or before the key ahead of it, so the \
         compaction stops and changes no file",
        user_key.escape_ascii()
    ))
    .with_remedy("run `lava verify` to find the table, then restore it or run `lava repair`")
}

/// Merges all tombstones, and clips them to the job's key range.
fn clip(
    sources: &[Arc<FragmentedRangeTombstones>],
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> FragmentedRangeTombstones {
    let mut all: Vec<RangeTombstone> = sources.iter().flat_map(|s| s.tombstones()).collect();
    for t in &mut all {
        if let Some(lower) = lower.filter(|&l| t.start.as_slice() < l) {
            t.start = lower.to_vec();
        }
        if let Some(upper) = upper.filter(|&u| u < t.end.as_slice()) {
            t.end = upper.to_vec();
        }
    }
    FragmentedRangeTombstones::new(&all)
}

#[cfg(test)]
mod tests;
