//! `demo`: shows on real data that acknowledged writes survive a kill.
//!
//! A child process imports a data set and overwrites it three times from several threads. It
//! reports every acknowledged write through a pipe, so the ledger of acknowledged writes survives
//! in the parent. In the middle of the second overwrite the parent kills the child with SIGKILL,
//! opens the store, and checks every acknowledged record. A record must hold the acknowledged
//! version, or the one version in flight at the kill. Then the parent finishes the overwrites
//! itself, and checks everything again.

pub mod data;
pub mod ledger;
pub mod writer;

use crate::commands::create::check_parent;
use crate::commands::place::{self, StoreLocation};
use crate::commands::space::{live_bytes, space_json, space_text};
use crate::output::Screen;
use crate::status::{Status, failure};
use crate::{Error, Result, output};
use bench::host::{ProcessCounters, now_ns, process_counters};
use bench::report::{Latency, human_bytes, human_count, human_us};
use clap::Args;
use data::DataSet;
use hdrhistogram::Histogram;
use lavastore::{Db, Env, ErrorKind, FamilyOptions, Options, Space};
use ledger::{Ledger, VERSIONS, value};
use serde_json::json;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Column family that marks a store of this command, which may be replaced.
const MARK: &str = "lava-demo";
/// Number of writing threads.
pub const WRITERS: usize = 4;

/// Options of `demo`.
#[derive(Args)]
pub struct DemoArgs {
    /// Generate this many records instead of reading the machine's package index. More records take
    /// more time and space [default: that index if it has 2000 records, otherwise 50000 generated
    /// ones]
    #[arg(long, value_name = "RECORDS")]
    generate: Option<usize>,
    /// Print the result as JSON, and nothing else
    #[arg(long)]
    json: bool,
}

/// Measurements of a run.
struct Outcome {
    lost: u64,
    killed_after: u64,
    reopen_seconds: f64,
    put: Histogram<u64>,
    get: Histogram<u64>,
    user_bytes: u64,
    written_bytes: u64,
    space: Space,
    separation: Separation,
}

/// Values to be separated, compared with the references in tables.
struct Separation {
    min_blob_size: usize,
    /// Number of records with a value of at least this length.
    long: u64,
    /// References to separated values, including those of superseded entries.
    references: u64,
}

impl Separation {
    /// Inspects a store without memtables: every record or its reference is in a table.
    fn of(store: &Db, data: &DataSet, space: &Space) -> Separation {
        let family = store.default_family();
        let min_blob_size = family.options().min_blob_size;
        let (mut long, mut last) = (0, Vec::new());
        for (_, stanza) in &data.records {
            value(stanza, VERSIONS - 1, &mut last);
            long += u64::from(min_blob_size > 0 && last.len() >= min_blob_size);
        }
        let own = space.families.iter().filter(|f| f.name == family.name());
        Separation { min_blob_size, long, references: own.map(|f| f.references).sum() }
    }

    /// Number of long values without a reference.
    fn missing(&self) -> u64 {
        self.long.saturating_sub(self.references)
    }

    fn text(&self, records: usize) -> String {
        format!(
            "{} of {} values have at least {} bytes; tables hold {} references to separated values\n",
            human_count(self.long),
            human_count(records as u64),
            self.min_blob_size,
            human_count(self.references)
        )
    }
}

/// Runs the demonstration.
pub fn demo(db: Option<PathBuf>, args: &DemoArgs) -> Result<()> {
    let named = db.is_some();
    let dir = db.unwrap_or_else(|| std::env::temp_dir().join(format!("lava-demo-{}", std::process::id())));
    let start_ns = now_ns();
    prepare(&dir)?;
    let data = DataSet::choose(args.generate)?;
    let (count, bytes) = (human_count(data.records.len() as u64), human_bytes(data.bytes()));
    say(args, format!("data: {} ({count} records, {bytes})", data.origin))?;
    say(args, format!("store: {}", dir.display()))?;
    if let Some(speed) = place::speed_of(&dir) {
        say(args, format!("its log: {}", speed.display()))?;
    }
    let outcome = show(&dir, &data, args)?;
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    let mut out = crate::output::stdout();
    if args.json {
        writeln!(out, "{}", outcome.json(&data, seconds))?;
    } else {
        write!(out, "{}", outcome.text(&data))?;
        writeln!(out, "\ndone in {seconds:.1} s. The store is kept; go on with")?;
        write!(out, "{}", how_to_go_on(&dir, named, &data))?;
    }
    if !args.json {
        let verified = data.records.len() as u64 - outcome.lost;
        writeln!(out, "demo: {verified} records verified, {} lost", outcome.lost)?;
    }
    out.flush()?;
    match outcome.lost {
        0 if outcome.separation.missing() > 0 => Err(format!(
            "the demo failed: {} large values are in tables instead of value files; report it",
            outcome.separation.missing()
        )
        .into()),
        0 => Ok(()),
        lost => Err(failure(
            Status::Damage,
            format!("the demo found {lost} acknowledged records lost or wrong after the crash: report it"),
        )),
    }
}

fn say(args: &DemoArgs, line: String) -> Result<()> {
    if !args.json {
        let mut out = crate::output::stdout();
        writeln!(out, "{line}")?;
        out.flush()?;
    }
    Ok(())
}

/// Checks that the directory is new, empty, or a store of an earlier demo, and removes the latter.
fn prepare(dir: &Path) -> Result<()> {
    if place::volume_of(dir).is_some() {
        return prepare_on_volume(dir);
    }
    if !output::has_entries(dir)? {
        return check_parent(&Env::kernel(), dir, "create it first");
    }
    let options = Options { create_if_missing: false, ..Options::default() };
    let place = StoreLocation::to_write(dir)?;
    let ours = Db::open_in(&place.env, &place.dir, &options).is_ok_and(|db| db.open_family(MARK).is_ok());
    if !ours {
        let dir = dir.display();
        let what = format!("{dir} is neither empty nor the store of an earlier demo: name a new directory");
        return Err(failure(Status::Exists, what));
    }
    if let Some(speed) = place::speed_of(dir).filter(|speed| place::volume_of(speed).is_none()) {
        output::remove_directory(speed)?;
    }
    output::remove_directory(dir)
}

/// Same as [`prepare`], on a volume.
fn prepare_on_volume(db: &Path) -> Result<()> {
    let place = StoreLocation::to_write(db)?;
    let fs = place.env.fs.clone();
    let files = match fs.list(&place.dir) {
        Ok(files) => files,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let options = Options { create_if_missing: false, ..Options::default() };
    let ours = files.is_empty()
        || Db::open_in(&place.env, &place.dir, &options).is_ok_and(|db| db.open_family(MARK).is_ok());
    if !ours {
        let what = format!("{} is not the store of an earlier demo: name another volume", db.display());
        return Err(failure(Status::Exists, what));
    }
    for file in fs.list(&place.dir)? {
        fs.remove(&place.dir.join(&file.name))?;
    }
    Ok(fs.sync_dir(&place.dir)?)
}

/// Opens the store for writing, and creates it if it is missing.
pub fn open_store(db: &Path) -> Result<Db> {
    let place = StoreLocation::to_write(db)?;
    Ok(Db::open_in(&place.env, place.dir, &Options::default())?)
}

fn show(dir: &Path, data: &DataSet, args: &DemoArgs) -> Result<Outcome> {
    let total = data.records.len() as u64 * u64::from(VERSIONS);
    let mut ledger = Ledger::new(data);
    let store = open_store(dir)?;
    store.create_family(MARK, &FamilyOptions::default())?;
    store.close()?;

    let child = start_writer(dir, data)?;
    let pid = child.id();
    say(
        args,
        format!(
            "writer: process {pid} imports the data and overwrites it three times from {WRITERS} threads"
        ),
    )?;
    // Five eighths: one import and one and a half of the three overwrites.
    let child_written = run_and_kill(child, &mut ledger, total * 5 / 8)?;
    let killed_after = ledger.acknowledged();
    say(args, format!("killed it with SIGKILL after {} acknowledged writes", human_count(killed_after)))?;

    let before = process_counters();
    let reopen_ns = now_ns();
    let store = open_store(dir)?;
    let reopen_seconds = (now_ns() - reopen_ns) as f64 / 1e9;
    let mut get = new_histogram()?;
    let first = ledger.verify(&store, data, false, &mut get)?;
    say(args, format!("reopened in {reopen_seconds:.2} s: {}", first.text(&ledger)))?;

    writer::overwrite(&store, data, &mut ledger)?;
    let second = ledger.verify(&store, data, true, &mut get)?;
    say(args, format!("finished the overwrites: {}", second.text(&ledger)))?;
    store.flush()?;
    store.wait_idle(Duration::from_secs(20));
    let written = written_since(&before, &process_counters());
    let space = store.space()?;
    let separation = Separation::of(&store, data, &space);
    store.close()?;
    Ok(Outcome {
        lost: ledger.lost(),
        killed_after,
        reopen_seconds,
        user_bytes: ledger.user_bytes,
        written_bytes: child_written + written,
        put: ledger.latency_ns,
        get,
        separation,
        space,
    })
}

fn written_since(before: &ProcessCounters, after: &ProcessCounters) -> u64 {
    after.write_bytes - before.write_bytes
}

/// Returns an empty histogram of latencies in nanoseconds.
pub fn new_histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 600_000_000_000, 3)?)
}

fn start_writer(dir: &Path, data: &DataSet) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("demo-writer").arg("--db").arg(dir);
    if let Some(speed) = place::speed_of(dir) {
        command.arg("--fast-tier").arg(speed);
    }
    command.args(data.writer_args());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    child.map_err(|e| format!("cannot start the writer process: {e}").into())
}

/// Enters acknowledgements into the ledger, kills the child after `kill_at` of them, and enters the
/// rest of the pipe, since those writes were acknowledged too. Returns the bytes written by the
/// child.
fn run_and_kill(mut child: Child, ledger: &mut Ledger, kill_at: u64) -> Result<u64> {
    let mut pipe =
        child.stdout.take().ok_or("the output of the writer process cannot be read: run the demo again")?;
    let mut buffer = vec![0; writer::ACK_LEN * 1024];
    let mut filled = 0;
    let mut written = None;
    loop {
        let len = pipe.read(&mut buffer[filled..])?;
        if len == 0 {
            break;
        }
        filled += len;
        let whole = filled - filled % writer::ACK_LEN;
        for ack in buffer[..whole].chunks_exact(writer::ACK_LEN) {
            ledger.enter(ack)?;
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
        if written.is_none() && ledger.acknowledged() >= kill_at {
            written = Some(bytes_written_by(child.id()));
            child.kill()?;
        }
    }
    let status = child.wait()?;
    match (status.signal(), written) {
        (Some(9), Some(bytes)) => Ok(bytes),
        _ => Err(Error::from(format!(
            "the writer process exited before the kill ({status}): run the demo again"
        ))),
    }
}

/// Returns the bytes that another process has written to storage so far.
fn bytes_written_by(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("write_bytes:"));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

impl Outcome {
    fn write_amplification(&self) -> f64 {
        self.written_bytes as f64 / self.user_bytes.max(1) as f64
    }

    fn text(&self, data: &DataSet) -> String {
        let line = |name: &str, l: Latency| {
            let (p50, p99, p999) = (human_us(l.p50_us), human_us(l.p99_us), human_us(l.p999_us));
            format!(
                "{name:<6} {:>9} times   P50 {p50}   P99 {p99}   P99.9 {p999}   max {}\n",
                human_count(l.count),
                human_us(l.max_us)
            )
        };
        format!(
            "\nspace ledger\n{}\n{}{}write amplification {:.2} ({} written to storage, log included, for {} of keys and values)\n\nlatency\n{}{}",
            space_text(&self.space, Screen::of_stdout()),
            self.space_line(),
            self.separation.text(data.records.len()),
            self.write_amplification(),
            human_bytes(self.written_bytes),
            human_bytes(self.user_bytes),
            line("put", Latency::of(&self.put)),
            line("get", Latency::of(&self.get)),
        )
    }

    fn space_line(&self) -> String {
        let space = &self.space;
        let data = space.total_bytes - space.wal_bytes;
        let (hidden, live) = (space.hidden_bytes, live_bytes(space));
        let times = data as f64 / live.max(1) as f64;
        let bytes = [data, live, space.garbage_bytes, hidden, space.wal_bytes];
        let [data, live, garbage, hidden, log] = bytes.map(human_bytes);
        format!(
            "space: {data} for about {live} of live data ({times:.2} times; garbage {garbage}, hidden {hidden}) and {log} of log\n"
        )
    }

    fn json(&self, data: &DataSet, seconds: f64) -> serde_json::Value {
        json!({
            "data": data.origin,
            "records": data.records.len(),
            "lost": self.lost,
            "killed_after_writes": self.killed_after,
            "reopen_seconds": self.reopen_seconds,
            "seconds": seconds,
            "user_bytes": self.user_bytes,
            "written_bytes": self.written_bytes,
            "write_amplification": self.write_amplification(),
            "put_latency": Latency::of(&self.put),
            "get_latency": Latency::of(&self.get),
            "min_blob_size": self.separation.min_blob_size,
            "long_values": self.separation.long,
            "references": self.separation.references,
            "space": space_json(&self.space),
        })
    }
}

fn how_to_go_on(dir: &Path, named: bool, data: &DataSet) -> String {
    let speed =
        place::speed_of(dir).map_or(String::new(), |speed| format!(" --fast-tier {}", speed.display()));
    let dir = format!("{}{speed}", dir.display());
    let key =
        data.records.get(data.records.len() / 2).map(|r| String::from_utf8_lossy(&r.0)).unwrap_or_default();
    let prefix = key.split('/').next().unwrap_or_default();
    let mut text = format!(
        "  lava --db {dir} get {key}\n  lava --db {dir} scan --prefix {prefix} --keys-only\n  lava --db {dir} space\n  \
         lava --db {dir} verify\n  lava bench overwrite --num 200000 --value-size 1000\n"
    );
    if !named {
        text.push_str(&format!("and remove it with\n  rm -r {dir}\n"));
    }
    text + "(lava is target/release/lava, or: cargo run --release -- …)\n\n"
}

#[cfg(test)]
mod tests;
