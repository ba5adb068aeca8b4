//! `log`: logs of a store, records by LSN.
//!
//! Commands that only read open the store for reading, so they work while another process has it
//! open, and see earlier acknowledged records. `tail -f` reopens the store whenever one of its
//! files changed. A record that moves while it is read is read again.

use super::checkpoint::{CheckpointArgs, take};
use super::create::{CreateArgs, may_have_logs, tell_if_new};
use super::fs::size;
use super::log_repair::{self, LogRepairArgs};
use super::place::{StoreLocation, parts, volume_of};
use super::{directory, is_whole};
use crate::formats::lines::Lines;
use crate::formats::{ReadError, escape, jsonl};
use crate::status::{Status, failure, with_message};
use crate::{Error, Result, interrupt, nearest, output, progress};
use bench::report::{counted, human_bytes, human_count};
use clap::{Args, Subcommand};
use lavastore::{
    CheckpointOptions, ErrorKind, Log, LogBatch, LogCheckedCount, LogDamage, LogOptions, LogStatistics,
    LogStore, LogVerifyReport, LostRecords, Lsn, VerifyOptions, WriteOptions,
};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Group size of a store created by the command line.
const GROUP_BYTES: u64 = 16 << 20;
/// Records and bytes per batch of standard input.
const BATCH_RECORDS: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;
/// Default number of records printed by `tail`.
const TAIL_RECORDS: u64 = 10;
/// Interval between two polls of `tail -f`.
const LOOK_NS: u64 = 200_000_000;
/// Maximum number of retries for records that move while they are read.
const LOOKS_MAX: u32 = 20;
/// Maximum number of gaps counted by `stat`.
const GAPS_MAX: usize = 1000;

/// The commands.
#[derive(Subcommand)]
pub enum LogCommand {
    /// Append records to a log, durably; creates a missing log and a missing store
    Append(AppendArgs),
    /// Print a record; exit status 4 if it does not exist or was trimmed
    Read(ReadArgs),
    /// Print the last records of a log, or those from an LSN on, one per line: LSN, tab, record,
    /// with escapes
    Tail(TailArgs),
    /// Remove all records below an LSN for good, durably
    Trim(TrimArgs),
    /// List the logs: first LSN, last LSN, name
    Ls(ListArgs),
    /// Show statistics of all logs, or of one
    Stat(StatArgs),
    /// Read and check all files and records; exit status 5 if any is damaged, with a list of the
    /// losses
    Verify(ListArgs),
    /// Make a consistent copy of the store of logs in another directory. Another process may have
    /// the store open, but not on a LavaFS volume
    Checkpoint(CheckpointArgs),
    /// Salvage the undamaged records into a new store; exit status 5 if data is lost
    Repair(LogRepairArgs),
}

/// Runs a command.
pub fn run(db: Option<PathBuf>, command: LogCommand) -> Result<()> {
    match command {
        LogCommand::Append(args) => append(db, &args),
        LogCommand::Read(args) => read(db, &args),
        LogCommand::Tail(args) => tail(db, &args),
        LogCommand::Trim(args) => trim(db, &args),
        LogCommand::Ls(args) => ls(db, &args),
        LogCommand::Stat(args) => stat(db, &args),
        LogCommand::Verify(args) => verify(db, &args),
        LogCommand::Checkpoint(args) => checkpoint(db, &args),
        LogCommand::Repair(args) => log_repair::run(db, &args),
    }
}

/// Returns the options of the command line for logs.
pub fn options(create: bool) -> LogOptions {
    LogOptions { group_bytes: Some(GROUP_BYTES), create_if_missing: create, ..LogOptions::default() }
}

fn open(place: &StoreLocation, create: bool) -> lavastore::Result<LogStore> {
    LogStore::open_in(&place.env, &place.dir, &options(create))
}

/// Reads the store of logs named by the user, even while a process writes it: see [`looked`].
fn look(db: Option<PathBuf>, read: impl Fn(&LogStore) -> Result<()>) -> Result<()> {
    let (done, whole) = looked(&directory(db)?, read)?;
    // A record that is not found may be behind the damage.
    whole.and(done)
}

/// Reads a store of logs, again if its data moves meanwhile. The second result is damage of the log
/// or the manifest: only the state before it was shown, and the user must not take that for all
/// data.
pub fn looked<T>(db: &Path, read: impl Fn(&LogStore) -> Result<T>) -> Result<(Result<T>, Result<()>)> {
    let place = StoreLocation::to_read(db)?;
    let mut looks = 0;
    loop {
        looks += 1;
        let store = LogStore::open_read_only_in(&place.env, &place.dir, &options(false))?;
        match read(&store) {
            Err(e) if is_busy(&e) && looks < LOOKS_MAX => {}
            done => return Ok((done, is_whole(&store.damage()))),
        }
    }
}

/// Returns true if the data has moved since the store was opened.
fn is_busy(e: &Error) -> bool {
    e.downcast_ref::<lavastore::Error>().is_some_and(|e| e.kind() == ErrorKind::Busy)
}

/// Opens the store of logs named by the user.
fn open_store(db: Option<PathBuf>) -> Result<LogStore> {
    Ok(open(&StoreLocation::to_write(&directory(db)?)?, false)?)
}

/// Returns the log with this name.
fn open_log(store: &LogStore, name: &str) -> Result<Log> {
    store.open_log(name).map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            let names = store.log_names();
            with_message(e, |e| format!("{e}{}", nearest::tip(name, names.iter().map(String::as_str))))
        }
        _ => e.into(),
    })
}

/// Options of `log append`.
#[derive(Args)]
pub struct AppendArgs {
    /// Name of the log, at most 1024 bytes; created if missing
    log: String,
    /// Records, at most 16777216 bytes each [default: each line of standard input, without its
    /// newline]
    records: Vec<String>,
    /// LSN (record number) of the first record, 0 to 18446744073709551614; the others follow. An
    /// LSN that is trimmed or has another record is refused [default: one more than the last LSN of
    /// the log; 1 if it is new]
    #[arg(long)]
    lsn: Option<Lsn>,
    /// Records contain escapes: \t \n \r \\ \xHH. Without it a backslash is an ordinary character
    #[arg(short, long)]
    escaped: bool,
    /// Longest line of standard input in bytes: a number, alone or with K, M, G or T (powers of
    /// 1024). A longer line ends the command, and the lines before it are appended. No effect on
    /// RECORDS
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64M")]
    line_bytes_max: u64,
    #[command(flatten)]
    create: CreateArgs,
    /// Print a JSON object with the appended LSNs; without it a successful command prints nothing
    #[arg(long)]
    json: bool,
}

impl AppendArgs {
    fn bytes(&self, text: &[u8]) -> Result<Vec<u8>> {
        if !self.escaped {
            return Ok(text.to_vec());
        }
        let of = |e: String| output::usage(format!("{}: {e}", String::from_utf8_lossy(text)));
        escape::unescape(text).or_else(of)
    }
}

fn append(db: Option<PathBuf>, args: &AppendArgs) -> Result<()> {
    let given = args.records.iter().map(|text| args.bytes(text.as_bytes())).collect::<Result<Vec<_>>>()?;
    let db = directory(db)?;
    let place = StoreLocation::to_write(&db)?;
    let is_there = may_have_logs(&db, &place, &args.create)?;
    let store = open(&place, true)?;
    tell_if_new(&db, is_there);
    let log = store.log(&args.log)?;
    let first = match args.lsn {
        Some(lsn) => lsn,
        None => log.last_lsn()?.map_or(1, |last| last.saturating_add(1)),
    };
    let (next, read) = match given.is_empty() {
        true => append_lines(&store, &log, first, args),
        false => (append_batch(&store, &log, first, &given)?, Ok(())),
    };
    drop(log);
    store.sync()?;
    store.close()?;
    read?;
    if !args.json {
        return Ok(());
    }
    let last = (next > first).then(|| next - 1);
    let report = json!({ "log": args.log, "records": next - first, "first_lsn": last.map(|_| first), "last_lsn": last });
    output::report(true, &report, String::new)
}

/// Appends the lines of standard input up to its end or to a failure. Returns the next LSN and the
/// error.
fn append_lines(store: &LogStore, log: &Log, first: Lsn, args: &AppendArgs) -> (Lsn, Result<()>) {
    interrupt::watch();
    let limit = usize::try_from(args.line_bytes_max).unwrap_or(usize::MAX);
    let mut lines = Lines::new(Box::new(std::io::stdin().lock()), limit);
    let mut next = first;
    let told = |next: Lsn, error: Error| {
        let done = counted(next - first, "record");
        let error = if interrupt::requested() { "interrupted".to_owned() } else { error.to_string() };
        with_message(error, |error| format!("standard input: {error} ({done} appended before)"))
    };
    loop {
        let (batch, read) = read_batch(&mut lines, args);
        // Appends the lines before an unreadable one too.
        match append_batch(store, log, next, &batch) {
            Ok(behind) => next = behind,
            Err(e) => return (next, Err(told(next, e))),
        }
        match read {
            Ok(true) => {}
            Ok(false) => return (next, Ok(())),
            Err(e) => return (next, Err(told(next, e))),
        }
    }
}

/// Reads the lines of a batch; returns false at the end of the input.
fn read_batch(lines: &mut Lines<'_>, args: &AppendArgs) -> (Vec<Vec<u8>>, Result<bool>) {
    let (mut batch, mut len) = (Vec::new(), 0);
    while batch.len() < BATCH_RECORDS && len < BATCH_BYTES {
        let mut line = Vec::new();
        match lines.read(&mut line) {
            Ok(true) => {}
            Ok(false) => return (batch, Ok(false)),
            Err(ReadError::Malformed(_)) => {
                let (limit, line) = (human_count(args.line_bytes_max), lines.number());
                let what = format!("line {line} has more than {limit} bytes; raise --line-bytes-max");
                return (batch, Err(what.into()));
            }
            Err(error) => return (batch, Err(error.into())),
        }
        match args.bytes(&line) {
            Ok(record) => {
                len += record.len();
                batch.push(record);
            }
            Err(error) => return (batch, Err(error)),
        }
    }
    (batch, Ok(!interrupt::requested()))
}

/// Appends consecutive records; returns the next LSN.
fn append_batch(store: &LogStore, log: &Log, first: Lsn, records: &[Vec<u8>]) -> Result<Lsn> {
    let mut batch = LogBatch::new();
    let mut next = first;
    for record in records {
        batch.append(log, next, record);
        next = next.checked_add(1).ok_or_else(|| {
            failure(Status::Usage, "the log has no LSN left (the last one is 18446744073709551614), so this batch was not appended: use another log")
        })?;
    }
    store.write_with(&batch, &WriteOptions::buffered())?;
    Ok(next)
}

/// Options of `log read`.
#[derive(Args)]
pub struct ReadArgs {
    /// Name of the log, which must exist
    log: String,
    /// LSN (record number) of the record
    lsn: Lsn,
    /// Print the record without a trailing newline. Without it a newline follows, unless the record
    /// ends with one. No effect with --json
    #[arg(long)]
    raw: bool,
    /// Print a JSON object: lsn and record, or record_b64 (base64) for bytes that are not UTF-8
    #[arg(long)]
    json: bool,
}

fn read(db: Option<PathBuf>, args: &ReadArgs) -> Result<()> {
    look(db, |store| read_from(store, args))
}

fn read_from(store: &LogStore, args: &ReadArgs) -> Result<()> {
    let record = match open_log(store, &args.log)?.read(args.lsn) {
        Err(e) if e.kind() == ErrorKind::Trimmed => {
            return Err(failure(
                Status::KeyNotFound,
                format!(
                    "record {} of log {} was trimmed and is gone: read a later one (lava log stat shows the first)",
                    args.lsn, args.log
                ),
            ));
        }
        record => record?,
    };
    let Some(record) = record else {
        let what = format!(
            "record not found: the log {} has no record with LSN {} (lava log stat shows its LSNs)",
            args.log, args.lsn
        );
        return Err(failure(Status::KeyNotFound, what));
    };
    let mut out = output::stdout();
    if args.json {
        print_record(&mut out, true, args.lsn, &record)?;
    } else {
        out.write_all(&record)?;
        // Ends the line, as `get` does.
        if !args.raw && record.last() != Some(&b'\n') {
            out.write_all(b"\n")?;
        }
    }
    Ok(out.flush()?)
}

fn print_record(out: &mut impl Write, json: bool, lsn: Lsn, record: &[u8]) -> std::io::Result<()> {
    if !json {
        return writeln!(out, "{lsn}\t{}", escape::escape(record));
    }
    let mut object = Map::new();
    object.insert("lsn".to_owned(), lsn.into());
    jsonl::insert(&mut object, "record", record);
    writeln!(out, "{}", Value::Object(object))
}

/// Options of `log tail`.
#[derive(Args)]
pub struct TailArgs {
    /// Name of the log, which must exist
    log: String,
    /// Maximum number of records, in all, also with --follow [default: 10 to begin with; with
    /// --from: all]
    #[arg(short = 'n', long, value_name = "RECORDS")]
    limit: Option<u64>,
    /// First LSN (record number) to print; trimmed and missing records are passed over [default:
    /// the last --limit records]
    #[arg(long, value_name = "LSN")]
    from: Option<Lsn>,
    /// Wait for records of other processes until interrupted, or until --limit records are printed.
    /// The store is opened again after each change
    #[arg(short, long)]
    follow: bool,
    /// Print JSON lines instead of text: lsn and record, or record_b64 (base64) for bytes that are
    /// not UTF-8
    #[arg(long)]
    json: bool,
}

fn tail(db: Option<PathBuf>, args: &TailArgs) -> Result<()> {
    let db = directory(db)?;
    let (mut left, mut from, mut looks) = (args.limit.unwrap_or(u64::MAX), args.from, 0);
    let mut out = output::stdout();
    loop {
        let place = StoreLocation::to_read(&db)?;
        let store = LogStore::open_read_only_in(&place.env, &place.dir, &options(false))?;
        match print_from(&store, args, &mut from, &mut left, &mut out) {
            // Records have moved; the next poll finds them.
            Err(e) if is_busy(&e) && looks < LOOKS_MAX => {
                looks += 1;
                continue;
            }
            printed => {
                out.flush()?;
                is_whole(&store.damage()).and(printed)?;
            }
        }
        looks = 0;
        drop(store);
        if !args.follow || left == 0 {
            return Ok(());
        }
        let clock = place.env.clock.clone();
        drop(place);
        wait_for_changes(&db, || clock.sleep_ns(LOOK_NS));
    }
}

/// Prints records from an LSN on, or the last ones, and updates the next LSN and the remaining
/// count.
fn print_from(
    store: &LogStore,
    args: &TailArgs,
    from: &mut Option<Lsn>,
    left: &mut u64,
    out: &mut impl Write,
) -> Result<()> {
    let log = open_log(store, &args.log)?;
    let next = from.map_or_else(|| nth_last(&log, args.limit.unwrap_or(TAIL_RECORDS)), Ok)?;
    *from = Some(next);
    let mut records = log.scan(next..);
    while *left > 0
        && let Some(record) = records.next()
    {
        let (lsn, bytes) = record?;
        print_record(out, args.json, lsn, &bytes)?;
        (*left, *from) = (*left - 1, Some(lsn.saturating_add(1)));
    }
    Ok(())
}

/// Returns the LSN of the first of the last `count` records.
fn nth_last(log: &Log, count: u64) -> Result<Lsn> {
    let (Some(first), Some(last)) = (log.first_lsn()?, log.last_lsn()?) else {
        return Ok(log.last_lsn()?.map_or(0, |last| last.saturating_add(1)));
    };
    // LSNs may have gaps: widen the range until it has enough records.
    let mut width = count;
    loop {
        let from = last.saturating_add(1).saturating_sub(width).max(first);
        let mut found = VecDeque::new();
        for record in log.scan(from..) {
            found.push_back(record?.0);
            if found.len() as u64 > count {
                found.pop_front();
            }
        }
        if found.len() as u64 >= count || from == first {
            return Ok(found.front().map_or(last.saturating_add(1), |lsn| *lsn));
        }
        width = width.saturating_mul(4);
    }
}

/// Returns when a file of the store may have changed, and periodically.
fn wait_for_changes(db: &Path, pause: impl Fn()) {
    let seen = changes(db);
    // The system reports no changes of a raw device.
    let looks = if seen.is_empty() { 10 } else { 150 };
    for _ in 0..looks {
        pause();
        if changes(db) != seen {
            return;
        }
    }
}

/// Returns the modification times of the files of the store, or of its image.
#[allow(clippy::disallowed_methods, reason = "looks at the files as any program may, without the store")]
fn changes(db: &Path) -> Vec<(PathBuf, Option<SystemTime>)> {
    let path = volume_of(db).unwrap_or(db);
    let files: Vec<PathBuf> = match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => parts(path).into_iter().filter(|path| path.is_file()).map(Path::to_owned).collect(),
    };
    let changed = |path: &PathBuf| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let mut all: Vec<_> =
        files.into_iter().map(|path| (changed(&path), path)).map(|(at, path)| (path, at)).collect();
    all.sort();
    all
}

/// Options of `log trim`.
#[derive(Args)]
pub struct TrimArgs {
    /// Name of the log, which must exist
    log: String,
    /// Lowest LSN (record number) that stays; all records below it are removed, which cannot be
    /// undone
    below: Lsn,
    /// Print a JSON object with the first remaining LSN; without it a successful command prints
    /// nothing
    #[arg(long)]
    json: bool,
}

fn trim(db: Option<PathBuf>, args: &TrimArgs) -> Result<()> {
    let store = open_store(db)?;
    let log = open_log(&store, &args.log)?;
    log.writing(&WriteOptions::durable()).trim(args.below)?;
    let report = json!({ "log": args.log, "trimmed_below": args.below, "first_lsn": log.first_lsn()? });
    drop(log);
    store.close()?;
    if args.json { output::report(true, &report, String::new) } else { Ok(()) }
}

/// Options of a command that reports on all logs.
#[derive(Args)]
pub struct ListArgs {
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

fn ls(db: Option<PathBuf>, args: &ListArgs) -> Result<()> {
    look(db, |store| list(store, args.json))
}

fn list(store: &LogStore, json: bool) -> Result<()> {
    let mut logs = Vec::new();
    for name in store.log_names() {
        let log = store.open_log(&name)?;
        logs.push((log.id(), log.first_lsn()?, log.last_lsn()?, name));
    }
    let one = |(id, first, last, name): &(u64, Option<Lsn>, Option<Lsn>, String)| json!({ "name": name, "id": id, "first_lsn": first, "last_lsn": last });
    output::report(json, &json!({ "logs": logs.iter().map(one).collect::<Vec<_>>() }), || {
        let number = |lsn: &Option<Lsn>| lsn.map_or("-".to_owned(), |lsn| lsn.to_string());
        let line = |(_, first, last, name): &(u64, Option<Lsn>, Option<Lsn>, String)| {
            format!("{:>20} {:>20}  {}\n", number(first), number(last), escape::escape(name.as_bytes()))
        };
        logs.iter().map(line).collect()
    })
}

/// Options of `log stat`.
#[derive(Args)]
pub struct StatArgs {
    /// Name of the log, for its LSNs, gaps and metadata [default: statistics of all logs together]
    log: Option<String>,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

fn stat(db: Option<PathBuf>, args: &StatArgs) -> Result<()> {
    look(db, |store| match &args.log {
        Some(name) => stat_log(&open_log(store, name)?, name, args.json),
        None => {
            let stats = store.stats();
            output::report(args.json, &stats_json(&stats), || stats_text(&stats))
        }
    })
}

/// Formats the statistics of logs as JSON.
pub fn stats_json(s: &LogStatistics) -> Value {
    json!({
        "logs": s.logs, "record_bytes": s.record_bytes, "index_memory_bytes": s.index_bytes,
        "open_files_max": s.open_files_max, "format": s.format, "format_newest": s.format_newest,
    })
}

/// Formats the statistics of logs as text.
pub fn stats_text(s: &LogStatistics) -> String {
    let mut text = format!("logs                 {}\n", human_count(s.logs));
    let _ = writeln!(text, "records              {}", human_bytes(s.record_bytes));
    let _ = writeln!(text, "index in memory      {}", human_bytes(s.index_bytes));
    if s.open_files_max < LogOptions::default().open_files_max as u64 {
        let _ = writeln!(text, "open files           {} at most: see `ulimit -n`", s.open_files_max);
    }
    text.push_str(&output::format_line(s.format.into(), s.format_newest.into()));
    text
}

fn stat_log(log: &Log, name: &str, json: bool) -> Result<()> {
    let (first, last) = (log.first_lsn()?, log.last_lsn()?);
    let gaps = first.map_or_else(|| Ok(Vec::new()), |first| log.gaps(first.., GAPS_MAX))?;
    let metadata = log.metadata()?;
    let mut report = Map::new();
    report.insert("log".to_owned(), name.into());
    report.insert("id".to_owned(), log.id().into());
    report.insert("first_lsn".to_owned(), first.into());
    report.insert("last_lsn".to_owned(), last.into());
    report.insert("gaps".to_owned(), gaps.iter().map(|gap| json!([gap.start(), gap.end()])).collect());
    if let Some(bytes) = &metadata {
        jsonl::insert(&mut report, "metadata", bytes);
    }
    output::report(json, &Value::Object(report), || {
        let number = |lsn: Option<Lsn>| lsn.map_or("none".to_owned(), |lsn| lsn.to_string());
        let mut text = format!("first LSN            {}\n", number(first));
        let _ = writeln!(text, "last LSN             {}", number(last));
        let more = if gaps.len() == GAPS_MAX { " or more" } else { "" };
        let _ = writeln!(text, "gaps                 {}{more}", gaps.len());
        if let Some(bytes) = &metadata {
            let _ = writeln!(text, "metadata             {}", escape::escape(bytes));
        }
        text
    })
}

fn verify(db: Option<PathBuf>, args: &ListArgs) -> Result<()> {
    let place = StoreLocation::to_read(&directory(db)?)?;
    // Damage of the log and the manifest is part of the report.
    let store = LogStore::open_read_only_in(&place.env, &place.dir, &options(false))?;
    let cancel = VerifyOptions { cancel: Some(interrupt::cancel()) };
    let found = progress::shown(progress::of_reading("verify", 0), || store.verify_with(&cancel));
    let found = interrupt::or_kept(found, interrupt::NOT_CHECKED)?;
    let checked = found.checked.fields();
    let of = |(name, count): &(&str, LogCheckedCount)| {
        (name.replace(' ', "_"), json!({ "count": count.count, "bytes": count.bytes }))
    };
    let lost =
        |lost: &LostRecords| json!({ "log": lost.log, "first_lsn": lost.first, "last_lsn": lost.last });
    let damage = |damage: &LogDamage| {
        json!({
            "error": damage.error.to_string(),
            "file": damage.error.file().map(|path| path.display().to_string()),
            "offset": damage.error.offset(),
            "lost": damage.lost.iter().map(lost).collect::<Vec<_>>(),
        })
    };
    let report = json!({
        "logs": found.logs,
        "records": found.checked.records.count,
        "record_bytes": found.checked.records.bytes,
        "checked": checked.iter().map(of).collect::<Map<String, Value>>(),
        "ledger_checked": found.ledger_checked,
        "damages": found.damages.iter().map(damage).collect::<Vec<_>>(),
        "more_damages": found.more_damages,
    });
    output::report(args.json, &report, || verify_text(&found))?;
    match found.damages.len() as u64 + found.more_damages {
        0 => Ok(()),
        1 => Err(failure(
            Status::Damage,
            "one damage was found, as listed; nothing was changed: restore a checkpoint or backup, or run lava log repair",
        )),
        damages => Err(failure(
            Status::Damage,
            format!(
                "{damages} damages were found, as listed; nothing was changed: restore a checkpoint or backup, or run lava log repair"
            ),
        )),
    }
}

fn checkpoint(db: Option<PathBuf>, args: &CheckpointArgs) -> Result<()> {
    take(
        db,
        args,
        |place| Ok(open(&place, false)?),
        |store, target| {
            let options = CheckpointOptions { cancel: Some(interrupt::cancel()) };
            interrupt::or_kept(store.checkpoint_with(target, &options), interrupt::NO_COPY)?;
            Ok(store.close()?)
        },
    )
}

fn verify_text(found: &LogVerifyReport) -> String {
    let records = &found.checked.records;
    let mut text = format!(
        "read {} of {}, {}\n",
        counted(records.count, "record"),
        counted(found.logs, "log"),
        human_bytes(records.bytes)
    );
    for (name, count) in found.checked.fields().iter().filter(|(name, _)| *name != "records") {
        let _ = writeln!(text, "{name:<20} {:>9}  {}", human_count(count.count), human_bytes(count.bytes));
    }
    for LogDamage { error, lost } in &found.damages {
        let _ = writeln!(text, "{error}");
        for LostRecords { log, first, last } in lost {
            let _ = writeln!(text, "  lost: {}, records {first} to {last}", escape::escape(log.as_bytes()));
        }
    }
    if found.more_damages > 0 {
        let _ = writeln!(text, "and {} more", found.more_damages);
    }
    text
}
