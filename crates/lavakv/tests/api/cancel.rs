//! Cancelled long calls: they leave no files and no changes.

use crate::common::*;
use lavastore_lavakv::{
    Cancel, CompactRequest, Compression, Db, Env, ErrorKind, FamilyOptions, GcRequest, Options, Result,
    sim::SimEnv,
};
use std::path::Path;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

/// A store with tables in several levels and garbage in its value files.
fn worn(sim: &SimEnv) -> (Db, Model) {
    let options =
        Options { family: FamilyOptions { compression: Compression::None, ..small_family() }, ..small() };
    let (db, mut model) = (Db::open_in(env(sim), "/store", options).unwrap(), Model::new());
    let pause = db.pause_gc();
    for round in 0..3 {
        for i in (0..400).filter(|i| round == 0 || i % 3 != 0) {
            let value = value(i, round).repeat(if i % 2 == 0 { 40 } else { 1 });
            db.put(&key(i), &value).unwrap();
            model.insert(key(i), value);
        }
        db.flush().unwrap();
    }
    drop(pause);
    (db, model)
}

/// Checks that each file in the directory is named by the store, and that the ledger has every
/// byte.
fn nothing_is_left(sim: &SimEnv, db: &Db) {
    assert!(db.wait_idle(WAIT));
    let live = db.live_files();
    for (name, _) in files(sim).iter().filter(|(name, _)| name.ends_with("sst")) {
        assert!(live.files.contains(name), "{name} is left, beside {:?}", live.files);
    }
    assert_eq!((live.pinned, live.job_sums), (0, (0, 0)));
    let space = db.space().unwrap();
    assert_eq!(space.parts().iter().map(|(_, bytes)| bytes).sum::<u64>(), space.total_bytes);
}

/// Runs a call repeatedly, each time with a later deadline, until it is completed.
fn at_every_moment(
    seed: u64,
    step_ns: u64,
    call: impl Fn(&Db, Cancel, &Path) -> Result<()>,
    left: impl Fn(&SimEnv, &Db, &Path),
) {
    let mut cancelled = 0;
    for nth in 0..10_000 {
        let sim = SimEnv::new(seed);
        let (db, model) = worn(&sim);
        let cancel = Cancel::with_deadline(&env(&sim), Duration::from_nanos(step_ns * nth));
        let done = call(&db, cancel, Path::new("/copy"));
        if let Err(e) = &done {
            assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}");
            cancelled += 1;
            left(&sim, &db, Path::new("/copy"));
        }
        nothing_is_left(&sim, &db);
        assert!(contents(&db) == model && db.verify().unwrap().errors.is_empty());
        db.close().unwrap();
        if done.is_ok() {
            assert!(cancelled > 3, "the call came to its end at once");
            return;
        }
    }
    panic!("the call never came to its end");
}

#[test]
fn a_cancelled_compaction_releases_its_outputs() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    let compact = |rewrite| {
        move |db: &Db, cancel, _: &Path| {
            let request = CompactRequest { rewrite, cancel: Some(cancel) };
            db.compact_range_with(db.default_column_family(), (None, None), request, &mut |_| {})
        }
    };
    at_every_moment(1, 2_000_000, compact(false), |_, _, _| {});
    at_every_moment(2, 2_000_000, compact(true), |_, _, _| {});
}

#[test]
fn a_cancelled_collection_releases_its_outputs() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    let collect = |db: &Db, cancel, _: &Path| {
        let request = GcRequest { until_percent: Some(0), cancel: Some(cancel) };
        db.collect_garbage(request).map(drop)
    };
    at_every_moment(3, 300_000, collect, |_, _, _| {});
}

#[test]
fn a_cancelled_verification_ends() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    at_every_moment(4, 300_000, |db, cancel, _| db.verify_unless(Some(&cancel)).map(drop), |_, _, _| {});
}

#[test]
fn a_cancelled_checkpoint_leaves_no_files() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    let copy = |db: &Db, cancel: Cancel, dir: &Path| db.checkpoint_unless(dir, Some(&cancel));
    let left = |sim: &SimEnv, db: &Db, dir: &Path| {
        assert!(!env(sim).fs.exists(dir).unwrap(), "{:?}", env(sim).fs.list(dir));
        // The next checkpoint can use the same place.
        db.checkpoint(dir).unwrap();
        let copy = Db::open_in(env(sim), dir, small()).unwrap();
        assert!(contents(&copy) == contents(db));
    };
    at_every_moment(5, 20_000, copy, left);
}

/// A checkpoint without room leaves its directory as before: missing or empty.
#[test]
fn a_checkpoint_without_space_leaves_no_files() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    let (mut refused, dir) = (0, Path::new("/copy"));
    for is_there in [false, true] {
        for spare in 0..200 {
            let sim = SimEnv::new(6);
            let (db, _) = worn(&sim);
            db.flush().unwrap();
            let env: Env = env(&sim);
            if is_there {
                env.fs.create_dir_all(dir).unwrap();
            }
            sim.set_capacity(Some(sim.used() + spare * 512));
            let made = db.checkpoint(dir);
            sim.set_capacity(None);
            let Err(e) = made else { break };
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
            refused += 1;
            let left: Vec<_> = env.fs.list(dir).into_iter().flatten().map(|entry| entry.name).collect();
            assert!(left.iter().all(|name| name == "LOCK"), "{spare}: {left:?}");
            assert_eq!(env.fs.exists(dir).unwrap(), is_there);
            db.checkpoint(dir).unwrap();
        }
    }
    assert!(refused > 5, "{refused}");
}

/// Two concurrent calls: the token of one does not end the other.
#[test]
fn a_token_cancels_all_calls_that_carry_it() {
    let tmp = TempDir::new("cancel");
    let db = Db::open_with(tmp.path(), small()).unwrap();
    fill(&db, &mut Model::new(), 0..5000, 0);
    let cancel = Cancel::new();
    let asks = |cancel: Option<Cancel>| {
        let request = CompactRequest { rewrite: true, cancel };
        db.compact_range_with(db.default_column_family(), (None, None), request, &mut |_| {})
    };
    std::thread::scope(|scope| {
        let (asks, own) = (&asks, cancel.clone());
        let (one, other) = (scope.spawn(move || asks(Some(own))), scope.spawn(move || asks(None)));
        std::thread::sleep(Duration::from_millis(5));
        cancel.cancel();
        if let Err(e) = one.join().unwrap() {
            assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}");
        }
        other.join().unwrap().unwrap();
    });
    assert!(db.wait_idle(WAIT));
    db.close().unwrap();
}

/// A cancelled repair, or one without room, leaves no files of the new store, and the damaged one
/// unchanged.
#[test]
fn an_unfinished_repair_leaves_no_files() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    let into = Path::new("/repaired");
    let run = |cancel_ns: Option<u64>, spare: Option<u64>| {
        let sim = SimEnv::new(7);
        let (db, model) = worn(&sim);
        db.close().unwrap();
        let (env, before) = (env(&sim), files(&sim));
        sim.set_capacity(spare.map(|spare| sim.used() + spare));
        let cancel = cancel_ns.map(|ns| Cancel::with_deadline(&env, Duration::from_nanos(ns)));
        let options = repair::RepairOptions { options: small(), cancel, ..Default::default() };
        let repaired = repair::repair_in(&env, DIR, &env, into, &options);
        sim.set_capacity(None);
        assert!(files(&sim) == before, "the damaged store was changed");
        let is_done = repaired.is_ok();
        if let Err(e) = repaired {
            let kind = if cancel_ns.is_some() { ErrorKind::Cancelled } else { ErrorKind::NoSpace };
            assert_eq!(e.kind(), kind, "{e}");
            assert!(!env.fs.exists(into).unwrap(), "{:?}", env.fs.list(into));
            let options = repair::RepairOptions { cancel: None, ..options };
            repair::repair_in(&env, DIR, &env, into, &options).unwrap();
        }
        let db = Db::open_in(env, into, small()).unwrap();
        assert!(contents(&db) == model);
        is_done
    };
    let growing = |least: u64, nth: i32| (least as f64 * 1.4_f64.powi(nth)) as u64;
    let ended = (0..60).find(|nth| run(Some(growing(20_000, *nth)), None)).expect("it comes to its end");
    let fits = (0..60).find(|nth| run(None, Some(growing(4096, *nth)))).expect("it fits");
    assert!(ended > 3 && fits > 3, "{ended} {fits}");
}
