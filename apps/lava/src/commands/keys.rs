//! `put`, `get`, `del`, `scan`.

use super::create::{CreateArgs, open_or_create};
use super::{FamilyArgs, directory, family, open_to_read, open_to_write, read_whole};
use crate::formats::{escape, jsonl, tsv};
use crate::status::{Status, about, failure};
use crate::{Result, input, output};
use clap::Args;
use lavastore::{Durability, Family, Iter, WriteBatch, WriteOptions};
use serde_json::{Map, Value, json};
use std::io::{Read, Seek, Write};
use std::ops::Bound;
use std::path::PathBuf;

/// Bytes of a value held in memory at a time.
const PIECE_LEN: usize = 1 << 20;

/// Encoding of keys and values.
#[derive(Args)]
pub struct TextArgs {
    /// Keys and values on the command line contain escapes: \t \n \r \\ \xHH. Without it a
    /// backslash is an ordinary character. No effect on the contents of --file
    #[arg(short, long)]
    escaped: bool,
    /// Column family, which must exist [default: default]
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
}

impl TextArgs {
    fn bytes(&self, text: &str) -> Result<Vec<u8>> {
        if !self.escaped {
            return Ok(text.as_bytes().to_vec());
        }
        escape::unescape(text.as_bytes()).or_else(|e| output::usage(format!("{text}: {e}")))
    }
}

/// Options of `put`.
#[derive(Args)]
pub struct PutArgs {
    /// Key, at most 65536 bytes
    key: String,
    /// Value, at most 1 GiB [default: from --file]
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    value: Option<String>,
    /// Read the value from this file (-: standard input) as it is, instead of VALUE. A large value
    /// takes little memory
    #[arg(long)]
    file: Option<PathBuf>,
    /// Make the write itself durable, before the store is closed. The close makes it durable too,
    /// so that this rarely matters
    #[arg(long)]
    sync: bool,
    /// Print a JSON object with the written key; without it a successful command prints nothing
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    text: TextArgs,
    #[command(flatten)]
    create: CreateArgs,
    #[command(flatten)]
    options: FamilyArgs,
}

/// Sets a key.
pub fn put(db: Option<PathBuf>, args: PutArgs) -> Result<()> {
    let key = args.text.bytes(&args.key)?;
    // A value from a file may be large: it is not held in memory.
    let mut value: Box<dyn Read> = match (&args.value, &args.file) {
        (None, Some(file)) => input::open_raw(file).map_err(|e| about(file.display(), e))?.0,
        // The parser requires one of the two.
        (value, _) => Box::new(std::io::Cursor::new(args.text.bytes(value.as_deref().unwrap_or_default())?)),
    };
    let store = open_or_create(&directory(db)?, &args.create)?;
    let family = family(&store, args.text.family.as_deref())?;
    args.options.apply(&family)?;
    let durability = args.sync.then_some(Durability::Durable);
    let mut writer =
        family.writing(&WriteOptions { durability, ..WriteOptions::default() }).put_stream(&key)?;
    let bytes = std::io::copy(&mut value, &mut writer)?;
    writer.finish()?;
    drop(family);
    store.close()?;
    if !args.json {
        return Ok(());
    }
    let mut object = Map::new();
    jsonl::insert(&mut object, "key", &key);
    object.insert("value_bytes".to_owned(), bytes.into());
    object.insert("synced".to_owned(), args.sync.into());
    output::report(true, &Value::Object(object), String::new)
}

/// Options of `get`.
#[derive(Args)]
pub struct GetArgs {
    /// Key, at most 65536 bytes; with --escaped it may contain any bytes
    key: String,
    /// Print the value without a trailing newline. Without it a newline follows, unless the value
    /// ends with one. No effect with --json
    #[arg(long)]
    raw: bool,
    /// Print a JSON object: key and value, or key_b64 and value_b64 (base64) for bytes that are not
    /// UTF-8
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    text: TextArgs,
}

/// Prints a value.
pub fn get(db: Option<PathBuf>, args: &GetArgs) -> Result<()> {
    let key = args.text.bytes(&args.key)?;
    let store = open_to_read(db)?;
    let family = family(&store, args.text.family.as_deref())?;
    let Some(mut value) = family.get_stream(&key)? else {
        read_whole(&store)?;
        let what = format!("key not found: {} (column family {})", escape::escape(&key), family.name());
        return Err(failure(Status::KeyNotFound, what));
    };
    let mut out = output::stdout();
    if args.json {
        jsonl::write_streamed(&mut out, &key, &mut |take| each_piece(&mut value, take))?;
        out.flush()?;
        return read_whole(&store);
    }
    let mut last = None;
    each_piece(&mut value, &mut |piece| {
        last = piece.last().copied();
        Ok(out.write_all(piece)?)
    })?;
    if !args.raw && last != Some(b'\n') {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    read_whole(&store)
}

/// Reads a value from its beginning.
fn each_piece(value: &mut (impl Read + Seek), take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    value.rewind()?;
    let mut piece = vec![0; PIECE_LEN];
    loop {
        match value.read(&mut piece)? {
            0 => return Ok(()),
            len => take(&piece[..len])?,
        }
    }
}

/// Options of `del`.
#[derive(Args)]
pub struct DelArgs {
    /// Keys; with --range, the first key and the key behind the last
    #[arg(required_unless_present_any = ["from", "to"])]
    keys: Vec<String>,
    /// Delete every key from the first to before the second of two KEYS, in byte order. Not with
    /// --from or --to
    #[arg(long)]
    range: bool,
    /// Delete every key from this one on, up to before --to, if given. Not with KEYS or --range
    #[arg(long, value_name = "KEY", conflicts_with_all = ["keys", "range"])]
    from: Option<String>,
    /// Delete every key before this one, down to --from, if given. Not with KEYS or --range
    #[arg(long, value_name = "KEY", conflicts_with_all = ["keys", "range"])]
    to: Option<String>,
    /// Print a JSON object with the deleted keys; without it a successful command prints nothing
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    text: TextArgs,
}

/// Deletes keys atomically.
pub fn del(db: Option<PathBuf>, args: &DelArgs) -> Result<()> {
    let keys = args.keys.iter().map(|k| args.text.bytes(k)).collect::<Result<Vec<_>>>()?;
    let bound = |key: &Option<String>| key.as_ref().map(|key| args.text.bytes(key)).transpose();
    let (from, to) = (bound(&args.from)?, bound(&args.to)?);
    let store = open_to_write(db)?;
    let family = family(&store, args.text.family.as_deref())?;
    let mut batch = WriteBatch::new();
    match (args.range, keys.as_slice()) {
        _ if from.is_some() || to.is_some() => {
            let start = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
            _ = batch
                .family(&family)
                .delete_range((start, to.as_deref().map_or(Bound::Unbounded, Bound::Excluded)));
        }
        (true, [start, end]) => _ = batch.family(&family).delete_range(start..end),
        (true, _) => {
            return output::usage(format!(
                "--range needs two keys, the first and the one behind the last, not {}",
                keys.len()
            ));
        }
        (false, keys) => keys.iter().for_each(|key| _ = batch.family(&family).delete(key)),
    }
    store.write(&batch)?;
    drop(family);
    store.close()?;
    if !args.json {
        return Ok(());
    }
    let keys = keys.iter().map(|key| escape::escape(key));
    let bound = |key: Option<Vec<u8>>| key.map(|key| escape::escape(&key));
    let (from, to) = (bound(from), bound(to));
    let report = json!({ "keys": keys.collect::<Vec<_>>(), "range": args.range, "from": from, "to": to });
    output::report(true, &report, String::new)
}

/// Selection of entries.
#[derive(Args)]
pub struct RangeArgs {
    /// Start of the range, inclusive, in byte order [default: the first key]
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// End of the range, exclusive, in byte order [default: behind the last key]
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// Only keys with this prefix; with --from and --to those that are in their range too [default:
    /// all]
    #[arg(long)]
    prefix: Option<String>,
    /// Maximum number of entries, in the order of output; 0: none [default: all]
    #[arg(long)]
    limit: Option<u64>,
    #[command(flatten)]
    text: TextArgs,
}

impl RangeArgs {
    /// Returns the name of the column family.
    pub fn family(&self) -> Option<&str> {
        self.text.family.as_deref()
    }

    /// Returns the maximum number of entries.
    pub fn limit(&self) -> u64 {
        self.limit.unwrap_or(u64::MAX)
    }

    /// Returns an iterator over the selected entries of a family.
    pub fn of(&self, family: &Family) -> Result<Iter> {
        let bytes = |key: &Option<String>| key.as_ref().map(|k| self.text.bytes(k)).transpose();
        let from = bytes(&self.from)?.map_or(Bound::Unbounded, Bound::Included);
        let to = bytes(&self.to)?.map_or(Bound::Unbounded, Bound::Excluded);
        let all = bytes(&self.prefix)?.map_or_else(|| family.iter(), |prefix| family.prefix(prefix));
        Ok(all.within((from, to)))
    }
}

/// Options of `scan`.
#[derive(Args)]
pub struct ScanArgs {
    #[command(flatten)]
    range: RangeArgs,
    /// Print entries in reverse order, from the last key of the range; --limit then counts from
    /// there
    #[arg(long)]
    reverse: bool,
    /// Print keys without values, which reads less from the device
    #[arg(long)]
    keys_only: bool,
    /// Print JSON lines: key and value, or key_b64 and value_b64 (base64) for bytes that are not
    /// UTF-8
    #[arg(long)]
    json: bool,
}

/// Prints entries, one per line: key, tab, value, escaped.
pub fn scan(db: Option<PathBuf>, args: &ScanArgs) -> Result<()> {
    let store = open_to_read(db)?;
    let mut entries = args.range.of(&family(&store, args.range.family())?)?.cursor()?;
    let mut out = output::stdout();
    if args.reverse {
        entries.seek_to_last()?
    } else {
        entries.seek_to_first()?
    }
    for _ in 0..args.range.limit() {
        if !entries.valid() {
            break;
        }
        let value = if args.keys_only { &[] } else { entries.value()? };
        print_entry(&mut out, args, entries.key(), value)?;
        if args.reverse { entries.prev()? } else { entries.next()? }
    }
    out.flush()?;
    read_whole(&store)
}

fn print_entry(out: &mut impl Write, args: &ScanArgs, key: &[u8], value: &[u8]) -> std::io::Result<()> {
    match (args.keys_only, args.json) {
        (true, true) => {
            let mut object = Map::new();
            jsonl::insert(&mut object, "key", key);
            writeln!(out, "{}", Value::Object(object))
        }
        (true, false) => writeln!(out, "{}", escape::escape(key)),
        (false, true) => jsonl::write(out, key, value),
        (false, false) => tsv::write(out, key, value),
    }
}
