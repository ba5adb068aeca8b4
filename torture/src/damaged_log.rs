//! Row `damaged-log`: pages of the log, the manifest or `CURRENT` of a closed store are damaged.
//!
//! An open for writing must fail with a typed error that names the file, or find all data if the
//! damage hit no live bytes. An open for reading must show a prefix of all changes for each family.
//! If it ends at the log page from which a repair reports lost changes, that prefix has every
//! change before those. If an older state of the manifest is shown, files that it lists may be
//! gone: their keys fail with a typed error, and readable data existed once. No byte of the damaged
//! store may change. Then it is repaired, and the rest must be there (see the row `repair`).

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure, show};
use crate::machine::DIR;
use crate::machine::{self, damage};
use crate::plan::{self, pick};
use crate::repair::{Damaged, RepairStore, bytes_of};
use crate::state::{Change, Contents, Entries, FamilyId};
use io::Rng;
use lavastore::testing::SimEnv;
use lavastore::{Db, Error, ErrorKind, Family, Options, RepairOptions};

/// Damages per store.
const DAMAGES: u64 = 6;

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6461_6d6c_6f67);
    let Some(store) = outcome.made(|| RepairStore::make(seed, true, &mut rng)) else { return outcome };
    let break_it = |sim: &SimEnv, rng: &mut Rng| damage_it(sim, rng);
    outcome.damaged((&store.sim, &mut rng), DAMAGES, break_it, |outcome, nth, sim, damaged, rng| {
        let looked = guarded(|| look(&store, sim, damaged, rng)).and_then(|seen| seen);
        if let Ok(seen) = &looked {
            outcome.note(seen, 1);
        }
        let failed = |why| format!("damage {nth}, {}: {why}", damaged.text);
        let repaired = looked.and_then(|_| guarded(|| store.repair(sim, damaged, rng)).and_then(|r| r));
        outcome.take(repaired.map(drop).map_err(failed));
    });
    outcome
}

/// Damages one or two pages of a log group, the manifest, or `CURRENT`.
fn damage_it(sim: &SimEnv, rng: &mut Rng) -> Check<Option<Damaged>> {
    let kind = pick(rng, &[".log", ".log", ".log", "/MANIFEST", "/MANIFEST", "/CURRENT"]);
    let files = damage::files(sim)?;
    let own: Vec<_> = files.into_iter().filter(|(path, len)| path.contains(kind) && *len > 0).collect();
    if own.is_empty() {
        return Ok(None);
    }
    let (path, len) = own[rng.below(own.len() as u64) as usize].clone();
    let what = match rng.below(8) {
        0..=3 => {
            let block = pick(rng, &[1, 512, 4096]);
            // The used pages are the first ones of a group.
            let reach = if rng.one_in(2) { len } else { len.min(8 * 4096) };
            let at = rng.below(reach.div_ceil(block)) * block;
            let n = (len - at).min(block);
            damage::overwrite(sim, &path, at, &vec![0x5a; n as usize])?;
            format!("{n} B over {path} at {at} of {len}")
        }
        4 | 5 => {
            let at = rng.below(len.min(8 * 4096));
            if !damage::flip_bit(sim, &path, at, rng.next_u64() as u32)? {
                return Ok(None);
            }
            format!("bit flipped at {at} of {path} ({len} B)")
        }
        6 => {
            let cut = rng.below(len);
            damage::cut(sim, &path, cut)?;
            format!("{path} cut from {len} to {cut} B")
        }
        _ => {
            damage::erase(sim, &path)?;
            format!("{path} erased")
        }
    };
    Ok(Some(Damaged { text: what, harmless: kind != ".log" }))
}

/// Returns true for a typed damage error with a file.
fn is_typed(error: &Error) -> bool {
    // An older state of the manifest may lack the merge operator of a family.
    error.kind() == ErrorKind::Unsupported || error.kind() == ErrorKind::Corruption && error.file().is_some()
}

fn look(store: &RepairStore, sim: &SimEnv, damaged: &Damaged, rng: &mut Rng) -> Check<&'static str> {
    let options = Options { create_if_missing: false, ..plan::roomy(plan::options(rng)) };
    let before = bytes_of(sim)?;
    let copy = sim.fork(rng.next_u64());
    let is_sound = match Db::open_in(&machine::env(&copy)?, DIR, &options) {
        Ok(db) => {
            everything_is_there(store, &db).map_err(|why| format!("opened for writing: {why}"))?;
            db.close().doing(|| "close".into())?;
            true
        }
        Err(e) => {
            ensure!(is_typed(&e), "the open for writing fails otherwise: {e}");
            false
        }
    };
    let seen = match Db::open_read_only_in(&machine::env(sim)?, DIR, &options) {
        Ok(db) if is_sound => {
            ensure!(
                db.damage().is_empty(),
                "damage is told of a store that can be written: {:?}",
                db.damage()
            );
            everything_is_there(store, &db).map_err(|why| format!("opened for reading: {why}"))?;
            "nothing that counts was struck"
        }
        Ok(db) => {
            ensure!(!db.damage().is_empty(), "the open for writing fails, and reading tells nothing");
            ensure!(db.damage().iter().all(is_typed), "not typed: {:?}", db.damage());
            let low = if damaged.harmless { 0 } else { before_the_damage(sim, &db.damage())? };
            shows_a_prefix(store, &db, low)?
        }
        Err(e) => {
            ensure!(is_typed(&e) && !is_sound, "reading fails: {e}");
            // No state can be shown only if the manifest has no snapshot or an unknown format.
            let newer = e.kind() == ErrorKind::Unsupported;
            ensure!(damaged.harmless || newer, "reading fails: {e}");
            "nothing is before the damage"
        }
    };
    ensure!(bytes_of(sim)? == before, "the damaged store was changed");
    Ok(seen)
}

/// Returns the number of changes before the first one that a repair reports as lost, if reading
/// ends there. Reading may end earlier, at a lost page whose data is also in tables: a repair
/// ignores it and continues.
fn before_the_damage(sim: &SimEnv, read: &[Error]) -> Check<u64> {
    let env = machine::env(sim)?;
    let dry = RepairOptions { dry_run: true, ..RepairOptions::default() };
    let report = Db::repair_in(&env, DIR, &env, "/nowhere", &dry).doing(|| "dry run".into())?;
    let lost =
        report.keys.lost.iter().filter_map(|lost| Some((lost.sequences?.0 - 1, &lost.file, lost.offset)));
    let Some((before, file, offset)) = lost.min() else { return Ok(0) };
    let is_there =
        |error: &Error| error.offset() >= offset && error.file().is_some_and(|path| path.ends_with(file));
    Ok(if read.iter().all(is_there) { before } else { 0 })
}

fn families(db: &Db) -> Vec<Family> {
    db.family_names().iter().filter_map(|name| db.open_family(name).ok()).collect()
}

fn everything_is_there(store: &RepairStore, db: &Db) -> Check {
    for (id, contents) in &store.driver.model {
        let own = families(db).into_iter().find(|family| family.id() == *id);
        let own = own.ok_or_else(|| format!("family {id} is not there"))?;
        let (found, failed) = entries(&own)?;
        ensure!(!failed && found == *contents.entries(), "family {id} is not what it was");
    }
    Ok(())
}

/// Returns the readable entries of a family, and whether any entry is unreadable.
fn entries(family: &Family) -> Check<(Entries, bool)> {
    let (mut found, mut failed) = (Entries::new(), false);
    let mut iterator = family.iter().cursor().doing(|| "iter".into())?;
    let mut moved = iterator.seek_to_first();
    loop {
        while let Err(e) = moved {
            ensure!(is_typed(&e), "a scan fails otherwise: {e}");
            failed = true;
            moved = iterator.skip_damaged();
        }
        if !iterator.valid() {
            return Ok((found, failed));
        }
        match iterator.value() {
            Ok(value) => drop(found.insert(iterator.key().to_vec(), value.to_vec())),
            Err(e) => {
                ensure!(is_typed(&e), "a value fails otherwise: {e}");
                failed = true;
            }
        }
        moved = iterator.next();
    }
}

/// Checks that each family equals its state after some number of changes, at least `low`.
fn shows_a_prefix(store: &RepairStore, db: &Db, low: u64) -> Check<&'static str> {
    let (mut all, mut part) = (true, false);
    for family in families(db) {
        let (found, failed) = entries(&family)?;
        part |= failed;
        if failed {
            for (key, value) in &found {
                let mut last = None;
                let was_there = changes(store, family.id()).any(|(_, change)| {
                    if change.touches(key) {
                        last = change.value_after(last.as_ref());
                    }
                    last.as_ref() == Some(value)
                });
                ensure!(was_there, "{} has a value that it never had", show(key));
            }
            continue;
        }
        let found = Contents::from_entries(found);
        let (mut state, mut best) = (Contents::default(), None);
        if found.fingerprint() == state.fingerprint() {
            best = Some(0);
        }
        let mut last = 0;
        for (seq, change) in changes(store, family.id()) {
            // The state is constant until the next change of the family.
            if best == Some(last) {
                best = Some(seq - 1);
            }
            state.apply(change);
            last = seq;
            if found.fingerprint() == state.fingerprint() {
                best = Some(seq);
            }
        }
        if best == Some(last) {
            best = Some(u64::MAX);
        }
        let best = best.ok_or_else(|| format!("family {} is in no state that it ever had", family.name()))?;
        ensure!(
            best >= low,
            "family {} ends at change {best}, and {low} are before the damage",
            family.name()
        );
        all &= best == u64::MAX;
    }
    Ok(match (part, all) {
        (true, _) => "a prefix, of which files are gone",
        (false, true) => "everything, though damaged",
        (false, false) => "a prefix",
    })
}

/// Returns the changes of a family with their sequence numbers.
fn changes(store: &RepairStore, id: FamilyId) -> impl Iterator<Item = (u64, &Change)> {
    let own = store.driver.history.sequenced().filter(move |(_, (family, _))| *family == id);
    own.map(|(seq, (_, change))| (seq, change))
}
