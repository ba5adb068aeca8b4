//! The wait conditions of writes, between two steps.
//!
//! A step that cannot go on releases every lock and returns its condition. A blocking call waits for it here
//! ([`Admission::wait`]); an asynchronous one polls it ([`Admission::is_met`]). The next step evaluates everything
//! anew: another write may have taken the room meanwhile.
//!
//! | condition | until | brought about by |
//! |---|---|---|
//! | `Time` | so many nanoseconds have passed: the throttle charge | the clock |
//! | `Memory` | memtables have become tables | flush |
//! | `Levels` | level 0 is less deep | compaction |
//! | `Log` | the log is shorter, or has a group | flush, which releases groups |
//! | `Space` | a job or a delete has freed some, or a while has passed | collection, compaction, clean-up, deletes |
//! | `Durable` | the log is durable up to the batch: the next step waits itself | the caller's own thread |
//! | `Visible` | the inserts of earlier writes are done: the next step waits itself | their threads |
//! | `Look` | a family to freeze is found: the step searches itself, with no lock held | the caller's own thread |
//!
//! Each but `Time`, `Durable` and `Visible` also ends where no job can bring it about: the next step then reports the reason.

use super::Admission;
use crate::context::event::StallCause;
use crate::tree::family::Family;
use base::SeqNo;
use std::sync::Arc;

/// See the module.
pub(crate) enum Need {
    /// The price of the write, nanoseconds, and for what.
    Time(u64, StallCause),
    /// Memory.
    Memory {
        /// Bytes of the write, and of those that came before it.
        wanted: u64,
        /// Whether they still wait is looked at then, in clock nanoseconds.
        until_ns: u64,
    },
    /// Level 0 of a family is too deep.
    Levels(Arc<Family>),
    /// The log is longer than its bound.
    ShorterLog {
        /// Its bound, bytes.
        live_max: u64,
        /// The oldest sequence that is in memtables only, when it was asked, and whose. As long as the family has it it is the oldest of all.
        oldest: Option<(SeqNo, Arc<Family>)>,
        /// The last sequence that was visible then.
        visible: SeqNo,
    },
    /// A group of the log, where there is no room for another.
    Group {
        /// Bytes that it must have.
        least: u64,
        /// Bytes of the log when it was asked.
        live_bytes: u64,
    },
    /// Room on disk.
    Space {
        ask: Ask,
        /// There was work that may free something when it was asked.
        working: bool,
        /// It is looked at again then, in clock nanoseconds.
        until_ns: u64,
    },
    /// The device, which the next step waits for: for this write, for those before it in the other lane, or for placed values.
    Durable,
    /// The writes before this one, which is in the memtables.
    Visible,
    /// A family to freeze. It never leaves the step.
    Look(Look),
}

/// The request of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Bytes it will occupy.
    pub bytes: u64,
    /// It only deletes.
    pub frees: bool,
}

impl Ask {
    /// A write of `weight` bytes.
    pub fn of_write(weight: usize, frees: bool) -> Ask {
        let bytes = weight as u64;
        Ask { bytes: bytes + bytes / 8, frees }
    }
}

/// What is looked for among all families: outside of all locks, since there may be thousands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Who has the oldest change that is in memtables only.
    Oldest,
    /// Who has the most in its active memtable.
    Largest,
}

impl Need {
    /// What is waited for; `None`: nothing of the engine.
    pub fn cause(&self) -> Option<StallCause> {
        match self {
            Need::Memory { .. } => Some(StallCause::Memory),
            Need::Levels(_) => Some(StallCause::L0),
            Need::ShorterLog { .. } | Need::Group { .. } => Some(StallCause::Log),
            Need::Space { .. } => Some(StallCause::Space),
            Need::Time(_, cause) => Some(*cause),
            Need::Durable | Need::Visible | Need::Look(_) => None,
        }
    }
}

impl Admission {
    /// True if the next step of a write that needs this has something to do.
    pub fn is_met(&self, need: &Need) -> bool {
        let (health, now_ns) = (&self.context.health, self.context.now_ns());
        let can_free = || self.context.signals.can_free();
        match need {
            Need::Time(..) | Need::Durable | Need::Visible | Need::Look(_) => true,
            Need::Memory { wanted, until_ns } => {
                let memory = &self.space.memory;
                let fits = memory.used().saturating_add(*wanted) <= self.context.memtables_bytes_max;
                let stuck = self.is_refused() || health.held_up(now_ns).is_some();
                fits || memory.backlog() == 0 || health.is_poisoned() || stuck || now_ns >= *until_ns
            }
            Need::Levels(full) => {
                let open = full.look(|seen| seen.chain.l0_depth < seen.options.expert.l0_stop_files);
                let over = full.is_dropped() || health.is_poisoned();
                open || over || self.space.is_limited() && !can_free() || health.is_stuck(now_ns)
            }
            Need::ShorterLog { live_max, oldest, visible } => {
                let short = self.log.wal().live_bytes() <= *live_max;
                let flushed = || match oldest {
                    Some((seq, family)) => family.oldest_unflushed_seq() != Some(*seq),
                    None => self.tree.snapshots.visible() != *visible,
                };
                short || flushed() || health.is_stuck(now_ns) || !can_free()
            }
            Need::Group { least, live_bytes } => {
                let found = self.log.files().has_fitting(*least) || self.log.wal().live_bytes() < *live_bytes;
                found || health.is_stuck(now_ns) || health.is_poisoned() || !can_free()
            }
            Need::Space { ask, working, until_ns } => {
                let changed = self.has_room(*ask) || self.may_free() != *working;
                changed || health.is_poisoned() || now_ns >= *until_ns
            }
        }
    }

    /// Waits until a step has something to do, or until `until_ns` in clock nanoseconds. Outside of all locks.
    pub fn wait(&self, need: &Need, until_ns: u64) {
        match need {
            // Booked by who pays it, as one wait.
            Need::Time(ns, _) => self.context.env.clock.sleep_ns(*ns),
            Need::Durable | Need::Visible | Need::Look(_) => {}
            need => {
                if let Some(cause) = need.cause() {
                    self.context.stall_before(until_ns, cause, || self.is_met(need));
                }
            }
        }
    }

    /// A job found no room a moment ago. If that was earlier it says nothing: it is tried again.
    pub fn is_refused(&self) -> bool {
        let health = &self.context.health;
        health.out_of_space() && health.must_wait(self.context.now_ns())
    }
}
