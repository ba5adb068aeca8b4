//! A page server: what WriteLog brings is durable at once, becomes deltas of pages, and then pages.
//!
//! ```text
//! WriteLog   records -> log of the slice (durable) -> received: runs of LSNs, gaps until the late ones come
//! applier    log, up to the first gap -> deltas (page, LSN) -> every FOLDED deltas a new version of the page
//!            -> now and then: pages durable, log trimmed
//! ReadPage   newest version at or below the LSN + the deltas between
//! ```
//!
//! A *slice* is a set of pages with a log of its own (page modulo slices). LSNs of a slice begin at 1.
//!
//! What is in the [`PageEngine`] is enough to open again: for each slice how far it was applied, the same batch as the deltas that
//! follow from it. In memory there is the *chain* of each page: its versions and the LSNs of its deltas, so that a reader
//! asks for what there is and nothing else. A page keeps its last two versions and the deltas behind the older one: a reader of
//! a recent LSN that is overtaken by one version still finds everything; by two, it is told from where on the page is kept.
//!
//! After LavaStore, SIGMOD 2024 (section 2.1): log manager, delta store, page store, segment manager.

use super::LOADED_LSN;
use super::redo::{PAGE_BYTES, Redo};
use crate::Result;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// Deltas of a page from which a new version is made.
pub const FOLDED: usize = 16;
/// Records that are applied in one batch.
const APPLY_RECORDS: usize = 256;
/// Applied bytes of records after which pages are made durable and logs are trimmed.
const TRIM_BYTES: u64 = 16 << 20;
/// How often a reader asks the chain again that is not yet what the engine has, and how long it waits before.
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

/// What came of reading a page.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageRead {
    /// The page as of the LSN.
    Whole,
    /// It is kept from this LSN on: newer versions have overtaken the reader.
    KeptFrom(u64),
}

/// One change of what is kept of pages.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A delta, whole as the record was.
    PutDelta(At, &'a [u8]),
    /// A delta is not wanted any more.
    DropDelta(At),
    /// A version, with its bytes.
    PutPage(At, &'a [u8]),
    /// A version is not wanted any more.
    DropPage(At),
    /// A slice is applied up to this LSN.
    Applied(u64, u64),
}

/// What a page server stands on: the log of each slice, deltas, versions of pages, and how far slices are applied.
pub trait PageEngine: Send + Sync {
    /// Appends records of a slice with LSNs from one on; they have survived a loss of power on return.
    ///
    /// # Errors
    /// Those of the engine.
    fn write_log(&self, slice: u64, first_lsn: u64, records: &[Vec<u8>]) -> Result<()>;
    /// Hands out the records of a slice from an LSN on, in order, until told to stop (false).
    ///
    /// # Errors
    /// Those of the engine and of `each`.
    fn read_log(&self, slice: u64, from: u64, each: &mut dyn FnMut(u64, &[u8]) -> Result<bool>)
    -> Result<()>;
    /// Forgets the records of a slice below an LSN.
    ///
    /// # Errors
    /// Those of the engine.
    fn trim_log(&self, slice: u64, below: u64) -> Result<()>;
    /// All of it, or after a loss of power all of it or nothing.
    ///
    /// # Errors
    /// Those of the engine.
    fn apply(&self, changes: &[Change<'_>]) -> Result<()>;
    /// Makes all that was applied durable.
    ///
    /// # Errors
    /// Those of the engine.
    fn sync_pages(&self) -> Result<()>;
    /// How far a slice is applied.
    ///
    /// # Errors
    /// Those of the engine.
    fn applied(&self, slice: u64) -> Result<u64>;
    /// A version of a page, into `out`; false if there is none.
    ///
    /// # Errors
    /// Those of the engine.
    fn page(&self, page: u64, lsn: u64, out: &mut Vec<u8>) -> Result<bool>;
    /// The deltas of a page of LSNs from one to another, both of which count, in order.
    ///
    /// # Errors
    /// Those of the engine and of `each`.
    fn deltas(
        &self,
        page: u64,
        from: u64,
        to: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()>;
    /// Page and LSN of all versions, then of all deltas (true), each in the order of page and LSN.
    ///
    /// # Errors
    /// Those of the engine.
    fn all(&self, each: &mut dyn FnMut(u64, u64, bool)) -> Result<()>;
    /// Takes a segment: pages of numbers from one on, that no record touches, in their order. It has survived a loss of power on return.
    /// An engine that has nothing for it takes them as it takes other versions of pages.
    ///
    /// # Errors
    /// Those of the engine.
    fn ingest(&self, first_page: u64, pages: &mut dyn Iterator<Item = Vec<u8>>) -> Result<()> {
        for (page, bytes) in (first_page..).zip(pages) {
            self.apply(&[Change::PutPage(At { page, lsn: LOADED_LSN }, &bytes)])?;
        }
        self.sync_pages()
    }
    /// One page of a segment that was ingested, by its place there, into `out`; false if there is none.
    ///
    /// # Errors
    /// Those of the engine.
    fn ingested_page(&self, first_page: u64, nth: u64, out: &mut Vec<u8>) -> Result<bool> {
        self.page(first_page + nth, LOADED_LSN, out)
    }
    /// Reads a segment that was ingested into memory. Returns its length; `None` if the engine has no such read.
    ///
    /// # Errors
    /// Those of the engine.
    fn read_ingested(&self, _first_page: u64) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Waits until there is no background work, or for so long.
    fn settle(&self, _wait: Duration) {}
    /// How it was opened.
    fn settings(&self) -> Vec<(String, String)>;
    /// Ends it.
    ///
    /// # Errors
    /// Those of the engine.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What there is of a page. Without a version at LSN 0 it begins with zeros.
#[derive(Clone, Debug, Default)]
struct Chain {
    /// The version before the last one, if there is one.
    older: Option<u64>,
    /// The last version; 0: none, it begins with zeros.
    newer: u64,
    /// Deltas behind `older`, or all.
    deltas: Vec<u64>,
}

/// What has come of a slice.
#[derive(Debug, Default)]
struct Received {
    /// All up to this one has come.
    whole: u64,
    /// What has come behind a gap: first and last LSN.
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

/// One slice.
#[derive(Debug, Default)]
struct Slice {
    /// Guards what has come.
    received: Mutex<Received>,
    /// Guards what there is of each page.
    chains: RwLock<BTreeMap<u64, Chain>>,
    applied: AtomicU64,
}

/// See the module.
pub struct PageServer {
    engine: Box<dyn PageEngine>,
    slices: Vec<Slice>,
    /// Guards the bytes of records that are received and not applied, for those who wait for fewer.
    backlog_bytes: Mutex<u64>,
    changed: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the applier knows from one turn to the next.
#[derive(Debug, Default)]
pub struct Applier {
    since_trim_bytes: u64,
    /// Bytes of records that were applied.
    pub applied_bytes: u64,
    /// Records that were.
    pub applied_records: u64,
}

impl PageServer {
    /// Opens it on an engine: the chains are read, and what is in the logs behind what was applied is looked for.
    ///
    /// # Errors
    /// Those of the engine.
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

    /// What it stands on.
    pub fn engine(&self) -> &dyn PageEngine {
        &*self.engine
    }

    /// How many slices there are.
    pub fn slices(&self) -> u64 {
        self.slices.len() as u64
    }

    fn of_page(&self, page: u64) -> &Slice {
        &self.slices[(page % self.slices()) as usize]
    }

    /// Takes records of a slice, with LSNs from one on: durable on return. Gaps may be filled later.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn write_log(&self, slice: u64, first_lsn: u64, records: &[Vec<u8>]) -> Result<()> {
        self.engine.write_log(slice, first_lsn, records)?;
        *lock(&self.backlog_bytes) += records.iter().map(|record| record.len() as u64).sum::<u64>();
        lock(&self.slices[slice as usize].received).add(first_lsn, first_lsn + records.len() as u64 - 1);
        self.changed.notify_all();
        Ok(())
    }

    /// Bytes of records that are received and not applied.
    pub fn backlog_bytes(&self) -> u64 {
        *lock(&self.backlog_bytes)
    }

    /// Waits until fewer bytes than this wait to be applied, or for `wait`.
    pub fn wait_for_backlog(&self, below_bytes: u64, wait: Duration) {
        let held = lock(&self.backlog_bytes);
        let _ = self.changed.wait_timeout_while(held, wait, |bytes| *bytes >= below_bytes);
    }

    /// Waits until something is received or applied, or for `wait`.
    pub fn wait_for_change(&self, wait: Duration) {
        drop(self.changed.wait_timeout(lock(&self.backlog_bytes), wait));
    }

    /// How far a slice is applied.
    pub fn applied(&self, slice: u64) -> u64 {
        self.slices[slice as usize].applied.load(Ordering::Acquire)
    }

    /// LSNs of a slice that are missing, below what has come: first and last of each gap.
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

    /// Applies some of what has come of a slice. False: there was nothing.
    ///
    /// # Errors
    /// Those of the engine; a record that is none.
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

    /// Makes what was applied durable, and trims the logs to it.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn trim(&self) -> Result<()> {
        let applied: Vec<u64> = (0..self.slices()).map(|slice| self.applied(slice)).collect();
        self.engine.sync_pages()?;
        (0..).zip(applied).try_for_each(|(slice, lsn)| self.engine.trim_log(slice, lsn + 1))
    }

    /// One batch: deltas, new versions of pages that have enough of them, and how far it is applied.
    fn fold(&self, slice: u64, records: &[(u64, Vec<u8>)], last: u64) -> Result<()> {
        let of = &self.slices[slice as usize];
        let mut changes = vec![Change::Applied(slice, last)];
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
            changes.extend(new.iter().map(|(lsn, record)| Change::PutDelta(At { page, lsn: *lsn }, record)));
            let since = chain.deltas.iter().filter(|lsn| **lsn > chain.newer).count();
            if since >= FOLDED {
                let mut bytes = Vec::new();
                if !self.build(page, &chain, &chain.deltas[..in_engine], u64::MAX, &mut bytes)? {
                    return Err(format!("wrong answer: something of page {page} is missing").into());
                }
                new.iter()
                    .try_for_each(|(_, record)| Redo::decode(record).map(|redo| redo.apply(&mut bytes)))?;
                let version = *chain.deltas.last().unwrap_or(&0);
                // Readers may stand at the version before: what is behind that goes.
                let kept_from = chain.newer;
                changes.extend(chain.older.map(|lsn| Change::DropPage(At { page, lsn })));
                let dropped = chain.deltas.iter().filter(|lsn| **lsn <= kept_from);
                changes.extend(dropped.map(|lsn| Change::DropDelta(At { page, lsn: *lsn })));
                chain.deltas.retain(|lsn| *lsn > kept_from);
                chain.older = Some(chain.newer).filter(|newer| *newer > 0);
                chain.newer = version;
                versions.push((page, version, bytes));
            }
            chains.push((page, chain));
        }
        changes.extend(
            versions.iter().map(|(page, lsn, bytes)| Change::PutPage(At { page: *page, lsn: *lsn }, bytes)),
        );
        self.engine.apply(&changes)?;
        of.chains.write().unwrap_or_else(PoisonError::into_inner).extend(chains);
        Ok(())
    }

    /// The page as of an LSN, from its newest version at or below it and those of `deltas` behind that.
    /// False: something of it has gone meanwhile.
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
            // What the chain has not, came later.
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

    /// The oldest LSN as of which a page can be read.
    pub fn oldest(&self, page: u64) -> u64 {
        let chains = self.of_page(page).chains.read().unwrap_or_else(PoisonError::into_inner);
        chains.get(&page).and_then(|chain| chain.older).unwrap_or(0)
    }

    /// A page as it was at an LSN, into `out`.
    ///
    /// # Errors
    /// An LSN that is not applied yet; those of the engine.
    pub fn read_page(&self, page: u64, lsn: u64, out: &mut Vec<u8>) -> Result<PageRead> {
        let of = self.of_page(page);
        if lsn > of.applied.load(Ordering::Acquire) {
            return Err(format!("page {page} is not applied up to {lsn} yet").into());
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
            // The engine has what the applier has made of the page, and the chain has it in a moment.
            self.wait_for_change(RETRY_WAIT);
        }
        Err(format!("page {page} changed {RETRIES_MAX} times while it was read").into())
    }

    /// Ends it: what was applied is durable.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn close(self) -> Result<()> {
        self.engine.sync_pages()?;
        self.engine.close()
    }
}

#[cfg(test)]
mod tests;
