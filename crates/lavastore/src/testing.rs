//! Crash tests of programs: the same engine on a simulated machine.
//!
//! A [`SimEnv`] is a machine in memory whose clock, random numbers and disk are determined by a
//! seed. A test makes it lose power at any point and opens the store on the remaining data. Or it
//! injects errors of disks and file systems into system calls.
//!
//! ```
//! use lavastore::testing::{CrashKind, Policy, SimEnv};
//! use lavastore::{Db, Options, WriteOptions};
//!
//! let machine = SimEnv::new(42);
//! let db = Db::open_in(&machine.env(), "/store", &Options::default())?;
//! db.writing(&WriteOptions::durable()).put("paid", "yes")?;
//!
//! let rebooted = machine.crash(CrashKind::PowerLossWith(Policy::Dropped), 7);
//! let db = Db::open_in(&rebooted.env(), "/store", &Options::default())?;
//! assert!(db.get("paid")?.is_some());
//! # Ok::<(), lavastore::Error>(())
//! ```

pub use lavakv::sim::{Costs, CrashKind, FaultEffect, FaultPlan, OpKind, Policy, Record, SimEnv};

/// ```
/// use lavastore::{Options, testing::Ablation};
/// let ablation = Ablation { hot_cold: false, ..Default::default() };
/// let options = Options::default().expert(|expert| expert.ablation = ablation);
/// ```
#[doc(inline)]
pub use lavakv::Ablation;

use crate::{Db, LogOptions, LogStore, Options};

/// Returns a new store with default options on its own simulated machine, for tests that need no
/// crashes. For crashes and faults make a [`SimEnv`] and use [`Db::open_in`]. Each call makes
/// another store, in memory; it is gone when the last handle is dropped.
///
/// ```
/// let db = lavastore::testing::store();
/// db.put("key", "value")?;
/// assert!(db.get("key")?.is_some());
/// # Ok::<(), lavastore::Error>(())
/// ```
#[doc(alias = "in_memory")]
pub fn store() -> Db {
    let opened = Db::open_in(&SimEnv::new(1).env(), "/store", &Options::default());
    opened.expect("a machine without faults has room for a new store")
}

/// Returns a new store of logs on its own simulated machine, for tests that need no crashes. For
/// crashes and faults make a [`SimEnv`] and use [`LogStore::open_in`]. Its log groups are short (1
/// MiB). Each call makes another store, in memory; it is gone when the last handle is dropped.
///
/// ```
/// let store = lavastore::testing::log_store();
/// store.log("orders")?.append(1, "two apples")?;
/// # Ok::<(), lavastore::Error>(())
/// ```
pub fn log_store() -> LogStore {
    let options = LogOptions { group_bytes: Some(1 << 20), ..Default::default() };
    let opened = LogStore::open_in(&SimEnv::new(1).env(), "/logs", &options);
    opened.expect("a machine without faults has room for a new store")
}

/// Returns a new store of keys and logs on its own simulated machine, for tests that need no
/// crashes. For crashes and faults make a [`SimEnv`] and use [`Db::open_with_logs_in`]. Each call
/// makes another store, in memory; it is gone when the last handle is dropped.
///
/// ```
/// let db = lavastore::testing::store_with_logs();
/// db.logs()?.log("orders")?.append(1, "two apples")?;
/// # Ok::<(), lavastore::Error>(())
/// ```
pub fn store_with_logs() -> Db {
    let options = LogOptions { group_bytes: Some(1 << 20), ..Default::default() };
    let opened = Db::open_with_logs_in(&SimEnv::new(1).env(), "/store", &Options::default(), &options);
    opened.expect("a machine without faults has room for a new store")
}

/// Runs a future of a simulated store to its end, where an ordinary executor would wait forever: a
/// simulation has no threads but the caller's, so this call drives the machine meanwhile. The
/// future may only wait for that store. For a store on a real machine use the executor of the
/// program.
///
/// ```
/// let db = lavastore::testing::store();
/// let requests = db.requests(&Default::default())?;
/// lavastore::testing::block_on(&db, requests.put("key", "value")?)?;
/// # Ok::<(), lavastore::Error>(())
/// ```
pub fn block_on<T>(db: &Db, future: impl Future<Output = T>) -> T {
    db.default_family().handle().kv().block_on(future)
}
