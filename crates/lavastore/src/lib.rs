//! LavaStore is a local storage engine for write-heavy services: an embeddable, ordered, durable
//! key-value store, and a store of logs ([`LogStore`]).
//!
//! The example starts with an empty directory and uses column families, prefix scans, a snapshot, a
//! stream and a checkpoint:
//!
//! ```
//! # let dir = std::env::temp_dir().join(format!("lavastore-walk-{}", std::process::id()));
//! use lavastore::{Db, WriteBatch, WriteOptions};
//! use std::io::Write;
//!
//! let db = Db::open(dir.join("store"))?;
//! db.put("planet/earth", "blue")?;
//! db.put("planet/mars", "red")?;
//! for entry in db.prefix("planet/") {
//!     let (name, colour) = entry?;
//!     println!("{} is {}", name.escape_ascii(), colour.escape_ascii());
//! }
//!
//! // Column families are key spaces of their own; a batch changes any of them together, or not at all.
//! let moons = db.family("moons")?;
//! let mut batch = WriteBatch::new();
//! batch.put("planet/mars", "rust");
//! batch.family(&moons).put("mars/phobos", "11 km").put("mars/deimos", "6 km");
//! let before = db.snapshot();
//! db.writing(&WriteOptions::durable()).write(&batch)?;
//! assert_eq!(moons.range("mars/"..="mars/phobos").rev().count(), 2);
//!
//! // A snapshot shows all of them as they were.
//! assert_eq!(before.get("planet/mars")?.as_deref(), Some(&b"red"[..]));
//! assert_eq!(before.family(&moons).prefix("mars/").count(), 0);
//!
//! // Large values go in and out in pieces.
//! let mut film = db.put_stream("film/1")?;
//! for frame in 0..1000u32 {
//!     film.write_all(&[frame as u8; 1000])?;
//! }
//! film.finish()?;
//! assert_eq!(db.get_range("film/1", 7000, 2)?, Some(vec![7, 7]));
//!
//! // A second store that shares the files of this one.
//! db.checkpoint(dir.join("monday"))?;
//! assert!(Db::open(dir.join("monday"))?.get("film/1")?.is_some());
//! # drop((before, moons, db));
//! # std::fs::remove_dir_all(&dir).ok();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Overview
//!
//! | | |
//! |---|---|
//! | [`Db`] | store handle with the methods of its family `default`: `Clone + Send + Sync` |
//! | [`Family`] | another column family with the same methods: [`Db::family`] |
//! | [`Snapshot`] | consistent view of all families, with the read methods |
//! | [`Iter`], [`Keys`], [`Cursor`] | double-ended iterators, and a cursor that seeks |
//! | [`WriteBatch`] | atomic batch of changes |
//! | [`ValueWriter`], [`ValueReader`] | streaming access to one large value |
//! | [`LogStore`], [`Log`], [`LogScan`] | store of thousands of logs: records by LSN, durable appends |
//! | [`Completion`] | future that resolves when an append is durable |
//! | [`LogBatch`], [`LogWriter`] | atomic batch over several logs; writes with options |
//! | [`Requests`], [`RequestQueue`] | asynchronous calls: futures for any runtime, a completion queue |
//! | [`Reader`], [`Writer`] | calls with options: [`Db::reading`], [`Db::writing`] |
//! | [`Volumes`] | the two disks of a store with a fast tier for its log |
//! | [`Space`], [`Statistics`] | owner of each byte on disk, and counters |
//! | [`Error`] | an [`ErrorKind`] to match on, the file and the offset |
//! | [`testing`], [`inspect`], [`limits`] | simulated machine for crash tests; file dumps; size limits |
//!
//! # Options
//!
//! [`reading`](Db::reading) and [`writing`](Db::writing) set the options of a call. They borrow the
//! options and offer the same methods. [`Db`], [`Family`] and [`Snapshot`] have them, and they cost
//! nothing: each returns a pair of references.
//!
//! ```
//! # use lavastore::{ReadOptions, WriteOptions};
//! # let db = lavastore::testing::store();
//! # let users = db.family("users")?;
//! db.writing(&WriteOptions::durable()).put("paid", "yes")?;
//! users.writing(&WriteOptions::volatile()).delete_range("a".."b")?;
//! let once = ReadOptions { fill_cache: false, ..Default::default() };
//! for entry in users.reading(&once).prefix("c") {
//!     println!("{:?}", entry?);
//! }
//! # Ok::<(), lavastore::Error>(())
//! ```
//!
//! # Durability
//!
//! The [`Durability`] of an acknowledged write states which failures it survives. `Durable`
//! survives a loss of power, `Buffered` (the default) the death of the process, and `Volatile`
//! neither until it is flushed. [`Db::sync`] makes buffered writes durable.
//!
//! # Iteration
//!
//! ```
//! # let db = lavastore::testing::store();
//! for day in ["2024-01-30", "2024-01-31", "2024-02-01"] {
//!     db.put(day, "")?;
//! }
//! let days: Vec<_> = db.range(.."2024-02").keys().rev().collect::<Result<_, _>>()?;
//! assert_eq!(days, [b"2024-01-31", b"2024-01-30"]);
//!
//! let mut cursor = db.iter().cursor()?;
//! cursor.seek("2024-01-31")?;
//! cursor.next()?;
//! assert_eq!(cursor.key(), b"2024-02-01");
//! # Ok::<(), lavastore::Error>(())
//! ```
//!
//! # Crash tests
//!
//! The same engine runs on a simulated machine that loses power wherever a test asks for it: see
//! [`testing`].

#![warn(missing_debug_implementations)]

mod applier;
mod atomic;
mod db;
mod family;
mod handle;
mod indexed_batch;
pub mod inspect;
mod iter;
pub mod limits;
mod log;
mod long_calls;
mod merge;
mod prepared;
mod range;
mod read;
mod repair;
mod requests;
mod snapshot;
mod stream;
pub mod testing;
mod transaction;
mod volumes;
mod write;

pub use applier::Applier;
pub use db::Db;
// `doc(alias)` belongs on the re-export: rustdoc's search ignores aliases inside private modules.
#[doc(alias = "ColumnFamily")]
#[doc(alias = "keyspace")]
#[doc(alias = "partition")]
pub use family::Family;
pub use indexed_batch::IndexedBatch;
#[doc(alias = "iterator")]
pub use iter::Iter;
pub use iter::{Cursor, Keys};
pub use log::{Completion, Log, LogBatch, LogScan, LogStore, LogWriter, Lsn};
pub use long_calls::{CheckpointOptions, VerifyOptions};
pub use prepared::PreparedTransaction;
pub use range::KeyRange;
pub use read::{ReadOptions, Reader};
pub use repair::{RepairOptions, RepairReport};
#[doc(alias = "async")]
pub use requests::Requests;
pub use snapshot::Snapshot;
pub use stream::{ValueReader, ValueWriter};
pub use transaction::{Transaction, TransactionFamily, TransactionIter};
pub use volumes::Volumes;
#[doc(alias = "batch")]
#[doc(alias = "transaction")]
pub use write::WriteBatch;
pub use write::{FamilyBatch, Writer};

/// ```
/// use lavastore::{DamagedFiles, Options, SpaceLimit, SpacePolicy};
/// let options = Options {
///     space_limit: Some(SpaceLimit::Ratio(1.5)),
///     space_policy: SpacePolicy::Wait { at_most: std::time::Duration::from_secs(10) },
///     damaged_files: DamagedFiles::Refuse,
///     ..Default::default()
/// };
/// # let env = lavastore::testing::SimEnv::new(1).env();
/// # lavastore::Db::open_in(&env, "/store", &options)?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{DamagedFiles, ExpertOptions, Options, SpaceLimit, SpacePolicy};

/// ```
/// use lavastore::{ExplainedOption, Explanation, OptionSource, Options};
/// let explanation: Explanation = Options::default().explain();
/// let memory: &ExplainedOption = explanation.option("memory_bytes").expect("it is derived unless it is set");
/// assert_eq!((memory.value, memory.source), (112 << 20, OptionSource::Derived));
/// print!("{explanation}");
/// ```
#[doc(inline)]
pub use lavakv::{ExplainedOption, Explanation, OptionSource};

/// ```
/// use lavastore::{Durability, LogOptions, LogStore};
/// let options = LogOptions { durability: Durability::Buffered, ..Default::default() };
/// # let env = lavastore::testing::SimEnv::new(1).env();
/// LogStore::open_in(&env, "/logs", &options)?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavalog::Options as LogOptions;

/// ```
/// use lavastore::LogStatistics;
/// # let store = lavastore::testing::log_store();
/// let LogStatistics { logs, appends, .. } = store.stats();
/// assert_eq!((logs, appends), (0, 0));
/// ```
#[doc(inline)]
pub use lavalog::Statistics as LogStatistics;

/// ```
/// use lavastore::LogBackgroundIo;
/// # let store = lavastore::testing::log_store();
/// let LogBackgroundIo { budget_bytes_per_s, collection_bytes, .. } = store.stats().background_io;
/// assert_eq!((budget_bytes_per_s, collection_bytes), (0, 0));
/// ```
#[doc(inline)]
pub use lavalog::BackgroundIo as LogBackgroundIo;

/// ```
/// use lavastore::{LogSpace, LogSpaceOwners, LogSpaceStored, LogStoreSpace};
/// # let store = lavastore::testing::log_store();
/// store.log("orders")?.append(1, "two apples")?;
/// let LogStoreSpace { owners, stored, logs, .. } = store.space()?;
/// assert_eq!(owners.live_bytes, logs.iter().map(|log: &LogSpace| log.live_bytes).sum::<u64>());
/// # let _: (LogSpaceOwners, LogSpaceStored) = (owners, stored);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavalog::space_report::{
    LogSpace, Owners as LogSpaceOwners, Space as LogStoreSpace, Stored as LogSpaceStored,
};

/// ```
/// use lavastore::{LogChecked, LogCheckedCount, LogDamage, LogVerifyReport, LostRecords};
/// # let store = lavastore::testing::log_store();
/// let LogVerifyReport { damages, checked, .. } = store.verify();
/// assert!(damages.is_empty());
/// # let _: (LogChecked, Option<(LogCheckedCount, LogDamage, LostRecords)>) = (checked, None);
/// ```
#[doc(inline)]
pub use lavalog::verify::{
    Checked as LogChecked, CheckedCount as LogCheckedCount, Damage as LogDamage, LostRecords,
    VerifyReport as LogVerifyReport,
};

/// ```no_run
/// use lavastore::{LogRepairOptions, LogRepairReport, LogStore, LostBatches, RecordOutcome, RepairGap, RepairedLog};
/// let dry_run = LogRepairOptions { dry_run: true, ..Default::default() };
/// let report: LogRepairReport = LogStore::repair("damaged", "repaired", &dry_run)?;
/// match report.outcome("orders", 7) {
///     RecordOutcome::NotLost => {}
///     RecordOutcome::Lost => println!("lost"),
///     RecordOutcome::Unknown(why) => println!("unknown: {why}"),
/// }
/// # let _: Option<(LostBatches, RepairGap, RepairedLog)> = None;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavalog::{
    LostBatches, RecordOutcome, RepairGap, RepairOptions as LogRepairOptions,
    RepairReport as LogRepairReport, RepairedLog,
};

/// ```
/// use lavastore::{Compression, FamilyOptions, PolicyChoice};
/// # let db = lavastore::testing::store();
/// let options = FamilyOptions {
///     compression: Compression::None,
///     min_blob_size: 4096,
///     policy: PolicyChoice::default(),
///     ..Default::default()
/// };
/// let films = db.create_family("films", &options)?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{Compression, ExpertFamilyOptions, FamilyOptions, OverlapOf, PolicyChoice, VlsmOptions};

/// The filters of a family hold prefixes of its keys, so that a scan of one user passes over tables
/// without entries of that user:
///
/// ```
/// use lavastore::{Db, FamilyOptions, KeyPrefix, Options};
///
/// let family = FamilyOptions { prefix: Some(KeyPrefix::Delimiter(b'/')), ..Default::default() };
/// # let machine = lavastore::testing::SimEnv::new(1);
/// # let db = Db::open_in(&machine.env(), "/store", &Options::default())?;
/// let posts = db.create_family("posts", &family)?;
/// posts.put("anna/1", "hello")?;
/// posts.put("ben/1", "hi")?;
/// assert_eq!(posts.prefix("anna/").count(), 1);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::KeyPrefix;

/// A program adds its own operator under a name, and a family chooses it:
///
/// ```
/// use lavastore::{FamilyOptions, MergeChoice, MergeOperator, MergeOperators, Options, Result};
///
/// /// Keeps the longest value.
/// struct Longest;
///
/// impl MergeOperator for Longest {
///     fn full_merge(
///         &self,
///         _key: &[u8],
///         base: Option<&[u8]>,
///         operands: &[&[u8]],
///         out: &mut Vec<u8>,
///     ) -> Result<()> {
///         let all = base.into_iter().chain(operands.iter().copied());
///         out.extend_from_slice(all.max_by_key(|value| value.len()).unwrap_or_default());
///         Ok(())
///     }
/// }
///
/// let own = MergeOperators::default().with("longest", std::sync::Arc::new(Longest));
/// let options = Options::default().expert(|expert| expert.merge_operators = own);
/// # let machine = lavastore::testing::SimEnv::new(1);
/// # let db = lavastore::Db::open_in(&machine.env(), "/store", &options)?;
/// let operator = Some(MergeChoice::custom("longest"));
/// let options = FamilyOptions { merge_operator: operator, ..Default::default() };
/// let names = db.create_family("names", &options)?;
/// names.merge("cat", "tom")?;
/// names.merge("cat", "thomasina")?;
/// assert_eq!(names.get("cat")?.as_deref(), Some(&b"thomasina"[..]));
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{MergeChoice, MergeOperator, MergeOperators, set_members, set_of};

/// A filter removes the entries of closed accounts, by their keys:
///
/// ```
/// use lavastore::{
///     CompactionFilter, CompactionFilters, FilterDecision, FilterRun, FilteredCompaction, FilteredEntry,
///     Options, Result,
/// };
///
/// struct Closed;
///
/// impl CompactionFilter for Closed {
///     fn begin(&self, _: &FilteredCompaction) -> Box<dyn FilterRun> {
///         Box::new(Closed)
///     }
/// }
///
/// impl FilterRun for Closed {
///     fn decide(&mut self, entry: &mut FilteredEntry<'_>) -> Result<FilterDecision> {
///         Ok(match entry.key().starts_with(b"closed/") {
///             true => FilterDecision::Remove,
///             false => FilterDecision::Keep,
///         })
///     }
/// }
///
/// let filters = CompactionFilters::default().with("default", std::sync::Arc::new(Closed));
/// let options = Options::default().expert(|expert| expert.compaction_filters = filters);
/// # let machine = lavastore::testing::SimEnv::new(1);
/// # let db = lavastore::Db::open_in(&machine.env(), "/store", &options)?;
/// db.put("closed/7", "account")?;
/// db.put("open/8", "account")?;
/// db.compact_range(..)?;
/// assert_eq!(db.iter().keys().count(), 1);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{
    CompactionFilter, CompactionFilters, FilterDecision, FilterRun, FilteredCompaction, FilteredEntry,
};

/// ```
/// use lavastore::{Durability, WriteOptions};
/// # let db = lavastore::testing::store();
/// assert_eq!(WriteOptions::durable().durability, Some(Durability::Durable));
/// db.writing(&WriteOptions::durable()).put("order/1", "paid")?;
/// # Ok::<(), lavastore::Error>(())
/// ```
///
/// A caller with a deadline bounds the wait of each write:
///
/// ```
/// # use lavastore::{ErrorKind, WriteOptions};
/// # let db = lavastore::testing::store();
/// let quick = WriteOptions::buffered().wait_at_most(std::time::Duration::from_millis(5));
/// match db.writing(&quick).put("visit/1", "home page") {
///     Err(e) if e.kind() == ErrorKind::Busy => println!("not counted"),
///     other => other?,
/// }
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{Durability, Loggers, WriteOptions};

/// ```
/// use lavastore::{Isolation, TransactionOptions};
/// # let db = lavastore::testing::store();
/// let strict = TransactionOptions { isolation: Isolation::Serializable, ..Default::default() };
/// let mut transaction = db.transaction_with(&strict);
/// if transaction.get("lock")?.is_none() {
///     transaction.put("owner", "me")?;
/// }
/// transaction.commit()?; // fails with `Conflict` if somebody has set `lock` meanwhile
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use transactions::{Isolation, TransactionOptions};

/// ```
/// use lavastore::{LockOptions, TransactionOptions};
/// use std::time::Duration;
/// # let db = lavastore::testing::store();
/// // For rows of a queue that many workers take from: no worker waits for a row of another.
/// let locks = LockOptions { wait_at_most: Duration::ZERO, ..LockOptions::default() };
/// let options = TransactionOptions { locks: Some(locks), ..TransactionOptions::default() };
/// let mut worker = db.transaction_with(&options);
/// worker.get_for_update("job/1")?;
/// let mut other = db.transaction_with(&options);
/// assert_eq!(other.get_for_update("job/1").unwrap_err().kind(), lavastore::ErrorKind::Busy);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use transactions::{ForUpdate, LockOptions};

/// ```
/// use lavastore::{ForUpdate, LockMode};
/// # let db = lavastore::testing::store();
/// let mut transaction = db.locking_transaction();
/// let shared = ForUpdate { lock: LockMode::Shared, ..ForUpdate::default() };
/// transaction.get_for_update_with("settings", &shared)?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::LockMode;

/// ```
/// use lavastore::BatchChange;
/// # let db = lavastore::testing::store();
/// let mut batch = db.indexed_batch(true);
/// batch.delete_range("a".."b")?;
/// for (family, change) in batch.changes() {
///     match change {
///         BatchChange::Put(key, value) => println!("{family}: {key:?} is {} bytes", value.len()),
///         BatchChange::Merge(key, operand) => println!("{family}: {key:?} merges {operand:?}"),
///         BatchChange::Delete(key) => println!("{family}: {key:?} goes"),
///         BatchChange::DeleteRange(start, end) => println!("{family}: {start:?} to {end:?} go"),
///     }
/// }
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use transactions::BatchChange;

/// ```
/// # let db = lavastore::testing::store();
/// use lavastore::Update;
/// let shorter = |old: Option<&[u8]>| match old {
///     None => Update::Keep,
///     Some([]) => Update::Delete,
///     Some([_, rest @ ..]) => Update::Set(rest.to_vec()),
/// };
/// db.put("key", "ab")?;
/// db.fetch_and_update("key", shorter)?;
/// assert_eq!(db.get("key")?.as_deref(), Some(&b"b"[..]));
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use transactions::atomic::Update;

/// ```
/// use lavastore::{Entry, Request, RequestOptions, WriteOptions, WriteRequest};
/// # let db = lavastore::testing::store();
/// let options = RequestOptions { depth: 16, write: WriteOptions::durable(), ..Default::default() };
/// let requests = db.requests(&options)?;
/// let mut write: WriteRequest = requests.put("key", "value")?;
/// # lavastore::testing::block_on(&db, async {
/// write.visible().await?;
/// let page: Request<Vec<Entry>> = requests.scan(.., 10)?;
/// assert_eq!(page.await?.len(), 1);
/// write.durable().await?;
/// # Ok::<(), lavastore::Error>(())
/// # })?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{Entry, Request, RequestOptions, WriteRequest};

/// ```
/// use lavastore::{AnyRequest, Outcome, RequestQueue};
/// # let db = lavastore::testing::store();
/// db.put("b", "2")?;
/// let requests = db.requests(&Default::default())?;
/// let mut queue: RequestQueue = requests.queue();
/// for (token, key) in ["a", "b"].into_iter().enumerate() {
///     queue.submit(requests.get(key)?, token as u64);
/// }
/// queue.submit(AnyRequest::from(requests.flush()?), 2);
/// while let Some((token, outcome)) = queue.wait(None) {
///     match outcome? {
///         Outcome::Value(value) => assert_eq!(value.is_some(), token == 1),
///         other => assert_eq!((token, other), (2, Outcome::Done)),
///     }
/// }
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{AnyRequest, Outcome, RequestQueue};

/// ```
/// use lavastore::{Error, ErrorKind, Result};
/// fn pay(db: &lavastore::Db) -> Result<()> {
///     match db.put("", "an empty key") {
///         Err(e) if e.kind() == ErrorKind::InvalidArgument => Ok(()),
///         other => other,
///     }
/// }
/// pay(&lavastore::testing::store())?;
/// # Ok::<(), Error>(())
/// ```
///
/// The kind of a failed write decides the next step:
///
/// ```
/// # use lavastore::{Db, ErrorKind, Result};
/// fn store_event(db: &Db, key: &str) -> Result<bool> {
///     match db.put(key, "event").map_err(|e| (e.kind(), e)) {
///         Ok(()) => Ok(true),
///         Err((ErrorKind::Busy, _)) => Ok(false), // Nothing is written: retry later.
///         Err((ErrorKind::NoSpace, _)) => {
///             db.delete_range("event/1".."event/2")?; // Deletes work in a full store.
///             Ok(false)
///         }
///         Err((_, e)) => Err(e), // After `Io` and `Poisoned`: close and reopen the store.
///     }
/// }
/// assert!(store_event(&lavastore::testing::store(), "event/3")?);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{Error, ErrorKind, Result};

/// ```
/// # use lavastore::Value;
/// # let db = lavastore::testing::store();
/// db.put("key", "value")?;
/// let value: Value = db.get("key")?.expect("was just put");
/// assert_eq!(value, b"value"[..]);
/// let copied: Vec<u8> = value.into_vec();
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::Value;

/// ```
/// use lavastore::{DamagedFile, Event, EventListener, Options, StallCause};
/// use std::sync::Arc;
///
/// struct Printer;
/// impl EventListener for Printer {
///     fn event(&self, event: &Event) {
///         match event {
///             Event::FileSetAside { .. } => eprintln!("damaged: {event:?}"),
///             _ => println!("{event:?}"),
///         }
///     }
/// }
/// let options = Options { listener: Some(Arc::new(Printer)), ..Default::default() };
/// # let _: Option<(DamagedFile, StallCause)> = None;
/// ```
#[doc(inline)]
pub use lavakv::{DamagedFile, Event, EventListener, FastTierChangeReason, StallCause};

/// ```
/// use lavastore::{FamilySpace, Holder, HolderKind, LevelSpace, LogHolder, RestReport, RestState, Space};
/// # let db = lavastore::testing::store();
/// let report = db.snapshot_named("nightly report");
/// db.put("key", "value")?;
/// let space: Space = db.space()?;
/// for family in &space.families {
///     let FamilySpace { name, .. } = family;
///     println!("{name}");
/// }
/// // What is deleted now leaves the disk when this snapshot is gone.
/// let RestReport { state, .. } = space.rest;
/// println!("rest: {}", state.name());
/// assert_ne!(state, RestState::AtRest);
/// let holder: &Holder = &space.holders[0];
/// assert!(holder.kind == HolderKind::Snapshot && holder.name == "nightly report");
/// # let _: Option<(LevelSpace, LogHolder)> = None;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{FamilySpace, Holder, HolderKind, LevelSpace, LogHolder, RestReport, RestState, Space};

/// ```
/// use lavastore::{Db, Options, FastTierSpace, testing::SimEnv};
/// let options = Options { fast_tier: Some("/fast".into()), ..Default::default() };
/// let db = Db::open_in(&SimEnv::new(1).env(), "/store", &options)?;
/// let FastTierSpace { place, bytes, .. } = db.space()?.speed.expect("the store has a second disk");
/// assert!(place.ends_with("fast") && bytes > 0);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::FastTierSpace;

/// ```
/// # let db = lavastore::testing::store();
/// for lavastore::EngineSpace { name, bytes, .. } in db.engines()? {
///     println!("{name}: {bytes} bytes");
/// }
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::EngineSpace;

/// ```
/// use lavastore::StoreFormat;
/// # let db = lavastore::testing::store();
/// if db.format() < StoreFormat::NEWEST {
///     println!("the store has format {}, {} is the newest", db.format(), StoreFormat::NEWEST);
/// }
/// ```
#[doc(inline)]
pub use lavakv::StoreFormat;

/// ```no_run
/// use lavastore::{CheckpointRequest, Db, Env};
/// use std::time::Duration;
/// let tell = &mut |state: CheckpointRequest| println!("{state:?}");
/// Db::request_checkpoint_in(&Env::kernel(), "/var/lib/orders", "/backup/monday", Duration::from_secs(15), tell)?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::CheckpointRequest;

/// ```
/// use lavastore::{CacheStats, SegmentStats, Statistics};
/// # let db = lavastore::testing::store();
/// let (counters, cache): (Statistics, CacheStats) = (db.stats(), db.cache_stats());
/// assert_eq!(counters.gets, 0);
/// # let _: Option<SegmentStats> = None;
/// ```
#[doc(inline)]
pub use lavakv::{CacheStats, SegmentStats, Statistics};

/// ```
/// use lavastore::{Distribution, Histograms, StallCause};
/// # let db = lavastore::testing::store();
/// db.put("key", "value")?;
/// let histograms: Histograms = db.stats().histograms;
/// let puts: &Distribution = histograms.operation("put").expect("is timed");
/// println!("{} puts, 99 % within {} ns, the longest took {} ns", puts.count(), puts.quantile(0.99), puts.max());
/// let waits = histograms.waits_for(StallCause::Memory).expect("is timed");
/// assert!(waits.is_empty(), "nobody waited for memory");
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{Distribution, Histograms};

/// ```
/// use lavastore::{Cancel, CompactRequest, Env, ErrorKind};
/// # let db = lavastore::testing::store();
/// let an_hour = Cancel::with_deadline(&Env::kernel(), std::time::Duration::from_secs(3600));
/// let request = CompactRequest { cancel: Some(an_hour.clone()), ..Default::default() };
/// db.compact_range_with(.., &request, &mut |_| {})?;
/// an_hour.cancel();
/// let ended = db.compact_range_with(.., &request, &mut |_| {});
/// assert_eq!(ended.unwrap_err().kind(), ErrorKind::Cancelled);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::Cancel;

/// ```
/// use lavastore::{CompactProgress, CompactRequest};
/// # let db = lavastore::testing::store();
/// let anew = CompactRequest { rewrite: true, ..Default::default() };
/// db.compact_range_with(.., &anew, &mut |progress: &CompactProgress| assert_eq!(progress.remaining_tables, 0))?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{CompactProgress, CompactRequest};

/// ```
/// use lavastore::{GcPause, GcPlan, GcProgress, GcReport, GcRequest, PlannedGc};
/// # let db = lavastore::testing::store();
/// let all = GcRequest { until_percent: Some(0), ..Default::default() };
/// let plan: GcPlan = db.gc_plan(&all)?;
/// let report: GcReport = db.collect_garbage(&all)?;
/// let pause: GcPause = db.pause_gc();
/// # let _: Option<(GcProgress, PlannedGc)> = None;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{GcPause, GcPlan, GcProgress, GcReport, GcRequest, PlannedGc};

/// ```
/// use lavastore::{Checked, CheckedCount, VerifyReport};
/// # let db = lavastore::testing::store();
/// let VerifyReport { errors, checked, .. } = db.verify()?;
/// assert!(errors.is_empty());
/// # let _: (Checked, Option<CheckedCount>) = (checked, None);
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{Checked, CheckedCount, VerifyReport};

/// ```no_run
/// use lavastore::{Db, KeyOutcome, KeyRepairReport, LostRange, RepairDamage, RepairOptions, RepairedFamily};
/// let dry_run = RepairOptions { dry_run: true, ..Default::default() };
/// let report: KeyRepairReport = Db::repair("damaged", "repaired", &dry_run)?.keys;
/// match report.outcome(0, b"key") {
///     KeyOutcome::NotLost => {}
///     KeyOutcome::Lost => println!("lost, or an older version"),
///     KeyOutcome::Unknown(why) => println!("unknown: {why}"),
/// }
/// # let _: Option<(LostRange, RepairDamage, RepairedFamily)> = None;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use ::repair::{KeyOutcome, LostRange, RepairDamage, RepairReport as KeyRepairReport, RepairedFamily};

/// ```
/// use lavastore::{Access, Db, Env, Options, SeqNo};
/// # let dir = std::env::temp_dir().join(format!("lavastore-access-{}", std::process::id()));
/// let options = Options { access: Access::Buffered, ..Default::default() };
/// let db = Db::open_in(&Env::kernel(), &dir, &options)?;
/// let last: SeqNo = db.snapshot().sequence();
/// # drop(db);
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(inline)]
pub use lavakv::{Access, Env, SeqNo};

#[doc(no_inline)]
pub use lavafs;

/// Several engines in one store, for the torture programs.
#[cfg(feature = "engines")]
#[doc(hidden)]
pub use lavakv::multi_engine;

/// Bookkeeping cost of separated values in a store of terabytes, for the benchmarks.
#[doc(hidden)]
pub use lavakv::scale;

/// Runs the programs of the README and of the guide as doctests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/guide/asynchronous.md")]
    mod asynchronous {}
    #[doc = include_str!("../../../docs/guide/durability.md")]
    mod durability {}
    #[doc = include_str!("../../../docs/guide/transactions.md")]
    mod transactions {}
    #[doc = include_str!("../../../docs/guide/merge.md")]
    mod merge {}
    #[doc = include_str!("../../../docs/guide/compaction-filters.md")]
    mod compaction_filters {}
    #[doc = include_str!("../../../docs/guide/logs.md")]
    mod logs {}
    #[doc = include_str!("../../../docs/guide/closing.md")]
    mod closing {}
    #[doc = include_str!("../../../docs/guide/queues.md")]
    mod queues {}
    #[doc = include_str!("../../../docs/guide/space-and-collection.md")]
    mod space_and_collection {}
    #[doc = include_str!("../../../docs/guide/testing-with-crashes.md")]
    mod testing_with_crashes {}
}
