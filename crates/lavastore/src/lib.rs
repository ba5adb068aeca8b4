//! LavaStore is a local storage engine for write-heavy services: an embeddable, ordered, durable key-value store.
//!
//! ```
//! # let dir = std::env::temp_dir().join(format!("lavastore-doc-{}", std::process::id()));
//! use lavastore::{Db, ReadOptions, WriteBatch};
//!
//! let db = Db::open(&dir)?;
//! db.put(b"planet/earth", b"blue")?;
//!
//! let mut batch = WriteBatch::new();
//! batch.put(b"planet/mars", b"red");
//! batch.delete(b"planet/pluto");
//! db.write(&batch)?;
//!
//! let planets = db.iter(ReadOptions { prefix: Some(b"planet/".to_vec()), ..Default::default() })?;
//! for entry in planets.entries() {
//!     let (key, value) = entry?;
//!     println!("{} is {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
//! }
//! assert_eq!(db.get(b"planet/mars")?.as_deref(), Some(&b"red"[..]));
//! # drop(db);
//! # std::fs::remove_dir_all(&dir).ok();
//! # Ok::<(), lavastore::Error>(())
//! ```
//!
//! * [`Db`] is the handle: `Clone + Send + Sync`, closed by its last clone.
//! * What an acknowledged write survives is its [`Durability`]: power loss (`Durable`), the death of the process
//!   (`Buffered`, the default), or nothing until it is flushed (`Volatile`).
//! * Everything that can go wrong is an [`Error`] with an [`ErrorKind`] to match on, the file and the offset.
//! * The engine runs on an [`Env`]: the machine, or a simulation of it ([`sim`]) for tests with crashes and faults.
//!
//! # Column families, batches, snapshots
//!
//! A column family is a key space with options of its own. A batch changes any of them together or not at all; a
//! snapshot sees all of them at one moment.
//!
//! ```
//! # use lavastore::{Compression, Db, ErrorKind, FamilyOptions, Options, ReadOptions, WriteBatch, WriteOptions};
//! # let db = Db::open_in(lavastore::sim::SimEnv::new(1).env(), "/store", Options::default())?;
//! let options = FamilyOptions { compression: Compression::Lz4, ..Default::default() };
//! let by_name = db.create_column_family("by name", options)?;
//!
//! let mut batch = WriteBatch::new();
//! batch.put(b"user/7", b"ada");
//! batch.put_cf(&by_name, b"ada", b"7");
//! db.write_opt(&batch, &WriteOptions::durable())?;
//!
//! let before = db.snapshot();
//! db.delete(b"user/7")?;
//! let then = ReadOptions { snapshot: Some(before), ..Default::default() };
//! assert!(db.get_opt(db.default_column_family(), b"user/7", &then)?.is_some());
//! assert!(db.get(b"user/7")?.is_none());
//!
//! db.drop_column_family(&by_name)?;
//! assert_eq!(db.get_cf(&by_name, b"ada").unwrap_err().kind(), ErrorKind::NotFound);
//! # Ok::<(), lavastore::Error>(())
//! ```
//!
//! # Going through keys
//!
//! ```
//! # use lavastore::{Db, Options, ReadOptions};
//! # let db = Db::open_in(lavastore::sim::SimEnv::new(1).env(), "/store", Options::default())?;
//! for day in ["2024-01-30", "2024-01-31", "2024-02-01"] {
//!     db.put(day.as_bytes(), b"")?;
//! }
//! let mut days = db.iter(ReadOptions { upper_bound: Some(b"2024-02".to_vec()), ..Default::default() })?;
//! days.seek_to_last()?;
//! assert_eq!(days.key(), b"2024-01-31");
//! days.prev()?;
//! assert_eq!(days.key(), b"2024-01-30");
//! days.prev()?;
//! assert!(!days.valid());
//! # Ok::<(), lavastore::Error>(())
//! ```
//!
//! # Large values
//!
//! A value may have up to 1 GiB. Above a quarter of a log group (4 MiB with default options) it is written once, to a
//! file of its own; it goes in and out in pieces, in constant memory.
//!
//! ```
//! use std::io::{Read, Seek, SeekFrom, Write};
//! # use lavastore::{Db, Options, ReadOptions, WriteOptions};
//! # let db = Db::open_in(lavastore::sim::SimEnv::new(1).env(), "/store", Options::default())?;
//! let films = db.default_column_family();
//! let mut film = db.put_stream(films, b"film/1", WriteOptions::durable())?;
//! for frame in 0..1000u32 {
//!     film.write_all(&[frame as u8; 1000])?;
//! }
//! film.finish()?;
//!
//! let mut film = db.get_stream(films, b"film/1", &ReadOptions::default())?.expect("was just written");
//! assert_eq!(film.len(), 1_000_000);
//! film.seek(SeekFrom::Start(7000))?;
//! let mut frame = [0; 1000];
//! film.read_exact(&mut frame)?;
//! assert_eq!(frame, [7; 1000]);
//! assert_eq!(db.get_range(films, b"film/1", 8000, 2)?, Some(vec![8, 8]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Testing what a crash leaves
//!
//! The same engine on a simulated machine, which loses power wherever a test wants it to.
//!
//! ```
//! use lavastore::sim::{CrashKind, Policy, SimEnv};
//! # use lavastore::{Db, Options, WriteOptions};
//! let machine = SimEnv::new(42);
//! let db = Db::open_in(machine.env(), "/store", Options::default())?;
//! db.put_opt(db.default_column_family(), b"paid", b"yes", &WriteOptions::durable())?;
//!
//! let rebooted = machine.crash(CrashKind::PowerLossWith(Policy::Dropped), 7);
//! let db = Db::open_in(rebooted.env(), "/store", Options::default())?;
//! assert!(db.get(b"paid")?.is_some());
//! # Ok::<(), lavastore::Error>(())
//! ```

pub use lavakv::{
    Ablation, Access, CacheStats, Checked, CheckedCount, ColumnFamily, Compression, DamagedFile,
    DamagedFiles, Db, DbIterator, Durability, Entries, Env, Error, ErrorKind, Event, EventListener,
    FamilyOptions, FamilySpace, GcPause, GcPlan, GcProgress, GcReport, GcRequest, Holder, HolderKind,
    LevelSpace, LogHolder, LostRange, Options, PlannedGc, PolicyChoice, ReadOptions, RepairDamage,
    RepairOptions, RepairReport, RepairedFamily, Result, SegmentStats, SeqNo, Snapshot, Space, SpaceLimit,
    SpacePolicy, StallCause, Statistics, Value, ValuePlacement, ValueReader, ValueWriter, VerifyReport,
    WriteBatch, WriteOptions,
};

pub use lavafs;
#[cfg(feature = "engines")]
#[doc(hidden)]
pub use lavakv::beside;
pub use lavakv::{dump, io, sim};
