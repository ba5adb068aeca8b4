//! Which tables change their disk, where placement moves: those that are not where the pointer says that they belong.
//!
//! What is seen of the disks ([`Seen`]) is taken once in a while, under no lock, with a few tables that would have to move; what is decided from it is
//! decided under the lock of what is in progress. Tables go down first. They follow the pointer once it has stayed where it is for a while, so that none goes to and fro with it,
//! but for want of room: that is not waited for. Up goes what finds room beside what the log needs. Each is copied by a job
//! (`work::jobs::moves`), one at a time, for which nobody waits.

use super::facts::Facts;
use super::pointer::{Pointer, Window};
use crate::context::event::SpeedMove;
use crate::tree::family::Family;
use crate::tree::speed_tables::{Room, home};
use std::sync::Arc;
use store::pacing::DiskLoad;
use store::volumes::Volume;
use version::{FamilyId, FileMeta, Version};

/// So many tables are noted at one look.
pub(crate) const NOTED_MAX: usize = 32;

/// A table that is to change its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub family: FamilyId,
    pub level: usize,
    pub number: u64,
    pub to: Volume,
}

/// What was seen of the disks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub now_ns: u64,
    /// Since the store was opened: the speed disk, the capacity disk.
    pub loads: [DiskLoad; 2],
    pub room: Room,
    pub most: u32,
    pub filled: u32,
    /// Tables that are not where they belong, as the pointer was then.
    pub misplaced: Vec<Wanted>,
}

/// What is known of moving placement.
#[derive(Debug, Default)]
pub(crate) struct Moving {
    pointer: Pointer,
    loads: [DiskLoad; 2],
    wanted: Vec<Wanted>,
}

impl Moving {
    /// Takes in what was seen. Why the pointer has moved, if it has.
    pub fn see(&mut self, seen: Seen) -> Option<SpeedMove> {
        let Seen { now_ns, loads, room, most, filled, misplaced } = seen;
        let [speed, capacity] = [loads[0].since(&self.loads[0]), loads[1].since(&self.loads[1])];
        self.loads = loads;
        let why = self.pointer.see(&Window { now_ns, speed, capacity, room, most, filled });
        let may_go = |wanted: &Wanted| match wanted.to {
            Volume::SPEED => room == Room::Plenty && self.pointer.is_settled(),
            _ => room == Room::Short || self.pointer.is_settled(),
        };
        self.wanted = misplaced.into_iter().filter(|wanted| may_go(wanted)).collect();
        why
    }

    /// Levels on the speed disk, in thousandths.
    pub fn pointer(&self) -> u32 {
        self.pointer.at()
    }

    /// There was no room for a move: what is wanted is looked for anew.
    pub fn give_up(&mut self) {
        self.wanted.clear();
    }
}

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
    if in_progress.running.moves || in_progress.learned.moving.wanted.is_empty() {
        return None;
    }
    in_progress.learned.moving.wanted.iter().find_map(|wanted| {
        let family = facts.families().iter().find(|family| family.family.id == wanted.family)?;
        let files = family.read_state.version.files(wanted.level);
        let file = files.iter().find(|file| file.number == wanted.number && file.volume != wanted.to)?;
        let is_free = !in_progress.of(wanted.family).has_file(file.number)
            && !family.set_aside.has(file.number)
            && facts.would_grant(file.len);
        is_free.then(|| (family.family.clone(), file.clone(), *wanted))
    })
}
