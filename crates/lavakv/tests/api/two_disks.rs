//! The log on a tier of its own: how a fast tier is chosen, added and returned, and the reports
//! when it is missing.

use crate::common::{DIR, Model, because, contents, fill, key, refused, settle, skipped_on_lavafs, small};
use lavastore_lavakv::fast_tier::{detach_fast_tier, joined};
use lavastore_lavakv::io::{Access, CreateOptions, SyncKind};
use lavastore_lavakv::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{DamagedFiles, Db, Durability, Env, ErrorKind, Options, Result};
use repair::RepairOptions;
use std::path::{Path, PathBuf};

pub(crate) const SPEED: &str = "/speed";

fn options(speed: Option<&str>) -> Options {
    Options { fast_tier: speed.map(PathBuf::from), durability: Durability::Durable, ..small() }
}

fn open(sim: &SimEnv) -> Result<Db> {
    Db::open_in(sim.env(), DIR, options(Some(SPEED)))
}

fn open_alone(sim: &SimEnv) -> Result<Db> {
    Db::open_in(sim.env(), DIR, options(None))
}

pub(crate) fn both(sim: &SimEnv) -> Env {
    joined(&sim.env(), Path::new(DIR), &sim.env(), Path::new(SPEED))
}

/// A closed store on two tiers.
fn store(seed: u64) -> (SimEnv, Model) {
    let (sim, mut model) = (SimEnv::new(seed), Model::new());
    let db = open(&sim).unwrap();
    fill(&db, &mut model, 0..300, 0);
    db.close().unwrap();
    (sim, model)
}

fn names(sim: &SimEnv, dir: &str) -> Vec<String> {
    let listed = sim.env().fs.list(Path::new(dir)).unwrap_or_default();
    listed.into_iter().map(|entry| entry.name).collect()
}

fn is_log(name: &str) -> bool {
    name.ends_with(".log") || name.starts_with("STAGING")
}

/// Replaces the files of a directory by copies of another's, without the engine.
fn copy(sim: &SimEnv, from: &str, to: &str) {
    let fs = sim.env().fs;
    fs.create_dir_all(Path::new(to)).unwrap();
    for name in names(sim, to) {
        fs.remove(&Path::new(to).join(name)).unwrap();
    }
    for name in names(sim, from) {
        let source = fs.open(&Path::new(from).join(&name), Access::Buffered).unwrap();
        let mut bytes = vec![0; source.readable_len().unwrap() as usize];
        source.read_at(&mut bytes, 0).unwrap();
        let mut target = fs.create(&Path::new(to).join(&name), &CreateOptions::default()).unwrap();
        target.append(&bytes).unwrap();
        target.sync(SyncKind::Full).unwrap();
    }
    fs.sync_dir(Path::new(to)).unwrap();
}

/// The store on these tiers is refused without any change, for writers, readers and a repair with
/// both.
#[track_caller]
fn refused_alike(sim: &SimEnv, speed: Option<&str>, kind: ErrorKind, file: &str, says: &str) {
    let before = sim.state_hash();
    let opened = Db::open_in(sim.env(), DIR, options(speed));
    let read = Db::open_read_only_in(sim.env(), DIR, options(speed));
    for result in [opened, read] {
        let text = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        refused(result, kind, file);
        assert!(text.contains(says), "{text}");
    }
    if kind != ErrorKind::Corruption {
        let env =
            speed.map_or(sim.env(), |speed| joined(&sim.env(), Path::new(DIR), &sim.env(), Path::new(speed)));
        let dry = RepairOptions { dry_run: true, ..RepairOptions::default() };
        refused(repair::repair_in(&env, DIR, &sim.env(), "/new", &dry), kind, file);
    }
    assert_eq!(sim.state_hash(), before, "a refused opening changed something");
}

#[test]
fn the_log_is_on_the_speed_disk_and_nothing_else() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = store(1);
    assert!(!names(&sim, DIR).iter().any(|name| is_log(name)), "{:?}", names(&sim, DIR));
    assert!(names(&sim, SPEED).iter().all(|name| is_log(name) || name.starts_with("SPEED")));
    let db = open(&sim).unwrap();
    assert_eq!(contents(&db), model);
    fill(&db, &mut model, 100..2000, 1);
    settle(&db);
    assert!(names(&sim, DIR).iter().any(|name| name.ends_with(".ksst")));
    assert!(!names(&sim, DIR).iter().any(|name| is_log(name)), "{:?}", names(&sim, DIR));
    let report = db.verify().unwrap();
    assert!(report.errors.is_empty(), "{report:?}");
    let listed = both(&sim).fs.list(Path::new(DIR)).unwrap();
    let space = crate::common::ledger_adds_up(&db, listed.iter().map(|entry| entry.allocated).sum());
    let speed = space.speed.unwrap();
    let there = sim.env().fs.list(Path::new(SPEED)).unwrap();
    assert_eq!(
        (speed.bytes, &*speed.place),
        (there.iter().map(|entry| entry.allocated).sum(), Path::new(SPEED))
    );
    let reader = Db::open_read_only_in(sim.env(), DIR, options(Some(SPEED))).unwrap();
    assert_eq!(contents(&reader), model);
    drop(reader);
    db.checkpoint("/copy").unwrap();
    db.close().unwrap();
    let copy = Db::open_in(sim.env(), "/copy", options(None)).unwrap();
    assert_eq!(contents(&copy), model);
}

/// The environment and the option name the same tier: it is one tier, and nothing is swept there.
#[test]
fn a_fast_tier_named_twice_is_one_tier_and_keeps_its_log() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = store(31);
    let env = joined(&both(&sim), Path::new(DIR), &both(&sim), Path::new(SPEED));
    let named_again = |env: &Env| Db::open_in(env.clone(), DIR, options(Some(SPEED))).unwrap();
    let db = named_again(&env);
    fill(&db, &mut model, 300..320, 0);
    // The log has changes that are in no table: each open reads it, and leaves it for the next one.
    let mut machine = sim.crash(CrashKind::ProcessKill, 1);
    for seed in 2..5 {
        let db = named_again(&both(&machine));
        assert_eq!(contents(&db), model, "open {seed}");
        assert!(names(&machine, SPEED).iter().any(|name| name.ends_with(".log")), "open {seed}");
        machine = machine.crash(CrashKind::ProcessKill, seed);
    }
}

#[test]
fn a_foreign_fast_tier_is_refused_by_name() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, model) = store(2);
    refused_alike(&sim, None, ErrorKind::InvalidArgument, DIR, "last used at /speed");
    refused_alike(&sim, Some("/nowhere"), ErrorKind::NotFound, "/nowhere", "mount the tier");
    sim.env().fs.create_dir_all(Path::new("/empty")).unwrap();
    refused_alike(&sim, Some("/empty"), ErrorKind::NotFound, "/empty", "it has no file SPEED");
    let other = Options { fast_tier: Some("/foreign".into()), ..small() };
    Db::open_in(sim.env(), "/other", other).unwrap().close().unwrap();
    refused_alike(&sim, Some("/foreign"), ErrorKind::InvalidArgument, "/foreign", "of another store");
    // A store with one tier takes no directory that belongs to a store or is not empty.
    let taken = |speed: &str| Options { fast_tier: Some(speed.into()), ..small() };
    Db::open_in(sim.env(), "/third", small()).unwrap().close().unwrap();
    refused(Db::open_in(sim.env(), "/third", taken(SPEED)), ErrorKind::InvalidArgument, SPEED);
    refused(Db::open_in(sim.env(), "/third", taken("/third")), ErrorKind::InvalidArgument, "/third");
    refused(Db::open_in(sim.env(), "/fourth", taken(SPEED)), ErrorKind::InvalidArgument, SPEED);
    refused(Db::open_read_only_in(sim.env(), "/third", taken(SPEED)), ErrorKind::InvalidArgument, SPEED);
    assert_eq!(contents(&open(&sim).unwrap()), model);
}

/// Restored copies of any age: both tiers are of one time, or the store is refused.
#[test]
fn a_stale_fast_tier_is_refused() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = store(3);
    copy(&sim, SPEED, "/old-speed");
    copy(&sim, DIR, "/old-dir");
    let db = open(&sim).unwrap();
    fill(&db, &mut model, 0..300, 1);
    db.close().unwrap();
    copy(&sim, SPEED, "/new-speed");
    copy(&sim, "/old-speed", SPEED);
    refused_alike(&sim, Some(SPEED), ErrorKind::InvalidArgument, SPEED, "the tier is an older copy");
    // The same tier is back, and nothing is lost.
    copy(&sim, "/new-speed", SPEED);
    assert_eq!(contents(&open(&sim).unwrap()), model);
    // An older directory with the present tier.
    copy(&sim, DIR, "/new-dir");
    copy(&sim, "/old-dir", DIR);
    refused(open(&sim), ErrorKind::Corruption, SPEED);
    // Both older: the store as it was then.
    copy(&sim, "/old-speed", SPEED);
    open(&sim).unwrap().close().unwrap();
    // The tier of a copy of the store that had as many sessions of its own.
    copy(&sim, "/old-dir", DIR);
    copy(&sim, "/old-speed", SPEED);
    open(&sim).unwrap().close().unwrap();
    copy(&sim, SPEED, "/twin-speed");
    copy(&sim, "/old-dir", DIR);
    copy(&sim, "/old-speed", SPEED);
    open(&sim).unwrap().close().unwrap();
    copy(&sim, "/twin-speed", SPEED);
    refused_alike(&sim, Some(SPEED), ErrorKind::InvalidArgument, SPEED, "or that of a copy of the store");
}

/// A directory from before the store got its fast tier: a writer must not take the tier for a new
/// one, and a reader must not miss its log.
#[test]
fn a_directory_older_than_its_fast_tier_is_refused() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let sim = SimEnv::new(6);
    open_alone(&sim).unwrap().close().unwrap();
    copy(&sim, DIR, "/old-dir");
    open(&sim).unwrap().close().unwrap();
    copy(&sim, "/old-dir", DIR);
    let before = sim.state_hash();
    let says = |result: Result<Db>, kind, what: &str| {
        let text = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        refused(result, kind, SPEED);
        assert!(text.contains(what), "{text}");
    };
    let written = Db::open_in(sim.env(), DIR, options(Some(SPEED)));
    says(written, ErrorKind::InvalidArgument, "this was the fast tier of this store up to session");
    let strict = Options { damaged_files: DamagedFiles::Refuse, ..options(Some(SPEED)) };
    let read = Db::open_read_only_in(sim.env(), DIR, strict);
    says(read, ErrorKind::Corruption, "and the manifest lists none");
    assert_eq!(sim.state_hash(), before);
}

/// One damaged slot of the identity is harmless. With both damaged the error says so, and repair
/// still reads the log.
#[test]
fn a_damaged_tier_identity_slot_is_restored_from_the_other() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    for slot in 0..2 {
        let (sim, model) = store(4);
        sim.flip_bit("/speed/SPEED", 4096 * slot + 20, 1).unwrap();
        assert_eq!(contents(&open(&sim).unwrap()), model);
        let (sim, model) = (sim.fork(1), model);
        assert_eq!(contents(&open(&sim).unwrap()), model, "it was written anew");
    }
    let (sim, model) = store(5);
    (0..2).for_each(|slot| sim.flip_bit("/speed/SPEED", 4096 * slot + 20, 1).unwrap());
    refused(open(&sim), ErrorKind::Corruption, "/speed/SPEED");
    let report = repair::repair_in(&both(&sim), DIR, &sim.env(), "/new", &RepairOptions::default()).unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
    assert_eq!(contents(&Db::open_in(sim.env(), "/new", small()).unwrap()), model);
}

/// A repair without the tier reports the loss, and saves the data in tables.
#[test]
fn a_repair_without_the_fast_tier_reports_the_loss() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = (SimEnv::new(6), Model::new());
    let db = open(&sim).unwrap();
    fill(&db, &mut model, 0..300, 0);
    db.flush().unwrap();
    let saved = model.clone();
    fill(&db, &mut model, 0..100, 1);
    db.close().unwrap();
    sim.env().fs.rename(Path::new(SPEED), Path::new("/lost")).unwrap_or_default();
    let without = RepairOptions { without_fast_tier: true, ..RepairOptions::default() };
    let report = repair::repair_in(&sim.env(), DIR, &sim.env(), "/new", &without).unwrap();
    assert!(!report.lost.is_empty(), "the log is lost, and that is told: {report:?}");
    assert!(report.lost.iter().all(|lost| lost.file.contains(".log")), "{report:?}");
    assert_eq!(contents(&Db::open_in(sim.env(), "/new", small()).unwrap()), saved);
    let given = repair::repair_in(&both(&sim), DIR, &sim.env(), "/newer", &without);
    refused(given, ErrorKind::InvalidArgument, SPEED);
}

/// After a crash while the store gets or returns its fast tier, it opens with all promised data.
#[test]
fn a_crash_during_a_log_move_leaves_it_on_one_tier() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let mut moved = [0, 0];
    for (seed, gives) in [(7, false), (8, true), (9, false), (10, true)] {
        let (sim, mut model) = (SimEnv::new(seed), Model::new());
        let first = if gives { open(&sim) } else { open_alone(&sim) };
        let db = first.unwrap();
        fill(&db, &mut model, 0..200, 0);
        // Half of the cases are not closed, so that there is something to recover.
        let sim = match seed < 9 {
            true => sim.crash(CrashKind::PowerLoss, seed),
            false => db.close().map(|()| sim.fork(seed)).unwrap(),
        };
        let begun = sim.op_count();
        match gives {
            true => detach_fast_tier(&both(&sim), Path::new(DIR)).unwrap(),
            false => open(&sim).unwrap().close().unwrap(),
        }
        let record = sim.record();
        for op in record.mutations().into_iter().filter(|op| *op >= begun) {
            for (kind, salt) in
                [(CrashKind::ProcessKill, 0), (CrashKind::PowerLoss, 1), (CrashKind::PowerLoss, 2)]
            {
                let after = record.crash_at(op, kind, op * 3 + salt);
                let say = |e| panic!("seed {seed}, {kind:?} at operation {op}: {e}\n{}", after.trace());
                let alone = after.fork(1);
                match open_alone(&alone) {
                    Ok(db) => {
                        assert_eq!(contents(&db), model, "seed {seed}, {kind:?} at operation {op}");
                        moved[0] += 1;
                    }
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
                        moved[1] += 1;
                    }
                }
                // An interrupted operation may be repeated, and crashes once more.
                let again = after.fork(2);
                drop(open(&again));
                let dies = again.record().mutations();
                if let Some(at) = dies.get(op as usize % dies.len().max(1)) {
                    let twice = again.record().crash_at(*at, kind, salt);
                    assert_eq!(contents(&open(&twice).unwrap_or_else(say)), model);
                }
                let db = open(&after).unwrap_or_else(say);
                assert_eq!(contents(&db), model, "seed {seed}, {kind:?} at operation {op}");
                db.put(b"more", b"of it").unwrap();
                db.close().unwrap();
                assert!(!names(&after, DIR).iter().any(|name| is_log(name)), "{:?}", names(&after, DIR));
            }
        }
    }
    assert!(moved.iter().all(|count| *count > 50), "{moved:?}");
}

#[test]
fn a_detached_fast_tier_is_no_part_of_the_store() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = store(11);
    detach_fast_tier(&both(&sim), Path::new(DIR)).unwrap();
    assert_eq!(names(&sim, SPEED), ["SPEED-LOCK"]);
    detach_fast_tier(&both(&sim), Path::new(DIR)).unwrap();
    let db = open_alone(&sim).unwrap();
    assert_eq!(contents(&db), model);
    fill(&db, &mut model, 0..3000, 2);
    db.close().unwrap();
    assert!(!names(&sim, DIR).iter().any(|name| name.ends_with(".room")), "{:?}", names(&sim, DIR));
    // Once more.
    let db = open(&sim).unwrap();
    assert_eq!(contents(&db), model);
    drop(db);
    let nothing = detach_fast_tier(&sim.env(), Path::new(DIR));
    refused(nothing, ErrorKind::InvalidArgument, DIR);
    refused(
        detach_fast_tier(&joined(&sim.env(), Path::new("/x"), &sim.env(), Path::new(SPEED)), Path::new("/x")),
        ErrorKind::NotFound,
        "/x",
    );
}

/// The tiers may be of different kinds: a kernel file system and a LavaFS volume.
#[test]
fn one_of_the_disks_may_be_a_volume() {
    for on_volume in ["speed", "capacity"] {
        let (sim, mut model) = (SimEnv::new(20), Model::new());
        let (plain, volume) = (sim.env(), crate::common::lavafs_env(&sim));
        let (capacity, speed) = if on_volume == "speed" { (&plain, &volume) } else { (&volume, &plain) };
        let env = joined(capacity, Path::new(DIR), speed, Path::new(SPEED));
        let db = Db::open_in(capacity.clone(), DIR, options(None)).unwrap();
        fill(&db, &mut model, 0..200, 0);
        db.close().unwrap();
        let db = Db::open_in(env.clone(), DIR, options(None)).unwrap();
        fill(&db, &mut model, 100..1500, 1);
        db.checkpoint("/copy").unwrap();
        let listed = |env: &Env, dir: &str| env.fs.list(Path::new(dir)).unwrap_or_default();
        assert!(listed(speed, SPEED).iter().any(|entry| is_log(&entry.name)));
        assert!(!listed(capacity, DIR).iter().any(|entry| is_log(&entry.name)));
        db.close().unwrap();
        let copy = Db::open_in(capacity.clone(), "/copy", options(None)).unwrap();
        assert_eq!(contents(&copy), model, "{on_volume}");
        detach_fast_tier(&env, Path::new(DIR)).unwrap();
        assert_eq!(
            contents(&Db::open_in(capacity.clone(), DIR, options(None)).unwrap()),
            model,
            "{on_volume}"
        );
    }
}

/// Two processes do not share a fast tier, whatever their stores.
#[test]
fn the_disk_has_a_lock_of_its_own() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, _) = store(12);
    copy(&sim, DIR, "/twin");
    let db = open(&sim).unwrap();
    refused(open(&sim), ErrorKind::Locked, "LOCK");
    // The twin's only fast tier is this one.
    let twin = Db::open_in(sim.env(), "/twin", options(Some(SPEED)));
    assert!(matches!(twin.unwrap_err().kind(), ErrorKind::Locked | ErrorKind::Corruption));
    refused(detach_fast_tier(&both(&sim), Path::new(DIR)), ErrorKind::Locked, "LOCK");
    drop(db);
}

/// The fast tier fails under an open store: no write is acknowledged, while reads work. When it is
/// back, nothing is lost.
#[test]
fn a_failed_fast_tier_stops_writes_but_not_reads() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = store(13);
    let db = open(&sim).unwrap();
    fill(&db, &mut model, 300..400, 1);
    sim.inject(FaultPlan::nth(0, FaultEffect::Eio).path(SPEED).sticky());
    let refused = (0..10).map(|i| db.put(&key(i), b"lost").map(drop)).find_map(Result::err).unwrap();
    assert!(refused.to_string().contains(SPEED), "{refused}");
    assert_eq!(db.put(b"k", b"v").unwrap_err().kind(), ErrorKind::Poisoned);
    for (key, value) in &model {
        let found = db.get(key).unwrap();
        assert!(found.as_deref() == Some(&value[..]) || found.as_deref() == Some(&b"lost"[..]));
    }
    drop(db);
    sim.clear_faults();
    let found = contents(&open(&sim).unwrap());
    let lost = model.iter().filter(|(key, value)| {
        found.get(*key) != Some(value) && found.get(*key).map(Vec::as_slice) != Some(b"lost")
    });
    assert_eq!(lost.count(), 0);
}

/// A full fast tier is reported by name, and a full capacity tier leaves room for its jobs.
#[test]
fn a_full_tier_is_reported_by_name() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = store(14);
    let db = open(&sim).unwrap();
    assert_eq!(names(&sim, DIR).iter().filter(|name| name.ends_with(".room")).count(), 1);
    sim.inject(FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&[OpKind::CreateInPlace]).path(SPEED).sticky());
    let full = (0..20_000).find_map(|i| match db.put(&key(i), &[7; 3000]) {
        Ok(_) => {
            model.insert(key(i), vec![7; 3000]);
            None
        }
        Err(e) => Some(e),
    });
    if let Some(e) = full {
        assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
        assert!(e.to_string().contains(SPEED), "{e}");
        assert!(e.file().unwrap().starts_with(SPEED), "{e}");
    }
    assert_eq!(contents(&db), model);
    // A store without room for a log opens, and names the tier.
    let after = sim.crash(CrashKind::ProcessKill, 1);
    after.inject(
        FaultPlan::nth(0, FaultEffect::NoSpace)
            .kinds(&[OpKind::CreateInPlace, OpKind::Rename])
            .path(SPEED)
            .sticky(),
    );
    let killed = open(&after).unwrap();
    if let Err(e) = killed.put(b"no", b"room") {
        assert_eq!((e.kind(), e.file()), (ErrorKind::NoSpace, Some(Path::new(SPEED))), "{e}");
    }
    sim.clear_faults();
    db.put(b"goes", b"on").unwrap();
}
