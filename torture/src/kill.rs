//! Row `kill`: a process that writes to a store on the real disk is killed with SIGKILL repeatedly.
//!
//! The child writes the batches of its seed one by one, and reports each acknowledgement through a
//! pipe. The parent kills it at a random moment, opens the store with other options, and compares:
//! all acknowledged batches are there, and otherwise at most the batch in flight, as a whole. Then
//! the next child continues.
//!
//! A variant runs on LavaFS in an image file, where `fsck` must find no damage before the mount and
//! after the end.

use crate::case::{Context, Outcome};
use crate::check::{Check, Doing, ensure};
use crate::driver::{Model, add, compare, families_of, scan};
use crate::files::check_at_rest;
use crate::place::Place;
use crate::plan::{self, Data};
use crate::state::Change;
use crate::tally;
use io::Rng;
use lavastore::{Db, Durability, Env, Family, Options, WriteBatch, WriteOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Hidden row: the child.
pub(crate) const CHILD: &str = "kill-child";
/// The same on LavaFS.
pub(crate) const CHILD_ON_LAVAFS: &str = "kill-child-on-lavafs";
/// Hidden row: compares a store with the reports of its child, for scripts that end the child in
/// other ways.
pub(crate) const CHECK: &str = "kill-check";
const IMAGE_LEN: u64 = 96 << 20;
/// Flag of a child's report of collected vSSTs instead of batches.
const COLLECTIONS: u64 = 1 << 63;
/// Kills per store.
const ROUNDS: u64 = 5;
/// The families besides the default one.
const FAMILIES: [&str; 2] = ["left", "right"];

pub(crate) fn case(context: &Context, seed: u64) -> Outcome {
    kill(context, Place { dir: context.dir.join(format!("kill-{seed}")), on_lavafs: false, seed }, seed)
}

pub(crate) fn case_on_lavafs(context: &Context, seed: u64) -> Outcome {
    kill(
        context,
        Place { dir: context.dir.join(format!("kill-on-lavafs-{seed}")), on_lavafs: true, seed },
        seed,
    )
}

fn kill(context: &Context, place: Place, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut run = KillRun { model: Model::new(), written: 0, rng: Rng::new(seed) };
    let made = place.make(IMAGE_LEN);
    if made.is_err() {
        outcome.take(made);
        return outcome;
    }
    for round in 0..ROUNDS {
        let checked = run.round(&place, seed).map_err(|why| format!("round {round}: {why}"));
        let failed = checked.is_err();
        outcome.take(checked);
        if failed {
            // The store stays for inspection.
            return outcome;
        }
    }
    outcome.note("batches acknowledged", run.written);
    let _ = std::fs::remove_dir_all(&place.dir);
    let _ = std::fs::remove_dir(&context.dir);
    outcome
}

struct KillRun {
    model: Model,
    /// Number of batches in the store.
    written: u64,
    rng: Rng,
}

impl KillRun {
    fn round(&mut self, place: &Place, seed: u64) -> Check {
        let acknowledged = self.let_child_write(place, seed)?;
        place.check(true).map_err(|why| format!("after the kill: {why}"))?;
        self.look(place, seed, acknowledged)?;
        place.check(false).map_err(|why| format!("after a clean end: {why}"))
    }

    /// Opens the store and compares.
    fn look(&mut self, place: &Place, seed: u64, acknowledged: u64) -> Check {
        let options = plan::roomy(plan::options(&mut self.rng));
        let (env, dir) = place.open()?;
        let db = Db::open_in(&env, &dir, &options)
            .doing(|| format!("refused to open with {}", plan::describe(&options)))?;
        let found = scan(&db)?;
        let families: Vec<u32> = found.keys().copied().collect();
        let begin = self.written;
        let mut why = String::new();
        // The last batch may be written but not reported.
        for end in [acknowledged, acknowledged + 1] {
            while self.written < end {
                for (family, change) in batch(seed, self.written).0 {
                    self.model.entry(family as u32).or_default().apply(&change);
                }
                self.written += 1;
            }
            let mut expected = self.model.clone();
            for id in &families {
                expected.entry(*id).or_default();
            }
            match compare(&expected, &found) {
                Ok(()) => return check_sound(&db, &env, &dir, &expected),
                Err(e) if why.is_empty() => why = e,
                Err(_) => {}
            }
        }
        Err(format!("batches {begin} to {acknowledged} were acknowledged: {why}"))
    }

    /// Lets a child write and kills it. Returns the number of batches acknowledged since the store
    /// was created.
    fn let_child_write(&mut self, place: &Place, seed: u64) -> Check<u64> {
        let row = if place.on_lavafs { CHILD_ON_LAVAFS } else { CHILD };
        let reports = killed(row, place, (seed, self.written), 40_000_000, &mut self.rng)?;
        let (collections, batches): (Vec<u64>, Vec<u64>) =
            reports.into_iter().partition(|r| r & COLLECTIONS != 0);
        tally::add_collections(collections.last().map_or(0, |r| r & !COLLECTIONS));
        Ok(batches.last().copied().unwrap_or(self.written))
    }
}

/// Starts a child (a hidden row with a seed and a count) and kills it at a random moment, at most
/// `life_ns_max` after its start. Returns the numbers that it reported on standard output after its
/// first report, that the store is open.
pub(crate) fn killed(
    row: &str,
    place: &Place,
    (seed, count): (u64, u64),
    life_ns_max: u64,
    rng: &mut Rng,
) -> Check<Vec<u64>> {
    let program = std::env::current_exe().doing(|| "own path".into())?;
    let mut child = Command::new(program)
        .arg(row)
        .arg("--dir")
        .arg(&place.dir)
        .args(["--seed", &seed.to_string(), "--count", &count.to_string()])
        .args(plan::with_arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .doing(|| "start of a child".into())?;
    let mut pipe = child.stdout.take().ok_or("no pipe")?;
    // The first report says that the store is open. The child's lifetime starts there, or sometimes
    // before.
    let early = rng.one_in(8);
    if !early {
        pipe.read_exact(&mut [0; 8]).doing(|| "the child did not open the store".into())?;
    }
    Env::kernel().clock.sleep_ns(rng.below(if early { 8_000_000 } else { life_ns_max }));
    child.kill().doing(|| "kill".into())?;
    child.wait().doing(|| "wait".into())?;
    let mut reported = Vec::new();
    pipe.read_to_end(&mut reported).doing(|| "reading from the pipe".into())?;
    Ok(reported.chunks_exact(8).filter_map(|b| b.try_into().ok()).map(u64::from_le_bytes).collect())
}

/// Checks the store at once and after it has become idle.
fn check_sound(db: &Db, env: &Env, dir: &Path, expected: &Model) -> Check {
    check_at_rest(db, env, dir, false)?;
    compare(expected, &scan(db)?).map_err(|why| format!("at rest: {why}"))?;
    tally::add(db);
    let report = db.verify().doing(|| "verify".into())?;
    ensure!(report.errors.is_empty(), "verify: {}", report.errors[0]);
    Ok(())
}

/// Returns true for runs with long values that are overwritten all the time.
fn churns(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// Returns the batch with this number: changes by family, and its durability.
fn batch(seed: u64, number: u64) -> (Vec<(usize, Change)>, Durability) {
    let mut data_rng = Rng::new(seed ^ 0x6b69_6c6c);
    let data = if churns(seed) { Data::churn(&mut data_rng) } else { Data::small(&mut data_rng) };
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    let count = if rng.one_in(2) { 1 } else { rng.range(1, 6) };
    let changes = (0..count).map(|_| (rng.below(3) as usize, data.change(&mut rng))).collect();
    let durability = if rng.one_in(6) { Durability::Durable } else { Durability::Buffered };
    (changes, durability)
}

/// Compares a new store with the number of batches that its child had acknowledged.
pub(crate) fn check(dir: PathBuf, seed: u64, acknowledged: u64) -> ExitCode {
    let mut run = KillRun { model: Model::new(), written: 0, rng: Rng::new(seed ^ acknowledged) };
    match run.look(&Place { dir, on_lavafs: false, seed }, seed, acknowledged) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("torture: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Main function of the child: writes from batch `from` on until it is killed.
pub(crate) fn child(dir: PathBuf, on_lavafs: bool, seed: u64, from: u64) -> ExitCode {
    match write_forever(&Place { dir, on_lavafs, seed }, seed, from) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("torture: child of seed {seed}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Reports a number to the parent.
pub(crate) fn report(number: u64) -> Check {
    let mut out = std::io::stdout().lock();
    out.write_all(&number.to_le_bytes()).and_then(|()| out.flush()).doing(|| "report".into())
}

fn write_forever(place: &Place, seed: u64, from: u64) -> Check {
    let mut rng = Rng::new(seed ^ from.wrapping_mul(31));
    let drawn = if churns(seed) { plan::churn_options(&mut rng) } else { plan::options(&mut rng) };
    let options = Options { background_threads: 2, ..plan::roomy(drawn) };
    let (env, dir) = place.open()?;
    let db = Db::open_in(&env, dir, &options).doing(|| "open".into())?;
    for name in FAMILIES {
        if db.open_family(name).is_err() {
            db.create_family(name, &plan::family_options(&mut rng)).doing(|| "create".into())?;
        }
    }
    let families: Vec<Family> = families_of(&db)?;
    report(from)?;
    for number in from.. {
        let (changes, durability) = batch(seed, number);
        let mut batch = WriteBatch::new();
        changes.iter().for_each(|(family, change)| add(&mut batch, &families[*family], change));
        db.writing(&WriteOptions { durability: Some(durability), ..WriteOptions::default() })
            .write(&batch)
            .doing(|| "write".into())?;
        report(number + 1)?;
        if rng.one_in(if churns(seed) { 20 } else { 200 }) {
            db.flush().doing(|| "flush".into())?;
            report(COLLECTIONS | db.stats().gc_runs)?;
        }
        if rng.one_in(if churns(seed) { 100 } else { 600 }) {
            families[0].compact_range(..).doing(|| "compact".into())?;
        }
    }
    Ok(())
}
