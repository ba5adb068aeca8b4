//! Which tables change their disk, where placement moves: those that are not where the pointer says that they belong.
//!
//! What is seen of the disks ([`super::placement`]) is taken once in a while, under no lock, and so are a few tables that have to move, from levels whose sums say
//! that they have some ([`version::placed`]); what is decided from it is decided under the lock of what is in progress. Tables go down first. They follow the pointer once it has stayed where it is for a while, so that none goes to and fro with it,
//! but for want of room: that is not waited for. Up goes what finds room beside what the log needs. Each is copied by a job
//! (`work::jobs::moves`), one at a time, for which nobody waits.
//!
//! Files of values do not move: they are open under their numbers alone, and collections count on where they are. Those that have lasted on the speed disk, where fresh ones begin, are collected
//! for its sake once they fill their part of it ([`crate::tree::speed_values`]): what is live is copied to the directory, under the names that it has.

use super::answer::{Collection, Purpose};
use super::collection;
use super::facts::Facts;
use super::placement::{Wanted, Ways};
use crate::tree::family::Family;
use crate::tree::speed_tables::{self, home};
use std::sync::Arc;
use store::volumes::Volume;
use values::GcOptions;
use version::names::FileKind;
use version::placed::Misplaced;
use version::{FamilyId, FileMeta, Version};

/// So many tables are noted at one look.
pub(crate) const NOTED_MAX: usize = 32;

/// The tables of a version that are not where they belong and may go there. Levels of which the sums say that there are none are not looked at.
pub(crate) fn misplaced(
    version: &Version,
    family: FamilyId,
    pointer: u32,
    ways: Ways,
) -> impl Iterator<Item = Wanted> {
    let levels = version.levels.iter().enumerate().filter(move |(level, files)| {
        let Misplaced { to_go_up, to_go_down } = speed_tables::misplaced(pointer, *level, files.sums());
        (ways.up && to_go_up > 0) || (ways.down && to_go_down > 0)
    });
    let all = levels.flat_map(|(level, files)| files.iter().map(move |file| (level, file)));
    all.filter_map(move |(level, file)| {
        let (number, to) = (file.number, home(pointer, level, file.number));
        let may_go = if to == Volume::SPEED { ways.up } else { ways.down };
        (file.volume != to && may_go).then_some(Wanted { family, level, number, to })
    })
}

/// The name of the copy on the other disk.
pub(crate) fn copy(wanted: &Wanted) -> FileKind {
    FileKind::of_table(wanted.number, wanted.to == Volume::SPEED)
}

/// A table that may be copied now. None goes back to a disk where its file from before is still there for somebody who reads it: the copy would have that name, and
/// would be what goes with the last reader. Nor while files are being removed, of which one may be such a file.
pub(super) fn pick(facts: &dyn Facts) -> Option<(Arc<Family>, Arc<FileMeta>, Wanted)> {
    let in_progress = facts.in_progress();
    let running = &in_progress.running;
    if running.moves || running.cleanup || in_progress.learned.moving.wanted().is_empty() {
        return None;
    }
    in_progress.learned.moving.wanted().iter().find_map(|wanted| {
        let family = facts.families().iter().find(|family| family.family.id == wanted.family)?;
        let files = family.read_state.version.files(wanted.level);
        let file = files.iter().find(|file| file.number == wanted.number && file.volume != wanted.to)?;
        let is_free = !in_progress.of(wanted.family).has_file(file.number)
            && !family.set_aside.has(file.number)
            && facts.would_grant(file.len)
            && !facts.is_leaving(copy(wanted));
        is_free.then(|| (family.family.clone(), file.clone(), *wanted))
    })
}

/// Values that may be copied to the directory now: a collection of their files, whatever garbage these have. While garbage presses it takes its turn between collections,
/// and is not one more beside them.
pub(super) fn pick_values(facts: &dyn Facts) -> Option<Box<Collection>> {
    let in_progress = facts.in_progress();
    let (noted, running) = (&in_progress.learned.lasting, &in_progress.running);
    if running.values_go_down || noted.is_empty() || facts.gc_is_paused() {
        return None;
    }
    if running.collections > 0 && collection::is_pressing(facts) {
        return None;
    }
    facts.families().iter().find_map(|of| {
        let (family, read_state) = (of.family.clone(), of.read_state.clone());
        let (busy, version) = (in_progress.of(family.id), &read_state.version);
        let files = noted.iter().filter(|(id, _)| *id == family.id).filter_map(|(_, number)| {
            let is_free = !busy.has_vsst(*number) && !facts.is_uncollected(*number);
            version.vssts.get(number).filter(|meta| is_free && meta.volume == Volume::SPEED)
        });
        let usual = collection::options(facts.options().expert.ablation, &read_state, 0);
        let options = GcOptions { abandon_percent: 0, ..usual };
        let gc = values::of_files(version, &read_state.ledger, &options, files)?;
        let purpose = Purpose::SpeedDisk;
        let is_granted = facts.would_grant(gc.expected_write);
        is_granted.then(|| Box::new(Collection { family, read_state, gc, options, purpose }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::speed_tables::LEVEL;

    #[test]
    fn what_the_sums_leave_out_is_what_a_walk_does_not_find() {
        let on = |number: u64| if number.is_multiple_of(3) { Volume::SPEED } else { Volume::DIRECTORY };
        let table = |number| Arc::new(FileMeta { number, volume: on(number), ..FileMeta::default() });
        let whole = |number, volume| Arc::new(FileMeta { number, volume, ..FileMeta::default() });
        let levels = vec![
            (1..20).map(|number| whole(number, Volume::SPEED)).collect(),
            (20..200).map(table).collect(),
            Vec::new(),
            (200..400).map(|number| whole(number, Volume::DIRECTORY)).collect(),
        ];
        let version = Version::with_files(7, levels);
        for pointer in (0..=5 * LEVEL).step_by(125) {
            for (down, up) in [(false, false), (true, false), (false, true), (true, true)] {
                let found: Vec<Wanted> = misplaced(&version, 7, pointer, Ways { down, up }).collect();
                let mut walked = Vec::new();
                for (level, files) in version.levels.iter().enumerate() {
                    for file in files {
                        let to = home(pointer, level, file.number);
                        if file.volume != to && (if to == Volume::SPEED { up } else { down }) {
                            walked.push(Wanted { family: 7, level, number: file.number, to });
                        }
                    }
                }
                assert_eq!(found, walked, "{pointer} {down} {up}");
            }
        }
    }
}
