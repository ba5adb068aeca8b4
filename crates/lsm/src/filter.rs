//! Compaction filters: user code that removes or changes entries while a compaction rewrites them.
//!
//! A filter sees an entry that no open snapshot sees: the newest version of its key, visible to
//! later readers alone. It gets the key first, and the value only if it asks, so that a separated
//! value is read only where the key does not decide. A removed entry becomes a tombstone with the
//! same sequence, which hides older versions below the compaction and obeys the rules of any other.
//!
//! User code must not take down a background thread: after an error or a panic the rest of the
//! piece passes unfiltered, and the failure is counted.

use super::merge_job::ValueHook;
use base::{Error, ErrorKind, Result, SeqNo, ValueKind};
use cache::BlockSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Removes or changes entries of a column family during compactions, for data that the program no
/// longer needs by a rule of its own.
///
/// An entry is filtered when a compaction rewrites it, which may be late or never; reads do not
/// filter. Entries that an open snapshot sees are passed over; a snapshot that is taken while the
/// compaction runs may miss removed ones. Flushes do not filter, and a value that a compaction folds
/// from merge operands is filtered by a later one. An operand above the compaction survives the
/// removal of the value below it.
pub trait CompactionFilter: Send + Sync {
    /// Begins a compaction, or a part of one. Parts run at the same time on several threads, each
    /// with a run of its own.
    fn begin(&self, compaction: &FilteredCompaction) -> Box<dyn FilterRun>;
}

/// The compaction that a [`FilterRun`] filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilteredCompaction {
    /// Level of the new tables.
    pub output_level: usize,
    /// Time of its begin by the clock of the store's environment, seconds since 1970.
    pub unix_seconds: u64,
}

/// A filter for a merge job.
#[derive(Clone)]
pub struct JobFilter {
    /// The filter.
    pub filter: Arc<dyn CompactionFilter>,
    /// The compaction.
    pub compaction: FilteredCompaction,
    /// Sequence of the newest held snapshot, which must not miss an entry.
    pub newest_snapshot: Option<SeqNo>,
}

/// Decides on the entries of a compaction, in the order of the keys; may keep state of its own.
pub trait FilterRun: Send {
    /// Decides on an entry.
    ///
    /// # Errors
    /// After an error the rest of the compaction is not filtered. An error of
    /// [`FilteredEntry::value`] may be returned as it is.
    fn decide(&mut self, entry: &mut FilteredEntry<'_>) -> Result<FilterDecision>;
}

/// Decision on an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterDecision {
    /// The entry stays.
    Keep,
    /// The entry is removed, as by a delete at the time of its write.
    Remove,
    /// The entry gets this value.
    Change(Vec<u8>),
}

/// An entry in a compaction: the key, and the value on request.
pub struct FilteredEntry<'a> {
    key: &'a [u8],
    seq: SeqNo,
    kind: ValueKind,
    stored: &'a [u8],
    values: Option<&'a mut dyn ValueHook>,
    read: Option<BlockSlice>,
}

impl<'a> FilteredEntry<'a> {
    pub(crate) fn new(
        key: &'a [u8],
        (seq, kind): (SeqNo, ValueKind),
        stored: &'a [u8],
        values: Option<&'a mut dyn ValueHook>,
    ) -> Self {
        FilteredEntry { key, seq, kind, stored, values, read: None }
    }

    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// Returns the value. A separated value is read from its file by the first call.
    ///
    /// # Errors
    /// Those of reading it; `Unsupported`: the value has a file of its own, which filters do not
    /// read.
    pub fn value(&mut self) -> Result<&[u8]> {
        if self.kind == ValueKind::Value {
            return Ok(self.stored);
        }
        if self.read.is_none()
            && let Some(values) = &mut self.values
        {
            self.read = values.base(self.key, self.seq, self.stored)?;
        }
        self.read.as_deref().ok_or_else(|| {
            let why = "the value is in a file of its own or damaged, so the filter cannot read it: decide by \
                       the key";
            Error::new(ErrorKind::Unsupported, why)
        })
    }
}

impl std::fmt::Debug for FilteredEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FilteredEntry({})", self.key.escape_ascii())
    }
}

/// The filter of a job, until it fails.
pub(crate) struct Filter {
    run: Option<Box<dyn FilterRun>>,
    newest_snapshot: Option<SeqNo>,
    has_failed: bool,
}

impl Filter {
    /// Begins a run. A filter that panics filters nothing.
    pub(crate) fn begin(filter: Option<JobFilter>) -> Filter {
        let newest_snapshot = filter.as_ref().and_then(|filter| filter.newest_snapshot);
        let begin = |JobFilter { filter, compaction, .. }| {
            catch_unwind(AssertUnwindSafe(|| filter.begin(&compaction))).ok()
        };
        let is_there = filter.is_some();
        let run = filter.and_then(begin);
        Filter { newest_snapshot, has_failed: is_there && run.is_none(), run }
    }

    /// Returns true once after a failure.
    pub(crate) fn take_failure(&mut self) -> bool {
        std::mem::take(&mut self.has_failed)
    }

    /// Ends the run. Its drop is user code as well.
    fn end(&mut self) {
        let run = self.run.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(run)));
    }

    pub(crate) fn is_on(&self) -> bool {
        self.run.is_some()
    }

    /// Returns true if no held snapshot sees an entry.
    pub(crate) fn may_decide(&self, seq: SeqNo) -> bool {
        self.newest_snapshot.is_none_or(|snapshot| snapshot < seq)
    }

    /// Returns the decision on an entry. After a failure, `None` now and for all later entries.
    pub(crate) fn decide(&mut self, entry: &mut FilteredEntry<'_>) -> Option<FilterDecision> {
        let run = self.run.as_mut()?;
        // Unwind safety: the run is dropped after a panic.
        let decided = catch_unwind(AssertUnwindSafe(|| run.decide(entry)));
        match decided {
            Ok(Ok(decision)) => Some(decision),
            Ok(Err(_)) | Err(_) => {
                self.has_failed = true;
                self.end();
                None
            }
        }
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        self.end();
    }
}

/// The filters of a program, by the name of the column family.
#[derive(Clone, Default)]
pub struct CompactionFilters(Vec<(String, Arc<dyn CompactionFilter>)>);

impl CompactionFilters {
    /// Sets the filter of a family; a later one replaces it.
    #[must_use]
    pub fn with(mut self, family: impl Into<String>, filter: Arc<dyn CompactionFilter>) -> Self {
        let family = family.into();
        self.0.retain(|(other, _)| *other != family);
        self.0.push((family, filter));
        self
    }

    /// Returns the filter of a family.
    pub fn of(&self, family: &str) -> Option<Arc<dyn CompactionFilter>> {
        self.0.iter().find(|(name, _)| name == family).map(|(_, filter)| filter.clone())
    }
}

impl std::fmt::Debug for CompactionFilters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(family, _)| family)).finish()
    }
}
