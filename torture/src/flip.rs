//! Row `flip`: an idle store is damaged and opened.
//!
//! Every answer must be correct, or a typed error that names a file. Damage is a flipped bit, a
//! misdirected block write, a stale block, exchanged contents of files, a truncated or missing
//! file, or a block of zeros.
//!
//! Most stores are closed before. In a killed store, the log above its persisted watermark cannot
//! be distinguished from a torn tail: a prefix of the writes is then correct as well, and such cuts
//! are counted separately.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, ensure, show};
use crate::driver::{Driver, DriverParameters, families_of};
use crate::history::FamilyEntries;
use crate::machine::DIR;
use crate::machine::{self, damage};
use crate::plan::{self, pick};
use crate::state::{Contents, Entries};
use crate::tally;
use io::Rng;
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{Db, Env, Error, ErrorKind, Family};

/// Damages tested per store.
pub(crate) const DAMAGES: u64 = 24;
/// Kinds of damaged files.
const KINDS: [&str; 9] =
    [".ksst", ".ksst", ".vsst", ".vsst", ".log", "/MANIFEST", "/CURRENT", "/STAGING", "/LOCK"];

/// Result of a damage.
enum DamageEffect {
    /// All answers were correct.
    Right,
    /// An error reported it.
    Error,
    /// The end of the log was taken as torn.
    Cut,
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x666c_6970);
    let closed = !rng.one_in(6);
    let Some(store) = outcome.made(|| FlipStore::make(seed, closed, &mut rng)) else { return outcome };
    let break_it = |sim: &SimEnv, rng: &mut Rng| break_a_file(sim, &store.older, &KINDS, rng);
    outcome.damaged((&store.sim, &mut rng), DAMAGES, break_it, |outcome, nth, sim, damage, rng| {
        if sim.state_hash() == store.image {
            return;
        }
        let seen = guarded(|| store.look(sim, damage, rng)).and_then(|r| r);
        match seen {
            Ok(DamageEffect::Right) => outcome.note("harmless", 1),
            Ok(DamageEffect::Error) => outcome.note("detected", 1),
            Ok(DamageEffect::Cut) => {
                outcome.note("above the watermark, cut as torn", 1);
                return;
            }
            Err(_) => {}
        }
        let state = if closed { "closed" } else { "killed" };
        outcome.take(seen.map(drop).map_err(|why| format!("{state}, damage {nth}, {}: {why}", damage.text)));
    });
    outcome
}

struct FlipStore {
    driver: Driver,
    /// The final state.
    sim: SimEnv,
    /// An earlier state.
    older: SimEnv,
    image: u64,
    closed: bool,
}

/// A damage of a store.
pub(crate) struct Damage {
    pub text: String,
    /// The damaged file; empty for the volume itself.
    pub path: String,
    /// The second file of an exchange.
    pub other: Option<String>,
    pub flip: bool,
}

impl FlipStore {
    fn make(seed: u64, closed: bool, rng: &mut Rng) -> Check<FlipStore> {
        let (knobs, data) = DriverParameters::to_damage(rng, 10..60, (plan::options, plan::churn_options));
        let mut driver = Driver::new(seed, knobs, data);
        driver.run()?;
        let older = driver.sim.fork(seed);
        driver.steps(rng.range(5, 30))?;
        let sim = if closed {
            driver.close()?;
            driver.sim.fork(seed)
        } else {
            driver.sim.crash(CrashKind::ProcessKill, seed)
        };
        driver.abandon();
        driver.history.changed();
        let image = sim.state_hash();
        Ok(FlipStore { driver, sim, older, image, closed })
    }

    /// Opens the store and reads everything.
    fn look(&self, sim: &SimEnv, damage: &Damage, rng: &mut Rng) -> Check<DamageEffect> {
        let Some(env) = mounted(sim)? else { return Ok(DamageEffect::Error) };
        let db = match Db::open_in(&env, DIR, &plan::options(rng)) {
            Ok(db) => db,
            Err(e) => return names_a_file(&e, "open").map(|()| DamageEffect::Error),
        };
        if rng.one_in(3) {
            // Background work that meets the damage must not propagate it.
            for _ in 0..rng.below(60) {
                db.engine().run_background_step();
            }
        }
        let seen = self.ask(&db, damage);
        tally::add(&db);
        seen
    }

    fn ask(&self, db: &Db, damage: &Damage) -> Check<DamageEffect> {
        let model = &self.driver.model;
        let families = families_of(db)?;
        let ids: Vec<u32> = model.keys().copied().collect();
        let found: Vec<u32> = families.iter().map(Family::id).collect();
        ensure!(
            !self.closed
                || ids == {
                    let mut f = found.clone();
                    f.sort_unstable();
                    f
                },
            "families {found:?} instead of {ids:?}"
        );
        let (mut errors, mut all) = (0, FamilyEntries::new());
        let empty = Contents::default();
        for family in &families {
            let (entries, complete) = read_all(family)?;
            errors += usize::from(!complete);
            if self.closed {
                let expected = model.get(&family.id()).unwrap_or(&empty).entries();
                errors += check_family(family, expected, &entries, complete)?;
            }
            all.insert(family.id(), entries);
        }
        if !self.closed && errors == 0 {
            return self.judge_tail(&all);
        }
        let table = damage.path.ends_with(".ksst") || damage.path.ends_with(".vsst");
        let noticed = match db.verify() {
            Ok(report) => {
                report.errors.iter().try_fold(0, |n, e| names_a_file(e, "verify").map(|()| n + 1))?
            }
            Err(e) => names_a_file(&e, "verify").map(|()| 1)?,
        };
        // `verify` does not cover files outside of all versions.
        let held = db.engine().live_files().files.iter().any(|name| damage.path.ends_with(name.as_str()));
        ensure!(!(table && damage.flip && held && noticed == 0), "verify did not notice");
        Ok(if errors + noticed > 0 { DamageEffect::Error } else { DamageEffect::Right })
    }

    /// Judges a killed store: its contents must be a prefix of the writes. Families and writes are
    /// judged separately, because the last manifest edit may also look torn.
    fn judge_tail(&self, found: &FamilyEntries) -> Check<DamageEffect> {
        let families_cut = self.driver.history.families_lag(found)?;
        if families_cut {
            return Ok(DamageEffect::Cut);
        }
        let end = self.driver.history.longest_prefix(found)?;
        Ok(if end < self.driver.history.writes.len() { DamageEffect::Cut } else { DamageEffect::Right })
    }
}

/// Damages a file of one of these kinds with equal probability; `None` if the drawn file cannot be
/// damaged so. `older`: an earlier state of the machine.
pub(crate) fn break_a_file(
    sim: &SimEnv,
    older: &SimEnv,
    kinds: &[&'static str],
    rng: &mut Rng,
) -> Check<Option<Damage>> {
    if machine::is_lavafs() && rng.one_in(5) {
        return damage_metadata(sim, rng).map(Some);
    }
    let files = damage::files(sim)?;
    // Drawn from a separate generator, so that recorded seeds keep their draws.
    if Rng::new(rng.clone().next_u64()).one_in(8) {
        return Ok(zero_the_end(sim, &files, rng));
    }
    let Some((path, len)) = draw(&files, kinds, rng) else { return Ok(None) };
    let Some((other, other_len)) = draw(&files, kinds, rng) else { return Ok(None) };
    let block = pick(rng, &[512, 4096]);
    let (offset, from) = (place(len, block, rng), place(other_len, block, rng));
    let whole = |len: u64, offset: u64| len.saturating_sub(offset).min(block) as usize;
    let (text, done) = match rng.below(12) {
        0..=5 => {
            let at = rng.below(len);
            let text = format!("bit flipped at {at} of {path} ({len} B)");
            let done = damage::flip_bit(sim, &path, at, rng.next_u64() as u32);
            return Ok(done.unwrap_or(false).then_some(Damage { text, path, other: None, flip: true }));
        }
        6 => {
            let n = whole(len, offset).min(whole(other_len, from));
            (
                format!("{n} B of {other} at {from} over {path} at {offset}"),
                damage::copy_block(sim, (&other, from), (&path, offset), n),
            )
        }
        7 => {
            let n = whole(len, offset);
            (
                format!("{n} B of {path} at {offset} as they were"),
                damage::restore_block(sim, older, &path, offset, n),
            )
        }
        8 => {
            let text = format!("{path} and {other} exchanged");
            let done = damage::swap_files(sim, &path, &other);
            return Ok(done.ok().map(|()| Damage { text, path, other: Some(other), flip: false }));
        }
        9 => {
            let cut = if rng.one_in(3) { 0 } else { rng.below(len) };
            (format!("{path} cut from {len} to {cut} B"), damage::cut(sim, &path, cut))
        }
        10 => (format!("{path} erased"), damage::erase(sim, &path)),
        _ => {
            let n = whole(len, offset);
            let done = damage::overwrite(sim, &path, offset, &vec![0; n]);
            (format!("{n} zeros over {path} at {offset}"), done)
        }
    };
    Ok(done.ok().map(|()| Damage { text, path, other: None, flip: false }))
}

/// Zeros the last bytes of the manifest, including the unconfirmed edits.
fn zero_the_end(sim: &SimEnv, files: &[(String, u64)], rng: &mut Rng) -> Option<Damage> {
    let (path, len) = files.iter().find(|(path, _)| path.contains("/MANIFEST"))?.clone();
    let n = rng.range(1, 513).min(len);
    let text = format!("the last {n} B of {path} ({len} B) zeroed");
    let done = damage::overwrite(sim, &path, len - n, &vec![0; n as usize]);
    done.ok().map(|()| Damage { text, path, other: None, flip: false })
}

/// Damages the volume itself.
fn damage_metadata(sim: &SimEnv, rng: &mut Rng) -> Check<Damage> {
    let offsets = damage::metadata_offsets(sim)?;
    let block = pick(rng, &offsets);
    // Most written data is at the front of its block.
    let at = block + if rng.one_in(2) { rng.below(200) } else { rng.below(4096) };
    damage::flip_device(sim, at, rng.next_u64() as u32)?;
    let text = format!("bit flipped at {at} of the volume, in superblock or journal");
    Ok(Damage { text, path: String::new(), other: None, flip: false })
}

/// Draws a non-empty file, each kind with equal probability.
fn draw(files: &[(String, u64)], kinds: &[&'static str], rng: &mut Rng) -> Option<(String, u64)> {
    // Drawn from a separate generator, so that recorded seeds keep their draws.
    let tail = rng.clone().one_in(8) && files.iter().any(|(path, _)| path.ends_with(".tail"));
    let drawn = pick(rng, kinds);
    let kind = if tail { ".tail" } else { drawn };
    let of_kind: Vec<_> = files.iter().filter(|(path, len)| path.contains(kind) && *len > 0).collect();
    if of_kind.is_empty() {
        return None;
    }
    Some(of_kind[rng.below(of_kind.len() as u64) as usize].clone())
}

/// Draws the offset of a block: half of the time near the front, since most files are empty behind
/// it.
fn place(len: u64, block: u64, rng: &mut Rng) -> u64 {
    let blocks = len.div_ceil(block).max(1);
    let among = if rng.one_in(2) { blocks.min(4) } else { blocks };
    rng.below(among) * block
}

/// Returns the environment of a damaged machine; `None` if the volume is refused for a reason that
/// `fsck` also finds.
pub(crate) fn mounted(sim: &SimEnv) -> Check<Option<Env>> {
    let findings = machine::fsck(sim)?;
    match machine::try_env(sim) {
        Ok(env) => Ok(Some(env)),
        Err(e) => {
            ensure!(!findings.is_empty(), "fsck finds nothing, but the mount failed: {e}");
            names_a_file(&e, "mount").map(|()| None)
        }
    }
}

/// Checks that an error has a kind of damage and names a file.
pub(crate) fn names_a_file(error: &Error, what: &str) -> Check {
    let kinds = [ErrorKind::Corruption, ErrorKind::Unsupported, ErrorKind::Poisoned];
    ensure!(kinds.contains(&error.kind()), "{what} failed with another kind: {error}");
    ensure!(error.file().is_some(), "{what} failed without naming a file: {error}");
    Ok(())
}

/// Returns the entries before an iteration ends or fails.
fn read_all(family: &Family) -> Check<(Entries, bool)> {
    let mut entries = Entries::new();
    for entry in family.iter() {
        match entry {
            Ok((key, value)) => {
                ensure!(entries.last_key_value().is_none_or(|(last, _)| *last < key), "keys out of order");
                entries.insert(key, value);
            }
            Err(e) => return names_a_file(&e, "iteration").map(|()| (entries, false)),
        }
    }
    Ok((entries, true))
}

/// Compares the readable part of a family with the model. Returns the number of errors.
fn check_family(family: &Family, expected: &Entries, read: &Entries, complete: bool) -> Check<usize> {
    for ((key, value), (wanted, wanted_value)) in read.iter().zip(expected) {
        ensure!(key == wanted, "iteration gave {} instead of {}", show(key), show(wanted));
        ensure!(value == wanted_value, "iteration gave another value for {}", show(key));
    }
    let (got, want) = (read.len(), expected.len());
    ensure!(got <= want && (got == want || !complete), "iteration gave {got} of {want} keys, and no error");
    let mut errors = 0;
    for (key, value) in expected {
        match family.get(key) {
            Ok(found) => ensure!(
                found.as_deref() == Some(value.as_slice()),
                "get {} gave {} instead of {}",
                show(key),
                found.as_deref().map_or("nothing".into(), show),
                show(value)
            ),
            Err(e) => {
                names_a_file(&e, "get")?;
                errors += 1;
            }
        }
    }
    Ok(errors)
}
