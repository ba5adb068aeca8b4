//! Admission where space is limited, and the condition to wait for.

use super::Admission;
use super::room::AdmissionAttempts;
use super::wait_condition::{ReserveShare, SpaceRequest, WaitCondition};
use super::write_deadline::WriteDeadline;
use crate::batch::payload::Payload;
use crate::context::options::SpacePolicy;
use crate::tree::family::Family;
use crate::write::memtables::Writer;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Interval between two checks of a wait.
const SLICE_NS: u64 = 50_000_000;

/// Returns the share of the reserve that a write may use. By estimate, each delete frees a mean
/// entry of the family with the shortest entries. Deletes of missing keys free less, and so do
/// overwrites that are not flushed. So the other half of the reserve stays for deletes alone, which
/// must always be admitted.
fn share_of(payload: &Payload<'_>, families: &[Arc<Family>]) -> ReserveShare {
    if payload.is_delete_only() {
        return ReserveShare::All;
    }
    if payload.deletes == 0 {
        return ReserveShare::None;
    }
    let entry_bytes = families.iter().map(|family| family.look(|seen| seen.summary.entry_bytes)).min();
    let freed_bytes = u64::from(payload.deletes).saturating_mul(entry_bytes.unwrap_or(0));
    match freed_bytes > payload.data_bytes as u64 {
        true => ReserveShare::Half,
        false => ReserveShare::None,
    }
}

impl Admission {
    /// Finds space for a write where it is scarce.
    pub(super) fn find_space(
        &self,
        writer: &mut Writer,
        payload: &Payload<'_>,
        families: &[Arc<Family>],
        tried: &mut AdmissionAttempts,
    ) -> Result<Option<WaitCondition>> {
        let ask = SpaceRequest::of_write(payload.weight, share_of(payload, families));
        // A limit may begin to hold while this waits for the lock.
        let since_ns = *tried.since_ns.get_or_insert_with(|| self.context.now_ns());
        self.admit(writer, ask, since_ns)
    }

    /// True if there is room for the request.
    pub fn has_room(&self, ask: SpaceRequest) -> bool {
        if ask.share == ReserveShare::None && self.log.spares().reserved_is_short() {
            return false;
        }
        match ask.share {
            ReserveShare::All => self.space.has_room_in_reserve(ask.bytes, 1),
            ReserveShare::Half => self.space.has_room_in_reserve(ask.bytes, 2),
            ReserveShare::None => self.space.has_room_for_write(ask.bytes),
        }
    }

    /// Admits a request that has waited since `since_ns`, or returns its wait condition. Called
    /// under the writer's lock.
    pub(super) fn admit(
        &self,
        writer: &mut Writer,
        ask: SpaceRequest,
        since_ns: u64,
    ) -> Result<Option<WaitCondition>> {
        // Writes in flight count as well.
        self.memtables.wait_for_inserts();
        let granted = || {
            let room = self.has_room(ask);
            if room {
                self.space.write_waits_for(0);
            }
            room
        };
        if granted() {
            return Ok(None);
        }
        self.context.health.check()?;
        // The volume or the store may have changed without an event from a job.
        self.tree.refresh_space();
        let mut refusal = None;
        if self.log.spares().reserved_is_short() {
            match self.log.preparation().fill_reserved() {
                Err(e) if e.kind() == ErrorKind::NoSpace => refusal = Some(e),
                filled => filled?,
            }
        }
        if granted() {
            return Ok(None);
        }
        self.space.write_waits_for(ask.bytes);
        let mut working = self.may_free();
        if !working && self.space.memory.used() > self.space.memory.backlog() {
            // Entries in memtables may hide, or delete, entries in tables.
            self.memtables.freeze_all(writer);
            working = self.may_free();
        }
        let now_ns = self.context.now_ns();
        let waited_ns = now_ns.saturating_sub(since_ns);
        let patient = match self.context.options.space_policy {
            SpacePolicy::NoSpace => working,
            SpacePolicy::Wait { at_most } => u128::from(waited_ns) < at_most.as_nanos(),
        };
        if patient {
            return Ok(Some(WaitCondition::Space {
                ask,
                working,
                until_ns: now_ns.saturating_add(SLICE_NS),
            }));
        }
        self.space.write_waits_for(0);
        Err(self.no_space(ask, refusal.or_else(|| self.context.health.no_space_error())))
    }

    /// True if some work may free space. Jobs without room on the volume, which other programs
    /// fill, do not count: no event tells when they can continue.
    pub fn may_free(&self) -> bool {
        self.context.signals.can_free() && !self.context.health.out_of_space()
    }

    /// `refusal`: the error of a write to a full volume.
    fn no_space(&self, ask: SpaceRequest, refusal: Option<Error>) -> Error {
        let (limit, used) = (self.space.limit_bytes(), self.space.used_bytes());
        if limit == u64::MAX {
            let why = "the volume is full: delete data, or free space on it; writes then resume";
            let full = Error::new(ErrorKind::NoSpace, why).at_file(self.context.full_dir(refusal.as_ref()));
            return refusal.map_or(full.clone(), |refusal| full.caused_by(refusal));
        }
        let what = if self.space.has_own_limit() { "space limit" } else { "space on the volume" };
        let why = format!(
            "the {what}, {limit} bytes, is reached ({used} occupied, {} reserved, {} requested): \
             delete data, or make more space; writes then resume",
            self.space.reserve_bytes(),
            ask.bytes
        );
        Error::new(ErrorKind::NoSpace, why).at_file(&self.context.dir)
    }

    /// Waits until a file of a large value may take `bytes` more, outside the writer's lock.
    pub fn admit_segment(&self, bytes: u64, patience: &mut WriteDeadline) -> Result<()> {
        let ask = SpaceRequest { bytes: bytes + bytes / 64 + io::PAGE as u64, share: ReserveShare::None };
        if self.has_room(ask) {
            return Ok(());
        }
        let since_ns = self.context.now_ns();
        loop {
            let need = self.admit(&mut self.memtables.lock(), ask, since_ns)?;
            match need {
                None => return Ok(()),
                Some(need) => patience.wait(self, &need)?,
            }
        }
    }
}
