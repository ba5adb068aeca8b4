//! The ledger against exact figures: random histories of writes, readers and jobs, in which every
//! version of a key is known.
//!
//! A version in a table is live if it is the newest of its key, counting memtables too. All other
//! versions referenced by tables are hidden garbage. Bounds must hold at every moment.

use crate::common::*;
use crate::scan::{Scan, Stored, listed, scan};
use crate::{separated, snapshots_hold_what_they_see};
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::{
    ColumnFamily, Db, DbIterator, HolderKind, Options, PolicyChoice, ReadOptions, Snapshot, Space,
    SpaceLimit, WriteBatch, sim::SimEnv,
};
use std::collections::{BTreeMap, BTreeSet};

/// The versions of a key, ascending: sequence, and the value unless it was deleted.
type Versions = Vec<(u64, Option<Vec<u8>>)>;

/// Every version of every key of two column families.
#[derive(Default)]
struct Exact {
    keys: [BTreeMap<Vec<u8>, Versions>; 2],
}

impl Exact {
    fn versions(&self, stored: &Stored) -> &Versions {
        &self.keys[usize::from(stored.family > 0)][&stored.user_key]
    }

    /// Returns the sequence that hides this version; `None`: it is live.
    fn hidden_from(&self, stored: &Stored) -> Option<u64> {
        let versions = self.versions(stored);
        match &stored.inline {
            Some(value) => {
                let at = versions.iter().position(|(_, of)| of.as_ref() == Some(value)).unwrap();
                versions.get(at + 1).map(|(seq, _)| *seq)
            }
            None => versions.iter().map(|(seq, _)| *seq).find(|seq| *seq > stored.seq),
        }
    }

    fn is_live(&self, user_key: &[u8], family: usize) -> bool {
        self.keys[family].get(user_key).and_then(|v| v.last()).is_some_and(|(_, value)| value.is_some())
    }
}

/// A store with two families, its write history, and its readers.
struct History {
    sim: SimEnv,
    db: Option<Db>,
    options: Options,
    exact: Exact,
    rng: Rng,
    snapshots: Vec<Snapshot>,
    iterators: Vec<Reader>,
    readers: u64,
    reopened: u64,
}

/// An iterator, and the files of its read state.
struct Reader {
    _iterator: DbIterator,
    name: String,
    files: BTreeSet<String>,
}

impl History {
    fn new(seed: u64) -> History {
        let (sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
        let mut options = separated();
        // Some histories write records of one size, some of many.
        options.family.min_blob_size = [64, 200][rng.below(2) as usize];
        options.family.policy = PolicyChoice::named(["leveled", "vlsm"][rng.below(2) as usize]).unwrap();
        let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        db.create_column_family("inline", small_family()).unwrap();
        History {
            sim,
            db: Some(db),
            options,
            exact: Exact::default(),
            rng,
            snapshots: Vec::new(),
            iterators: Vec::new(),
            readers: 0,
            reopened: 0,
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn family(&self, nth: usize) -> ColumnFamily {
        match nth {
            0 => self.db().default_column_family().clone(),
            _ => self.db().column_family("inline").unwrap(),
        }
    }

    /// Records a write whose last sequence is the visible one.
    fn note(&mut self, family: usize, user_key: Vec<u8>, back: u64, value: Option<Vec<u8>>) {
        let seq = self.db().snapshot().sequence() - back;
        self.exact.keys[family].entry(user_key).or_default().push((seq, value));
    }

    fn put(&mut self, nth: usize, at: u64) {
        let (mut batch, family, count) = (WriteBatch::new(), self.family(nth), 1 + self.rng.below(8));
        let mut values = Vec::new();
        for i in at..at + count {
            let len = if self.rng.one_in(20) { 3000 } else { 20 + self.rng.below(400) };
            let mut value = vec![0; len as usize];
            self.rng.fill(&mut value);
            batch.put_cf(&family, &key(i), &value);
            values.push(value);
        }
        self.db().write(&batch).unwrap();
        for (i, value) in values.into_iter().enumerate() {
            self.note(nth, key(at + i as u64), count - 1 - i as u64, Some(value));
        }
    }

    fn delete_range(&mut self, nth: usize, at: u64) {
        let (family, end) = (self.family(nth), key(at + 1 + self.rng.below(60)));
        self.db().delete_range_cf(&family, &key(at), &end).unwrap();
        let covered: Vec<_> = self.exact.keys[nth].range(key(at)..end).map(|(k, _)| k.clone()).collect();
        for user_key in covered.into_iter().filter(|k| self.exact.is_live(k, nth)).collect::<Vec<_>>() {
            self.note(nth, user_key, 0, None);
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.iterators.clear();
        let db = self.db.take().unwrap();
        if self.rng.one_in(2) {
            db.close().unwrap();
        } else {
            drop(db);
        }
        self.db = Some(Db::open_in(env(&self.sim), DIR, self.options.clone()).unwrap());
        self.reopened += 1;
    }

    fn read(&mut self, family: &ColumnFamily) {
        self.readers += 1;
        let name = format!("reader {}", self.readers);
        let options = ReadOptions { name: name.clone(), ..Default::default() };
        let files = listed(&self.sim).remove(&family.id()).unwrap();
        let mut iterator = self.db().iter_cf(family, options).unwrap();
        iterator.seek_to_first().unwrap();
        self.iterators.push(Reader { _iterator: iterator, name, files });
    }

    fn step(&mut self) {
        let (nth, at) = (usize::from(self.rng.one_in(4)), self.rng.below(600));
        let family = self.family(nth);
        match self.rng.below(200) {
            0..110 => self.put(nth, at),
            110..130 => {
                self.db().delete_cf(&family, &key(at)).unwrap();
                if self.exact.is_live(&key(at), nth) {
                    self.note(nth, key(at), 0, None);
                }
            }
            130 => self.delete_range(nth, at),
            131 if self.rng.one_in(4) => self.db().flush().unwrap(),
            132 if self.rng.one_in(12) => self.db().compact_range(&family, None, None).unwrap(),
            133 if self.rng.one_in(12) => drop(self.db().collect_garbage(Default::default()).unwrap()),
            134 if self.snapshots.len() < 4 => self.snapshots.push(self.db().snapshot()),
            135 if self.iterators.len() < 4 => self.read(&family),
            136 if self.rng.one_in(2) => drop(self.snapshots.pop()),
            137 if self.rng.one_in(2) => drop(self.iterators.pop()),
            138 if self.rng.one_in(6) => self.reopen(),
            139 if self.rng.one_in(20) => settle(self.db()),
            140..200 => {
                for _ in 0..self.rng.below(6) {
                    self.db().run_background_step();
                }
            }
            _ => {}
        }
    }
}

/// Results of the estimates over all states.
#[derive(Debug, Default)]
struct Outcome {
    states: u64,
    /// Number of states with hidden garbage; `bounded`: with a bound below the referenced bytes;
    /// `pinned` and `held`: with files that readers hold.
    hidden: u64,
    bounded: u64,
    pinned: u64,
    held: u64,
    /// Number of states with versions that compactions retained for a snapshot.
    kept: u64,
    reopened: u64,
    /// Sums over all states, bytes.
    referenced_bytes: u64,
    missed_bytes: u64,
}

impl Outcome {
    #[track_caller]
    fn check(&mut self, history: &History) {
        let scan = scan(&history.sim);
        let space = ledger_adds_up(history.db(), scan.total);
        assert_eq!(space.table_bytes, scan.tables, "{space:#?}");
        assert_eq!(space.garbage_bytes, scan.garbage_records, "{space:#?}");
        assert_eq!(space.pinned_bytes + space.job_bytes, scan.loose, "{space:#?}");
        for (nth, family) in space.families.iter().enumerate() {
            let own = || scan.stored.iter().filter(|stored| usize::from(stored.family > 0) == nth);
            let (mut hidden, mut live) = (0, 0);
            for stored in own() {
                match history.exact.hidden_from(stored) {
                    Some(_) => hidden += stored.record_bytes,
                    None => live += stored.raw_bytes,
                }
            }
            let told = (family.hidden_bytes_min, family.hidden_bytes, family.hidden_bytes_max);
            assert!(told.0 <= hidden && hidden <= told.2, "{hidden} is hidden, {told:?}: {family:#?}");
            assert!(told.0 <= told.1 && told.1 <= told.2, "{told:?}");
            assert!(family.live_bytes_min <= live, "{live} is live: {family:#?}");
            let referenced: u64 = own().map(|stored| stored.record_bytes).sum();
            assert_eq!(family.record_bytes - family.garbage_bytes, referenced);
            self.hidden += u64::from(hidden > 0);
            self.bounded += u64::from(told.2 < referenced);
            self.referenced_bytes += referenced;
            self.missed_bytes += told.1.abs_diff(hidden);
        }
        self.check_holders(history, &scan, &space);
        self.check_pinned(history, &scan, &space);
        self.states += 1;
        self.kept += u64::from(space.kept_bytes > 0);
    }

    /// Checks that each reader holds exactly the obsolete files of its read state.
    fn check_pinned(&mut self, history: &History, scan: &Scan, space: &Space) {
        let mut held = BTreeMap::new();
        for reader in &history.iterators {
            let is_own = |(name, _): &(&String, &u64)| reader.files.contains(*name);
            let own: BTreeMap<&String, &u64> = scan.loose_files.iter().filter(is_own).collect();
            let holder = space.holders.iter().find(|holder| holder.name == reader.name).unwrap();
            assert_eq!(holder.file_bytes, own.values().copied().sum::<u64>(), "{holder:#?}");
            held.extend(own);
        }
        let bytes: u64 = held.values().copied().sum();
        assert_eq!(space.pinned_bytes - space.pinned_unheld_bytes, bytes, "{space:#?}");
        self.pinned += u64::from(bytes > 0);
    }

    fn check_holders(&mut self, history: &History, scan: &Scan, space: &Space) {
        snapshots_hold_what_they_see(space, scan, &history.snapshots);
        for holder in space.holders.iter().filter(|h| h.kind == HolderKind::Snapshot) {
            let seen = |stored: &&Stored| {
                let from = history.exact.hidden_from(stored);
                stored.seq <= holder.sequence && from.is_some_and(|from| from > holder.sequence)
            };
            let unmet = scan.stored.iter().filter(seen).filter(|stored| !stored.met);
            let unmet: u64 = unmet.map(|stored| stored.record_bytes).sum();
            assert!(unmet <= holder.hidden_bytes_max, "{unmet} for {holder:#?}");
            self.held += u64::from(unmet > 0);
        }
    }
}

#[test]
fn bounds_hold_in_random_histories() {
    let mut outcome = Outcome::default();
    for seed in 0..24 {
        let mut history = History::new(seed);
        for _ in 0..12 {
            for _ in 0..50 + history.rng.below(300) {
                history.step();
            }
            outcome.check(&history);
            if history.rng.one_in(3) {
                // The throttle and the limits know as much as a report can find out.
                settle(history.db());
                let space = history.db().space().unwrap();
                assert_eq!(hidden_in_metrics(history.db()), space.hidden_bytes as f64, "{space:#?}");
            }
        }
        outcome.reopened += history.reopened;
    }
    let Outcome { states, hidden, bounded, pinned, held, kept, reopened, referenced_bytes, missed_bytes } =
        outcome;
    assert!([hidden, pinned, held, kept, reopened].iter().all(|&n| n > states / 10), "{outcome:?}");
    assert!(bounded > states / 4, "the upper bound says something: {outcome:?}");
    assert!(missed_bytes < referenced_bytes / 6, "the estimate says something: {outcome:?}");
}

fn open_separated(sim: &SimEnv) -> Db {
    Db::open_in(env(sim), DIR, separated()).unwrap()
}

/// Returns the bytes of records hidden by deletes of these keys; all others are live.
fn records_of(sim: &SimEnv, keys: std::ops::Range<u64>) -> u64 {
    let deleted = key(keys.start)..key(keys.end);
    let stored = scan(sim).stored;
    stored.iter().filter(|s| deleted.contains(&s.user_key)).map(|s| s.record_bytes).sum()
}

#[test]
fn memtable_deletes_count_as_unexposed_garbage() {
    for by_range in [false, true] {
        let sim = SimEnv::new(1);
        let (db, mut model) = (open_separated(&sim), Model::new());
        fill(&db, &mut model, 0..2000, 0);
        db.compact_range(db.default_column_family(), None, None).unwrap();
        settle(&db);
        let before = db.space().unwrap();
        assert_eq!((before.hidden_bytes, before.hidden_bytes_max), (0, 0), "{before:#?}");
        // Too few bytes to fill a memtable, so no flush runs.
        match by_range {
            true => db.delete_range(&key(200), &key(1400)).unwrap(),
            false => (200..600).for_each(|i| db.delete(&key(i)).unwrap()),
        }
        let hidden = records_of(&sim, if by_range { 200..1400 } else { 200..600 });
        let space = db.space().unwrap();
        assert_eq!(space.table_bytes, before.table_bytes, "nothing was flushed");
        assert!(hidden > 20_000 && space.hidden_bytes_max >= hidden, "{hidden}: {space:#?}");
        assert!(
            space.hidden_bytes > hidden / 2 && space.hidden_bytes < hidden * 3 / 2,
            "{hidden}: {space:#?}"
        );
        let live = before.live_bytes_min;
        assert!(space.live_bytes_min < live - hidden / 2, "{live} was live: {space:#?}");
    }
}

/// The keys of a load, in order or scattered.
fn loaded(count: u64, in_order: bool) -> impl Iterator<Item = u64> {
    (0..count).map(move |i| if in_order { i } else { i * 7919 % count })
}

#[test]
fn loading_new_keys_creates_no_unexposed_garbage() {
    for in_order in [true, false] {
        let sim = SimEnv::new(1);
        let db = open_separated(&sim);
        for (nth, at) in loaded(6000, in_order).enumerate() {
            db.put(&key(at), &value(at, 0)).unwrap();
            if nth % 64 == 0 {
                db.run_background_step();
            }
            if nth % 500 == 0 {
                let space = db.space().unwrap();
                assert_eq!(space.hidden_bytes, 0, "in order: {in_order}, {nth}: {space:#?}");
                assert!(!in_order || space.hidden_bytes_max == 0, "{nth}: {space:#?}");
            }
        }
        let levels = db.space().unwrap().families[0].levels.len();
        assert!(in_order || levels > 1, "{levels}");
        // A new process finds the same.
        drop(db);
        let db = open_separated(&sim);
        db.flush().unwrap();
        let space = db.space().unwrap();
        assert_eq!(space.hidden_bytes, 0, "in order: {in_order}: {space:#?}");
        assert!(!in_order || space.hidden_bytes_max == 0, "{space:#?}");
    }
}

/// Options under which 6,000 values of 2,500 bytes fill several levels, with a limit relative to
/// the live data.
fn under_a_ratio() -> Options {
    Options {
        memtable_bytes: 256 << 10,
        memory_bytes: 1 << 20,
        space_limit: Some(SpaceLimit::Ratio(1.5)),
        family: small_family().expert(|expert| expert.vsst_bytes = 512 << 10),
        ..small()
    }
    .expert(|expert| expert.wal_bytes_max = 1 << 20)
}

/// Loads keys, with a background step after each.
fn load(db: &Db, keys: impl Iterator<Item = u64>) {
    for at in keys {
        let value = vec![at as u8; 2500];
        db.put(&key(at), &value).unwrap_or_else(|e| panic!("{at}: {e}\n{}", db.describe()));
        db.run_background_step();
    }
}

#[track_caller]
fn was_not_held_up(db: &Db, why: &str) {
    let stats = db.stats();
    assert_eq!((stats.stall_garbage_ns, stats.stall_space_ns), (0, 0), "{why}\n{}", db.describe());
}

/// New keys are no garbage: under a ratio their load is neither refused nor slowed down for space
/// or garbage.
#[test]
fn a_load_under_a_relative_limit_is_not_throttled() {
    for in_order in [true, false] {
        let sim = SimEnv::new(2);
        let db = Db::open_in(env(&sim), DIR, under_a_ratio()).unwrap();
        load(&db, loaded(6000, in_order));
        was_not_held_up(&db, &format!("in order: {in_order}"));
    }
}

/// Returns the estimate of hidden garbage in the metrics. It reads no table; limits and the
/// throttle use the same estimate.
fn hidden_in_metrics(db: &Db) -> f64 {
    let text = db.metrics().unwrap();
    let lines = text.lines().filter(|line| line.starts_with("lavastore_family_hidden_garbage_bytes{"));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

/// The next process counts new keys as before, from the tables that it finds.
#[test]
fn a_load_after_a_reopen_is_not_throttled() {
    for is_closed in [true, false] {
        let sim = SimEnv::new(3);
        let keys: Vec<u64> = loaded(6000, false).collect();
        let (first, second) = keys.split_at(3000);
        let db = Db::open_in(env(&sim), DIR, under_a_ratio()).unwrap();
        load(&db, first.iter().copied());
        match is_closed {
            true => db.close().unwrap(),
            false => drop(db),
        }
        let db = Db::open_in(env(&sim), DIR, under_a_ratio()).unwrap();
        settle(&db);
        assert_eq!(hidden_in_metrics(&db), 0.0, "closed: {is_closed}");
        load(&db, second.iter().copied());
        assert_eq!(hidden_in_metrics(&db), 0.0, "closed: {is_closed}");
        was_not_held_up(&db, &format!("closed: {is_closed}"));
        assert!(db.space().unwrap().families[0].levels.len() > 1, "tables are in several levels");
    }
}
