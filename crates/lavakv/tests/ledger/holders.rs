//! Holders in the ledger: leaked snapshots and forgotten iterators by name, the log by column
//! family.

use crate::common::*;
use crate::separated;
use lavastore_lavakv::{Db, Holder, ReadOptions, Space, sim::SimEnv};

fn open_separated(sim: &SimEnv) -> Db {
    Db::open_in(env(sim), DIR, separated()).unwrap()
}

#[track_caller]
fn named<'a>(space: &'a Space, name: &str) -> &'a Holder {
    space.holders.iter().find(|h| h.name == name).unwrap_or_else(|| panic!("no {name}: {space:#?}"))
}

fn compact(db: &Db) {
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(db);
}

#[test]
fn a_leaked_snapshot_is_reported_by_name_and_bytes() {
    for options in [separated(), small()] {
        let sim = SimEnv::new(1);
        let (db, mut model) = (Db::open_in(env(&sim), DIR, options).unwrap(), Model::new());
        fill(&db, &mut model, 0..2000, 0);
        compact(&db);
        let whole = db.space().unwrap();
        let data: u64 = (0..2000).map(|i| (key(i).len() + value(i, 0).len()) as u64).sum();
        let leaked = db.snapshot_named("nightly backup");
        let young = db.snapshot_named("of yesterday");
        sim.advance_ns(7_000_000_000);
        for round in 1..4 {
            fill(&db, &mut model, 0..2000, round);
        }
        drop(young);
        compact(&db);
        let space = db.space().unwrap();
        let holder = named(&space, "nightly backup");
        assert_eq!((holder.id, holder.sequence), (leaked.id(), leaked.sequence()));
        assert!(holder.age_ns >= 7_000_000_000 && space.holders.len() == 1, "{space:#?}");
        // It retains the whole data set: records have headers, keys have trailers.
        let kept = holder.kept_bytes;
        assert!(kept > data && kept < data + data / 3, "{kept} of {data}: {holder:?}");
        assert_eq!((holder.kept_alone_bytes, holder.hidden_bytes, space.kept_bytes), (kept, 0, kept));
        let more = space.table_bytes + space.value_bytes - whole.table_bytes - whole.value_bytes;
        assert!(more.abs_diff(kept) < kept / 4, "{more} more on disk, {kept} kept");
        drop(leaked);
        let space = db.space().unwrap();
        assert!(space.holders.is_empty() && space.kept_bytes == 0, "{space:#?}");
        fill(&db, &mut model, 0..2000, 4);
        compact(&db);
        compact(&db);
        let space = db.space().unwrap();
        assert_eq!(space.hidden_bytes_max, 0, "{space:#?}");
        assert!(contents(&db) == model);
    }
}

#[test]
fn bytes_shared_by_snapshots_are_not_exclusive() {
    let sim = SimEnv::new(2);
    let (db, mut model) = (open_separated(&sim), Model::new());
    fill(&db, &mut model, 0..500, 0);
    let first = db.snapshot_named("first");
    fill(&db, &mut model, 500..1000, 0);
    let second = db.snapshot_named("second");
    fill(&db, &mut model, 0..1000, 1);
    let third = db.snapshot();
    compact(&db);
    let space = db.space().unwrap();
    let (one, two) = (named(&space, "first"), named(&space, "second"));
    assert!(one.kept_bytes > 0 && one.kept_alone_bytes == 0, "{one:?}");
    assert!(two.kept_alone_bytes == two.kept_bytes - one.kept_bytes && two.kept_alone_bytes > 0, "{two:?}");
    assert_eq!(named(&space, "").kept_bytes, 0, "what it sees everybody sees");
    assert_eq!(space.kept_bytes, two.kept_bytes);
    let before = two.clone();
    drop(first);
    let two = named(&db.space().unwrap(), "second").clone();
    assert_eq!((two.kept_bytes, two.kept_alone_bytes), (before.kept_bytes, before.kept_bytes));
    drop((second, third));
}

#[test]
fn snapshot_bytes_before_compaction_are_a_bounded_estimate() {
    let sim = SimEnv::new(3);
    let (db, mut model) = (open_separated(&sim), Model::new());
    fill(&db, &mut model, 0..2000, 0);
    compact(&db);
    let snapshot = db.snapshot_named("s");
    let quiet = db.space().unwrap();
    assert_eq!(named(&quiet, "s").bytes(), 0, "nothing is newer");
    // Too little for a compaction of level 0.
    fill(&db, &mut model, 0..200, 1);
    db.flush().unwrap();
    let space = db.space().unwrap();
    let holder = named(&space, "s");
    let truth: u64 = (0..200).map(|i| value(i, 0).len() as u64).sum();
    assert_eq!(holder.kept_bytes, 0);
    assert!(holder.hidden_bytes_max >= truth && holder.hidden_bytes_max < truth * 3 / 2, "{holder:?}");
    assert!(holder.hidden_bytes > truth / 2 && holder.hidden_bytes <= holder.hidden_bytes_max, "{holder:?}");
    drop(snapshot);
}

#[test]
fn an_iterator_holds_the_files_of_its_view() {
    let sim = SimEnv::new(4);
    let (db, mut model) = (open_separated(&sim), Model::new());
    fill(&db, &mut model, 0..1500, 0);
    db.put(b"large", &[1; 50_000]).unwrap();
    compact(&db);
    let named_options = |name: &str| ReadOptions { name: name.to_owned(), ..Default::default() };
    let first = db.iter(named_options("export")).unwrap();
    let second = db.iter(named_options("export too")).unwrap();
    assert_eq!(named(&db.space().unwrap(), "export").file_bytes, 0, "the files are those of the store");
    fill(&db, &mut model, 0..1500, 1);
    db.delete(b"large").unwrap();
    compact(&db);
    db.collect_garbage(Default::default()).unwrap();
    settle(&db);
    let space = db.space().unwrap();
    let (one, two) = (named(&space, "export"), named(&space, "export too"));
    assert_eq!((one.file_bytes, one.family.as_str()), (space.pinned_bytes, "default"));
    assert!(one.file_bytes > 150_000 && one.file_bytes == two.file_bytes, "{space:#?}");
    assert_eq!((one.file_alone_bytes, space.pinned_unheld_bytes), (0, 0));
    drop(first);
    let space = db.space().unwrap();
    assert_eq!(named(&space, "export too").file_alone_bytes, space.pinned_bytes);
    drop(second);
    settle(&db);
    let space = db.space().unwrap();
    assert!(space.holders.is_empty() && space.pinned_bytes == 0, "{space:#?}");
}

#[test]
fn the_unflushed_family_is_reported_as_log_holder() {
    let sim = SimEnv::new(5);
    let (db, mut model) = (open_separated(&sim), Model::new());
    let rare = db.create_column_family("rare", small_family()).unwrap();
    settle(&db);
    assert_eq!(db.space().unwrap().log_holder, None, "no family has anything in memory");
    db.put_cf(&rare, b"k", b"v").unwrap();
    let oldest = db.snapshot().sequence();
    fill(&db, &mut model, 0..3000, 0);
    settle(&db);
    let space = db.space().unwrap();
    let holder = space.log_holder.clone().unwrap();
    assert_eq!((&holder.family[..], holder.oldest_sequence), ("rare", oldest), "{space:#?}");
    // Closed groups of 128 KiB each; the other family needs at most the last ones.
    assert!(holder.bytes >= 2 * (128 << 10) && holder.bytes <= space.wal_in_use_bytes, "{space:#?}");
    assert!(holder.alone_bytes > 0 && space.wal_in_use_bytes <= space.wal_bytes, "{space:#?}");
    let of = |name: &str| space.families.iter().find(|f| f.name == name).unwrap().log_bytes;
    assert_eq!(of("rare"), holder.bytes);
    assert_eq!(of("default"), holder.bytes - holder.alone_bytes);

    let reader = Db::open_read_only_in(env(&sim), DIR, separated()).unwrap();
    let seen = reader.space().unwrap();
    assert!(seen.is_read_only && !space.is_read_only);
    assert_eq!(seen.log_holder, space.log_holder, "a reader finds the same");
    db.flush().unwrap();
    settle(&db);
    let after = db.space().unwrap();
    assert!(after.log_holder.is_none() && after.wal_in_use_bytes < space.wal_in_use_bytes, "{after:#?}");
}
