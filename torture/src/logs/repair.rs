//! Row `log-repair`: a store of logs is damaged as in the row `log-flip`, and repaired into a new
//! one.
//!
//! The report is compared with the new store. A missing record must lie in a reported gap of its
//! log, or operations were lost. A removed record or older metadata may be there only if the report
//! says that data may have come back. No data is there that was never written. A report without
//! losses requires an unchanged state. No byte of the damaged store may change. The new one is
//! opened, verified, and appended to.

use super::flip::{KINDS, LogFlipStore};
use super::model::{Model, contents};
use super::{options, seen};
use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::flip::{DAMAGES, Damage, break_a_file, mounted, names_a_file};
use crate::machine::DIR;
use io::{Env, Rng};
use lavalog::{Durability, LogStore, RepairOptions, RepairReport};
use lavastore::ErrorKind;
use lavastore::testing::SimEnv;
use std::collections::BTreeMap;
use std::path::Path;

/// Directory of the new store.
const INTO: &str = "/repaired";

fn image(env: &Env) -> Check<BTreeMap<String, Option<Vec<u8>>>> {
    let read = |name: &str| env.fs.read_all(&io::fs::join(Path::new(DIR), name), 1 << 30).ok();
    let entries = env.fs.list(Path::new(DIR)).doing(|| "list".into())?;
    Ok(entries.into_iter().map(|entry| (entry.name.clone(), read(&entry.name))).collect())
}

/// Repairs the store. Returns the report, or `None` if the repair was refused.
fn repair(made: &LogFlipStore, sim: &SimEnv, rng: &mut Rng) -> Check<Option<RepairReport>> {
    let Some(env) = mounted(sim)? else { return Ok(None) };
    let before = image(&env)?;
    let repair = RepairOptions { options: options(rng), ..RepairOptions::default() };
    let report = match LogStore::repair(&env, Path::new(DIR), &env, Path::new(INTO), &repair) {
        Ok(report) => report,
        // A file with an unknown version is not read.
        Err(e) => {
            ensure!(e.kind() == ErrorKind::Unsupported, "refused to repair: {e}");
            return names_a_file(&e, "repair").map(|()| None);
        }
    };
    ensure!(image(&env)? == before, "the damaged store was changed");
    ensure!(report.is_lossless() || !report.damaged.is_empty(), "a loss without damage: {report:?}");
    let store = LogStore::open(&env, Path::new(INTO), &options(rng)).doing(|| "open the new store".into())?;
    let found = contents(&store);
    compare(&made.model, &found, &report)?;
    for (name, log) in &found {
        let strange = made.strange_in(log);
        ensure!(
            strange.is_none(),
            "{} of {name} is nothing that anybody ever wrote",
            strange.unwrap_or_default()
        );
    }
    for name in found.keys() {
        let log = store.open_log(name).doing(|| format!("open {name}"))?;
        let next = log.last_lsn().doing(|| "last".into())?.map_or(1, |last| last + 1);
        let own = report.logs.iter().find(|log| log.name == *name).map_or(0, |log| log.trimmed_below);
        log.append(next.max(own), b"goes on", Durability::Durable)
            .doing(|| format!("append to {name} of the new store"))?;
    }
    store.wait_idle().doing(|| "settle the new store".into())?;
    let verified = store.verify();
    ensure!(verified.damages.is_empty(), "the new store is damaged: {verified:?}");
    store.close().doing(|| "close the new store".into())?;
    Ok(Some(report))
}

fn compare(model: &Model, found: &Model, report: &RepairReport) -> Check {
    let may_come_back =
        !report.may_come_back.is_empty() || report.lost_batches.iter().any(|lost| lost.may_come_back);
    let may_be_gone = !report.lost_batches.is_empty();
    for (name, own) in model {
        let Some(new) = found.get(name) else {
            ensure!(may_be_gone, "log {name} is gone, and no operations are told as lost");
            continue;
        };
        let gaps = report.logs.iter().find(|log| log.name == *name).map_or(&[][..], |log| &log.gaps);
        for (lsn, bytes) in &own.records {
            match new.records.get(lsn) {
                Some(is) => ensure!(is == bytes || may_come_back, "record {lsn} of {name} is another"),
                None => {
                    let is_told = gaps.iter().any(|gap| (gap.first..=gap.last).contains(lsn));
                    ensure!(is_told || may_be_gone, "record {lsn} of {name} is not there, and not told");
                }
            }
        }
        if !may_come_back {
            let more = new.records.keys().find(|lsn| !own.records.contains_key(lsn));
            ensure!(more.is_none(), "record {more:?} of {name} came back");
            ensure!(new.metadata.as_deref() == own.metadata.as_deref(), "other metadata of {name}");
        }
    }
    let more = found.keys().find(|name| !model.contains_key(*name));
    ensure!(more.is_none() || may_come_back, "log {more:?} came back");
    Ok(())
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut made = Outcome::default();
    let Some(store) = outcome.made(|| LogFlipStore::make(seed, &mut made)) else { return outcome };
    outcome.notes.extend(made.notes);
    let mut rng = Rng::new(seed ^ 0x6c6f_672d_7265);
    let break_it = |sim: &SimEnv, rng: &mut Rng| break_a_file(sim, &store.older, &KINDS, rng);
    outcome.damaged((&store.sim, &mut rng), DAMAGES, break_it, |outcome, nth, sim, damage: &Damage, rng| {
        let repaired = guarded(|| repair(&store, sim, rng)).and_then(|repaired| repaired);
        if let Ok(Some(report)) = &repaired {
            let gaps = report.logs.iter().flat_map(|log| &log.gaps).filter(|gap| gap.is_certain);
            outcome.note(seen::LOST, gaps.map(|gap| gap.last - gap.first + 1).sum());
            outcome.note(seen::SAVED, u64::from(report.is_lossless() && !report.damaged.is_empty()));
        }
        outcome.take(repaired.map(drop).map_err(|why| format!("damage {nth}, {}: {why}", damage.text)));
    });
    outcome
}
