//! Admission where space is limited, and the condition to wait for.

use super::Admission;
use super::need::{Ask, Need};
use super::patience::Patience;
use super::room::Tried;
use crate::batch::payload::Payload;
use crate::context::options::SpacePolicy;
use crate::write::memtables::Writer;
use base::{Error, ErrorKind, Result};

/// A wait is looked at again after so long, whatever happens.
const SLICE_NS: u64 = 50_000_000;

impl Admission {
    /// Finds space for a write where it is scarce.
    pub(super) fn find_space(
        &self,
        writer: &mut Writer,
        payload: &Payload<'_>,
        tried: &mut Tried,
    ) -> Result<Option<Need>> {
        let ask = Ask::of_write(payload.weight, payload.is_delete_only);
        // A limit may begin to hold while this waits for the lock.
        let since_ns = *tried.since_ns.get_or_insert_with(|| self.context.now_ns());
        self.admit(writer, ask, since_ns)
    }

    /// True if there is room for it.
    pub fn has_room(&self, ask: Ask) -> bool {
        if !ask.frees && self.log.spares().ballast_is_short() {
            return false;
        }
        match ask.frees {
            true => self.space.has_room_for_delete(ask.bytes),
            false => self.space.has_room_for_write(ask.bytes),
        }
    }

    /// Whether a write may go on that has waited since `since_ns`; its need if not. Under the writer's lock.
    pub(super) fn admit(&self, writer: &mut Writer, ask: Ask, since_ns: u64) -> Result<Option<Need>> {
        // Writes under way count as well.
        self.memtables.settle();
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
        // The volume or the store may have changed without a word from a job.
        self.tree.refresh_space();
        let mut refusal = None;
        if self.log.spares().ballast_is_short() {
            match self.log.preparation().fill_ballast() {
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
            return Ok(Some(Need::Space { ask, working, until_ns: now_ns.saturating_add(SLICE_NS) }));
        }
        self.space.write_waits_for(0);
        Err(self.no_space(ask, refusal.or_else(|| self.context.health.no_space_error())))
    }

    /// True if there is work that may free something. Jobs that found no room on the volume (others took it) are none: no
    /// event tells when they will get on.
    pub fn may_free(&self) -> bool {
        self.context.signals.can_free() && !self.context.health.out_of_space()
    }

    /// `refusal`: what found no room on a volume.
    fn no_space(&self, ask: Ask, refusal: Option<Error>) -> Error {
        let (limit, used) = (self.space.limit_bytes(), self.space.used_bytes());
        if limit == u64::MAX {
            let why =
                "the volume is full: delete something, or make more room; writes resume when there is some";
            let full = Error::new(ErrorKind::NoSpace, why).at_file(self.context.full_dir(refusal.as_ref()));
            return refusal.map_or(full.clone(), |refusal| full.caused_by(refusal));
        }
        let what = if self.space.has_own_limit() { "space limit" } else { "room on the volume" };
        let why = format!(
            "the {what}, {limit} bytes, is reached ({used} occupied, {} reserved, {} asked for): delete something, \
             or make more room; writes resume when there is some",
            self.space.reserve_bytes(),
            ask.bytes
        );
        Error::new(ErrorKind::NoSpace, why).at_file(&self.context.dir)
    }

    /// Waits until a file of a large value may take `bytes` more, outside the writer's lock.
    pub fn admit_segment(&self, bytes: u64, patience: &mut Patience) -> Result<()> {
        let ask = Ask { bytes: bytes + bytes / 64 + io::PAGE as u64, frees: false };
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
