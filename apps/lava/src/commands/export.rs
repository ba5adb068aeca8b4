//! `export`: records in key order.
//!
//! An export stops at the first unreadable data. With `--skip-damaged` it continues behind it:
//! behind the key range of a table, or behind the key of a value. The keys in a damaged table are
//! unknown, so the report names the exported keys before and after the gap. The exit status then
//! says that the export is incomplete.

mod target;

use super::keys::RangeArgs;
use super::{family, open_to_read, read_whole};
use crate::formats::Format;
use crate::formats::escape::escape;
use crate::input::Progress;
use crate::status::{Status, failure, with_message};
use crate::{Error, Result, interrupt, output};
use bench::host::now_ns;
use bench::report::{counted, human_bytes};
use clap::Args;
use lavastore::{Cursor, ErrorKind};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use target::ExportTarget;

/// Options of `export`.
#[derive(Args)]
pub struct ExportArgs {
    /// Output file, compressed if its name ends in .gz, .lz4 or .zst; it appears only when it is
    /// complete [default, and -: standard output]
    file: Option<PathBuf>,
    /// Replace an existing file, once the export is complete. Without it an existing file is
    /// refused. Only with a file
    #[arg(long, requires = "file")]
    force: bool,
    /// Format [default: by the file's name, which is refused if it tells none; tsv for standard
    /// output]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    range: RangeArgs,
    /// Continue behind unreadable data; report the file and the missing keys on standard error
    /// (with --json: also as left_out in the result); exit status 3. Without it the export ends
    /// there
    #[arg(long)]
    skip_damaged: bool,
    /// Print the result as JSON: records, bytes, seconds, left_out (only with a file)
    #[arg(long, requires = "file")]
    json: bool,
}

/// Data that an export could not read.
struct LeftOut {
    error: lavastore::Error,
    /// The exported key before the gap, if any.
    after: Option<Vec<u8>>,
    /// The key behind the gap, if any.
    before: Option<Vec<u8>>,
    /// The key, if only its value is unreadable.
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

/// Result of an export.
#[derive(Default)]
struct Exported {
    records: u64,
    bytes: u64,
    left_out: Vec<LeftOut>,
    last_key: Option<Vec<u8>>,
}

impl Exported {
    /// Writes an entry and remembers its key.
    fn write(&mut self, out: &mut dyn Write, format: Format, key: &[u8], value: &[u8]) -> Result<()> {
        format.write(out, key, value)?;
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    /// Skips unreadable data after a failed move, as long as moves fail.
    fn pass(&mut self, entries: &mut Cursor, mut moved: lavastore::Result<()>, skip: bool) -> Result<()> {
        let first = self.left_out.len();
        while let Err(error) = moved {
            if !skip || !is_of_reading(&error) {
                return Err(stopped(error, skip));
            }
            moved = entries.skip_damaged();
            // The end of the unreadable part is unknown.
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

/// Returns true for errors of unreadable files.
fn is_of_reading(error: &lavastore::Error) -> bool {
    use ErrorKind::{Corruption, Io, NotFound, Unsupported};
    matches!(error.kind(), Corruption | Io | NotFound | Unsupported)
}

/// Returns the error that ends an export; it names the option that would continue.
fn stopped(error: lavastore::Error, skip: bool) -> Error {
    match !skip && is_of_reading(&error) {
        true => with_message(error, |error| format!("{error}; pass --skip-damaged to continue after it")),
        false => error.into(),
    }
}

/// Writes records in key order.
pub fn export(db: Option<PathBuf>, args: &ExportArgs) -> Result<()> {
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    if args.json && file.is_none() {
        return output::usage("--json reports on an export to a file: name an output file");
    }
    let format = format_of(file, args.format)?;
    let store = open_to_read(db)?;
    let family = family(&store, args.range.family())?;
    let start_ns = now_ns();
    let mut out = match file {
        Some(file) => ExportTarget::file(file, args.force)?,
        None => ExportTarget::stdout(),
    };
    let mut entries = args.range.of(&family)?.cursor()?;
    // On a screen, the records themselves show progress.
    let progress = file.map(|file| Progress::new(&file.display().to_string(), 0));
    let mut sum = Exported::default();
    let moved = entries.seek_to_first();
    sum.pass(&mut entries, moved, args.skip_damaged)?;
    interrupt::watch();
    while entries.valid() && sum.records < args.range.limit() {
        if interrupt::requested() {
            // Dropping the target removes the partial file.
            return Err(stopped_by_signal(&sum, file));
        }
        let before = sum.bytes;
        match entries.value() {
            Ok(value) => sum.write(out.as_write(), format, entries.key(), value)?,
            Err(error) if args.skip_damaged && is_of_reading(&error) => {
                let key = Some(entries.key().to_vec());
                sum.left_out.push(LeftOut { error, after: None, before: None, key });
            }
            Err(error) => return Err(stopped(error, args.skip_damaged)),
        }
        if let Some(progress) = &progress {
            progress.add(sum.bytes - before);
        }
        let moved = entries.next();
        sum.pass(&mut entries, moved, args.skip_damaged)?;
    }
    out.finish()?;
    if let Some(progress) = progress {
        progress.end();
    }
    told(args, file.is_some(), &sum, (now_ns() - start_ns) as f64 / 1e9)?;
    read_whole(&store)
}

/// Returns the error of an interrupted export.
fn stopped_by_signal(sum: &Exported, file: Option<&Path>) -> Error {
    let records = counted(sum.records, "record");
    let on = match (file, &sum.last_key) {
        (Some(file), _) => format!("; {} was not written", file.display()),
        (None, Some(key)) => format!("; --escaped --from '{}' continues with the last record", escape(key)),
        (None, None) => String::new(),
    };
    format!("interrupted after {records}{on}").into()
}

/// Returns the requested format, or that of the file's name. An ambiguous name is refused, because
/// other programs rely on the extension.
fn format_of(file: Option<&Path>, asked: Option<Format>) -> Result<Format> {
    let Some(file) = file else { return Ok(asked.unwrap_or(Format::Tsv)) };
    match asked.or_else(|| Format::of_name(file)) {
        Some(format) => Ok(format),
        // A pipe, a terminal or a device.
        None if file.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir()) => Ok(Format::Tsv),
        None => output::usage(format!(
            "the name {} tells no record format: name it .tsv, .jsonl or Packages, or pass --format",
            file.display()
        )),
    }
}

/// Prints the result of an export and its gaps.
fn told(args: &ExportArgs, to_file: bool, sum: &Exported, seconds: f64) -> Result<()> {
    for gap in &sum.left_out {
        output::tell(&output::one_line(&gap.text()));
    }
    if to_file {
        let left_out: Vec<Value> = sum.left_out.iter().map(LeftOut::json).collect();
        let report = json!({
            "records": sum.records, "bytes": sum.bytes, "seconds": seconds, "left_out": left_out,
        });
        output::report(args.json, &report, || {
            let (records, bytes) = (counted(sum.records, "record"), human_bytes(sum.bytes));
            format!("exported {records}, {bytes}, in {seconds:.2} s\n")
        })?;
    }
    match sum.left_out.len() {
        0 => Ok(()),
        count => {
            let (places, were) =
                (counted(count as u64, "damaged place"), if count == 1 { "was" } else { "were" });
            let what = format!(
                "the export is incomplete: {places} {were} left out, as listed; the output has all other records"
            );
            Err(failure(Status::NotWhole, what))
        }
    }
}
