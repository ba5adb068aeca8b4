//! What the parts below refuse, on a store that has a group with an index file.

use super::*;
use crate::entry::Source;
use crate::files::RowFile;
use crate::manifest::{FileMeta, Role, Step, commit};
use io::sim::SimEnv;

/// A store with three records in a group that is storage; and its index file.
fn sealed() -> (LogStore, FileMeta) {
    sealed_on(&SimEnv::new(1))
}

fn sealed_on(sim: &SimEnv) -> (LogStore, FileMeta) {
    let options = Options { group_bytes: Some(256 << 10), ..Options::default() };
    let store = LogStore::open(&sim.env(), Path::new("/logs"), &options).unwrap();
    let log = store.create_log("a").unwrap();
    (1..=3).for_each(|lsn| log.append(lsn, &[7; 100], Durability::Durable).unwrap());
    store.seal().unwrap();
    store.settle().unwrap();
    let state = store.core().store.manifest.state();
    let index = state.files.values().find(|file| matches!(file.role, Role::Index { .. })).copied().unwrap();
    (store, index)
}

#[test]
fn an_index_of_another_group_or_a_block_without_the_record_is_damage() {
    let (store, index) = sealed();
    let Role::Index { ltn } = index.role else { unreachable!("{index:?}") };
    let open = |role| RowFile::open(store.core().context(), &FileMeta { role, ..index });
    let (_, directory) = open(index.role).unwrap();
    let e = open(Role::Index { ltn: ltn + 1 }).unwrap_err();
    let why = format!("an index of group {ltn} where that of group {} belongs", ltn + 1);
    assert!(e.is_corruption() && e.message() == why && e.file().is_some(), "{e}");
    let rows = &directory.logs[0];
    let find = |lsns| {
        let found = store.core().records.rows().rows(Source::Group(ltn), rows.log, &lsns, rows.blocks[0])?;
        Ok(found.iter().map(|row| row.lsn).collect::<Vec<_>>())
    };
    assert_eq!(find(3..=3).unwrap(), [3]);
    assert_eq!(find(1..=2).unwrap(), [1, 2]);
    for lsns in [4..=4, 3..=4, 0..=3] {
        let e: Error = find(lsns).unwrap_err();
        assert!(e.is_corruption() && e.message().contains("are not in the block of"), "{e}");
    }
}

#[test]
fn a_floor_never_sinks() {
    let (store, _) = sealed();
    let manifest = &store.core().store.manifest;
    let floor = manifest.state().floor;
    assert!(floor > 1);
    let step = Step { floor: Some(floor - 1), ..Step::default() };
    let e = manifest.commit(commit(step, Vec::new())).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.message().contains("the floor") && manifest.state().floor == floor, "{e}");
}

/// Between the look at the index and the read of the block the file was lost and another has come, with other blocks in its places.
#[test]
fn a_block_that_was_found_before_rows_were_taken_in_is_looked_for_again() {
    let (store, index) = sealed();
    let (core, source) = (store.core(), index.source().unwrap());
    let (_, directory) = RowFile::open(core.context(), &index).unwrap();
    let rows = &directory.logs[0];
    let then = core.catalog.view().taken_in();
    let read = |taken_in| core.records.rows_of((source, taken_in), rows.log, &(1..=1), rows.blocks[0]);
    assert_eq!(read(then).unwrap()[0].lsn, 1);
    core.catalog.edit().took_in();
    assert_eq!(read(then).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(read(then + 1).unwrap()[0].lsn, 1);
}

/// The job that rewrites a damaged index file cannot start: a checkpoint keeps groups in place, or the disk is full.
#[test]
fn a_damaged_block_costs_no_record_while_no_job_can_rewrite_it() {
    for is_full in [false, true] {
        let sim = SimEnv::new(1);
        let (store, index) = sealed_on(&sim);
        let (core, log) = (store.core(), store.open_log("a").unwrap());
        let path = core.context().path(&index.name());
        sim.flip_bit(&path, 9, 3).unwrap();
        let hold = (!is_full).then(|| core.moves.hold().unwrap());
        if is_full {
            let full = Error::new(ErrorKind::NoSpace, "full");
            core.context().health.no_space_at(core.context().now_ns(), &full);
        }
        let scanned: Vec<_> = log.scan(1).map(|record| record.unwrap()).collect();
        assert_eq!(scanned, [1, 2, 3].map(|lsn| (lsn, vec![7; 100])), "full: {is_full}");
        // One reader waits for the job. The later ones know that it is late.
        let begun_ns = sim.now_ns();
        (1..=3).for_each(|lsn| assert_eq!(log.read(lsn).unwrap(), Some(vec![7; 100]), "full: {is_full}"));
        let took_ms = (sim.now_ns() - begun_ns) / 1_000_000;
        assert!(took_ms < 1000, "full: {is_full}: {took_ms} ms");
        assert_eq!(store.statistics().remade_files, 0);
        drop(hold);
        if !is_full {
            store.settle().unwrap();
            assert_eq!((log.read(3).unwrap(), store.statistics().remade_files), (Some(vec![7; 100]), 1));
        }
    }
}

/// As if a collection had moved it each time: the index leads to a file of rows that is not known any more.
#[test]
fn who_never_finds_a_record_where_it_was_is_told_to_read_again() {
    let (store, index) = sealed();
    let log = store.open_log("a").unwrap();
    store.core().records.rows().forget(index.source().unwrap());
    let read = log.read(1).unwrap_err();
    let scanned = log.scan(1).read_next().unwrap_err();
    for e in [read, scanned] {
        assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
        assert!(e.message().contains("moved again and again"), "{e}");
    }
    store.core().records.rows().add(&index);
    assert_eq!(log.read(1).unwrap().as_deref(), Some(&[7; 100][..]));
}

/// What was looked up goes while it is read: by a trim, by a truncation, with the log; or it is moved.
#[test]
fn what_fails_is_looked_up_again_and_is_damage_only_if_it_is_still_there() {
    let damaged = || Error::corruption("damaged");
    let of = |store: &LogStore, lsn: Lsn, read: &mut dyn FnMut(u64) -> Result<()>| {
        let (core, id) = (store.core().clone(), store.open_log("a")?.id());
        let mut reads = 0;
        let look_up = |logs: &crate::logs::Logs| logs.log(id)?.admit(lsn);
        core.records
            .read_found(
                look_up,
                |then, now| then == now,
                |_| {
                    reads += 1;
                    read(reads)
                },
            )
            .map(|found| found.map(|()| reads))
    };
    let (store, index) = sealed();
    let log = store.open_log("a").unwrap();
    assert_eq!(of(&store, 9, &mut |_| Err(damaged())).unwrap(), None, "there is none");
    let e = of(&store, 3, &mut |reads| if reads < 4 { Err(damaged()) } else { Ok(()) }).unwrap_err();
    assert!(e.is_corruption(), "it is where it was: {e}");
    let gone = |reads| if reads < 4 { Err(Error::not_found("moved")) } else { Ok(()) };
    assert_eq!(of(&store, 3, &mut |reads| gone(reads)).unwrap(), Some(4));
    // Into memory: the rows of its file are lost.
    let rows: Vec<crate::entry::Entry> =
        match store.core().records.rows().of(index.source().unwrap()).unwrap() {
            RowFile::Index(file) => {
                let (_, directory) = RowFile::open(store.core().context(), &index).unwrap();
                file.block(log.id(), directory.logs[0].blocks[0]).unwrap()
            }
            RowFile::Cold(file) => panic!("{file:?}"),
        };
    let Role::Index { ltn } = index.role else { unreachable!("{index:?}") };
    let moves = of(&store, 2, &mut |reads| {
        if reads > 1 {
            return Ok(());
        }
        assert!(store.core().catalog.edit().take_in(ltn, [(log.id(), &rows[..])]));
        Err(damaged())
    });
    assert_eq!(moves.unwrap(), Some(2), "it is read where it is by then");
    let e = of(&store, 1, &mut |_| log.trim(2).and_then(|()| Err(damaged()))).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Trimmed, "{e}");
    let truncates = || log.truncate_after(2, Durability::Buffered).and_then(|()| Err(damaged()));
    assert_eq!(of(&store, 3, &mut |_| truncates()).unwrap(), None);
    let e = of(&store, 2, &mut |_| store.delete_log("a").and_then(|()| Err(damaged()))).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
}

/// What a trim takes is taken out of the index some at a time: a scan begins behind it at once.
#[test]
fn a_scan_begins_at_the_trim_while_the_index_has_what_is_below() {
    let options = Options { group_bytes: Some(256 << 10), ..Options::default() };
    let store = LogStore::open(&SimEnv::new(1).env(), Path::new("/logs"), &options).unwrap();
    let log = store.create_log("a").unwrap();
    for lsn in 1..=12 {
        log.append(lsn, &[lsn as u8; 100], Durability::Durable).unwrap();
        if lsn % 2 == 0 {
            store.seal().unwrap();
            store.settle().unwrap();
        }
    }
    // As while whoever trims is still at it.
    let trim = Op::Trim { log: log.id(), below: 11 };
    let mut logs = store.core().catalog.edit();
    logs.apply(1_000, &trim, crate::logs::GroupPlace { ltn: 0, at: 0 }).unwrap();
    assert!(logs.has_to_cut(), "all of it went at once: nothing is tested");
    drop(logs);
    let lsns = |from: Lsn| log.scan(from).map(|record| record.unwrap().0).collect::<Vec<_>>();
    assert_eq!((lsns(0), lsns(11)), (vec![11, 12], vec![11, 12]));
}

/// Whatever poisons the store, those who wait for the log without a thread are told: nobody syncs for them any more.
#[test]
fn a_poisoned_store_refuses_appends_in_flight() {
    let (store, _) = sealed();
    let mut append = store.open_log("a").unwrap().append_async(4, b"x").unwrap();
    assert!(append.take().is_none());
    store.core().context().health.poison(&Error::new(ErrorKind::Io, "the manifest, say"));
    for _ in 0..10 {
        store.step();
    }
    assert_eq!(append.take().unwrap().unwrap_err().kind(), ErrorKind::Poisoned);
}
