//! Room for a write in memory, level 0 and the log; rotation of memtables.
//!
//! The checks run under the writer's lock, right before the append. Where they would wait for
//! memory, level 0 or the log they return the condition (`wait_condition`) instead. The search for
//! a family to freeze holds no lock ([`RotationSearch`]), since there may be thousands of families.
//! Its result may be outdated when the lock is taken again, so it is checked before use.

use super::Admission;
use super::wait_condition::{RotationSearch, WaitCondition};
use crate::batch::payload::Payload;
use crate::tree::Tree;
use crate::tree::family::Family;
use crate::write::memtables::visibility_ring::UNDER_WAY_MAX;
use crate::write::memtables::{Ticket, Writer};
use base::{Error, ErrorKind, Result, SeqNo};
use std::sync::Arc;

/// The longest write that lets the next write in during its insert, bytes.
pub(crate) const UNDER_WAY_BYTES_MAX: usize = 16 << 10;
/// The most memory of in-flight inserts that is not booked yet, bytes.
const UNDER_WAY_SUM: u64 = (UNDER_WAY_MAX * UNDER_WAY_BYTES_MAX) as u64;

/// Interval between two checks of the queue for memory.
const SLICE_NS: u64 = 10_000_000;

/// The attempts of a write that had to wait.
#[derive(Debug)]
pub(crate) struct AdmissionAttempts {
    /// Its place in the queue for memory.
    pub ticket: Option<Ticket>,
    /// A job without room was asked to try again.
    retried: bool,
    /// The last wait for a shorter log: the bound, and the oldest sequence at its beginning.
    shortening: Option<(u64, Option<u64>)>,
    /// No flush can make the log shorter now.
    log_stays_long: bool,
    /// Beginning of its wait for space.
    pub(super) since_ns: Option<u64>,
    /// Results of the last searches; `Some(None)`: no family was found.
    oldest: Option<Option<(SeqNo, Arc<Family>)>>,
    largest: Option<Option<Arc<Family>>>,
}

impl AdmissionAttempts {
    /// The attempts of a write that has not begun.
    pub const NONE: AdmissionAttempts = AdmissionAttempts {
        ticket: None,
        retried: false,
        shortening: None,
        log_stays_long: false,
        since_ns: None,
        oldest: None,
        largest: None,
    };

    /// Searches for a family. The caller holds no lock.
    pub fn look(&mut self, tree: &Tree, what: RotationSearch) {
        match what {
            RotationSearch::Oldest => self.oldest = Some(tree.families.oldest_unflushed()),
            RotationSearch::Largest => self.largest = Some(tree.families.largest_memtables(1).pop()),
        }
    }

    /// Forgets the results of earlier searches.
    #[inline]
    pub fn forget_found(&mut self) {
        (self.oldest, self.largest) = (None, None);
    }
}

impl Admission {
    /// Finds space and room for a write, and freezes full memtables. Returns the condition to wait
    /// for, if any. `is_logged`: the write goes to the log.
    pub fn rotate_full_memtables(
        &self,
        writer: &mut Writer,
        families: &[Arc<Family>],
        (payload, is_logged): (&Payload<'_>, bool),
        tried: &mut AdmissionAttempts,
    ) -> Result<Option<WaitCondition>> {
        let is_scarce = self.space.is_limited() || self.log.spares().reserved_is_short();
        if is_scarce && let Some(need) = self.find_space(writer, payload, families, tried)? {
            return Ok(Some(need));
        }
        self.context.health.check()?;
        let mut too_deep = None;
        for family in families {
            let full_bytes = self.context.options.memtable_bytes;
            let (is_unserved, is_full, is_deep) = family.look(|read_state| {
                let is_deep = read_state.chain.l0_depth >= read_state.options.expert.l0_stop_files;
                (read_state.is_unserved, read_state.active.bytes() >= full_bytes, is_deep)
            });
            if is_unserved {
                return Err(family.unserved());
            }
            if is_deep {
                too_deep.get_or_insert(family);
            }
            if is_full {
                self.memtables.rotate(writer, family);
            }
        }
        if writer.changed.len() > 1 && self.memtables.are_full_together(writer) {
            self.memtables.freeze_all(writer);
        }
        if self.log.went_over_bound() {
            let Some(oldest) = tried.oldest.take() else {
                return Ok(Some(WaitCondition::Look(RotationSearch::Oldest)));
            };
            self.log.take_over_bound();
            oldest.iter().for_each(|oldest| self.freeze_oldest(writer, oldest));
        }
        let memory_max =
            self.context.memtables_bytes_max - self.context.memtables_bytes_max.min(UNDER_WAY_SUM);
        let wanted = payload.weight as u64;
        let has_memory =
            writer.queue.is_empty() && self.space.memory.used().saturating_add(wanted) <= memory_max;
        if !has_memory && let Some(need) = self.find_memory(writer, payload, tried)? {
            return Ok(Some(need));
        }
        // A level 0 without a pending compaction is no reason to wait.
        let need =
            too_deep.map(|family| WaitCondition::Levels(family.clone())).filter(|need| !self.is_met(need));
        match need {
            None if is_logged && is_scarce => Ok(self.shorten_log(writer, payload, tried)),
            need => Ok(need),
        }
    }

    /// Finds memory where it is short, or where other writes wait for it.
    fn find_memory(
        &self,
        writer: &mut Writer,
        payload: &Payload<'_>,
        tried: &mut AdmissionAttempts,
    ) -> Result<Option<WaitCondition>> {
        let (memory, health) = (&self.space.memory, &self.context.health);
        let (weight, max) = (payload.weight as u64, self.context.memtables_bytes_max);
        let wanted = weight.saturating_add(writer.queue.before(tried.ticket));
        // In-flight inserts are not booked yet.
        self.memtables.wait_for_inserts();
        let fits = memory.used() == 0 || memory.used().saturating_add(wanted) <= max;
        // The budget is spread over many families, none of them full: the largest is flushed first.
        let must_freeze = !fits && memory.backlog() == 0;
        // Families are dropped under the writer's lock, and their memtables are not flushed.
        let largest = tried.largest.take().flatten().filter(|family| must_freeze && !family.is_dropped());
        // No family was found, or it was dropped since: search again.
        if must_freeze && largest.is_none() {
            return Ok(Some(WaitCondition::Look(RotationSearch::Largest)));
        }
        largest.iter().for_each(|family| self.memtables.rotate(writer, family));
        if !fits && (memory.backlog() > 0 || largest.is_some()) {
            if self.is_refused()
                && payload.is_delete_only()
                && self.log.spares().reserved_is_short()
                && !tried.retried
            {
                // The failed job may now use the reserved space, which exists for deletes: they
                // wait for its next attempt.
                tried.retried = true;
                health.retry();
            }
            if self.is_refused() {
                // Deletes make room, so they may use a quarter more memory.
                if payload.is_delete_only() && memory.used() + weight <= max + max / 4 {
                    self.leave_queue(writer, tried);
                    return Ok(None);
                }
                return Err(self.no_tables());
            }
            if let Some(e) = health.held_up(self.context.now_ns()) {
                return Err(e.context(
                    "memory is full, and tables cannot be written; writes resume when the cause \
                     is removed",
                ));
            }
            tried.ticket.get_or_insert_with(|| writer.queue.join(weight));
            let until_ns = if wanted > weight { self.context.now_ns() + SLICE_NS } else { u64::MAX };
            return Ok(Some(WaitCondition::Memory { wanted, until_ns }));
        }
        self.leave_queue(writer, tried);
        Ok(None)
    }

    /// Freezes the family with the oldest change, if it still has that change.
    fn freeze_oldest(&self, writer: &mut Writer, (seq, family): &(SeqNo, Arc<Family>)) {
        if family.read_state().oldest_unflushed_seq() == Some(*seq) && !family.is_dropped() {
            self.memtables.rotate(writer, family);
        }
    }

    /// Removes the write from the queue for memory.
    pub fn leave_queue(&self, writer: &mut Writer, tried: &mut AdmissionAttempts) {
        if let Some(ticket) = tried.ticket.take() {
            writer.queue.leave(ticket);
            self.context.signals.notify_progress();
        }
    }

    fn no_tables(&self) -> Error {
        let why = "memory is full, and tables cannot be written without disk space: free space; \
                   writes then resume";
        let refusal = self.context.health.no_space_error();
        let full = Error::new(ErrorKind::NoSpace, why).at_file(self.context.full_dir(refusal.as_ref()));
        refusal.map_or(full.clone(), |refusal| full.caused_by(refusal))
    }

    /// Waits for the flushes that shorten a log over its bound, before another group is made. Where
    /// space is scarce, that group would take the room that these flushes need. A durable delete
    /// takes a whole page, so small deletes fill groups long before they fill a memtable.
    fn shorten_log(
        &self,
        writer: &mut Writer,
        payload: &Payload<'_>,
        tried: &mut AdmissionAttempts,
    ) -> Option<WaitCondition> {
        // A change may take more bytes in the log than in the payload.
        let fits = || self.log.wal().content().has_room(2 * payload.weight);
        if tried.log_stays_long || !self.space.is_limited() || fits() {
            return None;
        }
        let live_max = self.context.options.sizes().live_log_bytes_max(self.space.limit_bytes());
        if !self.log.is_over(live_max) {
            return None;
        }
        let Some(oldest) = tried.oldest.take() else {
            return Some(WaitCondition::Look(RotationSearch::Oldest));
        };
        let oldest_seq = oldest.as_ref().map(|(seq, _)| *seq);
        // The last wait changed nothing: no flush can help.
        if tried.shortening.replace((live_max, oldest_seq)) == Some((live_max, oldest_seq)) {
            tried.log_stays_long = true;
            return None;
        }
        oldest.iter().for_each(|oldest| self.freeze_oldest(writer, oldest));
        Some(WaitCondition::ShorterLog { live_max, oldest, visible: self.tree.snapshots.visible() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
