//! The page server; `main.rs` describes the example.
//!
//! ```text
//! write_log  records -> log of the slice, durable          LSNs in any order; gaps are filled later
//! Applier    log, up to the first gap -> a delta for each record, and how far the slice is applied (one volatile batch)
//!            -> a page with FOLDED deltas: a new version of it, and what no reader wants goes
//!            -> now and then: flush, then trim the log to what was applied before the flush
//! read_page  newest version at or below the LSN + the deltas between
//! ```
//!
//! A *slice* is a set of pages (page modulo slices) with its own log and its own LSNs, from 1. One
//! family has all other data:
//!
//! | key | value |
//! |---|---|
//! | `A` slice | last applied LSN |
//! | `D` page LSN | delta: the redo record as in the log |
//! | `P` page LSN | version: the page as of this LSN, 16 KiB |
//!
//! Numbers in keys are big-endian `u64`, so versions and deltas of a page are in LSN order.
//!
//! # Crash consistency
//!
//! A record is durable when `write_log` returns. Its deltas and versions are volatile, so they are
//! written once and not to a second log. A crash loses a suffix of them in whole batches, since all
//! are in one family. The slice is then at an older applied LSN. The log still has the later
//! records, because it is trimmed only up to flushed data. Deltas and versions are then rebuilt
//! identically.
//!
//! # Retention
//!
//! The store keeps the last two versions of a page and the deltas behind the older one. So a page
//! can be read as of any LSN from the older version on; a page with fewer versions, as of any LSN.
//! A reader uses a snapshot and never sees half of a change.

use lavastore::{
    Db, Error, Family, Log, LogBatch, LogOptions, LogStore, Lsn, Options, Snapshot, WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Size of a page in bytes.
pub const PAGE_BYTES: usize = 16 << 10;
/// Number of deltas of a page that triggers a new version.
const FOLDED: usize = 32;
/// Records per applied batch.
const APPLY_RECORDS: usize = 256;
/// Bytes of records between two trims of the log.
const TRIM_BYTES: usize = 16 << 20;
/// Maximum number of gaps reported to a reader.
const GAPS_TOLD: usize = 8;

/// A redo record: `page u64 | at u16 | bytes`, little-endian.
#[derive(Clone, Debug)]
pub struct Redo {
    /// The page.
    pub page: u64,
    /// Offset in the page.
    pub at: u16,
    /// New bytes at this offset.
    pub bytes: Vec<u8>,
}

impl Redo {
    /// Encodes the record for the log.
    pub fn encode(&self) -> Vec<u8> {
        [&self.page.to_le_bytes()[..], &self.at.to_le_bytes(), &self.bytes].concat()
    }

    fn decode(record: &[u8]) -> Result<Redo, Error> {
        let none = || Error::new(lavastore::ErrorKind::Corruption, "a record of a log is no redo record");
        let (page, rest) = record.split_first_chunk().ok_or_else(none)?;
        let (at, bytes) = rest.split_first_chunk().ok_or_else(none)?;
        let redo =
            Redo { page: u64::from_le_bytes(*page), at: u16::from_le_bytes(*at), bytes: bytes.to_vec() };
        if usize::from(redo.at) + bytes.len() <= PAGE_BYTES { Ok(redo) } else { Err(none()) }
    }

    /// Applies the change to a page.
    pub fn apply(&self, page: &mut [u8]) {
        let at = usize::from(self.at);
        page[at..at + self.bytes.len()].copy_from_slice(&self.bytes);
    }
}

/// Reasons for a failed page read.
#[derive(Debug)]
pub enum ReadError {
    /// The slice is not applied up to this LSN yet, and these LSNs are missing.
    NotApplied {
        /// Last applied LSN.
        applied: Lsn,
        /// The gaps below the requested LSN.
        missing: Vec<RangeInclusive<Lsn>>,
    },
    /// The retained versions of the page start at a later LSN.
    TooOld {
        /// Oldest readable LSN.
        oldest: Lsn,
    },
    /// An error of the store.
    Store(Error),
}

impl From<Error> for ReadError {
    fn from(e: Error) -> ReadError {
        ReadError::Store(e)
    }
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadError::NotApplied { applied, missing } => {
                write!(f, "applied up to {applied}, missing {missing:?}")
            }
            ReadError::TooOld { oldest } => write!(f, "kept from {oldest} on"),
            ReadError::Store(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

struct Slice {
    log: Log,
    /// Last applied LSN.
    applied: Mutex<Lsn>,
    /// Signals an advance of `applied`.
    moved: Condvar,
}

/// The page server; see the module.
pub struct PageServer {
    /// The store of pages.
    pub db: Db,
    /// The store of logs.
    pub logs: LogStore,
    pages: Family,
    slices: Vec<Slice>,
    /// Whether records have arrived since the last turn of the applier.
    has_come: Mutex<bool>,
    came: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(kind: u8, page: u64, lsn: Lsn) -> Vec<u8> {
    [&[kind][..], &page.to_be_bytes(), &lsn.to_be_bytes()].concat()
}

fn lsn_of(key: &[u8]) -> Lsn {
    key.last_chunk().map_or(0, |lsn| Lsn::from_be_bytes(*lsn))
}

fn applied_key(slice: u64) -> Vec<u8> {
    [&b"A"[..], &slice.to_be_bytes()].concat()
}

/// Opens the stores of a page server. The rest of the code does not depend on their layout.
fn open_stores(dir: &Path) -> Result<(Db, LogStore), Error> {
    // Small log groups, so that trims free files within seconds.
    let options = LogOptions { group_bytes: Some(16 << 20), ..LogOptions::default() };
    Ok((
        Db::open_with(dir.join("pages"), &Options::default())?,
        LogStore::open_with(dir.join("logs"), &options)?,
    ))
}

impl PageServer {
    /// Opens the server: each slice is applied as far as its pages were flushed.
    pub fn open(dir: &Path, slices: u64) -> Result<PageServer, Error> {
        let (db, logs) = open_stores(dir)?;
        let pages = db.family("pages")?;
        let open = |slice: u64| -> Result<Slice, Error> {
            let applied = pages.get(applied_key(slice))?.map_or(0, |lsn| lsn_of(&lsn));
            let log = logs.log(&format!("slice-{slice}"))?;
            Ok(Slice { log, applied: Mutex::new(applied), moved: Condvar::new() })
        };
        let slices = (0..slices).map(open).collect::<Result<_, _>>()?;
        Ok(PageServer { db, logs, pages, slices, has_come: Mutex::new(true), came: Condvar::new() })
    }

    fn slice(&self, slice: u64) -> &Slice {
        &self.slices[slice as usize]
    }

    /// Appends records from `first_lsn` on; they are durable on return.
    pub fn write_log(&self, slice: u64, first_lsn: Lsn, records: &[Vec<u8>]) -> Result<(), Error> {
        let mut batch = LogBatch::new();
        for (lsn, record) in (first_lsn..).zip(records) {
            batch.append(&self.slice(slice).log, lsn, record);
        }
        self.logs.write(&batch)?;
        *lock(&self.has_come) = true;
        self.came.notify_one();
        Ok(())
    }

    /// Returns the last applied LSN of a slice.
    pub fn applied(&self, slice: u64) -> Lsn {
        *lock(&self.slice(slice).applied)
    }

    /// Returns the missing LSNs of a slice, up to its last record.
    pub fn gaps(&self, slice: u64) -> Result<Vec<RangeInclusive<Lsn>>, Error> {
        self.slice(slice).log.gaps(self.applied(slice) + 1.., GAPS_TOLD)
    }

    /// Returns a page as of an LSN, and waits until the LSN is applied.
    pub fn read_page(&self, page: u64, lsn: Lsn, wait: Duration) -> Result<Vec<u8>, ReadError> {
        let slice = self.slice(page % self.slices.len() as u64);
        let held = lock(&slice.applied);
        let waited = slice.moved.wait_timeout_while(held, wait, |applied| *applied < lsn);
        let applied = *waited.unwrap_or_else(PoisonError::into_inner).0;
        if applied < lsn {
            let missing = slice.log.gaps(applied + 1..=lsn, GAPS_TOLD)?;
            return Err(ReadError::NotApplied { applied, missing });
        }
        self.build(&self.db.snapshot(), page, lsn)
    }

    fn build(&self, now: &Snapshot, page: u64, lsn: Lsn) -> Result<Vec<u8>, ReadError> {
        let pages = now.family(&self.pages);
        let newest = pages.range(key(b'P', page, 0)..=key(b'P', page, lsn)).next_back().transpose()?;
        let (version, mut out) = match newest {
            Some((key, bytes)) => (lsn_of(&key), bytes),
            None => (0, vec![0; PAGE_BYTES]),
        };
        if version == 0 {
            // All deltas exist unless the page has two later versions.
            let mut later = pages.range(key(b'P', page, lsn)..key(b'P', page + 1, 0)).keys();
            if let (Some(oldest), Some(_)) = (later.next().transpose()?, later.next()) {
                return Err(ReadError::TooOld { oldest: lsn_of(&oldest) });
            }
        }
        for delta in pages.range(key(b'D', page, version + 1)..=key(b'D', page, lsn)) {
            Redo::decode(&delta?.1)?.apply(&mut out);
        }
        Ok(out)
    }
}

/// Applies arrived records; one per server.
pub struct Applier<'a> {
    server: &'a PageServer,
    /// Number of deltas of each page behind its last version.
    unfolded: BTreeMap<u64, usize>,
    since_trim: usize,
}

impl<'a> Applier<'a> {
    /// Returns an applier without any delta counts.
    pub fn new(server: &'a PageServer) -> Applier<'a> {
        Applier { server, unfolded: BTreeMap::new(), since_trim: 0 }
    }

    /// Applies all records before gaps, then waits a moment for more.
    pub fn turn(&mut self) -> Result<(), ReadError> {
        let held = lock(&self.server.has_come);
        let wait = Duration::from_millis(10);
        let woken = self.server.came.wait_timeout_while(held, wait, |has_come| !*has_come);
        *woken.unwrap_or_else(PoisonError::into_inner).0 = false;
        for slice in 0..self.server.slices.len() as u64 {
            while self.apply(slice)? {}
        }
        if self.since_trim >= TRIM_BYTES { self.trim() } else { Ok(()) }
    }

    /// Applies some records of a slice; returns false if there are none before the next gap.
    fn apply(&mut self, slice: u64) -> Result<bool, ReadError> {
        let (server, of) = (self.server, self.server.slice(slice));
        let from = server.applied(slice) + 1;
        let Some(last) = of.log.last_lsn()?.filter(|last| *last >= from) else { return Ok(false) };
        let whole = match of.log.gaps(from..=last, 1)?.first() {
            Some(gap) if *gap.start() == from => return Ok(false),
            Some(gap) => gap.start() - 1,
            None => last,
        };
        let (mut batch, mut touched, mut applied) = (WriteBatch::new(), Vec::new(), from - 1);
        for record in of.log.scan(from..=whole).take(APPLY_RECORDS) {
            let (lsn, record) = record?;
            let page = Redo::decode(&record)?.page;
            batch.family(&server.pages).put(key(b'D', page, lsn), &record);
            self.since_trim += record.len();
            touched.push(page);
            applied = lsn;
        }
        batch.family(&server.pages).put(applied_key(slice), applied.to_be_bytes());
        server.db.writing(&WriteOptions::volatile()).write(&batch)?;
        *lock(&of.applied) = applied;
        of.moved.notify_all();
        self.fold(&touched, applied)?;
        Ok(true)
    }

    /// Writes versions of pages with enough deltas.
    fn fold(&mut self, touched: &[u64], lsn: Lsn) -> Result<(), ReadError> {
        let (server, now) = (self.server, self.server.db.snapshot());
        let pages = now.family(&server.pages);
        let mut batch = WriteBatch::new();
        for &page in touched {
            let before = match self.unfolded.get(&page) {
                Some(count) => *count,
                None => pages.range(key(b'D', page, 0)..key(b'D', page + 1, 0)).keys().count() - 1,
            };
            self.unfolded.insert(page, before + 1);
            if before + 1 < FOLDED {
                continue;
            }
            self.unfolded.insert(page, 0);
            let versions: Vec<Lsn> = pages
                .range(key(b'P', page, 0)..key(b'P', page, lsn))
                .keys()
                .map(|key| key.map(|key| lsn_of(&key)))
                .collect::<Result<_, _>>()?;
            batch.family(&server.pages).put(key(b'P', page, lsn), server.build(&now, page, lsn)?);
            let Some((kept, older)) = versions.split_last() else { continue };
            for version in older {
                batch.family(&server.pages).delete(key(b'P', page, *version));
            }
            for delta in pages.range(key(b'D', page, 0)..=key(b'D', page, *kept)).keys() {
                batch.family(&server.pages).delete(delta?);
            }
        }
        Ok(server.db.writing(&WriteOptions::volatile()).write(&batch)?)
    }

    /// Flushes the applied records and trims them from the log.
    pub fn trim(&mut self) -> Result<(), ReadError> {
        let slices = 0..self.server.slices.len() as u64;
        let applied: Vec<Lsn> = slices.map(|slice| self.server.applied(slice)).collect();
        self.server.db.flush()?;
        for (slice, lsn) in self.server.slices.iter().zip(applied) {
            slice.log.trim(lsn + 1)?;
        }
        self.since_trim = 0;
        Ok(())
    }
}
