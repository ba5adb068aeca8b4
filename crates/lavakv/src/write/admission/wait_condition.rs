//! The wait conditions of writes, between two steps.
//!
//! A step that cannot go on releases every lock and returns its condition. A blocking call waits
//! for it here ([`Admission::wait`]); an asynchronous one polls it ([`Admission::is_met`]). The
//! next step evaluates everything anew: another write may have taken the room meanwhile.
//!
//! | condition | until | brought about by |
//! |---|---|---|
//! | `Time` | the throttle charge has passed, in nanoseconds | the clock |
//! | `Memory` | memtables have become tables | flush |
//! | `Levels` | level 0 is less deep | compaction |
//! | `ShorterLog`, `Group` | the log is shorter, or has a group | flush, which releases groups |
//! | `Space` | a job or a delete has freed some, or a while has passed | collection, compaction, clean-up, deletes |
//! | `Durable` | the log is durable up to the batch: the next step waits itself | the caller's own thread |
//! | `Visible` | the inserts of earlier writes are done: the next step waits itself | their threads |
//! | `RowLock` | a row lock is released, or a while has passed | the end of a transaction |
//! | `RotationSearch` | a family to freeze is found: the step searches itself, with no lock held | the caller's own thread |
//!
//! Each but `Time`, `Durable`, `Visible` and `RowLock` also ends where no job can bring it about: the next
//! step then reports the reason.
//!
//! All conditions but one are found before any part of the write is logged or placed, so a step can
//! be repeated. The exception is `Group`: the log refuses a group at the append. It concerns
//! batches that only delete, which have placed nothing before.

use super::Admission;
use crate::context::event::StallCause;
use crate::tree::family::Family;
use crate::write::row_locks::RowLockWait;
use base::SeqNo;
use std::sync::Arc;

/// A wait condition: see the module.
pub(crate) enum WaitCondition {
    /// The throttle charge of the write, nanoseconds, and its cause.
    Time(u64, StallCause),
    /// Memory.
    Memory {
        /// Bytes of the write and of all writes before it in the queue.
        wanted: u64,
        /// Time of the next check of the queue, in clock nanoseconds.
        until_ns: u64,
    },
    /// Level 0 of a family is too deep.
    Levels(Arc<Family>),
    /// The log is longer than its bound.
    ShorterLog {
        /// Its bound, bytes.
        live_max: u64,
        /// The oldest sequence in memtables at the time of the request, with its family. It stays
        /// the oldest until the family has flushed it.
        oldest: Option<(SeqNo, Arc<Family>)>,
        /// The last visible sequence at that time.
        visible: SeqNo,
    },
    /// A group of the log, where there is no room for another.
    Group {
        /// Least length of the group, bytes.
        least: u64,
        /// Length of the log at the time of the request, bytes.
        live_bytes: u64,
    },
    /// Room on disk.
    Space {
        ask: SpaceRequest,
        /// A job that may free room existed at the time of the request.
        working: bool,
        /// Time of the next check, in clock nanoseconds.
        until_ns: u64,
    },
    /// Durability, for which the next step waits: of this write, or of earlier writes in the other
    /// lane.
    Durable,
    /// Visibility: the inserts of earlier writes.
    Visible,
    /// A row lock of a transaction.
    RowLock(RowLockWait),
    /// A family to freeze. The step itself searches for it.
    Look(RotationSearch),
}

/// The request of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceRequest {
    /// Bytes it will occupy.
    pub bytes: u64,
    /// Its share of the reserve of deletes.
    pub share: ReserveShare,
}

/// The part of the reserve of deletes that a write may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveShare {
    /// It takes space.
    None,
    /// By estimate it frees more than it takes.
    Half,
    /// It deletes only.
    All,
}

impl SpaceRequest {
    /// Creates the request of a write of `weight` bytes.
    pub fn of_write(weight: usize, share: ReserveShare) -> SpaceRequest {
        let bytes = weight as u64;
        SpaceRequest { bytes: bytes + bytes / 8, share }
    }
}

/// A search among all families. It holds no lock, since there may be thousands of families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RotationSearch {
    /// The family with the oldest unflushed change.
    Oldest,
    /// The family with the largest active memtable.
    Largest,
}

impl WaitCondition {
    /// Returns true if the next step itself waits.
    pub fn is_of_next_step(&self) -> bool {
        matches!(self, WaitCondition::Durable | WaitCondition::Visible | WaitCondition::Look(_))
    }

    /// Returns the time of the next check in a wait until `until_ns`, in clock nanoseconds.
    fn look_ns(&self, until_ns: u64) -> u64 {
        match self {
            WaitCondition::RowLock(wait) => wait.look_ns(until_ns),
            _ => until_ns,
        }
    }

    /// Returns the cause of the wait. `None`: the engine is not the cause.
    pub fn cause(&self) -> Option<StallCause> {
        match self {
            WaitCondition::Memory { .. } => Some(StallCause::Memory),
            WaitCondition::Levels(_) => Some(StallCause::L0),
            WaitCondition::ShorterLog { .. } | WaitCondition::Group { .. } => Some(StallCause::Log),
            WaitCondition::Space { .. } => Some(StallCause::Space),
            WaitCondition::Time(_, cause) => Some(*cause),
            WaitCondition::RowLock(_)
            | WaitCondition::Durable
            | WaitCondition::Visible
            | WaitCondition::Look(_) => None,
        }
    }
}

impl Admission {
    /// Returns true if the next step of the write can make progress.
    pub fn is_met(&self, need: &WaitCondition) -> bool {
        let (health, now_ns) = (&self.context.health, self.context.now_ns());
        let can_free = || self.context.signals.can_free();
        if self.context.check_open().is_err() {
            return true;
        }
        match need {
            WaitCondition::Time(..)
            | WaitCondition::Durable
            | WaitCondition::Visible
            | WaitCondition::Look(_) => true,
            WaitCondition::Memory { wanted, until_ns } => {
                let memory = &self.space.memory;
                let fits = memory.used().saturating_add(*wanted) <= self.context.memtables_bytes_max;
                let stuck = self.is_refused() || health.held_up(now_ns).is_some();
                fits || memory.backlog() == 0 || health.is_poisoned() || stuck || now_ns >= *until_ns
            }
            WaitCondition::Levels(full) => {
                let open = full.look(|seen| seen.chain.l0_depth < seen.options.expert.l0_stop_files);
                let over = full.is_dropped() || health.is_poisoned();
                open || over || self.space.is_limited() && !can_free() || health.is_stuck(now_ns)
            }
            WaitCondition::ShorterLog { live_max, oldest, visible } => {
                let short = self.log.wal().content().live_bytes() <= *live_max;
                let flushed = || match oldest {
                    Some((seq, family)) => family.read_state().oldest_unflushed_seq() != Some(*seq),
                    None => self.tree.snapshots.visible() != *visible,
                };
                short || flushed() || health.is_stuck(now_ns) || !can_free()
            }
            WaitCondition::Group { least, live_bytes } => {
                let found = self.log.spares().has_fitting(*least)
                    || self.log.wal().content().live_bytes() < *live_bytes;
                found || health.is_stuck(now_ns) || health.is_poisoned() || !can_free()
            }
            WaitCondition::Space { ask, working, until_ns } => {
                let changed = self.has_room(*ask) || self.may_free() != *working;
                changed || health.is_poisoned() || now_ns >= *until_ns
            }
            WaitCondition::RowLock(wait) => health.is_poisoned() || self.row_locks.is_over(wait, now_ns),
        }
    }

    /// Waits until the condition is met, or until `until_ns` in clock nanoseconds. The caller holds
    /// no lock.
    pub fn wait(&self, need: &WaitCondition, until_ns: u64) {
        match need {
            // `ThrottleCharge` records the charge as one stall.
            WaitCondition::Time(ns, _) => self.context.env.clock.sleep_ns(*ns),
            WaitCondition::Durable | WaitCondition::Visible | WaitCondition::Look(_) => {}
            need => match need.cause() {
                Some(cause) => self.context.stall_before(until_ns, cause, || self.is_met(need)),
                None => self.context.wait_before(need.look_ns(until_ns), || self.is_met(need)),
            },
        }
    }

    /// Returns true if a job found no room a moment ago. An earlier refusal has no meaning: the job
    /// is due again.
    pub fn is_refused(&self) -> bool {
        let health = &self.context.health;
        health.out_of_space() && health.must_wait(self.context.now_ns())
    }
}
