//! What is seen of two disks where placement moves, once in a while, under no lock.

use super::Jobs;
use crate::context::event::Event;
use crate::plan::moves::{self, NOTED_MAX};
use crate::plan::placement::Seen;
use crate::tree::disk;
use crate::tree::speed_tables::LEVEL;
use base::sync::lock;

/// Looks if it is time, takes in what is seen, and tells if the pointer has moved.
pub(super) fn see(jobs: &Jobs) {
    let Some(seen) = look(jobs) else { return };
    let (why, milli) = {
        let moving = &mut lock(&jobs.in_progress).learned.moving;
        let why = moving.see(seen);
        jobs.tree.speed.set_pointer(&jobs.context, moving.pointer());
        (why, moving.pointer())
    };
    if let Some(why) = why {
        jobs.context.stats.speed_pointer_moves.add(1);
        jobs.context.tell(&Event::SpeedLevels { milli, why });
    }
}

/// What is seen, if it is time to look.
fn look(jobs: &Jobs) -> Option<Seen> {
    let (tree, context, options) = (&jobs.tree, &jobs.context, &jobs.context.options);
    let now_ns = context.now_ns();
    if !options.speed_moving || !tree.speed.takes_turn(now_ns, options.speed_look) {
        return None;
    }
    let speed = context.pace().of_speed_disk()?;
    let loads = [speed.load(), context.pace().load()];
    let pointer = tree.speed.pointer(options);
    let (mut filled, mut misplaced, mut table_bytes) = (1u32, Vec::new(), 0);
    for family in tree.all_families() {
        let version = family.read_state().version.clone();
        table_bytes = table_bytes.max(family.options().file_bytes);
        for (level, files) in version.levels.iter().enumerate() {
            filled |= u32::from(!files.is_empty()) << level.min(31);
        }
        let left = NOTED_MAX.saturating_sub(misplaced.len());
        misplaced.extend(moves::misplaced(&version, family.id, pointer).take(left));
    }
    let levels = options.speed_levels.min((u32::BITS - filled.leading_zeros()) as usize);
    let most = u32::try_from(levels).unwrap_or(u32::MAX).saturating_mul(LEVEL);
    // What goes down makes room for what goes up.
    misplaced.sort_by_key(|wanted| (wanted.to, wanted.level));
    let room = disk::room(tree, table_bytes)?;
    Some(Seen { now_ns, loads, room, most, filled, misplaced })
}
