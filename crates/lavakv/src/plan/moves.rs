//! Which tables change their disk, where placement moves: those that are not where the pointer says that they belong.
//!
//! What is seen of the disks ([`super::placement`]) is taken once in a while, under no lock, with a few tables that would have to move; what is decided from it is
//! decided under the lock of what is in progress. Tables go down first. They follow the pointer once it has stayed where it is for a while, so that none goes to and fro with it,
//! but for want of room: that is not waited for. Up goes what finds room beside what the log needs. Each is copied by a job
//! (`work::jobs::moves`), one at a time, for which nobody waits.

use super::facts::Facts;
use super::placement::Wanted;
use crate::tree::family::Family;
use crate::tree::speed_tables::home;
use std::sync::Arc;
use version::{FamilyId, FileMeta, Version};

/// So many tables are noted at one look.
pub(crate) const NOTED_MAX: usize = 32;

/// The tables of a version that are not where they belong: those that are to go down, and those that are to go up.
pub(crate) fn misplaced(version: &Version, family: FamilyId, pointer: u32) -> impl Iterator<Item = Wanted> {
    let levels = version.levels.iter().enumerate();
    let all = levels.flat_map(|(level, files)| files.iter().map(move |file| (level, file)));
    all.filter_map(move |(level, file)| {
        let (number, to) = (file.number, home(pointer, level, file.number));
        (file.volume != to).then_some(Wanted { family, level, number, to })
    })
}

/// A table that may be copied now.
pub(super) fn pick(facts: &dyn Facts) -> Option<(Arc<Family>, Arc<FileMeta>, Wanted)> {
    let in_progress = facts.in_progress();
    if in_progress.running.moves || in_progress.learned.moving.wanted().is_empty() {
        return None;
    }
    in_progress.learned.moving.wanted().iter().find_map(|wanted| {
        let family = facts.families().iter().find(|family| family.family.id == wanted.family)?;
        let files = family.read_state.version.files(wanted.level);
        let file = files.iter().find(|file| file.number == wanted.number && file.volume != wanted.to)?;
        let is_free = !in_progress.of(wanted.family).has_file(file.number)
            && !family.set_aside.has(file.number)
            && facts.would_grant(file.len);
        is_free.then(|| (family.family.clone(), file.clone(), *wanted))
    })
}
