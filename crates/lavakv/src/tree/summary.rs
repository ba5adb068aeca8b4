//! Figures of a version that are read often, derived once when it is installed.

use crate::context::family_options::FamilyOptions;
use crate::tree::compaction_debt::CompactionDebt;
use crate::tree::family_work::SettledTree;
use crate::tree::unexposed_garbage::UnexposedGarbage;
use lsm::policy::{CompactionPolicy, InProgress, SetAside};
use values::Ledger;
use version::Version;

/// Garbage, in percent of live bytes, from which writes are slowed down.
pub(crate) const GARBAGE_SLOW_PERCENT: u64 = 22;
/// The same with a space limit, which slows writes down earlier unless it is far away.
const LIMITED_SLOW_PERCENT: u64 = 100;
/// Additional garbage allowed for tiny values, in percent of live bytes; it falls linearly to 0 at
/// [`SMALL_VALUE_BYTES`]. A byte of small values costs more work, so it pays to collect files that
/// are half garbage instead of a third (`docs/decisions/0008-when-garbage-is-collected.md`).
const SMALL_VALUES_PERCENT: u64 = 20;
/// Garbage, in value files, that counts as 0 however small the store.
const SLACK_FILES: u64 = 2;
/// Bound for small records: see [`file_bytes`].
const SMALL_VALUE_BYTES: u64 = 8 << 10;
/// Bound for the longer outputs of small values: this part of all records.
const STORE_PART: u64 = 64;
/// Longest collection output of small values, as a multiple of the family's file size.
const SMALL_VALUES_FACTOR: u64 = 4;

/// Figures of a version that are read often.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VersionSummary {
    /// Exposed garbage beyond the slack, in percent of live bytes.
    pub exposed_percent: u64,
    /// Exposed and unexposed garbage in percent of live bytes, beyond the slack. Unexposed garbage
    /// is bounded by the entries above the last level. With it the sum grows with every flush
    /// instead of with every compaction, so that writes are slowed down evenly.
    pub garbage_percent: u64,
    /// Exposed garbage, bytes.
    pub exposed_bytes: u64,
    pub hidden_bytes: u64,
    /// Unexposed garbage, including that hidden by level 0 if there is no level below it.
    pub likely_hidden_bytes: u64,
    /// Additional garbage allowed because values are small, in percent of live bytes.
    pub allowance_percent: u64,
    /// Target size of collection outputs.
    pub file_bytes: u64,
    /// Most bytes that the collection of one file may copy. Files of placed values may be longer
    /// than a collection output.
    pub collected_bytes: u64,
    /// The family's part in the pressures.
    pub pressure: Pressure,
    /// Mean bytes of an entry with its value over all tables; 0 without tables.
    pub entry_bytes: u64,
    /// See [`super::family::ReadState::settled`].
    pub is_settled: bool,
}

/// Returns whether the levels of a family without separated values need no compaction, and are far from
/// the throttle bounds.
pub(crate) fn is_settled(
    (version, chain): (&Version, &CompactionDebt),
    options: &FamilyOptions,
    policy: Option<&dyn CompactionPolicy>,
    set_aside: &SetAside,
) -> bool {
    let bounds = options.expert.l0_slowdown_files + options.expert.l0_stop_files;
    let is_far = 2 * chain.l0_depth < bounds && chain.excess_percent == 0;
    let facts = lsm::policy::PickInputs { version, set_aside, busy: &InProgress::default() };
    let is_in_shape = || policy.is_none_or(|p| p.l0(&facts).is_none() && p.levels(&facts).is_none());
    version.vssts.is_empty() && is_far && is_in_shape()
}

fn entry_bytes(version: &Version) -> u64 {
    let sums = || version.levels.iter().map(version::Level::sums);
    let bytes: u128 = sums().map(|sums| sums.bytes + sums.stored_bytes).sum();
    let entries: u128 = sums().map(|sums| sums.entries).sum();
    u64::try_from(bytes.checked_div(entries).unwrap_or(0)).unwrap_or(u64::MAX)
}

impl VersionSummary {
    /// `hiding`: the unexposed garbage, if any values are separated.
    pub fn of(
        version: &Version,
        ledger: &Ledger,
        hiding: Option<&UnexposedGarbage>,
        options: &FamilyOptions,
    ) -> VersionSummary {
        let above_bytes = hiding.map_or(0, UnexposedGarbage::bytes);
        let levels: Vec<u64> = version.levels.iter().map(version::Level::compensated_bytes).collect();
        // Compensated sizes contain longer keys than the tables do, so the sum may exceed the
        // values.
        let above_bytes = above_bytes.min(ledger.referenced_bytes());
        let tables = version.deepest_level().map_or(0, |level| version.level_bytes(level));
        let live = ledger.referenced_bytes().saturating_sub(above_bytes);
        let (exposed, ratio) = (ledger.exposed_bytes(), options.expert.gc_ratio_percent);
        let mean_bytes = ledger.mean_copied_bytes();
        let file_bytes = file_bytes(ledger.record_bytes(), mean_bytes, options);
        let short = SMALL_VALUE_BYTES.saturating_sub(mean_bytes);
        VersionSummary {
            exposed_percent: percent(exposed, ledger, tables, options),
            garbage_percent: percent(exposed.saturating_add(above_bytes), ledger, tables, options),
            exposed_bytes: exposed,
            hidden_bytes: above_bytes,
            likely_hidden_bytes: hiding
                .map_or(0, UnexposedGarbage::likely_bytes)
                .min(ledger.referenced_bytes()),
            allowance_percent: SMALL_VALUES_PERCENT * short / SMALL_VALUE_BYTES,
            file_bytes,
            collected_bytes: collected_bytes(ledger.longest_copied_bytes(), file_bytes),
            pressure: Pressure::new(&levels, options.expert.level_multiplier, exposed, live, ratio),
            entry_bytes: entry_bytes(version),
            is_settled: false,
        }
    }

    /// Returns the garbage beyond the threshold for throttling, in percent of live bytes.
    pub fn garbage_over_percent(&self, limited: bool) -> u64 {
        self.garbage_percent.saturating_sub(self.slow_percent(limited))
    }

    /// Returns the garbage in percent of the threshold for throttling.
    pub fn garbage_pressure_percent(&self, limited: bool) -> u64 {
        self.garbage_percent.saturating_mul(100) / self.slow_percent(limited)
    }

    fn slow_percent(&self, limited: bool) -> u64 {
        let usual = GARBAGE_SLOW_PERCENT + self.allowance_percent;
        if limited { usual.max(LIMITED_SLOW_PERCENT) } else { usual }
    }
}

fn collected_bytes(longest: u64, file_bytes: u64) -> u64 {
    // The last output of a flush or collection absorbs a short remainder.
    if longest > file_bytes + file_bytes / 2 { longest } else { file_bytes }
}

/// Returns the target size of collection outputs. A collection looks up its keys in one pass over
/// the references of the tables, at the same cost for few keys as for many. So where values are
/// small, files are up to [`SMALL_VALUES_FACTOR`] times as long.
fn file_bytes(bytes: u64, mean_bytes: u64, options: &FamilyOptions) -> u64 {
    let factor = (SMALL_VALUE_BYTES / mean_bytes).clamp(1, SMALL_VALUES_FACTOR);
    let longer = options.expert.vsst_bytes.saturating_mul(factor);
    // Inputs and outputs of a collection exist side by side: they must be a small part of a small
    // store.
    longer.min(bytes / STORE_PART).max(options.expert.vsst_bytes)
}

/// Returns the garbage beyond the slack, in percent of the rest: other records, and `tables`.
fn percent(garbage: u64, ledger: &Ledger, tables: u64, options: &FamilyOptions) -> u64 {
    let live = ledger.record_bytes().saturating_sub(garbage).saturating_add(tables);
    garbage.saturating_sub(SLACK_FILES * options.expert.vsst_bytes).saturating_mul(100) / live.max(1)
}

/// Inputs of equations 4 and 5 in bytes, so that families add up. Computed once for each version.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pressure {
    /// Bytes of the last level of the tree.
    last_bytes: f64,
    /// Bytes of the tree over its ideal size.
    excess_bytes: f64,
    /// Live bytes of separated values.
    live_bytes: f64,
    /// Bytes of exposed garbage beyond the collection threshold.
    garbage_bytes: f64,
}

impl Pressure {
    /// Computes the inputs from level sizes (level 0 first) and bytes of values. `multiplier` is
    /// the size ratio between levels, `ratio_percent` the collection threshold.
    pub fn new(levels: &[u64], multiplier: u32, exposed: u64, live: u64, ratio_percent: u32) -> Pressure {
        let used: Vec<f64> = levels.iter().skip(1).filter(|&&n| n > 0).map(|&n| n as f64).collect();
        let level0 = levels.first().copied().unwrap_or(0) as f64;
        // Without deeper levels the tables of level 0 are the tree: there is no level to compact
        // them into.
        let last_bytes = used.last().copied().unwrap_or(level0);
        let all_bytes = level0 + used.iter().sum::<f64>();
        let step = 1.0 / f64::from(multiplier.max(2));
        let ideal = 1.0 + (1..used.len()).map(|i| step.powi(i as i32)).sum::<f64>();
        let ratio = f64::from(ratio_percent.min(99)) / 100.0;
        Pressure {
            last_bytes,
            excess_bytes: (all_bytes - ideal * last_bytes).max(0.0),
            live_bytes: live as f64,
            garbage_bytes: (exposed as f64 - live as f64 * ratio / (1.0 - ratio)).max(0.0),
        }
    }

    pub fn add(&mut self, other: &Pressure) {
        self.last_bytes += other.last_bytes;
        self.excess_bytes += other.excess_bytes;
        self.live_bytes += other.live_bytes;
        self.garbage_bytes += other.garbage_bytes;
    }

    /// Returns the inputs of a family without separated values.
    pub fn settled(&self) -> SettledTree {
        SettledTree { last_bytes: self.last_bytes as u64, excess_bytes: self.excess_bytes as u64 }
    }

    /// Adds the inputs of families without separated values.
    pub fn add_settled(&mut self, sum: SettledTree) {
        self.last_bytes += sum.last_bytes as f64;
        self.excess_bytes += sum.excess_bytes as f64;
    }

    pub fn index_pressure(&self) -> f64 {
        self.excess_bytes / self.last_bytes.max(1.0)
    }

    pub fn value_pressure(&self) -> f64 {
        self.garbage_bytes / self.live_bytes.max(1.0)
    }

    /// Returns the share of the threads for garbage collection.
    pub fn gc_share(&self) -> f64 {
        let (index, value) = (self.index_pressure(), self.value_pressure());
        if value > 0.0 { value / (index + value) } else { 0.0 }
    }
}
