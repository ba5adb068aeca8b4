//! What is known of the placement of tables on two disks, where it moves: what was seen of the disks, the pointer that follows it, and which tables may go.
//!
//! It stands with what is in progress, under its lock; which of the tables is copied next says [`super::moves`].

use super::pointer::{Pointer, Window};
use crate::context::event::SpeedMove;
use crate::tree::speed_tables::Room;
use store::pacing::DiskLoad;
use store::volumes::Volume;
use version::FamilyId;

/// A table that is to change its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub family: FamilyId,
    pub level: usize,
    pub number: u64,
    pub to: Volume,
}

/// Which ways tables may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ways {
    pub down: bool,
    pub up: bool,
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
}

/// What is known of moving placement.
#[derive(Debug, Default)]
pub(crate) struct Moving {
    pointer: Pointer,
    loads: [DiskLoad; 2],
    ways: Ways,
    wanted: Vec<Wanted>,
}

impl Moving {
    /// Takes in what was seen. Why the pointer has moved, if it has.
    pub fn see(&mut self, seen: Seen) -> Option<SpeedMove> {
        let Seen { now_ns, loads, room, most, filled } = seen;
        let [speed, capacity] = [loads[0].since(&self.loads[0]), loads[1].since(&self.loads[1])];
        self.loads = loads;
        let why = self.pointer.see(&Window { now_ns, speed, capacity, room, most, filled });
        let is_settled = self.pointer.is_settled();
        self.ways = Ways { down: room == Room::Short || is_settled, up: room == Room::Plenty && is_settled };
        why
    }

    /// Which ways tables may go since then.
    pub fn ways(&self) -> Ways {
        self.ways
    }

    /// These tables are not where they belong, and may go there.
    pub fn note(&mut self, wanted: Vec<Wanted>) {
        self.wanted = wanted;
    }

    /// Levels on the speed disk, in thousandths.
    pub fn pointer(&self) -> u32 {
        self.pointer.at()
    }

    /// Tables that may go, as they were noted.
    pub fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    /// There was no room for a move: what is wanted is looked for anew.
    pub fn give_up(&mut self) {
        self.wanted.clear();
    }
}
