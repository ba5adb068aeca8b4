//! Row `damage`: one table or value file of a closed store is damaged, and the store continues to
//! work.
//!
//! One damage changes content (a flipped bit, a block of zeros, another file's block), length
//! (short, long), presence, or exchanges two files. Then:
//!
//! * The store opens for reading and writing, and `verify` names exactly the damaged files.
//! * Every key outside the named ranges is correct. A key inside has its correct value, or an error
//!   that names a damaged file, **never an older version and never a deleted key**. The same holds
//!   for a snapshot taken before later changes.
//! * A thousand changes of all kinds in all families succeed, with flushes and compactions, and
//!   read back.
//! * A scan that skips unreadable data returns the rest. If only blocks of one table are damaged,
//!   it skips at most the keys between the separators around them, otherwise at most the table's
//!   range.
//! * All this holds again after a close and an open.
//!
//! Only files in the manifest are damaged. A damage that changes no byte is drawn again.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure, show};
use crate::driver::{Driver, DriverParameters, Model, at, families_of, write_one};
use crate::machine::DIR;
use crate::machine::{self, damage};
use crate::plan::{self, Data, pick};
use crate::state::{Change, Contents, FamilyId};
use crate::tally;
use io::Rng;
use lavastore::testing::SimEnv;
use lavastore::{DamagedFile, Db, Durability, Error, ErrorKind, Family, ReadOptions, Snapshot, inspect};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

/// Damages tested per store.
const DAMAGES: u64 = 3;
/// Changes after the open.
const CHANGES: u64 = 1_000;

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6461_6d61_6765);
    let Some(store) = outcome.made(|| ClosedStore::make(seed, &mut rng)) else { return outcome };
    let break_it = |sim: &SimEnv, rng: &mut Rng| store.damage(sim, rng);
    outcome.damaged((&store.sim, &mut rng), DAMAGES, break_it, |outcome, nth, sim, damage, rng| {
        let seen = guarded(|| store.live_on(sim, damage, rng)).and_then(|seen| seen);
        if let Ok(seen) = &seen {
            outcome.note(damage.what, 1);
            outcome.note("keys that could not be read", seen.lost as u64);
            outcome.note("scans held against blocks alone", u64::from(damage.blocks.is_some()));
            outcome.note("files set aside before verify", seen.told_early as u64);
            outcome.note("damages that a scrub had to find", seen.by_scrub);
        }
        outcome.take(seen.map(drop).map_err(|why| format!("damage {nth}, {}: {why}", damage.text)));
    });
    outcome
}

/// A closed store.
struct ClosedStore {
    sim: SimEnv,
    model: Model,
    data: Data,
    /// Files in the manifest, by path.
    listed: Vec<(String, u64)>,
}

struct FileDamage {
    what: &'static str,
    text: String,
    /// The changed files.
    names: BTreeSet<String>,
    /// If only data blocks of one table changed: the user key ranges of these blocks.
    blocks: Option<Vec<Keys>>,
}

/// First and last user key, both inclusive.
type Keys = (Vec<u8>, Vec<u8>);

#[derive(Default)]
struct DamageCounts {
    lost: usize,
    told_early: usize,
    by_scrub: u64,
}

impl ClosedStore {
    fn make(seed: u64, rng: &mut Rng) -> Check<ClosedStore> {
        let (knobs, data) = DriverParameters::to_damage(rng, 30..150, (options, churn_options));
        let mut driver = Driver::new(seed, knobs, data);
        driver.run()?;
        driver.flush()?;
        let mut live: BTreeSet<String> = driver.db().engine().live_files().files.into_iter().collect();
        driver.steps(rng.below(8))?;
        // Large values, which only the log references.
        live.extend(driver.db().engine().live_files().files);
        driver.close()?;
        let model = driver.model.clone();
        let (sim, data) = (driver.sim.fork(seed), driver.data.clone());
        driver.abandon();
        let mut listed = damage::files(&sim)?;
        listed.retain(|(path, len)| *len > 0 && live.contains(&name_of(path)));
        Ok(ClosedStore { sim, model, data, listed })
    }

    /// Damages a file; `None` if there is none, or if it is unchanged.
    fn damage(&self, sim: &SimEnv, rng: &mut Rng) -> Check<Option<FileDamage>> {
        if self.listed.is_empty() {
            return Ok(None);
        }
        let draw = |rng: &mut Rng| self.listed[rng.below(self.listed.len() as u64) as usize].clone();
        let ((path, len), (other, other_len)) = (draw(rng), draw(rng));
        let block = pick(rng, &[512, 4096]);
        let at = rng.below(len.div_ceil(block)) * block;
        let n = (len - at).min(block) as usize;
        let mut names = BTreeSet::from([name_of(&path)]);
        let (what, done) = match rng.below(10) {
            0..=2 => (
                "a bit flipped",
                damage::flip_bit(sim, &path, rng.below(len), rng.next_u64() as u32).map(drop),
            ),
            3 => ("a block of zeros", damage::overwrite(sim, &path, at, &vec![0; n])),
            4 => {
                let n = n.min(other_len as usize);
                ("a block of another file", damage::copy_block(sim, (&other, 0), (&path, at), n))
            }
            5 => ("cut short", damage::cut(sim, &path, if rng.one_in(3) { 0 } else { rng.below(len) })),
            6 if !machine::is_lavafs() => ("longer", damage::cut(sim, &path, len + rng.range(1, 5000))),
            7 if path != other => {
                names.insert(name_of(&other));
                ("two exchanged", damage::swap_files(sim, &path, &other))
            }
            8 if path != other => {
                // An old copy of the directory restores another file under the same name.
                let n = other_len.min(len);
                ("another file in its place", damage::copy_block(sim, (&other, 0), (&path, 0), n as usize))
            }
            _ => ("missing", damage::erase(sim, &path)),
        };
        done?;
        let text = format!("{what}: {path} ({len} B), {other} at {at}");
        let same = sim.state_hash() == self.sim.state_hash();
        let blocks = if machine::is_lavafs() || same { None } else { self.damaged_blocks(sim, &path) };
        Ok((!same).then_some(FileDamage { what, text, names, blocks }))
    }

    /// Computes [`FileDamage::blocks`].
    fn damaged_blocks(&self, sim: &SimEnv, path: &str) -> Option<Vec<Keys>> {
        let (before, after) = (self.sim.read_file(path).ok()?, sim.read_file(path).ok()?);
        if !path.ends_with(".ksst") || before.len() != after.len() {
            return None;
        }
        let mut listing = String::new();
        inspect::dump(&self.sim.env(), Path::new(path), false, &mut listing).ok()?;
        let blocks = data_blocks(&listing)?;
        let mut left: BTreeSet<usize> = (0..before.len()).filter(|&at| before[at] != after[at]).collect();
        let mut damaged = Vec::new();
        for (place, keys) in blocks {
            let own: Vec<usize> = left.range(place).copied().collect();
            if !own.is_empty() {
                damaged.push(keys);
                left.retain(|at| !own.contains(at));
            }
        }
        left.is_empty().then_some(damaged)
    }

    /// Runs the checks of the module comment.
    fn live_on(&self, sim: &SimEnv, damage: &FileDamage, rng: &mut Rng) -> Check<DamageCounts> {
        let drawn = options(rng);
        let is_scrubbed = drawn.expert.scrub_bytes_per_s > 0;
        let db = Db::open_in(&machine::env(sim)?, DIR, &drawn).doing(|| "open".into())?;
        let mut seen = DamageCounts { told_early: db.damaged_files().len(), ..DamageCounts::default() };
        if is_scrubbed && rng.one_in(2) {
            found_by_scrub(&db, damage)?;
            seen.by_scrub = 1;
        }
        if rng.one_in(2) {
            // Readers come first, before the damage is detected.
            let early = Witness { model: &self.model, damage, told: None, touched: &BTreeMap::new() };
            early.check_gets(&db, None)?;
        }
        let told = told_by_verify(&db, damage)?;
        let untouched = BTreeMap::new();
        let witness = Witness { model: &self.model, damage, told: Some(&told), touched: &untouched };
        seen.lost = witness.check_gets(&db, None)?;
        witness.check_scan(&db, None)?;
        let (snapshot, before) = (db.snapshot(), self.model.clone());
        let (model, touched) = self.change(&db, rng)?;
        let told = told_by_verify(&db, damage)?;
        let after = Witness { model: &model, damage, told: Some(&told), touched: &touched };
        after.check_gets(&db, None)?;
        after.check_scan(&db, None)?;
        let old = Witness { model: &before, damage, told: Some(&told), touched: &untouched };
        old.check_gets(&db, Some(&snapshot))?;
        drop(snapshot);
        tally::add(&db);
        db.close().doing(|| "close".into())?;
        let db = Db::open_in(&machine::env(sim)?, DIR, &options(rng)).doing(|| "second open".into())?;
        let told = told_by_verify(&db, damage)?;
        let again = Witness { model: &model, damage, told: Some(&told), touched: &touched };
        again
            .check_gets(&db, None)
            .and_then(|_| again.check_scan(&db, None))
            .map_err(|why| format!("after the second open: {why}"))?;
        tally::add(&db);
        db.close().doing(|| "second close".into())?;
        Ok(seen)
    }

    /// Makes changes of all kinds with flushes and compactions. Returns the new model and the
    /// changed keys.
    fn change(&self, db: &Db, rng: &mut Rng) -> Check<(Model, Touched)> {
        let (mut model, mut touched) = (self.model.clone(), Touched::new());
        let families = families_of(db)?;
        for nth in 0..CHANGES {
            let family = &families[rng.below(families.len() as u64) as usize];
            let change = match self.data.change(rng) {
                Change::Put(key, value) if value.len() > 1000 => Change::Put(key, value[..1000].to_vec()),
                // A range over everything would leave nothing to check.
                Change::DeleteRange(start, _) if !rng.one_in(20) => Change::Delete(start),
                change => change,
            };
            if matches!(&change, Change::Delete(key) if key.is_empty()) {
                continue;
            }
            write_one(family, &change, Durability::Buffered).doing(|| format!("change {nth}"))?;
            let own = touched.entry(family.id()).or_default();
            match &change {
                Change::Put(key, _)
                | Change::Merge(key, _)
                | Change::Delete(key)
                | Change::SingleDelete(key) => own.extend([key.clone()]),
                Change::DeleteRange(start, end) => {
                    let entries = model[&family.id()].entries();
                    own.extend(entries.range(start.clone()..end.clone()).map(|(key, _)| key.clone()));
                }
            }
            model.entry(family.id()).or_default().apply(&change);
            if rng.one_in(60) {
                db.flush().doing(|| format!("flush after {nth}"))?;
            }
            if rng.one_in(250) {
                family.compact_range(..).doing(|| format!("compaction after {nth}"))?;
            }
            if rng.one_in(4) {
                db.engine().run_background_step();
            }
        }
        ensure!(
            db.wait_idle(std::time::Duration::from_secs(60)),
            "it does not come to rest: {}",
            db.describe()
        );
        Ok((model, touched))
    }
}

/// Keys changed after the damage, by family.
type Touched = BTreeMap<FamilyId, BTreeSet<Vec<u8>>>;

/// Expected state of a store.
struct Witness<'a> {
    model: &'a Model,
    damage: &'a FileDamage,
    /// Result of `verify`; `None` before it ran.
    told: Option<&'a [DamagedFile]>,
    touched: &'a Touched,
}

impl Witness<'_> {
    /// Reads every present or former key. Returns the number of unreadable ones.
    fn check_gets(&self, db: &Db, snapshot: Option<&Snapshot>) -> Check<usize> {
        let mut lost = 0;
        let options = ReadOptions::default();
        for family in families_of(db)? {
            let (none, nothing) = (Contents::default(), BTreeSet::new());
            let expected = self.model.get(&family.id()).unwrap_or(&none).entries();
            let touched = self.touched.get(&family.id()).unwrap_or(&nothing);
            let keys: BTreeSet<&Vec<u8>> = expected.keys().chain(touched).collect();
            for key in keys {
                match at(&family, snapshot, &options).get(key) {
                    Ok(found) => ensure!(
                        found.as_deref() == expected.get(key).map(Vec::as_slice),
                        "get {} gave {} instead of {}",
                        show(key),
                        found.as_deref().map_or("nothing".into(), show),
                        expected.get(key).map_or("nothing".into(), |value| show(value))
                    ),
                    Err(e) => {
                        ensure!(!touched.contains(key), "get {}, written since: {e}", show(key));
                        self.excuse(&family, key, &e).map_err(|why| format!("get {}: {why}", show(key)))?;
                        lost += 1;
                    }
                }
            }
        }
        Ok(lost)
    }

    /// Checks that an error is typed and names a damaged file, and that the key is in that file's
    /// range.
    fn excuse(&self, family: &Family, key: &[u8], error: &Error) -> Check {
        let kinds = [ErrorKind::Corruption, ErrorKind::Unsupported];
        ensure!(kinds.contains(&error.kind()), "another kind: {error}");
        let named = error.file().map(|file| name_of(&file.to_string_lossy())).unwrap_or_default();
        ensure!(self.damage.names.contains(&named), "it names no file that was damaged: {error}");
        let Some(told) = self.told else { return Ok(()) };
        let in_range = |f: &DamagedFile| {
            f.family == family.name() && f.first_key.as_slice() <= key && key <= f.last_key.as_slice()
        };
        ensure!(told.iter().any(in_range), "outside of what is damaged: {error}");
        Ok(())
    }

    /// Scans all families, skipping unreadable data: all keys outside of damaged blocks or tables
    /// appear with their values, and no others.
    fn check_scan(&self, db: &Db, snapshot: Option<&Snapshot>) -> Check {
        let told = self.told.unwrap_or_default();
        for family in families_of(db)? {
            let none = Contents::default();
            let expected = self.model.get(&family.id()).unwrap_or(&none).entries();
            let found = self.scan(&family, snapshot)?;
            for (key, value) in &found {
                let wanted = expected.get(key);
                ensure!(wanted.is_some(), "a scan gave {}, which is not there", show(key));
                ensure!(
                    value.is_none() || value.as_ref() == wanted,
                    "a scan gave another value for {}",
                    show(key)
                );
            }
            let damaged = |key: &Vec<u8>| {
                let in_blocks = |blocks: &Vec<Keys>| blocks.iter().any(|(from, to)| from <= key && key <= to);
                let within = |f: &DamagedFile| f.first_key <= *key && *key <= f.last_key;
                let excused = self.damage.blocks.as_ref().is_none_or(in_blocks);
                excused && told.iter().any(|f| f.is_table && f.family == family.name() && within(f))
            };
            // Operands on a damaged value cannot be folded, so a scan skips their key.
            let fails = |key: &Vec<u8>| {
                let got = at(&family, snapshot, &ReadOptions::default()).get(key);
                got.is_err_and(|e| self.excuse(&family, key, &e).is_ok())
            };
            let excused = |key: &Vec<u8>| damaged(key) || fails(key);
            let missed = expected.keys().find(|key| !found.contains_key(*key) && !excused(key));
            ensure!(missed.is_none(), "a scan left out {}", show(missed.map_or(&[], |key| key)));
        }
        Ok(())
    }

    /// Returns the scanned keys of a family; an unreadable value is `None`.
    fn scan(
        &self,
        family: &Family,
        snapshot: Option<&Snapshot>,
    ) -> Check<BTreeMap<Vec<u8>, Option<Vec<u8>>>> {
        let options = ReadOptions::default();
        let mut iterator = at(family, snapshot, &options).iter().cursor().doing(|| "iter".into())?;
        let mut found = BTreeMap::new();
        let mut moved = iterator.seek_to_first();
        loop {
            while let Err(e) = moved {
                self.excuse_scan(&e)?;
                moved = iterator.skip_damaged();
            }
            if !iterator.valid() {
                return Ok(found);
            }
            let value = match iterator.value() {
                Ok(value) => Some(value.to_vec()),
                Err(e) => self.excuse(family, iterator.key(), &e).map(|()| None)?,
            };
            let again = found.insert(iterator.key().to_vec(), value);
            ensure!(again.is_none(), "a scan gave {} twice", show(iterator.key()));
            moved = iterator.next();
        }
    }

    fn excuse_scan(&self, error: &Error) -> Check {
        let named = error.file().map(|file| name_of(&file.to_string_lossy())).unwrap_or_default();
        ensure!(self.damage.names.contains(&named), "a scan failed by no file that was damaged: {error}");
        Ok(())
    }
}

/// Parses the listing of a table into data blocks: their file ranges and the separators around
/// them. `None` on failure.
fn data_blocks(listing: &str) -> Option<Vec<(Range<usize>, Keys)>> {
    // Each stream of a table has its own separators.
    let mut last: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    let mut blocks = Vec::new();
    for line in listing.lines() {
        let Some((place, rest)) = line.strip_prefix("block ").and_then(|rest| rest.split_once(" up to \""))
        else {
            continue;
        };
        let (separator, _) = rest.rsplit_once("\" seq ")?;
        if separator.contains('\\') {
            return None;
        }
        let (offset, rest) = place.split_once('+')?;
        let (len, stream) = rest.split_once(' ')?;
        let offset: usize = offset.trim().parse().ok()?;
        let to = separator.as_bytes().to_vec();
        let from = last.insert(stream.trim(), to.clone()).unwrap_or_default();
        blocks.push((offset..offset + len.parse::<usize>().ok()?, (from, to)));
    }
    Some(blocks)
}

/// Checks that a scrub pass finds all damaged files that are still live.
fn found_by_scrub(db: &Db, damage: &FileDamage) -> Check {
    for _ in 0..100_000 {
        if db.stats().scrub_passes > 0 {
            let told = db.damaged_files();
            let live = db.engine().live_files().files;
            let found = |name: &String| told.iter().any(|f| f.file == *name);
            let missed = damage.names.iter().find(|name| live.contains(name) && !found(name));
            ensure!(missed.is_none(), "a pass of the scrub did not find {missed:?}");
            return Ok(());
        }
        db.engine().run_background_step();
    }
    Err("the scrub does not come to the end of a pass".into())
}

/// Checks that `verify` finds exactly the damaged files that are still live.
fn told_by_verify(db: &Db, damage: &FileDamage) -> Check<Vec<DamagedFile>> {
    let report = db.verify().doing(|| "verify".into())?;
    for error in &report.errors {
        let named = error.file().map(|file| name_of(&file.to_string_lossy())).unwrap_or_default();
        ensure!(damage.names.contains(&named), "verify blames what was not damaged: {error}");
    }
    let told = db.damaged_files();
    let names: BTreeSet<&str> = told.iter().map(|f| f.file.as_str()).collect();
    ensure!(names.iter().all(|name| damage.names.contains(*name)), "set aside: {names:?}");
    let live = db.engine().live_files().files;
    for name in damage.names.iter().filter(|name| live.contains(name)) {
        ensure!(names.contains(name.as_str()), "verify did not name {name}: {:?}", report.errors);
    }
    Ok(told)
}

fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Draws options without a space limit, since the data of a damaged file cannot be freed or
/// counted.
fn options(rng: &mut Rng) -> lavastore::Options {
    let options = lavastore::Options { space_limit: None, ..plan::options(rng) };
    plan::scrubbed(rng, options)
}

fn churn_options(rng: &mut Rng) -> lavastore::Options {
    lavastore::Options { space_limit: None, ..plan::churn_options(rng) }
}
