//! Compaction filters: entries that no snapshot sees are removed or changed, and user code that fails
//! changes nothing.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::sim::SimEnv;
use lavastore_lavakv::{
    CompactionFilter, CompactionFilters, Db, Error, FamilyOptions, FilterDecision, FilterRun,
    FilteredCompaction, FilteredEntry, MergeChoice, Options, Result, WriteOptions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Removes values that begin with `r`, and changes those that begin with `c`. Keys that begin with
/// `k` stay without a look at their values.
#[derive(Clone, Default)]
struct Letters {
    values_read: Arc<AtomicU64>,
}

impl CompactionFilter for Letters {
    fn begin(&self, compaction: &FilteredCompaction) -> Box<dyn FilterRun> {
        assert!(compaction.unix_seconds > 0);
        Box::new(self.clone())
    }
}

impl FilterRun for Letters {
    fn decide(&mut self, entry: &mut FilteredEntry<'_>) -> Result<FilterDecision> {
        if entry.key().starts_with(b"keep") {
            return Ok(FilterDecision::Keep);
        }
        self.values_read.fetch_add(1, Ordering::Relaxed);
        let value = entry.value()?;
        Ok(match value.first() {
            Some(b'r') => FilterDecision::Remove,
            Some(b'c') => FilterDecision::Change([b"d", &value[1..]].concat()),
            _ => FilterDecision::Keep,
        })
    }
}

fn with_filter(filter: Arc<dyn CompactionFilter>) -> Options {
    let filters = CompactionFilters::default().with("default", filter);
    let family = FamilyOptions { min_blob_size: 64, ..small_family() };
    Options { family, ..small() }.expert(|expert| expert.compaction_filters = filters)
}

#[test]
fn entries_are_removed_and_changed_inline_and_separated() {
    for seed in 0..16 {
        let (sim, mut rng, letters) = (SimEnv::new(seed), Rng::new(seed), Letters::default());
        let db = Db::open_in(env(&sim), DIR, with_filter(Arc::new(letters.clone()))).unwrap();
        let mut expected = Model::new();
        for round in 0..3 {
            for n in 0..60 {
                let prefix = if rng.one_in(4) { "keep" } else { "key" };
                let key = format!("{prefix}{n:03}").into_bytes();
                let len = if rng.one_in(2) { 10 } else { 200 };
                let mut value = vec![b'0' + round; len];
                value[0] = [b'r', b'c', b'v'][rng.below(3) as usize];
                db.put(&key, &value).unwrap();
                expected.insert(key, value);
            }
            db.flush().unwrap();
        }
        db.compact_range(db.default_column_family(), None, None).unwrap();
        expected.retain(|key, value| {
            let is_kept = key.starts_with(b"keep");
            if !is_kept && value[0] == b'c' {
                value[0] = b'd';
            }
            is_kept || value[0] != b'r'
        });
        assert_eq!(contents(&db), expected, "seed {seed}");
        let stats = db.stats();
        assert!(stats.filter_removals > 0 && stats.filter_changes > 0 && stats.filter_failures == 0);
        assert!(letters.values_read.load(Ordering::Relaxed) > 0);
        assert!(db.verify().unwrap().errors.is_empty());
        drop(db);
        let db = Db::open_in(env(&sim), DIR, small()).unwrap();
        assert_eq!(contents(&db), expected, "seed {seed}, opened without the filter");
    }
}

/// A removed entry hides older versions below the compaction, and a snapshot keeps its entries.
#[test]
fn a_snapshot_sees_entries_that_the_filter_would_remove() {
    let (sim, letters) = (SimEnv::new(3), Letters::default());
    let db = Db::open_in(env(&sim), DIR, with_filter(Arc::new(letters))).unwrap();
    let family = db.default_column_family().clone();
    db.put(b"a", b"value").unwrap();
    db.flush().unwrap();
    db.compact_range(&family, None, None).unwrap();
    db.put(b"a", b"removed").unwrap();
    let snapshot = db.snapshot();
    db.flush().unwrap();
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"removed"[..]), "the snapshot protects it");
    drop(snapshot);
    // Around the key, so that the compaction rewrites its table.
    db.put(b"0", b"value").unwrap();
    db.put(b"z", b"value").unwrap();
    db.flush().unwrap();
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(db.get(b"a").unwrap(), None);
    assert_eq!(contents(&db).len(), 2);
}

struct Fails(bool);

impl CompactionFilter for Fails {
    fn begin(&self, _: &FilteredCompaction) -> Box<dyn FilterRun> {
        Box::new(Fails(self.0))
    }
}

impl FilterRun for Fails {
    fn decide(&mut self, _: &mut FilteredEntry<'_>) -> Result<FilterDecision> {
        assert!(!self.0, "the bug of a user");
        Err(Error::invalid("the filter gives up"))
    }
}

#[test]
fn a_filter_that_fails_changes_nothing() {
    for panics in [false, true] {
        let sim = SimEnv::new(4);
        let db = Db::open_in(env(&sim), DIR, with_filter(Arc::new(Fails(panics)))).unwrap();
        let mut model = Model::new();
        for round in 0..3 {
            fill(&db, &mut model, 0..50, round);
            db.flush().unwrap();
        }
        db.compact_range(db.default_column_family(), None, None).unwrap();
        assert_eq!(contents(&db), model);
        assert!(db.stats().filter_failures > 0);
    }
}

/// A value that cannot be folded with the operand above it is not the newest version of its key.
#[test]
fn a_value_below_operands_is_not_filtered() {
    let options = with_filter(Arc::new(Letters::default()));
    let merge_operator = Some(MergeChoice::append(b"+"));
    let options = Options { family: FamilyOptions { merge_operator, ..options.family.clone() }, ..options };
    let sim = SimEnv::new(6);
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    let family = db.default_column_family().clone();
    // A file of its own: compactions do not fold into it. The filter would give up at its value.
    let value = vec![b'r'; 40 << 10];
    db.put(b"a", &value).unwrap();
    db.put(b"b", b"removed").unwrap();
    db.flush().unwrap();
    db.merge_opt(&family, b"a", b"1", &WriteOptions::default()).unwrap();
    db.flush().unwrap();
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&[&value[..], b"+1"].concat()[..]));
    assert_eq!(db.get(b"b").unwrap(), None);
    assert_eq!(db.stats().filter_failures, 0);
}
