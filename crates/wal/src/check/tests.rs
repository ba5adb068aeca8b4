use super::*;
use crate::durability::Durability;
use crate::recover::RecoveryMode;
use crate::store_model::{Caller, Replayed, dir, forge, path_of, recover_all, store, uid_of};
use io::sim::CrashKind;
use io::{Access, Rng};

/// Checks an open log. Returns the findings, and the batches encountered.
fn check(caller: &Caller) -> (LogFindings, Replayed) {
    let env = caller.sim.env();
    let open = |ltn| env.fs.open_in_place(&path_of(ltn), Access::Direct).unwrap();
    let groups = caller.wal.content().groups().into_iter();
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
fn a_check_during_writes_covers_every_surviving_batch() {
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

/// Checks a log while its owner continues between any two reads. Returns the findings, the batches,
/// and the number of concurrent operations.
fn check_beside(caller: &mut Caller, rng: &mut Rng, staged_steps: u64) -> (LogFindings, Replayed, u64) {
    let env = caller.sim.env();
    let to_check = |g: crate::history::PriorGroup| GroupToCheck {
        ltn: g.ltn,
        uid: Some(uid_of(g.ltn)),
        file: env.fs.open_in_place(&path_of(g.ltn), Access::Direct).unwrap(),
        begins: g.begins,
        filled: g.filled,
    };
    let groups = caller.wal.content().groups().into_iter().map(to_check).collect();
    let (mut found, mut all) = (LogFindings::default(), Replayed::new());
    let mut check = LogCheck::new(store(), groups);
    let mut on_batch = |batch: &LoggedBatch<'_>| all.push((batch.first_seq, batch.bytes.to_vec()));
    let mut steps = 0;
    let mut go_on = |caller: &mut Caller, count: u64| {
        (0..count).for_each(|_| caller.step().unwrap());
        steps += count;
    };
    while check.step(&mut found, &mut on_batch) {
        go_on(caller, rng.below(3));
    }
    go_on(caller, rng.below(staged_steps));
    check.staged(&caller.wal, (&env, dir()), &mut found, &mut on_batch);
    // Errors in groups that were released meanwhile do not count.
    let living: Vec<u64> = caller.wal.content().groups().iter().map(|g| g.ltn).collect();
    found.errors.retain(|(ltn, _)| living.contains(ltn));
    (found, all, steps)
}

/// Pages move from the staging file to the group files between the reads of both, groups fill up,
/// and the log begins further on.
#[test]
fn a_check_beside_writers_has_no_false_alarm_and_no_gap() {
    let (mut steps, mut staged_pages, mut missed) = (0, 0, 0);
    for seed in 0..120 {
        let mut caller = match seed % 3 {
            0 => Caller::that_keeps_pages(seed, 1),
            _ => Caller::new(seed, 1),
        };
        let mut rng = Rng::new(seed);
        for round in 0..12 {
            (0..rng.below(12)).for_each(|_| caller.step().unwrap());
            let before = caller.written.clone();
            let (found, all, n) = check_beside(&mut caller, &mut rng, [2, 8, 30][round % 3]);
            assert!(found.errors.is_empty(), "seed {seed}, round {round}: {:?}", found.errors);
            assert_eq!(found.batches, all.len() as u64);
            (steps, staged_pages) = (steps + n, staged_pages + found.staged_pages);
            let floor = caller.floors.last().unwrap().1;
            let survives = before.iter().filter(|w| w.buffered_op.is_some() && w.seq >= floor);
            for written in survives {
                let is_met = all.iter().any(|(seq, bytes)| *seq == written.seq && *bytes == written.payload);
                missed += u64::from(!is_met);
            }
            assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "each batch once, in order");
        }
    }
    assert_eq!(missed, 0, "batches that were there before the check");
    assert!(steps > 5000 && staged_pages > 50, "{steps}, {staged_pages}");
}

/// Damage is found beside writers, too.
#[test]
fn a_check_beside_writers_finds_damage() {
    let (mut damaged, mut told) = (0, 0);
    for seed in 0..60 {
        let mut caller = Caller::new(seed, 1);
        (0..60).for_each(|_| caller.step().unwrap());
        let groups: Vec<_> = caller.wal.content().groups().into_iter().filter(|g| g.filled > 0).collect();
        let mut rng = Rng::new(seed);
        let Some(group) = groups.get(rng.below(groups.len().max(1) as u64) as usize) else { continue };
        let page = rng.below(group.filled / PAGE as u64);
        caller.sim.flip_bit(path_of(group.ltn), page * PAGE as u64 + 100, 3).unwrap();
        let (found, ..) = check_beside(&mut caller, &mut rng, 12);
        if !caller.wal.content().groups().iter().any(|g| g.ltn == group.ltn) {
            continue;
        }
        damaged += 1;
        told += u64::from(
            found.errors.iter().any(|(ltn, e)| *ltn == group.ltn && e.offset() == Some(page * PAGE as u64)),
        );
    }
    assert_eq!(damaged, told);
    assert!(damaged >= 20, "{damaged}");
}

#[test]
fn exactly_the_damaged_pages_are_named() {
    let mut damaged = 0;
    for seed in 0..30 {
        let mut caller = Caller::new(seed, 1);
        (0..60).for_each(|_| caller.step().unwrap());
        let (sound, _) = check(&caller);
        let groups: Vec<_> = caller.wal.content().groups().into_iter().filter(|g| g.filled > 0).collect();
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
fn a_damaged_staged_page_is_named() {
    let mut caller = Caller::new(1, 1);
    for _ in 0..6 {
        caller.append(900, Durability::Buffered).unwrap();
    }
    assert!(check(&caller).0.errors.is_empty());
    let staging = dir().join(crate::staging::STAGING_NAME);
    let (lpn, used) = (caller.wal.content().ends().staged[0].lpn, caller.wal.content().ends().staged[0].used);
    caller.sim.flip_bit(&staging, lpn % 5 * PAGE as u64 + used as u64 - 1, 0).unwrap();
    let (found, _) = check(&caller);
    assert_eq!(found.errors.len(), 1);
    assert_eq!(found.errors[0].1.file(), Some(&*staging));
}

#[test]
fn a_check_after_recovery_covers_earlier_groups() {
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
fn a_truncated_or_spliced_group_is_named() {
    let mut caller = Caller::new(2, 1);
    (0..60).for_each(|_| caller.step().unwrap());
    let env = caller.sim.env();
    let group = caller
        .wal
        .content()
        .groups()
        .into_iter()
        .find(|g| g.filled > PAGE as u64)
        .expect("some pages were written");
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
    // The second page names another used length of the first.
    forge(&caller.sim, group.ltn, 1, |page| page[12] ^= 1);
    let e = told(group.filled).unwrap();
    assert_eq!(
        e.message(),
        "the page of the log at this offset does not continue the page before it: pages were lost or exchanged"
    );
    assert_eq!((e.file(), e.offset()), (Some(&*path), Some(PAGE as u64)));
}
