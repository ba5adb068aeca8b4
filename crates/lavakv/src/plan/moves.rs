//! Tables that change their tier: those that are not where the placement pointer puts them.
//!
//! The state of the tiers ([`super::placement`]) is sampled periodically, outside the mutex. So is
//! a short list of tables to move, from levels whose sums show misplaced tables
//! ([`version::placed`]). Decisions are made from these samples under the mutex of the work in
//! progress. Moves down go first. Tables follow the pointer once it has been stable for a while, so
//! that no table oscillates with it. A lack of space overrides that delay. A table moves up if it
//! fits beside the space that the log needs. A job copies one table at a time
//! (`work::jobs::moves`), and no request waits for it.
//!
//! Value files do not move: they are open under their number alone, and collections rely on their
//! place. Files that stay on the fast tier, where new files begin, are collected once they fill
//! their share of it ([`crate::tree::speed_values`]). Their live values are copied to the capacity
//! tier, and references still resolve by the old names.

use super::answer::{Collection, Purpose};
use super::collection;
use super::facts::Facts;
use super::placement::{TierMove, Ways};
use crate::tree::family::Family;
use crate::tree::fast_tier_tables::{self, home};
use std::sync::Arc;
use store::volumes::Volume;
use values::GcOptions;
use version::names::FileKind;
use version::placed::Misplaced;
use version::{FamilyId, FileMeta, Version};

/// Maximum number of tables listed per sample.
pub(crate) const NOTED_MAX: usize = 32;

/// Returns the misplaced tables of a version that may move. Levels without any, by their sums, are
/// skipped.
pub(crate) fn misplaced(
    version: &Version,
    family: FamilyId,
    pointer: u32,
    ways: Ways,
) -> impl Iterator<Item = TierMove> {
    let levels = version.levels.iter().enumerate().filter(move |(level, files)| {
        let Misplaced { to_go_up, to_go_down } = fast_tier_tables::misplaced(pointer, *level, files.sums());
        (ways.up && to_go_up > 0) || (ways.down && to_go_down > 0)
    });
    let all = levels.flat_map(|(level, files)| files.iter().map(move |file| (level, file)));
    all.filter_map(move |(level, file)| {
        let (number, to) = (file.number, home(pointer, level, file.number));
        let may_go = if to == Volume::FAST { ways.up } else { ways.down };
        (file.volume != to && may_go).then_some(TierMove { family, level, number, to })
    })
}

/// Returns the name of the copy on the other tier.
pub(crate) fn copy(wanted: &TierMove) -> FileKind {
    FileKind::of_table(wanted.number, wanted.to == Volume::FAST)
}

/// Returns a table to copy now. A table does not return to a tier where readers still hold its old
/// file open: the copy would have the same name, and the last reader would delete it. For the same
/// reason no move starts while the cleanup removes files.
pub(super) fn pick(facts: &dyn Facts) -> Option<(Arc<Family>, Arc<FileMeta>, TierMove)> {
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

/// Returns a collection that copies values to the capacity tier now, whatever garbage the files
/// have. Under garbage pressure it alternates with other collections instead of running beside
/// them.
pub(super) fn pick_values(facts: &dyn Facts) -> Option<Box<Collection>> {
    let in_progress = facts.in_progress();
    let (noted, running) = (&in_progress.learned.lasting, &in_progress.running);
    if running.values_go_down || noted.is_empty() || facts.gc_is_paused() {
        return None;
    }
    if running.collections > 0 && collection::is_pressing(facts) {
        return None;
    }
    facts.families_with_work().iter().find_map(|of| {
        let (family, read_state) = (of.family.clone(), of.read_state.clone());
        let (busy, version) = (in_progress.of(family.id), &read_state.version);
        let files = noted.iter().filter(|(id, _)| *id == family.id).filter_map(|(_, number)| {
            let is_free = !busy.has_vsst(*number) && !facts.is_uncollected(*number);
            version.vssts.get(number).filter(|meta| is_free && meta.volume == Volume::FAST)
        });
        let usual = collection::options(facts.options().expert.ablation, &read_state, 0);
        let options = GcOptions { abandon_percent: 0, ..usual };
        let gc = values::of_files(version, &read_state.ledger, &options, files)?;
        let purpose = Purpose::FastTier;
        let is_granted = facts.would_grant(gc.expected_write);
        is_granted.then(|| Box::new(Collection { family, read_state, gc, options, purpose }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::fast_tier_tables::LEVEL;

    #[test]
    fn misplaced_table_sums_agree_with_a_full_walk() {
        let on = |number: u64| if number.is_multiple_of(3) { Volume::FAST } else { Volume::DIRECTORY };
        let table = |number| Arc::new(FileMeta { number, volume: on(number), ..FileMeta::default() });
        let whole = |number, volume| Arc::new(FileMeta { number, volume, ..FileMeta::default() });
        let levels = vec![
            (1..20).map(|number| whole(number, Volume::FAST)).collect(),
            (20..200).map(table).collect(),
            Vec::new(),
            (200..400).map(|number| whole(number, Volume::DIRECTORY)).collect(),
        ];
        let version = Version::with_files(7, levels);
        for pointer in (0..=5 * LEVEL).step_by(125) {
            for (down, up) in [(false, false), (true, false), (false, true), (true, true)] {
                let found: Vec<TierMove> = misplaced(&version, 7, pointer, Ways { down, up }).collect();
                let mut walked = Vec::new();
                for (level, files) in version.levels.iter().enumerate() {
                    for file in files {
                        let to = home(pointer, level, file.number);
                        if file.volume != to && (if to == Volume::FAST { up } else { down }) {
                            walked.push(TierMove { family: 7, level, number: file.number, to });
                        }
                    }
                }
                assert_eq!(found, walked, "{pointer} {down} {up}");
            }
        }
    }
}
