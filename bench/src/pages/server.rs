//! A page server: WriteLog makes records durable, which become deltas of pages, and then pages.
//!
//! ```text
//! WriteLog   records -> log of the slice (durable) -> received: runs of LSNs, gaps until the late ones come
//! applier    log, up to the first gap -> deltas (page, LSN) -> every FOLDED deltas a new version of the page
//!            -> now and then: pages durable, log trimmed
//! ReadPage   newest version at or below the LSN + the deltas between
//! ```
//!
//! A *slice* is a set of pages (page modulo slices) with its own log. LSNs of a slice begin at 1.
//!
//! The data in the [`PageEngine`] suffices to reopen: the applied LSN of each slice is in the same
//! batch as its deltas. In memory there is the *chain* of each page: its versions and the LSNs of
//! its deltas, so that readers request only existing data. A page keeps its last two versions and
//! the deltas behind the older one. A reader of a recent LSN superseded by one version still finds
//! everything; if superseded by two, it is told the oldest LSN of the page.
//!
//! Follows LavaStore, SIGMOD 2024 (section 2.1): log manager, delta store, page store, segment
//! manager.

use super::LOADED_LSN;
use super::redo::{PAGE_BYTES, Redo};
use crate::Result;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// Number of deltas of a page that triggers a new version.
pub const FOLDED: usize = 16;
/// Records per applied batch.
const APPLY_RECORDS: usize = 256;
/// Applied bytes of records between two syncs of pages and trims of logs.
const TRIM_BYTES: u64 = 16 << 20;
/// Maximum number of retries of a reader whose chain does not match the engine yet, and the wait
/// before each.
const RETRIES_MAX: usize = 10_000;
const RETRY_WAIT: Duration = Duration::from_millis(1);

/// A page as of an LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The page.
    pub page: u64,
    /// The LSN.
    pub lsn: u64,
}

/// Result of reading a page.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageRead {
    /// The page as of the LSN was read.
    Whole,
    /// The page is kept only from this LSN on: newer versions superseded the read.
    KeptFrom(u64),
}

/// A change of the stored pages.
#[derive(Clone, Copy, Debug)]
pub enum PageChange<'a> {
    /// Adds a delta, the whole record.
    PutDelta(At, &'a [u8]),
    /// Removes a delta.
    DropDelta(At),
    /// Adds a version with its bytes.
    PutPage(At, &'a [u8]),
    /// Removes a version.
    DropPage(At),
    /// Sets the applied LSN of a slice.
    Applied(u64, u64),
}

/// Storage of a page server: the log of each slice, deltas, page versions, and applied LSNs.
pub trait PageEngine: Send + Sync {
    /// Appends records of a slice durably, with LSNs from `first_lsn` on.
    ///
    /// # Errors
    /// Errors of the engine.
    fn write_log(&self, slice: u64, first_lsn: u64, records: &[Vec<u8>]) -> Result<()>;
    /// Passes the records of a slice from an LSN on to `each`, in order, until it returns false.
    ///
    /// # Errors
    /// Errors of the engine and of `each`.
    fn read_log(&self, slice: u64, from: u64, each: &mut dyn FnMut(u64, &[u8]) -> Result<bool>)
    -> Result<()>;
    /// Removes the records of a slice below an LSN.
    ///
    /// # Errors
    /// Errors of the engine.
    fn trim_log(&self, slice: u64, below: u64) -> Result<()>;
    /// Applies changes; after a loss of power all of them are there, or none.
    ///
    /// # Errors
    /// Errors of the engine.
    fn apply(&self, changes: &[PageChange<'_>]) -> Result<()>;
    /// Makes all applied changes durable.
    ///
    /// # Errors
    /// Errors of the engine.
    fn sync_pages(&self) -> Result<()>;
    /// Returns the applied LSN of a slice.
    ///
    /// # Errors
    /// Errors of the engine.
    fn applied(&self, slice: u64) -> Result<u64>;
    /// Reads a version of a page into `out`; returns false if there is none.
    ///
    /// # Errors
    /// Errors of the engine.
    fn page(&self, page: u64, lsn: u64, out: &mut Vec<u8>) -> Result<bool>;
    /// Passes the deltas of a page between two LSNs, inclusive, in order.
    ///
    /// # Errors
    /// Errors of the engine and of `each`.
    fn deltas(
        &self,
        page: u64,
        from: u64,
        to: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()>;
    /// Passes page and LSN of all versions, then of all deltas (true), each in order of page and
    /// LSN.
    ///
    /// # Errors
    /// Errors of the engine.
    fn all(&self, each: &mut dyn FnMut(u64, u64, bool)) -> Result<()>;
    /// Ingests a segment durably: consecutive pages that no record touches. Falls back to writing
    /// versions of pages.
    ///
    /// # Errors
    /// Errors of the engine.
    fn ingest(&self, first_page: u64, pages: &mut dyn Iterator<Item = Vec<u8>>) -> Result<()> {
        for (page, bytes) in (first_page..).zip(pages) {
            self.apply(&[PageChange::PutPage(At { page, lsn: LOADED_LSN }, &bytes)])?;
        }
        self.sync_pages()
    }
    /// Reads the `nth` page of an ingested segment into `out`; returns false if there is none.
    ///
    /// # Errors
    /// Errors of the engine.
    fn ingested_page(&self, first_page: u64, nth: u64, out: &mut Vec<u8>) -> Result<bool> {
        self.page(first_page + nth, LOADED_LSN, out)
    }
    /// Reads an ingested segment into memory. Returns its length; `None` if not supported.
    ///
    /// # Errors
    /// Errors of the engine.
    fn read_ingested(&self, _first_page: u64) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Waits until there is no background work, or for `wait`.
    fn settle(&self, _wait: Duration) {}
    /// Returns the engine's settings.
    fn settings(&self) -> Vec<(String, String)>;
    /// Closes the store.
    ///
    /// # Errors
    /// Errors of the engine.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The stored data of a page. Without a version at LSN 0 the page begins with zeros.
#[derive(Clone, Debug, Default)]
struct Chain {
    /// The version before the last one, if any.
    older: Option<u64>,
    /// The last version; 0: none, the page begins with zeros.
    newer: u64,
    /// Deltas behind `older`, or all.
    deltas: Vec<u64>,
}

/// Received records of a slice.
#[derive(Debug, Default)]
struct Received {
    /// All records up to this LSN were received.
    whole: u64,
    /// Ranges received behind a gap: first to last LSN.
    beyond: BTreeMap<u64, u64>,
}

impl Received {
    fn add(&mut self, first: u64, last: u64) {
        self.beyond.insert(first, last);
        while let Some(run) = self.beyond.first_entry().filter(|run| *run.key() <= self.whole + 1) {
            self.whole = self.whole.max(run.remove());
        }
    }
}

/// A slice.
#[derive(Debug, Default)]
struct Slice {
    /// Guards the received ranges.
    received: Mutex<Received>,
    /// Guards the chain of each page.
    chains: RwLock<BTreeMap<u64, Chain>>,
    applied: AtomicU64,
}

/// The page server; see the module.
pub struct PageServer {
    engine: Box<dyn PageEngine>,
    slices: Vec<Slice>,
    /// Guards the bytes of received records that are not applied, for waiting writers.
    backlog_bytes: Mutex<u64>,
    changed: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State of an applier between turns.
#[derive(Debug, Default)]
pub struct Applier {
    since_trim_bytes: u64,
    /// Bytes of applied records.
    pub applied_bytes: u64,
    /// Number of applied records.
    pub applied_records: u64,
}

impl PageServer {
    /// Opens the server on an engine: reads the chains, and finds the unapplied records in the
    /// logs.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn open(engine: Box<dyn PageEngine>, slices: u64) -> Result<PageServer> {
        let mut found: Vec<BTreeMap<u64, Chain>> = (0..slices).map(|_| BTreeMap::new()).collect();
        engine.all(&mut |page, lsn, is_delta| {
            let chain = found[(page % slices) as usize].entry(page).or_default();
            match is_delta {
                true => chain.deltas.push(lsn),
                false => {
                    chain.older = Some(chain.newer).filter(|newer| *newer > 0);
                    chain.newer = lsn;
                }
            }
        })?;
        let mut backlog_bytes = 0;
        let mut opened = Vec::new();
        for (slice, chains) in (0..slices).zip(found) {
            let applied = engine.applied(slice)?;
            let mut received = Received { whole: applied, beyond: BTreeMap::new() };
            engine.read_log(slice, applied + 1, &mut |lsn, record| {
                received.add(lsn, lsn);
                backlog_bytes += record.len() as u64;
                Ok(true)
            })?;
            opened.push(Slice {
                received: Mutex::new(received),
                chains: RwLock::new(chains),
                applied: AtomicU64::new(applied),
            });
        }
        let backlog_bytes = Mutex::new(backlog_bytes);
        Ok(PageServer { engine, slices: opened, backlog_bytes, changed: Condvar::new() })
    }

    /// Returns the underlying engine.
    pub fn engine(&self) -> &dyn PageEngine {
        &*self.engine
    }

    /// Returns the number of slices.
    pub fn slices(&self) -> u64 {
        self.slices.len() as u64
    }

    fn of_page(&self, page: u64) -> &Slice {
        &self.slices[(page % self.slices()) as usize]
    }

    /// Appends records of a slice durably, with LSNs from `first_lsn` on. Gaps may be filled later.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn write_log(&self, slice: u64, first_lsn: u64, records: &[Vec<u8>]) -> Result<()> {
        self.engine.write_log(slice, first_lsn, records)?;
        *lock(&self.backlog_bytes) += records.iter().map(|record| record.len() as u64).sum::<u64>();
        lock(&self.slices[slice as usize].received).add(first_lsn, first_lsn + records.len() as u64 - 1);
        self.changed.notify_all();
        Ok(())
    }

    /// Returns the bytes of received records that are not applied.
    pub fn backlog_bytes(&self) -> u64 {
        *lock(&self.backlog_bytes)
    }

    /// Waits until the backlog is below `below_bytes`, or for `wait`.
    pub fn wait_for_backlog(&self, below_bytes: u64, wait: Duration) {
        let held = lock(&self.backlog_bytes);
        let _ = self.changed.wait_timeout_while(held, wait, |bytes| *bytes >= below_bytes);
    }

    /// Waits until records are received or applied, or for `wait`.
    pub fn wait_for_change(&self, wait: Duration) {
        drop(self.changed.wait_timeout(lock(&self.backlog_bytes), wait));
    }

    /// Returns the applied LSN of a slice.
    pub fn applied(&self, slice: u64) -> u64 {
        self.slices[slice as usize].applied.load(Ordering::Acquire)
    }

    /// Returns the first and last LSN of each gap in the received records of a slice.
    pub fn gaps(&self, slice: u64) -> Vec<(u64, u64)> {
        let received = lock(&self.slices[slice as usize].received);
        let mut from = received.whole + 1;
        let mut gaps = Vec::new();
        for (first, last) in &received.beyond {
            gaps.push((from, first - 1));
            from = last + 1;
        }
        gaps
    }

    /// Applies some received records of a slice. Returns false if there are none.
    ///
    /// # Errors
    /// Errors of the engine; an invalid record.
    pub fn apply(&self, applier: &mut Applier, slice: u64) -> Result<bool> {
        let of = &self.slices[slice as usize];
        let (from, to) = (self.applied(slice) + 1, lock(&of.received).whole);
        if from > to {
            return Ok(false);
        }
        let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
        self.engine.read_log(slice, from, &mut |lsn, record| {
            if lsn <= to {
                records.push((lsn, record.to_vec()));
            }
            Ok(lsn < to && records.len() < APPLY_RECORDS)
        })?;
        let Some(&(last, _)) = records.last() else {
            return Err(format!("records {from} to {to} of slice {slice} are not in its log").into());
        };
        self.fold(slice, &records, last)?;
        of.applied.store(last, Ordering::Release);
        let bytes = records.iter().map(|(_, record)| record.len() as u64).sum::<u64>();
        *lock(&self.backlog_bytes) -= bytes;
        self.changed.notify_all();
        applier.applied_bytes += bytes;
        applier.applied_records += records.len() as u64;
        applier.since_trim_bytes += bytes;
        if applier.since_trim_bytes >= TRIM_BYTES {
            applier.since_trim_bytes = 0;
            self.trim()?;
        }
        Ok(true)
    }

    /// Makes applied changes durable, and trims the logs up to them.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn trim(&self) -> Result<()> {
        let applied: Vec<u64> = (0..self.slices()).map(|slice| self.applied(slice)).collect();
        self.engine.sync_pages()?;
        (0..).zip(applied).try_for_each(|(slice, lsn)| self.engine.trim_log(slice, lsn + 1))
    }

    /// Applies a batch: deltas, new versions of pages with enough deltas, and the applied LSN.
    fn fold(&self, slice: u64, records: &[(u64, Vec<u8>)], last: u64) -> Result<()> {
        let of = &self.slices[slice as usize];
        let mut changes = vec![PageChange::Applied(slice, last)];
        let mut touched: BTreeMap<u64, Vec<&(u64, Vec<u8>)>> = BTreeMap::new();
        for record in records {
            touched.entry(Redo::decode(&record.1)?.page).or_default().push(record);
        }
        let mut chains: Vec<(u64, Chain)> = Vec::new();
        let mut versions: Vec<(u64, u64, Vec<u8>)> = Vec::new();
        for (&page, new) in &touched {
            let mut chain = of
                .chains
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&page)
                .cloned()
                .unwrap_or_default();
            let in_engine = chain.deltas.len();
            chain.deltas.extend(new.iter().map(|(lsn, _)| *lsn));
            changes
                .extend(new.iter().map(|(lsn, record)| PageChange::PutDelta(At { page, lsn: *lsn }, record)));
            let since = chain.deltas.iter().filter(|lsn| **lsn > chain.newer).count();
            if since >= FOLDED {
                let mut bytes = Vec::new();
                if !self.build(page, &chain, &chain.deltas[..in_engine], u64::MAX, &mut bytes)? {
                    return Err(
                        format!("wrong answer: the base or a redo record of page {page} is missing; the run has no result: report it").into()
                    );
                }
                new.iter()
                    .try_for_each(|(_, record)| Redo::decode(record).map(|redo| redo.apply(&mut bytes)))?;
                let version = *chain.deltas.last().unwrap_or(&0);
                // Readers may use the previous version: only data older than it is removed.
                let kept_from = chain.newer;
                changes.extend(chain.older.map(|lsn| PageChange::DropPage(At { page, lsn })));
                let dropped = chain.deltas.iter().filter(|lsn| **lsn <= kept_from);
                changes.extend(dropped.map(|lsn| PageChange::DropDelta(At { page, lsn: *lsn })));
                chain.deltas.retain(|lsn| *lsn > kept_from);
                chain.older = Some(chain.newer).filter(|newer| *newer > 0);
                chain.newer = version;
                versions.push((page, version, bytes));
            }
            chains.push((page, chain));
        }
        changes.extend(
            versions
                .iter()
                .map(|(page, lsn, bytes)| PageChange::PutPage(At { page: *page, lsn: *lsn }, bytes)),
        );
        self.engine.apply(&changes)?;
        of.chains.write().unwrap_or_else(PoisonError::into_inner).extend(chains);
        Ok(())
    }

    /// Builds the page as of an LSN, from its newest version at or below it and the `deltas` behind
    /// that. Returns false if a part was removed meanwhile.
    fn build(&self, page: u64, chain: &Chain, deltas: &[u64], lsn: u64, out: &mut Vec<u8>) -> Result<bool> {
        let version = match chain.newer <= lsn {
            true => chain.newer,
            false => chain.older.unwrap_or(0),
        };
        out.clear();
        if version == 0 {
            out.resize(PAGE_BYTES, 0);
        } else if !self.engine.page(page, version, out)? {
            return Ok(false);
        }
        let mut wanted = deltas.iter().filter(|delta| **delta > version && **delta <= lsn).peekable();
        let Some(&&first) = wanted.peek() else { return Ok(true) };
        let last = deltas.iter().rev().find(|delta| **delta <= lsn).copied().unwrap_or(first);
        let mut is_whole = true;
        self.engine.deltas(page, first, last, &mut |delta, record| {
            // Deltas missing in the chain are newer.
            while wanted.next_if(|next| **next < delta).is_some() {
                is_whole = false;
            }
            if wanted.next_if(|next| **next == delta).is_some() {
                Redo::decode(record)?.apply(out);
            }
            Ok(())
        })?;
        Ok(is_whole && wanted.next().is_none())
    }

    /// Returns the oldest LSN as of which a page can be read.
    pub fn oldest(&self, page: u64) -> u64 {
        let chains = self.of_page(page).chains.read().unwrap_or_else(PoisonError::into_inner);
        chains.get(&page).and_then(|chain| chain.older).unwrap_or(0)
    }

    /// Reads a page as of an LSN into `out`.
    ///
    /// # Errors
    /// An LSN that is not applied yet; errors of the engine.
    pub fn read_page(&self, page: u64, lsn: u64, out: &mut Vec<u8>) -> Result<PageRead> {
        let of = self.of_page(page);
        if lsn > of.applied.load(Ordering::Acquire) {
            return Err(format!(
                "page {page} is not applied up to LSN {lsn} yet: read it later, or as of an earlier LSN"
            )
            .into());
        }
        for _ in 0..RETRIES_MAX {
            let chain = {
                let chains = of.chains.read().unwrap_or_else(PoisonError::into_inner);
                chains.get(&page).cloned().unwrap_or_default()
            };
            let oldest = chain.older.unwrap_or(0);
            if lsn < oldest {
                return Ok(PageRead::KeptFrom(oldest));
            }
            if self.build(page, &chain, &chain.deltas, lsn, out)? {
                return Ok(PageRead::Whole);
            }
            // The engine has the applier's change already; the chain has it in a moment.
            self.wait_for_change(RETRY_WAIT);
        }
        Err(format!("page {page} changed during each of {RETRIES_MAX} attempts to read it: read it again")
            .into())
    }

    /// Makes applied changes durable and closes the engine.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn close(self) -> Result<()> {
        self.engine.sync_pages()?;
        self.engine.close()
    }
}

#[cfg(test)]
mod tests;
