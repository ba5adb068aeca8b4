//! Compaction debt of a family, derived for each version. Writes are slowed down in proportion to
//! it.
//!
//! * **Level 0**: its depth. Its tables must be compacted before further memtables can be flushed.
//! * **Below**: the bytes over target, those that exceed the targets of their levels
//!   ([`lsm::policy::CompactionPolicy::excess_bytes`]), in percent of the family's data. Without
//!   this bound a tree accepts more than its compactions can sort for as long as there is space.
//!   Minutes of writes at full speed would leave a store at twice its data, with slow reads.
//!
//! The *absorption rate* is the rate at which flushed bytes come to rest. It is measured over a
//! span in which bytes over target never reached 0, so that compactions never ran dry. The tree has
//! absorbed the flushed bytes plus the decrease of the bytes over target. Writes are throttled to
//! this rate, whatever limits it: device, threads, shape of the tree, overlap of keys.
//!
//! A debt is immutable and not shared: each version's is computed from the previous one and the
//! time.

use crate::context::family_options::FamilyOptions;
use lsm::policy::{CompactionPolicy, SetAside};
use values::Ledger;
use version::Version;

/// Bytes over target, in percent, from which writes are slowed down. Together with level 0 and
/// running jobs, a tree under overwrites then stays below 1.6 times its data.
pub(crate) const EXCESS_SLOW_PERCENT: u64 = 10;
/// Measuring span, nanoseconds: long enough for several compactions, short enough to follow the
/// load.
const SPAN_NS: u64 = 1_000_000_000;
/// Longest span without absorption. A compaction may take longer; the span in which it ends then
/// shows its rate.
const EMPTY_SPAN_NS: u64 = 4 * SPAN_NS;
/// A longer span means idle writers, and is discarded.
const SPAN_NS_MAX: u64 = 10 * SPAN_NS;
/// Bytes over target, in output files, that count as 0 however small the store.
const SLACK_FILES: u64 = 8;
/// Percentages refer to the family's data, or to this many targets of the first level if that is
/// more.
const BASES_MIN: u64 = 16;

/// Compaction debt of a version: see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompactionDebt {
    /// Depth of level 0 in flushed memtables.
    pub l0_depth: usize,
    /// Bytes over target.
    excess_bytes: u64,
    /// Bytes over target beyond the slack, in percent of the family's data.
    pub excess_percent: u64,
    /// Measured rate at which the tree absorbs table bytes. In memtable bytes it would be higher:
    /// the limit errs on the side of space.
    pub absorbed_bytes_per_s: Option<u64>,
    span: Span,
}

/// The running measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    /// 0: no measurement runs.
    since_ns: u64,
    excess_bytes: u64,
    flushed_bytes: u64,
}

impl CompactionDebt {
    /// Returns the debt of a version before any measurement. A family without a policy accepts no
    /// writes and has no debt.
    pub fn of(
        version: &Version,
        ledger: &Ledger,
        policy: Option<&dyn CompactionPolicy>,
        set_aside: &SetAside,
        options: &FamilyOptions,
        memtable_bytes: usize,
    ) -> CompactionDebt {
        let Some(policy) = policy else { return CompactionDebt::default() };
        let excess_bytes = policy.excess_bytes(version, set_aside);
        let deepest = version.deepest_level().map_or(0, |level| version.level_bytes(level));
        let kept_bytes = deepest.saturating_add(ledger.record_bytes());
        let kept_bytes = kept_bytes.max(BASES_MIN.saturating_mul(options.expert.level_base_bytes)).max(1);
        let over = excess_bytes.saturating_sub(SLACK_FILES.saturating_mul(options.expert.file_bytes));
        CompactionDebt {
            l0_depth: l0_depth(version, policy, set_aside, options, memtable_bytes),
            excess_bytes,
            excess_percent: over.saturating_mul(100) / kept_bytes,
            ..CompactionDebt::default()
        }
    }

    /// Returns the debt with the measurements of `known`, a debt of the same version.
    pub fn with_what_is_known(self, known: &CompactionDebt) -> CompactionDebt {
        CompactionDebt { absorbed_bytes_per_s: known.absorbed_bytes_per_s, span: known.span, ..self }
    }

    /// Returns the debt with the measurements of `before`, the previous version's, continued to
    /// `now_ns`. `flushed_bytes`: growth of level 0.
    pub fn after(self, before: &CompactionDebt, flushed_bytes: u64, now_ns: u64) -> CompactionDebt {
        let flushed_bytes = before.span.flushed_bytes.saturating_add(flushed_bytes);
        let begun = Span { since_ns: now_ns, excess_bytes: self.excess_bytes, flushed_bytes: 0 };
        let going_on = Span { flushed_bytes, ..before.span };
        let took_ns = now_ns.saturating_sub(before.span.since_ns);
        let ran_dry = before.span.since_ns == 0 || self.excess_bytes == 0;
        let (span, measured) = match took_ns {
            _ if ran_dry || took_ns > SPAN_NS_MAX => (begun, None),
            _ if took_ns < SPAN_NS => (going_on, None),
            _ => {
                let came = before.span.excess_bytes.saturating_add(flushed_bytes);
                let absorbed = u128::from(came.saturating_sub(self.excess_bytes));
                match (absorbed * u128::from(SPAN_NS) / u128::from(took_ns)) as u64 {
                    0 if took_ns < EMPTY_SPAN_NS => (going_on, None),
                    rate => (begun, Some(rate)),
                }
            }
        };
        let old = before.absorbed_bytes_per_s;
        let absorbed_bytes_per_s = match (measured, old) {
            (Some(now), Some(old)) => Some(old / 4 * 3 + now / 4),
            (Some(now), None) => Some(now),
            (None, old) => old,
        };
        let span = if self.excess_bytes == 0 { Span::default() } else { span };
        CompactionDebt { absorbed_bytes_per_s, span, ..self }
    }
}

/// Returns the depth of level 0, in files. Files merged within level 0 count as their inputs:
/// readers search fewer files, but compaction still has to move all of it.
pub(super) fn l0_depth(
    version: &Version,
    policy: &dyn CompactionPolicy,
    set_aside: &SetAside,
    options: &FamilyOptions,
    memtable_bytes: usize,
) -> usize {
    // Damaged tables in level 0 cannot be compacted, so waiting for them is useless.
    let load = policy.l0_load(version, set_aside);
    let files = load.files;
    let flushes = (load.bytes / memtable_bytes as u64) as usize;
    if flushes <= files || flushes < options.expert.l0_slowdown_files {
        return files.max(flushes);
    }
    // A few large files (long values, or larger memtables in an earlier process) may need no
    // compaction at all: writes would wait for ever.
    if policy.l0_wants_compaction(version, set_aside) { flushes } else { files }
}

#[cfg(all(test, not(loom)))]
mod tests;
