use crate::model::options;
use io::Access;
use io::sim::{CrashKind, OpKind, SimEnv};
use lavalog::{Durability, LogStore, Options};
use std::path::{Path, PathBuf};

pub const DIR: &str = "/logs";

/// A store with records in groups that are storage, and in a cold file. Closed.
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
            store.settle().unwrap();
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

/// The files of the groups that are storage, oldest first.
fn retained(sim: &SimEnv) -> Vec<PathBuf> {
    let engines = store::manifest::Engines::default();
    let manifest = store::manifest::Manifest::recover(&sim.env(), Path::new(DIR), true, &engines).unwrap();
    let state = manifest.state();
    let groups = state.log_groups.values().filter(|group| group.retained_bytes.is_some());
    groups.map(|group| io::fs::join(Path::new(DIR), &store::names::log(group.file))).collect()
}

/// How many records of a log are read, and how many are damaged.
fn count(store: &LogStore, name: &str) -> (usize, usize) {
    let log = store.open_log(name).unwrap();
    let found: Vec<_> = (1..=1200).map(|lsn| log.read(lsn)).collect();
    for record in found.iter().filter_map(|record| record.as_ref().err()) {
        assert!(record.is_corruption() || record.kind() == base::ErrorKind::Trimmed, "{record}");
    }
    let damaged = found.iter().filter(|record| record.as_ref().is_err_and(|e| e.is_corruption()));
    (found.iter().filter(|record| matches!(record, Ok(Some(_)))).count(), damaged.count())
}

/// How many records a scan has, and how many LSNs it had to skip, as they were damaged.
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

/// Records of a cold file are read several at a time; one that is damaged costs the scan that one.
#[test]
fn a_damaged_record_of_a_cold_file_costs_a_scan_no_other() {
    let sim = made(6);
    let cold = files(&sim, ".e1-3").remove(0);
    sim.flip_bit(&cold, 20_000, 2).unwrap();
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    assert_eq!(count(&store, "kept"), (1199, 1));
    assert_eq!(scanned(&store.open_log("kept").unwrap()), (1199, 1));
}

/// Of a record without bytes nothing is read, so none can be damaged: a scan and a read say the same.
#[test]
fn an_empty_record_among_damaged_ones_of_a_cold_file_is_there_for_a_scan_as_well() {
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
            store.settle().unwrap();
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
fn a_lost_index_file_is_made_again_from_its_group() {
    let sim = made(1);
    let indexes = files(&sim, ".e1-1");
    assert!(indexes.len() >= 2, "{indexes:?}");
    indexes.iter().for_each(|path| sim.env().fs.remove(path).unwrap());
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    assert_eq!(count(&store, "kept"), (1200, 0));
    assert_eq!(count(&store, "trimmed"), (601, 0));
}

/// A page of a group that is replayed, and was durable: what is in it may be a trim, a truncation or a deletion as well as a record, so
/// nothing behind it can be right. As with keys the store is not opened for writing, says where the damage is and what can be
/// done, and is left as it is. A torn end is none.
#[test]
fn a_damaged_page_of_a_replayed_group_refuses_the_opening_by_file_and_offset() {
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
        let said = e.to_string();
        assert!(said.contains("offset") && said.contains("read-only") && said.contains("repair"), "{said}");
    }
    assert_eq!(sim.durable_hash(), before, "the refused store was changed");
    let store = LogStore::open(&torn.env(), Path::new(DIR), &options()).unwrap();
    assert_eq!(store.open_log("log").unwrap().read(200).unwrap(), Some(vec![7; 300]));
}

/// Rows are a copy of what the group says: a block of them that is damaged costs no record, and is made again once.
#[test]
fn damaged_blocks_of_index_files_are_made_again_from_their_groups_while_the_store_runs() {
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
        store.settle().unwrap();
        let left = files(&sim, ".e1-1").iter().filter(|path| indexes.contains(path)).count();
        assert!(left as u64 + remade <= indexes.len() as u64, "{left} are left");
        assert_eq!(verified.damages.is_empty(), left == 0, "{verified:?}");
        store.close().unwrap();
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (601, 0)));
    }
}

/// What a file system loses under a store that is open, or all of a file but its blocks: the group has the rows, and there is a new
/// file by the time that somebody has asked for a record.
#[test]
fn an_index_file_that_is_lost_while_the_store_is_open_is_made_again() {
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
        // Of one of them nobody asks for anything alive before it is changed.
        store.open_log("trimmed").unwrap().truncate_after(1150, Durability::Buffered).unwrap();
        store.open_log("kept").unwrap().append(1201, b"new", Durability::Durable).unwrap();
        match scans {
            true => assert_eq!(scanned(&store.open_log("kept").unwrap()), (1201, 0)),
            false => assert_eq!(count(&store, "kept"), (1200, 0)),
        }
        assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (551, 0)));
        let remade = store.statistics().remade_files;
        assert!(remade > 0 && remade <= indexes.len() as u64, "{remade} of {indexes:?}");
        store.settle().unwrap();
        store.close().unwrap();
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        store.settle().unwrap();
        // Those of which nothing was alive were left for this.
        assert!(store.statistics().remade_files + remade <= indexes.len() as u64);
        assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (551, 0)));
        let verified = store.verify();
        assert!(verified.damages.is_empty(), "{verified:?}");
    }
}

/// Nobody reads what is collected before it is: the file is missed by the job.
#[test]
fn a_lost_index_file_stops_no_collection() {
    let sim = made(10);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    files(&sim, ".e1-1").iter().for_each(|path| sim.env().fs.remove(path).unwrap());
    store.open_log("trimmed").unwrap().trim(1150).unwrap();
    store.settle().unwrap();
    assert!(store.statistics().remade_files > 0);
    store.open_log("trimmed").unwrap().append(1201, b"new", Durability::Durable).unwrap();
    assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (51, 0)));
}

/// As with damaged blocks, the group may be damaged as well: its other records are there at the next open, and the file is not tried again.
#[test]
fn rows_of_a_damaged_group_are_not_made_again_while_the_store_runs() {
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

/// Of records with one LSN in a group the last is in its rows, also when they are made again.
#[test]
fn rows_that_are_made_again_lead_to_the_record_that_was_written_last() {
    let sim = SimEnv::new(8);
    // Nothing is collected.
    let options = Options { garbage_percent: 100, ..options() };
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let log = store.create_log("log").unwrap();
    (1..=10).for_each(|lsn| log.append(lsn, b"first", Durability::Buffered).unwrap());
    log.truncate_after(5, Durability::Buffered).unwrap();
    (6..=8).for_each(|lsn| log.append(lsn, b"later", Durability::Buffered).unwrap());
    store.seal().unwrap();
    store.settle().unwrap();
    drop(log);
    store.close().unwrap();
    sim.flip_bit(&files(&sim, ".e1-1")[0], 9, 1).unwrap();
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let read = |lsn| store.open_log("log").unwrap().read(lsn).unwrap();
    assert_eq!((read(5), read(6)), (Some(b"first".to_vec()), Some(b"later".to_vec())));
    assert_eq!((read(8), read(9), store.statistics().remade_files), (Some(b"later".to_vec()), None, 1));
}

/// Where the group is damaged as well, it stays as it was: what is there is read, what is not says so, and nobody tries for ever.
#[test]
fn damaged_rows_of_a_damaged_group_are_lost_and_tried_once() {
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

/// A group whose index file is lost is read at one open, not at each.
#[test]
fn a_lost_index_file_is_written_anew_and_the_next_open_reads_no_group() {
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
    store.settle().unwrap();
    assert_eq!(store.statistics().remade_files, indexes.len() as u64);
    assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (601, 0)));
    store.close().unwrap();
    // Those of groups that were sealed meanwhile beside them.
    assert!(files(&sim, ".e1-1").len() >= indexes.len());
    let (again, store) = opening(&sim);
    assert_eq!(again, whole, "reads of groups that are storage");
    assert_eq!((count(&store, "kept"), count(&store, "trimmed")), ((1200, 0), (601, 0)));
    assert!(store.verify().damages.is_empty());
}

/// What a truncation took before a group became storage is in none of its files, and still in the group: it stays gone when the rows are
/// made again from there, also if the truncation is in another group.
#[test]
fn what_was_truncated_does_not_come_back_with_a_lost_index_file() {
    // Nothing is collected.
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
        store.settle().unwrap();
        let index = files(&sim, ".e1-1");
        assert_eq!(index.len(), 1);
        store.seal().unwrap();
        store.settle().unwrap();
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
            // Another group, with a checkpoint of its own.
            store
                .create_log(&format!("other {opening}"))
                .unwrap()
                .append(1, b"x", Durability::Durable)
                .unwrap();
            store.seal().unwrap();
            store.settle().unwrap();
            drop(log);
            store.close().unwrap();
        }
    }
}

#[test]
fn a_lost_cold_file_costs_its_records_and_no_others() {
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
fn a_lost_group_costs_its_records_and_no_others() {
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
fn a_checkpoint_is_read_from_either_copy() {
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
            // The next has both copies again.
            store.open_log("kept").unwrap().append(1201, b"goes on", Durability::Durable).unwrap();
            store.seal().unwrap();
            store.settle().unwrap();
            let renewed = files(&sim, ".e1-2");
            assert_eq!(renewed.len(), 2, "{renewed:?}");
            assert!(copies.iter().all(|copy| !renewed.contains(copy)), "{renewed:?}");
        }
    }
}

#[test]
fn the_loss_of_both_copies_of_the_checkpoint_refuses_the_opening_by_their_names() {
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

/// Bytes behind the end of a file hide nothing of it; verify tells of them.
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
        let is_told = |damage: &lavalog::verify::Damage| damage.error.message().contains("behind its end");
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
fn exchanged_copies_of_the_checkpoint_are_read() {
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
