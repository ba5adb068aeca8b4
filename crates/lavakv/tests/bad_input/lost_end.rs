//! Manifests that lost their end. The manifest cannot confirm its last edits; files created after
//! them can.

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{Db, ErrorKind, FamilyOptions, Options, WriteOptions, dump};
use repair::RepairOptions;
use std::path::Path;

/// Returns the name of the manifest, and the offsets of its edits without the snapshot.
fn edits(sim: &SimEnv) -> (String, Vec<u64>) {
    let name = files_like(sim, "MANIFEST-").remove(0);
    let mut text = String::new();
    dump::dump(&env(sim), Path::new(&path(&name)), false, &mut text).unwrap();
    let offset = |line: &str| line.strip_prefix("offset ")?.split(':').next()?.parse().ok();
    (name, text.lines().filter_map(offset).skip(1).collect())
}

/// Returns a copy with zeros from this offset on.
fn without_end(sim: &SimEnv, name: &str, offset: u64) -> SimEnv {
    let damaged = sim.fork(offset);
    let len = sim.read_file(path(name)).unwrap().len() as u64;
    damaged.overwrite(path(name), offset, &vec![0; (len - offset) as usize]).unwrap();
    damaged
}

/// Whatever end the manifest loses, a killed store opens with everything, or is refused with the
/// file's name. A repair saves everything, or reports the losses. The buffered writes are only in
/// the staging file, for a group in the lost edits.
#[test]
fn a_lost_manifest_end_of_a_killed_store_is_detected() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (mut refusals, mut whole) = (0, 0);
    for flushed in [false, true] {
        let sim = SimEnv::new(1);
        let (db, mut model) = (open(&sim), Model::new());
        fill(&db, &mut model, 0..100, 0);
        db.close().unwrap();
        let db = open(&sim);
        fill(&db, &mut model, 50..60, 1);
        if flushed {
            db.flush().unwrap();
        }
        let killed = sim.crash(CrashKind::ProcessKill, 1);
        drop(db);
        let (name, edits) = edits(&killed);
        assert!(edits.len() > usize::from(flushed), "{edits:?}");
        for offset in edits {
            let damaged = without_end(&killed, &name, offset);
            let into = format!("/repaired-{offset}");
            let options = RepairOptions { options: small(), dry_run: false, ..RepairOptions::default() };
            let report = repair::repair_in(&env(&damaged), DIR, &env(&damaged), &into, &options).unwrap();
            let repaired = contents(&Db::open_in(env(&damaged), &into, small()).unwrap());
            assert!(repaired == model || !report.lost.is_empty(), "{offset} of {name}: {report:?}");
            match try_open(&damaged) {
                Ok(db) => {
                    assert!(contents(&db) == model, "zeros from {offset} of {name} on");
                    whole += 1;
                }
                refusal => {
                    refused(refusal, ErrorKind::Corruption, &name);
                    assert!(!report.damaged.is_empty(), "{offset} of {name}: {report:?}");
                    refusals += 1;
                }
            }
        }
    }
    assert!(refusals > 1 && whole > 0, "{refusals} refusals, {whole} whole");
}

/// Recovery that flushes writes its own edits, and a manifest. It must detect a lost end before
/// that: its edits would be taken for the lost ones.
#[test]
fn a_lost_manifest_end_is_found_before_recovery_flushes() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let large = Options { memtable_bytes: 256 << 10, memory_bytes: 1 << 20, ..small() };
    let sim = SimEnv::new(2);
    let db = Db::open_in(env(&sim), DIR, large.clone()).unwrap();
    let mut model = Model::new();
    fill(&db, &mut model, 0..600, 0);
    let put_durable = |model: &mut Model, i: u64| {
        db.put_opt(db.default_column_family(), &key(i), b"durable", &WriteOptions::durable()).unwrap();
        model.insert(key(i), b"durable".to_vec());
    };
    put_durable(&mut model, 600);
    let (_, before) = edits(&sim);
    let options = FamilyOptions { min_blob_size: 40, ..small_family() };
    db.set_family_options(db.default_column_family(), options).unwrap();
    // The only page begun after it, beyond the memory's size.
    put_durable(&mut model, 601);
    let killed = sim.crash(CrashKind::ProcessKill, 1);
    drop(db);
    let (name, after) = edits(&killed);
    assert_eq!(after.len(), before.len() + 1, "no group was listed afterwards");
    let damaged = without_end(&killed, &name, after[before.len()]);
    let image = damaged.state_hash();
    for options in [small(), small(), large.clone()] {
        refused(Db::open_in(env(&damaged), DIR, options), ErrorKind::Corruption, &name);
    }
    assert_eq!(damaged.state_hash(), image, "a refused open changes nothing");
    let db = Db::open_in(env(&killed), DIR, small()).unwrap();
    assert!(contents(&db) == model, "the undamaged store");
}

/// The last edit created a family. No table and no log group shows it: only log pages written later
/// confirm the edit.
#[test]
fn a_repair_uses_the_edits_recorded_in_the_log() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(3);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..50, 0);
    let mut put = |i, len| {
        let value = vec![7; len];
        db.put_opt(db.default_column_family(), &key(i), &value, &WriteOptions::durable()).unwrap();
        model.insert(key(i), value);
    };
    // The first group is full; the second, larger one gets the pages begun after the family's
    // creation.
    put(60, 10_000);
    db.create_column_family("later", small_family()).unwrap();
    put(61, 5_000);
    let killed = sim.crash(CrashKind::ProcessKill, 1);
    drop(db);
    let (name, edits) = edits(&killed);
    let mut by_the_log = 0;
    for offset in edits {
        let damaged = without_end(&killed, &name, offset);
        let options = RepairOptions { options: small(), dry_run: false, ..RepairOptions::default() };
        let report = repair::repair_in(&env(&damaged), DIR, &env(&damaged), "/repaired", &options).unwrap();
        assert!(contents(&Db::open_in(env(&damaged), "/repaired", small()).unwrap()) == model, "{offset}");
        if report.damaged.iter().any(|damage| damage.why.contains("but the log confirms edit")) {
            assert!(!report.from_manifest, "{offset}: {report:?}");
            refused(try_open(&damaged), ErrorKind::Corruption, &name);
            by_the_log += 1;
        }
    }
    assert!(by_the_log > 0);
}
