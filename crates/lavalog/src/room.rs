//! Where there is no room: who is refused, who is not, and how things go on.
//!
//! A volume that is full, by this store or by others, refuses a new group of the log, an index file, a cold file. Then
//!
//! * appends are refused with `NoSpace`, and nothing of them has happened. What is in the group that is written still goes on.
//! * trims, truncations and deletes pass, as they make room: their group is one that waits to be used again, or a short one in the room
//!   that the store's ballast had (`store::commit::GroupFiles`).
//! * jobs are tried again every tenth of a second. What they need is little beside what they free, and they are given the rest of
//!   the ballast, then the groups that wait to be used again, one for each time they were refused.
//! * reads need no room.
//!
//! There is one ballast, with the first lane of the log, for this engine and one that it is opened beside.
//!
//! Once ballast was given, appends are refused until it is whole again, or what was freed would be taken before the next who has to
//! free. Whoever is to append, and each job that came to its end, tries to make it whole.
//!
//! Invariant: nothing here is remembered but by the ballast itself, so that whoever opens the store next is in the same place.

use crate::foundation::Foundation;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;
use store::commit::{Ballast, Need};

/// See the module.
pub(crate) struct Room {
    store: Arc<Foundation>,
}

impl Room {
    /// Of this store.
    pub fn new(store: &Arc<Foundation>) -> Room {
        Room { store: store.clone() }
    }

    /// Refuses what frees no room while the ballast is not whole, and everything in a store that is only read.
    ///
    /// # Errors
    /// `NoSpace`; `ReadOnly`.
    pub fn admit(&self, frees: bool) -> Result<()> {
        self.store.check_writable()?;
        if frees || !self.store.lane.spares().ballast_is_short() {
            return Ok(());
        }
        // What stopped the store is the reason then, and not that there is no room.
        self.store.context().health.check()?;
        if self.fill_ballast()? {
            return Ok(());
        }
        let why = "the volume of the logs is full: trims and deletes go on; appends resume when these, or others, have made room";
        Err(Error::new(ErrorKind::NoSpace, why).at_file(&self.store.context().dir))
    }

    /// Makes the ballast whole, if there is room for it. Files that wait to be used again go for it: they are room that is had.
    fn fill_ballast(&self) -> Result<bool> {
        let Some(first) = &self.store.first else { return Ok(true) };
        loop {
            match first.preparation().fill_ballast() {
                Err(e) if e.kind() == ErrorKind::NoSpace => {}
                filled => return filled.map(|()| true),
            }
            if !self.store.lane.spares().give_free()? {
                return Ok(false);
            }
        }
    }

    fn give_ballast(&self, part: Ballast) -> bool {
        self.store.first.as_ref().is_some_and(|first| first.spares().give_ballast(part))
    }

    /// Gives the log a group for a batch that frees room, where there is none for a new one: a shorter one, one that waits to be used
    /// again, or the room of the ballast.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened. Those of the manifest and of the file system.
    pub fn provide_last(&self, len: usize) -> Result<()> {
        loop {
            match self.store.lane.preparation().provide(len, Need::Last) {
                Err(e) if e.kind() == ErrorKind::NoSpace => {
                    if !self.give_ballast(Ballast::Log) {
                        return Err(e);
                    }
                }
                provided => return provided,
            }
        }
    }

    /// A job found no room: there is to be some for the next try. False if there is nothing to give.
    pub fn job_found_no_room(&self) -> Result<bool> {
        if self.give_ballast(Ballast::Jobs) { Ok(true) } else { self.store.lane.spares().give_free() }
    }

    /// A job came to its end: there is room.
    pub fn job_found_room(&self) -> Result<()> {
        self.store.context().health.space_found();
        if self.store.lane.spares().ballast_is_short() {
            self.fill_ballast()?;
        }
        Ok(())
    }
}
