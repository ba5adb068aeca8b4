//! `import` and `export`.

use super::keys::RangeArgs;
use super::{FamilyArgs, family, open_to_read, open_to_write};
use crate::formats::Format;
use crate::{Error, Result, input, output};
use bench::host::now_ns;
use bench::report::{human_bytes, human_count};
use clap::Args;
use lavastore::{ColumnFamily, Db, WriteBatch};
use serde_json::json;
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
pub struct ExportArgs {
    /// File to write [default: standard output]
    file: Option<PathBuf>,
    /// Format [default: by the file's name, else tsv]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    range: RangeArgs,
    /// Print the result as JSON (only with a file)
    #[arg(long, requires = "file")]
    json: bool,
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
    entries.seek_to_first()?;
    let (mut records, mut bytes) = (0u64, 0u64);
    while entries.valid() && records < args.range.limit() {
        let (key, value) = (entries.key(), entries.value()?);
        format.write(out.as_mut(), key, value)?;
        records += 1;
        bytes += (key.len() + value.len()) as u64;
        entries.next()?;
    }
    out.flush()?;
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    if args.file.is_none() {
        return Ok(());
    }
    let report = json!({ "records": records, "bytes": bytes, "seconds": seconds });
    output::report(args.json, &report, || {
        format!("exported {} records, {}, in {seconds:.2} s\n", human_count(records), human_bytes(bytes))
    })
}
