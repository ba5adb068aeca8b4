//! `import`: reads records from files.
//!
//! Records are written in file order, in batches. An interrupted import (a malformed line, a full
//! disk, a kill, Ctrl-C) leaves the earlier records. `--resume` reads the same file again and skips
//! every record that the store already has with the same value ([`resume`]). It needs no saved
//! state, so it also continues an import by another program. The result equals that of a whole
//! import, since only redundant writes are skipped.
//!
//! The store is created before the first write: an import that fails earlier leaves none.

mod resume;
mod skipped;

use super::create::{CreateArgs, is_there, open_or_create_in};
use super::fs::size;
use super::place::StoreLocation;
use super::{FamilyArgs, directory};
use crate::formats::{Format, ReadError, Record};
use crate::status::{about, with_message};
use crate::{Error, Result, input, interrupt, output};
use bench::host::now_ns;
use bench::report::{counted, human_bytes};
use clap::Args;
use lavastore::{Db, Family, WriteBatch};
use resume::Resume;
use serde_json::json;
use skipped::Skipped;
use std::path::{Path, PathBuf};

/// Bytes per batch.
const BATCH_LEN: usize = 256 << 10;

/// Options of `import`.
#[derive(Args)]
pub struct ImportArgs {
    /// Files to read in this order (-: standard input); gzip, LZ4 and Zstandard contents are
    /// unpacked. A later record replaces an earlier one with the same key
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Format of all files [default: by each file's name; standard input needs the option]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Column family, created if missing [default: default]
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
    /// Skip records that the store already has with the same value, to continue an interrupted
    /// import. It reads the files from their start and compares them with the store
    #[arg(long)]
    resume: bool,
    /// Continue behind malformed records; list the first 20 and their number on standard error;
    /// exit status 3. Without it the import ends at the first one, and the records before it stay
    #[arg(long)]
    skip_malformed: bool,
    /// Longest line in bytes: a number, alone or with K, M, G or T (powers of 1024). A longer line
    /// is malformed. A higher limit lets a line take more memory
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64M")]
    line_bytes_max: u64,
    #[command(flatten)]
    create: CreateArgs,
    #[command(flatten)]
    options: FamilyArgs,
    /// Print the result as JSON instead of text: records, bytes, seconds, skipped records
    #[arg(long)]
    json: bool,
}

/// Result of an import.
#[derive(Default)]
struct Imported {
    records: u64,
    bytes: u64,
    /// Number of skipped existing records.
    left_out: u64,
    skipped: Skipped,
}

/// The store for the records, created on the first write.
struct ImportTarget<'a> {
    db: PathBuf,
    args: &'a ImportArgs,
    /// The place until the store is open; it locks a volume for this process.
    place: Option<StoreLocation>,
    open: Option<(Db, Family)>,
    sum: Imported,
}

impl<'a> ImportTarget<'a> {
    /// Opens an existing store; checks that a missing one may be created later.
    fn new(db: PathBuf, args: &'a ImportArgs) -> Result<ImportTarget<'a>> {
        let place = StoreLocation::to_write(&db)?;
        let is_there = is_there(&place, &args.create)?;
        let mut target = ImportTarget { db, args, place: Some(place), open: None, sum: Imported::default() };
        if is_there {
            target.open()?;
        }
        Ok(target)
    }

    /// Returns the store and the family.
    fn open(&mut self) -> Result<&(Db, Family)> {
        let args = self.args;
        if let Some(place) = self.place.take() {
            let store = open_or_create_in(&self.db, place, &args.create)?;
            let family = match &args.family {
                Some(name) => store.family(name)?,
                None => store.default_family().clone(),
            };
            args.options.apply(&family)?;
            self.open = Some((store, family));
        }
        self.open.as_ref().ok_or_else(|| "internal error: the store is not open: report it".into())
    }

    /// Writes records in batches, in their order.
    fn write(&mut self, records: impl IntoIterator<Item = Record>) -> Result<()> {
        let mut batch = WriteBatch::new();
        let (mut count, mut bytes) = (0, 0);
        for (key, value) in records {
            let (_, family) = self.open()?;
            batch.family(family).put(&key, &value);
            count += 1;
            bytes += (key.len() + value.len()) as u64;
            if batch.byte_len() >= BATCH_LEN {
                self.write_batch(&mut batch, std::mem::take(&mut count), std::mem::take(&mut bytes))?;
            }
        }
        self.write_batch(&mut batch, count, bytes)
    }

    fn write_batch(&mut self, batch: &mut WriteBatch, count: u64, bytes: u64) -> Result<()> {
        if count > 0 {
            self.open()?.0.write(batch)?;
            batch.clear();
            self.sum.records += count;
            self.sum.bytes += bytes;
        }
        Ok(())
    }

    /// Creates the store if nothing was written, flushes and closes it.
    fn finish(mut self) -> Result<Imported> {
        self.open()?;
        if let Some((store, family)) = self.open {
            store.flush()?;
            drop(family);
            store.close()?;
        }
        Ok(self.sum)
    }

    /// Formats the error of an interrupted import and the way to resume.
    fn cut_off(&self, file: &Path, error: &Error) -> String {
        let done = self.sum.records + self.sum.left_out;
        let on = if done == 0 { "" } else { "; --resume continues there" };
        let imported = counted(done, "record");
        let error = if interrupt::requested() { "interrupted".to_owned() } else { error.to_string() };
        format!("{}: {error} ({imported} imported before{on})", file.display())
    }
}

/// Imports files. A later record replaces an earlier one with the same key.
pub fn import(db: Option<PathBuf>, args: &ImportArgs) -> Result<()> {
    let db = directory(db)?;
    let formats = args.files.iter().map(|file| format_of(file, args.format)).collect::<Result<Vec<_>>>()?;
    for file in &args.files {
        input::check(file).map_err(|e| about(file.display(), e))?;
    }
    interrupt::watch();
    let start_ns = now_ns();
    let mut target = ImportTarget::new(db, args)?;
    let mut resume = args.resume.then(Resume::default);
    for (file, format) in args.files.iter().zip(formats) {
        let done = import_file(&mut target, resume.as_mut(), file, format);
        done.map_err(|e| with_message(e, |e| target.cut_off(file, e)))?;
    }
    let sum = target.finish()?;
    told(args, &sum, resume.as_ref(), (now_ns() - start_ns) as f64 / 1e9)
}

/// Imports a file. The records before an unreadable one are written too, and counted.
fn import_file(
    target: &mut ImportTarget<'_>,
    mut resume: Option<&mut Resume>,
    file: &Path,
    format: Format,
) -> Result<()> {
    let (input, progress) = input::open(file)?;
    let window_len = if resume.is_some() { resume::WINDOW_LEN } else { BATCH_LEN };
    let limit = usize::try_from(target.args.line_bytes_max).unwrap_or(usize::MAX);
    let mut records = format.read(input, limit);
    let mut read = Ok(true);
    while matches!(read, Ok(true)) {
        let mut window = Vec::new();
        read = fill(&mut window, &mut records, window_len, file, target);
        if let Some(resume) = resume.as_deref_mut() {
            let before = window.len();
            window = resume.changes(&target.open()?.1, window)?;
            target.sum.left_out += (before - window.len()) as u64;
        }
        target.write(window)?;
    }
    progress.end();
    read.map(|_| ())
}

/// Reads records up to a number of bytes; returns false at the end of the input.
fn fill(
    window: &mut Vec<Record>,
    records: &mut impl Iterator<Item = Result<Record, ReadError>>,
    window_len: usize,
    file: &Path,
    target: &mut ImportTarget<'_>,
) -> Result<bool> {
    let mut len = 0;
    while len < window_len {
        if interrupt::requested() {
            return Err("interrupted".into());
        }
        match records.next() {
            None => return Ok(false),
            Some(Ok((key, value))) => {
                len += key.len() + value.len() + resume::RECORD_OVERHEAD;
                window.push((key, value));
            }
            Some(Err(ReadError::Malformed(malformed))) if target.args.skip_malformed => {
                target.sum.skipped.add(file, &malformed);
            }
            Some(Err(error)) => return Err(error.into()),
        }
    }
    Ok(true)
}

fn told(args: &ImportArgs, sum: &Imported, resume: Option<&Resume>, seconds: f64) -> Result<()> {
    let mut report = json!({
        "files": args.files.len(), "records": sum.records, "bytes": sum.bytes, "left_out": sum.left_out,
        "malformed": sum.skipped.count(), "seconds": seconds,
    });
    if let Some(resume) = resume {
        report["comparison_steps"] = resume.steps().into();
    }
    output::report(args.json, &report, || {
        let (records, bytes) = (counted(sum.records, "record"), human_bytes(sum.bytes));
        let there = match sum.left_out {
            0 => String::new(),
            1 => "; 1 was there already".to_owned(),
            count => format!("; {} were there already", bench::report::human_count(count)),
        };
        format!("imported {records}, {bytes}, in {seconds:.2} s{there}\n")
    })?;
    sum.skipped.told()
}

fn format_of(file: &Path, given: Option<Format>) -> Result<Format> {
    match given.or_else(|| Format::of_name(file)) {
        Some(format) => Ok(format),
        None => output::usage(format!(
            "the name {} tells no record format: pass --format tsv, jsonl or packages",
            file.display()
        )),
    }
}
