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

pub use lavakv::{
    Access, CacheStats, ColumnFamily, Compression, Db, DbIterator, Durability, Entries, Env, Error,
    ErrorKind, Event, EventListener, FamilyOptions, Options, ReadOptions, Result, SegmentStats, SeqNo,
    Snapshot, Space, StallCause, Statistics, Value, VerifyReport, WriteBatch, WriteOptions,
};

pub use lavakv::{dump, io, sim};
