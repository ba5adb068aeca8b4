//! Page servers on other engines: RocksDB with four column families, as page servers began (LavaStore, section 2.1). One run, or
//! alternating pairs.

use crate::pairs::{Comparison, NamedFigure, PairArgs, figures};
use bench::Result;
use bench::args::name;
use bench::logs::LogSite;
use bench::pages::lava::{LavaPages, key, page_and_lsn};
use bench::pages::server::{PageChange, PageEngine};
use bench::pages::{PageOpener, PageServerArgs, PageServerReport, run};
use clap::{Args, ValueEnum};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, Direction, IteratorMode, Options,
    ReadOptions, WriteBatch, WriteOptions,
};
use serde::Serialize;
use std::path::Path;

/// The engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
pub enum PageEngineName {
    /// LavaLog and LavaKV.
    Lavastore,
    /// RocksDB with a column family for each module.
    Rocksdb,
    /// The same, with pages in blob files.
    Blobdb,
}

impl PageEngineName {
    fn opener(self) -> Box<dyn PageOpener> {
        match self {
            PageEngineName::Lavastore => Box::new(LavaPages { site: LogSite::machine() }),
            PageEngineName::Rocksdb => Box::new(Rocks { blobs: false }),
            PageEngineName::Blobdb => Box::new(Rocks { blobs: true }),
        }
    }
}

/// Options of a comparison of page servers.
#[derive(Args)]
pub struct PageCompareArgs {
    /// Engines in order; ratios are those of the first over each other one [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    engines: Vec<PageEngineName>,
    #[command(flatten)]
    pairs: PairArgs,
    #[command(flatten)]
    bench: PageServerArgs,
}

const FIGURES: [NamedFigure<PageServerReport>; 10] = [
    ("write_log_per_s", |r| Some(r.write_log_per_s)),
    ("write_log_mean_us", |r| Some(r.write_log.mean_us)),
    ("write_log_p99_us", |r| Some(r.write_log.p99_us)),
    ("write_log_p9999_us", |r| Some(r.write_log.p9999_us)),
    ("read_page_per_s", |r| Some(r.read_page_per_s)),
    ("read_page_mean_us", |r| Some(r.read_page.mean_us)),
    ("read_page_p99_us", |r| Some(r.read_page.p99_us)),
    ("read_page_p9999_us", |r| Some(r.read_page.p9999_us)),
    ("device_bytes_written", |r| r.device_bytes_written.map(|bytes| bytes as f64)),
    ("device_bytes_per_user_byte", |r| r.device_bytes_per_user_byte),
];

/// One run, in this process.
pub fn child(engine: PageEngineName, dir: &Path, out: &Path, args: &str) -> Result<()> {
    let args: PageServerArgs = serde_json::from_str(args)?;
    let report = run(&args, &*engine.opener(), dir)?;
    Ok(std::fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?)
}

/// Runs the comparison and prints it.
pub fn compare(args: &PageCompareArgs) -> Result<()> {
    args.bench.check()?;
    let engines = match args.engines.is_empty() {
        true => PageEngineName::value_variants(),
        false => &args.engines,
    };
    let comparison = Comparison {
        child: "pages-child",
        engines: engines.iter().map(|engine| name(*engine)).collect(),
        figures: figures(&FIGURES),
        engine_of: |r: &PageServerReport| &r.engine,
        text: PageServerReport::text,
    };
    comparison.run(&args.pairs, &args.bench)
}

/// Opens RocksDB with a column family for each module.
struct Rocks {
    /// Pages in files of their own.
    blobs: bool,
}

const FAMILIES: [&str; 4] = ["log", "delta", "page", "segment"];

impl PageOpener for Rocks {
    fn name(&self) -> String {
        format!("RocksDB {}{}", crate::rocks::VERSION, if self.blobs { " BlobDB" } else { "" })
    }

    fn open(&self, dir: &Path, args: &PageServerArgs) -> Result<Box<dyn PageEngine>> {
        let cache = Cache::new_lru_cache(args.cache as usize);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_recycle_log_file_num(4);
        options.set_max_background_jobs(2);
        options.set_use_direct_reads(true);
        options.set_use_direct_io_for_flush_and_compaction(true);
        let families = FAMILIES.map(|name| {
            let mut table = BlockBasedOptions::default();
            table.set_block_cache(&cache);
            table.set_bloom_filter(10.0, false);
            table.set_format_version(6);
            let mut of = Options::default();
            of.set_block_based_table_factory(&table);
            of.set_write_buffer_size(args.memtable as usize);
            of.set_compression_type(rocksdb::DBCompressionType::None);
            if self.blobs && name == "page" {
                of.set_enable_blob_files(true);
                of.set_min_blob_size(1024);
                of.set_enable_blob_gc(true);
                of.set_blob_compaction_readahead_size(2 << 20);
                of.set_blob_cache(&cache);
            }
            ColumnFamilyDescriptor::new(name, of)
        });
        let db = DB::open_cf_descriptors(&options, dir, families)?;
        let settings = [
            ("block_cache", args.cache.to_string()),
            ("write_buffer_size", args.memtable.to_string()),
            ("max_background_jobs", "2".to_owned()),
            ("recycle_log_file_num", "4".to_owned()),
            ("direct I/O", "reads, flush and compaction".to_owned()),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Ok(Box::new(RocksPages { db, settings }))
    }
}

struct RocksPages {
    db: DB,
    settings: Vec<(String, String)>,
}

impl RocksPages {
    fn family(&self, name: &str) -> Result<&ColumnFamily> {
        self.db.cf_handle(name).ok_or_else(|| format!("there is no column family {name}").into())
    }
}

impl PageEngine for RocksPages {
    fn write_log(&self, slice: u64, first_lsn: u64, records: &[Vec<u8>]) -> Result<()> {
        let log = self.family("log")?;
        let mut batch = WriteBatch::default();
        for (lsn, record) in (first_lsn..).zip(records) {
            batch.put_cf(log, key(slice, lsn), record);
        }
        let mut durable = WriteOptions::default();
        durable.set_sync(true);
        Ok(self.db.write_opt(batch, &durable)?)
    }

    fn read_log(
        &self,
        slice: u64,
        from: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let mut until = ReadOptions::default();
        until.set_iterate_upper_bound(key(slice + 1, 0));
        let start = key(slice, from);
        let mode = IteratorMode::From(&start, Direction::Forward);
        for entry in self.db.iterator_cf_opt(self.family("log")?, until, mode) {
            let (key, record) = entry?;
            if !each(page_and_lsn(&key)?.1, &record)? {
                break;
            }
        }
        Ok(())
    }

    fn trim_log(&self, slice: u64, below: u64) -> Result<()> {
        Ok(self.db.delete_range_cf(self.family("log")?, key(slice, 0), key(slice, below))?)
    }

    fn apply(&self, changes: &[PageChange<'_>]) -> Result<()> {
        let (deltas, pages, segments) =
            (self.family("delta")?, self.family("page")?, self.family("segment")?);
        let mut batch = WriteBatch::default();
        for change in changes {
            match *change {
                PageChange::PutDelta(at, record) => batch.put_cf(deltas, key(at.page, at.lsn), record),
                PageChange::DropDelta(at) => batch.delete_cf(deltas, key(at.page, at.lsn)),
                PageChange::PutPage(at, bytes) => batch.put_cf(pages, key(at.page, at.lsn), bytes),
                PageChange::DropPage(at) => batch.delete_cf(pages, key(at.page, at.lsn)),
                PageChange::Applied(slice, lsn) => {
                    batch.put_cf(segments, slice.to_be_bytes(), lsn.to_be_bytes())
                }
            }
        }
        Ok(self.db.write(batch)?)
    }

    fn sync_pages(&self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }

    fn applied(&self, slice: u64) -> Result<u64> {
        let found = self.db.get_pinned_cf(self.family("segment")?, slice.to_be_bytes())?;
        Ok(match found {
            Some(lsn) => u64::from_be_bytes(lsn.as_ref().try_into()?),
            None => 0,
        })
    }

    fn page(&self, page: u64, lsn: u64, out: &mut Vec<u8>) -> Result<bool> {
        let found = self.db.get_pinned_cf(self.family("page")?, key(page, lsn))?;
        found.iter().for_each(|bytes| out.extend_from_slice(bytes));
        Ok(found.is_some())
    }

    fn deltas(
        &self,
        page: u64,
        from: u64,
        to: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut until = ReadOptions::default();
        until.set_iterate_upper_bound(key(page, to + 1));
        let start = key(page, from);
        let mode = IteratorMode::From(&start, Direction::Forward);
        for entry in self.db.iterator_cf_opt(self.family("delta")?, until, mode) {
            let (key, record) = entry?;
            each(page_and_lsn(&key)?.1, &record)?;
        }
        Ok(())
    }

    fn all(&self, each: &mut dyn FnMut(u64, u64, bool)) -> Result<()> {
        for (name, is_delta) in [("page", false), ("delta", true)] {
            for entry in self.db.iterator_cf(self.family(name)?, IteratorMode::Start) {
                let (page, lsn) = page_and_lsn(&entry?.0)?;
                each(page, lsn, is_delta);
            }
        }
        Ok(())
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
