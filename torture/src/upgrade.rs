//! Row `upgrade`: stores of every format, and upgrades.
//!
//! Half of a case is simulated. A store goes through a random history with an upgrade, and crashes
//! at every change that the upgrade makes to the disk. It must open with all acknowledged writes in
//! either format, upgrade again, and continue. From then on any one file of `CURRENT` and the
//! manifest may be lost. A store with a later format number is refused with that number, unchanged.
//!
//! The other half uses the programs of earlier formats ([`programs`]).

mod programs;

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::crash::kind;
use crate::{machine, plan, tally};
use base::{Uid, checksum};
use io::Rng;
use lavastore::testing::SimEnv;
use lavastore::{Db, ErrorKind, LogOptions, LogStore, Options, StoreFormat, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::path::Path;

/// Keys with their values, and the records of one log.
type UpgradeModel = (BTreeMap<Vec<u8>, Vec<u8>>, BTreeMap<u64, Vec<u8>>);

/// Crash states per change of an upgrade.
const STATES: u64 = 4;
const LOG: &str = "log";

pub(crate) fn case(context: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut run = UpgradeRun::new(seed);
    let ran = guarded(|| run.run()).and_then(|ran| ran);
    outcome.take(ran);
    outcome.note(tally::UPGRADE_CUT, run.states);
    outcome.note(tally::UPGRADED, run.raised);
    outcome.note(tally::FILES_LOST, run.lost);
    programs::case(context, seed, &mut outcome);
    outcome
}

struct UpgradeRun {
    sim: SimEnv,
    rng: Rng,
    options: Options,
    /// The store has logs, with or without keys.
    has_logs: bool,
    has_keys: bool,
    model: UpgradeModel,
    states: u64,
    raised: u64,
    lost: u64,
}

/// An open store.
struct Open {
    keys: Option<Db>,
    logs: Option<LogStore>,
}

impl Open {
    fn format(&self) -> StoreFormat {
        match (&self.keys, &self.logs) {
            (Some(keys), _) => keys.format(),
            (None, logs) => logs.as_ref().map_or(StoreFormat::OLDEST, LogStore::format),
        }
    }

    /// Upgrades through either half.
    fn upgrade(&self, rng: &mut Rng) -> lavastore::Result<()> {
        match (&self.keys, &self.logs) {
            (Some(keys), None) => keys.upgrade(StoreFormat::NEWEST),
            (Some(keys), Some(_)) if rng.one_in(2) => keys.upgrade(StoreFormat::NEWEST),
            (_, Some(logs)) => logs.upgrade(StoreFormat::NEWEST),
            (None, None) => Ok(()),
        }
    }

    fn contents(&self) -> Check<UpgradeModel> {
        let mut model = UpgradeModel::default();
        if let Some(keys) = &self.keys {
            model.0 = keys.iter().collect::<lavastore::Result<_>>().doing(|| "scan".into())?;
        }
        if let Some(logs) = &self.logs {
            let log = logs.log(LOG).doing(|| "the log".into())?;
            let all: Vec<(u64, Vec<u8>)> =
                log.scan(..).collect::<lavastore::Result<_>>().doing(|| "scan of the log".into())?;
            model.1 = all.into_iter().collect();
        }
        Ok(model)
    }

    fn is_sound(&self) -> Check {
        if let Some(keys) = &self.keys {
            let report = keys.verify().doing(|| "verify".into())?;
            ensure!(report.errors.is_empty(), "verify: {:?}", report.errors);
        }
        if let Some(logs) = &self.logs {
            let report = logs.verify();
            ensure!(report.damages.is_empty(), "verify of logs: {:?}", report.damages);
        }
        Ok(())
    }
}

/// Checks that format 1 refuses empty keys, which an earlier release could not replay.
fn refuse_empty_key(keys: &Db) -> Check {
    let mut batch = WriteBatch::new();
    batch.put("key000", "refused with the other");
    batch.put("", "refused");
    for refused in [keys.put("", "refused"), keys.delete(""), keys.write(&batch)] {
        let kind = refused.err().map(|e| e.kind());
        ensure!(kind == Some(ErrorKind::InvalidArgument), "an empty key in format 1: {kind:?}");
    }
    Ok(())
}

impl UpgradeRun {
    fn new(seed: u64) -> UpgradeRun {
        let mut rng = Rng::new(seed ^ 0x0075_7067_7261_6465);
        // Earlier releases refuse families with merge operators.
        let options = plan::without_operators(|| plan::roomy(plan::options(&mut rng)));
        let halves = rng.below(3);
        UpgradeRun {
            sim: machine::new(seed),
            options: Options { space_limit: None, ..options },
            has_logs: halves > 0,
            has_keys: halves < 2,
            model: UpgradeModel::default(),
            rng,
            states: 0,
            raised: 0,
            lost: 0,
        }
    }

    fn open(&self, sim: &SimEnv) -> Check<Open> {
        let env = machine::env(sim)?;
        let logs = LogOptions::default();
        match (self.has_keys, self.has_logs) {
            (true, false) => {
                let keys = Db::open_in(&env, machine::DIR, &self.options).doing(|| "open".into())?;
                Ok(Open { keys: Some(keys), logs: None })
            }
            (true, true) => {
                let keys = Db::open_with_logs_in(&env, machine::DIR, &self.options, &logs)
                    .doing(|| "open".into())?;
                let logs = keys.logs().doing(|| "logs".into())?;
                Ok(Open { keys: Some(keys), logs: Some(logs) })
            }
            _ => {
                let logs = LogStore::open_in(&env, machine::DIR, &logs).doing(|| "open".into())?;
                Ok(Open { keys: None, logs: Some(logs) })
            }
        }
    }

    fn run(&mut self) -> Check {
        for session in 0..self.rng.range(1, 4) {
            let store = self.open(&self.sim.clone())?;
            ensure!(store.contents()? == self.model, "session {session} opens with something else");
            ensure!(store.format() == StoreFormat::DEFAULT, "an open changed the format");
            self.write(&store, 30)?;
            if self.rng.one_in(2) {
                close(store)?;
            }
        }
        let store = self.open(&self.sim.clone())?;
        self.write(&store, 10)?;
        let (from, before) = (self.sim.op_count(), self.model.clone());
        store.upgrade(&mut self.rng).doing(|| "upgrade".into())?;
        let end = self.sim.op_count();
        ensure!(store.format() == StoreFormat::NEWEST, "the format was not raised");
        store.upgrade(&mut self.rng).doing(|| "second upgrade".into())?;
        self.write(&store, 10)?;
        let after = self.model.clone();
        close(store)?;
        self.crash_within(&before, from, end)?;
        self.lose_each(&after)?;
        self.refuse(&after)
    }

    /// Writes durable batches, with some flushes.
    fn write(&mut self, store: &Open, batches: u64) -> Check {
        for _ in 0..self.rng.range(1, batches) {
            if let Some(keys) = &store.keys {
                let mut batch = WriteBatch::new();
                for _ in 0..self.rng.range(1, 6) {
                    let mut key = format!("key{:03}", self.rng.below(200)).into_bytes();
                    if self.rng.one_in(20) {
                        match store.format() {
                            StoreFormat::V1 => refuse_empty_key(keys)?,
                            _ => key.clear(),
                        }
                    }
                    if self.rng.one_in(5) {
                        batch.delete(&key);
                        self.model.0.remove(&key);
                    } else {
                        let len = plan::pick(&mut self.rng, &[3, 100, 900, 5_000]);
                        let value = vec![self.rng.below(256) as u8; len];
                        batch.put(&key, &value);
                        self.model.0.insert(key, value);
                    }
                }
                keys.writing(&WriteOptions::durable()).write(&batch).doing(|| "write".into())?;
                if self.rng.one_in(10) {
                    keys.flush().doing(|| "flush".into())?;
                }
            }
            if let Some(logs) = &store.logs {
                let log = logs.log(LOG).doing(|| "the log".into())?;
                let lsn = self.model.1.last_key_value().map_or(1, |(lsn, _)| lsn + 1);
                let record = vec![self.rng.below(256) as u8; self.rng.range(1, 2_000) as usize];
                log.append(lsn, &record).doing(|| "append".into())?;
                self.model.1.insert(lsn, record);
            }
        }
        Ok(())
    }

    /// Crashes within an upgrade between these operations; all earlier writes are durable.
    fn crash_within(&mut self, before: &UpgradeModel, from: u64, end: u64) -> Check {
        let record = self.sim.record();
        for op in record.mutations().into_iter().filter(|op| (from..end).contains(op)) {
            for _ in 0..STATES {
                let (kind, seed) = (kind(&mut self.rng), self.rng.next_u64());
                let sim = record.crash_at(op, kind, seed);
                let what = |why: String| format!("op {op} of {from} to {end}, {kind:?} {seed}: {why}");
                self.go_on(&sim, before).map_err(what)?;
            }
        }
        Ok(())
    }

    /// Checks a store after a crash: it opens in either format with all writes, upgrades, and takes
    /// more writes.
    fn go_on(&mut self, sim: &SimEnv, expected: &UpgradeModel) -> Check {
        let store = self.open(sim)?;
        ensure!(store.contents()? == *expected, "something else is there");
        self.states += 1;
        self.raised += u64::from(store.format() > StoreFormat::DEFAULT);
        store.upgrade(&mut self.rng).doing(|| "upgrade".into())?;
        ensure!(store.format() == StoreFormat::NEWEST, "the format was not raised");
        store.is_sound()?;
        close(store)?;
        let store = self.open(sim)?;
        ensure!(
            store.contents()? == *expected && store.format() == StoreFormat::NEWEST,
            "not what was closed"
        );
        Ok(())
    }

    /// Checks that the store opens with all data without any one of its duplicated files.
    fn lose_each(&mut self, expected: &UpgradeModel) -> Check {
        for (path, len) in self.sim.files() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !name.starts_with("CURRENT") && !name.starts_with("MANIFEST") {
                continue;
            }
            let sim = self.sim.fork(self.rng.next_u64());
            match self.rng.below(3) {
                0 => sim.erase(&path),
                1 => sim.set_file_len(&path, self.rng.below(len)),
                _ => sim.flip_bit(&path, self.rng.below(len), self.rng.below(8) as u32),
            }
            .doing(|| format!("damage to {name}"))?;
            self.lost += 1;
            self.go_on(&sim, expected).map_err(|why| format!("without {name}: {why}"))?;
        }
        Ok(())
    }

    /// Checks that writers and readers refuse a later format with its number, and change nothing.
    fn refuse(&mut self, expected: &UpgradeModel) -> Check {
        let number = StoreFormat::NEWEST.number() + self.rng.range(1, 1_000) as u32;
        let sim = self.sim.fork(1);
        let manifests: Vec<_> =
            sim.files().into_iter().map(|(path, _)| path).filter(|path| is_manifest(path)).collect();
        let mut kept = Vec::new();
        for path in &manifests {
            let mut bytes = sim.read_file(path).doing(|| "read".into())?;
            kept.push(bytes.clone());
            raise_header(&mut bytes, number)?;
            sim.write_file(path, &bytes).doing(|| "write".into())?;
        }
        let before = sim.state_hash();
        let env = machine::env(&sim)?;
        let refused = [
            Db::open_in(&env, machine::DIR, &self.options).map(drop),
            Db::open_read_only_in(&env, machine::DIR, &self.options).map(drop),
            LogStore::open_in(&env, machine::DIR, &LogOptions::default()).map(drop),
            LogStore::open_read_only_in(&env, machine::DIR, &LogOptions::default()).map(drop),
        ];
        for (nth, opened) in refused.into_iter().enumerate() {
            let Err(e) = opened else { return Err(format!("{nth}: format {number} was opened")) };
            let is_it =
                e.kind() == ErrorKind::Unsupported && e.message().contains(&format!("format {number},"));
            ensure!(is_it, "{nth}: format {number} was refused with {e}");
        }
        ensure!(sim.state_hash() == before, "a refused open changed something");
        for (path, bytes) in manifests.iter().zip(&kept) {
            sim.write_file(path, bytes).doing(|| "write".into())?;
        }
        let store = self.open(&sim)?;
        ensure!(store.contents()? == *expected, "something else is there");
        Ok(())
    }
}

fn is_manifest(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"))
}

/// Sets the format in the header of a manifest.
fn raise_header(bytes: &mut [u8], number: u32) -> Check {
    ensure!(bytes.len() >= 64 && bytes[8] == 3, "a manifest without a number");
    bytes[12..16].copy_from_slice(&number.to_le_bytes());
    let uid = Uid(bytes[32..48].try_into().doing(|| "uid".into())?);
    let sum = checksum::stored(&bytes[..60], uid, 0);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

fn close(store: Open) -> Check {
    let Open { keys, logs } = store;
    if let Some(keys) = keys {
        drop(logs);
        return keys.close().doing(|| "close".into());
    }
    logs.map_or(Ok(()), |logs| logs.close().doing(|| "close".into()))
}
