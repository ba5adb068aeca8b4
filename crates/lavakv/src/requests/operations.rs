//! Operations of LavaKV on the threads of the reactor: flushes, and syncs that must write values
//! first.

use crate::admin::flush::{freeze_all, look_flushed};
use crate::work::jobs::Jobs;
use crate::write::WritePath;
use base::SeqNo;
use base::completion::Completer;
use requests::{Next, Operation, OperationClass};
use std::sync::Arc;

/// Position of a write in the log.
pub(crate) type LogPosition = (wal::Lane, wal::Position);

/// Interval between two checks of a flush, nanoseconds.
const LOOK_NS: u64 = 1_000_000;

/// A flush of all memtables.
pub(crate) struct Flush {
    jobs: Arc<Jobs>,
    done: Completer<()>,
    /// Once all memtables are frozen: the highest sequence in them.
    upto: Option<SeqNo>,
}

impl Flush {
    pub fn new(jobs: &Arc<Jobs>, done: Completer<()>) -> Flush {
        Flush { jobs: jobs.clone(), done, upto: None }
    }
}

impl Operation for Flush {
    fn step(mut self: Box<Self>) -> Next {
        let frozen = self.upto.map_or_else(|| freeze_all(&self.jobs), Ok);
        let outcome = match frozen {
            Err(e) => Some(Err(e)),
            Ok(upto) => {
                if self.upto.replace(upto).is_none() {
                    self.jobs.context.signals.notify_work();
                }
                look_flushed(&self.jobs, upto)
            }
        };
        match outcome {
            Some(outcome) => {
                self.done.resolve(outcome);
                Next::Done
            }
            None => Next::At(self.jobs.context.now_ns().saturating_add(LOOK_NS), self),
        }
    }

    fn class(&self) -> OperationClass {
        OperationClass::Long
    }
}

/// A sync of values and then of the log, up to a write.
pub(super) struct Sync {
    pub writes: Arc<WritePath>,
    pub logged: LogPosition,
    pub done: Completer<()>,
}

impl Operation for Sync {
    fn step(self: Box<Self>) -> Next {
        let Sync { writes, logged: (lane, position), done } = *self;
        done.resolve(writes.sync_lane(lane, position));
        Next::Done
    }

    fn class(&self) -> OperationClass {
        OperationClass::Write
    }

    fn abandon(self: Box<Self>) {
        // The close of the store makes the log and the values durable, but in no order that could
        // be reported.
        drop(self.step());
    }
}
