//! Keys, values, batches and options over the limits.

use crate::common::*;
use lavastore_lavakv::{
    Compression, Db, Durability, ErrorKind, ExpertFamilyOptions, FamilyOptions, Options, ReadOptions,
    WriteBatch, sim::SimEnv,
};

const KEY_MAX: usize = 64 << 10;
const VALUE_MAX: usize = 16 << 20;

#[test]
fn key_lengths_are_bounded() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let longest = vec![7; KEY_MAX];
    let too_long = vec![7; KEY_MAX + 1];
    fails(db.put(b"", b"v"), ErrorKind::InvalidArgument);
    fails(db.delete(b""), ErrorKind::InvalidArgument);
    fails(db.put(&too_long, b"v"), ErrorKind::TooLarge);
    fails(db.delete(&too_long), ErrorKind::TooLarge);
    fails(db.delete_range(b"a", &too_long), ErrorKind::TooLarge);
    fails(db.delete_range(&too_long, b"z"), ErrorKind::TooLarge);
    let e = db.put(&too_long, b"v").unwrap_err();
    assert!(e.message().contains("65537") && e.message().contains("65536"), "says both sizes: {e}");
    // Reading an impossible key is no error.
    assert!(db.get(b"").unwrap().is_none());
    assert!(db.get(&too_long).unwrap().is_none());
    db.put(&longest, b"v").unwrap();
    db.put(&[0], b"zero").unwrap();
    db.put(&[0xff; 8], b"").unwrap();
    db.flush().unwrap();
    drop(db);
    let db = open(&sim);
    assert_eq!(db.get(&longest).unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(db.get(&[0xff; 8]).unwrap().as_deref(), Some(&b""[..]), "an empty value is a value");
    assert_eq!(contents(&db).len(), 3);
    db.delete_range(b"", &longest).unwrap();
    assert_eq!(contents(&db).len(), 2, "an empty start is the start");
}

/// The longest values without a segment pass through log, memtable, table and compaction; one byte
/// more goes into a segment, in a batch as well.
#[test]
fn value_lengths_are_bounded() {
    let sim = SimEnv::new(2);
    let options = small().expert(|expert| {
        expert.log_group_bytes = 64 << 20;
        expert.wal_bytes_max = 128 << 20;
    });
    let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
    let largest = vec![9; VALUE_MAX];
    let mut batch = WriteBatch::new();
    batch.put(b"k", &vec![9; VALUE_MAX + 1]);
    db.write(&batch).unwrap();
    assert_eq!(db.get(b"k").unwrap().map(|value| value.len()), Some(VALUE_MAX + 1));
    assert_eq!(db.stats().segment_bytes_written >> 20, 16);
    db.put(b"k", &largest).unwrap();
    // On the volume of 1 GiB the log groups, and thus the values in the log, are shorter than
    // requested.
    assert_eq!(db.stats().segment_bytes_written >> 20, if on_lavafs() { 32 } else { 16 });
    db.put(b"small", b"s").unwrap();
    drop(db);
    let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
    assert!(db.get(b"k").unwrap().as_deref() == Some(&largest[..]));
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    assert!(db.verify().unwrap().errors.is_empty());
    drop(db);
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    assert!(db.get(b"k").unwrap().as_deref() == Some(&largest[..]));
    assert_eq!(contents(&db).len(), 2);
}

#[test]
fn batch_lengths_are_bounded() {
    let sim = SimEnv::new(3);
    let options = Options { memtable_bytes: 4 << 20, memory_bytes: 64 << 20, ..small() };
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    // Short enough not to get files of their own, which would not count.
    let value = vec![1; 30_000];
    let mut batch = WriteBatch::new();
    for i in 0..600 {
        batch.put(&key(i), &value);
    }
    fails(db.write(&batch), ErrorKind::TooLarge);
    assert!(contents(&db).is_empty(), "nothing of a refused batch is there");
    batch.clear();
    assert!(batch.is_empty());
    for i in 0..500 {
        batch.put(&key(i), &value);
    }
    db.write(&batch).unwrap();
    assert_eq!(contents(&db).len(), 500);
    // The first invalid change decides, whatever follows.
    batch.clear();
    batch.put(b"good", b"1");
    batch.put(b"", b"2");
    batch.put(b"also good", b"3");
    fails(db.write(&batch), ErrorKind::InvalidArgument);
    assert_eq!(contents(&db).len(), 500);
    batch.clear();
    db.write(&batch).unwrap();
}

#[test]
fn invalid_options_are_refused() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let o = small;
    let f = small_family;
    let with = |family: FamilyOptions| Options { family, ..small() };
    let absurd: [(&str, Options); 22] = [
        ("cache_bytes", Options { cache_bytes: usize::MAX, ..o() }),
        ("memtable_bytes", Options { memtable_bytes: 0, ..o() }),
        ("memtable_bytes", Options { memtable_bytes: usize::MAX, ..o() }),
        ("memory_bytes", Options { memory_bytes: 1, ..o() }),
        ("log_group_bytes", o().expert(|expert| expert.log_group_bytes = 0)),
        ("log_group_bytes", o().expert(|expert| expert.log_group_bytes = u64::MAX)),
        ("log_group_bytes", o().expert(|expert| expert.log_group_bytes = (128 << 10) + 1)),
        ("wal_bytes_max", o().expert(|expert| expert.wal_bytes_max = 1)),
        ("background_threads", Options { background_threads: 0, ..o() }),
        ("background_threads", Options { background_threads: 100_000, ..o() }),
        ("compactions_max", o().expert(|expert| expert.compactions_max = usize::MAX)),
        ("open_files_max", Options { open_files_max: 0, ..o() }),
        ("first_number", o().expert(|expert| expert.first_number = 0)),
        ("io_budget", Options { io_budget: 1, ..o() }),
        ("block_bytes", with(f().expert(|expert| expert.block_bytes = 0))),
        ("block_bytes", with(f().expert(|expert| expert.block_bytes = usize::MAX))),
        ("filter_bits_per_key", with(FamilyOptions { filter_bits_per_key: u32::MAX, ..f() })),
        ("file_bytes", with(f().expert(|expert| expert.file_bytes = 0))),
        ("level_multiplier", with(f().expert(|expert| expert.level_multiplier = 1))),
        ("levels", with(f().expert(|expert| expert.levels = 100))),
        ("l0_stop_files", with(f().expert(|expert| expert.l0_stop_files = 1))),
        ("l0_compaction_files", with(f().expert(|expert| expert.l0_compaction_files = 0))),
    ];
    for (name, options) in absurd {
        let sim = SimEnv::new(4);
        let e = Db::open_in(env(&sim), DIR, options.clone()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
        assert!(e.message().contains(name), "{name}: {e}");
        assert!(sim.files().is_empty(), "a refused open leaves nothing behind");
        fails(Db::open_read_only_in(env(&sim), DIR, options), ErrorKind::InvalidArgument);
    }
}

#[test]
fn invalid_family_names_and_options_are_refused() {
    let sim = SimEnv::new(5);
    let db = open(&sim);
    fails(db.create_column_family("", small_family()), ErrorKind::InvalidArgument);
    fails(db.create_column_family(&"x".repeat(1025), small_family()), ErrorKind::InvalidArgument);
    fails(
        db.create_column_family("x", small_family().expert(|expert| expert.levels = 1)),
        ErrorKind::InvalidArgument,
    );
    fails(db.create_column_family("default", small_family()), ErrorKind::AlreadyExists);
    db.create_column_family(&"x".repeat(1024), small_family()).unwrap();
    db.create_column_family("größer/∞ \n", small_family()).unwrap();
    drop(db);
    let db = open(&sim);
    assert_eq!(db.column_families().len(), 3);
    assert!(db.column_family("größer/∞ \n").is_some());
    assert!(db.column_family("").is_none() && db.column_family("nobody").is_none());
}

/// The smallest budgets that are accepted work.
#[test]
fn the_smallest_options_work() {
    let sim = SimEnv::new(6);
    let family = FamilyOptions {
        merge_operator: None,
        prefix: None,
        compression: Compression::None,
        min_blob_size: 32,
        filter_bits_per_key: 0,
        policy: Default::default(),
        expert: ExpertFamilyOptions {
            block_bytes: 512,
            file_bytes: 4 << 10,
            level_base_bytes: 4 << 10,
            level_multiplier: 2,
            levels: 2,
            l0_compaction_files: 1,
            l0_slowdown_files: 1,
            l0_stop_files: 2,
            vsst_bytes: 4 << 10,
            gc_ratio_percent: 1,
        },
    };
    let options = Options {
        cache_bytes: 0,
        memtable_bytes: 16 << 10,
        memory_bytes: 32 << 10,
        background_threads: 1,
        open_files_max: 16,
        durability: Durability::Durable,
        family,
        ..Default::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 64 << 10;
        expert.wal_bytes_max = 128 << 10;
    });
    let (db, mut model) = (Db::open_in(env(&sim), DIR, options.clone()).unwrap(), Model::new());
    for round in 0..3 {
        fill(&db, &mut model, 0..600, round);
    }
    settle(&db);
    assert!(contents(&db) == model);
    for (key, value) in &model {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    drop(db);
    assert!(contents(&Db::open_in(env(&sim), DIR, options).unwrap()) == model);
}

#[test]
fn invalid_iterator_bounds_yield_nothing() {
    let sim = SimEnv::new(7);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..10, 0);
    let count = |options: ReadOptions| db.iter(options).map(|i| i.entries().count());
    let reversed = ReadOptions { lower_bound: Some(key(8)), upper_bound: Some(key(2)), ..Default::default() };
    assert_eq!(count(reversed).unwrap(), 0);
    let empty = ReadOptions { lower_bound: Some(key(2)), upper_bound: Some(key(2)), ..Default::default() };
    assert_eq!(count(empty).unwrap(), 0);
    let nothing = ReadOptions { upper_bound: Some(vec![]), ..Default::default() };
    assert_eq!(count(nothing).unwrap(), 0);
    let all = ReadOptions { lower_bound: Some(vec![]), prefix: Some(vec![]), ..Default::default() };
    assert_eq!(count(all).unwrap(), 10);
    let beyond = ReadOptions { prefix: Some(vec![0xff; 9]), ..Default::default() };
    assert_eq!(count(beyond).unwrap(), 0);
    let ahead = ReadOptions { readahead_bytes: usize::MAX, ..Default::default() };
    db.flush().unwrap();
    assert_eq!(count(ahead).unwrap(), 10);
}
