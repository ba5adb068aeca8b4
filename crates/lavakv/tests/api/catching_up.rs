//! Catch-up: the later reader shows the state that an open would show, and the earlier reader keeps
//! its state.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::sim::{OpKind, SimEnv};
use lavastore_lavakv::{ColumnFamily, Db, ErrorKind, FamilyOptions, Options, WriteBatch, WriteOptions};
use std::collections::BTreeMap;

/// The contents of a store by family.
type Families = BTreeMap<String, Model>;

fn families(db: &Db) -> Families {
    let all = db.column_families();
    all.into_iter().map(|name| (name.clone(), contents_cf(db, &db.column_family(&name).unwrap()))).collect()
}

struct Writer {
    sim: SimEnv,
    options: Options,
    db: Option<Db>,
    rng: Rng,
    model: Families,
}

impl Writer {
    fn new(seed: u64, options: &Options) -> Writer {
        let sim = SimEnv::new(seed);
        let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        let model = families(&db);
        Writer { sim, options: options.clone(), db: Some(db), rng: Rng::new(seed), model }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn any_family(&mut self) -> (String, ColumnFamily) {
        let nth = self.rng.below(self.model.len() as u64) as usize;
        let name = self.model.keys().nth(nth).unwrap().clone();
        let family = self.db().column_family(&name).unwrap();
        (name, family)
    }

    fn reopen(&mut self) {
        self.db.take().unwrap().close().unwrap();
        self.db = Some(Db::open_in(env(&self.sim), DIR, self.options.clone()).unwrap());
    }

    fn write(&mut self) {
        let (name, family) = self.any_family();
        let mut batch = WriteBatch::new();
        for _ in 0..=self.rng.below(3) {
            let (k, len) = (key(self.rng.below(60)), [10, 100, 900, 5000][self.rng.below(4) as usize]);
            let model = self.model.get_mut(&name).unwrap();
            match self.rng.below(8) {
                0 | 1 => {
                    batch.delete_cf(&family, &k);
                    model.remove(&k);
                }
                2 => {
                    let end = key(self.rng.below(60)).max(k.clone());
                    batch.delete_range_cf(&family, &k, &end);
                    model.retain(|key, _| *key < k || *key >= end);
                }
                _ => {
                    let v: Vec<u8> =
                        self.rng.next_u64().to_be_bytes().into_iter().cycle().take(len).collect();
                    batch.put_cf(&family, &k, &v);
                    model.insert(k, v);
                }
            }
        }
        let how = if self.rng.one_in(10) { WriteOptions::durable() } else { WriteOptions::buffered() };
        self.db().write_opt(&batch, &how).unwrap();
    }

    fn goes_on(&mut self) {
        match self.rng.below(40) {
            0 => self.db().flush().unwrap(),
            1 => {
                let (_, family) = self.any_family();
                self.db().compact_range(&family, None, None).unwrap();
            }
            2 => settle(self.db()),
            3 if self.model.len() < 4 => {
                let name = format!("family{}", self.rng.below(1000));
                if self.model.insert(name.clone(), Model::new()).is_none() {
                    self.db().create_column_family(&name, FamilyOptions { ..small_family() }).unwrap();
                }
            }
            4 if self.rng.one_in(3) => {
                let (name, family) = self.any_family();
                if name != "default" {
                    self.db().drop_column_family(&family).unwrap();
                    self.model.remove(&name);
                }
            }
            5 if self.rng.one_in(3) => self.reopen(),
            6..10 => drop(self.db().run_background_step()),
            _ => self.write(),
        }
    }
}

/// A reader, with the contents of the store at its open.
struct Reader {
    db: Db,
    then: Families,
}

impl Reader {
    fn check(&self, rng: &mut Rng, whose: &str) {
        assert!(families(&self.db) == self.then, "{whose}");
        let (name, model) = self.then.iter().next().unwrap();
        let family = self.db.column_family(name).unwrap();
        let k = key(rng.below(60));
        let found = self.db.get_cf(&family, &k).unwrap();
        assert!(found.as_deref() == model.get(&k).map(|v| &v[..]), "{whose}");
    }
}

fn catch_up_with(seed: u64, options: &Options) {
    let mut writer = Writer::new(seed, options);
    let mut rng = Rng::new(seed ^ 0x72_6561);
    let open = |writer: &Writer| Db::open_read_only_in(env(&writer.sim), DIR, options.clone()).unwrap();
    let mut readers = vec![Reader { db: open(&writer), then: writer.model.clone() }];
    for step in 0..400 {
        writer.goes_on();
        if !rng.one_in(6) {
            continue;
        }
        let earlier = &readers[rng.below(readers.len() as u64) as usize];
        let later = Reader { db: earlier.db.catch_up().unwrap(), then: writer.model.clone() };
        later.check(&mut rng, &format!("seed {seed}, step {step}: the later reader"));
        let is_same = families(&open(&writer)) == later.then;
        assert!(is_same, "seed {seed}, step {step}: the test's own model");
        for reader in &readers {
            reader.check(&mut rng, &format!("seed {seed}, step {step}: an earlier reader"));
        }
        readers.push(later);
        if readers.len() > 3 {
            readers.swap_remove(rng.below(3) as usize);
        }
    }
}

#[test]
fn catch_up_equals_a_fresh_open() {
    for seed in 0..8 {
        catch_up_with(seed, &small());
    }
}

#[test]
fn separated_values_are_found_by_a_reader_that_catches_up() {
    let family = FamilyOptions { min_blob_size: 200, ..small_family() };
    for seed in 100..104 {
        catch_up_with(seed, &Options { family: family.clone(), ..small() });
    }
}

/// A compaction drops a key with its tombstone. The earlier reader's memtable still has the key.
#[test]
fn catch_up_does_not_restore_a_deleted_key() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    db.put(b"deleted", b"1").unwrap();
    let reader = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    db.delete(b"deleted").unwrap();
    db.flush().unwrap();
    db.compact_range(db.default_column_family(), None, None).unwrap();
    db.put(b"after", b"2").unwrap();
    let later = reader.catch_up().unwrap();
    assert_eq!(later.get(b"deleted").unwrap(), None);
    assert!(later.get(b"after").unwrap().is_some() && reader.get(b"deleted").unwrap().is_some());
    assert!(later.catch_up().unwrap().get(b"after").unwrap().is_some());
}

/// Neither log pages nor tables are read a second time.
#[test]
fn a_reader_that_catches_up_reads_little() {
    let sim = SimEnv::new(1);
    let options = Options { memtable_bytes: 4 << 20, memory_bytes: 16 << 20, ..small() };
    let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
    let mut model = Model::new();
    fill(&db, &mut model, 0..5_000, 0);
    db.flush().unwrap();
    fill(&db, &mut model, 0..20_000, 1);
    // Reads (including the first page of each log file in either case), and opened tables.
    let reads_of = |work: &mut dyn FnMut() -> Db| {
        let reads =
            || [("", OpKind::Read), (".ksst", OpKind::Open)].map(|(of, kind)| sim.count_ops(Some(kind), of));
        let before = reads();
        (work(), [reads()[0] - before[0], reads()[1] - before[1]])
    };
    let open = || Db::open_read_only_in(env(&sim), DIR, options.clone()).unwrap();
    let (reader, to_open) = reads_of(&mut || open());
    fill(&db, &mut model, 5..10, 2);
    let (reader, to_catch_up) = reads_of(&mut || reader.catch_up().unwrap());
    assert!(contents(&reader) == model);
    assert!(to_catch_up[0] + 20 < to_open[0], "{to_catch_up:?} of {to_open:?}");
    // The files of a volume have no names on the device.
    assert!(to_catch_up[1] == 0 && (to_open[1] > 0 || on_lavafs()), "{to_catch_up:?} of {to_open:?}");
}

/// After any number of catch-ups a read searches few memtables.
#[test]
fn many_small_steps_keep_reads_short() {
    let sim = SimEnv::new(1);
    let (db, mut model) = (open(&sim), Model::new());
    let mut reader = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    for nth in 0..200 {
        fill(&db, &mut model, nth..nth + 1, 1);
        reader = reader.catch_up().unwrap();
    }
    assert!(contents(&reader) == model);
    let memtables = reader.space().unwrap().memtable_bytes;
    assert!(memtables < 64 << 10, "{memtables} bytes of memtables for {} keys", model.len());
}

#[test]
fn a_writer_cannot_catch_up() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    fails(db.catch_up(), ErrorKind::InvalidArgument);
}
