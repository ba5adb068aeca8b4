//! How far compaction is behind in a family, worked out once a version: what writers are slowed down by.
//!
//! * **Level 0**: its depth. What it holds must go down before the next memtables can be flushed.
//! * **Below**: the *excess*, bytes of tables that lie above the targets of their levels ([`lsm::policy::CompactionPolicy::excess_bytes`]),
//!   in percent of what the family keeps. A tree takes in more than its compactions can sort for as long as there is space: without a bound,
//!   minutes of writes at full speed leave a store at twice its data, and its reads slow.
//!
//! How fast the tree *absorbs* what is flushed, with nothing left over, is measured: in a span in which it had excess all the time, so that its
//! compactions never ran dry, it has absorbed what was flushed and what the excess has become less. This is the rate that
//! writers are brought to, whatever bounds it: device, threads, shape of the tree, keys that meet.
//!
//! Nothing here is shared or changed: a new version's is made of the last one's and of the time.

use crate::context::family_options::FamilyOptions;
use lsm::policy::{CompactionPolicy, SetAside};
use values::Ledger;
use version::Version;

/// From so much excess on writers are slowed down. With level 0 and what jobs have in hand a tree whose keys are overwritten then
/// stays below 1.6 times its data.
pub(crate) const EXCESS_SLOW_PERCENT: u64 = 10;
/// A span that is measured, nanoseconds: long enough for some compactions, short enough to follow the load.
const SPAN_NS: u64 = 1_000_000_000;
/// So long it goes on if nothing was absorbed: a compaction may take longer, and says how fast it was when it has ended.
const EMPTY_SPAN_NS: u64 = 4 * SPAN_NS;
/// From a longer span nothing is learned: nobody wrote.
const SPAN_NS_MAX: u64 = 10 * SPAN_NS;
/// Excess of so many tables is nothing to hurry for, however small the store.
const SLACK_FILES: u64 = 8;
/// Percent are of what the family keeps, and of at least so many targets of the first level.
const BASES_MIN: u64 = 16;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// How deep level 0 is in flushed memtables.
    pub l0_depth: usize,
    /// Bytes of excess.
    excess_bytes: u64,
    /// Excess beyond the slack, in percent of what the family keeps.
    pub excess_percent: u64,
    /// Bytes of tables that the tree absorbs in a second, if that is known. Of memtables it would be more: this is on the side of space.
    pub absorbed_bytes_per_s: Option<u64>,
    span: Span,
}

/// What is being measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    /// 0: nothing is.
    since_ns: u64,
    excess_bytes: u64,
    flushed_bytes: u64,
}

impl Chain {
    /// Of a version, before anything is measured. Where nobody compacts nobody writes, and nobody waits.
    pub fn of(
        version: &Version,
        ledger: &Ledger,
        policy: Option<&dyn CompactionPolicy>,
        set_aside: &SetAside,
        options: &FamilyOptions,
        memtable_bytes: usize,
    ) -> Chain {
        let Some(policy) = policy else { return Chain::default() };
        let excess_bytes = policy.excess_bytes(version, set_aside);
        let deepest = version.deepest_level().map_or(0, |level| version.level_bytes(level));
        let kept_bytes = deepest.saturating_add(ledger.record_bytes());
        let kept_bytes = kept_bytes.max(BASES_MIN.saturating_mul(options.expert.level_base_bytes)).max(1);
        let over = excess_bytes.saturating_sub(SLACK_FILES.saturating_mul(options.expert.file_bytes));
        Chain {
            l0_depth: l0_depth(version, policy, set_aside, options, memtable_bytes),
            excess_bytes,
            excess_percent: over.saturating_mul(100) / kept_bytes,
            ..Chain::default()
        }
    }

    /// The same, with what was learned up to now of the same version.
    pub fn with_what_is_known(self, known: &Chain) -> Chain {
        Chain { absorbed_bytes_per_s: known.absorbed_bytes_per_s, span: known.span, ..self }
    }

    /// The same, with what was learned up to `before`, which this takes the place of at `now_ns`. `flushed_bytes` came into level 0
    /// with it.
    pub fn after(self, before: &Chain, flushed_bytes: u64, now_ns: u64) -> Chain {
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
        Chain { absorbed_bytes_per_s, span, ..self }
    }
}

/// How deep L0 is, in files. Files that were merged inside L0 count as what went into them: what a reader must search
/// has become less, what compaction must move has not.
pub(super) fn l0_depth(
    version: &Version,
    policy: &dyn CompactionPolicy,
    set_aside: &SetAside,
    options: &FamilyOptions,
    memtable_bytes: usize,
) -> usize {
    // What a damaged table keeps in L0 goes nowhere, whoever waits.
    let load = policy.l0_load(version, set_aside);
    let files = load.files;
    let flushes = (load.bytes / memtable_bytes as u64) as usize;
    if flushes <= files || flushes < options.expert.l0_slowdown_files {
        return files.max(flushes);
    }
    // A few large files (long values, or memtables that were larger at the last open) may be no work for compaction at
    // all: waiting for it would be waiting for ever.
    if policy.l0_wants_compaction(version, set_aside) { flushes } else { files }
}

#[cfg(all(test, not(loom)))]
mod tests;
