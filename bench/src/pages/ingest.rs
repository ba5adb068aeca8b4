//! `bench page-server --ingest`: whole segments of pages, as for a slice that moves from another
//! server.
//!
//! A segment is a run of pages that no record of this run touches; its page numbers follow those of
//! the mix. Before all other measurements the writer threads ingest the segments one by one, each
//! whole and durable on return ([`PageEngine::ingest`]). Written bytes are those of the ingestion,
//! including its background work that ends within `SETTLE`. A sample of the pages is compared
//! afterwards, and again after the records and the reopen.

use super::redo::PAGE_BYTES;
use super::server::PageEngine;
use super::{CHECKED_MAX, LOADED_LSN, PageServerArgs, fill};
use crate::Result;
use crate::host::{self, now_ns};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Timeout of background work.
const SETTLE: Duration = Duration::from_secs(60);
/// Maximum length of a segment: that of a value.
const SEGMENT_BYTES_MAX: u64 = lavastore::limits::VALUE_LEN_MAX;

/// Options of the ingestion.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct IngestArgs {
    /// Number of segments (whole runs of new pages) ingested and read back before the measured
    /// part, by the --writers; 0: none. Each takes --segment-bytes of disk space
    #[arg(long = "ingest", value_name = "SEGMENTS", default_value_t = 0)]
    pub segments: u64,
    /// Size of a segment in bytes: a plain number, a multiple of 16384, at most 1 GiB. No effect
    /// without --ingest
    #[arg(long, value_name = "BYTES", default_value_t = SEGMENT_BYTES_MAX)]
    pub segment_bytes: u64,
}

impl Default for IngestArgs {
    fn default() -> Self {
        IngestArgs { segments: 0, segment_bytes: SEGMENT_BYTES_MAX }
    }
}

impl IngestArgs {
    /// Returns the first invalid option.
    pub(super) fn complaint(&self) -> Option<&'static str> {
        let page = PAGE_BYTES as u64;
        let is_whole = self.segment_bytes >= page && self.segment_bytes.is_multiple_of(page);
        let complaint = "--segment-bytes must be a multiple of a page (16384 bytes), and at most 1 GiB";
        (!is_whole || self.segment_bytes > SEGMENT_BYTES_MAX).then_some(complaint)
    }

    fn pages(&self) -> u64 {
        self.segment_bytes / PAGE_BYTES as u64
    }
}

/// Results of the ingestion.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IngestReport {
    /// Number of segments.
    pub segments: u64,
    /// Total bytes.
    pub bytes: u64,
    /// Time until all were durable.
    pub seconds: f64,
    /// Millions of bytes per second.
    pub mb_per_s: f64,
    /// Millions of bytes per second when whole segments are read into memory; `None` if not
    /// supported.
    #[serde(default)]
    pub read_mb_per_s: Option<f64>,
    /// Device writes per ingested byte; `None` without a counter.
    pub device_bytes_per_byte: Option<f64>,
    /// Bytes written by this process per ingested byte; zero if files are in memory.
    pub process_bytes_per_byte: f64,
}

impl IngestReport {
    /// Formats the results as text.
    pub fn text(&self) -> String {
        let read = self.read_mb_per_s.map_or("-".to_owned(), |rate| format!("{rate:.0} MB/s"));
        let device = self.device_bytes_per_byte.map_or("-".to_owned(), |x| format!("{x:.3}"));
        format!(
            "ingested                      {} segments, {:.0} MB in {:.2} s: {:.0} MB/s\n\
             read back whole               {read}\n\
             written per byte of these     {device} by the device, {:.3} by the process\n",
            self.segments,
            self.bytes as f64 / 1e6,
            self.seconds,
            self.mb_per_s,
            self.process_bytes_per_byte,
        )
    }
}

fn first_page(args: &PageServerArgs, segment: u64) -> u64 {
    args.pages + segment * args.ingest.pages()
}

fn page_bytes(args: &PageServerArgs, page: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_BYTES];
    fill(page % args.slices, LOADED_LSN, page, &mut bytes);
    bytes
}

/// Ingests all segments; `None` without segments.
///
/// # Errors
/// Errors of the engine; a wrong page.
pub(super) fn run(
    engine: &dyn PageEngine,
    args: &PageServerArgs,
    counted: &Path,
) -> Result<Option<IngestReport>> {
    if args.ingest.segments == 0 {
        return Ok(None);
    }
    let written = || host::device_counters(counted).map(|device| device.write_bytes);
    let (device, process) = (written(), host::process_counters().write_bytes);
    let start_ns = now_ns();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..args.writers).map(|writer| scope.spawn(move || bring(engine, args, writer))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread of the ingestion panicked")?)
    })?;
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    engine.settle(SETTLE);
    let bytes = args.ingest.segments * args.ingest.segment_bytes;
    let per_byte = |count: u64| count as f64 / bytes as f64;
    let device = device.zip(written()).map(|(from, to)| per_byte(to.saturating_sub(from)));
    Ok(Some(IngestReport {
        segments: args.ingest.segments,
        bytes,
        seconds,
        mb_per_s: bytes as f64 / 1e6 / seconds,
        read_mb_per_s: read_back(engine, args)?,
        device_bytes_per_byte: device,
        process_bytes_per_byte: per_byte(host::process_counters().write_bytes.saturating_sub(process)),
    }))
}

/// Reads each segment as a whole, one by one; returns millions of bytes per second.
fn read_back(engine: &dyn PageEngine, args: &PageServerArgs) -> Result<Option<f64>> {
    let (start_ns, mut bytes) = (now_ns(), 0);
    for segment in 0..args.ingest.segments {
        let Some(len) = engine.read_ingested(first_page(args, segment))? else { return Ok(None) };
        if len != args.ingest.segment_bytes {
            return Err(format!(
                "wrong answer: segment {segment} has {len} bytes; the run has no result: report it"
            )
            .into());
        }
        bytes += len;
    }
    Ok(Some(bytes as f64 / 1e6 / ((now_ns() - start_ns) as f64 / 1e9)))
}

/// Ingests the segments of a thread.
fn bring(engine: &dyn PageEngine, args: &PageServerArgs, writer: u64) -> Result<()> {
    for segment in (writer..args.ingest.segments).step_by(args.writers as usize) {
        let first = first_page(args, segment);
        let numbers = first..first + args.ingest.pages();
        engine.ingest(first, &mut numbers.map(|page| page_bytes(args, page)))?;
    }
    Ok(())
}

/// Compares a sample of the pages of all segments, including the first and last of each; returns
/// its size.
///
/// # Errors
/// Errors of the engine; a wrong page.
pub(super) fn compare(engine: &dyn PageEngine, args: &PageServerArgs) -> Result<u64> {
    let (mut checked, mut found) = (0, Vec::new());
    let in_all = args.ingest.segments * args.ingest.pages();
    let step = (in_all / CHECKED_MAX).max(1) as usize;
    for segment in 0..args.ingest.segments {
        let (first, last) = (first_page(args, segment), args.ingest.pages() - 1);
        for nth in (0..last).step_by(step).chain([last]) {
            found.clear();
            let is_there = engine.ingested_page(first, nth, &mut found)?;
            if !is_there || found != page_bytes(args, first + nth) {
                return Err(format!(
                    "wrong answer: page {nth} of segment {segment} has other contents than were ingested; the run has no result: report it"
                )
                .into());
            }
            checked += 1;
        }
    }
    Ok(checked)
}

#[cfg(test)]
mod tests;
