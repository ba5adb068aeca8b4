use super::*;
use crate::volumes::Location;
use io::CreateOptions;
use io::sim::SimEnv;
use std::path::Path;

const LIMIT: u64 = 1 << 20;

fn sizes() -> super::super::Sizes {
    super::super::Sizes {
        memtable_bytes: 64 << 10,
        memory_bytes: 128 << 10,
        log_group_bytes: 32 << 10,
        ballast_bytes: 16 << 10,
        wal_bytes_max: 64 << 10,
    }
}

/// A store that serves, with one file of so many bytes, under a limit. Its jobs want 200,000 bytes.
fn budget(used: u64, limit: Option<u64>) -> SpaceBudget {
    budget_on(&SimEnv::new(1), used, limit)
}

fn budget_on(sim: &SimEnv, used: u64, limit: Option<u64>) -> SpaceBudget {
    let env = sim.env();
    env.fs.create_dir_all(Path::new("/store")).unwrap();
    let context = Arc::new(Context::new(&env, Location::metered(&env, Path::new("/store"))));
    let terms = Terms { limit: limit.map(SpaceLimit::Bytes), ..Terms::unlimited(sizes()) };
    let mut file =
        context.env.fs.create(&context.path("000000000001.ksst"), &CreateOptions::default()).unwrap();
    file.append(&vec![7; used as usize]).unwrap();
    drop(file);
    let space = SpaceBudget::new(&context, terms);
    assert_eq!(space.used_bytes(), used);
    space.gauges.set_serves();
    space
}

fn refresh(space: &SpaceBudget) {
    space.refresh(|_| Demands { pool_bytes: 200_000, fixed_bytes: 20_000, ..Demands::default() });
}

fn ceiling(space: &SpaceBudget) -> u64 {
    space.bounds.ceiling_bytes.load(Relaxed)
}

/// Files within the limit, and not their reserve.
const FULL: u64 = 1000 << 10;

/// Room that comes back on a volume counts as soon as room that others take.
#[test]
fn a_volume_with_more_or_less_room_is_looked_at_again() {
    let sim = SimEnv::new(1);
    sim.set_capacity(Some(700 << 10));
    let space = budget_on(&sim, 500 << 10, Some(LIMIT));
    refresh(&space);
    for (capacity, changes) in [(700, false), (900, true), (900, false), (600, true)] {
        sim.set_capacity(Some(capacity << 10));
        sim.advance_ns(2 * ASK_NS);
        assert_eq!(space.look_again(), changes, "{capacity} KiB");
    }
}

#[test]
fn a_limit_that_was_lowered_leaves_room_for_the_way_out() {
    let space = budget(FULL, Some(LIMIT));
    refresh(&space);
    assert!(ceiling(&space) > LIMIT && ceiling(&space) == space.needed_bytes());
    assert!(space.is_above_limit() && space.would_grant(180_000));
    // The next process is told of what this one has come down to.
    assert_eq!(space.ceiling_to_tell(u64::MAX), Some(ceiling(&space)));
    assert_eq!(space.ceiling_to_tell(ceiling(&space)), None);
}

#[test]
fn a_limit_that_was_kept_is_kept_by_the_next_process_whatever_is_left_of_the_reserve() {
    for used in [FULL, LIMIT] {
        let space = budget(used, Some(LIMIT));
        space.take_ceiling(LIMIT);
        refresh(&space);
        assert_eq!(ceiling(&space), LIMIT);
        assert!(!space.is_above_limit() && !space.would_grant(180_000));
        assert_eq!(space.ceiling_to_tell(LIMIT), None);
    }
    // Of a process that was on its way down.
    let space = budget(FULL, Some(LIMIT));
    space.take_ceiling(LIMIT + 10_000);
    refresh(&space);
    assert_eq!(ceiling(&space), LIMIT + 10_000);
    // A limit that is higher than it was.
    let space = budget(FULL, Some(2 * LIMIT));
    space.take_ceiling(LIMIT);
    refresh(&space);
    assert_eq!((ceiling(&space), space.ceiling_to_tell(LIMIT)), (2 * LIMIT, Some(2 * LIMIT)));
}

#[test]
fn a_ceiling_that_files_are_above_is_not_believed() {
    let space = budget(FULL, Some(LIMIT / 2));
    space.take_ceiling(FULL - 4096);
    refresh(&space);
    assert!(ceiling(&space) > FULL);
}

#[test]
fn without_a_limit_there_is_nothing_to_tell_but_that() {
    let space = budget(FULL, None);
    refresh(&space);
    assert_eq!(space.ceiling_to_tell(u64::MAX), None);
    assert_eq!(space.ceiling_to_tell(LIMIT), Some(u64::MAX));
}

/// The manifest writes without asking: the last of the room is for no other file, when the store serves and before that.
#[test]
fn the_last_of_the_room_is_for_the_manifest() {
    let used = LIMIT / 2;
    let ways: [fn(&SpaceBudget); 2] = [refresh, SpaceBudget::bound_files];
    for bound in ways {
        let space = budget(used, Some(LIMIT));
        bound(&space);
        let (fs, path) = (&space.context.env.fs, space.context.path("000000000002.ksst"));
        let mut file = fs.create(&path, &CreateOptions::default()).unwrap();
        file.append(&vec![7; (LIMIT - EDITS_BYTES - used) as usize]).unwrap();
        assert_eq!(file.append(&[7]).unwrap_err().kind(), base::ErrorKind::NoSpace);
    }
}

/// The files of a job that was given up are removed: what it wrote must not count as room any longer.
#[test]
fn a_job_that_is_given_up_leaves_nothing_in_the_sums() {
    let space = Arc::new(budget(FULL, Some(4 * LIMIT)));
    refresh(&space);
    let before = space.job_bytes_max();
    let grant = space.grant(1000).unwrap();
    grant.wrote(|| vec![(1, space.context.path("000000000001.ksst"))]);
    assert!(space.job_bytes_max() > before, "the bytes of a running job are in its grant");
    drop(grant);
    assert_eq!(space.job_bytes_max(), before);
}
