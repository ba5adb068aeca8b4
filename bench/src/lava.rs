//! The benchmark driver of LavaStore.

use crate::Result;
use crate::args::{Codec, SpeedLevels};
use crate::engine::{
    Answer, Asked, Backlog, Batch, Engine, EngineSettings, EngineTransaction, Flight, Opener,
};
use crate::host::{self, DeviceCounters};
use crate::space::{self, Space};
use lavastore::testing::Ablation;
use lavastore::{
    Access, Compression, Db, Durability, Env, ErrorKind, Family, FamilyOptions, Histograms, LockOptions,
    Loggers, MergeChoice, Options, Outcome, PolicyChoice, ReadOptions, RequestOptions, RequestQueue,
    Requests, SpaceLimit, Transaction, TransactionOptions, WriteBatch, WriteOptions, Writer,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Opens LavaStore.
pub struct Lava;

impl Opener for Lava {
    fn name(&self) -> String {
        format!("LavaStore {}", env!("CARGO_PKG_VERSION"))
    }

    fn open(&self, dir: &Path, settings: &EngineSettings) -> Result<Box<dyn Engine>> {
        let options = options(settings);
        LavaEngine::opened(Db::open_with(dir, &options)?, &options, settings, None)
    }
}

/// Opens LavaStore in another environment than the machine's.
pub struct LavaIn {
    /// The environment.
    pub env: Env,
    /// Device of the environment, whose counters are read.
    pub counted: PathBuf,
}

impl Opener for LavaIn {
    fn name(&self) -> String {
        Lava.name()
    }

    fn open(&self, dir: &Path, settings: &EngineSettings) -> Result<Box<dyn Engine>> {
        let options = options(settings);
        let elsewhere = Some((self.env.clone(), self.counted.clone()));
        LavaEngine::opened(Db::open_in(&self.env, dir, &options)?, &options, settings, elsewhere)
    }
}

/// Returns the maximum bytes of buffered log pages in addition to memtables.
fn waiting_log_bytes(settings: &EngineSettings) -> usize {
    let (memtable_bytes, buffered_age_ms_max) = (settings.memtable_bytes as usize, settings.buffered_age);
    Options { memtable_bytes, memory_bytes: 1 << 40, ..Options::default() }
        .expert(|expert| expert.buffered_age_ms_max = buffered_age_ms_max)
        .waiting_log_bytes()
}

fn durability(settings: &EngineSettings) -> Durability {
    match (settings.sync, settings.volatile) {
        (true, _) => Durability::Durable,
        (false, true) => Durability::Volatile,
        (false, false) => Durability::Buffered,
    }
}

fn options(settings: &EngineSettings) -> Options {
    let defaults = Options::default();
    Options {
        cache_bytes: settings.cache_bytes as usize,
        memtable_bytes: settings.memtable_bytes as usize,
        memory_bytes: 2 * (settings.memtable_bytes * settings.families) as usize
            + waiting_log_bytes(settings),
        background_threads: settings.background_threads as usize,
        access: if settings.direct_io { Access::Direct } else { Access::Buffered },
        durability: durability(settings),
        family: FamilyOptions {
            compression: match settings.compression {
                Codec::None => Compression::None,
                Codec::Lz4 => Compression::Lz4,
                Codec::Zstd => Compression::Zstd,
            },
            filter_bits_per_key: settings.filter_bits_per_key,
            min_blob_size: settings.min_blob_size as usize,
            policy: settings.policy.clone(),
            merge_operator: settings.counters.then(MergeChoice::counter),
            ..defaults.family
        }
        .expert(|expert| {
            expert.block_bytes = 4096;
            expert.file_bytes = settings.file_bytes;
            expert.level_base_bytes = settings.level_base_bytes;
            expert.level_multiplier = settings.level_multiplier.unwrap_or(expert.level_multiplier);
            expert.vsst_bytes = settings.blob_file_bytes;
            expert.gc_ratio_percent = settings.gc_ratio_percent.unwrap_or(expert.gc_ratio_percent);
        }),
        space_limit: settings.space_limit_bytes.map(SpaceLimit::Bytes),
        fast_tier: settings.log_dir.clone(),
        ..defaults
    }
    .expert(|expert| {
        expert.buffered_age_ms_max = settings.buffered_age;
        expert.ablation = settings.ablation;
        expert.read_gap_bytes = settings.read_gap;
        expert.loggers = loggers_of(settings);
        expert.fast_tier_values_bytes_max = settings.speed_values;
        expert.fast_tier_values_flushed = settings.speed_fresh;
        expert.fast_tier_levels = settings.speed_levels.most() as usize;
        expert.fast_tier_adaptive = settings.speed_levels == SpeedLevels::Moving;
        expert.wal_bytes_max = settings.log_bytes_max.unwrap_or(expert.wal_bytes_max);
    })
}

/// Formats the name and the parameters of a policy.
fn described_policy(policy: &PolicyChoice) -> String {
    match policy.parameters.as_slice() {
        [] => policy.name.clone(),
        parameters => {
            let parameters: Vec<String> = parameters.iter().map(ToString::to_string).collect();
            format!("{}({})", policy.name, parameters.join(","))
        }
    }
}

/// Formats the disabled mechanisms.
fn described_ablation(ablation: &Ablation) -> String {
    let shown = format!("{ablation:?}");
    let off = Ablation::names().into_iter().filter(|name| shown.contains(&format!("{name}: false")));
    match off.collect::<Vec<_>>()[..] {
        [] => "none".to_owned(),
        ref off => off.join(","),
    }
}

/// Formats a choice in lower case, as in options.
fn lower(choice: impl std::fmt::Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

fn described(options: &Options) -> Vec<(String, String)> {
    let family = &options.family;
    let all = [
        ("cache_bytes", options.cache_bytes.to_string()),
        ("memtable_bytes", options.memtable_bytes.to_string()),
        ("memory_bytes", options.memory_bytes.to_string()),
        ("wal_bytes_max", options.expert.wal_bytes_max.to_string()),
        ("background_threads", options.background_threads.to_string()),
        ("access", lower(options.access)),
        ("durability", lower(options.durability)),
        ("compression", family.compression.name().to_owned()),
        ("block_bytes", family.expert.block_bytes.to_string()),
        ("filter_bits_per_key", family.filter_bits_per_key.to_string()),
        ("file_bytes", family.expert.file_bytes.to_string()),
        ("level_base_bytes", family.expert.level_base_bytes.to_string()),
        ("level_multiplier", family.expert.level_multiplier.to_string()),
        ("min_blob_size", family.min_blob_size.to_string()),
        ("vsst_bytes", family.expert.vsst_bytes.to_string()),
        ("policy", described_policy(&family.policy)),
        ("gc_ratio_percent", family.expert.gc_ratio_percent.to_string()),
        ("stall_budget_us", options.stall_budget.as_micros().to_string()),
        ("switched_off", described_ablation(&options.expert.ablation)),
        (
            "read_gap_bytes",
            options.expert.read_gap_bytes.map_or("measured".to_owned(), |bytes| bytes.to_string()),
        ),
        ("loggers", options.expert.loggers.writes_max.to_string()),
        (
            "buffered_age_ms_max",
            options.expert.buffered_age_ms_max.map_or("as memory allows".to_owned(), |age| age.to_string()),
        ),
        ("speed_levels", options.expert.fast_tier_levels.to_string()),
        ("speed_values_bytes_max", options.expert.fast_tier_values_bytes_max.to_string()),
        ("speed_values_fresh", options.expert.fast_tier_values_flushed.to_string()),
        ("speed_moving", options.expert.fast_tier_adaptive.to_string()),
        ("log_dir", options.fast_tier.as_ref().map_or(String::new(), |dir| dir.display().to_string())),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Converts the number of loggers; 0 means adaptive.
fn loggers_of(settings: &EngineSettings) -> Loggers {
    match settings.loggers as usize {
        0 => Loggers::AUTO,
        writes_max => Loggers { writes_max, ..Loggers::ONE },
    }
}

/// An open store.
struct LavaEngine {
    db: Db,
    /// The family to read and write; `None`: the default one.
    family: Option<Family>,
    /// The other families.
    others: Vec<LavaEngine>,
    durability: Durability,
    stall_budget: Duration,
    /// Idle contents of memory and level 0.
    at_rest: Backlog,
    settings: Vec<(String, String)>,
    /// The environment if it is not the machine's, and the device below it.
    elsewhere: Option<(Env, PathBuf)>,
    /// Its directory on a second disk.
    beside: Option<PathBuf>,
}

impl LavaEngine {
    fn opened(
        db: Db,
        options: &Options,
        settings: &EngineSettings,
        elsewhere: Option<(Env, PathBuf)>,
    ) -> Result<Box<dyn Engine>> {
        let of_family = |family, others| LavaEngine {
            db: db.clone(),
            family,
            others,
            durability: options.durability,
            stall_budget: options.stall_budget,
            at_rest: Backlog {
                memory_rest_bytes: settings.families * settings.memtable_bytes,
                level_0_rest_files: settings.families
                    * (options.family.expert.l0_compaction_files as u64 - 1),
                ..Backlog::default()
            },
            settings: described(options),
            elsewhere: elsewhere.clone(),
            beside: options.fast_tier.clone(),
        };
        let names = db.family_names();
        let other = |number: u64| -> Result<LavaEngine> {
            let name = format!("family-{number}");
            let family = match names.contains(&name) {
                true => db.open_family(&name)?,
                false => db.create_family(&name, &options.family)?,
            };
            Ok(of_family(Some(family), Vec::new()))
        };
        let others = (1..settings.families).map(other).collect::<Result<Vec<_>>>()?;
        Ok(Box::new(of_family(None, others)))
    }

    fn writer(&self, durable: bool) -> Writer<'_> {
        let options = self.write_options(durable);
        match &self.family {
            None => self.db.writing(&options),
            Some(family) => family.writing(&options),
        }
    }

    fn write_options(&self, durable: bool) -> WriteOptions {
        match self.durability {
            Durability::Durable if !durable => WriteOptions::buffered(),
            durability => WriteOptions { durability: Some(durability), ..WriteOptions::default() },
        }
    }
}

/// Requests in flight with their completion queue.
struct LavaFlight {
    requests: Requests,
    queue: RequestQueue,
}

impl Flight for LavaFlight {
    fn submit(&mut self, asked: Asked<'_>, key: &[u8], token: u64) -> Result<()> {
        match asked {
            Asked::Put(value) => self.queue.submit(self.requests.put(key, value)?, token),
            Asked::Get => self.queue.submit(self.requests.get(key)?, token),
            Asked::Scan(length) => self.queue.submit(self.requests.scan(key.., length as usize)?, token),
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(u64, Answer)> {
        let (token, outcome) = self.queue.wait(None).ok_or("no request is in flight to wait for")?;
        let answer = match outcome? {
            Outcome::Value(value) => Answer::Value(value),
            Outcome::Entries(entries) => Answer::Entries(entries),
            _ => Answer::Written,
        };
        Ok((token, answer))
    }
}

/// A transaction on the default family.
struct LavaTransaction(Transaction);

impl EngineTransaction for LavaTransaction {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        Ok(self.0.get(key)?.inspect(|bytes| value.extend_from_slice(bytes)).is_some())
    }

    fn get_for_update(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        Ok(self.0.get_for_update(key)?.inspect(|bytes| value.extend_from_slice(bytes)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Ok(self.0.commit()?)
    }
}

impl Engine for LavaEngine {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.writer(true).put(key, value)?)
    }

    fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        Ok(self.writer(true).merge(key, operand)?)
    }

    fn write(&self, batch: &Batch, durable: bool) -> Result<()> {
        let mut all = WriteBatch::new();
        match &self.family {
            None => batch.iter().for_each(|(key, value)| _ = all.put(key, value)),
            Some(family) => {
                let mut of_family = all.family(family);
                batch.iter().for_each(|(key, value)| _ = of_family.put(key, value));
            }
        }
        Ok(self.db.writing(&self.write_options(durable)).write(&all)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.writer(true).delete(key)?)
    }

    fn keeps_space_limit(&self) -> bool {
        true
    }

    fn change_space_limit(&self, limit_bytes: u64) -> Result<Option<u64>> {
        self.db.set_space_limit(Some(lavastore::SpaceLimit::Bytes(limit_bytes)))?;
        let space = self.db.space()?;
        // A store above its limit may occupy its present files and its reserve; a memtable needs up
        // to an eighth more as tables.
        let claimed =
            space.total_bytes + space.reserve_bytes + space.memtable_bytes + space.memtable_bytes / 8;
        let most = claimed + space.memtable_bytes;
        Ok(Some(if claimed > limit_bytes { most } else { limit_bytes }))
    }

    fn allocated(&self, dir: &Path) -> Space {
        let space = match &self.elsewhere {
            Some((env, _)) => space::allocated_in(env, dir),
            None => space::allocated(dir),
        };
        match &self.beside {
            Some(beside) => space::add_beside(space, beside),
            None => space,
        }
    }

    fn device_counters(&self, dir: &Path) -> Option<DeviceCounters> {
        let Some((_, device)) = &self.elsewhere else { return host::device_counters(dir) };
        let counters = io::kernel::usage::device(device).ok()?;
        let io::kernel::usage::DeviceCounters { reads, read_bytes, write_bytes, .. } = counters;
        Some(DeviceCounters { reads, read_bytes, write_bytes })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = match &self.family {
            None => self.db.get(key)?,
            Some(family) => family.get(key)?,
        };
        Ok(found.inspect(|bytes| value.extend_from_slice(bytes)).is_some())
    }

    fn multi_get(&self, keys: &[Vec<u8>], visit: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let found = match &self.family {
            None => self.db.multi_get(keys),
            Some(family) => family.multi_get(keys),
        };
        for (nth, value) in found.into_iter().enumerate() {
            if let Some(value) = value? {
                visit(nth, &value);
            }
        }
        Ok(())
    }

    fn scan(&self, start: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        // The reader of a page knows its length.
        let options = ReadOptions { expected_entries: limit as usize, ..ReadOptions::default() };
        let reader = match &self.family {
            None => self.db.reading(&options),
            Some(family) => family.reading(&options),
        };
        let mut entries = reader.iter().cursor()?;
        entries.seek(start)?;
        let mut count = 0;
        while entries.valid() && count < limit {
            visit(entries.key(), entries.value()?);
            count += 1;
            if count < limit {
                entries.next()?;
            }
        }
        Ok(count)
    }

    fn scan_prefix(&self, prefix: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let entries = match &self.family {
            None => self.db.prefix(prefix),
            Some(family) => family.prefix(prefix),
        };
        let mut entries = entries.cursor()?;
        entries.seek_to_first()?;
        let mut count = 0;
        while entries.valid() && count < limit {
            visit(entries.key(), entries.value()?);
            count += 1;
            entries.next()?;
        }
        Ok(count)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn settle(&self, timeout: Duration) -> Result<bool> {
        Ok(self.db.wait_idle(timeout))
    }

    fn stats(&self) -> Vec<(String, serde_json::Value)> {
        let counters = self.db.stats().fields();
        let mut all: Vec<(String, serde_json::Value)> =
            counters.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        if let Ok(space) = self.db.space() {
            let parts = space.parts().into_iter();
            all.extend(parts.map(|(name, bytes)| (format!("space_{name}_bytes"), bytes.into())));
            all.push(("index_space_amplification".to_owned(), space.index_amplification().into()));
        }
        all.push((
            "shape".to_owned(),
            self.db.describe().lines().map(str::to_owned).collect::<Vec<_>>().into(),
        ));
        all
    }

    fn space_parts(&self) -> Vec<(String, u64)> {
        let Ok(space) = self.db.space() else { return Vec::new() };
        space.parts().into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
    }

    fn families(&self) -> Vec<&dyn Engine> {
        self.others.iter().map(|family| family as &dyn Engine).collect()
    }

    fn flight(&self, depth: u64) -> Result<Option<Box<dyn Flight>>> {
        let (depth, write) = (depth as usize, self.write_options(true));
        let requests = self.db.requests(&RequestOptions { depth, write, ..RequestOptions::default() })?;
        let requests = self.family.as_ref().map(|family| requests.family(family)).unwrap_or(requests);
        Ok(Some(Box::new(LavaFlight { queue: requests.queue(), requests })))
    }

    fn transaction(&self, locks: bool) -> Result<Option<Box<dyn EngineTransaction + '_>>> {
        let write = self.write_options(true);
        let locks = locks.then(LockOptions::default);
        let options = TransactionOptions { locks, write, ..TransactionOptions::default() };
        Ok(Some(Box::new(LavaTransaction(self.db.transaction_with(&options)))))
    }

    fn is_conflict(&self, error: &crate::Error) -> bool {
        let error = error.downcast_ref::<lavastore::Error>();
        error.is_some_and(|e| matches!(e.kind(), ErrorKind::Conflict | ErrorKind::Busy))
    }

    fn waits_ns(&self) -> Vec<(String, u64)> {
        let cause = |name: &str| Some(name.strip_prefix("stall_")?.strip_suffix("_ns")?.to_owned());
        let counters = self.db.stats().fields().into_iter();
        counters.filter_map(|(name, ns)| Some((cause(name)?, ns))).collect()
    }

    fn backlog(&self) -> Option<Backlog> {
        let space = self.db.space().ok()?;
        let levels = space.families.iter().flat_map(|family| &family.levels);
        let level_0 = levels.filter(|level| level.level == 0).map(|level| level.files);
        Some(Backlog { memory_bytes: space.memtable_bytes, level_0_files: level_0.sum(), ..self.at_rest })
    }

    fn histograms(&self) -> Option<Histograms> {
        Some(self.db.stats().histograms)
    }

    fn stall_budget(&self) -> Option<Duration> {
        Some(self.stall_budget)
    }

    fn files_damaged(&self) -> Result<u64> {
        Ok(self.db.verify()?.errors.len() as u64)
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let LavaEngine { db, others, .. } = *self;
        drop(others);
        Ok(db.close()?)
    }
}
