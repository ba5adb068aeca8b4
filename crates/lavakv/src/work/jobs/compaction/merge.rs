//! The merge of one piece of a compaction, in steps.

use super::ClaimedCompaction;
use super::subcompactions::{Created, Merged, Subcompaction};
use crate::tree::output::{TableFiles, VsstFiles};
use crate::tree::retained::{CountedTable, Counting, TableSync};
use crate::work::jobs::hot_cold::Drops;
use crate::work::jobs::relocation::Relocator;
use crate::work::jobs::separate::Separation;
use base::Result;
use lsm::below::DeeperLevels;
use lsm::policy::Reason;
use lsm::{
    Bounds, FilteredCompaction, JobEnv, JobFilter, MergeJob, MergeOptions, MergingIterator, OutputCutter,
    Sources, Step, TableSource, Visibility,
};
use std::sync::Arc;
use table::IterOptions;
use version::Level;

/// Read size of compaction inputs, which bypass the cache.
const READAHEAD_BYTES: usize = 512 << 10;

/// The merge of a piece. See the module.
pub(super) struct RunningMerge {
    merge: MergeJob<CountedTable>,
    /// Set if snapshots were open at its start.
    counting: Option<Arc<Counting>>,
    separation: Separation,
    drops: Option<Drops>,
    cutter: Box<dyn OutputCutter + Send>,
    below: DeeperLevels,
    /// Bytes written so far.
    pub written_bytes: u64,
}

impl RunningMerge {
    /// Opens the inputs. The snapshots are those of now: a piece that begins later retains nothing
    /// for snapshots released before.
    pub fn begin(whole: &ClaimedCompaction, piece: &Subcompaction) -> Result<RunningMerge> {
        let (jobs, compaction) = (&whole.jobs, &whole.compaction);
        let options = IterOptions { fill_cache: false, readahead_bytes: READAHEAD_BYTES };
        let snapshots = jobs.tree.snapshots.for_job();
        let tables: Arc<dyn TableSource> = jobs.files.tables.clone();
        let mut sources = Sources::new(Visibility::Snapshots(snapshots.clone()), tables, options);
        let levels: Vec<(usize, Level)> =
            compaction.inputs.iter().map(|(level, files)| (*level, files.clone().into())).collect();
        let bounds = Bounds { lower: piece.lower.as_deref(), upper: piece.upper.as_deref() };
        sources.add(levels.iter().map(|(level, files)| (*level, files)), bounds)?;
        // Sequence numbers order the files of level 0 by age, so they must be kept. A repair without a
        // manifest compares them with the log, and must not add an operand again that a table has.
        let merge_operator = whole.family.options().merge_operator.clone();
        let zero_sequences = compaction.output_level > 0 && merge_operator.is_none();
        let counting = Counting::new(&jobs.tree.kept, &snapshots, &sources.tombstones);
        let (lower, upper) = (piece.lower.clone(), piece.upper.clone());
        let operators = &jobs.context.options.expert.merge_operators;
        let operator = operators.of_jobs(merge_operator.as_ref());
        let filter = jobs.context.options.expert.compaction_filters.of(&whole.family.name);
        let filter = filter.map(|filter| {
            let unix_seconds = jobs.context.env.clock.unix_seconds();
            let compaction = FilteredCompaction { output_level: compaction.output_level, unix_seconds };
            JobFilter { filter, compaction, newest_snapshot: jobs.tree.snapshots.newest_held() }
        });
        let merge_options =
            MergeOptions { zero_sequences, lower, upper, operator, filter, ..MergeOptions::new(snapshots) };
        let files = || VsstFiles {
            tree: jobs.tree.clone(),
            family: whole.family.clone(),
            level: compaction.output_level,
            job: whole.number,
            inputs: whole.inputs.clone(),
            expected_len: whole.family.options().expert.vsst_bytes,
            goes_down: false,
        };
        let relocator = Relocator::new(files(), &whole.version, compaction, &whole.lists)?;
        let separation = Separation::of_compaction(files(), whole.version.clone());
        let drops = whole.family.drop_cache().map(Drops);
        if let Some(Drops(cache)) = &drops {
            cache.set_live_keys(whole.family.read_state().ledger.references());
        }
        Ok(RunningMerge {
            drops,
            separation: separation.with_relocator(relocator).rewriting(compaction.reason == Reason::Rewrite),
            merge: MergeJob::new(MergingIterator::over(sources.cursors), &sources.tombstones, merge_options),
            counting,
            cutter: whole.policy.cutter(compaction, &whole.version),
            below: DeeperLevels::new(&whole.version, compaction.output_level),
            written_bytes: 0,
        })
    }

    /// Runs a step. Returns the outputs once the piece is merged.
    pub fn step(&mut self, whole: &ClaimedCompaction) -> Result<Option<Merged>> {
        let jobs = &whole.jobs;
        let mut files = TableFiles {
            tree: &jobs.tree,
            family: &whole.family,
            level: whole.compaction.output_level,
            job: whole.number,
            inputs: &whole.inputs,
            expected_len: whole.expected_len,
            counting: self.counting.as_ref(),
            sync: TableSync::AtOnce,
        };
        let mut values = self.separation.hook(jobs);
        let mut hooks = JobEnv {
            files: &mut files,
            cutter: &mut *self.cutter,
            below: &mut self.below,
            values: Some(&mut values),
            observer: self.drops.as_mut().map(|drops| drops as _),
        };
        let step = self.merge.step(&mut hooks)?;
        let written = self.merge.take_written_bytes() + self.separation.take_written_bytes();
        self.written_bytes = self.written_bytes.saturating_add(written);
        let Step::Done(outputs) = step else { return Ok(None) };
        let (stats, merged) = (&jobs.context.stats, self.merge.stats());
        stats.merge_failures.add(merged.fold_failures);
        stats.filter_removals.add(merged.filter_removals);
        stats.filter_changes.add(merged.filter_changes);
        stats.filter_failures.add(merged.filter_failures);
        let vssts = self.separation.finish()?;
        jobs.context.stats.relocation_bytes_read.add(self.separation.relocation_read_bytes());
        for (file, error) in self.separation.take_damaged() {
            jobs.tree.set_aside(file, &error);
        }
        Ok(Some(Merged { outputs, vssts }))
    }

    /// Returns every file created so far.
    pub fn created(&self) -> Vec<Created> {
        [self.merge.created(), &self.separation.created()].concat()
    }
}
