use super::*;
use crate::durability::Durability;
use crate::recover::RecoveryMode;
use crate::store_model::{Caller, Manifest, Replayed, dir, forge, path_of, recover_all, store, uid_of};
use base::ErrorKind;
use io::sim::{CrashKind, SimEnv};
use io::{Access, Rng};

/// Returns the files of a log, from a manifest or from the directory.
fn files(sim: &SimEnv, manifest: Option<&Manifest>) -> Vec<LogFile> {
    let env = sim.env();
    let open = |path: &Path| env.fs.open(path, Access::Buffered).ok();
    let listed = |(&ltn, &sealed_end): (&u64, &Option<u64>)| {
        let path = path_of(ltn);
        let file = open(&path);
        let len = file.as_ref().map_or(0, |f| f.len().unwrap());
        LogFile {
            file,
            path,
            listed: Some(ListedGroup {
                begin: manifest.and_then(|of| of.begin).filter(|(of, _)| *of == ltn).map(|(_, begin)| begin),
                ltn,
                uid: Some(uid_of(ltn)),
                sealed_end,
                len,
                store: None,
                retained_bytes: None,
            }),
        }
    };
    let unlisted = |entry: io::DirEntry| {
        let path = dir().join(entry.name);
        path.extension().is_some_and(|e| e == "log").then(|| LogFile {
            file: open(&path),
            path,
            listed: None,
        })
    };
    match manifest {
        Some(manifest) => manifest.groups.iter().map(listed).collect(),
        None => env.fs.list(dir()).unwrap().into_iter().filter_map(unlisted).collect(),
    }
}

fn read(sim: &SimEnv, manifest: Option<&Manifest>) -> (Replayed, Vec<LogGap>) {
    let known = manifest.map(|_| store());
    let hash = sim.state_hash();
    let log = salvage(&sim.env(), dir(), Lane::FIRST, known, files(sim, manifest)).unwrap();
    let mut all = Replayed::new();
    let gaps = log.replay(TenantId::FIRST, &mut |_, seq, bytes| {
        all.push((seq, bytes.to_vec()));
        Ok(())
    });
    assert_eq!(sim.state_hash(), hash, "nothing is written");
    (all, gaps.unwrap())
}

fn life(caller: &mut Caller, n: usize) {
    for i in 0..n {
        let len = [100, 3000, 900, 9000, 50][i % 5];
        caller.append(len, Durability::Durable).unwrap();
        if i % 3 == 0 {
            caller.sync(caller.wal.content().last_position().unwrap()).unwrap();
        }
    }
}

/// A store closed after two lives with a crash between them.
fn closed(seed: u64) -> (SimEnv, Manifest, Replayed) {
    let mut caller = Caller::new(seed, 1);
    life(&mut caller, 30);
    let expected = caller.expectation(caller.sim.op_count(), CrashKind::ProcessKill);
    let sim = caller.sim.crash(CrashKind::ProcessKill, seed);
    let (report, replayed) = recover_all(&sim, &expected.manifest, RecoveryMode::ReadWrite).unwrap();
    let kept = expected.check(&replayed);
    let mut caller = expected.resume(sim, &report, kept, seed);
    life(&mut caller, 30);
    caller.close().unwrap();
    let manifest = caller.manifests.last().unwrap().1.clone();
    let all = caller.written.iter().map(|w| (w.seq, w.payload.clone())).collect();
    (caller.sim.fork(0), manifest, all)
}

/// A store killed during its last batches: the last pages are in staging, or on their way to the
/// file.
fn killed(seed: u64) -> (SimEnv, Manifest, Replayed) {
    let mut caller = Caller::new(seed, 1);
    life(&mut caller, 30);
    for _ in 0..3 {
        caller.append(200, Durability::Buffered).unwrap();
    }
    caller.append(if seed % 4 == 1 { 200 } else { 5000 }, Durability::Buffered).unwrap();
    let expected = caller.expectation(caller.sim.op_count(), CrashKind::ProcessKill);
    let sim = caller.sim.crash(CrashKind::ProcessKill, seed);
    let all = read(&sim, Some(&expected.manifest)).0;
    (sim, expected.manifest, all)
}

#[test]
fn a_sound_log_is_read_whole_with_and_without_a_manifest() {
    for seed in 0..4 {
        let (sim, manifest, all) = closed(seed);
        for manifest in [Some(&manifest), None] {
            let (found, gaps) = read(&sim, manifest);
            assert_eq!(found.len(), all.len());
            assert!(found == all && gaps.is_empty(), "{gaps:?}");
        }
    }
}

/// A copy of the store that wrote to the same blocks has the same uid and numbers.
#[test]
fn pages_with_an_unlisted_identity_are_ignored() {
    let (sim, manifest, all) = closed(9);
    let of_another = *manifest.groups.keys().last().unwrap();
    let mut files = files(&sim, Some(&manifest));
    for listed in files.iter_mut().filter_map(|log| log.listed.as_mut()) {
        listed.uid = Some(uid_of(listed.ltn + 1000 * u64::from(listed.ltn == of_another)));
    }
    let log = salvage(&sim.env(), dir(), Lane::FIRST, Some(store()), files).unwrap();
    let mut found = Replayed::new();
    let mut keep = |_: &LogFilePosition, seq: SeqNo, bytes: &[u8]| {
        found.push((seq, bytes.to_vec()));
        Ok(())
    };
    log.replay(TenantId::FIRST, &mut keep).unwrap();
    assert!(found.len() < all.len() && all.starts_with(&found), "{} of {}", found.len(), all.len());
    let kept = of_another > *manifest.groups.keys().next().unwrap();
    assert_eq!(!found.is_empty(), kept, "the other groups are read");
}

#[test]
fn a_zeroed_page_loses_only_its_batches() {
    let (sim, manifest, all) = closed(7);
    let mut zeroed = 0;
    for &ltn in manifest.groups.keys() {
        let pages = sim.read_file(path_of(ltn)).unwrap().len() / PAGE;
        for at in 0..pages {
            let damaged = sim.fork(1);
            let bytes = damaged.read_file(path_of(ltn)).unwrap();
            if bytes[at * PAGE..(at + 1) * PAGE].iter().all(|&b| b == 0) {
                continue;
            }
            damaged.overwrite(path_of(ltn), (at * PAGE) as u64, &[0; PAGE]).unwrap();
            zeroed += 1;
            for manifest in [Some(&manifest), None] {
                let (found, gaps) = read(&damaged, manifest);
                let mut lost = all.clone();
                lost.retain(|batch| !found.contains(batch));
                assert_eq!(found.len() + lost.len(), all.len());
                assert!(lost.len() <= 45, "{} batches are gone with one page", lost.len());
                for (seq, _) in lost {
                    let named = gaps
                        .iter()
                        .any(|g| g.after_seq < seq && g.before_seq.is_none_or(|before| seq < before));
                    assert!(named, "sequence {seq} is gone with page {at} of {ltn}: {gaps:?}");
                }
                let place = |gap: &LogGap| (gap.error.file().map(Path::to_owned), gap.error.offset());
                let here = (Some(path_of(ltn)), Some((at * PAGE) as u64));
                assert!(gaps.iter().all(|gap| place(gap) == here), "{gaps:?}");
            }
        }
    }
    assert!(zeroed > 40, "{zeroed}");
}

/// Where the file lost a page, staging may have an earlier, shorter state of it. The next page
/// still counts.
#[test]
fn a_page_after_a_partially_staged_one_is_salvaged() {
    let mut caller = Caller::new(9, 1);
    let staging = dir().join(Lane::FIRST.staging_name());
    caller.append(100, Durability::Buffered).unwrap();
    let earlier = caller.sim.read_file(&staging).unwrap();
    caller.append(100, Durability::Buffered).unwrap();
    caller.sync(caller.wal.content().last_position().unwrap()).unwrap();
    caller.append(100, Durability::Buffered).unwrap();
    let later = caller.sim.read_file(&staging).unwrap();
    for _ in 0..2 {
        caller.append(100, Durability::Durable).unwrap();
    }
    caller.close().unwrap();
    let (sim, manifest) = (caller.sim.fork(0), caller.manifests.last().unwrap().1.clone());
    let (all, gaps) = read(&sim, Some(&manifest));
    assert!(all.len() == 5 && gaps.is_empty(), "{gaps:?}");
    sim.overwrite(path_of(1), 0, &[0; PAGE]).unwrap();
    sim.overwrite(&staging, 0, &earlier).unwrap();
    let (found, gaps) = read(&sim, Some(&manifest));
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!((gaps[0].after_seq, gaps[0].before_seq), (all[0].0, Some(all[2].0)), "{gaps:?}");
    assert!(found == [&all[..1], &all[2..]].concat(), "{found:?}");
    // The same where the next page is only in staging.
    let mut staged = later;
    let pages = staged.chunks_mut(PAGE).zip(earlier.chunks(PAGE));
    pages.filter(|(_, page)| page.iter().any(|&b| b != 0)).for_each(|(to, from)| to.copy_from_slice(from));
    sim.overwrite(path_of(1), PAGE as u64, &[0; PAGE]).unwrap();
    sim.overwrite(&staging, 0, &staged).unwrap();
    let (found, gaps) = read(&sim, Some(&manifest));
    assert!(found.contains(&all[0]) && found.contains(&all[2]), "{gaps:?}");
}

#[test]
fn a_missing_or_truncated_file_is_reported() {
    let (sim, manifest, all) = closed(8);
    for &ltn in manifest.groups.keys() {
        for cut in [None, Some(0), Some(3 * PAGE as u64)] {
            let damaged = sim.fork(1);
            let listed = files(&damaged, Some(&manifest));
            match cut {
                None => damaged.env().fs.remove(&path_of(ltn)).unwrap(),
                Some(len) => damaged.set_file_len(path_of(ltn), len).unwrap(),
            }
            let mut now = files(&damaged, Some(&manifest));
            now.iter_mut().zip(listed).for_each(|(now, then)| now.listed = then.listed);
            let log = salvage(&damaged.env(), dir(), Lane::FIRST, Some(store()), now).unwrap();
            let mut found = Replayed::new();
            let mut keep = |_: &LogFilePosition, seq: SeqNo, bytes: &[u8]| {
                found.push((seq, bytes.to_vec()));
                Ok(())
            };
            let gaps = log.replay(TenantId::FIRST, &mut keep).unwrap();
            for (seq, _) in all.iter().filter(|batch| !found.contains(batch)) {
                let named = gaps
                    .iter()
                    .any(|g| g.after_seq < *seq && g.before_seq.is_none_or(|before| *seq < before));
                assert!(named, "sequence {seq} is gone with group {ltn} ({cut:?}): {gaps:?}");
            }
        }
    }
}

#[test]
fn salvage_after_a_crash_agrees_with_recovery() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut caller = Caller::new(seed, 1);
        for _ in 0..rng.range(5, 60) {
            caller.step().unwrap();
        }
        let record = caller.sim.record();
        for _ in 0..12 {
            let op = rng.range(caller.manifests[0].0, record.op_count() + 1);
            let kind = if rng.one_in(2) { CrashKind::ProcessKill } else { CrashKind::PowerLoss };
            let manifest = caller.expectation(op, kind).manifest;
            let sim = record.crash_at(op, kind, rng.next_u64());
            let (_, expected) = recover_all(&sim, &manifest, RecoveryMode::ReadOnly).unwrap();
            let (found, gaps) = read(&sim, Some(&manifest));
            let seqs = |all: &Replayed| all.iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
            let (now, then) = (seqs(&found), seqs(&expected));
            assert!(found == expected, "seed {seed}, op {op}: {now:?} not {then:?}");
            assert!(gaps.is_empty(), "seed {seed}, op {op}: {gaps:?}");
            // Without a manifest older groups may be read as well, but the end is the same.
            let (found, gaps) = read(&sim, None);
            let now = seqs(&found);
            assert!(found.ends_with(&expected), "seed {seed}, op {op}: {now:?} not {then:?}, {manifest:?}");
            assert!(gaps.is_empty(), "seed {seed}, op {op}: {gaps:?}");
        }
    }
}

/// A repeated batch is not replayed, since a memtable does not accept an entry twice.
#[test]
fn batches_whose_sequences_go_back_are_a_gap() {
    let mut caller = Caller::new(3, 1);
    life(&mut caller, 6);
    let kept = caller.written.len();
    caller.next_seq = caller.written[2].seq;
    caller.append(200, Durability::Durable).unwrap();
    caller.close().unwrap();
    let manifest = caller.manifests.last().unwrap().1.clone();
    let (found, gaps) = read(&caller.sim.fork(0), Some(&manifest));
    assert_eq!(found.len(), kept);
    let [gap] = &gaps[..] else { panic!("{gaps:?}") };
    let told = format!(
        "a batch in the log begins with sequence number {}, but an earlier batch ends with ",
        caller.written[2].seq
    );
    assert!(gap.error.message().starts_with(&told), "{gap:?}");
    assert!(gap.error.is_corruption() && gap.error.file().is_some() && gap.before_seq.is_none(), "{gap:?}");
}

#[test]
fn pages_of_other_releases_are_left_unchanged() {
    let refused = |sim: &SimEnv| {
        let hash = sim.state_hash();
        let e = salvage(&sim.env(), dir(), Lane::FIRST, None, files(sim, None)).map(drop).unwrap_err();
        assert_eq!(sim.state_hash(), hash, "nothing is written");
        assert_eq!((e.kind(), e.offset()), (ErrorKind::Unsupported, Some(0)), "{e}");
        e.message().to_owned()
    };
    let (sim, manifest, _) = closed(5);
    let oldest = *manifest.groups.keys().next().unwrap();
    forge(&sim, oldest, 0, |page| page[8] = page::FORMAT_VERSION + 1);
    let told = refused(&sim);
    assert!(told.ends_with("repair the store with the release that wrote it, or a newer one"), "{told}");
}

/// Pages of the other lane are ignored.
#[test]
fn lanes_are_salvaged_separately() {
    let mut records = Caller::on(Lane::LOG, 1, 1);
    life(&mut records, 3);
    records.close().unwrap();
    let read = |lane| salvage(&records.sim.env(), dir(), lane, None, files(&records.sim, None)).unwrap();
    let (own, other) = (read(Lane::LOG), read(Lane::FIRST));
    assert!(!own.is_empty() && other.is_empty());
    assert_eq!((own.store, other.store), (store(), Uid::default()));
    let mut count = 0;
    own.replay(TenantId::FIRST, &mut |_, _, _| {
        count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(count, records.written.len());
}

/// Without a manifest a file belongs to the group that last wrote it, in any lane.
#[test]
fn a_file_reused_by_the_other_lane_is_ignored() {
    let (sim, manifest, _) = closed(5);
    let oldest = path_of(*manifest.groups.keys().next().unwrap());
    let newest = *manifest.groups.keys().next_back().unwrap();
    let mut records = Caller::on(Lane::LOG, 1, newest + 1);
    life(&mut records, 1);
    records.close().unwrap();
    let of = |sim: &SimEnv, path: &Path| sim.env().fs.read_all(path, 1 << 20).unwrap();
    let page = of(&records.sim, &path_of(newest + 1));
    let before = of(&sim, &oldest);
    assert!(before.len() > PAGE, "a page of its former use is left");
    sim.overwrite(&oldest, 0, &page[..PAGE]).unwrap();
    let found = |lane| {
        let log = LogFile {
            file: sim.env().fs.open(&oldest, Access::Buffered).ok(),
            path: oldest.clone(),
            listed: None,
        };
        read_group(0, &log, (lane, store()), &mut Vec::new()).unwrap().map(|group| group.ltn)
    };
    assert_eq!((found(Lane::FIRST), found(Lane::LOG)), (None, Some(newest + 1)));
}

/// Returns whether a gap covers a lost sequence.
fn is_told(gaps: &[LogGap], seq: SeqNo) -> bool {
    gaps.iter().any(|gap| gap.after_seq < seq && gap.before_seq.is_none_or(|before| seq < before))
}

/// Returns the sequences found, and the gaps reported for a closed log and for one of unknown end.
fn told_of_end(log: &mut SalvagedLog) -> (Vec<SeqNo>, Vec<LogGap>, Vec<LogGap>) {
    let mut found = Vec::new();
    let mut keep = |_: &LogFilePosition, seq: SeqNo, _: &[u8]| {
        found.push(seq);
        Ok(())
    };
    let before = log.replay(TenantId::FIRST, &mut keep).unwrap();
    log.end_is_open = true;
    let gaps = log.replay(TenantId::FIRST, &mut |_, _, _| Ok(())).unwrap();
    (found, before, gaps)
}

/// The first page of a file identifies it: the group is found by it, and no log file is
/// misidentified.
#[test]
fn the_first_page_identifies_a_log_file() {
    let (sim, manifest, _) = closed(6);
    let open = |path: &Path| sim.env().fs.open(path, Access::Buffered).unwrap();
    for &ltn in manifest.groups.keys() {
        let group = displaced::group_in(&*open(&path_of(ltn)), Lane::FIRST).unwrap();
        assert_eq!((group.ltn, group.uid, group.store), (ltn, Some(uid_of(ltn)), store()));
        assert_eq!(displaced::group_in(&*open(&path_of(ltn)), Lane::LOG), None);
        assert!(!displaced::is_staging(&*open(&path_of(ltn)), Lane::FIRST, store()));
    }
}

/// The end of a killed log is only in staging: exchanged with a group, both files are read.
#[test]
fn the_staging_file_is_read_under_the_name_of_a_group() {
    for seed in 0..8 {
        let mut caller = Caller::new(seed, 1);
        life(&mut caller, 30);
        for _ in 0..3 {
            caller.append(200, Durability::Buffered).unwrap();
        }
        let staging =
            caller.sim.env().fs.open(&dir().join(Lane::FIRST.staging_name()), Access::Buffered).unwrap();
        assert!(displaced::is_staging(&*staging, Lane::FIRST, store()));
        assert!(!displaced::is_staging(&*staging, Lane::LOG, store()));
        assert_eq!(displaced::group_in(&*staging, Lane::FIRST), None);
        let expected = caller.expectation(caller.sim.op_count(), CrashKind::ProcessKill);
        let sim = caller.sim.crash(CrashKind::ProcessKill, seed);
        let (whole, gaps) = read(&sim, Some(&expected.manifest));
        assert!(gaps.is_empty(), "{gaps:?}");
        let (group, staging) = (
            path_of(*expected.manifest.groups.keys().last().unwrap()),
            dir().join(Lane::FIRST.staging_name()),
        );
        let other = dir().join("other.log");
        let fs = sim.env().fs;
        for (from, to) in [(&group, &other), (&staging, &group), (&other, &staging)] {
            fs.rename(from, to).unwrap();
        }
        let mut all = files(&sim, None);
        all.push(LogFile { file: fs.open(&staging, Access::Buffered).ok(), path: staging, listed: None });
        let log = salvage(&sim.env(), dir(), Lane::FIRST, None, all).unwrap();
        let mut found = Replayed::new();
        let mut keep = |_: &LogFilePosition, seq: SeqNo, bytes: &[u8]| {
            found.push((seq, bytes.to_vec()));
            Ok(())
        };
        let gaps = log.replay(TenantId::FIRST, &mut keep).unwrap();
        assert!(found.ends_with(&whole) && gaps.is_empty(), "seed {seed}: {gaps:?}");
    }
}

/// Nothing proves that pages at the end were durable. Without a manifest a gap is reported for
/// pages behind them, for a damaged page there, and for a truncated file.
#[test]
fn evidence_of_a_longer_unclosed_log_is_reported() {
    let mut untold = 0;
    for seed in 0..6 {
        let (sim, manifest, all) = closed(seed);
        let last = *manifest.groups.keys().last().unwrap();
        let bytes = sim.read_file(path_of(last)).unwrap();
        let is_page = |at: &usize| bytes[at * PAGE..][..PAGE].iter().any(|b| *b != 0);
        let pages: Vec<usize> = (0..bytes.len() / PAGE).filter(is_page).collect();
        for &at in &pages {
            let damaged = sim.fork(1);
            // Damages all pages from there on, but not their headers.
            for at in pages.iter().filter(|other| **other >= at) {
                let at = at * PAGE + 200;
                damaged.overwrite(path_of(last), at as u64, &[!bytes[at]]).unwrap();
            }
            let mut log = salvage(&damaged.env(), dir(), Lane::FIRST, None, files(&damaged, None)).unwrap();
            let (found, before, gaps) = told_of_end(&mut log);
            for (seq, _) in all.iter().filter(|(seq, _)| !found.contains(seq)) {
                untold += usize::from(!is_told(&before, *seq));
                assert!(is_told(&gaps, *seq), "seed {seed}: {seq} is gone with page {at}: {gaps:?}");
            }
        }
        // An intact log reports no gap.
        let mut log = salvage(&sim.env(), dir(), Lane::FIRST, None, files(&sim, None)).unwrap();
        log.end_is_open = true;
        assert!(log.replay(TenantId::FIRST, &mut |_, _, _| Ok(())).unwrap().is_empty());
    }
    assert!(untold > 0, "all was told before: nothing is tested");
}

/// Only staging has pages of the last group, and these record durable ones: its file is missing,
/// truncated in its first page, or damaged. The loss behind the last staged page is reported.
#[test]
fn the_lost_file_of_a_staged_last_group_is_reported() {
    let (mut untold, mut in_staging) = (0, 0);
    for seed in 0..24 {
        let (sim, manifest, all) = if seed % 2 == 0 { closed(seed) } else { killed(seed) };
        let last = *manifest.groups.keys().last().unwrap();
        for cut in [None, Some(0), Some(1676), Some(PAGE as u64 - 1)] {
            let damaged = sim.fork(1);
            match cut {
                None => damaged.env().fs.remove(&path_of(last)).unwrap(),
                Some(len) => damaged.set_file_len(path_of(last), len).unwrap(),
            }
            let mut log = salvage(&damaged.env(), dir(), Lane::FIRST, None, files(&damaged, None)).unwrap();
            let ends_in_staging = log.steps.iter().rev().find_map(|step| match step {
                Step::Staged { ltn, .. } => Some(*ltn == last),
                Step::Page { .. } => Some(false),
                _ => None,
            }) == Some(true);
            let (found, before, gaps) = told_of_end(&mut log);
            // A page of the group that is partly in its file also shows the loss.
            in_staging += u64::from(ends_in_staging);
            let shows = ends_in_staging || cut.is_some_and(|len| len > 100);
            for (seq, _) in all.iter().filter(|(seq, _)| shows && !found.contains(seq)) {
                untold += usize::from(!is_told(&before, *seq));
                assert!(is_told(&gaps, *seq), "seed {seed}, {cut:?}: {seq} is gone: {gaps:?}");
            }
        }
    }
    assert!(untold > 0 && in_staging > 0, "all was told before: nothing is tested");
}

/// A closed group that ends behind its predecessors had pages.
#[test]
fn a_closed_group_without_a_page_is_reported() {
    let (sim, mut manifest, all) = closed(8);
    let last = *manifest.groups.keys().last().unwrap();
    let log = LogFile {
        file: sim.env().fs.open(&path_of(last), Access::Buffered).ok(),
        path: path_of(last),
        listed: None,
    };
    let group = read_group(0, &log, (Lane::FIRST, store()), &mut Vec::new()).unwrap().unwrap();
    manifest.groups.insert(last, group.pages.values().last().map(PageHeader::end_lpn));
    let len = sim.read_file(path_of(last)).unwrap().len();
    sim.overwrite(path_of(last), 0, &vec![0; len]).unwrap();
    let (found, gaps) = read(&sim, Some(&manifest));
    let lost: Vec<_> = all.iter().filter(|batch| !found.contains(batch)).collect();
    assert!(!lost.is_empty());
    assert!(lost.iter().all(|(seq, _)| is_told(&gaps, *seq)), "{gaps:?}");
}

/// All pages of a group were superseded by a flush before it was closed: none was written, and none
/// is missing.
#[test]
fn a_group_superseded_by_flush_is_no_gap() {
    for durable in [false, true] {
        let mut caller = Caller::that_keeps_pages(9, 1);
        // Each batch fills a page to its end.
        let len = io::PAGE - page::HEADER_LEN - page::FragmentKind::Full.header_len();
        for _ in 0..3 {
            caller.append(len, Durability::Buffered).unwrap();
        }
        let all = caller.next_seq;
        caller.flush_below(all);
        caller.add_group(12).unwrap();
        assert!(caller.wal.roll().unwrap());
        let first = caller.written.len();
        let appended = if durable { caller.put(100) } else { caller.append(100, Durability::Buffered) };
        appended.unwrap();
        let (sim, manifest) = (caller.sim.fork(0), caller.manifests.last().unwrap().1.clone());
        if durable {
            // The slots of the superseded pages are reused sooner or later.
            sim.env().fs.remove(&dir().join(Lane::FIRST.staging_name())).unwrap();
        }
        let (_, begin) = manifest.begin.expect("it begins behind them");
        assert_eq!((begin.lpn, manifest.groups.len()), (begin.first_lpn + 3, 2));
        let (found, gaps) = read(&sim, Some(&manifest));
        assert!(gaps.is_empty(), "{gaps:?}");
        let expected: Replayed = caller.written[first..].iter().map(|w| (w.seq, w.payload.clone())).collect();
        assert_eq!(found, expected);
    }
}
