//! The page server driver of LavaStore: redo records in LavaLog, deltas and pages in LavaKV.
//!
//! A page is 16 KiB and separated from its key; a delta is small and lives for
//! [`super::server::FOLDED`] changes. Deltas and pages are buffered: after a loss of power they are
//! rebuilt from the log, which is trimmed after a sync.

use super::redo::PAGE_BYTES;
use super::server::{PageChange, PageEngine};
use super::{PageOpener, PageServerArgs};
use crate::Result;
use crate::logs::LogSite;
use lavastore::{
    Db, Durability, Family, FamilyOptions, Log, LogBatch, LogOptions, LogStore, Options, WriteBatch,
    WriteOptions,
};
use std::path::Path;
use std::time::Duration;

/// Number of written families, each with memtables.
const FAMILIES: usize = 4;

/// Opens LavaStore for a page server.
pub struct LavaPages {
    /// Place of the stores.
    pub site: LogSite,
}

impl PageOpener for LavaPages {
    fn name(&self) -> String {
        format!("LavaStore {}", env!("CARGO_PKG_VERSION"))
    }

    fn open(&self, dir: &Path, args: &PageServerArgs) -> Result<Box<dyn PageEngine>> {
        let memtable_bytes = args.memtable as usize;
        let options = Options {
            cache_bytes: args.cache as usize,
            memtable_bytes,
            memory_bytes: 2 * FAMILIES * memtable_bytes,
            ..Options::default()
        };
        let db = Db::open_in(&self.site.env, dir.join("pages"), &options)?;
        let logs = LogStore::open_in(&self.site.env, dir.join("logs"), &LogOptions::default())?;
        let engine = Pages {
            deltas: family(&db, "delta", &options.family)?,
            pages: family(&db, "page", &options.family)?,
            segments: family(&db, "segment", &options.family)?,
            ingested: family(&db, "ingested", &options.family)?,
            slices: (0..args.slices)
                .map(|slice| Ok(logs.log(&format!("slice-{slice}"))?))
                .collect::<Result<_>>()?,
            settings: [("cache_bytes", args.cache), ("memtable_bytes", args.memtable)]
                .map(|(name, value)| (name.to_owned(), value.to_string()))
                .into(),
            db,
            logs,
        };
        Ok(Box::new(engine))
    }

    fn counted<'a>(&'a self, dir: &'a Path) -> &'a Path {
        self.site.device.as_deref().unwrap_or(dir)
    }
}

fn family(db: &Db, name: &str, options: &FamilyOptions) -> Result<Family> {
    Ok(match db.open_family(name) {
        Ok(family) => family,
        Err(e) if e.kind() == lavastore::ErrorKind::NotFound => db.create_family(name, options)?,
        Err(e) => return Err(e.into()),
    })
}

struct Pages {
    db: Db,
    deltas: Family,
    pages: Family,
    segments: Family,
    /// Ingested segments by first page; each is one large value with its own file.
    ingested: Family,
    logs: LogStore,
    slices: Vec<Log>,
    settings: Vec<(String, String)>,
}

/// Returns the key of a page version or delta: page and LSN, in order.
pub fn key(page: u64, lsn: u64) -> [u8; 16] {
    (u128::from(page) << 64 | u128::from(lsn)).to_be_bytes()
}

/// Decodes such a key.
///
/// # Errors
/// An invalid key.
pub fn page_and_lsn(key: &[u8]) -> Result<(u64, u64)> {
    let both = u128::from_be_bytes(key.try_into()?);
    Ok(((both >> 64) as u64, both as u64))
}

impl PageEngine for Pages {
    fn write_log(&self, slice: u64, first_lsn: u64, records: &[Vec<u8>]) -> Result<()> {
        let log = &self.slices[slice as usize];
        let mut batch = LogBatch::new();
        for (lsn, record) in (first_lsn..).zip(records) {
            batch.append(log, lsn, record);
        }
        Ok(self.logs.write(&batch)?)
    }

    fn read_log(
        &self,
        slice: u64,
        from: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        for entry in self.slices[slice as usize].scan(from..) {
            let (lsn, record) = entry?;
            if !each(lsn, &record)? {
                break;
            }
        }
        Ok(())
    }

    fn trim_log(&self, slice: u64, below: u64) -> Result<()> {
        Ok(self.slices[slice as usize].trim(below)?)
    }

    fn apply(&self, changes: &[PageChange<'_>]) -> Result<()> {
        let mut batch = WriteBatch::new();
        for change in changes {
            match *change {
                PageChange::PutDelta(at, record) => {
                    batch.family(&self.deltas).put(key(at.page, at.lsn), record);
                }
                PageChange::DropDelta(at) => {
                    batch.family(&self.deltas).delete(key(at.page, at.lsn));
                }
                PageChange::PutPage(at, bytes) => {
                    batch.family(&self.pages).put(key(at.page, at.lsn), bytes);
                }
                PageChange::DropPage(at) => {
                    batch.family(&self.pages).delete(key(at.page, at.lsn));
                }
                PageChange::Applied(slice, lsn) => {
                    batch.family(&self.segments).put(slice.to_be_bytes(), lsn.to_be_bytes());
                }
            }
        }
        let buffered = WriteOptions { durability: Some(Durability::Buffered), ..WriteOptions::default() };
        Ok(self.db.writing(&buffered).write(&batch)?)
    }

    fn sync_pages(&self) -> Result<()> {
        Ok(self.db.sync()?)
    }

    fn applied(&self, slice: u64) -> Result<u64> {
        let Some(found) = self.segments.get(slice.to_be_bytes())? else { return Ok(0) };
        Ok(u64::from_be_bytes(found.as_ref().try_into()?))
    }

    fn page(&self, page: u64, lsn: u64, out: &mut Vec<u8>) -> Result<bool> {
        let found = self.pages.get(key(page, lsn))?;
        found.iter().for_each(|bytes| out.extend_from_slice(bytes.as_ref()));
        Ok(found.is_some())
    }

    fn deltas(
        &self,
        page: u64,
        from: u64,
        to: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        for entry in self.deltas.range(key(page, from)..=key(page, to)) {
            let (key, record) = entry?;
            each(page_and_lsn(key.as_ref())?.1, record.as_ref())?;
        }
        Ok(())
    }

    fn all(&self, each: &mut dyn FnMut(u64, u64, bool)) -> Result<()> {
        for (family, is_delta) in [(&self.pages, false), (&self.deltas, true)] {
            for key in family.iter().keys() {
                let (page, lsn) = page_and_lsn(key?.as_ref())?;
                each(page, lsn, is_delta);
            }
        }
        Ok(())
    }

    fn ingest(&self, first_page: u64, pages: &mut dyn Iterator<Item = Vec<u8>>) -> Result<()> {
        let durable = WriteOptions::durable();
        let mut segment = self.ingested.writing(&durable).put_stream(first_page.to_be_bytes())?;
        for page in pages {
            segment.append(&page)?;
        }
        Ok(segment.finish()?)
    }

    fn ingested_page(&self, first_page: u64, nth: u64, out: &mut Vec<u8>) -> Result<bool> {
        let at = nth * PAGE_BYTES as u64;
        let found = self.ingested.get_range(first_page.to_be_bytes(), at, PAGE_BYTES)?;
        found.iter().for_each(|bytes| out.extend_from_slice(bytes));
        Ok(found.is_some())
    }

    fn read_ingested(&self, first_page: u64) -> Result<Option<u64>> {
        Ok(self.ingested.get(first_page.to_be_bytes())?.map(|segment| segment.len() as u64))
    }

    fn settle(&self, wait: Duration) {
        self.db.wait_idle(wait);
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Pages { db, deltas, pages, segments, ingested, logs, slices, .. } = *self;
        drop((deltas, pages, segments, ingested, slices));
        logs.close()?;
        Ok(db.close()?)
    }
}
