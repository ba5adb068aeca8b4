//! Row `log-joint-repair`: a store with both engines is damaged, and both halves are repaired into
//! a new one.
//!
//! Damage is as in the row `log-joint-flip`, to one or two files. The report is compared with the
//! new store: a missing key or record must be reported as lost, and all others must be unchanged.
//! Of a batch of both engines, each half is there or reported as lost. If only the log is damaged
//! and the manifest names the groups to replay, a present record has its key too: both were in one
//! page. No byte of the damaged store may change. The new store has both engines, verifies, takes
//! batches of both, and is the same after a reopen.
//!
//! One store in four was killed; there, data and log files are damaged. The end of its log cannot
//! be distinguished from a torn one. So losses behind the last present record, or of keys behind
//! the last batch of both, need not be reported. But no record of a batch of both is there without
//! its key.

use super::life::{Found, HEAD, InLog, Life, head, key, open, open_at, value, write_both};
use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::flip::{Damage, break_a_file, mounted, names_a_file};
use crate::logs::seen;
use crate::machine::{self, DIR};
use crate::repair::bytes_of;
use io::Rng;
use lavakv::Db;
use lavalog::{Durability, LogStore};
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{ErrorKind, LostRange, RepairOptions, RepairReport};
use std::collections::BTreeMap;

/// Repairs per store.
const DAMAGES: u64 = 12;
/// Directory of the new store.
const INTO: &str = "/repaired";
/// Files of a killed store that may be damaged.
const DATA: [&str; 8] = [".log", ".log", ".ksst", ".ksst", ".vsst", ".e1-1", ".e1-2", ".e1-3"];

struct JointRepairStore {
    life: Life,
    /// The final and an earlier state.
    sim: SimEnv,
    older: SimEnv,
    closed: bool,
}

/// Contents of the new store.
#[derive(PartialEq)]
struct Saved {
    /// Key-value writes present in the family default, and in the other one.
    keys: BTreeMap<(u64, bool), bool>,
    /// Number of the write that the head belongs to; 0: none.
    head: u64,
    records: BTreeMap<u64, bool>,
}

impl JointRepairStore {
    fn make(seed: u64, rng: &mut Rng) -> JointRepairStore {
        let mut life = Life::new(machine::new(seed), machine::try_env, seed, Found::NOTHING);
        let closed = !rng.one_in(4);
        for _ in 0..rng.range(1, 3) {
            life.live(rng.range(20, 160));
        }
        let older = life.sim.fork(seed);
        let steps = rng.range(20, 160);
        if closed {
            life.live_on(steps, true);
            let sim = life.sim.fork(seed);
            return JointRepairStore { life, sim, older, closed };
        }
        let (db, logs) = open(&machine::try_env(&life.sim).expect("a sound volume")).expect("a sound store");
        life.go_on(&db, &logs, steps).expect("nothing fails");
        life.note(&logs);
        // Dropping the store would close it.
        let sim = life.sim.crash(CrashKind::ProcessKill, seed);
        JointRepairStore { life, sim, older, closed }
    }

    fn damage(&self, sim: &SimEnv, rng: &mut Rng) -> Check<Option<Vec<Damage>>> {
        let kinds: &[&str] = if self.closed { &super::flip::KINDS } else { &DATA };
        let Some(first) = break_a_file(sim, &self.older, kinds, rng)? else { return Ok(None) };
        let more = rng.one_in(3) && !first.path.is_empty();
        // The second damage may be impossible after the first.
        let second = if more { break_a_file(sim, &self.older, kinds, rng).ok().flatten() } else { None };
        let all: Vec<Damage> = [first].into_iter().chain(second).collect();
        let is_any = |is: &dyn Fn(&Damage) -> bool| all.iter().any(is);
        // `break_a_file` may also damage the end of a killed store's manifest.
        let is_end = is_any(&|damage| damage.path.is_empty() || damage.path.contains("/MANIFEST"));
        // Without a manifest, nothing reveals the loss of a key file, of a file under the
        // manifest's name, or of a cold file.
        let is_manifest =
            |damage: &Damage| files_of(damage).any(|path| path.contains("/MANIFEST") || path.is_empty());
        // An empty log file is taken for one that was just created.
        let is_gone = is_any(&|damage| {
            ["sst erased", ".log erased", ".e1-3 erased"].iter().any(|end| damage.text.ends_with(end))
                || damage.text.contains(".log cut ") && damage.text.ends_with(" to 0 B")
        });
        // The lock file is empty, so a file exchanged with it is lost.
        let is_gone = is_gone
            || is_any(&|damage| {
                damage.other.is_some() && files_of(damage).any(|path| path.ends_with("/LOCK"))
            });
        let is_named = is_any(&|damage| damage.other.is_some() && is_manifest(damage));
        let is_unknown = is_named || is_any(&is_manifest) && is_gone;
        Ok(((self.closed || !is_end) && !is_unknown).then_some(all))
    }

    /// Repairs, and compares the report with the new store.
    fn repair(&self, sim: &SimEnv, damages: &[Damage], rng: &mut Rng) -> Check<Option<RepairReport>> {
        let Some(env) = mounted(sim)? else { return Ok(None) };
        let before = bytes_of(sim)?;
        let repair = |dry_run| {
            let options = RepairOptions {
                without_fast_tier: false,
                options: super::life::kv_options(),
                logs: super::life::log_options(),
                dry_run,
                cancel: None,
            };
            lavastore::Db::repair_in(&env, DIR, &env, INTO, &options)
        };
        let dry = if rng.one_in(4) { Some(repair(true)) } else { None };
        if dry.is_some() {
            ensure!(!env.fs.exists(INTO.as_ref()).doing(|| "look".into())?, "a dry run wrote something");
        }
        let report = match repair(false) {
            Ok(report) => report,
            // A file with an unknown version is not read.
            Err(e) => {
                ensure!(e.kind() == ErrorKind::Unsupported, "refused to repair: {e}");
                return names_a_file(&e, "repair").map(|()| None);
            }
        };
        ensure!(bytes_of(sim)? == before, "the damaged store was changed");
        if let Some(dry) = dry {
            let dry = dry.doing(|| "a dry run".into())?;
            let same = dry.keys.lost == report.keys.lost && dry.losses() == report.losses();
            ensure!(same, "a dry run reports {dry:?}, the repair {report:?}");
        }
        // Killed volatile changes are unknown rather than lost, and cause no damage.
        let is_lost =
            report.keys.losses() > 0 || report.logs.as_ref().is_some_and(|logs| !logs.is_lossless());
        let is_told = |damaged: bool| damaged || !is_lost;
        let of_logs = report.logs.as_ref().is_some_and(|logs| !logs.damaged.is_empty());
        ensure!(is_told(of_logs || !report.keys.damaged.is_empty()), "a loss without damage: {report:?}");
        let (db, logs) = open_at(&env, INTO).doing(|| "open the new store".into())?;
        let name = name_of_log(&report);
        let saved = self.saved(&db, &logs, name)?;
        let is_cut = !self.closed && damages.iter().flat_map(files_of).any(|path| path.ends_with(".log"));
        self.judge(&saved, &report, is_cut).map_err(|why| format!("{why}; {}", told(&report)))?;
        if report.keys.from_manifest && damages.iter().flat_map(files_of).all(is_of_log) {
            self.judge_halves(&saved).map_err(|why| format!("{why}; {}", told(&report)))?;
        }
        self.goes_on((db, logs), &env, name, &saved)?;
        Ok(Some(report))
    }

    /// Returns the contents of the new store; each must be unchanged.
    fn saved(&self, db: &Db, logs: &LogStore, name: &str) -> Check<Saved> {
        let Found { keys, log } = self.life.now;
        let get = |family: Option<&lavakv::ColumnFamily>, key: &[u8]| {
            let found = family.map_or(Ok(None), |family| db.get_cf(family, key));
            found
                .map(|found| found.map(|value| value.to_vec()))
                .doing(|| format!("get {}", key.escape_ascii()))
        };
        let (own, other) = (db.default_column_family(), db.column_family("other"));
        let mut saved = Saved { keys: BTreeMap::new(), head: 0, records: BTreeMap::new() };
        for n in 0..keys {
            let of_other = n.is_multiple_of(3).then_some((other.as_ref(), true));
            for (family, is_other) in [(Some(own), false)].into_iter().chain(of_other) {
                let found = get(family, &key(n))?;
                ensure!(found.as_ref().is_none_or(|found| *found == value(n)), "key {n} is another");
                saved.keys.insert((n, is_other), found.is_some());
            }
        }
        ensure!(get(Some(own), &key(keys))?.is_none(), "key {keys} was never written");
        if let Some(found) = get(Some(own), HEAD)? {
            let of = (0..keys).find(|n| found == head(*n));
            saved.head = of.ok_or_else(|| "the head is of no write".to_owned())? + 1;
        }
        let handle = logs.open_log(name).ok();
        let read = |lsn: u64| {
            let found = handle.as_ref().map_or(Ok(None), |log| log.read(lsn));
            let found = match found {
                Err(e) if e.kind() == ErrorKind::Trimmed => None,
                found => found.doing(|| format!("read {lsn}"))?,
            };
            ensure!(found.as_ref().is_none_or(|found| *found == value(lsn + 1)), "record {lsn} is another");
            Ok(found.is_some())
        };
        for lsn in 0..=log.last {
            let found = read(lsn)?;
            saved.records.insert(lsn, found);
        }
        ensure!(!read(log.last + 1)?, "record {} was never written", log.last + 1);
        Ok(saved)
    }

    /// Checks that missing data is reported, half by half; with `is_cut`, unless it may be the end
    /// of a lane.
    fn judge(&self, saved: &Saved, report: &RepairReport, is_cut: bool) -> Check {
        if is_cut {
            self.judge_before_both(saved, report)?;
            let last = saved.records.iter().filter(|(_, is_there)| **is_there).map(|(lsn, _)| *lsn).max();
            return self.judge_records(&saved.records, report, last.unwrap_or(0));
        }
        let lost = &report.keys.lost;
        let id = |is_other: bool| {
            let name = if is_other { "other" } else { "default" };
            report.keys.families.iter().find(|family| family.name == name).map(|family| family.id)
        };
        for ((n, is_other), is_there) in &saved.keys {
            let covers = |lost: &LostRange| {
                !lost.only_come_back
                    && id(*is_other).is_none_or(|id| lost.covers(id, &key(*n)))
                    && self.are_of(lost, *n)
            };
            let which = if *is_other { "of the other family" } else { "" };
            ensure!(*is_there || lost.iter().any(covers), "key {n} {which} is not there, and not told");
        }
        let newest = self.life.now.keys;
        let covers =
            |lost: &LostRange| lost.may_come_back && lost.covers(0, HEAD) && self.are_of(lost, newest - 1);
        let is_gone = |lost: &LostRange| !lost.only_come_back && lost.covers(0, HEAD);
        ensure!(
            saved.head == newest || lost.iter().any(|lost| covers(lost) || saved.head == 0 && is_gone(lost)),
            "the head is of write {} of {newest}, and that is not told",
            saved.head
        );
        self.judge_records(&saved.records, report, self.life.now.log.last)
    }

    /// Everything logged before a present batch of both was durable: checks that its missing data
    /// is reported.
    fn judge_before_both(&self, saved: &Saved, report: &RepairReport) -> Check {
        let is_there = |n: u64| saved.keys.get(&(n, false)).copied().unwrap_or(false);
        let Some(last) = self.life.joint().map(|(n, _)| n).filter(|n| is_there(*n)).max() else {
            return Ok(());
        };
        for ((n, _), is_there) in saved.keys.range(..(last, false)) {
            let is_told =
                || report.keys.lost.iter().any(|lost| !lost.only_come_back && self.are_of(lost, *n));
            ensure!(
                *is_there || is_told(),
                "key {n}, before a batch of both that is there, is not there, and not told"
            );
        }
        Ok(())
    }

    fn judge_records(&self, records: &BTreeMap<u64, bool>, report: &RepairReport, end: u64) -> Check {
        let InLog { first, last } = self.life.now.log;
        let Some(logs) = &report.logs else {
            ensure!(first > last, "the new store has no logs");
            return Ok(());
        };
        let may_come_back =
            !logs.may_come_back.is_empty() || logs.lost_batches.iter().any(|l| l.may_come_back);
        let gaps =
            logs.logs.iter().filter(|log| log.name == "log" || log.name_is_lost).flat_map(|log| &log.gaps);
        let gaps: Vec<_> = gaps.collect();
        for (lsn, is_there) in records {
            let is_told = || gaps.iter().any(|gap| (gap.first..=gap.last).contains(lsn));
            match (first..=last).contains(lsn) {
                true => ensure!(
                    *is_there || *lsn > end || is_told() || !logs.lost_batches.is_empty(),
                    "record {lsn} is not there, and not told"
                ),
                false => ensure!(
                    !is_there || may_come_back || end < last,
                    "record {lsn} was trimmed and came back"
                ),
            }
        }
        Ok(())
    }

    /// Returns true if the loss covers changes of a write.
    fn are_of(&self, lost: &LostRange, n: u64) -> bool {
        let (Some((first, last)), Some((from, to))) = (lost.sequences, self.life.seqs(n)) else {
            return true;
        };
        from <= last && first <= to
    }

    /// Checks that no batch of both has its record without its key.
    fn judge_halves(&self, saved: &Saved) -> Check {
        for (n, lsn) in self.life.joint() {
            let of = |is_other| saved.keys.get(&(n, is_other)).copied().unwrap_or(true);
            let record = saved.records.get(&lsn).copied().unwrap_or(false);
            let halves = (of(false) && of(true), record);
            ensure!(
                halves != (false, true),
                "record {lsn} is there, and key {n}, which was in one page with it, is not"
            );
        }
        Ok(())
    }

    /// Checks that the new store takes a batch of both and is the same after a reopen.
    fn goes_on(&self, (db, logs): (Db, LogStore), env: &io::Env, name: &str, saved: &Saved) -> Check {
        let is_known = lavastore::Db::has_logs_in(env, INTO).doing(|| "ask for logs".into())?;
        ensure!(is_known, "the manifest of the new store does not know of logs");
        let log = logs.log(name).doing(|| "the log".into())?;
        let last = log.last_lsn().doing(|| "last".into())?.unwrap_or(0);
        let lsn = last.max(self.life.now.log.last) + 2;
        let mut changes = lavakv::WriteBatch::new();
        changes.put(b"goes on", b"v");
        write_both(&db, &changes, &log, lsn, b"goes on", Durability::Durable)
            .doing(|| "write both".into())?;
        db.flush().doing(|| "flush the new store".into())?;
        logs.wait_idle().doing(|| "settle the new store".into())?;
        let (of_keys, of_logs) = (db.verify().doing(|| "verify".into())?, logs.verify());
        let sound = of_keys.errors.is_empty() && of_logs.damages.is_empty();
        ensure!(sound, "the new store is damaged: {of_keys:?}, {of_logs:?}");
        drop(log);
        logs.close().doing(|| "close the logs".into())?;
        db.close().doing(|| "close the new store".into())?;
        let (db, logs) = open_at(env, INTO).doing(|| "open again".into())?;
        let read = logs.open_log(name).and_then(|log| log.read(lsn)).doing(|| "read".into())?;
        ensure!(
            read.is_some() && db.get(b"goes on").doing(|| "get".into())?.is_some(),
            "the last batch is gone"
        );
        let again = self.saved(&db, &logs, name)?;
        ensure!(again == *saved, "it is another store when it is opened again");
        Ok(())
    }
}

/// Returns the name of the log in the new store.
fn name_of_log(report: &RepairReport) -> &str {
    let all = || report.logs.iter().flat_map(|logs| &logs.logs);
    all()
        .find(|log| log.name == "log")
        .or_else(|| all().find(|log| log.name_is_lost))
        .map_or("log", |log| &log.name)
}

/// Returns the damaged files.
fn files_of(damage: &Damage) -> impl Iterator<Item = &str> {
    [Some(&damage.path), damage.other.as_ref()].into_iter().flatten().map(|path| &**path)
}

/// Returns true for files whose damage loses only a part of the log.
fn is_of_log(path: &str) -> bool {
    path.ends_with(".log") || path.contains("/LOCK") || path.contains("/CURRENT")
}

fn told(report: &RepairReport) -> String {
    let lost: Vec<String> = report.keys.lost.iter().take(20).map(ToString::to_string).collect();
    let logs = report.logs.as_ref().map(|logs| (&logs.lost_batches, &logs.may_come_back));
    format!("lost: [{}], of the logs {logs:?}", lost.join("; "))
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6a6f_696e_7472);
    let Some(store) = outcome.made(|| Ok(JointRepairStore::make(seed, &mut rng))) else { return outcome };
    super::note(store.life.done, &mut outcome);
    let break_it = |sim: &SimEnv, rng: &mut Rng| store.damage(sim, rng);
    outcome.damaged((&store.sim, &mut rng), DAMAGES, break_it, |outcome, nth, sim, damages, rng| {
        let repaired = guarded(|| store.repair(sim, damages, rng)).and_then(|repaired| repaired);
        if let Ok(Some(report)) = &repaired {
            let damaged =
                report.keys.damaged.len() + report.logs.as_ref().map_or(0, |logs| logs.damaged.len());
            outcome.note(seen::SAVED, u64::from(report.is_lossless() && damaged > 0));
            outcome.note(seen::LOST_KEYS, report.keys.lost.len() as u64);
            outcome.note(seen::LOST_LOGS, report.logs.as_ref().map_or(0, |logs| logs.losses() as u64));
            outcome.note("repaired without a manifest", u64::from(!report.keys.from_manifest));
        }
        let state = if store.closed { "closed" } else { "killed" };
        let what: Vec<&str> = damages.iter().map(|damage| &*damage.text).collect();
        outcome.take(
            repaired.map(drop).map_err(|why| format!("{state}, damage {nth}, {}: {why}", what.join(", "))),
        );
    });
    crate::repair::bounds::check(seed, true, &mut outcome);
    outcome
}
