//! `bench page-server`: redo records in, pages out, as in table 1 of LavaStore.
//!
//! Each writer sends batches of redo records to its slices ([`server`] turns them into pages). A
//! batch may come after its successor, which closes the gap with the next one. A record changes
//! some bytes of a random page of the slice. Readers read a random page as of the applied LSN, or
//! slightly before. Appliers do the background work of a page server. Writers wait while its
//! backlog exceeds [`PageServerArgs::backlog`]; this wait is reported, and not part of the latency
//! of WriteLog.
//!
//! With `--rate` batches are due at fixed times, and latency counts from then, so that two engines
//! get the same work.
//!
//! With `--ingest` whole segments of pages are written first ([`ingest`]).
//!
//! After the run a sample of pages is compared byte by byte with a model of the last record at each
//! place. The store is then reopened and compared once more.

pub mod ingest;
pub mod lava;
pub mod redo;
pub mod server;

use crate::Result;
use crate::host::{self, now_ns, wait_until};
use crate::record::{Merged, Recorder, SLOT_NS, merge};
use crate::report::{Latency, human_us};
use clap::{Args, ValueEnum};
use ingest::{IngestArgs, IngestReport};
use io::Rng;
use redo::{PAGE_BYTES, Redo};
use serde::{Deserialize, Serialize};
use server::{Applier, At, PageChange, PageEngine, PageRead, PageServer};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// LSN of the loaded pages; the first record has the next one.
const LOADED_LSN: u64 = 1;
/// Pages per batch of the load.
const LOAD_PAGES: u64 = 64;
/// Number of pages compared after the run.
const CHECKED_MAX: u64 = 2000;
/// Maximum distance of read LSNs to the applied LSN.
const LOOK_BACK: u64 = 32;

/// Operations of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageMix {
    /// Only WriteLog.
    WriteOnly,
    /// WriteLog and ReadPage.
    ReadWrite,
    /// Only ReadPage.
    ReadOnly,
}

/// Options of `bench page-server`.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct PageServerArgs {
    /// Operations that the clients run: WriteLog sends redo records, ReadPage reads a page
    #[arg(long, value_enum, default_value_t = PageMix::ReadWrite)]
    pub mix: PageMix,
    /// Number of pages of 16 KiB, at least --slices. All are written before the measured part, so
    /// that more take more space and time
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub pages: u64,
    /// Number of slices (groups of pages), each with its own log, at least --writers and at most
    /// --pages
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub slices: u64,
    /// Number of threads that send redo records, 1 to --slices, each to its own slices. With --mix
    /// read-only they send none, but still write the segments of --ingest
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub writers: u64,
    /// Number of threads that read pages, at least 1, each one random page after the other. More
    /// load the server with more concurrent reads. No effect with `--mix write-only`
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub readers: u64,
    /// Number of redo records per WriteLog, 1 to 10000. A WriteLog is durable as a whole, so that
    /// larger batches cost less per record. No effect with `--mix read-only`
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub batch: u64,
    /// Bytes of a page that a record changes: a plain number, 16 to 16384. Longer records mean more
    /// bytes in the logs. No effect with `--mix read-only`
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    pub record_size: usize,
    /// Share of batches that arrive after their successor, 0 to 0.5. The server applies no record
    /// behind such a gap until it is closed. No effect with `--mix read-only`
    #[arg(long, value_name = "RATIO", default_value_t = 0.01)]
    pub out_of_order: f64,
    /// WriteLogs per second of all writers, with latencies from the due time; 0: unlimited. Two
    /// engines get the same work at a rate that both sustain. No effect with `--mix read-only`
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    pub rate: f64,
    /// Maximum bytes of records that wait to be applied to pages: a plain number, at least 1; above
    /// it writers wait. A larger one lets writers run ahead longer. The report has the wait, which
    /// latencies do not include
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub backlog: u64,
    /// Size of the engine's page cache in bytes: a plain number; LavaStore: at most 4 TiB. A larger
    /// cache serves more reads from memory
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub cache: u64,
    /// Size of a memtable in bytes: a plain number; LavaStore: 16384 to 4 GiB. Each of the families
    /// (LavaStore: four) has one that is filled and one that is flushed. Larger ones need more
    /// memory and mean fewer flushes
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    #[serde(default)]
    pub memtable: u64,
    /// Duration of the measured part in seconds, above 0, fractions allowed. The load, the
    /// ingestion and the final comparison come on top
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    pub seconds: f64,
    /// Ingestion before the measured part.
    #[command(flatten)]
    #[serde(default)]
    pub ingest: IngestArgs,
}

impl PageServerArgs {
    /// # Errors
    /// The first invalid option.
    pub fn check(&self) -> Result<()> {
        let complaint = if self.slices == 0 || self.pages < self.slices {
            "--slices must be at least 1, and --pages at least --slices: each slice needs a page"
        } else if self.writers == 0 || self.slices < self.writers || self.readers == 0 {
            "--writers and --readers must be at least 1 thread, and --slices at least --writers"
        } else if self.batch == 0 || self.batch > 10_000 {
            "--batch must be 1 to 10000 redo records per WriteLog"
        } else if self.record_size < 16 || self.record_size > PAGE_BYTES {
            "--record-size must be 16 to 16384 bytes (a page)"
        } else if !(0.0..=0.5).contains(&self.out_of_order) {
            "--out-of-order must be a ratio from 0 to 0.5"
        } else if !(self.seconds > 0.0
            && self.seconds.is_finite()
            && self.rate >= 0.0
            && self.rate.is_finite())
        {
            "--seconds must be above 0 seconds, --rate at least 0 WriteLogs per second"
        } else if let Some(complaint) = self.ingest.complaint() {
            complaint
        } else {
            return Ok(());
        };
        Err(complaint.into())
    }

    /// Number of places in a page that records change, each as a whole.
    fn places(&self) -> u64 {
        (PAGE_BYTES / self.record_size) as u64
    }

    /// Returns the time between two batches of a writer in nanoseconds.
    fn interval_ns(&self) -> u64 {
        match self.rate > 0.0 {
            true => (1e9 * self.writers as f64 / self.rate) as u64,
            false => 0,
        }
    }
}

/// Opens engines for page servers.
pub trait PageOpener {
    /// Returns engine and version.
    fn name(&self) -> String;
    /// Opens or creates a store.
    ///
    /// # Errors
    /// Errors of the engine.
    fn open(&self, dir: &Path, args: &PageServerArgs) -> Result<Box<dyn PageEngine>>;
    /// Returns the path on the device whose counter is read.
    fn counted<'a>(&'a self, dir: &'a Path) -> &'a Path {
        dir
    }
}

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PageServerReport {
    /// Engine and version.
    pub engine: String,
    /// Options of the run.
    pub options: PageServerArgs,
    /// Ingested segments; `None` without ingestion.
    #[serde(default)]
    pub ingested: Option<IngestReport>,
    /// Duration of the measured part.
    pub seconds: f64,
    /// WriteLogs per second.
    pub write_log_per_s: f64,
    /// Latency of a WriteLog.
    pub write_log: Latency,
    /// ReadPages per second.
    pub read_page_per_s: f64,
    /// Latency of a ReadPage.
    pub read_page: Latency,
    /// Applied records per second.
    pub applied_records_per_s: f64,
    /// Bytes of records not applied at the end.
    pub backlog_bytes: u64,
    /// Total wait of writers for appliers, seconds.
    pub backlog_wait_seconds: f64,
    /// Bytes of redo records.
    pub user_bytes: u64,
    /// Bytes written by the device; `None` without a counter.
    pub device_bytes_written: Option<u64>,
    /// The same per byte of records.
    pub device_bytes_per_user_byte: Option<f64>,
    /// Windows of 100 ms in which a WriteLog waited and none completed.
    pub stall_windows_100ms: u64,
    /// Longest time without a completed WriteLog, milliseconds.
    pub longest_without_progress_ms: u64,
    /// Time to open the store again, milliseconds.
    pub recovery_ms: f64,
    /// Pages compared before and after the reopen.
    pub checked: u64,
    /// CPU time, seconds.
    pub cpu_seconds: f64,
    /// Cores, memory, kernel.
    pub machine: String,
    /// Settings of the engine.
    pub engine_settings: BTreeMap<String, String>,
}

impl PageServerReport {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let line = |l: &Latency| {
            format!(
                "{}; {}, {}, {}, {}, {}",
                human_us(l.mean_us),
                human_us(l.p50_us),
                human_us(l.p99_us),
                human_us(l.p999_us),
                human_us(l.p9999_us),
                human_us(l.max_us)
            )
        };
        let ingested = self.ingested.as_ref().map(IngestReport::text).unwrap_or_default();
        format!(
            "engine                        {}\n\
             {ingested}\
             pages, slices                 {} of 16 KiB, {}\n\
             WriteLog                      {:.0}/s of {} records of {} B\n\
             mean; P50 99 99.9 99.99 max   {}\n\
             ReadPage                      {:.0}/s\n\
             mean; P50 99 99.9 99.99 max   {}\n\
             applied                       {:.0} records/s; {} B wait; writers waited {:.1} s\n\
             device bytes per user byte    {}\n\
             longest pause                 {} ms, {} windows of 100 ms without progress\n\
             opened again in               {:.0} ms; {} pages compared\n",
            self.engine,
            self.options.pages,
            self.options.slices,
            self.write_log_per_s,
            self.options.batch,
            self.options.record_size,
            line(&self.write_log),
            self.read_page_per_s,
            line(&self.read_page),
            self.applied_records_per_s,
            self.backlog_bytes,
            self.backlog_wait_seconds,
            self.device_bytes_per_user_byte.map_or("-".to_owned(), |x| format!("{x:.3}")),
            self.longest_without_progress_ms,
            self.stall_windows_100ms,
            self.recovery_ms,
            self.checked,
        )
    }
}

/// Fills a loaded page, or a record.
fn fill(slice: u64, lsn: u64, page: u64, out: &mut [u8]) {
    let mut rng = Rng::new(slice << 48 ^ page << 32 ^ lsn);
    for piece in out.chunks_mut(8) {
        piece.copy_from_slice(&rng.next_u64().to_le_bytes()[..piece.len()]);
    }
}

/// A slice of a writer, the only one that sends its records.
struct OneSlice {
    number: u64,
    next_lsn: u64,
    /// The batch to be sent after its successor.
    held_back: Option<(u64, Vec<Vec<u8>>)>,
    /// The last record of each place of each page, indexed by page over slices, and place.
    last: Vec<u64>,
}

struct PageWriter<'a> {
    args: &'a PageServerArgs,
    slices: Vec<OneSlice>,
    rng: Rng,
    waited_ns: u64,
}

impl PageWriter<'_> {
    fn new(args: &PageServerArgs, writer: u64) -> PageWriter<'_> {
        let own = (writer..args.slices).step_by(args.writers as usize);
        let slices = own.map(|number| {
            let pages = (args.pages - number).div_ceil(args.slices);
            let last = vec![0; (pages * args.places()) as usize];
            OneSlice { number, next_lsn: LOADED_LSN + 1, held_back: None, last }
        });
        PageWriter { args, slices: slices.collect(), rng: Rng::new(1 + writer), waited_ns: 0 }
    }

    /// Generates the next batch of a slice.
    fn draw(&mut self, at: usize) -> (u64, Vec<Vec<u8>>) {
        let (args, slice) = (self.args, &mut self.slices[at]);
        let places = args.places();
        let first_lsn = slice.next_lsn;
        slice.next_lsn += args.batch;
        let mut bytes = vec![0; args.record_size];
        let records = (first_lsn..slice.next_lsn).map(|lsn| {
            let (nth, place) = (self.rng.below(slice.last.len() as u64 / places), self.rng.below(places));
            let page = nth * args.slices + slice.number;
            slice.last[(nth * places + place) as usize] = lsn;
            fill(slice.number, lsn, page, &mut bytes);
            let redo = Redo { page, at: (place as usize * args.record_size) as u16, bytes: &bytes };
            let mut record = Vec::new();
            redo.encode(&mut record);
            record
        });
        (first_lsn, records.collect())
    }

    fn run(&mut self, server: &PageServer, start_ns: u64, end_ns: u64) -> Result<Recorder> {
        let mut record = Recorder::new(start_ns);
        let (interval_ns, mut due_ns) = (self.args.interval_ns(), start_ns);
        while now_ns() < end_ns {
            for at in 0..self.slices.len() {
                let begun_ns = now_ns();
                while server.backlog_bytes() >= self.args.backlog && now_ns() < end_ns {
                    server.wait_for_backlog(self.args.backlog, Duration::from_millis(10));
                }
                self.waited_ns += now_ns() - begun_ns;
                let (lsn, records) = self.draw(at);
                let is_late = self.args.out_of_order > 0.0 && self.rng.unit() < self.args.out_of_order;
                if is_late && self.slices[at].held_back.is_none() {
                    self.slices[at].held_back = Some((lsn, records));
                    continue;
                }
                if interval_ns > 0 {
                    wait_until(due_ns);
                }
                self.bring(server, at, (lsn, records), due_ns, &mut record)?;
                due_ns += interval_ns;
                if let Some(late) = self.slices[at].held_back.take() {
                    self.bring(server, at, late, due_ns, &mut record)?;
                }
            }
        }
        for at in 0..self.slices.len() {
            if let Some((lsn, records)) = self.slices[at].held_back.take() {
                server.write_log(self.slices[at].number, lsn, &records)?;
            }
        }
        Ok(record)
    }

    fn bring(
        &self,
        server: &PageServer,
        at: usize,
        (lsn, records): (u64, Vec<Vec<u8>>),
        due_ns: u64,
        record: &mut Recorder,
    ) -> Result<()> {
        let begun_ns = if self.args.rate > 0.0 { due_ns } else { now_ns() };
        server.write_log(self.slices[at].number, lsn, &records)?;
        let bytes = records.iter().map(|record| record.len() as u64).sum();
        record.complete(begun_ns, now_ns(), 1, bytes);
        Ok(())
    }
}

/// Reads pages until the end.
fn read_pages(
    server: &PageServer,
    args: &PageServerArgs,
    seed: u64,
    start_ns: u64,
    end_ns: u64,
) -> Result<Recorder> {
    let (mut record, mut rng, mut page) = (Recorder::new(start_ns), Rng::new(seed), Vec::new());
    while now_ns() < end_ns {
        let number = rng.below(args.pages);
        let applied = server.applied(number % args.slices);
        let mut lsn = applied.saturating_sub(rng.below(LOOK_BACK)).max(server.oldest(number)).max(LOADED_LSN);
        let begun_ns = now_ns();
        while let PageRead::KeptFrom(oldest) = server.read_page(number, lsn, &mut page)? {
            lsn = oldest;
        }
        record.complete(begun_ns, now_ns(), 1, page.len() as u64);
    }
    Ok(record)
}

/// Applies records until stopped.
fn apply_slices(server: &PageServer, stop: &AtomicBool) -> Result<Applier> {
    let mut applier = Applier::default();
    while !stop.load(Ordering::Relaxed) {
        let mut any = false;
        for slice in 0..server.slices() {
            any |= server.apply(&mut applier, slice)?;
        }
        if !any {
            server.wait_for_change(Duration::from_millis(1));
        }
    }
    Ok(applier)
}

/// Measurements of the measured part.
struct PageMeasurements {
    write: Merged,
    read: Merged,
    applier: Applier,
    seconds: f64,
}

fn measure(
    server: &PageServer,
    args: &PageServerArgs,
    writers: &mut [PageWriter<'_>],
) -> Result<PageMeasurements> {
    let (start_ns, stop) = (now_ns(), AtomicBool::new(false));
    let end_ns = start_ns + (args.seconds * 1e9) as u64;
    let panicked =
        || -> Box<dyn std::error::Error + Send + Sync> { "a thread of the benchmark panicked".into() };
    std::thread::scope(|scope| {
        let applier = scope.spawn(|| apply_slices(server, &stop));
        let writes: Vec<_> = match args.mix == PageMix::ReadOnly {
            true => Vec::new(),
            false => writers
                .iter_mut()
                .map(|writer| scope.spawn(move || writer.run(server, start_ns, end_ns)))
                .collect(),
        };
        let readers = if args.mix == PageMix::WriteOnly { 0 } else { args.readers };
        let reads: Vec<_> = (0..readers)
            .map(|seed| scope.spawn(move || read_pages(server, args, 1000 + seed, start_ns, end_ns)))
            .collect();
        let write: Result<Vec<Recorder>> =
            writes.into_iter().map(|thread| thread.join().map_err(|_| panicked())?).collect();
        let read: Result<Vec<Recorder>> =
            reads.into_iter().map(|thread| thread.join().map_err(|_| panicked())?).collect();
        let seconds = (now_ns() - start_ns) as f64 / 1e9;
        stop.store(true, Ordering::Relaxed);
        let applier = applier.join().map_err(|_| panicked())??;
        Ok(PageMeasurements { write: merge(&write?), read: merge(&read?), applier, seconds })
    })
}

/// Writes every page, so that reads find one.
fn load(engine: &dyn PageEngine, args: &PageServerArgs) -> Result<()> {
    let mut pages: Vec<Vec<u8>> = vec![vec![0; PAGE_BYTES]; LOAD_PAGES as usize];
    for first in (0..args.pages).step_by(LOAD_PAGES as usize) {
        let numbers = first..(first + LOAD_PAGES).min(args.pages);
        for (page, bytes) in numbers.clone().zip(&mut pages) {
            fill(page % args.slices, LOADED_LSN, page, bytes);
        }
        let changes: Vec<PageChange<'_>> = numbers
            .zip(&pages)
            .map(|(page, bytes)| PageChange::PutPage(At { page, lsn: LOADED_LSN }, bytes))
            .collect();
        engine.apply(&changes)?;
    }
    let applied: Vec<_> = (0..args.slices).map(|slice| PageChange::Applied(slice, LOADED_LSN)).collect();
    engine.apply(&applied)?;
    engine.sync_pages()
}

/// Compares a sample of pages after all records are applied.
fn compare(server: &PageServer, args: &PageServerArgs, writers: &[PageWriter<'_>]) -> Result<u64> {
    let mut applier = Applier::default();
    for slice in 0..args.slices {
        if let Some((first, last)) = server.gaps(slice).first() {
            return Err(
                format!("wrong answer: records {first} to {last} of slice {slice} are missing; the run has no result: report it").into()
            );
        }
        while server.apply(&mut applier, slice)? {}
    }
    let step = (args.pages / CHECKED_MAX).max(1);
    let (mut checked, mut found, mut expected) = (0, Vec::new(), vec![0; PAGE_BYTES]);
    for page in (0..args.pages).step_by(step as usize) {
        let slice = page % args.slices;
        let writer = &writers[(slice % args.writers) as usize];
        let Some(of) = writer.slices.iter().find(|of| of.number == slice) else { continue };
        fill(slice, LOADED_LSN, page, &mut expected);
        for place in 0..args.places() {
            let lsn = of.last[(page / args.slices * args.places() + place) as usize];
            let from = place as usize * args.record_size;
            if lsn > 0 {
                fill(slice, lsn, page, &mut expected[from..from + args.record_size]);
            }
        }
        if let PageRead::KeptFrom(oldest) = server.read_page(page, of.next_lsn - 1, &mut found)? {
            return Err(format!(
                "wrong answer: page {page} is readable from LSN {oldest} on, but no record has this LSN; the run has no result: report it"
            )
            .into());
        }
        if found != expected {
            let at = found.iter().zip(&expected).take_while(|(a, b)| a == b).count();
            return Err(format!(
                "wrong answer: page {page} differs from its expected contents from byte {at} on; the run has no result: report it"
            )
            .into());
        }
        checked += 1;
    }
    Ok(checked)
}

/// Runs the benchmark in a store in `dir`.
///
/// # Errors
/// Errors of the engine; wrong results.
pub fn run(args: &PageServerArgs, opener: &dyn PageOpener, dir: &Path) -> Result<PageServerReport> {
    args.check()?;
    let counted = opener.counted(dir).to_owned();
    let written = || host::device_counters(&counted).map(|device| device.write_bytes);
    let engine = opener.open(dir, args)?;
    let ingested = ingest::run(&*engine, args, &counted)?;
    load(&*engine, args)?;
    let server = PageServer::open(engine, args.slices)?;
    let mut writers: Vec<PageWriter<'_>> =
        (0..args.writers).map(|writer| PageWriter::new(args, writer)).collect();
    let (start, cpu_ns) = (written(), host::process_counters().cpu_ns);
    let PageMeasurements { write, read, applier, seconds } = measure(&server, args, &mut writers)?;
    let backlog_bytes = server.backlog_bytes();
    let cpu_seconds = (host::process_counters().cpu_ns - cpu_ns) as f64 / 1e9;
    let device = start.zip(written()).map(|(from, to)| to.saturating_sub(from));
    let engine_settings = server.engine().settings().into_iter().collect();
    let mut checked = compare(&server, args, &writers)? + ingest::compare(server.engine(), args)?;
    server.close()?;
    let reopened_ns = now_ns();
    let server = PageServer::open(opener.open(dir, args)?, args.slices)?;
    let recovery_ms = (now_ns() - reopened_ns) as f64 / 1e6;
    checked += compare(&server, args, &writers)? + ingest::compare(server.engine(), args)?;
    server.close()?;
    Ok(PageServerReport {
        engine: opener.name(),
        options: args.clone(),
        ingested,
        seconds,
        write_log_per_s: write.ops as f64 / seconds,
        write_log: Latency::of(&write.latency_ns),
        read_page_per_s: read.ops as f64 / seconds,
        read_page: Latency::of(&read.latency_ns),
        applied_records_per_s: applier.applied_records as f64 / seconds,
        backlog_bytes,
        backlog_wait_seconds: writers.iter().map(|writer| writer.waited_ns).sum::<u64>() as f64 / 1e9,
        user_bytes: write.bytes,
        device_bytes_written: device,
        device_bytes_per_user_byte: device
            .filter(|_| write.bytes > 0)
            .map(|bytes| bytes as f64 / write.bytes as f64),
        stall_windows_100ms: write.stalls.windows,
        longest_without_progress_ms: write.stalls.longest_slots * SLOT_NS / 1_000_000,
        recovery_ms,
        checked,
        cpu_seconds,
        machine: host::machine(),
        engine_settings,
    })
}

#[cfg(test)]
mod tests;
