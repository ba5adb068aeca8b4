//! The space ledger against the files: random states with running jobs, readers, large values and
//! several families.
#![allow(clippy::disallowed_methods, reason = "tests look at directories from outside")]

#[path = "../common/mod.rs"]
mod common;

mod holders;
mod metrics;
mod scan;
mod times;
mod truth;

use common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::{
    Ablation, ColumnFamily, Db, DbIterator, ErrorKind, FamilyOptions, HolderKind, Options, ReadOptions,
    Result, Snapshot, Space, SpaceLimit, WriteBatch, sim::SimEnv,
};
use scan::{Hidden, Scan, scan};

/// Families whose values are all separated, never separated, and separated from 200 bytes on.
fn families(db: &Db) -> [ColumnFamily; 3] {
    let apart = separated().family;
    let long = FamilyOptions { min_blob_size: 200, ..apart };
    let inline = db.create_column_family("inline", small_family()).unwrap();
    [db.default_column_family().clone(), inline, db.create_column_family("long", long).unwrap()]
}

/// Values of 64 bytes and more are separated.
fn separated() -> Options {
    let family =
        FamilyOptions { min_blob_size: 64, ..small_family() }.expert(|expert| expert.vsst_bytes = 16 << 10);
    Options { family, ..small() }
}

/// The same with random mechanisms off, and with or without a limit that may be reached.
fn drawn(rng: &mut Rng) -> Options {
    let off = Ablation::names().into_iter().filter(|_| rng.one_in(3)).collect::<Vec<_>>();
    let ablation = if rng.one_in(2) { Ablation::default() } else { Ablation::without(off).unwrap() };
    let limits = [None, Some(SpaceLimit::Bytes(5 << 19)), Some(SpaceLimit::Bytes(5 << 20))];
    let limits = [&limits[..], &[Some(SpaceLimit::Ratio(1.3))]].concat();
    Options { space_limit: limits[rng.below(4) as usize], ..separated() }
        .expert(|expert| expert.ablation = ablation)
}

/// True if a write was refused because of the limit.
#[track_caller]
fn is_refused(result: Result<()>) -> bool {
    if let Err(e) = &result {
        assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
    }
    result.is_err()
}

/// A source of random operations on a store.
struct Chaos {
    db: Db,
    families: [ColumnFamily; 3],
    rng: Rng,
    snapshots: Vec<Snapshot>,
    iterators: Vec<DbIterator>,
    round: u64,
    refused: u64,
}

impl Chaos {
    fn new(sim: &SimEnv, seed: u64) -> Chaos {
        let mut rng = Rng::new(seed);
        let db = Db::open_in(env(sim), DIR, drawn(&mut rng)).unwrap();
        let families = families(&db);
        Chaos { db, families, rng, snapshots: Vec::new(), iterators: Vec::new(), round: 0, refused: 0 }
    }

    fn family(&mut self) -> ColumnFamily {
        let at = self.rng.below(3) as usize;
        self.families[at].clone()
    }

    fn step(&mut self) {
        self.round += 1;
        let (family, at) = (self.family(), self.rng.below(800));
        match self.rng.below(100) {
            0..60 => {
                let mut batch = WriteBatch::new();
                let len = if self.rng.one_in(300) { 40_000 } else { 20 + self.rng.below(400) };
                for i in at..at + 1 + self.rng.below(8) {
                    let mut value = vec![0; len as usize];
                    self.rng.fill(&mut value);
                    batch.put_cf(&family, &key(i), &value);
                }
                self.refused += u64::from(is_refused(self.db.write(&batch)));
            }
            60..66 => drop(is_refused(self.db.delete_cf(&family, &key(at)))),
            66 => {
                let end = key(at + self.rng.below(60));
                is_refused(self.db.delete_range_cf(&family, &key(at), &end));
            }
            67 if self.rng.one_in(8) => self.db.flush().unwrap(),
            68 if self.rng.one_in(12) => drop(is_refused(self.db.compact_range(&family, None, None))),
            69 if self.snapshots.len() < 4 => {
                self.snapshots.push(self.db.snapshot_named(&format!("at {}", self.round)));
            }
            70 if self.iterators.len() < 4 => {
                let options = ReadOptions { name: format!("from {}", self.round), ..Default::default() };
                let mut iterator = self.db.iter_cf(&family, options).unwrap();
                iterator.seek_to_first().unwrap();
                self.iterators.push(iterator);
            }
            71 if self.rng.one_in(3) => drop(self.snapshots.pop()),
            72 if self.rng.one_in(3) => drop(self.iterators.pop()),
            73..100 => {
                for _ in 0..self.rng.below(6) {
                    self.db.run_background_step();
                }
            }
            _ => {}
        }
    }
}

/// Asserts a difference of at most 1 % of the total.
#[track_caller]
fn near(space: &Space, what: &str, told: u64, scanned: u64) {
    assert!(told.abs_diff(scanned) <= space.total_bytes / 100, "{what}: {told}, not {scanned}: {space:#?}");
}

/// Checks each part of the ledger against the files.
#[track_caller]
fn agrees(db: &Db, sim: &SimEnv, scan: &Scan) -> Space {
    let space = ledger_adds_up(db, scan.total);
    let exact = [
        ("tables", space.table_bytes, scan.tables),
        ("wal", space.wal_bytes, scan.logs),
        ("manifest", space.manifest_bytes, scan.manifests),
        ("other", space.other_bytes, scan.other),
    ];
    for (what, told, scanned) in exact {
        assert_eq!(told, scanned, "{what}: {space:#?}");
    }
    near(&space, "garbage", space.garbage_bytes, scan.garbage_records);
    // Segments that only memtables reference are values, too: a reader that replays the log finds
    // the same ones.
    let reader = Db::open_read_only_in(env(sim), DIR, separated()).unwrap();
    let replayed = reader.space().unwrap();
    near(
        &space,
        "values",
        space.value_bytes + space.garbage_bytes,
        replayed.value_bytes + replayed.garbage_bytes,
    );
    let of_memtables = (space.value_bytes + space.garbage_bytes).saturating_sub(scan.vssts);
    near(&space, "loose", space.pinned_bytes + space.job_bytes + of_memtables, scan.loose);
    near(&space, "hidden, at most", space.hidden_bytes_max.max(scan.hidden_records), space.hidden_bytes_max);
    assert!(space.hidden_bytes_min <= space.hidden_bytes && space.hidden_bytes <= space.hidden_bytes_max);
    if scan.index.1 > 0 {
        let told = space.index_amplification();
        assert_eq!(told, scan.index.0 as f64 / scan.index.1 as f64);
    }
    space
}

/// Checks the ledger's figures of each snapshot against the entries that it alone retains.
fn snapshots_hold_what_they_see(space: &Space, scan: &Scan, snapshots: &[Snapshot]) {
    for snapshot in snapshots {
        let holder = space.holders.iter().find(|h| h.id == snapshot.id()).unwrap();
        assert_eq!((&holder.name[..], holder.kind), (snapshot.name(), HolderKind::Snapshot));
        let seen = |h: &&Hidden| h.is_seen_by(snapshot.sequence());
        let met: u64 = scan.hidden.iter().filter(seen).filter(|h| h.met).map(Hidden::bytes).sum();
        assert_eq!(holder.kept_bytes, met, "{holder:#?}");
        let unmet = scan.hidden.iter().filter(seen).filter(|h| !h.met);
        let unmet: u64 = unmet.map(|h| h.record_bytes).sum();
        near(
            space,
            "hidden for a snapshot, at most",
            holder.hidden_bytes_max.max(unmet),
            holder.hidden_bytes_max,
        );
    }
}

#[test]
fn a_hundred_random_states_agree_with_the_files() {
    let (mut busy, mut pinned, mut loose, mut held, mut garbage, mut refused) = (0, 0, 0, 0, 0, 0);
    for seed in 0..18 {
        let sim = SimEnv::new(seed);
        let mut chaos = Chaos::new(&sim, seed);
        for _ in 0..10 {
            for _ in 0..100 + chaos.rng.below(400) {
                chaos.step();
            }
            let scan = scan(&sim);
            let space = agrees(&chaos.db, &sim, &scan);
            snapshots_hold_what_they_see(&space, &scan, &chaos.snapshots);
            busy += u64::from(space.job_bytes > 0);
            pinned += u64::from(space.holders.iter().any(|h| h.file_bytes > 0));
            loose += u64::from(scan.loose > space.pinned_bytes + space.job_bytes);
            held += u64::from(space.holders.iter().any(|h| h.kept_bytes > 0));
            garbage += u64::from(space.garbage_bytes * 20 > space.total_bytes);
        }
        refused += u64::from(chaos.refused > 0);
    }
    // The states were of all kinds.
    let seen = [busy, pinned, loose, held, garbage];
    assert!(seen.iter().all(|&n| n >= 3), "jobs, pinned, segments of memtables, kept, garbage: {seen:?}");
    assert!(refused >= 2, "limits were reached in {refused} stores");
}
