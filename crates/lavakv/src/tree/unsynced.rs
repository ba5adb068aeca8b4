//! Tables that were written and become durable together.
//!
//! Many syncs at the same moment cost the device about as much as one: the file system commits all of them at once. So the tables
//! of a flush are synced by several threads. In simulation, and where no thread can be had, they are synced one after the other.

use base::sync::{Mutex, OnceLock, lock, rank};
use base::{Error, Result};
use io::{Env, Priority};
use std::sync::Arc;
use table::UnsyncedTable;

/// A thread more for each so many tables.
const TABLES_PER_THREAD: usize = 4;
/// Most threads besides the caller's.
const THREADS_MAX: usize = 16;

/// Tables that wait for their sync, and the first failure.
struct Unsynced {
    tables: Mutex<Vec<UnsyncedTable>, rank::UnsyncedTables>,
    failure: OnceLock<Error>,
}

impl Unsynced {
    fn sync(&self) {
        while self.failure.get().is_none() {
            let table = lock(&self.tables).pop();
            let Some(table) = table else { return };
            if let Err(e) = table.sync() {
                let _ = self.failure.set(e);
            }
        }
    }
}

/// Makes these tables durable.
///
/// # Errors
/// The first of [`UnsyncedTable::sync`]; the other tables are then durable or not.
pub(crate) fn sync_all(env: &Env, tables: Vec<UnsyncedTable>) -> Result<()> {
    let threads = (tables.len() / TABLES_PER_THREAD).min(THREADS_MAX);
    let unsynced = Arc::new(Unsynced { tables: Mutex::new(tables), failure: OnceLock::new() });
    let spawn = |_| {
        let unsynced = unsynced.clone();
        let body = Box::new(move || unsynced.sync());
        env.spawner.as_ref()?.spawn("lavastore-sync", Priority::Background, body).ok()
    };
    let handles: Vec<_> = (0..threads).filter_map(spawn).collect();
    unsynced.sync();
    let ended = handles.into_iter().map(|handle| handle.join()).filter(|ended| !ended).count();
    assert_eq!(ended, 0, "a thread that syncs tables does not panic");
    unsynced.failure.get().map_or(Ok(()), |e| Err(e.clone()))
}
