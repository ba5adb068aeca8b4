//! Logs that begin inside a group, since flushes have superseded the earlier pages.

use super::*;
use crate::durability::Durability;
use crate::staging::STAGING_NAME;
use crate::store_model::{Manifest, dir, floors_of_all};

fn append(caller: &mut Caller, len: usize) {
    caller.append(len, Durability::Buffered).unwrap();
}

fn manifest(caller: &Caller) -> Manifest {
    caller.manifests.last().unwrap().1.clone()
}

fn recovered(sim: &SimEnv, manifest: &Manifest) -> Result<(RecoveryReport, Vec<u64>)> {
    let (report, replayed) = recover_all(sim, manifest, RecoveryMode::ReadOnly)?;
    Ok((report, replayed.iter().map(|(seq, _)| *seq).collect()))
}

/// Drops everything that is not durable.
fn after_loss_of_power(caller: &Caller) -> SimEnv {
    let kind = CrashKind::PowerLossWith(io::sim::Policy::Dropped);
    let sim = caller.sim.record().crash_at(caller.sim.op_count(), kind, 1);
    sim.env().fs.remove(&dir().join(STAGING_NAME)).unwrap();
    sim
}

/// Returns a log whose first two thirds were superseded by a flush, and the floor.
fn overtaken(durable: bool) -> (Caller, u64) {
    let mut caller = Caller::that_keeps_pages(7, 1);
    (0..20).for_each(|_| append(&mut caller, 1900));
    let floor = caller.written[13].seq;
    caller.flush_below(floor);
    assert!(manifest(&caller).begin.is_some());
    if durable {
        caller.put(100).unwrap();
    }
    (caller, floor)
}

/// Random operations with crashes at every one of them, as for all other logs.
#[test]
fn every_crash_of_a_deferred_log_leaves_an_acknowledged_prefix() {
    let scale = std::env::var("LAVASTORE_WAL_CAMPAIGN").ok().and_then(|s| s.parse().ok()).unwrap_or(32);
    let (mut states, mut again) = (0, 0);
    for seed in 0..scale {
        for kind in [CrashKind::ProcessKill, CrashKind::PowerLoss] {
            let mut rng = Rng::new(seed ^ 0xcb);
            let caller = Caller::that_keeps_pages(seed, STARTS[rng.below(2) as usize]);
            states += crashes_of(caller, (seed, rng), kind, &mut again);
        }
    }
    println!("{states} crash states, {again} with a second life");
    assert!(states > 500);
}

#[test]
fn pages_superseded_by_flush_are_neither_written_nor_missed() {
    let (mut caller, floor) = overtaken(false);
    let stats = caller.wal.stats();
    assert_eq!((stats.written_bytes, stats.writes + stats.durable_writes), (0, 0));
    assert!(stats.skipped_bytes >= 5 * PAGE as u64, "{stats:?}");
    let (report, seqs) = recovered(&caller.sim, &manifest(&caller)).unwrap();
    assert!(
        seqs.first().is_some_and(|first| *first <= floor),
        "from the page with the oldest that is needed on"
    );
    assert_eq!(seqs.last(), caller.written.last().map(|w| &w.seq));
    assert!(report.staged_pages > 0 && report.discarded_pages == 0);
    // A power loss takes only pages that were not durable.
    let lost = after_loss_of_power(&caller);
    let (report, seqs) = recovered(&lost, &manifest(&caller)).unwrap();
    assert_eq!((seqs.len(), report.unverified_tail_bytes), (0, 0));
    assert_eq!(report.discarded.len(), manifest(&caller).groups.len(), "nothing is left of it");
    assert!(report.next_lpn >= manifest(&caller).begin.unwrap().1.lpn, "numbers are not given twice");

    caller.put(100).unwrap();
    let all = caller.written.iter().filter(|w| w.seq >= floor).count();
    let lost = after_loss_of_power(&caller);
    let (_, seqs) = recovered(&lost, &manifest(&caller)).unwrap();
    assert_eq!(
        seqs.iter().filter(|seq| **seq >= floor).count(),
        all,
        "a durable write takes along what waits"
    );
}

/// The manifest loses the edit with the beginning of the log. A later page in a freed slot reveals
/// this.
#[test]
fn a_manifest_without_the_log_beginning_is_detected() {
    let (mut caller, _) = overtaken(false);
    let forgets = |caller: &Caller| Manifest { begin: None, ..manifest(caller) };
    // No page has replaced the skipped ones, so all of them are there.
    let (_, seqs) = recovered(&caller.sim, &forgets(&caller)).unwrap();
    assert_eq!(seqs.len(), caller.written.len());
    for _ in 0..20 {
        append(&mut caller, 5000);
        match recovered(&caller.sim, &forgets(&caller)) {
            Ok((_, seqs)) => assert_eq!(seqs.len(), caller.written.len()),
            Err(e) => {
                assert!(e.is_corruption(), "{e}");
                // With the right manifest the log is whole.
                let (_, seqs) = recovered(&caller.sim, &manifest(&caller)).unwrap();
                assert_eq!(seqs.last(), caller.written.last().map(|w| &w.seq));
                return;
            }
        }
    }
    panic!("nobody missed the edit");
}

#[test]
fn a_lost_durable_page_after_the_beginning_is_detected() {
    let (caller, _) = overtaken(true);
    let (_, begin) = manifest(&caller).begin.unwrap();
    let ltn = caller.wal.content().groups().first().unwrap().ltn;
    let path = crate::store_model::path_of(ltn);
    let at = begin.offset(Lane::FIRST);
    // A later page confirms the damaged one.
    caller.wal.persist_watermark().unwrap();
    caller.sim.overwrite(&path, at, &[0; PAGE]).unwrap();
    let e = recovered(&caller.sim, &manifest(&caller)).unwrap_err();
    assert_eq!((e.is_corruption(), e.offset()), (true, Some(at)));
}

/// A batch of many pages begins before the beginning of the log: none of it is replayed.
#[test]
fn the_rest_of_a_batch_begun_before_the_log_is_skipped() {
    for len in [4100, 9000, 30_000] {
        let mut caller = Caller::that_keeps_pages(3, 1);
        append(&mut caller, 100);
        append(&mut caller, len);
        (0..3).for_each(|_| append(&mut caller, 100));
        let floor = caller.written[2].seq;
        caller.flush_below(floor);
        let (_, begin) = manifest(&caller).begin.unwrap();
        assert!(begin.lpn > begin.first_lpn);
        let (_, seqs) = recovered(&caller.sim, &manifest(&caller)).unwrap();
        let wanted: Vec<u64> = caller.written[2..].iter().map(|w| w.seq).collect();
        assert_eq!(seqs, wanted, "{len}");
    }
}

/// A log with pages only in the staging file is closed, checked and recovered like any other.
#[test]
fn a_superseded_log_is_closed_and_reopened() {
    let (mut caller, floor) = overtaken(false);
    caller.close().unwrap();
    let expected = caller.expectation(caller.sim.op_count(), CrashKind::PowerLoss);
    let sim = caller.sim.crash(CrashKind::PowerLossWith(io::sim::Policy::Dropped), 1);
    let (report, kept) = recover_and_check(&sim, &expected);
    assert_eq!((kept, report.staged_pages, report.unverified_tail_bytes), (caller.written.len(), 0, 0));
    let prior = report.history.groups.first().unwrap();
    assert!(prior.begins > 0 && prior.begins < prior.filled);
    let mut next = expected.resume(sim, &report, kept, 5);
    assert!(next.wal.deferred().overtaken(&floors_of_all(floor)).is_none(), "recovered batches are needed");
    append(&mut next, 3000);
    let all = next.next_seq;
    next.flush_below(all);
    let groups = manifest(&next).groups;
    assert_eq!(groups.len(), 1, "what was recovered is gone with the rest");
    let (_, seqs) = recovered(&next.sim, &manifest(&next)).unwrap();
    assert!(seqs.iter().all(|seq| *seq < all), "{seqs:?}");
    assert!(next.sim.read_file(dir().join(STAGING_NAME)).is_ok());
}

/// The file of the group in which the log begins is missing or truncated. Pages that were not
/// written to it are in the staging file.
#[test]
fn staged_pages_are_read_although_the_group_file_is_truncated() {
    let (caller, floor) = overtaken(false);
    let (_, begin) = manifest(&caller).begin.unwrap();
    assert!(begin.offset(Lane::FIRST) > PAGE as u64);
    let env = caller.sim.env();
    let mut groups = crate::store_model::groups(&caller.sim, &manifest(&caller));
    groups[0].file = env.fs.create_in_place(&dir().join("cut"), PAGE as u64, io::Access::Direct).unwrap();
    let mut seqs = Vec::new();
    let mut take = |_: TenantId, seq: u64, _: &[u8]| {
        seqs.push(seq);
        Ok(())
    };
    let of = crate::store_model::store();
    recover_up_to_damage(&env, dir(), of, &groups, &mut take).unwrap();
    let wanted = caller.written.iter().filter(|w| w.seq >= floor).count();
    assert_eq!(seqs.iter().filter(|seq| **seq >= floor).count(), wanted, "{seqs:?}");
}

/// Pages are read again from the staging file when they are written to their group, where they get
/// a checksum that would fit any contents.
#[test]
fn a_page_that_changes_between_reads_is_not_accepted() {
    let (caller, _) = overtaken(false);
    let (env, path) = (caller.sim.env(), dir().join(STAGING_NAME));
    let groups = crate::store_model::groups(&caller.sim, &manifest(&caller));
    let staging = Staging::index(&env, &path, crate::store_model::store()).unwrap();
    let mut take = |_: &LoggedBatch<'_>| Ok(());
    let mut scan = Scan::new(&env, crate::store_model::store(), &staging, &mut take);
    groups.iter().enumerate().for_each(|(index, group)| scan.group(index, group).unwrap());
    assert!(!scan.staged.is_empty());
    scan.make_durable(&groups).unwrap();
    caller.sim.overwrite(&path, 0, &[0; 24 * PAGE]).unwrap();
    let e = scan.make_durable(&groups).unwrap_err();
    assert_eq!((e.kind(), e.file()), (ErrorKind::Io, Some(Path::new(STAGING_NAME))));
}
