//! A page server for a database with remote pages: it takes redo records and returns pages as of
//! any recent LSN.
//!
//! ```text
//! cargo run --release -p lavastore --example page_server -- [SECONDS]
//! ```
//!
//! The log of the database arrives in parallel batches of redo records with LSNs; some batches
//! arrive after their successor. LavaLog makes them durable with one write. Afterwards they are
//! applied to pages in LavaKV, which needs no second log. Readers name a page and an LSN.
//! [`server`] implements the page server; this file generates records and reads pages for some
//! seconds.
//!
//! A redo record is a function of its slice and LSN. So the LSNs that touched a page determine its
//! content as of an LSN. The program compares every page that it reads byte by byte. At the end it
//! compares all pages, and again after reopening the server.
//!
//! `lava bench page-server` measures the same pattern against other engines, with all page versions
//! in memory.

#![allow(clippy::disallowed_methods, reason = "a program on the machine")]

pub mod server;

use io::Rng;
use server::{Applier, PAGE_BYTES, PageServer, ReadError, Redo};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Result with any error.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const SLICES: u64 = 8;
const PAGES: u64 = 4000;
const WRITERS: u64 = 4;
const READERS: u64 = 2;
/// Records per WriteLog batch.
const BATCH: u64 = 10;
/// Maximum lag of a slice behind its log in LSNs before its writer waits.
const BEHIND_MAX: u64 = 2000;
/// Distance of the LSNs that readers ask for from the applied LSN.
const LOOK_AROUND: u64 = 100;
const WAIT: Duration = Duration::from_secs(1);

/// Returns the record of an LSN.
pub fn redo(slice: u64, lsn: u64) -> Redo {
    let mut rng = Rng::new(slice << 48 | lsn);
    let mut bytes = vec![0; rng.range(100, 300) as usize];
    rng.fill(&mut bytes);
    let page = rng.below(PAGES / SLICES) * SLICES + slice;
    Redo { page, at: rng.below((PAGE_BYTES - bytes.len()) as u64) as u16, bytes }
}

/// The LSNs that touch each page, as far as they were generated.
pub struct Model(Vec<Mutex<BTreeMap<u64, Vec<u64>>>>);

impl Default for Model {
    fn default() -> Model {
        Model((0..SLICES).map(|_| Mutex::default()).collect())
    }
}

impl Model {
    fn of(&self, slice: u64) -> std::sync::MutexGuard<'_, BTreeMap<u64, Vec<u64>>> {
        self.0[slice as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Generates the next batch of a slice.
    pub fn draw(&self, slice: u64, lsn: u64) -> Vec<Vec<u8>> {
        let records: Vec<Redo> = (lsn..lsn + BATCH).map(|lsn| redo(slice, lsn)).collect();
        let mut of = self.of(slice);
        for (lsn, record) in (lsn..).zip(&records) {
            of.entry(record.page).or_default().push(lsn);
        }
        records.iter().map(Redo::encode).collect()
    }

    /// Compares a page with its expected content as of an LSN.
    pub fn check(&self, page: u64, lsn: u64, found: &[u8]) -> Result<()> {
        let (slice, mut expected) = (page % SLICES, vec![0; PAGE_BYTES]);
        let lsns = self.of(slice).get(&page).cloned().unwrap_or_default();
        lsns.iter().filter(|at| **at <= lsn).for_each(|at| redo(slice, *at).apply(&mut expected));
        match found == expected {
            true => Ok(()),
            false => Err(format!("page {page} is wrong as of {lsn}").into()),
        }
    }
}

/// Measurements of one thread.
#[derive(Default)]
struct Seen {
    ns: Vec<u64>,
    bytes: u64,
    /// Number of pages with the expected content.
    checked: u64,
    gaps: u64,
}

impl Seen {
    fn timed<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let answer = call();
        self.ns.push(begun.elapsed().as_nanos() as u64);
        answer
    }
}

/// Writes the records of its slices; one batch of twenty arrives after its successor.
fn write(server: &PageServer, model: &Model, writer: u64, stop: &AtomicBool) -> Result<Seen> {
    let (mut seen, mut rng) = (Seen::default(), Rng::new(writer));
    let mut next: BTreeMap<u64, u64> = (writer..SLICES).step_by(WRITERS as usize).map(|s| (s, 1)).collect();
    while !stop.load(Ordering::Relaxed) {
        for (&slice, next) in &mut next {
            let mut batches = vec![*next];
            if rng.one_in(20) {
                batches.insert(0, *next + BATCH);
            }
            *next += BATCH * batches.len() as u64;
            // The model needs LSN order, whatever the arrival order.
            let mut drawn: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
            batches.iter().rev().for_each(|lsn| drop(drawn.insert(*lsn, model.draw(slice, *lsn))));
            for lsn in batches {
                seen.bytes += drawn[&lsn].iter().map(|record| record.len() as u64).sum::<u64>();
                seen.timed(|| server.write_log(slice, lsn, &drawn[&lsn]))?;
            }
            while server.applied(slice) + BEHIND_MAX < *next {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    Ok(seen)
}

/// Reads pages at LSNs near the applied one.
fn read(server: &PageServer, model: &Model, reader: u64, stop: &AtomicBool) -> Result<Seen> {
    let (mut seen, mut rng) = (Seen::default(), Rng::new(100 + reader));
    while !stop.load(Ordering::Relaxed) {
        let page = rng.below(PAGES);
        let lsn = (server.applied(page % SLICES) + rng.below(LOOK_AROUND + 10)).saturating_sub(LOOK_AROUND);
        match seen.timed(|| server.read_page(page, lsn, WAIT)) {
            Ok(found) => {
                model.check(page, lsn, &found)?;
                seen.checked += 1;
            }
            // If no LSN is missing, the applier is slow.
            Err(ReadError::NotApplied { missing, .. }) => seen.gaps += u64::from(!missing.is_empty()),
            // Two newer versions were written since the LSN was chosen.
            Err(ReadError::TooOld { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(seen)
}

/// Demonstrates a gap: LSNs 1, 2 and 5 arrive, then 3 and 4.
fn show_a_gap(dir: &Path) -> Result<()> {
    let server = PageServer::open(dir, 1)?;
    let record = |at, text: &str| Redo { page: 7, at, bytes: text.into() }.encode();
    server.write_log(0, 1, &[record(0, "one"), record(4, "two")])?;
    server.write_log(0, 5, &[record(0, "five")])?;
    let mut applier = Applier::new(&server);
    applier.turn()?;
    println!("a gap           applied up to {}, missing {:?}", server.applied(0), server.gaps(0)?);
    match server.read_page(7, 5, Duration::from_millis(1)) {
        Err(ReadError::NotApplied { applied: 2, missing }) if missing == [3..=4] => {}
        other => return Err(format!("a page was read behind a gap: {:?}", other.map(|_| ())).into()),
    }
    server.write_log(0, 3, &[record(8, "three"), record(14, "four")])?;
    applier.turn()?;
    let (now, before) = (server.read_page(7, 5, WAIT)?, server.read_page(7, 2, WAIT)?);
    if &now[..18] != b"fivetwo\0three\0four" || &before[..9] != b"one\0two\0\0" {
        return Err("a page is wrong behind a gap that was filled".into());
    }
    println!("filled          applied up to {}, missing {:?}", server.applied(0), server.gaps(0)?);
    Ok(())
}

/// Applies the rest and compares every page.
fn check_all(server: &PageServer, model: &Model) -> Result<u64> {
    let mut applier = Applier::new(server);
    applier.turn()?;
    for page in 0..PAGES {
        let lsn = server.applied(page % SLICES);
        let last = model.of(page % SLICES).values().filter_map(|lsns| lsns.last()).max().copied();
        if Some(lsn) != last.or(Some(0)) {
            return Err(format!("slice {} is applied up to {lsn}, not {last:?}", page % SLICES).into());
        }
        model.check(page, lsn, &server.read_page(page, lsn, WAIT)?)?;
    }
    Ok(PAGES)
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| "a thread panicked")?
}

/// Runs all threads for some time; returns the measurements of writers and readers.
fn load(server: &PageServer, model: &Model, seconds: f64) -> Result<(Seen, Seen)> {
    let (stop, applied_all) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (stop, applied_all) = (&stop, &applied_all);
        let applier = scope.spawn(move || -> Result<()> {
            let mut applier = Applier::new(server);
            while !applied_all.load(Ordering::Relaxed) {
                applier.turn()?;
            }
            Ok(applier.trim()?)
        });
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(server, model, writer, stop))).collect();
        let readers: Vec<_> =
            (0..READERS).map(|reader| scope.spawn(move || read(server, model, reader, stop))).collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        let all = |threads: Vec<_>| threads.into_iter().map(joined).collect::<Result<Vec<Seen>>>();
        let (wrote, read) = (all(writers), all(readers));
        applied_all.store(true, Ordering::Relaxed);
        joined(applier)?;
        Ok((together(wrote?), together(read?)))
    })
}

fn together(seen: Vec<Seen>) -> Seen {
    seen.into_iter().fold(Seen::default(), |mut all, mut one| {
        all.ns.append(&mut one.ns);
        let (bytes, checked) = (all.bytes + one.bytes, all.checked + one.checked);
        Seen { ns: all.ns, bytes, checked, gaps: all.gaps + one.gaps }
    })
}

fn latency(seen: &mut Seen) -> String {
    seen.ns.sort_unstable();
    let us = |part: f64| seen.ns.get((seen.ns.len() as f64 * part) as usize).map_or(0, |ns| ns / 1000);
    let mean = seen.ns.iter().sum::<u64>() / 1000 / seen.ns.len().max(1) as u64;
    format!(
        "{:8} calls; mean {mean} us, P50 {}, P99 {}, P99.99 {}",
        seen.ns.len(),
        us(0.5),
        us(0.99),
        us(0.9999)
    )
}

/// Returns the allocated bytes of the files below a directory.
fn allocated(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let (entry, meta) = entry.and_then(|entry| entry.metadata().map(|meta| (entry, meta)))?;
        bytes += if meta.is_dir() { allocated(&entry.path())? } else { meta.blocks() * 512 };
    }
    Ok(bytes)
}

fn report(server: &PageServer, dir: &Path, user_bytes: u64) -> Result<()> {
    let (pages, logs) = (server.db.stats(), server.logs.stats());
    let log = logs.log_written_bytes + logs.copied_bytes;
    let tables = pages.flush_bytes_written + pages.compaction_bytes_written + pages.gc_bytes_written;
    let part = |bytes: u64| bytes as f64 / user_bytes.max(1) as f64;
    println!(
        "bytes written   {:.2} for each of a redo record: {:.2} in the log, {:.2} in tables, {:.2} in a log of keys",
        part(log + tables + pages.wal_bytes_written),
        part(log),
        part(tables),
        part(pages.wal_bytes_written),
    );
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let (pages, logs) = (allocated(&dir.join("pages"))?, allocated(&dir.join("logs"))?);
    println!(
        "space           {:.0} MB of pages as they are now; files: pages {:.0} MB, logs {:.0} MB of {:.0} MB that came",
        mb(PAGES * PAGE_BYTES as u64),
        mb(pages),
        mb(logs),
        mb(user_bytes)
    );
    Ok(())
}

/// Runs the whole program in an empty directory.
pub fn run(dir: &Path, seconds: f64) -> Result<()> {
    show_a_gap(&dir.join("gap"))?;
    let model = Model::default();
    let server = PageServer::open(dir, SLICES)?;
    let (mut wrote, mut read) = load(&server, &model, seconds)?;
    println!("WriteLog        {}", latency(&mut wrote));
    println!("ReadPage        {}; {} told of a gap", latency(&mut read), read.gaps);
    report(&server, dir, wrote.bytes)?;
    let mut checked = check_all(&server, &model)?;
    drop(server);
    let server = PageServer::open(dir, SLICES)?;
    checked += check_all(&server, &model)?;
    let in_all = checked + read.checked;
    println!("page_server: {in_all} pages agree with the model, {checked} of them after the load");
    Ok(())
}

#[allow(dead_code, reason = "the test of this example has a main of its own")]
fn main() -> Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(8.0), |text| text.parse())?;
    let dir = std::env::temp_dir().join(format!("lavastore-page-server-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let outcome = run(&dir, seconds);
    std::fs::remove_dir_all(&dir)?;
    outcome
}
