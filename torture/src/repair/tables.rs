//! Compares the key ranges that a repair reports for damaged tables with brute force, for the row
//! `repair`.
//!
//! A short workload writes every key once in ascending order, so tables are disjoint. Then one or
//! two blocks of tables and value files are erased, and the store is repaired. The oracle looks up
//! each key in the new store. Each missing key must lie inside a reported range, and a reported
//! range contains only missing keys. The exception is its first key: the last key before a lost
//! block is the lower bound of the range, and may be present.
//!
//! The values of a store are either all inline or all separated: in a mixed table, lost blocks of
//! one kind lie between present keys of the other.

use super::INTO;
use crate::case::{Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::machine::{self, DIR, damage};
use crate::plan::pick;
use io::Rng;
use lavastore::testing::SimEnv;
use lavastore::{Db, FamilyOptions, KeyOutcome, KeyRepairReport, LostRange, Options, RepairOptions};
use std::collections::BTreeMap;

/// Repairs per store.
const DAMAGES: u64 = 4;
/// Bytes erased at once.
const BLOCK: u64 = 512;

/// The workload; see the module.
struct TablesWorkload {
    sim: SimEnv,
    options: Options,
    keys: Vec<Vec<u8>>,
}

impl TablesWorkload {
    fn make(seed: u64, rng: &mut Rng) -> Check<TablesWorkload> {
        let min_blob_size = pick(rng, &[0, 100]);
        let block_bytes = pick(rng, &[512, 1024, 4096]);
        let family = FamilyOptions { min_blob_size, ..FamilyOptions::default() }.expert(|expert| {
            expert.block_bytes = block_bytes;
            expert.file_bytes = 16 << 10;
        });
        let options =
            Options { memtable_bytes: 64 << 10, memory_bytes: 256 << 10, family, ..Options::default() };
        let mut life = TablesWorkload { sim: machine::new(seed), options, keys: Vec::new() };
        let db = Db::open_in(&machine::env(&life.sim)?, DIR, &life.options).doing(|| "open".into())?;
        let count = rng.range(20, 400);
        let len_max = pick(rng, &[110, 400, 1500]);
        for n in 0..count {
            let mut key = format!("key {n:06}").into_bytes();
            // Makes separators shorter than keys.
            key.resize(key.len() + rng.below(20) as usize, b'x');
            let value = vec![b'v'; rng.range(100, len_max) as usize];
            db.put(&key, &value).doing(|| "put".into())?;
            life.keys.push(key);
            if rng.one_in(80) {
                db.flush().doing(|| "flush".into())?;
            }
        }
        db.flush().doing(|| "flush".into())?;
        if rng.one_in(3) {
            db.compact_range(..).doing(|| "compact".into())?;
        }
        db.close().doing(|| "close".into())?;
        life.sim = life.sim.fork(seed);
        Ok(life)
    }

    /// Erases one or two blocks of tables or value files.
    fn damage(&self, sim: &SimEnv, rng: &mut Rng) -> Check<Option<String>> {
        let is_data = |path: &str| path.ends_with(".ksst") || path.ends_with(".vsst");
        let mut files = damage::files(sim)?;
        files.retain(|(path, len)| path.starts_with(&format!("{DIR}/")) && is_data(path) && *len > 0);
        let mut text = String::new();
        for _ in 0..pick(rng, &[1, 1, 2]) {
            let (path, len) = &files[rng.below(files.len() as u64) as usize];
            let at = rng.below(len.div_ceil(BLOCK)) * BLOCK;
            damage::overwrite(sim, path, at, &vec![0; BLOCK.min(len - at) as usize])?;
            text += &format!("zeros over {path} at {at} of {len}; ");
        }
        Ok(Some(text))
    }

    /// Repairs and checks. Returns the number of missing keys.
    fn check(&self, sim: &SimEnv) -> Check<u64> {
        let env = machine::env(sim)?;
        let repair = RepairOptions { options: self.options.clone(), ..RepairOptions::default() };
        let report = Db::repair_in(&env, DIR, &env, INTO, &repair).doing(|| "repair".into())?.keys;
        let db = Db::open_in(&env, INTO, &self.options).doing(|| "open what was repaired".into())?;
        let mut is_there = BTreeMap::new();
        for key in &self.keys {
            let found = db.get(key).doing(|| format!("get {}", key.escape_ascii()))?.is_some();
            is_there.insert(key.as_slice(), found);
        }
        db.close().doing(|| "close the new store".into())?;
        judge(&is_there, &report).map_err(|why| format!("{why}; lost: {}", super::list(&report.lost)))?;
        Ok(is_there.values().filter(|is_there| !**is_there).count() as u64)
    }
}

/// Compares every key with the report, and every range with the keys.
fn judge(is_there: &BTreeMap<&[u8], bool>, report: &KeyRepairReport) -> Check {
    for (key, is_there) in is_there {
        let is_told = report.outcome(0, key) == KeyOutcome::Lost;
        ensure!(*is_there || is_told, "key {} is missing, and not told", key.escape_ascii());
    }
    for lost in &report.lost {
        let present = present_in(is_there, lost);
        let is_lower_border = |key: &[u8]| lost.from.as_deref() == Some(key) && lost.to != lost.from;
        for key in &present {
            ensure!(is_lower_border(key), "key {} is there, and in {lost}", key.escape_ascii());
        }
        let covered = is_there.keys().filter(|key| lost.covers(0, key)).count();
        ensure!(covered > present.len(), "no key is missing in {lost}");
    }
    Ok(())
}

/// Returns the keys of a range that are in the new store.
fn present_in<'k>(is_there: &BTreeMap<&'k [u8], bool>, lost: &LostRange) -> Vec<&'k [u8]> {
    let present = is_there.iter().filter(|(key, is_there)| **is_there && lost.covers(0, key));
    present.map(|(key, _)| *key).collect()
}

/// Compares the reports of some repairs with brute force.
pub(crate) fn check(seed: u64, outcome: &mut Outcome) {
    let mut rng = Rng::new(seed ^ 0x7461_626c_6573);
    let Some(life) = outcome.made(|| TablesWorkload::make(seed, &mut rng)) else { return };
    let break_it = |sim: &SimEnv, rng: &mut Rng| life.damage(sim, rng);
    outcome.damaged((&life.sim, &mut rng), DAMAGES, break_it, |outcome, nth, sim, text, _| {
        let checked = guarded(|| life.check(sim)).and_then(|checked| checked);
        outcome.note("keys lost with tables", checked.as_ref().map_or(0, |count| *count));
        outcome.take(checked.map(drop).map_err(|why| format!("tables, damage {nth}, {text}{why}")));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges reported ranges if these of the keys a to f are missing.
    fn judged(missing: &[u8], ranges: &[(&str, &str)]) -> Check {
        let is_there = b"abcdef".chunks(1).map(|key| (key, !missing.contains(&key[0]))).collect();
        let lost = |(from, to): &(&str, &str)| LostRange {
            family: Some(0),
            from: Some(from.as_bytes().to_vec()),
            to: Some(to.as_bytes().to_vec()),
            ..LostRange::default()
        };
        let lost = ranges.iter().map(lost).collect();
        judge(&is_there, &KeyRepairReport { lost, ..KeyRepairReport::default() })
    }

    #[test]
    fn ranges_are_exact_but_for_their_first_key() {
        assert_eq!(judged(b"cd", &[("c", "d")]), Ok(()));
        assert_eq!(judged(b"cd", &[("b", "dx")]), Ok(()), "b is the last key before the lost block");
        assert_eq!(judged(b"cdf", &[("b", "c"), ("c", "d"), ("f", "f")]), Ok(()));
        assert!(judged(b"cd", &[("c", "c")]).is_err_and(|why| why.contains("key d is missing")));
        assert!(judged(b"cd", &[("a", "d")]).is_err_and(|why| why.contains("key b is there")));
        assert!(judged(b"cd", &[("c", "e")]).is_err_and(|why| why.contains("key e is there")));
        assert!(judged(b"c", &[("c", "c"), ("e", "e")]).is_err_and(|why| why.contains("key e is there")));
        assert!(judged(b"c", &[("c", "c"), ("e", "ex")]).is_err_and(|why| why.contains("no key is missing")));
        assert!(judged(b"", &[("x", "z")]).is_err_and(|why| why.contains("no key is missing")));
    }
}
