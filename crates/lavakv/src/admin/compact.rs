//! Compaction of a range on request.
//!
//! With [`CompactRequest::rewrite`] all of it is written anew, a table at a time with the values that it references. Each such step is a job like
//! any other: it asks for the room that it needs, what it leaves behind is dropped or collected before the next ones make
//! more ([`jobs::advance_manual`]), and a call that ends before its time has lost nothing: another goes on from the key that was told last.

use crate::admin::flush::flush_unless;
use crate::admin::wait::{wait_for_jobs, wait_given_up};
use crate::plan::requests::Caller;
use crate::tree::family::Family;
use crate::work::jobs::{self, Jobs, Manual, retained};
use base::{Error, ErrorKind, Result};
use io::Cancel;
use lsm::policy::ManualRange;
use std::sync::Arc;

/// What [`crate::Db::compact_range_with`] does besides bringing a range down to its last level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactRequest {
    /// Every table of the range is written anew, with the values that it references, under the options of now: compression, block length, filters,
    /// which values are separated, on which disk things are. Without it what lies in the last level already stays as it is.
    pub rewrite: bool,
    /// Ends the call before its time. Compactions that have ended keep their effect; the one that runs gives its outputs back.
    pub cancel: Option<Cancel>,
}

/// How far [`crate::Db::compact_range_with`] has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactProgress {
    /// Tables that were rewritten.
    pub rewritten_tables: u64,
    /// All up to this key, itself included, is rewritten: another call may begin there if this one does not come to its end.
    pub rewritten_to: Option<Vec<u8>>,
    /// Tables of the last level that are still to be rewritten, and the bytes of them and their values.
    pub remaining_tables: u64,
    /// See `remaining_tables`.
    pub remaining_bytes: u64,
}

const NO_SPACE: &str = "compaction found no disk space";

/// Compacts a range level by level, from the top. `tell` hears how far it has come: when it begins, and after each table that was rewritten.
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
    let mut range = if request.rewrite { range.rewriting() } else { range };
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
