//! A store of logs only: trimmed records leave an idle store on their own, and then the store does
//! nothing more.

use super::size::Size;
use super::{GARBAGE_PERCENT, LOG_FILES_MAX, PADDED_MAX, REST_S, Records, STILL_S, pass, unrecorded};
use crate::check::{Check, Doing, ensure};
use crate::machine::{self, DIR};
use crate::plan::pick;
use io::Rng;
use lavastore::testing::SimEnv;
use lavastore::{LogOptions, LogStore};

/// Appends and trims records of some logs, sometimes reopens the store, and checks the idle store.
pub(super) fn run(seed: u64, size: &Size, rng: &mut Rng) -> Check {
    let sim = unrecorded(seed);
    let mut store = open(&sim, size)?;
    let mut logs = vec![Records::default(); rng.range(1, 5) as usize];
    append(&store, size, &mut logs, rng)?;
    if rng.one_in(2) {
        store.close().doing(|| "close".into())?;
        store = open(&sim, size)?;
    }
    let clock = machine::env(&sim)?.clock;
    let step = || store.engine().step();
    pass(&*clock, REST_S + size.bytes / (size.scale << 20), step);
    check_files(&sim, size, &logs)?;
    let state = sim.state_hash();
    pass(&*clock, STILL_S, step);
    ensure!(sim.state_hash() == state, "work at rest does not end");
    for (nth, records) in logs.iter().enumerate() {
        let log = store.log(&name(nth)).doing(|| "log".into())?;
        records.check(nth, &log)?;
    }
    store.close().doing(|| "close".into())
}

fn name(nth: usize) -> String {
    format!("log {nth}")
}

fn open(sim: &SimEnv, size: &Size) -> Check<LogStore> {
    let options = LogOptions { group_bytes: Some(size.group_bytes), ..LogOptions::default() };
    LogStore::open_in(&machine::env(sim)?, DIR, &options).doing(|| "open".into())
}

fn append(store: &LogStore, size: &Size, logs: &mut [Records], rng: &mut Rng) -> Check {
    let count = logs.len() as u64;
    for (nth, records) in logs.iter_mut().enumerate() {
        let log = store.log(&name(nth)).doing(|| "log".into())?;
        let mut left = (size.bytes / count) as i64;
        while left > 0 {
            let len = size.value_len(rng);
            log.append(records.lens.len() as u64, vec![b'r'; len]).doing(|| "append".into())?;
            records.lens.push(len);
            left -= len as i64;
            if rng.one_in(8) {
                store.engine().step();
            }
        }
        let end = records.lens.len() as u64;
        records.first = pick(rng, &[0, end / 2, end - end / 8, end]);
        log.trim(records.first).doing(|| "trim".into())?;
    }
    Ok(())
}

/// Checks that the files hold only the remaining records, the garbage allowed by the options, and
/// some groups.
fn check_files(sim: &SimEnv, size: &Size, logs: &[Records]) -> Check {
    let listed = machine::env(sim)?.fs.list(DIR.as_ref()).doing(|| "list".into())?;
    let bytes: u64 = listed.iter().map(|entry| entry.allocated).sum();
    let left: u64 = logs.iter().map(Records::left_bytes).sum();
    let files = (LOG_FILES_MAX + PADDED_MAX) as u64;
    let bound = left * 100 / (100 - GARBAGE_PERCENT) + files * size.group_bytes;
    ensure!(bytes <= bound, "the store has {bytes} B for {left} B of records, at most {bound}");
    Ok(())
}
