//! A full disk: `NoSpace` for writes, while reads work. When space returns, writes resume by
//! themselves without a reopen.

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{Db, ErrorKind, Options, WriteOptions};

/// Writes until the disk is full. Returns the number of accepted keys.
fn fill_up(db: &Db, model: &mut Model, round: u64) -> u64 {
    for i in 0..1_000_000 {
        match db.put(&key(i), &value(i, round)) {
            Ok(()) => drop(model.insert(key(i), value(i, round))),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                return i;
            }
        }
    }
    panic!("the disk never filled up");
}

fn reads_back(db: &Db, model: &Model) {
    assert!(contents(db) == *model);
    for (key, value) in model.iter().step_by(11) {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

/// At capacities in a range, so that the last page is missing in every kind of write.
#[test]
fn writes_stop_and_resume_wherever_space_runs_out() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    for step in (0..40u64).step_by(3) {
        let sim = SimEnv::new(step);
        let (db, mut model) = (open(&sim), Model::new());
        sim.set_capacity(Some((1200 << 10) + step * 4096));
        let accepted = fill_up(&db, &mut model, 0);
        assert!(accepted > 1000, "{accepted}");
        reads_back(&db, &model);
        // A flush in the reserve may make room for a few more.
        let mut refused = 0;
        for i in 0..200 {
            if refused == 5 {
                break;
            }
            match db.put(&key(i), &value(i, 1)) {
                Ok(()) => (refused, _) = (0, model.insert(key(i), value(i, 1))),
                Err(e) if e.kind() == ErrorKind::NoSpace => refused += 1,
                Err(e) => panic!("{e}"),
            }
        }
        assert_eq!(refused, 5, "writes go on");
        if let Err(e) = db.flush() {
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
        }
        reads_back(&db, &model);
        // Deletes, by which users make room, are admitted.
        for i in 0..20 {
            match db.delete(&key(i)) {
                Ok(()) => drop(model.remove(&key(i))),
                // Not even the log has room left.
                Err(e) => assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}"),
            }
        }
        reads_back(&db, &model);
        sim.set_capacity(None);
        sim.advance_ns(200_000_000);
        settle(&db);
        for i in 0..2000 {
            let put = db.put_opt(
                db.default_column_family(),
                &key(i),
                &value(i, 2),
                &if i % 100 == 0 { WriteOptions::durable() } else { WriteOptions::buffered() },
            );
            put.unwrap_or_else(|e| panic!("step {step}: {e}"));
            model.insert(key(i), value(i, 2));
        }
        db.flush().unwrap();
        settle(&db);
        reads_back(&db, &model);
        assert!(db.verify().unwrap().errors.is_empty());
        db.close().unwrap();
        reads_back(&open(&sim), &model);
    }
}

/// Space that returns by itself is found soon, by the next write that needs it.
#[test]
fn returned_space_is_found_without_intervention() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    let sim = SimEnv::new(7);
    let (db, mut model) = (open(&sim), Model::new());
    sim.set_capacity(Some(2 << 20));
    fill_up(&db, &mut model, 0);
    sim.set_capacity(Some(64 << 20));
    sim.advance_ns(1_000_000_000);
    let mut refused = 0;
    for i in 0..3000 {
        match db.put(&key(i), &value(i, 1)) {
            Ok(()) => drop(model.insert(key(i), value(i, 1))),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                // In simulation no work runs by itself.
                refused += 1;
                db.run_background_step();
                sim.advance_ns(10_000_000);
            }
        }
    }
    assert!(refused < 50, "{refused} writes were refused after space returned");
    reads_back(&db, &model);
}

/// A crash on a full disk loses nothing, and the store opens with the space it has.
#[test]
fn a_crash_on_a_full_disk_loses_nothing() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    use lavastore_lavakv::sim::{CrashKind, Policy};
    for step in 0..20u64 {
        let sim = SimEnv::new(100 + step);
        let (db, mut model) = (open(&sim), Model::new());
        sim.set_capacity(Some((1 << 20) + step * 8192));
        fill_up(&db, &mut model, 0);
        for kind in [CrashKind::ProcessKill, CrashKind::PowerLossWith(Policy::Dropped)] {
            let after = sim.crash(kind, step);
            let db = try_open(&after).unwrap_or_else(|e| panic!("step {step}: {e}"));
            let found = contents(&db);
            if kind == CrashKind::ProcessKill {
                assert!(found == model, "step {step}: {} of {}", found.len(), model.len());
            } else {
                assert!(found.iter().all(|(k, v)| model.get(k) == Some(v)));
            }
        }
    }
}

#[test]
fn a_store_refused_on_a_full_disk_can_be_created_later() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    for pages in 0..60 {
        let sim = SimEnv::new(pages);
        sim.set_capacity(Some(pages * 4096));
        match try_open(&sim) {
            Err(e) => assert_eq!(e.kind(), ErrorKind::NoSpace, "{pages} pages: {e}"),
            Ok(db) => {
                let _ = db.put(b"k", b"v");
            }
        }
        sim.set_capacity(None);
        let db = try_open(&sim).unwrap_or_else(|e| panic!("{pages} pages: {e}"));
        db.put(b"k", b"v").unwrap();
    }
}

/// Runs `body` on a small real file system, if this user may mount one.
pub fn on_tmpfs(name: &str, body: impl FnOnce(&std::path::Path) + std::panic::UnwindSafe) {
    let tmp = TempDir::new(name);
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(args[0]);
        command.args(&args[1..]).arg(tmp.path()).output().is_ok_and(|o| o.status.success())
    };
    if !run(&["mount", "-t", "tmpfs", "-o", "size=3m", "none"]) {
        eprintln!("skipped: no permission to mount");
        return;
    }
    let outcome = std::panic::catch_unwind(|| body(tmp.path()));
    assert!(run(&["umount"]));
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn writes_stop_and_resume_on_a_small_tmpfs() {
    on_tmpfs("tmpfs", |dir| {
        let (db, mut model) = (Db::open_with(dir.join("store"), small()).unwrap(), Model::new());
        std::fs::write(dir.join("ballast"), vec![1; 1 << 20]).unwrap();
        fill_up(&db, &mut model, 0);
        reads_back(&db, &model);
        std::fs::remove_file(dir.join("ballast")).unwrap();
        let start = std::time::SystemTime::now();
        while db.put(b"resumed", b"1").is_err() {
            assert!(start.elapsed().unwrap().as_secs() < 20, "writes did not resume: {}", db.describe());
            std::thread::yield_now();
        }
        model.insert(b"resumed".to_vec(), b"1".to_vec());
        reads_back(&db, &model);
        db.close().unwrap();
        reads_back(&Db::open_with(dir.join("store"), small()).unwrap(), &model);
    });
}

/// The manifest meets a full disk too, in the middle of a record and at the start of a page; it is
/// not poisoned.
#[test]
fn manifest_edits_on_a_full_disk_are_retried() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    for step in 0..24u64 {
        let sim = SimEnv::new(300 + step);
        let (db, mut model) = (open(&sim), Model::new());
        fill(&db, &mut model, 0..20, 0);
        for i in 0..step % 5 {
            db.create_column_family(&format!("f{i}"), small_family()).unwrap();
        }
        sim.set_capacity(Some(sim.used() + step % 3 * 4096));
        let mut made = 0;
        let refusal = loop {
            match db.create_column_family(&format!("{made:0>1000}"), small_family()) {
                Ok(_) => made += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(refusal.kind(), ErrorKind::NoSpace, "{refusal}");
        for _ in 0..3 {
            fails(db.create_column_family("one more", small_family()), ErrorKind::NoSpace);
        }
        reads_back(&db, &model);
        let after = sim.crash(lavastore_lavakv::sim::CrashKind::ProcessKill, step);
        let reopened = open(&after);
        assert_eq!(reopened.column_families().len() as u64, 1 + step % 5 + made);
        reads_back(&reopened, &model);
        sim.set_capacity(None);
        db.create_column_family("one more", small_family()).unwrap();
        fill(&db, &mut model, 0..2000, 1);
        settle(&db);
        reads_back(&db, &model);
        db.close().unwrap();
        let db = open(&sim);
        assert_eq!(db.column_families().len() as u64, 2 + step % 5 + made);
        reads_back(&db, &model);
    }
}

/// Any single edit of the manifest may be refused for want of space: each caller retries.
#[test]
fn any_manifest_edit_refused_for_space_is_retried() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    use lavastore_lavakv::sim::{FaultEffect, FaultPlan, OpKind};
    let mut refusals = 0;
    for n in 0..40 {
        let sim = SimEnv::new(500 + n);
        let (db, mut model) = (open(&sim), Model::new());
        let refusal = FaultPlan::nth(n, FaultEffect::NoSpace).kinds(&[OpKind::Append]).path("MANIFEST");
        sim.inject(refusal);
        for i in 0..4000 {
            match db.put(&key(i % 700), &value(i, n)) {
                Ok(()) => drop(model.insert(key(i % 700), value(i, n))),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                    sim.advance_ns(200_000_000);
                    // In simulation no work runs by itself.
                    db.run_background_step();
                }
            }
        }
        refusals += sim.faults_fired();
        sim.advance_ns(200_000_000);
        settle(&db);
        db.put(b"last", b"1").unwrap();
        model.insert(b"last".to_vec(), b"1".to_vec());
        settle(&db);
        if let Err(e) = db.flush() {
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
            sim.advance_ns(200_000_000);
            settle(&db);
            db.flush().unwrap();
        }
        settle(&db);
        reads_back(&db, &model);
        // The group in use, a spare, and a few released ones: none is lost.
        let groups = files_like(&sim, ".log");
        assert!(groups.len() <= 4, "edit {n}: {groups:?}");
        let state = db.space().unwrap();
        assert_eq!((state.job_bytes, state.pinned_bytes), (0, 0), "edit {n}: {state:?}");
        drop(db);
        sim.clear_faults();
        reads_back(&open(&sim), &model);
    }
    assert!(refusals > 20, "{refusals}");
}

/// A copy-on-write volume has no room for writes in place. The log's pages then stay in the ring,
/// and the job that writes them is not retried without a pause.
#[test]
fn log_pages_without_space_are_retried_after_a_pause() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    let sim = SimEnv::new(5);
    let options = Options {
        memtable_bytes: 1 << 20,
        memory_bytes: 4 << 20,
        // They are written once they are worth a write.
        ..small()
    }
    .expert(|expert| expert.buffered_age_ms_max = Some(0));
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    let mut model = Model::new();
    sim.inject(FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&[OpKind::WriteAt]).path(".log").sticky());
    // Half of the ring.
    fill(&db, &mut model, 0..250, 0);
    let begun_ns = sim.now_ns();
    let steps = (0..1000).filter(|_| db.run_background_step()).count() as u64;
    let tries = db.stats().background_errors;
    let waits = (sim.now_ns() - begun_ns) / 100_000_000;
    assert!(sim.faults_fired() > 0 && tries <= 1 + waits, "{tries} tries in {steps} steps, {waits} waits");
    sim.clear_faults();
    sim.advance_ns(200_000_000);
    settle(&db);
    fill(&db, &mut model, 250..350, 0);
    let killed = sim.crash(CrashKind::ProcessKill, 1);
    assert!(contents(&db) == model && contents(&open(&killed)) == model);
}
