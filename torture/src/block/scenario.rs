//! The writer's workload on the logged device, derived from a seed, and its record.
//!
//! Several threads write batches to two families each: random changes, and the batch number as the
//! last change in both. So the store itself shows which batches it has and whether they are whole.
//! Outside of the device, each thread records the device log length at the begin and at the
//! acknowledgement of each batch. A batch acknowledged as durable at a log length of n bytes must
//! be in each image taken at n bytes or later; a batch begun later must not.
//!
//! Most sessions end without closing the store. The next one opens it again and continues with the
//! numbers that it finds.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the record is a file of the campaign, not of the engine"
)]

use super::rig::{self, Below};
use crate::check::{Check, Doing, ensure};
use crate::driver::add;
use crate::plan::{self, Data};
use crate::state::{Change, Contents};
use io::Rng;
use io::kernel::device::{self, DeviceOptions};
use io::kernel::{IoEngine, KernelOptions};
use lavastore::lavafs::{FormatOptions, MountOptions, format, mount};
use lavastore::{Db, Durability, Env, Family, Options, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Directory of the store on a mounted file system, and on LavaFS.
pub(super) const STORE: &str = "db";
/// Maximum length of the device log in bytes; writing stops there.
const LOG_LEN_MAX: u64 = 192 << 20;
/// The key of the last batch number. No other key has this length and prefix.
const NUMBER_KEY: &[u8] = b"\xff\xff\xff\xff\xff number";

/// Parameters derived from a seed.
#[derive(Debug)]
pub(super) struct Scenario {
    pub seed: u64,
    pub fs: Below,
    pub engine: IoEngine,
    pub writers: u64,
    pub sessions: u64,
    /// Batches of each writer per session.
    batches: u64,
    churns: bool,
    mostly_durable: bool,
}

impl Scenario {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x62_6c6f_636b);
        let fs = Below::ALL[(seed % 4) as usize];
        let engine = if (seed / 4).is_multiple_of(2) { IoEngine::IoUring } else { IoEngine::Portable };
        let (writers, sessions) = (rng.range(1, 3), rng.range(1, 3));
        Scenario {
            seed,
            fs,
            engine,
            writers,
            sessions,
            batches: 240 / writers / sessions,
            churns: rng.one_in(2),
            mostly_durable: rng.one_in(2),
        }
    }

    fn data(&self) -> Data {
        let mut rng = Rng::new(self.seed);
        if self.churns { Data::churn(&mut rng) } else { Data::small(&mut rng) }
    }

    pub fn options(&self, rng: &mut Rng) -> Options {
        plan::roomy(if self.churns { plan::churn_options(rng) } else { plan::options(rng) })
    }

    /// Returns the families of a writer.
    pub fn families(writer: u64) -> [String; 2] {
        [format!("{writer}-left"), format!("{writer}-right")]
    }

    /// Returns the batch of a writer with this number, from 1 on: changes to its two families, and
    /// its durability.
    fn batch(&self, writer: u64, number: u64) -> (Vec<(usize, Change)>, Durability) {
        let mix = (self.seed ^ (writer << 48)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (data, mut rng) = (self.data(), Rng::new(mix ^ number));
        let count = if rng.one_in(2) { 1 } else { rng.range(1, 6) };
        let mut changes: Vec<_> =
            (0..count).map(|_| (rng.below(2) as usize, data.change(&mut rng))).collect();
        let value = number.to_le_bytes().to_vec();
        changes.extend([0, 1].map(|family| (family, Change::Put(NUMBER_KEY.to_vec(), value.clone()))));
        let durable = if self.mostly_durable { !rng.one_in(4) } else { rng.one_in(6) };
        (changes, if durable { Durability::Durable } else { Durability::Buffered })
    }

    /// Returns the contents of a writer's families after this number of batches.
    pub fn contents(&self, writer: u64, batches: u64) -> [Contents; 2] {
        let mut contents = [Contents::default(), Contents::default()];
        for number in 1..=batches {
            for (family, change) in self.batch(writer, number).0 {
                contents[family].apply(&change);
            }
        }
        contents
    }

    /// Returns the last batch number in the entries of a family.
    pub fn number(entries: &BTreeMap<Vec<u8>, Vec<u8>>) -> u64 {
        let value = entries.get(NUMBER_KEY).and_then(|v| v.as_slice().try_into().ok());
        value.map_or(0, u64::from_le_bytes)
    }
}

/// Formats an image as a LavaFS volume. Its journals are short, so that they are compacted often.
pub(super) fn make_volume(image: &Path) -> Check {
    let device = device::open(image, &DeviceOptions::default()).doing(|| "open an image".into())?;
    let options = FormatOptions { journal_len: 64 << 10, unit_len: 256 << 10, ..Default::default() };
    format(&Env::kernel(), &*device, &FormatOptions { sparse: true, ..options }).doing(|| "format".into())
}

/// Returns the environment on a device, an image or a mount point, and the directory of the store
/// in it.
pub(super) fn environment(fs: Below, engine: IoEngine, at: &Path) -> Check<(Env, PathBuf)> {
    let kernel = KernelOptions { engine };
    let env = Env::kernel_with(kernel);
    if fs != Below::LavaFs {
        return Ok((env, at.join(STORE)));
    }
    let device = device::open(at, &DeviceOptions { kernel, read_only: false });
    let options = MountOptions { compact_journal_at: 128 << 10, ..MountOptions::default() };
    let mounted = device.and_then(|device| mount(&env, device, options)).doing(|| "mount".into())?;
    Ok((mounted.into_env(), Path::new("/").join(STORE)))
}

/// States of a batch, recorded as numbers.
const BEGUN: u64 = 0;
const DURABLE: u64 = 1;
const BUFFERED: u64 = 2;

/// Appends events to the record.
struct Recorder {
    file: File,
    dir: PathBuf,
    writer: u64,
}

impl Recorder {
    fn new(dir: &Path, writer: u64) -> Check<Self> {
        let file = File::options().create(true).append(true).open(dir.join("record"));
        Ok(Recorder { file: file.doing(|| "open the record".into())?, dir: dir.to_owned(), writer })
    }

    fn add(&mut self, number: u64, what: u64) -> Check {
        let words = [self.writer, number, what, rig::log_len(&self.dir)?];
        self.file.write_all(words.map(u64::to_le_bytes).as_flattened()).doing(|| "write the record".into())
    }
}

/// Runs one session of the writer.
pub(super) fn write(dir: &Path, seed: u64, session: u64) -> Check {
    let scenario = Scenario::new(seed);
    let mut rng = Rng::new(seed ^ (session + 1).wrapping_mul(0x51_7cc1));
    let at = dir.join(if scenario.fs == Below::LavaFs { "device" } else { "mounted" });
    let (env, store) = environment(scenario.fs, scenario.engine, &at)?;
    let options = Options { background_threads: 2, ..scenario.options(&mut rng) };
    let db = Db::open_in(&env, store, &options).doing(|| "open".into())?;
    let mut families = Vec::new();
    for writer in 0..scenario.writers {
        families.push(families_of(&db, &mut Recorder::new(dir, writer)?, &mut rng)?);
    }
    let written: Vec<Check> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(&families)
            .map(|(writer, families)| {
                scope.spawn({
                    let (db, scenario) = (&db, &scenario);
                    move || write_batches(db, scenario, families, &mut Recorder::new(dir, writer)?)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a writer panicked".into()))).collect()
    });
    let gc_runs = db.stats().gc_runs;
    fs::write(dir.join(format!("collections-{session}")), gc_runs.to_string()).doing(|| "report".into())?;
    if !rng.one_in(4) {
        // The process exits without closing the store.
        std::mem::forget(db);
    }
    written.into_iter().collect()
}

/// Returns the number of collections of a finished session.
pub(super) fn collections(dir: &Path, session: u64) -> Check<u64> {
    let said =
        fs::read_to_string(dir.join(format!("collections-{session}"))).doing(|| "read a report".into())?;
    said.parse().doing(|| "read a report".into())
}

fn families_of(db: &Db, recorder: &mut Recorder, rng: &mut Rng) -> Check<[Family; 2]> {
    let [left, right] = Scenario::families(recorder.writer).map(|name| {
        let drawn = plan::family_options(rng);
        db.open_family(&name).or_else(|_| db.create_family(&name, &drawn))
    });
    let families = [left.doing(|| "create a family".into())?, right.doing(|| "create a family".into())?];
    recorder.add(0, DURABLE)?;
    Ok(families)
}

fn write_batches(db: &Db, scenario: &Scenario, families: &[Family; 2], recorder: &mut Recorder) -> Check {
    let writer = recorder.writer;
    let value = families[0].get(NUMBER_KEY).doing(|| "get".into())?;
    let last = value.and_then(|v| <[u8; 8]>::try_from(&v[..]).ok()).map_or(0, u64::from_le_bytes);
    let mut rng = Rng::new(scenario.seed ^ (writer << 32) ^ last);
    for number in last + 1..=last + scenario.batches {
        let (changes, durability) = scenario.batch(writer, number);
        let mut batch = WriteBatch::new();
        changes.iter().for_each(|(family, change)| add(&mut batch, &families[*family], change));
        recorder.add(number, BEGUN)?;
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        db.writing(&options).write(&batch).doing(|| format!("batch {number} of writer {writer}"))?;
        recorder.add(number, if durability == Durability::Durable { DURABLE } else { BUFFERED })?;
        match rng.below(120) {
            0..6 => db.flush().doing(|| "flush".into())?,
            6 => families[0].compact_range(..).map(drop).doing(|| "compact".into())?,
            7 => {
                families[1].iter().try_for_each(|entry| entry.map(drop)).doing(|| "scan".into())?;
            }
            _ => {}
        }
        if rig::log_len(&recorder.dir)? > LOG_LEN_MAX {
            break;
        }
    }
    Ok(())
}

/// Events of a writer, as (number, length of the device log).
#[derive(Debug, Default)]
struct WriterEvents {
    begun: Vec<(u64, u64)>,
    durable: Vec<(u64, u64)>,
}

/// The record of a run.
#[derive(Debug)]
pub(super) struct Record {
    writers: Vec<WriterEvents>,
    /// Number of acknowledged batches.
    pub acknowledged: u64,
}

impl Record {
    pub fn read(dir: &Path, writers: u64) -> Check<Record> {
        let bytes = fs::read(dir.join("record")).doing(|| "read the record".into())?;
        let mut record =
            Record { writers: (0..writers).map(|_| WriterEvents::default()).collect(), acknowledged: 0 };
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
        for [writer, number, what, log_len] in words.as_chunks().0 {
            let known =
                record.writers.get_mut(*writer as usize).ok_or("the record names an unknown writer")?;
            match *what {
                BEGUN => known.begun.push((*number, *log_len)),
                DURABLE => known.durable.push((*number, *log_len)),
                _ => {}
            }
            record.acknowledged += u64::from(*what != BEGUN && *number > 0);
        }
        Ok(record)
    }

    /// Returns the last batch of a writer that was acknowledged as durable at a log of `log_len`
    /// bytes; 0 if only the families had been created.
    pub fn required(&self, writer: u64, log_len: u64) -> Option<u64> {
        let known = self.writers.get(writer as usize)?;
        known.durable.iter().filter(|(_, at)| *at <= log_len).map(|(number, _)| *number).max()
    }

    /// Returns the last batch that had begun.
    pub fn allowed(&self, writer: u64, log_len: u64) -> u64 {
        let begun = self.writers.get(writer as usize).map_or(&[][..], |known| &known.begun);
        begun.iter().filter(|(_, at)| *at < log_len).map(|(number, _)| *number).max().unwrap_or(0)
    }
}

/// Checks the last batch of a writer against the record.
pub(super) fn check_bounds(record: &Record, writer: u64, number: Option<u64>, log_len: u64) -> Check {
    let (required, allowed) = (record.required(writer, log_len), record.allowed(writer, log_len));
    let Some(number) = number else {
        ensure!(
            required.is_none(),
            "the families of writer {writer} are gone, whose batch {required:?} was durable"
        );
        return Ok(());
    };
    let least = required.unwrap_or(0);
    ensure!(number >= least, "of writer {writer}, batch {least} was durable, and only {number} are there");
    ensure!(
        number <= allowed,
        "of writer {writer}, batch {number} is there, and only {allowed} had been begun"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_from_the_record() {
        let known = WriterEvents { begun: vec![(1, 100), (2, 200)], durable: vec![(0, 50), (1, 150)] };
        let record = Record { writers: vec![known], acknowledged: 1 };
        let check = |number, log_len| check_bounds(&record, 0, number, log_len).is_ok();
        assert!(check(None, 49) && !check(None, 50));
        assert!(check(Some(0), 100) && !check(Some(1), 100), "not begun yet");
        assert!(check(Some(1), 149) && check(Some(0), 149));
        assert!(!check(Some(0), 150), "a durable batch is gone");
        assert!(check(Some(2), 201) && !check(Some(3), 201));
    }

    #[test]
    fn batches_carry_their_number_to_both_families() {
        for seed in 0..20 {
            let contents = Scenario::new(seed).contents(1, 30);
            assert!(contents.iter().all(|c| Scenario::number(c.entries()) == 30), "seed {seed}");
        }
    }
}
