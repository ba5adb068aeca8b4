//! Stores with the policy `vlsm`.

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{Db, FamilyOptions, Options, OverlapOf, PolicyChoice, ReadOptions, VlsmOptions};

/// Small enough that a few hundred keys fill several levels.
fn vlsm(overlap: OverlapOf) -> PolicyChoice {
    let table_bytes = 8 << 10;
    PolicyChoice::vlsm(&VlsmOptions {
        table_bytes,
        level_1_tables: 2,
        growth_max: 4,
        overlap,
        ..VlsmOptions::default()
    })
}

fn with(policy: PolicyChoice, min_blob_size: usize) -> Options {
    let family = FamilyOptions { policy, min_blob_size, ..small_family() }
        .expert(|expert| expert.level_multiplier = 4);
    Options { family, ..small() }
}

/// Each open has the other policy. Writes, deletes, range deletions, snapshots, collected values,
/// crashes: reads are correct, the tree keeps working, and a full compaction merges all of it into
/// one level.
#[test]
fn policy_can_change_at_every_reopen() {
    let mut spills = 0;
    for seed in 0..8 {
        let mut sim = SimEnv::new(seed);
        let min_blob_size = [0, 64][seed as usize % 2];
        let overlap = [OverlapOf::Table, OverlapOf::FullTable][seed as usize / 2 % 2];
        let mut model = Model::new();
        for round in 0..8 {
            let policy = if (round + seed) % 2 == 0 { vlsm(overlap) } else { PolicyChoice::default() };
            let db = Db::open_in(env(&sim), DIR, with(policy.clone(), min_blob_size)).unwrap();
            assert_eq!(db.default_column_family().options().policy, policy, "switched by the open");
            assert!(contents(&db) == model, "seed {seed} round {round}");
            let (old, snapshot) = (model.clone(), db.snapshot());
            let from = round * 700 % 2000;
            fill(&db, &mut model, from..from + 1500, round);
            for i in (from..from + 1500).step_by(5) {
                db.delete(&key(i)).unwrap();
                model.remove(&key(i));
            }
            let (low, high) = (key(from + 300), key(from + 400));
            db.delete_range(&low, &high).unwrap();
            let deleted = low..high;
            model.retain(|k, _| !deleted.contains(k));
            db.flush().unwrap();
            if round % 3 == 2 {
                settle(&db);
            }
            assert!(contents(&db) == model, "seed {seed} round {round}");
            let options = ReadOptions { snapshot: Some(snapshot), ..Default::default() };
            let then: Model = db.iter(options).unwrap().entries().collect::<Result<_, _>>().unwrap();
            assert!(then == old, "seed {seed} round {round}: of the snapshot");
            if round == 5 {
                db.compact_range(db.default_column_family(), None, None).unwrap();
                assert_eq!(super::levels(&db, "default").len(), 1, "{}", db.describe());
                assert!(contents(&db) == model, "seed {seed}");
            }
            assert!(db.verify().unwrap().errors.is_empty());
            let stats = db.stats();
            assert!(stats.compaction_poor_spills <= stats.compaction_spills, "{stats:?}");
            spills += stats.compaction_spills;
            drop(db);
            if round % 2 == 1 {
                sim = sim.crash(CrashKind::ProcessKill, seed);
            }
        }
    }
    assert!(spills > 100, "{spills} compactions of what level 0 waits for");
}

/// An idle store has no more bytes over target than allowed, and an empty or nearly empty level 0.
#[test]
fn a_vlsm_tree_becomes_idle() {
    let sim = SimEnv::new(1);
    let db = Db::open_in(env(&sim), DIR, with(vlsm(OverlapOf::Table), 0)).unwrap();
    let mut model = Model::new();
    for round in 0..6 {
        fill(&db, &mut model, 0..4000, round);
    }
    db.flush().unwrap();
    settle(&db);
    let levels = super::levels(&db, "default");
    assert!(levels.len() >= 2, "several levels: {levels:?}");
    assert!(contents(&db) == model);
    let stats = db.stats();
    assert!(stats.compaction_spills > 10, "{stats:?}");
}

/// Tables merged into level 1 are counted as good or poor; with `leveled` none is counted.
#[test]
fn level_1_tables_are_counted_as_good_or_poor() {
    let told = |policy: PolicyChoice| {
        let sim = SimEnv::new(1);
        let db = Db::open_in(env(&sim), DIR, with(policy, 0)).unwrap();
        fill(&db, &mut Model::new(), 0..4000, 0);
        // Over the whole key range, so that new tables overlap existing ones.
        for i in 0..8000u64 {
            db.put(&key(i * 7919 % 4000), &[7; 50]).unwrap();
        }
        settle(&db);
        let stats = db.stats();
        (stats.compaction_tables_good, stats.compaction_tables_poor)
    };
    // A level 1 that holds a few tables at rest.
    let vlsm = VlsmOptions { table_bytes: 8 << 10, ..VlsmOptions::default() };
    let (good, poor) = told(PolicyChoice::vlsm(&vlsm));
    assert!(good > 10 && poor > 0, "{good} good ones, {poor} poor ones");
    assert_eq!(told(PolicyChoice::default()), (0, 0));
}
