//! A secondary engine that LavaKV does not know: its records, files and log batches persist.

use crate::common::*;
use base::codec::{Reader, put_varint};
use base::{Result, SeqNo};
use io::{Access, CreateOptions};
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{Db, Durability, ErrorKind, io};
use repair::RepairOptions;
use std::path::Path;
use std::sync::Arc;
use store::Store;
use store::commit::{Aging, Lane, LogAddress, LogTerms, Loggers};
use store::manifest::{
    Commit, Engine, EngineFile, EngineId, Engines, Handle, LogGroupMeta, Manifest, ManifestState, Record,
    StateBuilder,
};
use store::names;
use store::open::{OnLanes, StoreTerms};
use store::volumes::Volume;
use version::Kv;
use wal::{LogGroup, PreparedGroup, RecoveryMode, TenantId, Wal, WalOptions};

/// An engine whose state is a number and a floor.
#[derive(Debug)]
struct Stranger;

impl Engine for Stranger {
    const ID: EngineId = EngineId(7);
    const NAME: &'static str = "stranger";
    const FORMAT: u32 = 1;
    type State = (u64, SeqNo);
    type Edit = Option<(u64, SeqNo)>;

    fn empty() -> (u64, SeqNo) {
        (0, 0)
    }
    fn encode(edit: &Self::Edit) -> Vec<u8> {
        let mut out = Vec::new();
        edit.iter().flat_map(|(number, floor)| [number, floor]).for_each(|n| put_varint(&mut out, *n));
        out
    }
    fn decode(bytes: &[u8]) -> Result<Self::Edit> {
        let mut r = Reader::new(bytes);
        if r.is_empty() { Ok(None) } else { Ok(Some((r.varint()?, r.varint()?))) }
    }
    fn apply(state: &(u64, SeqNo), edit: &Self::Edit, _: &mut StateBuilder<'_>) -> Result<(u64, SeqNo)> {
        Ok(edit.unwrap_or(*state))
    }
    fn snapshot(state: &(u64, SeqNo)) -> Self::Edit {
        Some(*state)
    }
    fn verify(_: &(u64, SeqNo), _: &ManifestState) -> Result<()> {
        Ok(())
    }
    fn floor(state: &(u64, SeqNo)) -> SeqNo {
        state.1
    }
    fn describe(state: &(u64, SeqNo)) -> String {
        format!("{state:?}\n")
    }
    fn list(bytes: &[u8]) -> Result<Vec<String>> {
        Ok(vec![format!("{:?}", Self::decode(bytes)?)])
    }
}

fn manifest_in(sim: &SimEnv, dir: &str) -> (Arc<Manifest>, Handle<Stranger>) {
    let engines = Engines::of::<Kv>().with::<Stranger>();
    let manifest = Arc::new(Manifest::recover(&env(sim), Path::new(dir), false, &engines).unwrap());
    let handle = Handle::of(&manifest).unwrap();
    (manifest, handle)
}

/// Returns the stranger's batches in the log, in order.
fn batches(sim: &SimEnv, manifest: &Manifest) -> (Vec<Vec<u8>>, wal::RecoveryReport) {
    let (env, state) = (env(sim), manifest.state());
    let open = |group: &LogGroupMeta| LogGroup {
        ltn: group.ltn,
        uid: group.uid,
        file: env.fs.open_in_place(&Path::new(DIR).join(names::log(group.file)), Access::Buffered).unwrap(),
        sealed_end: group.sealed_end,
        begin: group.begin,
    };
    let groups: Vec<LogGroup> = state.log_groups.values().filter(|g| !g.discarded).map(open).collect();
    let mut found = Vec::new();
    let mut take = wal::only(TenantId(7), |_, bytes: &[u8]| {
        found.push(bytes.to_vec());
        Ok(())
    });
    let mode = RecoveryMode::ReadWrite;
    let report = wal::recover(&env, Path::new(DIR), state.uid, &groups, mode, &mut take).unwrap();
    drop(take);
    (found, report)
}

/// A session of the stranger alone that writes these payloads to the log.
fn write(sim: &SimEnv, payloads: &[&[u8]]) {
    let (manifest, _) = manifest_in(sim, DIR);
    let (_, report) = batches(sim, &manifest);
    let (env, file, uid) = (env(sim), manifest.allocate_file_number(), env(sim).new_uid());
    let path = Path::new(DIR).join(names::log(file));
    let len = 128 << 10;
    let in_place = env.fs.create_in_place(&path, len, Access::Buffered).unwrap();
    manifest.files().sync_dir().unwrap();
    let mut ltn = 0;
    let begin = |state: &ManifestState| {
        ltn = state.next_ltn;
        let mut records: Vec<Record> =
            report.discarded.iter().map(|&ltn| Record::RemoveLogGroup { ltn }).collect();
        records.extend(report.sealed.map(|(ltn, end_lpn)| Record::SealLogGroup { ltn, end_lpn }));
        let group = LogGroupMeta { ltn, file, len, uid: Some(uid), ..Default::default() };
        records.push(Record::AddLogGroup { group });
        Ok(records)
    };
    manifest.commit_store(begin, |_| ()).unwrap();
    let first = PreparedGroup { ltn, uid, file: in_place };
    let options = WalOptions { group_len: len, tail_buffer_len: 64 << 10, ..Default::default() };
    let (store, dir) = (manifest.store(), Path::new(DIR));
    let log = Wal::start(&env, dir, options, store, report.next_lpn, first, report.history).unwrap();
    let (next, edit) = (report.seqs.last(TenantId(7)).unwrap_or(0) + 1, manifest.durable_edit());
    for (seq, payload) in (next..).zip(payloads) {
        log.append(TenantId(7), &[payload], seq, seq, Durability::Durable, edit).unwrap();
    }
    log.close().unwrap();
    manifest.commits().confirm().unwrap();
}

fn commit(sim: &SimEnv, edit: (u64, SeqNo), files: &[u64]) {
    let (_manifest, handle) = manifest_in(sim, DIR);
    let file = |&number: &u64| Record::AddEngineFile {
        engine: Stranger::ID,
        file: EngineFile { number, kind: 0, volume: Volume::DIRECTORY },
    };
    handle.commit(Commit { store: files.iter().map(file).collect(), own: Some(edit) }).unwrap();
    handle.commits().confirm().unwrap();
}

fn make(sim: &SimEnv, name: &str, bytes: &[u8]) {
    let mut file = env(sim).fs.create(&Path::new(DIR).join(name), &CreateOptions::default()).unwrap();
    file.append(bytes).unwrap();
    file.sync(io::SyncKind::Full).unwrap();
    env(sim).fs.sync_dir(Path::new(DIR)).unwrap();
}

fn names_in(sim: &SimEnv, dir: &str) -> Vec<String> {
    env(sim).fs.list(Path::new(dir)).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// LavaKV opens the store, writes through several groups of the log, flushes and closes it.
fn use_store(sim: &SimEnv, model: &mut Model, round: u64) -> Db {
    let db = open(sim);
    assert!(contents(&db) == *model);
    fill(&db, model, 0..1500, round);
    db.flush().unwrap();
    settle(&db);
    db
}

#[test]
fn records_and_files_of_an_unknown_engine_stay() {
    let (sim, mut model) = (SimEnv::new(1), Model::new());
    use_store(&sim, &mut model, 0).close().unwrap();
    commit(&sim, (41, 0), &[]);
    make(&sim, "000000900000.e7-0", &[7; 9000]);
    // Not listed yet: the stranger may have been about to list it.
    make(&sim, "000000900001.e7-0", b"on its way");
    commit(&sim, (42, 5), &[900_000]);
    for round in 1..5 {
        let db = use_store(&sim, &mut model, round);
        assert!(db.space().unwrap().engines_bytes >= 9000);
        db.close().unwrap();
        let names = names_in(&sim, DIR);
        assert!(["000000900000.e7-0", "000000900001.e7-0"].iter().all(|n| names.iter().any(|m| m == n)));
    }
    let db = open(&sim);
    db.checkpoint("/copy").unwrap();
    db.close().unwrap();
    let copied = env(&sim).fs.read_all(Path::new("/copy/000000900000.e7-0"), 1 << 20).unwrap();
    assert_eq!(copied, [7; 9000]);
    for dir in [DIR, "/copy"] {
        let (_manifest, handle) = manifest_in(&sim, dir);
        assert_eq!(*handle.state(), (42, 5), "{dir}");
        let state = handle.state();
        assert!(state.store.engines.files().map(|(_, file, _)| file.number).eq([900_000]), "{dir}");
    }
    assert!(contents(&Db::open_in(env(&sim), "/copy", small()).unwrap()) == model);
}

#[test]
fn a_repair_that_would_lose_engine_files_is_refused() {
    let (sim, mut model) = (SimEnv::new(2), Model::new());
    use_store(&sim, &mut model, 0).close().unwrap();
    commit(&sim, (41, 0), &[]);
    let repair = |sim: &SimEnv| {
        let options = RepairOptions { options: small(), dry_run: false, ..RepairOptions::default() };
        repair::repair_in(&env(sim), DIR, &env(sim), "/repaired", &options).unwrap_err()
    };
    let e = repair(&sim);
    assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("stranger"), "{e}");
    // In a damaged manifest the records behind the damage name the engine, or else its files do.
    make(&sim, "000000900000.e7-0", &[7; 9000]);
    let name = names_in(&sim, DIR).into_iter().find(|name| name.starts_with("MANIFEST")).unwrap();
    env(&sim).fs.remove(&Path::new(DIR).join(names::CURRENT)).unwrap();
    let bytes = env(&sim).fs.read_all(&Path::new(DIR).join(&name), 1 << 20).unwrap();
    env(&sim).fs.remove(&Path::new(DIR).join(&name)).unwrap();
    let mut damaged = bytes.clone();
    damaged[90] ^= 1;
    make(&sim, &name, &damaged);
    let e = repair(&sim);
    assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("engine "), "{e}");
}

#[test]
fn log_batches_of_an_unknown_engine_stay_until_its_floor() {
    let (sim, mut model) = (SimEnv::new(3), Model::new());
    use_store(&sim, &mut model, 0).close().unwrap();
    commit(&sim, (1, 1), &[]);
    let payloads: [&[u8]; 3] = [b"one", b"two", b"three"];
    write(&sim, &payloads);
    for round in 1..20 {
        let db = use_store(&sim, &mut model, round);
        let e = db.checkpoint("/copy").unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("stranger"), "{e}");
        assert!(!names_in(&sim, "/").iter().any(|name| name == "copy"), "nothing was begun");
        db.close().unwrap();
    }
    let (manifest, _) = manifest_in(&sim, DIR);
    let listed = manifest.state().log_groups.len();
    assert_eq!(batches(&sim, &manifest).0, payloads);
    drop(manifest);
    commit(&sim, (1, 3), &[]);
    use_store(&sim, &mut model, 20).close().unwrap();
    let (manifest, _) = manifest_in(&sim, DIR);
    assert_eq!(batches(&sim, &manifest).0, payloads, "the last is above the floor");
    drop(manifest);
    commit(&sim, (1, 4), &[]);
    use_store(&sim, &mut model, 21).close().unwrap();
    let db = open(&sim);
    db.checkpoint("/copy").unwrap();
    db.close().unwrap();
    let (manifest, _) = manifest_in(&sim, DIR);
    assert!(batches(&sim, &manifest).0.is_empty());
    assert!(manifest.state().log_groups.len() < listed, "{listed} groups before");
}

/// A session of the stranger alone with records in its lane: two groups are retained, one is
/// replayed, and the last record is only staged. Returns the places and the records.
fn keep_records(sim: &SimEnv) -> Vec<(LogAddress, Vec<u8>)> {
    let store = open_lanes(sim, &mut |_, _| Ok(()));
    let handle = Handle::<Stranger>::of(store.manifest()).unwrap();
    handle.commit(Commit::own(Some((1, 3)))).unwrap();
    let (log, mut records) = (store.lane(Lane::LOG).unwrap(), Vec::new());
    for seq in 1..=4 {
        let bytes = vec![seq as u8; 6000];
        let (_, place) = log.put_placed(TenantId(7), &[&bytes], (seq, seq), Durability::Buffered).unwrap();
        records.push((place, bytes));
        if seq < 4 {
            log.upkeep().seal_active().unwrap();
        }
    }
    log.floors().tell(TenantId(7), 3);
    log.floors().hint();
    store.tend().unwrap();
    log.stored().retain(&[records[0].0.ltn, records[1].0.ltn], |edit| log.stored().commit(edit)).unwrap();
    records
}

fn open_lanes(sim: &SimEnv, replay: &mut OnLanes<'_>) -> Store {
    let terms = LogTerms {
        access: Access::Buffered,
        group_bytes: 64 << 10,
        free_groups_max: 1,
        loggers: Loggers::default(),
        retained_open_max: 8,
        aging: Aging::default(),
    };
    let terms = StoreTerms { log: terms, records: Some(terms) };
    Store::open_lanes(&env(sim), Path::new(DIR), terms, &Engines::of::<Stranger>(), replay).unwrap()
}

#[test]
fn the_lane_of_an_unknown_engine_stays_even_if_damaged() {
    let (sim, mut model) = (SimEnv::new(5), Model::new());
    use_store(&sim, &mut model, 0).close().unwrap();
    let records = keep_records(&sim);
    // Without a close: the last record is in the staging file of the lane.
    let path = |ltn: u64| {
        let state = Manifest::recover(&env(&sim), Path::new(DIR), true, &Engines::default()).unwrap().state();
        Path::new(DIR).join(names::log(state.log_groups.get(&ltn).unwrap().file))
    };
    let paths = records.iter().map(|(place, _)| path(place.ltn)).collect::<Vec<_>>();
    env(&sim).fs.remove(&paths[0]).unwrap();
    for round in 1..4 {
        let db = use_store(&sim, &mut model, round);
        assert!(db.space().unwrap().engines_bytes >= 3 * 6000);
        let e = db.checkpoint("/copy").unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("stranger"), "{e}");
        let report = db.verify().unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        db.close().unwrap();
        let read_only = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
        assert!(contents(&read_only) == model);
    }
    let options = RepairOptions { options: small(), dry_run: false, ..RepairOptions::default() };
    let e = repair::repair_in(&env(&sim), DIR, &env(&sim), "/repaired", &options).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("stranger"), "{e}");
    let mut replayed = Vec::new();
    let store = open_lanes(&sim, &mut |lane, batch| {
        replayed.extend((lane == Lane::LOG).then(|| (batch.place, batch.bytes.to_vec())));
        Ok(())
    });
    assert!(replayed == records[2..]);
    let log = store.lane(Lane::LOG).unwrap();
    for (i, (place, bytes)) in records.iter().enumerate() {
        let mut out = Vec::new();
        match log.reader().read(*place, bytes.len(), &mut out) {
            Ok(()) => assert!(i > 0 && out == *bytes),
            Err(e) => assert!(i == 0 && e.is_corruption() && e.file() == Some(&paths[0]), "{e}"),
        }
    }
}

/// LavaKV removes the engine from an open store: its records, its files, and its log groups, which
/// may then be released.
#[test]
fn an_unknown_engine_is_removed_by_name() {
    let (sim, mut model) = (SimEnv::new(5), Model::new());
    use_store(&sim, &mut model, 0).close().unwrap();
    commit(&sim, (1, 1), &[]);
    make(&sim, "000000900000.e7-0", &[7; 9000]);
    commit(&sim, (1, 1), &[900_000]);
    write(&sim, &[b"one", b"two"]);
    let (listed, held) = {
        let (manifest, _) = manifest_in(&sim, DIR);
        (manifest.state().log_groups.len(), batches(&sim, &manifest).0.len())
    };
    let db = open(&sim);
    fill(&db, &mut model, 0..3000, 1);
    let engines = db.engines().unwrap();
    let seen: Vec<_> =
        engines.iter().map(|engine| (&engine.name[..], engine.is_open, engine.files > 0)).collect();
    assert_eq!(seen, [("lavakv", true, true), ("stranger", false, true)]);
    assert!(engines[1].files == 1 && engines[1].bytes >= 9000 && engines[0].bytes > 9000, "{engines:?}");
    fails(db.remove_engine("nobody"), ErrorKind::NotFound);
    fails(db.remove_engine("lavakv"), ErrorKind::Unsupported);
    let reader = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    assert_eq!(reader.engines().unwrap().len(), 2);
    fails(reader.remove_engine("stranger"), ErrorKind::ReadOnly);
    db.checkpoint("/copy").unwrap_err();
    db.remove_engine("stranger").unwrap();
    fails(db.remove_engine("stranger"), ErrorKind::NotFound);
    assert_eq!(db.engines().unwrap().len(), 1);
    assert!(!names_in(&sim, DIR).iter().any(|name| name.ends_with(".e7-0")));
    db.flush().unwrap();
    settle(&db);
    db.checkpoint("/copy").unwrap();
    assert!(contents(&db) == model);
    db.close().unwrap();
    let state = Manifest::recover(&env(&sim), Path::new(DIR), true, &Engines::of::<Kv>()).unwrap().state();
    assert!(
        held == 2 && state.log_groups.len() <= listed,
        "{} groups, {listed} before",
        state.log_groups.len()
    );
    assert!(contents(&open(&sim)) == model);
}

/// After any crash the engine is there or gone, and its files with it.
#[test]
fn a_crash_during_engine_removal_leaves_all_or_nothing() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = (SimEnv::new(6), Model::new());
    use_store(&sim, &mut model, 0).close().unwrap();
    make(&sim, "000000900000.e7-0", &[7; 9000]);
    commit(&sim, (1, 1), &[900_000]);
    let db = open(&sim);
    let begun = sim.op_count();
    db.remove_engine("stranger").unwrap();
    let record = sim.record();
    let (mut kept, mut gone) = (0, 0);
    for op in record.mutations().into_iter().filter(|op| *op >= begun) {
        for kind in [CrashKind::ProcessKill, CrashKind::PowerLoss] {
            let after = record.crash_at(op, kind, op);
            let db = open(&after);
            let there = db.engines().unwrap().len() == 2;
            let file = names_in(&after, DIR).contains(&"000000900000.e7-0".to_owned());
            assert_eq!(there, file, "{kind:?} at {op}");
            assert!(contents(&db) == model);
            (kept, gone) = (kept + u64::from(there), gone + u64::from(!there));
        }
    }
    assert!(kept > 0 && gone > 0, "{kept} kept, {gone} gone");
}

/// Another engine creates or opens the store after any interrupted creation by LavaKV, without
/// LavaKV.
#[test]
fn an_engine_completes_a_store_half_created_by_lavakv() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let sim = SimEnv::new(4);
    open(&sim).close().unwrap();
    let record = sim.record();
    for op in record.mutations() {
        let after = record.crash_at(op, CrashKind::PowerLoss, op);
        let (env, terms) = (
            env(&after),
            LogTerms {
                access: Access::Buffered,
                group_bytes: 64 << 10,
                free_groups_max: 1,
                loggers: Loggers::default(),
                retained_open_max: 8,
                aging: Aging::default(),
            },
        );
        let engines = Engines::of::<Stranger>();
        let opened = store::Store::open(&env, Path::new(DIR), terms, &engines, &mut |_, _, _| Ok(()));
        let opened = opened.unwrap_or_else(|e| panic!("operation {op}: {e}"));
        opened.close().unwrap();
        drop(opened);
        let db = open(&after);
        db.put(b"k", b"v").unwrap();
    }
}

/// A read-only open does not create missing families, and their absence is no damage.
#[test]
fn a_store_of_another_engine_has_no_families_until_written() {
    let sim = SimEnv::new(5);
    let terms = LogTerms {
        access: Access::Buffered,
        group_bytes: 64 << 10,
        free_groups_max: 1,
        loggers: Loggers::default(),
        retained_open_max: 8,
        aging: Aging::default(),
    };
    let (env, engines) = (env(&sim), Engines::of::<Stranger>());
    let made = store::Store::open(&env, Path::new(DIR), terms, &engines, &mut |_, _, _| Ok(())).unwrap();
    made.close().unwrap();
    drop(made);
    let read_only = || Db::open_read_only_in(env.clone(), DIR, small());
    let e = read_only().map(drop).unwrap_err();
    assert_eq!((e.kind(), e.file()), (ErrorKind::NotFound, Some(Path::new(DIR))), "{e}");
    assert_eq!(
        e.message(),
        "there are no column families in this store: another engine made it; open it with that engine"
    );
    open(&sim).put(b"k", b"v").unwrap();
    assert_eq!(read_only().unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}
