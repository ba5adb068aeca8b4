//! Handmade states that are too rare for the random campaign.

use super::*;
use crate::durability::Durability;
use crate::staging::STAGING_NAME;
use crate::store_model::{Manifest, Replayed, dir, owner, path_of, store};

fn append(caller: &mut Caller, len: usize) {
    caller.append(len, Durability::Buffered).unwrap();
}

fn last_manifest(caller: &Caller) -> Manifest {
    caller.manifests.last().unwrap().1.clone()
}

fn read_only(caller: &Caller, manifest: &Manifest) -> Result<(RecoveryReport, Replayed)> {
    recover_all(&caller.sim, manifest, RecoveryMode::ReadOnly)
}

fn forget_staging(caller: &Caller) {
    caller.sim.env().fs.remove(&dir().join(STAGING_NAME)).unwrap();
}

/// The pages are written in order from the first.
fn written_end(caller: &Caller) -> u64 {
    1 + caller.wal.stats().written_bytes / PAGE as u64
}

/// The kernel may write staging back early and lose the later write of a page. The old image of the
/// page is a prefix of its contents, and the next page must not be taken for the continuation of
/// the prefix.
fn stale_page(roll: bool) {
    let mut caller = Caller::new(1, 1);
    (0..4).for_each(|_| append(&mut caller, 100));
    let stale = caller.sim.read_file(dir().join(STAGING_NAME)).unwrap();
    (0..4).for_each(|_| append(&mut caller, 100));
    if roll {
        append(&mut caller, 43_000);
    } else {
        append(&mut caller, 9000);
        assert!(caller.wal.deferred().write_out().unwrap());
    }
    assert_eq!((caller.wal.stats().durable_end, caller.wal.stats().rolls), (0, u64::from(roll)));
    caller.sim.overwrite(path_of(1), 0, &[0; PAGE]).unwrap();
    caller.sim.write_file(dir().join(STAGING_NAME), &stale).unwrap();
    let manifest = last_manifest(&caller);
    let (report, replayed) = read_only(&caller, &manifest).unwrap();
    assert_eq!((replayed.len(), report.staged_pages, report.sealed), (4, 1, Some((1, 2))));
    assert!(report.discarded_pages > 0);
    // The end of the batch that rolled was only in staging.
    let seen = if roll { written_end(&caller) } else { caller.wal.stats().next_lpn };
    assert_eq!(report.next_lpn, seen, "above all that was seen");
}

#[test]
fn an_old_image_of_a_page_ends_the_log() {
    stale_page(false);
}

#[test]
fn an_old_image_of_the_last_page_of_a_group_ends_the_log() {
    stale_page(true);
}

#[test]
fn a_missing_sealed_page_is_detected() {
    let mut caller = Caller::new(1, 1);
    caller.put(100).unwrap();
    caller.put(100).unwrap();
    let mut manifest = last_manifest(&caller);
    forget_staging(&caller);
    let good = caller.sim.read_file(path_of(1)).unwrap();
    let (report, _) = read_only(&caller, &manifest).unwrap();
    assert_eq!(report.sealed, Some((1, 3)));
    for sealed in [None, Some(3)] {
        manifest.groups.insert(1, sealed);
        caller.sim.overwrite(path_of(1), PAGE as u64, &[0; PAGE]).unwrap();
        let outcome = read_only(&caller, &manifest).map(|(report, _)| report.batches);
        match sealed {
            None => assert_eq!(outcome.unwrap(), 1, "a torn tail"),
            Some(_) => assert_eq!(outcome.unwrap_err().offset(), Some(PAGE as u64)),
        }
        caller.sim.overwrite(path_of(1), 0, &good).unwrap();
    }
    let (report, replayed) = read_only(&caller, &manifest).unwrap();
    assert_eq!((replayed.len(), report.sealed), (2, None), "sealed there already");
}

/// Pages behind a hole do not count, not even in a group that names a group before the hole.
#[test]
fn no_page_is_accepted_after_a_hole() {
    let mut caller = Caller::new(1, 1);
    for _ in 0..3 {
        caller.put(100).unwrap();
    }
    caller.add_group(12).unwrap();
    forget_staging(&caller);
    let first = caller.sim.read_file(path_of(1)).unwrap();
    let Verdict::Valid(header) = page::read_closed(&first[..PAGE], owner(1), 1) else { panic!("intact") };
    caller.sim.overwrite(path_of(1), PAGE as u64, &[0; PAGE]).unwrap();
    let last = PageHeader { lpn: 3, prev_used: header.used, durable_end: 1, ..header };
    let next = PageHeader {
        owner: owner(2),
        ltn: 2,
        lpn: 2,
        first_lpn: 2,
        prev_ltn: 1,
        prev_end: 2,
        prev_used: header.used,
        durable_end: 1,
        ..header
    };
    for (ltn, offset, header) in [(1, 2 * PAGE as u64, last), (2, 0, next)] {
        let mut page = [0; PAGE];
        header.encode_open(&mut page);
        page::close(&mut page, page::HEADER_LEN as u16, 1, header.owner, header.lpn);
        caller.sim.overwrite(path_of(ltn), offset, &page).unwrap();
    }
    let manifest = last_manifest(&caller);
    let (report, _) = read_only(&caller, &manifest).unwrap();
    assert_eq!((report.sealed, report.discarded, report.discarded_pages), (Some((1, 2)), vec![2], 2));
    caller.sim.overwrite(path_of(1), 2 * PAGE as u64, &[0; PAGE]).unwrap();
    let (report, _) = read_only(&caller, &manifest).unwrap();
    // The group is still dropped, since it has no batch.
    assert_eq!(
        (report.sealed, report.discarded, report.discarded_pages),
        (Some((1, 2)), vec![2], 0),
        "without the page behind it, it does"
    );
}

#[test]
fn a_log_without_a_page_recovers_empty() {
    let caller = Caller::new(1, 1);
    let manifest = last_manifest(&caller);
    let (report, replayed) = read_only(&caller, &manifest).unwrap();
    assert!(replayed.is_empty());
    assert_eq!((report.sealed, report.discarded, report.next_lpn), (None, vec![1], 0));
    let (report, _) = read_only(&caller, &Manifest::default()).unwrap();
    assert_eq!(report, RecoveryReport::default());
}

/// The first page is lost and the second is not; both were in flight when the power failed, or the
/// first was durable.
#[test]
fn a_lost_log_beginning_is_refused_if_it_was_durable() {
    for (durable_end, torn) in [(0, true), (7, true), (8, false)] {
        let caller = Caller::new(1, 7);
        let header = PageHeader {
            form: page::Form::Open,
            used: 0,
            prev_used: 100,
            owner: owner(7),
            ltn: 7,
            lpn: 8,
            first_lpn: 7,
            durable_end,
            prev_ltn: 5,
            prev_end: 6,
            witness_edit: 0,
            stream: None,
        };
        let mut page = [0; PAGE];
        header.encode_open(&mut page);
        page::close(&mut page, page::HEADER_LEN as u16, durable_end, header.owner, 8);
        caller.sim.overwrite(path_of(7), PAGE as u64, &page).unwrap();
        let outcome = read_only(&caller, &last_manifest(&caller));
        match torn {
            true => assert_eq!(outcome.unwrap().0.discarded, vec![7]),
            false => assert_eq!(outcome.unwrap_err().offset(), Some(0)),
        }
    }
}

#[test]
fn replay_errors_are_returned() {
    let mut caller = Caller::new(1, 1);
    caller.put(100).unwrap();
    let groups = crate::store_model::groups(&caller.sim, &last_manifest(&caller));
    let env = caller.sim.env();
    let refuse = &mut |_, _, _: &[u8]| Err(Error::invalid("not this one"));
    let outcome = recover(&env, dir(), store(), &groups, RecoveryMode::ReadWrite, refuse);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let twice = [groups[0].clone(), groups[0].clone()];
    let outcome = recover(&env, dir(), store(), &twice, RecoveryMode::ReadOnly, &mut |_, _, _| Ok(()));
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// A group after half a batch, which a recovery cut off there; the manifest has lost the seal.
#[test]
fn half_a_batch_before_a_group_is_not_the_log_end() {
    let mut caller = Caller::new(1, 1);
    caller.put(100).unwrap();
    let begun = caller.sim.op_count();
    caller.put(25_000).unwrap();
    let mut told = 0;
    for op in begun..caller.sim.op_count() {
        let expected = caller.expectation(op, CrashKind::ProcessKill);
        let sim = caller.sim.record().crash_at(op, CrashKind::ProcessKill, op);
        let (report, replayed) = rw(&sim, &expected);
        let kept = expected.check(&replayed);
        let mut next = expected.resume(sim, &report, kept, op);
        next.put(100).unwrap();
        let mut manifest = last_manifest(&next);
        assert!(read_only(&next, &manifest).is_ok());
        manifest.groups.values_mut().for_each(|sealed_end| *sealed_end = None);
        if let Err(e) = read_only(&next, &manifest) {
            let whole = "the log group before the one in this file ends in the middle of a batch";
            assert_eq!((e.message(), e.offset()), (whole, Some(0)));
            told += 1;
        }
    }
    assert!(told > 0);
}
