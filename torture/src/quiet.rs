//! Row `quiet`: a store without writes frees deleted data on its own, and then becomes idle.
//!
//! A run of puts, overwrites, deletes and range deletes over several families, with snapshots that
//! are dropped at its end, and sometimes a reopen. Then simulated time passes without calls. Each
//! value carries a unique mark, so that the files themselves show the remaining values. At rest:
//!
//! * no table has a deleted value, or one kept for a dropped snapshot;
//! * dead values are at most `gc_ratio_percent` of the records in value files;
//! * the log has no free files;
//! * rewrites stayed within the budget: a byte per byte written, freed, or present at the open;
//! * the space report equals the directory, and reads return the model;
//! * in two more minutes no byte of the disk changes.
//!
//! A third of the stores also have logs, with appends and trims. At rest the log has only the
//! remaining records, the garbage allowed by [`lavastore::LogOptions::garbage_percent`], and some
//! groups.
//!
//! While an open snapshot reads deleted data, none of it is freed, and the space report names the
//! snapshot as the reason.
//!
//! The row `quiet-large` draws stores of 1 MB to 20 GB with equal probability per magnitude.
//! Values, files and memtables grow with the store, which keeps it below some ten thousand entries.
//! Most bytes of a value are equal, and the simulation keeps such pages once.

mod log_store;
mod size;

use crate::case::{Context, Outcome};
use crate::check::{Check, Doing, ensure};
use crate::crash::check_verify;
use crate::machine::{self, DIR};
use crate::plan::pick;
use crate::tally;
use base::{HashMap, HashSet};
use io::{Access, Clock, Rng};
use lavastore::testing::SimEnv;
use lavastore::{
    Compression, Db, Family, FamilyOptions, Log, LogOptions, Options, PolicyChoice, RestState, Snapshot,
    VlsmOptions,
};
use size::Size;
use std::collections::BTreeMap;

/// Start of rest work, and its maximum duration for stores of this size, in seconds.
const REST_S: u64 = 60;
/// Duration of the final idle period in seconds.
const STILL_S: u64 = 120;
const STEP_NS: u64 = 100_000_000;
/// Longest step of the clock of a store without work.
const STEP_NS_MAX: u64 = 2_000_000_000;
/// First bytes of a mark.
const MAGIC: [u8; 3] = [0xf7, 0x1e, 0xc5];

/// Number of a value, stored in its mark.
type Mark = u64;

fn bytes_of(mark: Mark, len: usize) -> Vec<u8> {
    let mut value = MAGIC.to_vec();
    value.extend_from_slice(&mark.to_le_bytes());
    value.resize(len.max(value.len()), mark as u8 & 0x7f);
    value
}

/// State of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueState {
    Live,
    /// Superseded by a newer value of its key; no compaction may have seen both.
    Overwritten,
    /// Must be removed: deleted, or kept by compactions for a dropped snapshot.
    Dead,
}

struct Quiet {
    sim: SimEnv,
    options: Options,
    db: Option<Db>,
    families: Vec<Family>,
    model: Vec<BTreeMap<u64, Mark>>,
    fates: HashMap<Mark, ValueState>,
    size: Size,
    /// The last deleted values, by family and key.
    deleted: HashMap<(usize, u64), Mark>,
    written: u64,
    logs: Vec<Records>,
}

/// The records of a log; those from `first` to before `next` remain.
#[derive(Clone, Debug, Default)]
struct Records {
    first: u64,
    lens: Vec<usize>,
}

impl Records {
    fn left_bytes(&self) -> u64 {
        self.lens.iter().skip(self.first as usize).map(|len| *len as u64).sum()
    }

    /// Compares the remaining records with those of the log.
    fn check(&self, nth: usize, log: &Log) -> Check {
        let found = log.scan(..).map(|record| record.map(|(lsn, bytes)| (lsn, bytes.len())));
        let found = found.collect::<Result<Vec<_>, _>>().doing(|| "scan".into())?;
        let expected: Vec<_> = (0..).zip(self.lens.clone()).skip(self.first as usize).collect();
        ensure!(found == expected, "log {nth} has {} records of {}", found.len(), expected.len());
        Ok(())
    }
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    one(seed, Size::small)
}

/// Runs a case with a store of up to 20 GB; see the module.
pub(crate) fn case_large(_: &Context, seed: u64) -> Outcome {
    one(seed, Size::large)
}

fn one(seed: u64, size: fn(&mut Rng) -> Size) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x7175_6965_7400);
    let size = size(&mut rng);
    if rng.one_in(8) && !machine::has_two_disks() {
        let ran = log_store::run(seed, &size, &mut rng);
        outcome.take(ran.map_err(|why| format!("a store of logs, {size:?}: {why}")));
        return outcome;
    }
    let options = options(&size, &mut rng);
    let mut quiet = Quiet::new(seed, options, size, &mut rng);
    let ran = quiet.run(&mut rng);
    let about = format!(
        "{:?}, blob {}, gc {} %, {}, reads {:?}",
        quiet.size,
        quiet.options.family.min_blob_size,
        quiet.options.family.expert.gc_ratio_percent,
        quiet.options.family.policy.name,
        quiet.written,
    );
    outcome.take(ran.map_err(|why| format!("{about}: {why}")));
    outcome.note("bytes written", quiet.written);
    outcome
}

fn options(size: &Size, rng: &mut Rng) -> Options {
    let policy =
        if rng.one_in(3) { PolicyChoice::vlsm(&VlsmOptions::default()) } else { PolicyChoice::default() };
    let family = FamilyOptions {
        compression: Compression::None,
        min_blob_size: if size.scale > 1 { pick(rng, &[64, 512]) } else { pick(rng, &[64, 512, 16 << 10]) },
        policy,
        ..FamilyOptions::default()
    };
    let family = family.expert(|expert| {
        expert.file_bytes = size.scale * pick(rng, &[32 << 10, 128 << 10]);
        expert.level_base_bytes = 4 * expert.file_bytes;
        expert.vsst_bytes = size.scale * pick(rng, &[32 << 10, 256 << 10]);
        expert.gc_ratio_percent = pick(rng, &[5, 20, 30]);
    });
    let options = Options {
        memtable_bytes: size.scale as usize * pick(rng, &[32 << 10, 128 << 10, 512 << 10]),
        background_threads: pick(rng, &[1, 2, 4]),
        io_budget: size.scale * pick(rng, &[0, 0, 16 << 20]),
        access: Access::Direct,
        family,
        ..Options::default()
    };
    let options = match machine::has_two_disks() {
        true => Options { fast_tier: Some(machine::SPEED_DIR.into()), ..options },
        false => options,
    };
    let group_bytes = size.group_bytes;
    options.expert(|expert| expert.log_group_bytes = group_bytes)
}

impl Quiet {
    fn new(seed: u64, options: Options, size: Size, rng: &mut Rng) -> Quiet {
        let families = rng.range(1, 4) as usize;
        Quiet {
            sim: unrecorded(seed),
            options,
            db: None,
            families: Vec::new(),
            model: vec![BTreeMap::new(); families],
            fates: HashMap::default(),
            size,
            deleted: HashMap::default(),
            written: 0,
            logs: vec![Records::default(); if rng.one_in(3) { rng.range(1, 5) as usize } else { 0 }],
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("the store is open")
    }

    fn open(&mut self) -> Check {
        self.families.clear();
        if let Some(db) = self.db.take() {
            tally::add(&db);
            db.close().doing(|| "close".into())?;
        }
        let env = machine::env(&self.sim)?;
        let db = match self.logs.is_empty() {
            true => Db::open_in(&env, DIR, &self.options),
            false => {
                let logs = LogOptions { group_bytes: Some(self.size.group_bytes), ..LogOptions::default() };
                Db::open_with_logs_in(&env, DIR, &self.options, &logs)
            }
        };
        let db = db.doing(|| "open".into())?;
        for nth in 0..self.model.len() {
            let name = format!("family {nth}");
            let family = match db.family_names().contains(&name) {
                true => db.open_family(&name),
                false => db.create_family(&name, &self.options.family),
            };
            self.families.push(family.doing(|| name)?);
        }
        self.db = Some(db);
        Ok(())
    }

    fn run(&mut self, rng: &mut Rng) -> Check {
        self.open()?;
        let bytes = self.size.bytes;
        self.write(bytes, rng)?;
        let snapshot = rng.one_in(2).then(|| self.db().snapshot_named("quiet"));
        let seen = self.fates.clone();
        self.write(bytes / pick(rng, &[1, 2, 4]), rng)?;
        self.append(bytes, rng)?;
        self.delete(rng)?;
        if let Some(snapshot) = snapshot {
            self.hold(snapshot, &seen, rng)?;
        }
        if rng.one_in(2) {
            self.open()?;
        }
        let opened_with = self.used()?;
        self.pass(REST_S + self.used()? / (self.size.scale << 20))?;
        self.check(opened_with)?;
        let state = self.sim.state_hash();
        self.pass(STILL_S)?;
        ensure!(self.sim.state_hash() == state, "rest work does not end: {}", self.db().describe());
        // Scans trigger reordering of values, so they come last.
        self.check_contents()?;
        self.check_records()?;
        check_verify(self.db())?;
        tally::add(self.db());
        Ok(())
    }

    /// Compacts while a snapshot is held, then drops it.
    fn hold(&mut self, snapshot: Snapshot, seen: &HashMap<Mark, ValueState>, rng: &mut Rng) -> Check {
        for family in &self.families {
            family.compact_range(..).doing(|| "compact_range".into())?;
        }
        if rng.one_in(4) {
            let before = self.db().stats().rest_bytes_written;
            self.pass(REST_S)?;
            let space = self.db().space().doing(|| "space".into())?;
            let awake = self.written == 0;
            ensure!(
                awake || space.rest.state == RestState::SnapshotOpen,
                "a snapshot is open: {:?}",
                space.rest
            );
            ensure!(self.db().stats().rest_bytes_written == before, "rest work beside a snapshot");
        }
        drop(snapshot);
        // Values kept by those compactions must be removed: all that the snapshot saw and that are
        // superseded.
        for (mark, fate) in &mut self.fates {
            if *fate == ValueState::Overwritten && seen.get(mark) == Some(&ValueState::Live) {
                *fate = ValueState::Dead;
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: u64, rng: &mut Rng) -> Check {
        let keys = (bytes / self.size.lens.1 as u64).max(8);
        let mut left = bytes as i64;
        while left > 0 {
            let (nth, key) = (rng.below(self.model.len() as u64) as usize, rng.below(keys));
            if rng.one_in(20) {
                self.delete_one(nth, key)?;
            }
            let len = self.size.value_len(rng);
            let mark = self.fates.len() as Mark;
            self.families[nth].put(key_of(key), bytes_of(mark, len)).doing(|| "put".into())?;
            self.fates.insert(mark, ValueState::Live);
            if let Some(older) = self.model[nth].insert(key, mark) {
                self.fates.insert(older, ValueState::Overwritten);
            } else if let Some(older) = self.deleted.remove(&(nth, key)) {
                // The tombstone may be dropped before it meets the value.
                self.fates.insert(older, ValueState::Overwritten);
            }
            (left, self.written) = (left - len as i64, self.written + len as u64);
            if rng.one_in(8) {
                self.db().engine().run_background_step();
            }
        }
        Ok(())
    }

    /// Appends records to the logs, and trims older ones.
    fn append(&mut self, bytes: u64, rng: &mut Rng) -> Check {
        let count = self.logs.len() as u64;
        for (nth, records) in self.logs.iter_mut().enumerate() {
            let db = self.db.as_ref().expect("the store is open");
            let log = db.logs().and_then(|logs| logs.log(&format!("log {nth}"))).doing(|| "log".into())?;
            let mut left = (bytes / count) as i64;
            while left > 0 {
                let len = self.size.value_len(rng);
                log.append(records.lens.len() as u64, vec![b'r'; len]).doing(|| "append".into())?;
                records.lens.push(len);
                left -= len as i64;
                if rng.one_in(8) {
                    db.engine().run_background_step();
                }
            }
            let end = records.lens.len() as u64;
            records.first = pick(rng, &[0, end / 2, end - end / 8, end]);
            log.trim(records.first).doing(|| "trim".into())?;
        }
        Ok(())
    }

    /// Deletes a part of the keys, by points, ranges, or both.
    fn delete(&mut self, rng: &mut Rng) -> Check {
        let one_in = pick(rng, &[2, 3, 10]);
        for nth in 0..self.model.len() {
            let keys: Vec<u64> = self.model[nth].keys().copied().collect();
            if rng.one_in(3) && keys.len() > 4 {
                let from = keys[rng.below(keys.len() as u64 / 2) as usize];
                let to = from + keys.len() as u64 / one_in;
                self.families[nth].delete_range(key_of(from)..key_of(to)).doing(|| "delete_range".into())?;
                (from..to).for_each(|key| self.forget(nth, key));
                continue;
            }
            for key in keys {
                if rng.one_in(one_in) {
                    self.delete_one(nth, key)?;
                }
            }
        }
        Ok(())
    }

    fn delete_one(&mut self, nth: usize, key: u64) -> Check {
        self.families[nth].delete(key_of(key)).doing(|| "delete".into())?;
        self.forget(nth, key);
        Ok(())
    }

    fn forget(&mut self, nth: usize, key: u64) {
        if let Some(mark) = self.model[nth].remove(&key) {
            self.fates.insert(mark, ValueState::Dead);
            self.deleted.insert((nth, key), mark);
        }
    }

    /// Lets simulated seconds pass without calls.
    fn pass(&self, seconds: u64) -> Check {
        let clock = machine::env(&self.sim)?.clock;
        pass(&*clock, seconds, || self.db().engine().run_background_step());
        Ok(())
    }

    fn used(&self) -> Check<u64> {
        Ok(self.listed()?.iter().map(|(_, bytes)| bytes).sum())
    }

    /// Returns the files of the store with their allocated bytes.
    fn listed(&self) -> Check<Vec<(String, u64)>> {
        let listed = machine::env(&self.sim)?.fs.list(DIR.as_ref()).doing(|| "list".into())?;
        Ok(listed.into_iter().map(|entry| (entry.name, entry.allocated)).collect())
    }

    fn check(&self, opened_with: u64) -> Check {
        let db = self.db();
        let space = db.space().doing(|| "space".into())?;
        ensure!(space.rest.state == RestState::AtRest, "the state is {:?}", space.rest);
        let listed: u64 = self.used()?;
        ensure!(space.total_bytes == listed, "the ledger has {} B of {listed}", space.total_bytes);
        let (stats, failed) = (db.stats(), db.stats().background_errors);
        ensure!(failed == 0, "{failed} background jobs failed");
        let freed = opened_with.saturating_sub(listed);
        let allowed = stats.user_bytes_written + opened_with + freed;
        ensure!(stats.rest_bytes_written <= allowed, "{} B rewritten of {allowed}", stats.rest_bytes_written);
        self.check_files(space.rest.leaves_deleted_data)
    }

    fn check_contents(&self) -> Check {
        for (family, model) in self.families.iter().zip(&self.model) {
            let mut found = family.iter();
            for (key, mark) in model {
                let (at, value) = found.next().ok_or("a key is missing")?.doing(|| "iterate".into())?;
                let is_it = at.as_ref() == key_of(*key) && mark_in(&value) == Some(*mark);
                ensure!(is_it, "key {key} of {} has another value", family.name());
            }
            for (key, mark) in model.iter().step_by(7) {
                let got = family.get(key_of(*key)).doing(|| "get".into())?;
                ensure!(got.is_some_and(|value| mark_in(&value) == Some(*mark)), "key {key} is not got");
            }
            ensure!(found.next().is_none(), "{} has more than the model", family.name());
        }
        Ok(())
    }

    /// Checks the files for dead values. With `leaves_deleted_data` the budget of rest work was
    /// used up, so tables may hold dead values.
    fn check_files(&self, leaves_deleted_data: bool) -> Check {
        let env = machine::env(&self.sim)?;
        let (mut dead_records, mut records) = (0, 0);
        let mut log_files = Vec::new();
        for (name, bytes) in self.listed()? {
            if name.ends_with(".log") {
                log_files.push((name, bytes));
                continue;
            }
            let is_table = name.contains(".ksst");
            if !is_table && !name.contains(".vsst") {
                continue;
            }
            let file = env.fs.open(&std::path::Path::new(DIR).join(&name), Access::Buffered);
            let file = file.doing(|| name.clone())?;
            let mut content = vec![0; file.len().doing(|| name.clone())? as usize];
            file.read_at(&mut content, 0).doing(|| name.clone())?;
            let marks = marks_in(&content);
            let dead = marks.iter().filter(|mark| self.fates.get(*mark) == Some(&ValueState::Dead)).count();
            if is_table {
                ensure!(
                    dead == 0 || leaves_deleted_data,
                    "{name} has {dead} of {} values that are dead",
                    marks.len()
                );
            }
            (dead_records, records) = (dead_records + dead, records + marks.len());
        }
        // Lengths differ, so shares by count and by bytes differ too; and a file is collected as a
        // whole.
        let percent = self.options.family.expert.gc_ratio_percent as usize + 15;
        let bound = records * percent / 100 + 64;
        ensure!(dead_records <= bound, "{dead_records} of {records} records are of values that are dead");
        if self.logs.is_empty() {
            ensure!(log_files.len() <= LOG_FILES_MAX, "the log has {log_files:?}");
        } else {
            let left: u64 = self.logs.iter().map(Records::left_bytes).sum();
            let bytes: u64 = log_files.iter().map(|(_, bytes)| bytes).sum();
            let files = (LOG_FILES_MAX + PADDED_MAX) as u64;
            let bound = left * 100 / (100 - GARBAGE_PERCENT) + files * self.size.group_bytes;
            ensure!(bytes <= bound, "the log has {bytes} B for {left} B of records: {log_files:?}");
        }
        Ok(())
    }

    fn check_records(&self) -> Check {
        for (nth, records) in self.logs.iter().enumerate() {
            let log =
                self.db().logs().and_then(|logs| logs.log(&format!("log {nth}"))).doing(|| "log".into())?;
            records.check(nth, &log)?;
        }
        Ok(())
    }
}

/// Returns a machine that keeps no record, which would hold every byte of a large store.
fn unrecorded(seed: u64) -> SimEnv {
    let sim = machine::new(seed);
    sim.keep_no_record();
    sim
}

/// Lets simulated seconds pass, and runs all due work.
fn pass(clock: &dyn Clock, seconds: u64, mut step: impl FnMut() -> bool) {
    let end_ns = clock.now_ns() + seconds * 1_000_000_000;
    let mut step_ns = STEP_NS;
    while clock.now_ns() < end_ns {
        if step() {
            step_ns = STEP_NS;
        } else {
            clock.sleep_ns(step_ns);
            step_ns = (step_ns * 2).min(STEP_NS_MAX);
        }
    }
}

/// Default of [`LogOptions::garbage_percent`].
const GARBAGE_PERCENT: u64 = 50;
/// Groups that are not garbage by padding alone: see [`LogOptions::garbage_percent`].
const PADDED_MAX: usize = 8;
/// Maximum number of log files at rest: a group, the one replayed by a reopen, and the two files of
/// the reserve.
const LOG_FILES_MAX: usize = 6;

fn key_of(key: u64) -> Vec<u8> {
    format!("key{key:08}").into_bytes()
}

fn mark_in(value: &[u8]) -> Option<Mark> {
    let mark = value.strip_prefix(&MAGIC)?.first_chunk::<8>()?;
    Some(Mark::from_le_bytes(*mark))
}

fn marks_in(content: &[u8]) -> HashSet<Mark> {
    memchr::memmem::find_iter(content, &MAGIC).filter_map(|at| mark_in(&content[at..])).collect()
}
