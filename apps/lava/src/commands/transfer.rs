//! `import` and `export`.
//!
//! An export stops at the first thing that it cannot read. Told to, it goes on behind it: for a table that is the whole range
//! of its keys, for a value that is its key. What is left out is told by the keys that were written before and behind it, as
//! nobody knows which keys were between them; then the exit status says that the export is not whole.

use super::keys::RangeArgs;
use super::{FamilyArgs, family, open_to_read, open_to_write};
use crate::formats::Format;
use crate::formats::escape::escape;
use crate::{Error, Result, input, output};
use bench::host::now_ns;
use bench::report::{human_bytes, human_count};
use clap::Args;
use lavastore::{ColumnFamily, Db, DbIterator, ErrorKind, WriteBatch};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Bytes of a batch while importing.
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
}

/// Reads records from files into the store. Later records replace earlier ones with the same key.
pub fn import(db: Option<PathBuf>, args: &ImportArgs) -> Result<()> {
    let formats = args.files.iter().map(|file| format_of(file, args.format)).collect::<Result<Vec<_>>>()?;
    let store = open_to_write(db, true)?;
    let family = match &args.family {
        Some(name) if store.column_family(name).is_none() => {
            store.create_column_family(name, lavastore::FamilyOptions::default())?
        }
        name => family(&store, name.as_deref())?,
    };
    args.options.apply(&store, &family)?;
    let start_ns = now_ns();
    let mut sum = Imported::default();
    for (file, format) in args.files.iter().zip(formats) {
        import_file(&store, &family, file, format, &mut sum).map_err(|e| {
            Error::from(format!("{}: {e} ({} records imported before)", file.display(), sum.records))
        })?;
    }
    store.flush()?;
    store.close()?;
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    let report =
        json!({ "files": args.files.len(), "records": sum.records, "bytes": sum.bytes, "seconds": seconds });
    output::report(args.json, &report, || {
        format!(
            "imported {} records, {}, in {seconds:.2} s\n",
            human_count(sum.records),
            human_bytes(sum.bytes)
        )
    })
}

fn format_of(file: &Path, given: Option<Format>) -> Result<Format> {
    match given.or_else(|| Format::of_name(file)) {
        Some(format) => Ok(format),
        None => output::usage(format!("{} does not tell its format: give it with --format", file.display())),
    }
}

fn import_file(
    store: &Db,
    family: &ColumnFamily,
    file: &Path,
    format: Format,
    sum: &mut Imported,
) -> Result<()> {
    let (input, progress) = input::open(file)?;
    let mut batch = WriteBatch::new();
    let (mut records, mut bytes) = (0, 0);
    for record in format.read(input) {
        let (key, value) = record?;
        batch.put_cf(family, &key, &value);
        records += 1;
        bytes += (key.len() + value.len()) as u64;
        if batch.byte_len() >= BATCH_LEN {
            store.write(&batch)?;
            batch.clear();
            sum.records += std::mem::take(&mut records);
            sum.bytes += std::mem::take(&mut bytes);
        }
    }
    store.write(&batch)?;
    sum.records += records;
    sum.bytes += bytes;
    progress.end();
    Ok(())
}

/// Options of `export`.
#[derive(Args)]
#[command(
    after_help = "Exit status: 0 all was written, 1 an error, 2 wrong usage, 3 with --skip-damaged: something was left out."
)]
pub struct ExportArgs {
    /// File to write [default: standard output]
    file: Option<PathBuf>,
    /// Format [default: by the file's name, else tsv]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    range: RangeArgs,
    /// Go on behind what cannot be read; say on standard error (with --json: also in the result, as left_out) which file
    /// it was in and which keys are missing; then end with exit status 3
    #[arg(long)]
    skip_damaged: bool,
    /// Print the result as JSON (only with a file)
    #[arg(long, requires = "file")]
    json: bool,
}

/// What an export could not read.
struct LeftOut {
    error: lavastore::Error,
    /// The key before it, if any was written.
    after: Option<Vec<u8>>,
    /// The key behind it, if any was read.
    before: Option<Vec<u8>>,
    /// The key, where only its value cannot be read.
    key: Option<Vec<u8>>,
}

impl LeftOut {
    fn file(&self) -> String {
        self.error.file().map_or_else(|| "a file".to_owned(), |file| file.display().to_string())
    }

    fn text(&self) -> String {
        let end = |key: &Option<Vec<u8>>, none: &str| key.as_deref().map_or(none.to_owned(), escape);
        let keys = match &self.key {
            Some(key) => format!("the key {}", escape(key)),
            None => format!(
                "the keys after {} and before {}",
                end(&self.after, "the start"),
                end(&self.before, "the end")
            ),
        };
        format!("left out because of {}: {keys}: {}", self.file(), self.error)
    }

    fn json(&self) -> Value {
        let text = |key: &Option<Vec<u8>>| key.as_deref().map(escape);
        json!({
            "file": self.error.file().map(|file| file.display().to_string()),
            "key": text(&self.key),
            "after_key": text(&self.after),
            "before_key": text(&self.before),
            "error": self.error.to_string(),
        })
    }
}

/// What an export did.
#[derive(Default)]
struct Exported {
    records: u64,
    bytes: u64,
    left_out: Vec<LeftOut>,
    last_key: Option<Vec<u8>>,
}

impl Exported {
    /// Writes the entry, and remembers its key.
    fn write(&mut self, out: &mut dyn Write, format: Format, key: &[u8], value: &[u8]) -> Result<()> {
        format.write(out, key, value)?;
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    /// Goes on behind what a move could not read, as long as it is that.
    fn pass(&mut self, entries: &mut DbIterator, mut moved: lavastore::Result<()>, skip: bool) -> Result<()> {
        let first = self.left_out.len();
        while let Err(error) = moved {
            if !skip || !is_of_reading(&error) {
                return Err(stopped(error, skip));
            }
            moved = entries.skip_damaged();
            // Nobody knows where it ends.
            if matches!(&moved, Err(e) if e.kind() == ErrorKind::InvalidArgument) {
                return Err(error.into());
            }
            let after = self.last_key.clone();
            self.left_out.push(LeftOut { error, after, before: None, key: None });
        }
        let behind = entries.valid().then(|| entries.key());
        for gap in self.left_out.iter_mut().skip(first) {
            gap.before = behind.map(<[u8]>::to_vec);
        }
        Ok(())
    }
}

/// True for the kinds of errors that come of a file that cannot be read.
fn is_of_reading(error: &lavastore::Error) -> bool {
    use ErrorKind::{Corruption, Io, NotFound, Unsupported};
    matches!(error.kind(), Corruption | Io | NotFound | Unsupported)
}

/// The error that ends an export; it says what would not stop there.
fn stopped(error: lavastore::Error, skip: bool) -> Error {
    match !skip && is_of_reading(&error) {
        true => format!("{error}; --skip-damaged goes on behind it").into(),
        false => error.into(),
    }
}

/// Writes records in key order.
pub fn export(db: Option<PathBuf>, args: &ExportArgs) -> Result<()> {
    let by_name = args.file.as_deref().and_then(Format::of_name);
    let format = args.format.or(by_name).unwrap_or(Format::Tsv);
    let options = args.range.read_options()?;
    let store = open_to_read(db)?;
    let family = family(&store, args.range.family())?;
    let start_ns = now_ns();
    let mut out: Box<dyn Write> = match &args.file {
        Some(file) => Box::new(output::create_file(file)?),
        None => Box::new(output::stdout()),
    };
    let mut entries = store.iter_cf(&family, options)?;
    let mut sum = Exported::default();
    let moved = entries.seek_to_first();
    sum.pass(&mut entries, moved, args.skip_damaged)?;
    while entries.valid() && sum.records < args.range.limit() {
        match entries.value() {
            Ok(value) => sum.write(out.as_mut(), format, entries.key(), value)?,
            Err(error) if args.skip_damaged && is_of_reading(&error) => {
                let key = Some(entries.key().to_vec());
                sum.left_out.push(LeftOut { error, after: None, before: None, key });
            }
            Err(error) => return Err(stopped(error, args.skip_damaged)),
        }
        let moved = entries.next();
        sum.pass(&mut entries, moved, args.skip_damaged)?;
    }
    out.flush()?;
    told(args, &sum, (now_ns() - start_ns) as f64 / 1e9)
}

/// Prints what was exported, and what not.
fn told(args: &ExportArgs, sum: &Exported, seconds: f64) -> Result<()> {
    for gap in &sum.left_out {
        eprintln!("lava: {}", output::one_line(&gap.text()));
    }
    if args.file.is_some() {
        let left_out: Vec<Value> = sum.left_out.iter().map(LeftOut::json).collect();
        let report = json!({
            "records": sum.records, "bytes": sum.bytes, "seconds": seconds, "left_out": left_out,
        });
        output::report(args.json, &report, || {
            let (records, bytes) = (human_count(sum.records), human_bytes(sum.bytes));
            format!("exported {records} records, {bytes}, in {seconds:.2} s\n")
        })?;
    }
    match sum.left_out.len() {
        0 => Ok(()),
        count => output::not_whole(format!("the export is not whole: {count} damaged places were left out")),
    }
}
