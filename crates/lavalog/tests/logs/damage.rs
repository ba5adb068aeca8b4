use crate::model::options;
use io::Access;
use io::sim::{CrashKind, OpKind, SimEnv};
use lavalog::{Durability, LogStore, Options};
use std::path::{Path, PathBuf};

pub const DIR: &str = "/logs";

/// Makes a closed store with records in sealed groups and in a cold file.
pub fn made(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    let options = Options { garbage_percent: 60, ..options() };
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let (kept, trimmed) = (store.log("kept").unwrap(), store.log("trimmed").unwrap());
    for lsn in 1..=1200_u64 {
        kept.append(lsn, &[lsn as u8; 200], Durability::Buffered).unwrap();
        trimmed.append(lsn, &[1; 900], Durability::Buffered).unwrap();
        if lsn == 600 {
            trimmed.trim(600).unwrap();
        }
        if lsn % 50 == 0 {
            store.wait_idle().unwrap();
        }
    }
    let found = store.statistics();
    assert!(found.sealed_groups >= 3 && found.copied_bytes > 0, "{found:?}");
    drop((kept, trimmed));
    store.close().unwrap();
    sim.crash(CrashKind::ProcessKill, seed)
}

pub fn files(sim: &SimEnv, kind: &str) -> Vec<PathBuf> {
    let entries = sim.env().fs.list(Path::new(DIR)).unwrap();
    let of_kind = entries.into_iter().filter(|entry| entry.name.ends_with(kind));
    of_kind.map(|entry| io::fs::join(Path::new(DIR), &entry.name)).collect()
}

/// Returns the files of the sealed groups, oldest first.
fn retained(sim: &SimEnv) -> Vec<PathBuf> {
    let engines = store::manifest::Engines::default();
    let manifest = store::manifest::Manifest::recover(&sim.env(), Path::new(DIR), true, &engines).unwrap();
    let state = manifest.state();
    let groups = state.log_groups.values().filter(|group| group.retained_bytes.is_some());
    groups.map(|group| io::fs::join(Path::new(DIR), &store::names::log(group.file))).collect()
}

/// Counts the readable and the damaged records of a log.
fn count(store: &LogStore, name: &str) -> (usize, usize) {
    let log = store.open_log(name).unwrap();
    let found: Vec<_> = (1..=1200).map(|lsn| log.read(lsn)).collect();
    for record in found.iter().filter_map(|record| record.as_ref().err()) {
        assert!(record.is_corruption() || record.kind() == base::ErrorKind::Trimmed, "{record}");
    }
    let damaged = found.iter().filter(|record| record.as_ref().is_err_and(|e| e.is_corruption()));
    (found.iter().filter(|record| matches!(record, Ok(Some(_)))).count(), damaged.count())
}

/// Scans a log. Returns the number of records, and of LSNs skipped because of damage.
fn scanned(log: &lavalog::LogHandle) -> (usize, usize) {
    let (mut scan, mut records, mut skipped, mut next) = (log.scan(1), 0, 0, 1);
    loop {
        match scan.read_next() {
            Ok(Some((lsn, _))) => {
                records += 1;
                next = lsn + 1;
            }
            Ok(None) => return (records, skipped),
            Err(e) => {
                assert!(e.is_corruption(), "{e}");
                skipped += 1;
                next += 1;
                scan.skip_to(next);
            }
        }
    }
}

#[test]
fn a_damaged_directory_of_a_cold_file_hides_no_record() {
    let len =
        |sim: &SimEnv, path: &PathBuf| sim.env().fs.open(path, Access::Buffered).unwrap().len().unwrap();
    for from_end in [1, 30, 60, 100, 200] {
        let sim = made(5);
        let cold = files(&sim, ".e1-3").remove(0);
        let at = len(&sim, &cold) - from_end;
        sim.flip_bit(&cold, at, 2).unwrap();
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        let (read, lost) = count(&store, "kept");
        assert_eq!(read + lost, 1200, "{from_end} bytes from the end");
        assert_eq!(scanned(&store.open_log("kept").unwrap()), (read, lost));
    }
}

/// Records of a cold file are read several at a time; a damaged one costs a scan only that record.
#[test]
fn a_damaged_cold_record_hides_no_other_from_a_scan() {
    let sim = made(6);
    let cold = files(&sim, ".e1-3").remove(0);
    sim.flip_bit(&cold, 20_000, 2).unwrap();
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    assert_eq!(count(&store, "kept"), (1199, 1));
    assert_eq!(scanned(&store.open_log("kept").unwrap()), (1199, 1));
}

/// An empty record has no bytes that can be damaged: a scan and a read agree.
#[test]
fn an_empty_record_survives_damage_of_its_cold_file() {
    let sim = SimEnv::new(7);
    let options = Options { garbage_percent: 60, ..options() };
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let (kept, trimmed) = (store.log("kept").unwrap(), store.log("trimmed").unwrap());
    for lsn in 1..=1200_u64 {
        let len = if lsn % 3 == 0 { 0 } else { 200 };
        kept.append(lsn, &[lsn as u8; 200][..len], Durability::Buffered).unwrap();
        trimmed.append(lsn, &[1; 900], Durability::Buffered).unwrap();
        if lsn % 50 == 0 {
            trimmed.trim(lsn).unwrap();
            store.wait_idle().unwrap();
        }
    }
    drop((kept, trimmed));
    store.close().unwrap();
    let cold = files(&sim, ".e1-3").remove(0);
    sim.overwrite(&cold, 0, &[0; 2000]).unwrap();
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let (read, lost) = count(&store, "kept");
    assert!(lost > 0 && read + lost == 1200, "{read} and {lost}");
    assert_eq!(scanned(&store.open_log("kept").unwrap()), (read, lost));
}

#[test]
fn a_lost_index_file_is_rebuilt_from_its_group() {
    let sim = made(1);
    let indexes = files(&sim, ".e1-1");
    assert!(indexes.len() >= 2, "{indexes:?}");
    indexes.iter().for_each(|path| sim.env().fs.remove(path).unwrap());
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    assert_eq!(count(&store, "kept"), (1200, 0));
    assert_eq!(count(&store, "trimmed"), (601, 0));
}

/// A durable page of a replayable group is damaged. It may contain a trim, a truncation or a
/// deletion as well as a record, so nothing after it is reliable. As with keys, the store is not
/// opened for writing. The error gives the position and the remedy, and the store stays unchanged.
/// A torn end is no damage.
#[test]
fn a_damaged_replayed_page_refuses_the_open_with_its_offset() {
    let sim = SimEnv::new(12);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    let log = store.create_log("log").unwrap();
    (1..=200).for_each(|lsn| log.append(lsn, &[7; 300], Durability::Durable).unwrap());
    let sim = sim.crash(CrashKind::ProcessKill, 1);
    let at = files(&sim, ".log").into_iter().find_map(|path| {
        let file = sim.env().fs.open(&path, Access::Buffered).unwrap();
        let mut page = [0; 4096];
        file.read_at(&mut page, 8192).ok().filter(|_| page[2000..].contains(&7))?;
        Some(path)
    });
    let path = at.expect("a group with records");
    let torn = sim.fork(2);
    sim.flip_bit(&path, 8192 + 2000, 3).unwrap();
    let before = sim.durable_hash();
    for _ in 0..2 {
        let e = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap_err();
        assert!(e.is_corruption() && e.file() == Some(&*path), "{e}");
        let said = format!("{e:#}");
        assert!(said.contains("offset") && said.contains("read-only") && said.contains("repair"), "{said}");
    }
    assert_eq!(sim.durable_hash(), before, "the refused store was changed");
    let store = LogStore::open(&torn.env(), Path::new(DIR), &options()).unwrap();
    assert_eq!(store.open_log("log").unwrap().read(200).unwrap(), Some(vec![7; 300]));
}

/// Rows duplicate data of the group: a damaged block of rows loses no record, and is rebuilt once.
#[test]
fn damaged_index_blocks_are_rebuilt_while_the_store_runs() {
    for scans in [false, true] {
        let sim = made(9);
        let indexes = files(&sim, ".e1-1");
        indexes.iter().for_each(|path| sim.flip_bit(path, 20, 3).unwrap());
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        match scans {
            true => assert_eq!(scanned(&store.open_log("kept").unwrap()), (1200, 0)),
            false => assert_eq!(count(&store, "kept"), (1200, 0)),
        }
        assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (601, 0)));
        let remade = store.statistics().remade_files;
        assert!(remade > 0 && remade <= indexes.len() as u64, "{remade} of {indexes:?}");
        let verified = store.verify();
        store.wait_idle().unwrap();
        let left = files(&sim, ".e1-1").iter().filter(|path| indexes.contains(path)).count();
        assert!(left as u64 + remade <= indexes.len() as u64, "{left} are left");
        assert_eq!(verified.damages.is_empty(), left == 0, "{verified:?}");
        store.close().unwrap();
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (601, 0)));
    }
}

/// The file system loses an index file of an open store, or everything in it except the blocks. The
/// group has the rows, and a read of a record triggers a new file.
#[test]
fn an_index_file_lost_while_open_is_rebuilt() {
    for (is_gone, scans) in [(true, false), (true, true), (false, false), (false, true)] {
        let sim = made(9);
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        let indexes = files(&sim, ".e1-1");
        for path in &indexes {
            match is_gone {
                true => sim.env().fs.remove(path).unwrap(),
                false => {
                    let len = sim.read_file(path).unwrap().len() as u64;
                    sim.flip_bit(path, len - 90, 3).unwrap();
                }
            }
        }
        // Nothing live of one log is read before the log is changed.
        store.open_log("trimmed").unwrap().truncate_after(1150, Durability::Buffered).unwrap();
        store.open_log("kept").unwrap().append(1201, b"new", Durability::Durable).unwrap();
        match scans {
            true => assert_eq!(scanned(&store.open_log("kept").unwrap()), (1201, 0)),
            false => assert_eq!(count(&store, "kept"), (1200, 0)),
        }
        assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (551, 0)));
        let remade = store.statistics().remade_files;
        assert!(remade > 0 && remade <= indexes.len() as u64, "{remade} of {indexes:?}");
        store.wait_idle().unwrap();
        store.close().unwrap();
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        store.wait_idle().unwrap();
        // Index files without live records were left for this step.
        assert!(store.statistics().remade_files + remade <= indexes.len() as u64);
        assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (551, 0)));
        let verified = store.verify();
        assert!(verified.damages.is_empty(), "{verified:?}");
    }
}

/// Nothing reads the file before its collection: the job itself finds that it is missing.
#[test]
fn a_lost_index_file_stops_no_collection() {
    let sim = made(10);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    files(&sim, ".e1-1").iter().for_each(|path| sim.env().fs.remove(path).unwrap());
    store.open_log("trimmed").unwrap().trim(1150).unwrap();
    store.wait_idle().unwrap();
    assert!(store.statistics().remade_files > 0);
    store.open_log("trimmed").unwrap().append(1201, b"new", Durability::Durable).unwrap();
    assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (51, 0)));
}

/// As with damaged blocks, the group may be damaged as well. Its other records are there at the
/// next open, and the file is not tried again.
#[test]
fn index_rows_of_a_damaged_group_are_not_rebuilt() {
    let sim = made(11);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    files(&sim, ".e1-1").iter().for_each(|path| sim.env().fs.remove(path).unwrap());
    retained(&sim).iter().for_each(|path| sim.flip_bit(path, 7000, 3).unwrap());
    let (_, damaged) = count(&store, "kept");
    assert!(damaged > 0);
    assert_eq!(count(&store, "kept").1, damaged);
    assert_eq!(store.statistics().remade_files, 0);
    store.open_log("kept").unwrap().append(1201, b"new", Durability::Durable).unwrap();
}

/// Of several records with one LSN in a group, the rows have the last, also after a rebuild.
#[test]
fn rebuilt_index_rows_refer_to_the_latest_record() {
    let sim = SimEnv::new(8);
    // No collection happens.
    let options = Options { garbage_percent: 100, ..options() };
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let log = store.create_log("log").unwrap();
    (1..=10).for_each(|lsn| log.append(lsn, b"first", Durability::Buffered).unwrap());
    log.truncate_after(5, Durability::Buffered).unwrap();
    (6..=8).for_each(|lsn| log.append(lsn, b"later", Durability::Buffered).unwrap());
    store.seal().unwrap();
    store.wait_idle().unwrap();
    drop(log);
    store.close().unwrap();
    sim.flip_bit(&files(&sim, ".e1-1")[0], 9, 1).unwrap();
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let read = |lsn| store.open_log("log").unwrap().read(lsn).unwrap();
    assert_eq!((read(5), read(6)), (Some(b"first".to_vec()), Some(b"later".to_vec())));
    assert_eq!((read(8), read(9), store.statistics().remade_files), (Some(b"later".to_vec()), None, 1));
}

/// If the group is damaged as well, it stays unchanged: intact records are read, damaged ones
/// reported, and the rebuild is tried once.
#[test]
fn damaged_index_rows_of_a_damaged_group_are_tried_once() {
    let sim = made(3);
    let index = files(&sim, ".e1-1").remove(0);
    sim.flip_bit(&index, 20, 3).unwrap();
    for path in retained(&sim) {
        (0..40).for_each(|n| sim.flip_bit(&path, n * 4096 + 700, 3).unwrap());
    }
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    let (kept, lost) = count(&store, "kept");
    let (trimmed, also) = count(&store, "trimmed");
    assert!(
        lost + also > 0 && (kept + lost, trimmed + also) == (1200, 601),
        "{kept} {lost} {trimmed} {also}"
    );
    let reads = || sim.count_ops(Some(OpKind::Read), "");
    let before = reads();
    (1..=5).for_each(|lsn| drop(store.open_log("kept").unwrap().read(lsn)));
    assert!(reads() - before <= 10, "{} reads: the group was read once more", reads() - before);
    assert_eq!(store.statistics().remade_files, 0);
    assert!(files(&sim, ".e1-1").contains(&index));
}

/// A group with a lost index file is read at one open only.
#[test]
fn a_rebuilt_index_file_is_persisted() {
    let sim = made(1);
    let kept = retained(&sim);
    let opening = |sim: &SimEnv| {
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let reads = || kept.iter().map(|path| sim.count_ops(Some(OpKind::Read), &name(path))).sum::<u64>();
        let before = reads();
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        (reads() - before, store)
    };
    let (whole, store) = opening(&sim);
    store.close().unwrap();
    let indexes = files(&sim, ".e1-1");
    indexes.iter().for_each(|path| sim.env().fs.remove(path).unwrap());
    let (lost, store) = opening(&sim);
    assert!(lost >= whole + indexes.len() as u64, "{lost} reads of groups, with the files {whole}");
    store.wait_idle().unwrap();
    assert_eq!(store.statistics().remade_files, indexes.len() as u64);
    assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (601, 0)));
    store.close().unwrap();
    // Some belong to groups that were sealed meanwhile.
    assert!(files(&sim, ".e1-1").len() >= indexes.len());
    let (again, store) = opening(&sim);
    assert_eq!(again, whole, "reads of groups that are storage");
    assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (601, 0)));
    assert!(store.verify().damages.is_empty());
}

/// Records truncated before their group was sealed are in none of its files, but still in the
/// group. They stay truncated when the rows are rebuilt, even if the truncation is in another
/// group.
#[test]
fn truncated_records_do_not_reappear_after_an_index_rebuild() {
    // No collection happens.
    let options = Options { garbage_percent: 100, ..options() };
    for overwritten in [false, true] {
        let sim = SimEnv::new(7);
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
        let (log, kept) = (store.create_log("log").unwrap(), store.create_log("kept").unwrap());
        let keep = |lsn| kept.append(lsn, b"a record that keeps the group", Durability::Buffered).unwrap();
        keep(1);
        (1..=10).for_each(|lsn| log.append(lsn, b"first", Durability::Buffered).unwrap());
        store.seal().unwrap();
        keep(2);
        log.truncate_after(5, Durability::Buffered).unwrap();
        if overwritten {
            (6..=8).for_each(|lsn| log.append(lsn, b"second", Durability::Buffered).unwrap());
        }
        store.wait_idle().unwrap();
        let index = files(&sim, ".e1-1");
        assert_eq!(index.len(), 1);
        store.seal().unwrap();
        store.wait_idle().unwrap();
        assert_eq!(files(&sim, ".e1-1").len(), 2);
        drop((log, kept));
        store.close().unwrap();
        sim.env().fs.remove(&index[0]).unwrap();
        for opening in 0..3 {
            let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
            let log = store.open_log("log").unwrap();
            let read = |lsn| log.read(lsn).unwrap();
            assert_eq!(read(5).as_deref(), Some(&b"first"[..]), "opening {opening}");
            let wanted = overwritten.then(|| b"second".to_vec());
            assert_eq!((read(6), read(8), read(9)), (wanted.clone(), wanted, None), "opening {opening}");
            // Another group, with its own checkpoint.
            store
                .create_log(&format!("other {opening}"))
                .unwrap()
                .append(1, b"x", Durability::Durable)
                .unwrap();
            store.seal().unwrap();
            store.wait_idle().unwrap();
            drop(log);
            store.close().unwrap();
        }
    }
}

#[test]
fn a_lost_cold_file_loses_only_its_records() {
    let sim = made(2);
    let cold = files(&sim, ".e1-3");
    assert!(!cold.is_empty());
    cold.iter().for_each(|path| sim.env().fs.remove(path).unwrap());
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    let (read, lost) = count(&store, "kept");
    assert!((400..1200).contains(&read), "{read}");
    assert_eq!(read + lost, 1200, "what is lost is not absent");
    assert_eq!(count(&store, "trimmed").0, 601);
    let log = store.open_log("kept").unwrap();
    assert_eq!(log.read(1201).unwrap(), None, "nothing was ever there");
    let name = cold[0].file_name().unwrap().to_str().unwrap();
    assert!(log.read(1).unwrap_err().to_string().contains(name));
    assert_eq!(scanned(&log), (read, lost));
    log.append(1201, b"goes on", Durability::Durable).unwrap();
    assert_eq!(log.read(1201).unwrap().as_deref(), Some(&b"goes on"[..]));
}

#[test]
fn a_lost_group_loses_only_its_records() {
    let sim = made(3);
    let path = retained(&sim).remove(0);
    assert!(sim.env().fs.open(&path, Access::Buffered).is_ok());
    sim.env().fs.remove(&path).unwrap();
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    let ((kept, lost), (trimmed, also)) = (count(&store, "kept"), count(&store, "trimmed"));
    assert!(lost + also > 0, "nothing was lost");
    assert_eq!((kept + lost, trimmed + also), (1200, 601));
}

#[test]
fn an_index_checkpoint_is_read_from_either_copy() {
    for nth in 0..2 {
        for lost in [true, false] {
            let sim = made(4);
            let copies = files(&sim, ".e1-2");
            assert_eq!(copies.len(), 2, "{copies:?}");
            match lost {
                true => sim.env().fs.remove(&copies[nth]).unwrap(),
                false => sim.flip_bit(&copies[nth], 5, 3).unwrap(),
            }
            let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
            assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (601, 0)));
            // The next checkpoint has both copies again.
            store.open_log("kept").unwrap().append(1201, b"goes on", Durability::Durable).unwrap();
            store.seal().unwrap();
            store.wait_idle().unwrap();
            let renewed = files(&sim, ".e1-2");
            assert_eq!(renewed.len(), 2, "{renewed:?}");
            assert!(copies.iter().all(|copy| !renewed.contains(copy)), "{renewed:?}");
        }
    }
}

#[test]
fn losing_both_index_checkpoint_copies_refuses_the_open() {
    let sim = made(4);
    let copies = files(&sim, ".e1-2");
    sim.env().fs.remove(&copies[0]).unwrap();
    sim.flip_bit(&copies[1], 5, 3).unwrap();
    let e = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap_err();
    assert!(e.is_corruption(), "{e}");
    for copy in copies {
        assert!(e.to_string().contains(copy.file_name().unwrap().to_str().unwrap()), "{e}");
    }
}

/// Bytes after the end of a file hide no record; verify reports them.
#[test]
fn bytes_appended_to_a_file_hide_no_record() {
    for (kind, more) in
        [(".e1-1", 1), (".e1-2", 1), (".e1-3", 1), (".log", 1), (".log", 4096), (".log", 5000)]
    {
        let sim = made(6);
        for file in files(&sim, kind) {
            let len = sim.env().fs.open(&file, Access::Buffered).unwrap().len().unwrap();
            sim.set_file_len(&file, len + more).unwrap();
        }
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        assert_eq!(count(&store, "kept"), (1200, 0), "{kind}");
        let log = store.open_log("kept").unwrap();
        assert_eq!(scanned(&log), (1200, 0), "{kind}");
        let told = store.verify().damages;
        let is_told =
            |damage: &lavalog::verify::Damage| damage.error.message().contains("follow the end of the file");
        assert!(kind == ".log" || told.iter().any(is_told), "{kind}: {told:?}");
        assert!(told.iter().all(|damage| damage.lost.is_empty()), "{kind}: {told:?}");
        log.append(1201, b"goes on", Durability::Durable).unwrap();
        drop(log);
        store.close().unwrap();
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        assert_eq!(store.open_log("kept").unwrap().read(1201).unwrap().as_deref(), Some(&b"goes on"[..]));
    }
}

#[test]
fn exchanged_index_checkpoint_copies_are_read() {
    let sim = made(7);
    let copies = files(&sim, ".e1-2");
    assert_eq!(copies.len(), 2, "{copies:?}");
    let bytes: Vec<Vec<u8>> = copies.iter().map(|copy| sim.read_file(copy).unwrap()).collect();
    sim.write_file(&copies[0], &bytes[1]).unwrap();
    sim.write_file(&copies[1], &bytes[0]).unwrap();
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    assert_eq!(count(&store, "kept"), (1200, 0));
    assert_eq!(store.verify().damages.len(), 2, "verify tells of both");
}
