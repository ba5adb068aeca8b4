//! Repair: with any file damaged or missing, every record in an undamaged place is in the new
//! store, none is wrong, and losses are reported.

use crate::damage::{DIR, files};
use crate::model::options;
use base::ErrorKind;
use io::sim::{CrashKind, SimEnv};
use io::{Access, Rng};
use lavalog::{Durability, LogBatch, LogStore, Options, RepairOptions, RepairReport};
use std::collections::BTreeMap;
use std::path::Path;

const NEW: &str = "/new";

/// Contents of each log by name: the last LSN, metadata, records.
type Content = BTreeMap<String, (Option<u64>, Option<Vec<u8>>, BTreeMap<u64, Vec<u8>>)>;

fn content(store: &LogStore) -> Content {
    let mut all = Content::new();
    for name in store.list_logs("", usize::MAX) {
        let log = store.open_log(&name).unwrap();
        let mut records = BTreeMap::new();
        let mut scan = log.scan(0);
        while let Some((lsn, bytes)) = scan.read_next().unwrap() {
            records.insert(lsn, bytes.to_vec());
        }
        let metadata = log.metadata().unwrap().map(|bytes| bytes.to_vec());
        all.insert(name, (log.last_lsn().unwrap(), metadata, records));
    }
    all
}

/// Makes a store with sealed groups, cold files, a checkpoint and replayable groups, and with logs
/// that were deleted, trimmed, truncated and written again.
fn made(seed: u64, closed: bool) -> (SimEnv, Content) {
    let sim = SimEnv::new(seed);
    let options = Options { garbage_percent: 60, ..options() };
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let log = |name: &str| store.create_log(name).unwrap();
    let (kept, trimmed, cut, gone) = (log("kept"), log("trimmed"), log("cut"), log("gone"));
    let mut next_cut = 1;
    for lsn in 1..=1200_u64 {
        kept.append(lsn, &[lsn as u8; 200], Durability::Buffered).unwrap();
        trimmed.append(lsn, &[1; 900], Durability::Buffered).unwrap();
        let record = format!("record {next_cut} at {lsn}");
        cut.append(next_cut, record.as_bytes(), Durability::Buffered).unwrap();
        next_cut += 1;
        match lsn {
            100 => kept.set_metadata(b"first", Durability::Buffered).unwrap(),
            150 => gone.append(1, &[7; 500], Durability::Buffered).unwrap(),
            300 => store.delete_log("gone").unwrap(),
            600 => trimmed.trim(600).unwrap(),
            900 => kept.set_metadata(b"second", Durability::Buffered).unwrap(),
            1150 => trimmed.trim(700).unwrap(),
            _ => {}
        }
        if lsn % 170 == 0 {
            next_cut -= 60;
            cut.truncate_after(next_cut - 1, Durability::Buffered).unwrap();
        }
        if lsn % 50 == 0 {
            store.wait_idle().unwrap();
        }
    }
    store.create_log("late").unwrap().append(5, b"five", Durability::Durable).unwrap();
    let found = store.statistics();
    assert!(found.sealed_groups >= 3 && found.copied_bytes > 0, "{found:?}");
    let whole = content(&store);
    assert_eq!(whole.keys().collect::<Vec<_>>(), ["cut", "kept", "late", "trimmed"]);
    drop((kept, trimmed, cut, gone));
    if closed {
        store.close().unwrap();
    }
    (sim.crash(CrashKind::ProcessKill, seed), whole)
}

fn repair(sim: &SimEnv) -> base::Result<RepairReport> {
    let options = RepairOptions { options: options(), ..RepairOptions::default() };
    LogStore::repair(&sim.env(), Path::new(DIR), &sim.env(), Path::new(NEW), &options)
}

/// Repairs, and compares the new store with the original contents.
fn check(sim: &SimEnv, whole: &Content, what: &str) -> RepairReport {
    let before = image(sim);
    let report = repair(sim).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(image(sim), before, "{what}: the damaged store was changed");
    let store = LogStore::open(&sim.env(), Path::new(NEW), &options()).unwrap();
    let found = content(&store);
    for log in &report.logs {
        let records = &found[&log.name].2;
        assert_eq!(log.records, records.len() as u64, "{what}: {}", log.name);
    }
    let guarded =
        report.may_come_back.is_empty() && report.lost_batches.iter().all(|lost| !lost.may_come_back);
    for (name, (_, metadata, records)) in whole {
        let Some((_, found_metadata, found_records)) = found.get(name) else {
            assert!(!guarded || !report.lost_batches.is_empty(), "{what}: log {name} is gone: {report:?}");
            continue;
        };
        let log = report.logs.iter().find(|log| log.name == *name).unwrap();
        let is_told = |lsn: u64| log.gaps.iter().any(|gap| (gap.first..=gap.last).contains(&lsn));
        for (lsn, bytes) in records {
            match found_records.get(lsn) {
                Some(found) if found == bytes => {}
                Some(_) => assert!(!guarded, "{what}: record {lsn} of {name} is another"),
                None => assert!(is_told(*lsn) || !report.lost_batches.is_empty(), "{what}: {lsn} of {name}"),
            }
        }
        if guarded {
            let extra: Vec<_> = found_records.keys().filter(|lsn| !records.contains_key(lsn)).collect();
            assert!(extra.is_empty(), "{what}: records of {name} came back: {extra:?}");
            assert_eq!(found_metadata, metadata, "{what}: {name}");
        }
    }
    if guarded {
        assert!(found.keys().all(|name| whole.contains_key(name)), "{what}: {:?}", found.keys());
    }
    if report.is_lossless() {
        assert_eq!(&found, whole, "{what}");
    }
    // The new store accepts writes, and its contents are durable.
    if let Some(name) = found.keys().next() {
        let log = store.open_log(name).unwrap();
        let next = log.last_lsn().unwrap().map_or(1, |last| last + 1);
        log.append(next, b"after", Durability::Durable).unwrap();
    }
    drop(store);
    report
}

fn image(sim: &SimEnv) -> BTreeMap<String, Vec<u8>> {
    let env = sim.env();
    let entries = env.fs.list(Path::new(DIR)).unwrap();
    let read = |name: &str| env.fs.read_all(&io::fs::join(Path::new(DIR), name), 1 << 30).unwrap();
    entries.into_iter().map(|entry| (entry.name.clone(), read(&entry.name))).collect()
}

#[test]
fn repair_of_a_sound_log_store_changes_no_data() {
    for closed in [true, false] {
        let (sim, whole) = made(1, closed);
        let report = check(&sim, &whole, "undamaged");
        assert!(report.is_lossless() && report.damaged.is_empty(), "{report:?}");
        assert!(report.from_manifest && report.from_checkpoint, "{report:?}");
        let again = repair(&sim).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
    }
}

#[test]
fn a_dry_run_writes_nothing_and_reports_the_same() {
    let (sim, whole) = made(2, true);
    sim.flip_bit(&files(&sim, ".e1-3")[0], 20_000, 2).unwrap();
    let options = RepairOptions { options: options(), dry_run: true, ..RepairOptions::default() };
    let dry = LogStore::repair(&sim.env(), Path::new(DIR), &sim.env(), Path::new(NEW), &options).unwrap();
    assert!(sim.env().fs.list(Path::new(NEW)).is_err());
    let report = check(&sim, &whole, "damaged");
    assert_eq!((dry.logs, dry.damaged, dry.lost_batches), (report.logs, report.damaged, report.lost_batches));
}

/// All files of one kind are missing: nothing is lost that is in another kind.
#[test]
fn missing_files_lose_only_their_contents() {
    for (kind, lossless) in [
        ("CURRENT", true),
        (".e1-1", true),
        ("LOCK", true),
        (".e1-2", false),
        (".e1-3", false),
        ("STAGING-1", true),
        ("MANIFEST", false),
    ] {
        let (sim, whole) = made(3, true);
        let all = sim.env().fs.list(Path::new(DIR)).unwrap();
        let of_kind = all.iter().filter(|entry| entry.name.ends_with(kind) || entry.name.starts_with(kind));
        for entry in of_kind {
            sim.env().fs.remove(&io::fs::join(Path::new(DIR), &entry.name)).unwrap();
        }
        let report = check(&sim, &whole, kind);
        assert_eq!(report.is_lossless(), lossless, "{kind}: {report:?}");
        if kind == "MANIFEST" {
            let gaps = report.logs.iter().any(|log| !log.gaps.is_empty());
            assert!(
                !gaps && report.lost_batches.is_empty() && !report.may_come_back.is_empty(),
                "{report:?}"
            );
        }
    }
}

/// Replaces the contents of a file.
fn replace(sim: &SimEnv, path: &Path, bytes: &[u8]) {
    sim.env().fs.remove(path).unwrap();
    let mut file = sim.env().fs.create(path, &io::CreateOptions::default()).unwrap();
    file.append(bytes).unwrap();
    file.sync(io::SyncKind::Full).unwrap();
}

fn tells(report: &RepairReport, what: &str) -> bool {
    report.damaged.iter().any(|damage| damage.why.contains(what))
}

/// The file of a sealed group is missing: the report lists the records in its index file.
#[test]
fn a_missing_group_loses_its_records() {
    let (sim, whole) = made(6, true);
    let groups = files(&sim, ".log");
    let told = groups.iter().filter(|path| {
        let damaged = sim.crash(CrashKind::ProcessKill, 6);
        damaged.env().fs.remove(path).unwrap();
        let report = check(&damaged, &whole, &path.display().to_string());
        tells(&report, "the file of a log group with needed records has no readable page")
    });
    assert!(told.count() > 0);
}

/// Without a manifest, a file with a damaged footer cannot be identified.
#[test]
fn a_file_without_footer_and_manifest_is_reported() {
    let (sim, whole) = made(7, true);
    let cold = &files(&sim, ".e1-3")[0];
    for entry in sim.env().fs.list(Path::new(DIR)).unwrap() {
        if entry.name.starts_with("MANIFEST") {
            sim.env().fs.remove(&io::fs::join(Path::new(DIR), &entry.name)).unwrap();
        }
    }
    let len = sim.env().fs.open(cold, Access::Buffered).unwrap().len().unwrap();
    (len - 40..len).for_each(|at| sim.flip_bit(cold, at, 0).unwrap());
    let report = check(&sim, &whole, "no footer");
    assert!(tells(&report, "without a manifest its role is unknown"), "{report:?}");
}

/// Swapped files are identified by their own contents, even if the remaining manifest names only
/// one of them, or none.
#[test]
fn files_that_were_exchanged_are_found_without_a_manifest() {
    let (whole_sim, whole) = made(10, true);
    let (cold, index) = (files(&whole_sim, ".e1-3")[0].clone(), files(&whole_sim, ".e1-1")[0].clone());
    let manifests = whole_sim.env().fs.list(Path::new(DIR)).unwrap();
    let manifest = manifests.into_iter().rfind(|entry| entry.name.starts_with("MANIFEST")).unwrap();
    let manifest = io::fs::join(Path::new(DIR), &manifest.name);
    let len = whole_sim.env().fs.read_all(&manifest, 1 << 30).unwrap().len();
    // With prefixes of the manifest of any length, which name none, one, or both of the two files.
    for keep in (0..=len).step_by(len / 24) {
        let sim = whole_sim.fork(10);
        let read = |path: &Path| sim.env().fs.read_all(path, 1 << 30).unwrap();
        let (of_cold, of_index) = (read(&cold), read(&index));
        replace(&sim, &cold, &of_index);
        replace(&sim, &index, &of_cold);
        sim.overwrite(&manifest, keep as u64, &vec![0; len - keep]).unwrap();
        let report = check(&sim, &whole, &format!("exchanged, the manifest ends at {keep}"));
        let lost = report.logs.iter().flat_map(|log| &log.gaps).count() + report.lost_batches.len();
        assert_eq!(lost, 0, "{keep}: nothing is damaged but names and the manifest: {report:?}");
    }
}

/// The log's record of durable edits reveals a manifest that lost its end.
#[test]
fn a_truncated_manifest_is_detected() {
    let (sim, whole) = made(8, false);
    let manifest = sim.env().fs.list(Path::new(DIR)).unwrap();
    let manifest = manifest.into_iter().rfind(|entry| entry.name.starts_with("MANIFEST")).unwrap();
    let path = io::fs::join(Path::new(DIR), &manifest.name);
    let bytes = sim.env().fs.read_all(&path, 1 << 30).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let found_out = (1..40).map(|part| end - end * part / 400).filter(|keep| {
        let damaged = sim.crash(CrashKind::ProcessKill, 8);
        damaged.overwrite(&path, *keep as u64, &vec![0; bytes.len() - keep]).unwrap();
        let report = check(&damaged, &whole, &format!("manifest without its end from {keep} on"));
        tells(&report, "but the log confirms edit")
    });
    assert!(found_out.count() > 0);
}

/// Flips a bit of any file, at many places.
#[test]
fn a_flipped_bit_loses_only_the_data_under_its_checksum() {
    let (sim, whole) = made(4, true);
    let listing = sim.env().fs.list(Path::new(DIR)).unwrap();
    let mut rng = Rng::new(4);
    for entry in listing {
        let path = io::fs::join(Path::new(DIR), &entry.name);
        let len = sim.env().fs.open(&path, Access::Buffered).unwrap().len().unwrap();
        for _ in 0..12 {
            let damaged = sim.crash(CrashKind::ProcessKill, 4);
            let at = rng.below(len.max(1));
            if damaged.flip_bit(&path, at, rng.below(8) as u32).is_err() {
                continue;
            }
            let what = format!("{} at {at}", entry.name);
            let report = check(&damaged, &whole, &what);
            let lost: u64 = report
                .logs
                .iter()
                .flat_map(|log| &log.gaps)
                .filter(|gap| gap.is_certain)
                .map(|gap| gap.last - gap.first + 1)
                .sum();
            // A page has a few records, a cold record is one; a row in a block costs none.
            assert!(lost <= 64, "{what}: {report:?}");
        }
    }
}

/// Half of each file is missing, and of two files at a time.
#[test]
fn truncated_files_are_read_up_to_their_end() {
    for seed in 0..24 {
        let (sim, whole) = made(5, seed % 2 == 0);
        let mut rng = Rng::new(seed);
        let listing = sim.env().fs.list(Path::new(DIR)).unwrap();
        let mut what = format!("seed {seed}");
        for _ in 0..1 + rng.below(2) {
            let entry = &listing[rng.below(listing.len() as u64) as usize];
            let path = io::fs::join(Path::new(DIR), &entry.name);
            let Ok(bytes) = sim.env().fs.read_all(&path, 1 << 30) else { continue };
            let keep = rng.below(bytes.len() as u64 + 1) as usize;
            what += &format!(", {} cut to {keep}", entry.name);
            replace(&sim, &path, &bytes[..keep]);
        }
        check(&sim, &whole, &what);
    }
}

/// The creation of a log is lost, but not its records.
#[test]
fn a_log_without_its_creation_gets_a_generated_name() {
    let sim = SimEnv::new(9);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    let log = store.create_log("log").unwrap();
    // Each record in its own page.
    (1..=20).for_each(|lsn| log.append(lsn, &[lsn as u8; 4000], Durability::Durable).unwrap());
    drop(log);
    store.close().unwrap();
    let sim = sim.crash(CrashKind::ProcessKill, 9);
    let env = sim.env();
    // The first page of the record lane, which has the creation.
    let group = env.fs.list(Path::new(DIR)).unwrap().into_iter().filter(|entry| entry.name.ends_with(".log"));
    let is_of_records = |entry: &io::DirEntry| {
        env.fs
            .read_all(&io::fs::join(Path::new(DIR), &entry.name), 1 << 30)
            .unwrap()
            .windows(3)
            .any(|w| w == b"log")
    };
    let group = group.into_iter().find(is_of_records).unwrap();
    sim.flip_bit(io::fs::join(Path::new(DIR), &group.name), 120, 1).unwrap();
    let report = repair(&sim).unwrap();
    assert_eq!(report.logs.len(), 1, "{report:?}");
    assert!(report.logs[0].name_is_lost && report.logs[0].records >= 15, "{report:?}");
    assert!(report.lost_batches[0].may_come_back && report.lost_batches[0].file == group.name, "{report:?}");
    let store = LogStore::open(&env, Path::new(NEW), &options()).unwrap();
    assert_eq!(
        store.open_log(&report.logs[0].name).unwrap().read(20).unwrap().as_deref(),
        Some(&[20; 4000][..])
    );
}

/// One gap covers the end of a sealed group and the beginning of the next. An index file lists the
/// records of the first group only.
#[test]
fn a_gap_over_an_unindexed_group_reports_its_records() {
    let sim = SimEnv::new(10);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    let log = store.create_log("log").unwrap();
    // Each record in its own page.
    let append = |lsn: u64| log.append(lsn, &[lsn as u8; 4000], Durability::Durable).unwrap();
    (101..=110).for_each(append);
    store.seal().unwrap();
    store.wait_idle().unwrap();
    (111..=120).for_each(append);
    drop(log);
    store.close().unwrap();
    let sim = sim.crash(CrashKind::ProcessKill, 10);
    let mut damaged = 0;
    for path in files(&sim, ".log") {
        let bytes = sim.env().fs.read_all(&path, 1 << 30).unwrap();
        for lsn in [110, 111] {
            if let Some(at) = bytes.windows(100).position(|window| window == [lsn; 100]) {
                sim.flip_bit(&path, at as u64, 0).unwrap();
                damaged += 1;
            }
        }
    }
    assert_eq!(damaged, 2, "each of the two is in one group");
    let report = repair(&sim).unwrap();
    assert_eq!(report.logs[0].records, 18, "{report:?}");
    for lsn in [110, 111] {
        let is_told = report.logs[0].gaps.iter().any(|gap| (gap.first..=gap.last).contains(&lsn));
        assert!(is_told, "record {lsn}: {report:?}");
    }
}

/// Other bytes are appended in place of those that a recovery cut off.
#[test]
fn batches_are_restored_atomically() {
    let sim = SimEnv::new(10);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    let (a, b) = (store.create_log("a").unwrap(), store.create_log("b").unwrap());
    for lsn in 1..=50 {
        let bytes = vec![lsn as u8; 3000];
        let mut batch = LogBatch::new();
        batch.append(&a, lsn, &bytes).append(&b, lsn, &bytes);
        store.write(&batch, Durability::Durable).unwrap();
    }
    drop((a, b));
    store.close().unwrap();
    for at in (0..40).map(|i| 4096 * 2 + i * 4000) {
        let damaged = sim.crash(CrashKind::ProcessKill, 10);
        let groups = files(&damaged, ".log");
        groups.iter().for_each(|path| drop(damaged.flip_bit(path, at, 3)));
        repair(&damaged).unwrap();
        let store = LogStore::open(&damaged.env(), Path::new(NEW), &options()).unwrap();
        let found = content(&store);
        assert_eq!(found["a"].2, found["b"].2, "{at}");
        assert!(found["a"].2.len() >= 47, "{at}: {}", found["a"].2.len());
    }
}

/// A group has a truncation, and the records written after it are in a lost file: the checkpoint
/// knows their last LSN.
#[test]
fn lost_records_after_a_truncation_are_reported() {
    let sim = SimEnv::new(31);
    let options = Options { group_bytes: Some(256 << 10), ..Options::default() };
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let log = |name: &str| store.create_log(name).unwrap();
    let (kept, cut, junk) = (log("kept"), log("cut"), log("junk"));
    let append = |log: &lavalog::LogHandle, lsns: std::ops::RangeInclusive<u64>, len: usize| {
        lsns.for_each(|lsn| log.append(lsn, &vec![lsn as u8; len], Durability::Buffered).unwrap());
    };
    append(&kept, 1..=20, 8000);
    append(&cut, 1..=20, 10);
    cut.truncate_after(10, Durability::Buffered).unwrap();
    store.seal().unwrap();
    append(&cut, 11..=15, 10);
    append(&junk, 1..=20, 8000);
    store.seal().unwrap();
    store.wait_idle().unwrap();
    junk.trim(21).unwrap();
    store.wait_idle().unwrap();
    assert!(store.statistics().copied_bytes > 0);
    drop((kept, cut, junk));
    store.close().unwrap();
    let cold = files(&sim, ".e1-3");
    assert_eq!(cold.len(), 1);
    sim.erase(&cold[0]).unwrap();
    let repair = RepairOptions { options: options.clone(), ..RepairOptions::default() };
    let env = sim.env();
    let report = LogStore::repair(&env, Path::new(DIR), &env, Path::new(NEW), &repair).unwrap();
    let of_cut = report.logs.iter().find(|log| log.name == "cut").unwrap();
    let is_told = |lsn: u64| of_cut.gaps.iter().any(|gap| (gap.first..=gap.last).contains(&lsn));
    assert!((11..=15).all(is_told) && of_cut.records == 10, "{report:?}");
    let store = LogStore::open(&env, Path::new(NEW), &options).unwrap();
    assert_eq!(store.open_log("cut").unwrap().last_lsn().unwrap(), Some(15), "no LSN is given twice");
}

/// A store after a process crash or a power failure is undamaged: a repair finds the same as an
/// open, and reports no loss of buffered records.
#[test]
fn a_store_that_crashed_without_damage_reports_no_loss() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let sim = SimEnv::new(seed);
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        let mut lasts = [0_u64; 3];
        let logs: Vec<_> = (0..3).map(|n| store.create_log(&format!("log {n}")).unwrap()).collect();
        let kinds = [Durability::Buffered, Durability::Buffered, Durability::Durable];
        for _ in 0..rng.range(5, 400) {
            let nth = rng.below(3) as usize;
            let (log, last, durability) = (&logs[nth], &mut lasts[nth], kinds[rng.below(3) as usize]);
            match rng.below(24) {
                0 => log.trim(rng.below(*last + 1)).unwrap(),
                1 => {
                    *last = rng.range(log.first_lsn().unwrap().unwrap_or(*last), *last);
                    log.truncate_after(*last, durability).unwrap();
                }
                2 => log.set_metadata(b"metadata", durability).unwrap(),
                3 => store.seal().unwrap(),
                4 => store.wait_idle().unwrap(),
                _ => {
                    *last += 1 + rng.below(2);
                    let len = if rng.one_in(4) { 9_000 } else { rng.range(1, 600) };
                    log.append(*last, &vec![*last as u8; len as usize], durability).unwrap();
                }
            }
        }
        for (n, kind) in [CrashKind::ProcessKill, CrashKind::PowerLoss].into_iter().enumerate() {
            let crashed = sim.crash(kind, seed);
            let report = repair(&crashed).unwrap();
            let is_sound = report.is_lossless() && report.damaged.is_empty();
            assert!(is_sound && report.from_manifest, "seed {seed}, crash {n}: {report:?}");
            let open = |path| LogStore::open(&crashed.env(), Path::new(path), &options()).unwrap();
            let (found, expected) = (content(&open(NEW)), content(&open(DIR)));
            assert!(found == expected, "seed {seed}, crash {n}: {report:?}");
        }
    }
}
