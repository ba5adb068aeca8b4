//! Row `repair`: a store is damaged, and repaired into a new one.
//!
//! The report is compared with the new store. A key whose newest value is missing must lie in a
//! range reported as lost. A key with an older value, or a deleted key that is back, must lie in a
//! range that may have come back. All other keys must be unchanged. If the log lost changes, the
//! report names their sequence numbers, and only keys whose newest change is among them, or older,
//! may differ. No byte of the damaged store may change. The new store is verified, written to and
//! opened again.
//!
//! Stores are closed, or killed with readers that hold old tables. In a killed store, the end of
//! log and manifest cannot be distinguished from a torn one, so these files are removed rather than
//! damaged. Tables replaced by a compaction may remain there, and data that comes back from them
//! must be reported. A closed store has none, so no data may come back if only its manifest is
//! lost.

pub(crate) mod bounds;
mod tables;

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure, show};
use crate::crash::check_verify;
use crate::driver::{Driver, DriverParameters};
use crate::machine::DIR;
use crate::machine::{self, damage};
use crate::plan::{self, Data, pick};
use crate::state::{Change, Entries, FamilyId, OPERATOR_DELIMITER};
use io::{Access, Rng};
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{Db, Family, FamilyOptions, KeyRepairReport, LostRange, MergeChoice, Options, RepairOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Repairs per store.
const DAMAGES: u64 = 8;
/// Directory of the new store.
const INTO: &str = "/repaired";

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x7265_7061_6972);
    let closed = !rng.one_in(3);
    let Some(store) = outcome.made(|| RepairStore::make(seed, closed, &mut rng)) else { return outcome };
    let break_it = |sim: &SimEnv, rng: &mut Rng| store.damage(sim, rng);
    outcome.damaged((&store.sim, &mut rng), DAMAGES, break_it, |outcome, nth, sim, damaged, rng| {
        let seen = guarded(|| store.repair(sim, damaged, rng)).and_then(|r| r);
        if let Ok(seen) = &seen {
            outcome.note(seen, 1);
        }
        let state = if closed { "closed" } else { "killed" };
        let failed = |why| format!("{state}, damage {nth}, {}: {why}", damaged.text);
        outcome.take(seen.map(drop).map_err(failed));
    });
    bounds::check(seed, false, &mut outcome);
    tables::check(seed, &mut outcome);
    outcome
}

pub(crate) struct RepairStore {
    pub driver: Driver,
    pub sim: SimEnv,
    closed: bool,
}

/// A damage of the store.
#[derive(Default)]
pub(crate) struct Damaged {
    pub text: String,
    /// The damage loses no data: every record must be back, and nothing else.
    pub harmless: bool,
}

impl RepairStore {
    pub fn make(seed: u64, closed: bool, rng: &mut Rng) -> Check<RepairStore> {
        let churn = rng.one_in(2);
        let knobs = DriverParameters {
            steps: rng.range(10, 70),
            reads: !closed,
            kills: rng.one_in(3),
            volatile: false,
            families: rng.one_in(2),
            checkpoints: false,
            reopen: true,
            faults: false,
            first_number: 1,
            upkeep_one_in: pick(rng, &[4, 8, 20]),
            options: if churn { plan::churn_options } else { plan::options },
        };
        let data = if churn { Data::churn(rng) } else { Data::small(rng) };
        let mut driver = Driver::new(seed, knobs, data);
        driver.run()?;
        let sim = if closed {
            driver.close()?;
            driver.sim.fork(seed)
        } else {
            driver.sim.crash(CrashKind::ProcessKill, seed)
        };
        driver.abandon();
        Ok(RepairStore { driver, sim, closed })
    }

    /// Damages the store in one or two places. `None` if the drawn file cannot be damaged so.
    fn damage(&self, sim: &SimEnv, rng: &mut Rng) -> Check<Option<Damaged>> {
        let files = damage::files(sim)?;
        let files: Vec<(String, u64)> =
            files.into_iter().filter(|(path, _)| path.starts_with(&format!("{DIR}/"))).collect();
        let like =
            |part: &str| files.iter().find(|(path, _)| path.contains(part)).map(|(path, _)| path.clone());
        let (text, harmless) = match rng.below(16) {
            0 => ("nothing".to_owned(), true),
            1 | 2 => {
                let Some(path) = like("/CURRENT") else { return Ok(None) };
                damage::erase(sim, &path)?;
                ("CURRENT erased".to_owned(), true)
            }
            3..=6 => {
                let Some(path) = like("/MANIFEST") else { return Ok(None) };
                let text = self.damage_manifest(sim, &path, rng)?;
                if rng.one_in(4)
                    && let Some(more) = self.damage_data(sim, &files, true, rng)?
                {
                    return Ok(Some(Damaged { text: format!("{text}, {more}"), harmless: false }));
                }
                (text, true)
            }
            7..=9 => {
                let Some((path, _)) = self.draw(&files, false, rng) else { return Ok(None) };
                damage::erase(sim, &path)?;
                (format!("{path} erased"), false)
            }
            _ => {
                let Some(text) = self.damage_data(sim, &files, false, rng)? else { return Ok(None) };
                match rng.one_in(4) {
                    // The second damage may be impossible after the first.
                    true => {
                        let more = self.damage_data(sim, &files, false, rng).ok().flatten();
                        (format!("{text}, {}", more.unwrap_or_default()), false)
                    }
                    false => (text, false),
                }
            }
        };
        Ok(Some(Damaged { text, harmless }))
    }

    /// Removes the manifest, or damages it where a later confirmation covers its contents.
    fn damage_manifest(&self, sim: &SimEnv, path: &str, rng: &mut Rng) -> Check<String> {
        let files = damage::files(sim)?;
        let len = files.iter().find(|(other, _)| other == path).map_or(0, |(_, len)| *len);
        match rng.below(4) {
            0 | 1 if self.closed && len > 0 => {
                let at = rng.below(len);
                let n = len.saturating_sub(at).min(pick(rng, &[1, 512, 4096]));
                damage::overwrite(sim, path, at, &vec![0x5a; n as usize])?;
                Ok(format!("{n} B over {path} at {at} of {len}"))
            }
            2 if self.closed && len > 0 => {
                let cut = rng.below(len);
                damage::cut(sim, path, cut)?;
                Ok(format!("{path} cut from {len} to {cut} B"))
            }
            _ => {
                damage::erase(sim, path)?;
                Ok(format!("{path} erased"))
            }
        }
    }

    /// Draws a data file.
    fn draw(&self, files: &[(String, u64)], tables_only: bool, rng: &mut Rng) -> Option<(String, u64)> {
        let kinds: &[&str] = match (tables_only, self.closed) {
            (true, _) | (false, false) => &[".ksst", ".vsst"],
            (false, true) => &[".ksst", ".ksst", ".vsst", ".vsst", ".log", "/STAGING", "/LOCK", ".tail"],
        };
        let kind = pick(rng, kinds);
        let of_kind: Vec<_> = files.iter().filter(|(path, len)| path.contains(kind) && *len > 0).collect();
        let nth = rng.below(of_kind.len().max(1) as u64) as usize;
        of_kind.get(nth).map(|file| (*file).clone())
    }

    /// Damages a block or the length of a data file, or exchanges it for another.
    fn damage_data(
        &self,
        sim: &SimEnv,
        files: &[(String, u64)],
        tables_only: bool,
        rng: &mut Rng,
    ) -> Check<Option<String>> {
        let Some((path, len)) = self.draw(files, tables_only, rng) else { return Ok(None) };
        Ok(match rng.below(8) {
            0..=3 => {
                let block = pick(rng, &[512, 4096]);
                let blocks = len.div_ceil(block);
                // Indexes and footers are at the end.
                let nth = match rng.below(3) {
                    0 => blocks - 1,
                    _ => rng.below(blocks),
                };
                let n = (len - nth * block).min(block);
                damage::overwrite(sim, &path, nth * block, &vec![0; n as usize])?;
                Some(format!("{n} zeros over {path} at {} of {len}", nth * block))
            }
            4 => {
                let at = rng.below(len);
                let flipped = damage::flip_bit(sim, &path, at, rng.next_u64() as u32)?;
                flipped.then(|| format!("bit flipped at {at} of {path} ({len} B)"))
            }
            5 => {
                let cut = if rng.one_in(3) { 0 } else { rng.below(len) };
                damage::cut(sim, &path, cut)?;
                Some(format!("{path} cut from {len} to {cut} B"))
            }
            6 if !machine::is_lavafs() && !path.ends_with(".log") => {
                let more = pick(rng, &[1, 64, 5000]);
                sim.set_file_len(&path, len + more).doing(|| "extend".into())?;
                Some(format!("{path} extended by {more} B"))
            }
            _ => {
                let Some((other, _)) = self.draw(files, true, rng) else { return Ok(None) };
                let ending = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
                if other == path || ending(&other) != ending(&path) {
                    return Ok(None);
                }
                damage::swap_files(sim, &path, &other)?;
                Some(format!("{path} and {other} exchanged"))
            }
        })
    }

    /// Repairs, and compares the report with the new store. Returns the kind of result.
    pub fn repair(&self, sim: &SimEnv, damaged: &Damaged, rng: &mut Rng) -> Check<&'static str> {
        let before = bytes_of(sim)?;
        let options = plan::roomy(plan::options(rng));
        let options = Options { space_limit: None, ..options };
        let repair = |dry_run| -> Check<KeyRepairReport> {
            let env = machine::env(sim)?;
            let options = RepairOptions { options: options.clone(), dry_run, ..RepairOptions::default() };
            let done = Db::repair_in(&env, DIR, &env, INTO, &options);
            let report = done.doing(|| format!("repair with {}", plan::describe(&options.options)))?;
            ensure!(bytes_of(sim)? == before, "the damaged store was changed");
            ensure!(report.logs.is_none(), "logs where there are none: {:?}", report.logs);
            Ok(report.keys)
        };
        let dry = if rng.one_in(4) { Some(repair(true)?) } else { None };
        if dry.is_some() {
            let env = machine::env(sim)?;
            ensure!(!env.fs.exists(Path::new(INTO)).doing(|| "look".into())?, "a dry run wrote something");
        }
        if std::env::var_os(crate::crash::TRACE).is_some() {
            self.describe(sim)?;
        }
        let report = repair(false)?;
        if let Some(dry) = dry {
            let same = dry.lost == report.lost && dry.damaged == report.damaged;
            ensure!(same, "a dry run reports {:?}, the repair {:?}", dry.lost, report.lost);
        }
        let db =
            Db::open_in(&machine::env(sim)?, INTO, &options).doing(|| "open what was repaired".into())?;
        set_lost_operators(&db)?;
        let found = contents_of(&db, &report)?;
        self.judge(&found, &report, damaged).map_err(|why| format!("{why}; lost: {}", list(&report.lost)))?;
        check_verify(&db)?;
        self.goes_on(sim, db, &options, &found, &report)?;
        Ok(match (report.lost.is_empty(), report.from_manifest) {
            (true, true) => "all back",
            (true, false) => "all back, without a manifest",
            (false, true) => "some lost",
            (false, false) => "some lost, without a manifest",
        })
    }

    /// Prints the dumps of the damaged store's tables.
    fn describe(&self, sim: &SimEnv) -> Check {
        let env = machine::env(sim)?;
        for entry in env.fs.list(Path::new(DIR)).doing(|| "list".into())? {
            let mut text = String::new();
            let _ = lavastore::inspect::dump(&env, &Path::new(DIR).join(&entry.name), true, &mut text);
            println!("== {} {} B\n{}", entry.name, entry.len, text);
        }
        Ok(())
    }

    /// Checks that the new store takes writes and is the same after a reopen.
    fn goes_on(
        &self,
        sim: &SimEnv,
        db: Db,
        options: &Options,
        found: &BTreeMap<FamilyId, Entries>,
        report: &KeyRepairReport,
    ) -> Check {
        db.put(b"written after the repair", b"v").doing(|| "put".into())?;
        db.flush().doing(|| "flush".into())?;
        db.close().doing(|| "close".into())?;
        let db = Db::open_in(&machine::env(sim)?, INTO, options).doing(|| "open again".into())?;
        let mut again = contents_of(&db, report)?;
        let added = again.get_mut(&0).and_then(|entries| entries.remove(&b"written after the repair"[..]));
        ensure!(added.is_some() && again == *found, "it is another store when it is opened again");
        Ok(())
    }

    fn judge(
        &self,
        found: &BTreeMap<FamilyId, Entries>,
        report: &KeyRepairReport,
        damaged: &Damaged,
    ) -> Check {
        let model = &self.driver.model;
        let nothing = Entries::new();
        let ids: BTreeSet<FamilyId> = model.keys().chain(found.keys()).copied().collect();
        for id in ids {
            let expected = model.get(&id).map_or(&nothing, |contents| contents.entries());
            let own = found.get(&id).unwrap_or(&nothing);
            let family = report.families.iter().find(|family| family.id == id);
            if !model.contains_key(&id) {
                let is_told = family.is_some_and(|family| family.may_have_been_dropped);
                ensure!(is_told, "family {id} had been dropped and came back");
                continue;
            }
            // A family unknown to the manifest, the tables and the log: the loss may belong to any
            // family.
            let is_known =
                family.is_some() || expected.is_empty() || report.lost.iter().any(is_of_any_family);
            ensure!(is_known, "family {id} is not in the report");
            let keys: BTreeSet<&Vec<u8>> = expected.keys().chain(own.keys()).collect();
            for key in keys {
                let (want, got) = (expected.get(key), own.get(key));
                if want == got {
                    continue;
                }
                let text = |v: Option<&Vec<u8>>| v.map_or("nothing".to_owned(), |v| show(v));
                let what =
                    || format!("family {id}, key {}: {} instead of {}", show(key), text(got), text(want));
                ensure!(!damaged.harmless || !self.closed, "{}, and nothing was damaged", what());
                if std::env::var_os(crate::crash::TRACE).is_some() {
                    let changes: Vec<String> =
                        self.changes_of(id, key).map(|(seq, c)| format!("{seq}: {}", c.describe())).collect();
                    println!("{}\n{changes:?}\n{report:#?}", what());
                }
                let versions = self.versions_of(id, key);
                ensure!(self.is_told(&report.lost, (id, key), &versions, got), "{}", what());
                if let Some(got) = got {
                    // Without some lost operands or their base, a value is one that never was.
                    let is_merged =
                        || self.changes_of(id, key).any(|(_, change)| matches!(change, Change::Merge(..)));
                    let was_there =
                        versions.iter().any(|(_, value)| value.as_ref() == Some(got)) || is_merged();
                    ensure!(was_there, "{}, which it never was", what());
                }
            }
        }
        Ok(())
    }

    /// Returns true if a reported loss explains the unexpected value of a key.
    fn is_told(
        &self,
        lost: &[LostRange],
        (id, key): (FamilyId, &[u8]),
        versions: &[KeyVersion],
        got: Option<&Vec<u8>>,
    ) -> bool {
        let is_right_kind = |lost: &LostRange| match got {
            None => !lost.only_come_back,
            Some(_) => lost.may_come_back,
        };
        let covers =
            |lost: &LostRange| lost.sequences.is_none() && is_right_kind(lost) && lost.covers(id, key);
        let gaps: Vec<_> = lost.iter().filter_map(|lost| lost.sequences).collect();
        let is_lost = |seq: u64| gaps.iter().any(|(first, last)| (*first..=*last).contains(&seq));
        let is_rest = || {
            let mut rest = None;
            for (_, change) in self.changes_of(id, key).filter(|(seq, _)| !is_lost(*seq)) {
                rest = change.value_after(rest.as_ref());
            }
            versions.iter().any(|(seq, _)| is_lost(*seq)) && rest.as_ref() == got
        };
        lost.iter().any(covers) || is_explained(&gaps, versions, got) || is_rest()
    }

    /// Returns the changes of a key with their sequence numbers.
    fn changes_of<'a>(&'a self, id: FamilyId, key: &'a [u8]) -> impl Iterator<Item = (u64, &'a Change)> + 'a {
        let own = self
            .driver
            .history
            .sequenced()
            .filter(move |(_, (family, change))| *family == id && change.touches(key));
        own.map(|(seq, (_, change))| (seq, change))
    }

    /// Returns the versions of a key in sequence order.
    fn versions_of(&self, id: FamilyId, key: &[u8]) -> Vec<KeyVersion> {
        let mut last = None;
        let mut version = |change: &Change| {
            last = change.value_after(last.as_ref());
            last.clone()
        };
        self.changes_of(id, key).map(|(seq, change)| (seq, version(change))).collect()
    }
}

/// Sets the merge operator of families whose stored options are lost, as a user would.
fn set_lost_operators(db: &Db) -> Check {
    let operator = || Some(MergeChoice::append(OPERATOR_DELIMITER));
    for family in crate::driver::families_of(db)? {
        let options = family.options();
        if options.merge_operator.is_some() && options.merge_operator != operator() {
            let options = FamilyOptions { merge_operator: operator(), ..options };
            family.set_options(&options).doing(|| "set the merge operator".into())?;
        }
    }
    Ok(())
}

/// A change of a key: its sequence number, and the resulting value.
type KeyVersion = (u64, Option<Vec<u8>>);

/// Returns true if lost log changes explain the value of a key. Its newest changes must be lost.
/// Its value must come from the newest change that is not lost, or from a reported one, which may
/// still be there. All gaps count together, since a key may have lost a change in each of several.
fn is_explained(gaps: &[(u64, u64)], versions: &[KeyVersion], got: Option<&Vec<u8>>) -> bool {
    let is_lost = |seq: u64| gaps.iter().any(|(first, last)| (*first..=*last).contains(&seq));
    let lost = versions.iter().rev().take_while(|(seq, _)| is_lost(*seq)).count();
    let (kept, lost) = versions.split_at(versions.len() - lost);
    let left = kept.last().and_then(|(_, value)| value.as_ref());
    !lost.is_empty() && (left == got || lost.iter().any(|(_, value)| value.as_ref() == got))
}

/// Returns true for a lost table of unknown family.
fn is_of_any_family(lost: &LostRange) -> bool {
    let is_whole = lost.family.is_none() && lost.from.is_none() && lost.to.is_none();
    is_whole && lost.sequences.is_none() && !lost.only_come_back
}

fn list(lost: &[LostRange]) -> String {
    let shown: Vec<String> = lost.iter().take(20).map(ToString::to_string).collect();
    format!("[{}]", shown.join("; "))
}

/// Returns the bytes of every file of the damaged store.
pub(crate) fn bytes_of(sim: &SimEnv) -> Check<BTreeMap<String, Vec<u8>>> {
    let env = machine::env(sim)?;
    let mut all = BTreeMap::new();
    for entry in env.fs.list(Path::new(DIR)).doing(|| "list".into())? {
        let path = Path::new(DIR).join(&entry.name);
        let file = env.fs.open(&path, Access::Buffered).doing(|| "open".into())?;
        let mut bytes = vec![0; entry.len as usize];
        file.read_at(&mut bytes, 0).doing(|| format!("read {}", entry.name))?;
        all.insert(entry.name, bytes);
    }
    Ok(all)
}

/// Returns the contents of a repaired store under the original family ids.
fn contents_of(db: &Db, report: &KeyRepairReport) -> Check<BTreeMap<FamilyId, Entries>> {
    let mut all = BTreeMap::new();
    for family in &report.families {
        let own: Family =
            db.open_family(&family.name).doing(|| format!("family {} is in the report", family.id))?;
        let mut entries = Entries::new();
        for entry in own.iter() {
            let (key, value) = entry.doing(|| "iterate".into())?;
            entries.insert(key, value);
        }
        all.insert(family.id, entries);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
