//! Groups are retained, read, damaged and freed.

use crate::engine::{DIR, GROUP_BYTES, Machine, OTHER, TENANT, terms};
use base::ErrorKind;
use io::sim::{CrashKind, SimEnv};
use io::{PAGE, Rng};
use std::path::{Path, PathBuf};
use store::Store;
use store::commit::{Durability, GroupState, Lane, LoggedBatch, ReadAhead};
use store::manifest::Engines;
use wal::check::LogFindings;

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// Makes a store with `groups` retained groups; returns its records in order.
fn filled(sim: &SimEnv, groups: usize) -> (Machine, Vec<Vec<u8>>) {
    let mut rng = Rng::new(4);
    let (mut machine, mut records) = (Machine::open(sim.env()).unwrap(), Vec::new());
    while machine.retained().len() < groups {
        for _ in 0..3 {
            let len = 1 + rng.below(20_000) as usize;
            records.push(bytes(&mut rng, len));
            machine.append(records.last().unwrap(), Durability::Buffered).unwrap();
        }
        machine.log.upkeep().seal_active().unwrap();
        machine.pass().unwrap();
        machine.retain(usize::MAX).unwrap();
    }
    (machine, records)
}

fn check(machine: &Machine, records: &[Vec<u8>]) {
    for (seq, expected) in (1..).zip(records) {
        match machine.index.contains_key(&seq) {
            true => assert!(machine.read(seq).unwrap() == *expected, "{seq}"),
            false => assert!(machine.read(seq).is_err(), "{seq}"),
        }
    }
}

fn path_of(machine: &Machine, ltn: u64) -> PathBuf {
    let file = machine.manifest.state().store.log_groups.get(&ltn).unwrap().file;
    Path::new(DIR).join(store::names::log(file))
}

#[test]
fn retained_groups_are_read_after_open_and_not_during_it() {
    let sim = SimEnv::new(1);
    let (machine, records) = filled(&sim, 4);
    check(&machine, &records);
    let kept: Vec<PathBuf> = machine.retained().iter().map(|&ltn| path_of(&machine, ltn)).collect();
    machine.store.close().unwrap();
    drop(machine);
    let crashed = sim.crash(CrashKind::PowerLoss, 1);
    let machine = Machine::open(crashed.env()).unwrap();
    for path in &kept {
        // The check of the manifest reads at most the first page of every log file.
        assert!(crashed.count_ops(None, path.to_str().unwrap()) <= 2, "{path:?}");
    }
    check(&machine, &records);
    assert_eq!(machine.retained().len(), kept.len());
}

/// Groups become garbage several at a time. Their files are kept for the next groups, up to a
/// quarter of the number of retained groups.
#[test]
fn files_of_freed_groups_are_kept_for_reuse() {
    let sim = SimEnv::new(11);
    let (mut machine, _) = filled(&sim, 24);
    let files = || {
        let listing = sim.env().fs.list(Path::new(DIR)).unwrap();
        listing.iter().filter(|file| file.name.ends_with(".log")).count()
    };
    let (before, ltns) = (files(), machine.retained());
    let kept = ltns.len() - 8;
    ltns[kept..].iter().for_each(|ltn| machine.free(*ltn).unwrap());
    assert_eq!((before - files(), kept / 4), (8 - 4, 4));
    // With few retained groups, the bound of any lane applies.
    ltns[4..kept].iter().for_each(|ltn| machine.free(*ltn).unwrap());
    assert_eq!(before - files(), ltns.len() - 4 - terms().free_groups_max);
}

/// A missing or damaged group loses its own records, and the store opens.
#[test]
fn a_missing_or_damaged_retained_group_loses_only_its_records() {
    let sim = SimEnv::new(2);
    let (machine, records) = filled(&sim, 4);
    let ltns = machine.retained();
    let paths: Vec<PathBuf> = ltns.iter().map(|&ltn| path_of(&machine, ltn)).collect();
    machine.store.close().unwrap();
    drop(machine);
    let sim = sim.crash(CrashKind::PowerLoss, 1);
    let env = sim.env();
    env.fs.remove(&paths[0]).unwrap();
    let file = sim.read_file(&paths[1]).unwrap();
    sim.write_file(&paths[1], &file[..file.len() - PAGE]).unwrap();
    let mut file = sim.read_file(&paths[2]).unwrap();
    file[500] ^= 4;
    sim.write_file(&paths[2], &file).unwrap();
    let machine = Machine::open(env.clone()).unwrap();
    let listing = env.fs.list(Path::new(DIR)).unwrap();
    let missing = machine.log.stored().missing(&listing);
    assert_eq!(missing.iter().map(|(ltn, _)| *ltn).collect::<Vec<_>>(), ltns[..2]);
    assert!(missing.iter().zip(&paths).all(|((_, e), path)| e.is_corruption() && e.file() == Some(path)));
    // Everything in the first two groups is lost, one page of the third, nothing of the fourth.
    for (seq, expected) in (1..).zip(&records) {
        let (place, len) = machine.index[&seq];
        let is_lost = match ltns.iter().position(|ltn| *ltn == place.ltn) {
            Some(0 | 1) => true,
            Some(2) => place.block == 0,
            _ => false,
        };
        match machine.read(seq) {
            Ok(found) if !is_lost => assert!(found == *expected, "{seq} of {len} bytes"),
            Err(e) if is_lost => {
                assert!(e.is_corruption() && paths.iter().any(|p| e.file() == Some(p)), "{e}")
            }
            found => panic!("{seq} at {place:?}: {found:?}"),
        }
    }
    // Damaged groups can be freed like any other.
    let mut machine = machine;
    for ltn in &ltns {
        machine.free(*ltn).unwrap();
    }
    assert!(machine.retained().is_empty());
    machine.store.close().unwrap();
}

/// A reused file is another group, and a reader of the old one gets an error.
#[test]
fn a_reused_log_file_gets_a_new_identity() {
    let sim = SimEnv::new(3);
    let (mut machine, mut records) = filled(&sim, 6);
    // Files whose length differs from the current group length are removed.
    let len_now = machine.log.preparation().next_len();
    let group = machine
        .log
        .reader()
        .groups()
        .into_iter()
        .find(|g| g.state == GroupState::Retained && g.len == len_now);
    let ltn = group.unwrap().ltn;
    let path = path_of(&machine, ltn);
    let (_, old, len) = machine.entries(ltn)[0];
    machine.free(ltn).unwrap();
    let refused = |machine: &Machine| {
        let e = machine.log.reader().read(old, len as usize, &mut Vec::new()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
    };
    refused(&machine);
    let (mut rng, mut used_again) = (Rng::new(9), false);
    for _ in 0..60 {
        records.push(bytes(&mut rng, 9000));
        machine.append(records.last().unwrap(), Durability::Durable).unwrap();
        machine.store.tend().unwrap();
        refused(&machine);
        let state = machine.manifest.state();
        let mut chain = state.store.log_groups.chain(Lane::LOG);
        used_again |= chain.any(|g| Path::new(DIR).join(store::names::log(g.file)) == path);
    }
    assert!(used_again, "the file of the freed group is one of the log again");
    check(&machine, &records);
    let e = machine.free(ltn).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
}

/// A file with another name, in a copy of the store, is never written again. It is removed, and the
/// next group gets a new file.
#[test]
fn the_file_of_a_shared_group_is_not_reused() {
    let sim = SimEnv::new(8);
    let (mut machine, _) = filled(&sim, 3);
    // The youngest group has the length of the next ones, so its file would be reused.
    let ltn = *machine.retained().last().unwrap();
    let e = machine.log.stored().share(&[99], |_| panic!("there is no edit")).unwrap_err();
    assert!(e.kind() == ErrorKind::InvalidArgument && e.message().contains("cannot be shared"), "{e}");
    machine.log.stored().share(&[ltn], |edit| machine.log.stored().commit(edit)).unwrap();
    let file = machine.store.manifest().state().log_groups.get(&ltn).unwrap().file;
    let (path, copy) = (Path::new(DIR).join(store::names::log(file)), Path::new("/copy"));
    sim.env().fs.link(&path, copy).unwrap();
    let before = sim.read_file(copy).unwrap();
    machine.free(ltn).unwrap();
    assert!(!sim.env().fs.exists(&path).unwrap());
    for _ in 0..40 {
        machine.append(&[9; 20_000], Durability::Durable).unwrap();
    }
    assert_eq!(sim.read_file(copy).unwrap(), before);
}

#[test]
fn groups_are_retained_in_order_once_all_floors_passed() {
    use GroupState::{Active, Closed, Passed, Retained};
    let sim = SimEnv::new(5);
    let mut machine = Machine::open(sim.env()).unwrap();
    for _ in 0..3 {
        machine.append(&[5; 3000], Durability::Buffered).unwrap();
        assert!(machine.log.upkeep().seal_active().unwrap());
        assert!(!machine.log.upkeep().seal_active().unwrap(), "there is nothing in it");
    }
    let states =
        |machine: &Machine| machine.log.reader().groups().iter().map(|g| g.state).collect::<Vec<_>>();
    assert_eq!(states(&machine), [Closed, Closed, Closed, Active]);
    let ltns: Vec<u64> = machine.log.reader().groups().iter().map(|g| g.ltn).collect();
    let refused = |machine: &Machine, ltns: &[u64]| {
        let e = machine.log.stored().retain(ltns, |_| panic!("there is no edit")).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    };
    refused(&machine, &ltns[..1]);
    machine.log.floors().tell(TENANT, 3);
    machine.log.floors().hint();
    machine.store.tend().unwrap();
    assert_eq!(states(&machine), [Passed, Passed, Closed, Active]);
    for wrong in [&ltns[1..2], &ltns[..3], &ltns[3..], &[99]] {
        refused(&machine, wrong);
    }
    assert_eq!(machine.log.reader().groups()[1].seqs.as_ref().unwrap().of(TENANT), Some((2, 2)));
    // An edit that the engine refuses has no effect.
    let full = machine.log.stored().retain(&ltns[..1], |_| Err(base::Error::new(ErrorKind::NoSpace, "full")));
    assert_eq!(full.unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(machine.retain(1).unwrap(), ltns[..1]);
    assert_eq!(states(&machine), [Retained, Passed, Closed, Active]);
    let mut batches = 0;
    for ltn in &ltns[..3] {
        let (mut scan, mut found) = (machine.log.reader().scan(*ltn).unwrap(), LogFindings::default());
        let mut take = |batch: &LoggedBatch<'_>| {
            assert_eq!((batch.place, batch.bytes.len()), (machine.index[&batch.first_seq].0, 3000));
            batches += 1;
        };
        while scan.step(&mut found, &mut take) {}
        assert!(found.errors.is_empty());
    }
    assert_eq!(batches, 3);
    assert!(machine.log.reader().scan(ltns[3]).is_err_and(|e| e.kind() == ErrorKind::NotFound));
}

/// An open without the lane leaves the lane alone, whatever it writes.
#[test]
fn an_unopened_lane_is_unchanged() {
    let sim = SimEnv::new(6);
    let (mut machine, mut records) = filled(&sim, 2);
    // The lane also has a batch that is only in its staging file.
    records.push(vec![8; 5000]);
    machine.append(records.last().unwrap(), Durability::Buffered).unwrap();
    drop(machine);
    let sim = sim.crash(CrashKind::ProcessKill, 1);
    let env = sim.env();
    for round in 0..3 {
        let mut ignore = |_, _, _: &[u8]| Ok(());
        let store = Store::open(&env, Path::new(DIR), terms(), &Engines::default(), &mut ignore).unwrap();
        assert!(store.lane(Lane::LOG).is_none());
        for i in 1..=20 {
            let seq = round * 20 + i;
            store.log().put(OTHER, &[&[1; 20_000]], (seq, seq), Durability::Durable).unwrap();
            store.tend().unwrap();
        }
        store.manifest().commits().roll().unwrap();
        store.close().unwrap();
    }
    let machine = Machine::open(env).unwrap();
    assert_eq!(machine.index.len(), records.len());
    check(&machine, &records);
    assert_eq!(machine.manifest.state().groups.len(), 2);
}

/// Another thread retains or frees groups between the plan of a move and its edit.
#[test]
fn one_thread_moves_groups_at_a_time() {
    let sim = SimEnv::new(8);
    let (mut machine, records) = filled(&sim, 2);
    let ltns = machine.retained();
    let mut second = Ok(());
    let first = machine.log.stored().free(&ltns[..1], |_| {
        second = machine.log.stored().free(&ltns[1..], |_| panic!("two moves at once"));
        Err(base::Error::new(ErrorKind::Io, "not committed"))
    });
    assert_eq!(first.unwrap_err().kind(), ErrorKind::Io);
    let e = second.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    assert_eq!(e.message(), "another call retains or frees log groups now: repeat this call afterwards");
    check(&machine, &records);
    machine.free(ltns[1]).unwrap();
    assert_eq!(machine.retained(), ltns[..1]);
}

/// A missing or short group that recovery would replay makes the open fail.
#[test]
fn a_missing_or_truncated_group_to_replay_refuses_the_open() {
    let sim = SimEnv::new(9);
    let mut machine = Machine::open(sim.env()).unwrap();
    machine.append(b"record", Durability::Durable).unwrap();
    let state = machine.manifest.state();
    let group = state.store.log_groups.chain(Lane::LOG).next_back().expect("the log has begun");
    let path = Path::new(DIR).join(store::names::log(group.file));
    drop(machine);
    let whole = sim.read_file(&path).unwrap();
    for (len, told) in [
        (
            None,
            format!(
                "the manifest lists this file of group {} of the log, but it is missing, or the manifest \
                 has lost its end",
                group.ltn
            ),
        ),
        (
            Some(whole.len() - PAGE),
            format!(
                "the file of group {} of the log has {} bytes instead of {}",
                group.ltn,
                whole.len() - PAGE,
                whole.len()
            ),
        ),
    ] {
        let sim = sim.crash(CrashKind::ProcessKill, 1);
        match len {
            None => sim.env().fs.remove(&path).unwrap(),
            Some(len) => sim.write_file(&path, &whole[..len]).unwrap(),
        }
        let e = Machine::open(sim.env()).map(drop).unwrap_err();
        assert!(e.is_corruption() && e.file() == Some(&path), "{e}");
        assert_eq!(e.message(), told);
    }
}

/// A reader follows a writer in the same group. Its read-ahead ends in pages that were not yet
/// written.
#[test]
fn pages_written_after_a_read_ahead_are_read_again() {
    let mut rng = Rng::new(9);
    for distance in [1, 3, 8, 12, 20, 30] {
        let mut machine = Machine::open(SimEnv::new(distance).env()).unwrap();
        let (mut ahead, mut records) = (ReadAhead::new(GROUP_BYTES), Vec::new());
        for _ in 0..200 {
            records.push(bytes(&mut rng, 1500));
            machine.append(records.last().unwrap(), Durability::Durable).unwrap();
            let Some(seq) = (records.len() as u64).checked_sub(distance).filter(|seq| *seq > 0) else {
                continue;
            };
            let (place, len) = machine.index[&seq];
            let mut out = Vec::new();
            machine.log.reader().read_ahead(place, len as usize, &mut ahead, &mut out).unwrap();
            assert!(out == records[seq as usize - 1], "record {seq}");
        }
    }
}
