//! Admission of writes: the rate at which they enter, and the room that they need.
//!
//! A write passes these checks in this order before it is logged. No check sleeps: it returns the
//! condition to wait for ([`wait_condition::WaitCondition`]), and the caller waits with no lock
//! held, up to its deadline ([`write_deadline`]).
//!
//! | check | lock | condition | refused with |
//! |---|---|---|---|
//! | [`throttle_charge`]: the throttle charge | none | `Time` | `Busy`: it ends after the deadline |
//! | [`space`]: the space limit, or a nearly full volume | writer | `Space` | `NoSpace` |
//! | [`room`]: the budget of memtables | writer | `Memory` | `NoSpace`: no table can be written |
//! | [`room`]: level 0 below its stop | writer | `Levels` | |
//! | [`room`]: the length of the log, where space is scarce | writer | `ShorterLog` | |
//!
//! **The verdict.** The charge is the bytes of the write over the allowed rate, which follows from
//! memory, level 0, levels, garbage and space ([`price`]). An evaluation of these costs more than
//! the rest of the admission of a short put. So its outcome, the verdict, is kept for the next
//! writes ([`crate::context::write_throttle`]). It holds until they have used up its credit, the
//! state of the store changes, or a limited rate is a millisecond old. The store and each family
//! have one verdict per kind of write. A write is charged by all that concern it, and waits for the
//! highest charge.
//!
//! **Invariants**
//!
//! * A check under the writer's lock still holds at the append, because the lock is held until
//!   then.
//! * Memory is granted in the order of arrival: a write counts the bytes of all before it in the
//!   queue.
//! * Deletes free space. So the charge for space is waived for them, and they may use the reserve.
//!   Memory, level 0 and the log limit them like any write. A batch whose deletes free more than
//!   its other changes take may use half of the reserve; the other half stays for deletes alone
//!   ([`space`]).
//! * A write that fails before it is logged owes nothing: its charge is refunded.
//! * Every wait ends. Where no job can bring a condition about, it counts as met, and the next step
//!   either goes on without it or reports the reason ([`Admission::is_met`]).
//!
//! Rotation is a part of [`room`]: it freezes full memtables, and the family with the oldest change
//! when the log is over its bound.

pub(crate) mod price;
pub(crate) mod room;
pub(crate) mod space;
pub(crate) mod throttle_charge;
pub(crate) mod wait_condition;
pub(crate) mod write_deadline;

use super::memtables::{Memtables, Writer};
use super::row_locks::RowLocks;
use crate::batch::payload::Payload;
use crate::context::Context;
use crate::context::drain::DrainRates;
use crate::context::write_throttle::WriteThrottle;
use crate::files::log::Log;
use crate::tree::Tree;
use crate::tree::family::Family;
use base::Result;
use base::sync::MutexGuard;
use room::AdmissionAttempts;
use std::sync::Arc;
use store::space::SpaceBudget;
use throttle_charge::{ChargeStep, ThrottleCharge};
use wait_condition::WaitCondition;
use write_deadline::busy;

/// Admission of the writes of a store: see the module.
pub(crate) struct Admission {
    context: Arc<Context>,
    space: Arc<SpaceBudget>,
    tree: Arc<Tree>,
    log: Arc<Log>,
    drain: Arc<DrainRates>,
    memtables: Arc<Memtables>,
    /// The rate of writers as far as memory and space limit it. Each family has a gate for its own
    /// limits.
    gate: Arc<WriteThrottle>,
    row_locks: Arc<RowLocks>,
}

/// The state of a write before it is admitted.
pub(crate) struct Entry {
    /// Its throttle charge.
    pub payment: ThrottleCharge,
    /// Its attempts to find space and room.
    pub tried: AdmissionAttempts,
}

impl Entry {
    /// Creates the state of a write that has not begun.
    pub fn of_write(payload: &Payload<'_>) -> Entry {
        let payment = ThrottleCharge::of_write(payload.weight as u64, payload.is_delete_only());
        Entry { payment, tried: AdmissionAttempts::NONE }
    }
}

/// The outcome of [`Admission::enter`].
pub(crate) enum Entered<'a> {
    /// The write may be logged, under this lock.
    Open(MutexGuard<'a, Writer>),
    /// The next attempt can be made when this is met.
    Needs(WaitCondition),
}

impl Admission {
    /// Admits a write: takes its charge, if that can be paid before `until_ns`, and then the
    /// writer's lock. Keeps the lock if there is room for the write on disk, in memory, in level 0
    /// and in the log. `is_logged`: the write goes to the log.
    ///
    /// # Errors
    /// `Busy`: the charge ends too late. `NoSpace`. `NotFound`: a family was dropped. `Poisoned`.
    pub fn enter(
        &self,
        entry: &mut Entry,
        payload: &Payload<'_>,
        families: &[Arc<Family>],
        is_logged: bool,
        until_ns: u64,
    ) -> Result<Entered<'_>> {
        match entry.payment.pay(self, families, until_ns)? {
            ChargeStep::All => {}
            ChargeStep::Needs(need) => return Ok(Entered::Needs(need)),
            ChargeStep::NotInTime(cause) => return Err(busy(Some(cause))),
        }
        entry.tried.forget_found();
        loop {
            let mut writer = self.memtables.enter();
            self.context.check_open()?;
            // Families are dropped under this lock.
            families.iter().try_for_each(|family| family.check_there())?;
            match self.rotate_full_memtables(&mut writer, families, (payload, is_logged), &mut entry.tried)? {
                None => {
                    self.memtables.make_place()?;
                    return Ok(Entered::Open(writer));
                }
                Some(WaitCondition::Look(what)) => {
                    drop(writer);
                    entry.tried.look(&self.tree, what);
                }
                Some(need) => return Ok(Entered::Needs(need)),
            }
        }
    }

    pub fn new(
        tree: &Arc<Tree>,
        log: &Arc<Log>,
        drain: &Arc<DrainRates>,
        memtables: &Arc<Memtables>,
        row_locks: &Arc<RowLocks>,
    ) -> Admission {
        Admission {
            context: tree.context.clone(),
            space: tree.space.clone(),
            tree: tree.clone(),
            log: log.clone(),
            drain: drain.clone(),
            memtables: memtables.clone(),
            gate: Arc::default(),
            row_locks: row_locks.clone(),
        }
    }
}
