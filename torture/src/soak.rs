//! `torture soak`: uses one store on the real disk for minutes or hours, and checks that nothing
//! grows.
//!
//! ```text
//! cargo run --release -p torture -- soak --hours 8 --dir /data
//! ```
//!
//! Not one of the rows of `all`, since its duration is an option. One thread writes batches of
//! puts, deletes and range deletes to two families; one value in ten has kilobytes, a few have
//! megabytes. The thread also reads, scans both ways, holds snapshots, flushes, compacts, collects,
//! takes checkpoints, and creates and drops a family. The store's own threads run too. The model
//! has the version and the length of each key, which determine its value. Reads, snapshots,
//! checkpoints, and the whole store after each reopen are compared with it.
//!
//! All keys exist before the clock starts, so that both halves do the same work. The run consists
//! of rounds. At the end of each, the idle store is sampled: resident memory, open descriptors,
//! bytes on disk (which must equal the space report). The largest sample of the second half must be
//! within a quarter and a constant of the largest of the first: leaks keep growing, caches and
//! allocators do not. The 99th percentile of the write latency is reported but not judged, since it
//! depends on the machine.

mod sample;

use crate::case::{Context, Outcome};
use crate::check::{Check, Doing, ensure};
use crate::driver::at;
use crate::row::{Row, Unit};
use crate::tally;
use io::Rng;
use lavastore::{
    Compression, Db, Durability, Env, Family, FamilyOptions, GcRequest, Options, ReadOptions, Snapshot,
    WriteBatch, WriteOptions,
};
use sample::Sample;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Row of the command.
pub(crate) const ROW: Row = Row {
    name: "soak",
    about: "one store on the real disk for as long as it is told to: nothing is lost, nothing grows",
    unit: Unit::Cases,
    ci: 1,
    alone: true,
    case,
};

/// Default duration in nanoseconds.
const USUAL_NS: u64 = 3_600_000_000_000;
/// Length of a round in nanoseconds, and the preferred number of rounds.
const ROUND_NS: std::ops::RangeInclusive<u64> = 1_000_000_000..=60_000_000_000;
const ROUNDS: u64 = 24;
/// Keys per family.
const KEYS: u32 = 10_000;
const OTHER: &str = "other";

/// Expected value of a key.
#[derive(Clone, Copy)]
struct Stamp {
    version: u64,
    len: usize,
}

/// Expected values by family and key.
type StampModel = [BTreeMap<u32, Stamp>; 2];

struct Soak {
    env: Env,
    dir: PathBuf,
    rng: Rng,
    model: StampModel,
    version: u64,
    /// Write latencies of this round.
    latencies_us: Vec<u32>,
}

fn case(context: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let env = Env::kernel();
    let dir = context.dir.join(format!("soak-{seed}"));
    let now_ns = env.clock.now_ns();
    let until_ns = context.until_ns.unwrap_or(now_ns + USUAL_NS);
    let (rng, model) = (Rng::new(seed), StampModel::default());
    let mut soak = Soak { env, dir: dir.clone(), rng, model, version: 0, latencies_us: Vec::new() };
    let ran = soak.run(until_ns, &mut outcome);
    if ran.is_ok() {
        let _ = std::fs::remove_dir_all(&dir);
        let _ = std::fs::remove_dir(&context.dir);
    }
    outcome.take(ran.map_err(|why| format!("{why} (the store is left in {})", dir.display())));
    outcome
}

impl Soak {
    fn run(&mut self, until_ns: u64, outcome: &mut Outcome) -> Check {
        self.env.fs.create_dir_all(&self.dir).doing(|| "create".into())?;
        let mut db = self.open()?;
        let small = FamilyOptions { min_blob_size: 100, compression: Compression::Lz4, ..Default::default() };
        let families =
            [db.default_family().clone(), db.create_family(OTHER, &small).doing(|| "create".into())?];
        for slot in 0..KEYS {
            (0..2).try_for_each(|at| self.write(&db, &families, &[(at, slot)]))?;
        }
        drop(families);
        let mut begin_ns = self.env.clock.now_ns();
        let round_ns = (until_ns.saturating_sub(begin_ns) / ROUNDS).clamp(*ROUND_NS.start(), *ROUND_NS.end());
        let mut samples = Vec::new();
        while begin_ns < until_ns {
            self.latencies_us.clear();
            self.round(&db, (begin_ns + round_ns).min(until_ns))?;
            samples.push(Sample::take(&db, &self.dir.join("db"), &mut self.latencies_us)?);
            tally::add(&db);
            db.close().doing(|| "close".into())?;
            db = self.open()?;
            self.compare(&db, &self.model, None).map_err(|why| format!("after a reopen: {why}"))?;
            begin_ns = self.env.clock.now_ns();
        }
        let report = db.verify().doing(|| "verify".into())?;
        ensure!(report.errors.is_empty(), "verify: {}", report.errors[0]);
        outcome.note("versions written", self.version);
        outcome.note("reopens", samples.len() as u64);
        sample::judge(&samples, outcome)
    }

    fn open(&self) -> Check<Db> {
        let options = Options {
            memtable_bytes: 1 << 20,
            memory_bytes: 4 << 20,
            cache_bytes: 8 << 20,
            ..Options::default()
        }
        .expert(|expert| expert.log_group_bytes = 4 << 20);
        Db::open_in(&self.env, self.dir.join("db"), &options).doing(|| "open".into())
    }

    /// Works until a time.
    fn round(&mut self, db: &Db, until_ns: u64) -> Check {
        let families = families_of(db)?;
        let mut held: Option<(Snapshot, StampModel)> = None;
        while self.env.clock.now_ns() < until_ns {
            let (at, slot) = (self.rng.below(2) as usize, self.rng.below(u64::from(KEYS)) as u32);
            match self.rng.below(20_000) {
                0..=4 => db.flush().doing(|| "flush".into())?,
                5 => families[at].compact_range(&key(slot)..).doing(|| "compact_range".into())?,
                6 => db
                    .collect_garbage(&GcRequest::default())
                    .map(|_| ())
                    .doing(|| "collect_garbage".into())?,
                7 => self.checkpoint(db)?,
                8..=9 => self.passing_family(db)?,
                10..=13 => {
                    if let Some((snapshot, model)) = held.take() {
                        self.compare(db, &model, Some(&snapshot))
                            .map_err(|why| format!("snapshot: {why}"))?;
                    }
                    held = Some((db.snapshot(), self.model.clone()));
                }
                14..=17 => {
                    let end = slot + 1 + self.rng.below(50) as u32;
                    families[at].delete_range(key(slot)..key(end)).doing(|| "delete_range".into())?;
                    self.model[at].retain(|slot_, _| !(slot..end).contains(slot_));
                }
                18..=100 => self.walk(&families[at], at, slot)?,
                101..=3_000 => {
                    let found = families[at].get(key(slot)).doing(|| "get".into())?;
                    let want = self.model[at].get(&slot).map(|stamp| value(at, slot, *stamp));
                    ensure!(
                        found.as_deref() == want.as_deref(),
                        "get of key {slot}, family {at}: another value"
                    );
                }
                _ => {
                    let more = self.rng.below(4);
                    let mut slots = vec![(at, slot)];
                    slots.extend(
                        (0..more).map(|_| (self.rng.below(2) as usize, self.rng.below(KEYS.into()) as u32)),
                    );
                    self.write(db, &families, &slots)?;
                }
            }
        }
        held.map_or(Ok(()), |(snapshot, model)| self.compare(db, &model, Some(&snapshot)))
    }

    /// Writes a batch of new values and, if it has several keys, some deletions.
    fn write(&mut self, db: &Db, families: &[Family; 2], slots: &[(usize, u32)]) -> Check {
        let mut batch = WriteBatch::new();
        for &(at, slot) in slots {
            self.version += 1;
            if slots.len() > 1 && self.rng.one_in(20) {
                batch.family(&families[at]).delete(key(slot));
                self.model[at].remove(&slot);
                continue;
            }
            let len = match slot {
                _ if slot % 2_500 == 0 => self.rng.range(200 << 10, 2_500 << 10),
                _ if slot % 10 == 0 => self.rng.range(1 << 10, 8 << 10),
                _ => self.rng.range(10, 300),
            };
            let stamp = Stamp { version: self.version, len: len as usize };
            batch.family(&families[at]).put(key(slot), value(at, slot, stamp));
            self.model[at].insert(slot, stamp);
        }
        let durable = self.rng.one_in(100);
        let options =
            WriteOptions { durability: durable.then_some(Durability::Durable), ..WriteOptions::default() };
        let begin_ns = self.env.clock.now_ns();
        db.writing(&options).write(&batch).doing(|| "write".into())?;
        let us = (self.env.clock.now_ns() - begin_ns) / 1_000;
        self.latencies_us.push(us.try_into().unwrap_or(u32::MAX));
        Ok(())
    }

    /// Iterates over a hundred keys from a key, forward or backward.
    fn walk(&mut self, family: &Family, at: usize, slot: u32) -> Check {
        let mut iterator = family.iter().cursor().doing(|| "iter".into())?;
        let forward = self.rng.one_in(2);
        let expected: Vec<_> = match forward {
            true => self.model[at].range(slot..).take(100).collect(),
            false => self.model[at].range(..=slot).rev().take(100).collect(),
        };
        if forward { iterator.seek(key(slot)) } else { iterator.seek_for_prev(key(slot)) }
            .doing(|| "seek".into())?;
        for (slot, stamp) in expected {
            ensure!(
                iterator.valid() && iterator.key() == key(*slot),
                "family {at}: a scan left out key {slot}"
            );
            let found = iterator.value().doing(|| "value".into())?;
            ensure!(
                found == value(at, *slot, *stamp),
                "family {at}: a scan gave another value for key {slot}"
            );
            if forward { iterator.next() } else { iterator.prev() }.doing(|| "step".into())?;
        }
        Ok(())
    }

    fn checkpoint(&self, db: &Db) -> Check {
        let copy = self.dir.join("copy");
        db.checkpoint(&copy).doing(|| "checkpoint".into())?;
        let opened =
            Db::open_in(&self.env, &copy, &Options::default()).doing(|| "open of a checkpoint".into())?;
        self.compare(&opened, &self.model, None).map_err(|why| format!("checkpoint: {why}"))?;
        opened.close().doing(|| "close of a checkpoint".into())?;
        std::fs::remove_dir_all(&copy).doing(|| "remove a checkpoint".into())
    }

    /// Creates and drops a family.
    fn passing_family(&self, db: &Db) -> Check {
        let family = db.create_family("passing", &FamilyOptions::default()).doing(|| "create".into())?;
        for slot in 0..100 {
            family.put(key(slot), [7; 1_000]).doing(|| "put".into())?;
        }
        let found = family.get(key(99)).doing(|| "get".into())?;
        ensure!(found.as_deref() == Some(&[7; 1_000][..]), "the passing family lost a key");
        db.drop_family(&family).doing(|| "drop".into())
    }

    /// Compares everything, at a snapshot or now.
    fn compare(&self, db: &Db, model: &StampModel, snapshot: Option<&Snapshot>) -> Check {
        for (nth, family) in families_of(db)?.iter().enumerate() {
            let options = ReadOptions::default();
            let mut found = at(family, snapshot, &options).iter();
            for (slot, stamp) in &model[nth] {
                let (k, v) = found
                    .next()
                    .ok_or_else(|| format!("family {nth} ends before key {slot}"))?
                    .doing(|| "scan".into())?;
                ensure!(k == key(*slot), "family {nth}: expected key {slot}, found {}", k.escape_ascii());
                ensure!(v == value(nth, *slot, *stamp), "family {nth}: another value for key {slot}");
            }
            ensure!(found.next().is_none(), "family {nth} has keys that are not there");
        }
        Ok(())
    }
}

fn families_of(db: &Db) -> Check<[Family; 2]> {
    let other = db.open_family(OTHER).doing(|| "a family is gone".into())?;
    Ok([db.default_family().clone(), other])
}

fn key(slot: u32) -> Vec<u8> {
    format!("key{slot:06}").into_bytes()
}

/// Returns the value of a key, fully determined by its arguments.
fn value(at: usize, slot: u32, stamp: Stamp) -> Vec<u8> {
    let seed = stamp.version ^ u64::from(slot) << 40 ^ (at as u64) << 63;
    let words = (0..stamp.len.div_ceil(8) as u64).map(|i| (seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(stamp.len);
    bytes
}
