use super::*;
use crate::Durability;
use crate::recover::RecoveryMode;
use crate::store_model::{Caller, Replayed, dir, forge, path_of, recover_all, store, uid_of};
use io::sim::CrashKind;
use io::{Access, Rng};

/// Checks a log that is open: what it found, and the batches that it met.
fn check(caller: &Caller) -> (LogFindings, Replayed) {
    let env = caller.sim.env();
    let open = |ltn| env.fs.open_in_place(&path_of(ltn), Access::Direct).unwrap();
    let groups = caller.wal.groups().into_iter();
    let groups = groups.map(|g| GroupToCheck {
        ltn: g.ltn,
        uid: Some(uid_of(g.ltn)),
        file: open(g.ltn),
        begins: g.begins,
        filled: g.filled,
    });
    let (mut found, mut all) = (LogFindings::default(), Replayed::new());
    let mut check = LogCheck::new(store(), groups.collect());
    let mut on_batch = |batch: &LoggedBatch<'_>| all.push((batch.first_seq, batch.bytes.to_vec()));
    while check.step(&mut found, &mut on_batch) {}
    check.staged(&caller.wal, (&env, dir()), &mut found, &mut on_batch);
    (found, all)
}

#[test]
fn a_log_at_work_is_found_sound_with_every_batch_that_survives_the_process() {
    let mut staged_pages = 0;
    for seed in 0..40 {
        let mut caller = Caller::new(seed, 1);
        for step in 0..120 {
            caller.step().unwrap();
            if step % 7 != 0 {
                continue;
            }
            let (found, all) = check(&caller);
            assert!(found.errors.is_empty(), "seed {seed}, step {step}: {:?}", found.errors);
            assert_eq!(found.batches, all.len() as u64);
            staged_pages += found.staged_pages;
            let floor = caller.floors.last().unwrap().1;
            let survives = caller.written.iter().filter(|w| w.buffered_op.is_some() && w.seq >= floor);
            for written in survives {
                assert!(all.iter().any(|(seq, bytes)| *seq == written.seq && *bytes == written.payload));
            }
        }
    }
    assert!(staged_pages > 100, "{staged_pages}");
}

#[test]
fn each_page_that_is_damaged_is_named_and_no_other() {
    let mut damaged = 0;
    for seed in 0..30 {
        let mut caller = Caller::new(seed, 1);
        (0..60).for_each(|_| caller.step().unwrap());
        let (sound, _) = check(&caller);
        let groups: Vec<_> = caller.wal.groups().into_iter().filter(|g| g.filled > 0).collect();
        let mut rng = Rng::new(seed);
        let Some(group) = groups.get(rng.below(groups.len().max(1) as u64) as usize) else { continue };
        let page = rng.below(group.filled / PAGE as u64);
        let at = page * PAGE as u64 + rng.below(PAGE as u64);
        caller.sim.flip_bit(path_of(group.ltn), at, 3).unwrap();
        let (found, _) = check(&caller);
        let [(ltn, error)] = &found.errors[..] else { panic!("seed {seed}: {:?}", found.errors) };
        assert_eq!((*ltn, error.offset()), (group.ltn, Some(page * PAGE as u64)));
        assert_eq!(error.file(), Some(&*path_of(group.ltn)));
        assert_eq!(found.pages, sound.pages, "the others are looked at all the same");
        damaged += 1;
    }
    assert!(damaged >= 20, "{damaged} of 30 logs had pages in their files");
}

#[test]
fn what_is_staged_and_damaged_is_named() {
    let mut caller = Caller::new(1, 1);
    for _ in 0..6 {
        caller.append(900, Durability::Buffered).unwrap();
    }
    assert!(check(&caller).0.errors.is_empty());
    let staging = dir().join(crate::STAGING_NAME);
    let (lpn, used) = (caller.wal.staged()[0].lpn, caller.wal.staged()[0].used);
    caller.sim.flip_bit(&staging, lpn % 5 * PAGE as u64 + used as u64 - 1, 0).unwrap();
    let (found, _) = check(&caller);
    assert_eq!(found.errors.len(), 1);
    assert_eq!(found.errors[0].1.file(), Some(&*staging));
}

#[test]
fn after_a_recovery_the_groups_of_before_are_checked_too() {
    for seed in 0..20 {
        let mut caller = Caller::new(seed, 1);
        (0..40).for_each(|_| caller.step().unwrap());
        let expected = caller.expectation(caller.sim.op_count(), CrashKind::ProcessKill);
        let sim = caller.sim.crash(CrashKind::ProcessKill, seed);
        let (report, replayed) = recover_all(&sim, &expected.manifest, RecoveryMode::ReadWrite).unwrap();
        let kept = expected.check(&replayed);
        let old: u64 = report.history.groups.iter().map(|g| g.filled / PAGE as u64).sum();
        let caller = expected.resume(sim, &report, kept, seed);
        let (found, all) = check(&caller);
        assert!(found.errors.is_empty(), "seed {seed}: {:?}", found.errors);
        assert_eq!((found.pages, all), (old, replayed), "seed {seed}");
    }
}

#[test]
fn a_group_that_is_cut_off_or_put_together_of_two_is_named() {
    let mut caller = Caller::new(2, 1);
    (0..60).for_each(|_| caller.step().unwrap());
    let env = caller.sim.env();
    let group =
        caller.wal.groups().into_iter().find(|g| g.filled > PAGE as u64).expect("some pages were written");
    let path = path_of(group.ltn);
    let file = || env.fs.open_in_place(&path, Access::Direct).unwrap();
    let told = |filled: u64| {
        let (ltn, uid) = (group.ltn, Some(uid_of(group.ltn)));
        let group = GroupToCheck { ltn, uid, file: file(), begins: 0, filled };
        let (mut found, mut check) = (LogFindings::default(), LogCheck::new(store(), vec![group]));
        while check.step(&mut found, &mut |_: &LoggedBatch<'_>| {}) {}
        found.errors.first().map(|(_, e)| e.clone())
    };
    assert!(told(group.filled).is_none());
    let e = told(file().len() + 1).unwrap();
    assert!(e.is_corruption() && e.message().contains("ends before byte"), "{e}");
    assert_eq!(e.file(), Some(&*path));
    // The second page says that another number of bytes was used of the first.
    forge(&caller.sim, group.ltn, 1, |page| page[12] ^= 1);
    let e = told(group.filled).unwrap();
    assert_eq!(e.message(), "a page of the log does not continue the one before it");
    assert_eq!((e.file(), e.offset()), (Some(&*path), Some(PAGE as u64)));
}
