//! Manual compaction of a range.
//!
//! With [`CompactRequest::rewrite`] the whole range is rewritten, one table at a time with the
//! values that it references. Each step is an ordinary job with a space grant. Garbage of previous
//! steps is pruned or collected before the next steps make more ([`jobs::advance_manual`]). A call
//! that ends early loses nothing: another call can continue at the last reported key.

use crate::admin::flush::flush_unless;
use crate::admin::wait::{wait_for_jobs, wait_given_up};
use crate::plan::requests::Caller;
use crate::tree::family::Family;
use crate::work::jobs::{self, Jobs, Manual, retained};
use base::{Error, ErrorKind, Result};
use io::Cancel;
use lsm::policy::ManualRange;
use std::sync::Arc;

/// Asks [`crate::Db::compact_range_with`] for a complete rewrite under new options, or makes it
/// cancellable. The default compacts as `compact_range` does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactRequest {
    /// Rewrites all data of the range under the current options: compression, filters, value
    /// separation, tiers. It costs a read and a write of the range. Otherwise data that is already
    /// compact stays unchanged. Default: false.
    pub rewrite: bool,
    /// Ends the call early, with `Cancelled`. Completed compactions keep their effect; the running
    /// one discards its outputs. No data is lost. Default: none.
    pub cancel: Option<Cancel>,
}

/// Shows the progress of [`crate::Db::compact_range_with`], for a display, and for the place to
/// continue after a cancellation.
///
/// It arrives at the start and after each rewritten table. Without [`CompactRequest::rewrite`] it
/// counts no tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactProgress {
    /// Number of tables rewritten so far, since the call began.
    pub rewritten_tables: u64,
    /// Everything up to and including this key is rewritten: another call may begin there if this
    /// one ends early.
    pub rewritten_to: Option<Vec<u8>>,
    /// Tables of the last level left to rewrite.
    pub remaining_tables: u64,
    /// Bytes of these tables and of their values.
    pub remaining_bytes: u64,
}

const NO_SPACE: &str = "compaction found no disk space for its output, and its tables stay as they were: \
                        free space, or raise the limit, and repeat the call";

/// Compacts a range level by level, from the top. Calls `tell` at the start, and after each
/// rewritten table.
pub(crate) fn compact_range(
    jobs: &Arc<Jobs>,
    family: &Arc<Family>,
    (start, end): (Option<&[u8]>, Option<&[u8]>),
    request: CompactRequest,
    tell: &mut dyn FnMut(&CompactProgress),
) -> Result<()> {
    flush_unless(jobs, request.cancel.as_ref())?;
    retained::read_all(jobs, family, request.cancel.as_ref())?;
    let range = ManualRange::new(start, end);
    // A compaction filter sees only rewritten entries.
    let has_filter = jobs.context.options.expert.compaction_filters.of(&family.name).is_some();
    let mut range = if request.rewrite || has_filter { range.rewriting() } else { range };
    let (mut told, caller) = (None, Caller::new(request.cancel));
    let compacted = wait_for_jobs(jobs, NO_SPACE, || {
        caller.check(&jobs.context)?;
        let advanced = jobs::advance_manual(jobs, family, &mut range, &caller);
        if told.replace(range.rewritten()) != Some(range.rewritten()) {
            let (remaining_tables, remaining_bytes) = range.to_rewrite(&family.read_state().version);
            tell(&CompactProgress {
                rewritten_tables: range.rewritten(),
                rewritten_to: range.rewritten_to().map(<[u8]>::to_vec),
                remaining_tables,
                remaining_bytes,
            });
        }
        match advanced {
            Manual::Over => Ok(true),
            Manual::Waits => Ok(false),
            Manual::NoRoom => Err(Error::new(ErrorKind::NoSpace, NO_SPACE).at_file(&jobs.context.dir)),
        }
    });
    compacted.inspect_err(|e| {
        if e.kind() == ErrorKind::Cancelled {
            jobs::take_back_manual(jobs, &caller);
        }
        wait_given_up(jobs, &caller, e);
    })
}
