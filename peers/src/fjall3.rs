//! fjall 3 with key-value separation.
//!
//! It has no direct I/O. To measure its reads and not the page cache's, a thread drops the pages of its files ten times
//! a second while it reads.

use bench::args::Codec;
use bench::engine::Backlog;
use bench::{Batch, Engine, EngineSettings, Opener, Phase, Result};
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Opens fjall.
pub struct Fjall;

impl Opener for Fjall {
    fn name(&self) -> String {
        "fjall 3.1.13".to_owned()
    }

    fn open(&self, dir: &Path, settings: &EngineSettings) -> Result<Box<dyn Engine>> {
        let db = Database::builder(dir)
            .cache_size(settings.cache_bytes)
            .worker_threads(settings.background_threads as usize)
            .journal_compression(CompressionType::None)
            .open()?;
        let compression = codec(settings.compression)?;
        let create = || {
            let blobs = (settings.min_blob_size > 0).then(|| {
                KvSeparationOptions::default()
                    .separation_threshold(settings.min_blob_size as u32)
                    .file_target_size(settings.blob_file_bytes)
                    .compression(compression)
            });
            let bits = settings.filter_bits_per_key as f32;
            let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits));
            KeyspaceCreateOptions::default()
                .max_memtable_size(settings.memtable_bytes)
                .data_block_size_policy(BlockSizePolicy::all(4096))
                .data_block_compression_policy(CompressionPolicy::all(compression))
                .filter_policy(FilterPolicy::all(bloom))
                .compaction_strategy(Arc::new(
                    fjall::compaction::Leveled::default().with_table_target_size(settings.file_bytes),
                ))
                .with_kv_separation(blobs)
        };
        if settings.volatile {
            return Err("fjall logs every write: --volatile is not comparable".into());
        }
        let keyspace = db.keyspace("default", create)?;
        let dropping = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicBool::new(false));
        let dropper =
            settings.direct_io.then(|| page_dropper(dir.to_owned(), dropping.clone(), ended.clone()));
        let of_family = |keyspace, others, dropper| FjallEngine {
            db: db.clone(),
            keyspace,
            others,
            settings: described(settings),
            sync: settings.sync,
            memtable_bytes: settings.memtable_bytes,
            dropping: dropping.clone(),
            ended: ended.clone(),
            dropper,
        };
        let other = |number| -> Result<FjallEngine> {
            Ok(of_family(db.keyspace(&format!("family-{number}"), create)?, Vec::new(), None))
        };
        let others = (1..settings.families).map(other).collect::<Result<Vec<_>>>()?;
        Ok(Box::new(of_family(keyspace, others, dropper)))
    }
}

fn codec(codec: Codec) -> Result<CompressionType> {
    match codec {
        Codec::None => Ok(CompressionType::None),
        Codec::Lz4 => Ok(CompressionType::Lz4),
        Codec::Zstd => Err("fjall has no Zstd".into()),
    }
}

fn described(settings: &EngineSettings) -> Vec<(String, String)> {
    let all = [
        ("cache_size", settings.cache_bytes.to_string()),
        ("worker_threads", settings.background_threads.to_string()),
        ("max_memtable_size", settings.memtable_bytes.to_string()),
        ("table_target_size", settings.file_bytes.to_string()),
        ("blob file_target_size", settings.blob_file_bytes.to_string()),
        ("separation_threshold", settings.min_blob_size.to_string()),
        ("bloom_bits", settings.filter_bits_per_key.to_string()),
        ("compression", format!("{:?}", settings.compression)),
        (
            "journal",
            if settings.sync { "persisted with fdatasync after each write" } else { "on, not synced" }
                .to_owned(),
        ),
        (
            "pages",
            if settings.direct_io { "dropped every 100 ms while reading" } else { "in the page cache" }
                .to_owned(),
        ),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn page_dropper(dir: PathBuf, dropping: Arc<AtomicBool>, ended: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            if dropping.load(Ordering::Relaxed) {
                drop_pages(&dir);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    })
}

fn drop_pages(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            drop_pages(&entry.path());
        } else if let Ok(file) = std::fs::File::open(entry.path()) {
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

/// Tables of level 0 at which it is compacted: the default.
const LEVEL_0_TRIGGER: u64 = 4;

/// An open fjall.
struct FjallEngine {
    db: Database,
    /// The family that is read and written.
    keyspace: Keyspace,
    /// The other families.
    others: Vec<FjallEngine>,
    settings: Vec<(String, String)>,
    sync: bool,
    memtable_bytes: u64,
    dropping: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    dropper: Option<JoinHandle<()>>,
}

impl FjallEngine {
    /// What a write promises.
    fn persist(&self) -> Result<()> {
        if self.sync {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Engine for FjallEngine {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value)?;
        self.persist()
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key)?;
        self.persist()
    }

    fn write(&self, batch: &Batch, durable: bool) -> Result<()> {
        let mut all = self.db.batch().durability((self.sync && durable).then_some(PersistMode::SyncData));
        batch.iter().for_each(|(key, value)| all.insert(&self.keyspace, key, value));
        Ok(all.commit()?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.keyspace.get(key)?;
        Ok(found.inspect(|bytes| value.extend_from_slice(bytes)).is_some())
    }

    fn scan(&self, start: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        for entry in self.keyspace.range(start..).take(limit as usize) {
            let (key, value) = entry.into_inner()?;
            visit(&key, &value);
            count += 1;
        }
        Ok(count)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.keyspace.rotate_memtable_and_wait()?)
    }

    fn settle(&self, timeout: Duration) -> Result<bool> {
        let end = Instant::now() + timeout;
        let mut quiet = 0;
        while quiet < 5 {
            if Instant::now() > end {
                return Ok(false);
            }
            let busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            quiet = if busy { 0 } else { quiet + 1 };
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(true)
    }

    fn phase(&self, phase: Phase) {
        self.dropping.store(phase == Phase::Read, Ordering::Relaxed);
    }

    fn families(&self) -> Vec<&dyn Engine> {
        self.others.iter().map(|family| family as &dyn Engine).collect()
    }

    fn backlog(&self) -> Option<Backlog> {
        let families = self.others.len() as u64 + 1;
        let keyspaces =
            std::iter::once(&self.keyspace).chain(self.others.iter().map(|other| &other.keyspace));
        Some(Backlog {
            memory_bytes: self.db.write_buffer_size(),
            memory_rest_bytes: families * self.memtable_bytes,
            level_0_files: keyspaces.map(|keyspace| keyspace.l0_table_count() as u64).sum(),
            level_0_rest_files: families * (LEVEL_0_TRIGGER - 1),
        })
    }

    fn stats(&self) -> Vec<(String, serde_json::Value)> {
        vec![
            ("compactions".to_owned(), self.db.compactions_completed().into()),
            ("seconds_compacting".to_owned(), self.db.time_compacting().as_secs_f64().into()),
            ("blob_files".to_owned(), self.keyspace.blob_file_count().into()),
            ("fragmented_blob_bytes".to_owned(), self.keyspace.fragmented_blob_bytes().into()),
            ("table_files".to_owned(), self.keyspace.table_count().into()),
        ]
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.settings.clone()
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(dropper) = self.dropper.take() {
            let _ = dropper.join();
        }
        Ok(self.db.persist(PersistMode::SyncData)?)
    }
}
