//! RocksDB, vanilla and with blob files (BlobDB), as its tuning guide advises for the memory that it is given.

use bench::args::Codec;
use bench::engine::Backlog;
use bench::{Batch, Engine, EngineSettings, Opener, Result};
use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, LruCacheOptions,
    Options, ReadOptions, WaitForCompactOptions, WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The release that the shared library holds.
pub const VERSION: &str = "11.8.1";
/// The oldest quarter of the blob files takes part in garbage collection, which compaction alone drives: the defaults.
/// A lower threshold bounds the space better and costs several times the writes.
const BLOB_GC_AGE_CUTOFF: f64 = 0.25;
/// See [`BLOB_GC_AGE_CUTOFF`].
const BLOB_GC_FORCE_THRESHOLD: f64 = 1.0;
/// Without it garbage collection reads with direct I/O one value at a time.
const BLOB_READAHEAD_BYTES: u64 = 2 << 20;
/// Two to this power are the shards of its cache.
const CACHE_SHARD_BITS: i32 = 1;

/// The paper's RocksDB-IO: bytes of a memtable and of a table.
const PAPER_TABLE_BYTES: u64 = 64 << 20;
/// Bytes of the first level.
const PAPER_BASE_BYTES: u64 = 256 << 20;
/// How much larger each level is than the one above.
const PAPER_MULTIPLIER: u32 = 8;
/// Levels, level 0 included.
const PAPER_LEVELS: i32 = 5;
/// Bytes that wait for compaction at which writers are slowed down, and wait.
const PAPER_DEBT_BYTES: usize = 64 << 20;
/// Tables of level 0 at which it is compacted: the default.
const LEVEL_0_TRIGGER: u64 = 4;
/// Of a table as otherwise, one of [`Shape::SmallTables`] has one part in so many.
const SMALL_PART: u64 = 8;

/// What its tree looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// As the guide advises.
    Tuned,
    /// RocksDB-IO, as vLSM (section 5) measured it.
    Paper,
    /// Tuned, with small tables.
    SmallTables,
}

/// Opens RocksDB.
pub struct Rocks {
    /// Large values in files of their own.
    pub blobs: bool,
    /// Its tree.
    pub shape: Shape,
    /// Opening flushes all that was in the log, which is the default; else it stays in memory and in the log.
    pub flushes_replayed: bool,
}

impl Opener for Rocks {
    fn name(&self) -> String {
        let (kind, more) = match (self.blobs, self.shape) {
            (true, _) => ("", " BlobDB"),
            (false, Shape::Tuned) if self.flushes_replayed => ("", ""),
            (false, Shape::Tuned) => ("", " avoid_flush_during_recovery"),
            (false, Shape::Paper) => ("-IO", ""),
            (false, Shape::SmallTables) => ("", " small tables"),
        };
        format!("RocksDB{kind} {VERSION}{more}")
    }

    fn open(&self, dir: &Path, settings: &EngineSettings) -> Result<Box<dyn Engine>> {
        let settings = &self.shaped(settings);
        let mut options = self.options(settings);
        if !self.flushes_replayed {
            options = options.get_options_from_string("avoid_flush_during_recovery=true")?;
        }
        let others: Vec<String> = (1..settings.families).map(|number| format!("family-{number}")).collect();
        let names =
            std::iter::once(rocksdb::DEFAULT_COLUMN_FAMILY_NAME).chain(others.iter().map(String::as_str));
        let families = names.map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
        let shared = Arc::new(Shared {
            db: DB::open_cf_descriptors(&options, dir, families)?,
            settings: self.described(settings),
            sync: settings.sync,
            volatile: settings.volatile,
            memtable_bytes: settings.memtable_bytes,
            block_reads: AtomicU64::new(0),
            blob_reads: AtomicU64::new(0),
        });
        let of_family = |family, others| RocksEngine { shared: shared.clone(), family, others };
        let others = others.into_iter().map(|name| of_family(Some(name), Vec::new())).collect();
        Ok(Box::new(of_family(None, others)))
    }
}

fn codec(codec: Codec) -> DBCompressionType {
    match codec {
        Codec::None => DBCompressionType::None,
        Codec::Lz4 => DBCompressionType::Lz4,
        Codec::Zstd => DBCompressionType::Zstd,
    }
}

/// Adds counters of eight bytes, as LavaStore's operator does.
fn sum(_key: &[u8], base: Option<&[u8]>, operands: &rocksdb::MergeOperands) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
    let total = base.into_iter().chain(operands).map(number).fold(0, i64::wrapping_add);
    Some(total.to_le_bytes().to_vec())
}

impl Rocks {
    fn separates(&self, settings: &EngineSettings) -> bool {
        self.blobs && settings.min_blob_size > 0
    }

    /// The settings with what the shape says otherwise.
    fn shaped(&self, settings: &EngineSettings) -> EngineSettings {
        let settings = settings.clone();
        match self.shape {
            Shape::Tuned => settings,
            Shape::Paper => EngineSettings {
                memtable_bytes: PAPER_TABLE_BYTES,
                file_bytes: PAPER_TABLE_BYTES,
                level_base_bytes: PAPER_BASE_BYTES,
                level_multiplier: Some(PAPER_MULTIPLIER),
                ..settings
            },
            Shape::SmallTables => EngineSettings { file_bytes: settings.file_bytes / SMALL_PART, ..settings },
        }
    }

    pub(crate) fn options(&self, settings: &EngineSettings) -> Options {
        // By default a small cache has 16 shards, each smaller than the filter block of a table: few shards instead.
        let mut cache = LruCacheOptions::default();
        cache.set_capacity(settings.cache_bytes as usize);
        cache.set_num_shard_bits(CACHE_SHARD_BITS);
        let cache = Cache::new_lru_cache_opts(&cache);
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_bloom_filter(f64::from(settings.filter_bits_per_key), false);
        table.set_block_size(4096);
        table.set_format_version(6);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(settings.memtable_bytes as usize);
        options.set_max_write_buffer_number(2);
        options.set_target_file_size_base(settings.file_bytes);
        options.set_max_bytes_for_level_base(settings.level_base_bytes);
        if let Some(times) = settings.level_multiplier {
            options.set_max_bytes_for_level_multiplier(f64::from(times));
        }
        options.set_max_background_jobs(settings.background_threads as i32);
        options.set_use_direct_reads(settings.direct_io);
        options.set_use_direct_io_for_flush_and_compaction(settings.direct_io);
        options.set_compression_type(codec(settings.compression));
        if self.shape == Shape::Paper {
            options.set_num_levels(PAPER_LEVELS);
            options.set_soft_pending_compaction_bytes_limit(PAPER_DEBT_BYTES);
            options.set_hard_pending_compaction_bytes_limit(PAPER_DEBT_BYTES);
        }
        if settings.sync {
            options.set_recycle_log_file_num(4);
        }
        if settings.counters {
            options.set_merge_operator_associative("counter", sum);
        }
        if let Some(bytes) = settings.log_bytes_max {
            options.set_max_total_wal_size(bytes);
        }
        if let Some(dir) = &settings.log_dir {
            options.set_wal_dir(dir);
        }
        if self.separates(settings) {
            options.set_enable_blob_files(true);
            options.set_min_blob_size(settings.min_blob_size);
            options.set_blob_file_size(settings.blob_file_bytes);
            options.set_blob_compression_type(codec(settings.compression));
            options.set_enable_blob_gc(true);
            options.set_blob_gc_age_cutoff(BLOB_GC_AGE_CUTOFF);
            options.set_blob_gc_force_threshold(BLOB_GC_FORCE_THRESHOLD);
            options.set_blob_compaction_readahead_size(BLOB_READAHEAD_BYTES);
            options.set_blob_cache(&cache);
        }
        options
    }

    pub(crate) fn described(&self, settings: &EngineSettings) -> Vec<(String, String)> {
        let mut all = vec![
            ("write_buffer_size", settings.memtable_bytes.to_string()),
            ("max_write_buffer_number", "2".to_owned()),
            ("target_file_size_base", settings.file_bytes.to_string()),
            ("max_bytes_for_level_base", settings.level_base_bytes.to_string()),
            ("max_background_jobs", settings.background_threads.to_string()),
            ("block_cache", settings.cache_bytes.to_string()),
            ("cache_shards", (1 << CACHE_SHARD_BITS).to_string()),
            ("cache_index_and_filter_blocks", "true, L0 pinned".to_owned()),
            ("bloom_bits", settings.filter_bits_per_key.to_string()),
            ("use_direct_reads", settings.direct_io.to_string()),
            ("use_direct_io_for_flush_and_compaction", settings.direct_io.to_string()),
            ("compression", format!("{:?}", codec(settings.compression))),
            (
                "wal",
                match (settings.sync, settings.volatile) {
                    (true, _) => "synced, recycle_log_file_num 4",
                    (false, true) => "off",
                    (false, false) => "on, not synced",
                }
                .to_owned(),
            ),
        ];
        if let Some(times) = settings.level_multiplier {
            all.push(("max_bytes_for_level_multiplier", times.to_string()));
        }
        if let Some(bytes) = settings.log_bytes_max {
            all.push(("max_total_wal_size", bytes.to_string()));
            all.push(("avoid_flush_during_recovery", (!self.flushes_replayed).to_string()));
        }
        if let Some(dir) = &settings.log_dir {
            all.push(("wal_dir", dir.display().to_string()));
        }
        if self.shape == Shape::Paper {
            all.push(("num_levels", PAPER_LEVELS.to_string()));
            all.push(("soft and hard pending_compaction_bytes_limit", PAPER_DEBT_BYTES.to_string()));
        }
        if self.separates(settings) {
            all.push(("min_blob_size", settings.min_blob_size.to_string()));
            all.push(("blob_file_size", settings.blob_file_bytes.to_string()));
            let gc = format!("age_cutoff {BLOB_GC_AGE_CUTOFF}, force_threshold {BLOB_GC_FORCE_THRESHOLD}");
            all.push(("blob_gc", gc));
            all.push(("blob_compaction_readahead_size", BLOB_READAHEAD_BYTES.to_string()));
            all.push(("blob_cache", "the block cache".to_owned()));
        }
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The count of blob reads, which the crate offers only as text: `…, blob_read_count = 12, …`.
fn blob_reads(report: &str) -> u64 {
    let count = report.split(", ").find_map(|pair| pair.trim().strip_prefix("blob_read_count = "));
    count.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// The time in `Cumulative stall: 00:01:02.500 H:M:S, 3.1 percent`.
fn stall_ns(line: &str) -> u64 {
    let time = line.split_whitespace().nth(2).unwrap_or_default();
    let seconds = time.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + part.parse::<f64>().ok()?));
    (seconds.unwrap_or(0.0) * 1e9) as u64
}

/// How often writers were slowed down or waited, out of `Write Stall (count): memtable-limit-stops: 2, total-stops: 2`. The sums
/// are left out, and what begins with `cf-`: it is counted under the limit, too.
fn stall_counts(report: &str) -> BTreeMap<String, u64> {
    let line = report.lines().find_map(|line| line.strip_prefix("Write Stall (count):")).unwrap_or_default();
    let counts = line.split(',').filter_map(|pair| {
        let (cause, count) = pair.trim().rsplit_once(": ")?;
        Some((cause.to_owned(), count.parse().ok()?))
    });
    counts.filter(|(cause, _)| !cause.starts_with("total-") && !cause.starts_with("cf-")).collect()
}

/// An open RocksDB.
struct Shared {
    db: DB,
    settings: Vec<(String, String)>,
    sync: bool,
    volatile: bool,
    memtable_bytes: u64,
    block_reads: AtomicU64,
    blob_reads: AtomicU64,
}

/// One family of it.
struct RocksEngine {
    shared: Arc<Shared>,
    /// Its name; none: the default one.
    family: Option<String>,
    /// The other families.
    others: Vec<RocksEngine>,
}

impl RocksEngine {
    fn write_options(&self, durable: bool) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.shared.sync && durable);
        options.disable_wal(self.shared.volatile);
        options
    }

    fn property(&self, name: &str) -> String {
        self.shared.db.property_value(name).ok().flatten().unwrap_or_default()
    }

    /// The family, if it is not the default one.
    fn other(&self) -> Result<Option<&ColumnFamily>> {
        let Some(name) = &self.family else { return Ok(None) };
        let found = self.shared.db.cf_handle(name);
        found.map(Some).ok_or_else(|| format!("there is no column family {name}").into())
    }

    /// All families.
    fn family_handles(&self) -> Vec<&ColumnFamily> {
        let names = std::iter::once(rocksdb::DEFAULT_COLUMN_FAMILY_NAME);
        let names = names.chain(self.others.iter().filter_map(|other| other.family.as_deref()));
        names.filter_map(|name| self.shared.db.cf_handle(name)).collect()
    }

    /// Of all families, by cause.
    fn stall_counts(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for family in self.family_handles() {
            let report = self.shared.db.property_value_cf(family, "rocksdb.cf-write-stall-stats");
            for (cause, count) in stall_counts(&report.ok().flatten().unwrap_or_default()) {
                *all.entry(cause).or_default() += count;
            }
        }
        all
    }

    /// How long writers were made to wait.
    fn stall(&self) -> String {
        let text = self.property("rocksdb.dbstats");
        text.lines().find(|line| line.starts_with("Cumulative stall")).unwrap_or_default().to_owned()
    }
}

impl Engine for RocksEngine {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (db, options) = (&self.shared.db, &self.write_options(true));
        match self.other()? {
            None => db.put_opt(key, value, options)?,
            Some(family) => db.put_cf_opt(family, key, value, options)?,
        }
        Ok(())
    }

    fn write(&self, batch: &Batch, durable: bool) -> Result<()> {
        let mut all = WriteBatch::default();
        match self.other()? {
            None => batch.iter().for_each(|(key, value)| all.put(key, value)),
            Some(family) => batch.iter().for_each(|(key, value)| all.put_cf(family, key, value)),
        }
        Ok(self.shared.db.write_opt(all, &self.write_options(durable))?)
    }

    fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        Ok(self.shared.db.merge_opt(key, operand, &self.write_options(true))?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let (db, options) = (&self.shared.db, &self.write_options(true));
        match self.other()? {
            None => db.delete_opt(key, options)?,
            Some(family) => db.delete_cf_opt(family, key, options)?,
        }
        Ok(())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = match self.other()? {
            None => self.shared.db.get_pinned(key)?,
            Some(family) => self.shared.db.get_pinned_cf(family, key)?,
        };
        Ok(found.inspect(|bytes| value.extend_from_slice(bytes)).is_some())
    }

    fn multi_get(&self, keys: &[Vec<u8>], visit: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let mut options = ReadOptions::default();
        options.set_async_io(true);
        let default = || {
            let name = rocksdb::DEFAULT_COLUMN_FAMILY_NAME;
            self.shared.db.cf_handle(name).ok_or("there is no default column family")
        };
        let family = self.other()?.map_or_else(default, Ok)?;
        for (nth, found) in
            self.shared.db.batched_multi_get_cf_opt(family, keys, false, &options).into_iter().enumerate()
        {
            if let Some(value) = found? {
                visit(nth, &value);
            }
        }
        Ok(())
    }

    fn scan(&self, start: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut entries = match self.other()? {
            None => self.shared.db.raw_iterator_opt(ReadOptions::default()),
            Some(family) => self.shared.db.raw_iterator_cf_opt(family, ReadOptions::default()),
        };
        entries.seek(start);
        let mut count = 0;
        while count < limit {
            let Some((key, value)) = entries.item() else { break };
            visit(key, value);
            count += 1;
            if count < limit {
                entries.next();
            }
        }
        Ok(entries.status().map(|()| count)?)
    }

    fn scan_prefix(&self, prefix: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut options = ReadOptions::default();
        options.set_iterate_range(rocksdb::PrefixRange(prefix));
        let mut entries = match self.other()? {
            None => self.shared.db.raw_iterator_opt(options),
            Some(family) => self.shared.db.raw_iterator_cf_opt(family, options),
        };
        entries.seek(prefix);
        let mut count = 0;
        while count < limit {
            let Some((key, value)) = entries.item() else { break };
            visit(key, value);
            count += 1;
            entries.next();
        }
        Ok(entries.status().map(|()| count)?)
    }

    fn flush(&self) -> Result<()> {
        match self.other()? {
            None => self.shared.db.flush()?,
            Some(family) => self.shared.db.flush_cf(family)?,
        }
        Ok(())
    }

    fn settle(&self, timeout: Duration) -> Result<bool> {
        let mut options = WaitForCompactOptions::default();
        options.set_timeout(timeout.as_micros() as u64);
        // The one error of interest is the timeout, and a failed background job shows in the next call anyway.
        Ok(self.shared.db.wait_for_compact(&options).is_ok())
    }

    fn thread_begin(&self) {
        set_perf_stats(PerfStatsLevel::EnableCount);
        PerfContext::default().reset();
    }

    fn thread_end(&self) {
        let context = PerfContext::default();
        self.shared.block_reads.fetch_add(context.metric(PerfMetric::BlockReadCount), Ordering::Relaxed);
        self.shared.blob_reads.fetch_add(blob_reads(&context.report(true)), Ordering::Relaxed);
    }

    fn stats(&self) -> Vec<(String, serde_json::Value)> {
        let stall = self.stall();
        let number = |name: &str| self.property(name).parse::<u64>().unwrap_or(0).into();
        let (blocks, blobs) =
            (self.shared.block_reads.load(Ordering::Relaxed), self.shared.blob_reads.load(Ordering::Relaxed));
        let stall_ns = stall_ns(&stall);
        let counts = self.stall_counts().into_iter();
        let mut all: Vec<(String, serde_json::Value)> =
            counts.map(|(cause, count)| (format!("stall_{cause}_count"), count.into())).collect();
        all.extend([
            ("stall".to_owned(), stall.into()),
            ("stall_ns".to_owned(), stall_ns.into()),
            // Of threads that ended.
            ("get_device_reads".to_owned(), (blocks + blobs).into()),
            ("get_block_reads".to_owned(), blocks.into()),
            ("get_blob_reads".to_owned(), blobs.into()),
            ("live_sst_bytes".to_owned(), number("rocksdb.live-sst-files-size")),
            ("total_sst_bytes".to_owned(), number("rocksdb.total-sst-files-size")),
            ("total_blob_bytes".to_owned(), number("rocksdb.total-blob-file-size")),
            ("live_blob_bytes".to_owned(), number("rocksdb.live-blob-file-size")),
            ("blob_garbage_bytes".to_owned(), number("rocksdb.live-blob-file-garbage-size")),
            ("pending_compaction_bytes".to_owned(), number("rocksdb.estimate-pending-compaction-bytes")),
        ]);
        all
    }

    fn families(&self) -> Vec<&dyn Engine> {
        self.others.iter().map(|family| family as &dyn Engine).collect()
    }

    fn waits_ns(&self) -> Vec<(String, u64)> {
        // By cause it counts, and does not time.
        vec![("all".to_owned(), stall_ns(&self.stall()))]
    }

    fn backlog(&self) -> Option<Backlog> {
        let (families, db) = (self.family_handles(), &self.shared.db);
        let sum = |name: &str| -> Option<u64> {
            families.iter().map(|family| db.property_int_value_cf(family, name).ok().flatten()).sum()
        };
        Some(Backlog {
            memory_bytes: sum("rocksdb.size-all-mem-tables")?,
            memory_rest_bytes: families.len() as u64 * self.shared.memtable_bytes,
            level_0_files: sum("rocksdb.num-files-at-level0")?,
            level_0_rest_files: families.len() as u64 * (LEVEL_0_TRIGGER - 1),
        })
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.shared.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.shared.db.cancel_all_background_work(true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_out_of_text() {
        assert_eq!(stall_ns("Cumulative stall: 00:01:02.500 H:M:S, 3.1 percent"), 62_500_000_000);
        assert_eq!(stall_ns(""), 0);
        assert_eq!(blob_reads("block_read_count = 3, blob_read_count = 12, blob_read_byte = 7, "), 12);
        assert_eq!(blob_reads(""), 0);
        let counts = "Write Stall (count): cf-l0-x: 1, l0-file-count-limit-delays: 4, memtable-limit-stops: 2, total-stops: 2";
        let counted = stall_counts(counts).into_iter().collect::<Vec<_>>();
        assert_eq!(counted, [("l0-file-count-limit-delays".into(), 4), ("memtable-limit-stops".into(), 2)]);
        assert!(stall_counts("").is_empty());
    }
}
