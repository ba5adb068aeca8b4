//! `import`: records from files.
//!
//! Records are written in the order of the file, in batches. One that is cut off (a bad line, a full disk, a kill) leaves what
//! came before; `--resume` reads the same file again and leaves out every record that the store has already with that very
//! value. Nothing is noted anywhere for that, so it also goes on with what another program began. It ends with the same store as
//! an import of the whole file would: a record is left out only where writing it would change nothing.

use super::{FamilyArgs, open_to_write};
use crate::formats::Format;
use crate::status::with_message;
use crate::{Result, input, output};
use bench::host::now_ns;
use bench::report::{human_bytes, human_count};
use clap::Args;
use lavastore::{Db, Family, WriteBatch};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Bytes of a batch.
const BATCH_LEN: usize = 256 << 10;

/// Options of `import`.
#[derive(Args)]
pub struct ImportArgs {
    /// Files to read (-: standard input)
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Format [default: by the file's name]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Column family, made if missing [default: default]
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
    /// Leave out records that are there already with the same value: goes on with an import that was cut off
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    options: FamilyArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// What an import did.
#[derive(Default)]
struct Imported {
    records: u64,
    bytes: u64,
    /// Records that were there.
    left_out: u64,
}

/// Reads records from files into the store. Later records replace earlier ones with the same key.
pub fn import(db: Option<PathBuf>, args: &ImportArgs) -> Result<()> {
    let formats = args.files.iter().map(|file| format_of(file, args.format)).collect::<Result<Vec<_>>>()?;
    let store = open_to_write(db, true)?;
    let family = match &args.family {
        Some(name) => store.family(name)?,
        None => store.default_family().clone(),
    };
    args.options.apply(&family)?;
    let start_ns = now_ns();
    let mut sum = Imported::default();
    for (file, format) in args.files.iter().zip(formats) {
        let mut import = FileImport { store: &store, family: &family, resume: args.resume, sum: &mut sum };
        import.run(file, format).map_err(|e| with_message(e, |e| cut_off(file, e, &sum)))?;
    }
    store.flush()?;
    drop(family);
    store.close()?;
    told(args, &sum, (now_ns() - start_ns) as f64 / 1e9)
}

/// Where it stopped, and how to go on.
fn cut_off(file: &Path, error: &crate::Error, sum: &Imported) -> String {
    let done = sum.records + sum.left_out;
    let on = if done == 0 { "" } else { "; --resume goes on there" };
    format!("{}: {error} ({} records imported before{on})", file.display(), done)
}

fn told(args: &ImportArgs, sum: &Imported, seconds: f64) -> Result<()> {
    let report = json!({
        "files": args.files.len(), "records": sum.records, "bytes": sum.bytes, "left_out": sum.left_out,
        "seconds": seconds,
    });
    output::report(args.json, &report, || {
        let (records, bytes) = (human_count(sum.records), human_bytes(sum.bytes));
        let there = match sum.left_out {
            0 => String::new(),
            count => format!("; {} were there already", human_count(count)),
        };
        format!("imported {records} records, {bytes}, in {seconds:.2} s{there}\n")
    })
}

fn format_of(file: &Path, given: Option<Format>) -> Result<Format> {
    match given.or_else(|| Format::of_name(file)) {
        Some(format) => Ok(format),
        None => output::usage(format!("{} does not tell its format: give it with --format", file.display())),
    }
}

/// An import of one file.
struct FileImport<'a> {
    store: &'a Db,
    family: &'a Family,
    resume: bool,
    sum: &'a mut Imported,
}

impl FileImport<'_> {
    fn run(&mut self, file: &Path, format: Format) -> Result<()> {
        let (input, progress) = input::open(file)?;
        let mut batch = WriteBatch::new();
        // Keys in the batch: what the store has of them is about to be replaced.
        let mut pending = BTreeSet::new();
        let (mut records, mut bytes) = (0, 0);
        let mut read = Ok(());
        for record in format.read(input) {
            let (key, value) = match record {
                Ok(record) => record,
                Err(e) => {
                    read = Err(e);
                    break;
                }
            };
            if self.resume && !pending.contains(&key) {
                if self.family.get(&key)?.as_deref() == Some(&value[..]) {
                    self.sum.left_out += 1;
                    continue;
                }
                pending.insert(key.clone());
            }
            batch.family(self.family).put(&key, &value);
            records += 1;
            bytes += (key.len() + value.len()) as u64;
            if batch.byte_len() >= BATCH_LEN {
                self.store.write(&batch)?;
                batch.clear();
                pending.clear();
                self.sum.records += std::mem::take(&mut records);
                self.sum.bytes += std::mem::take(&mut bytes);
            }
        }
        // Also what stands before a record that cannot be read: then all before it is in, and the count says so.
        self.store.write(&batch)?;
        self.sum.records += records;
        self.sum.bytes += bytes;
        progress.end();
        read
    }
}
