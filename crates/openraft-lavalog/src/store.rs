//! Where the groups of a node are: the seam between Raft and the stores below it.
//!
//! A node's directory has `log` (a store of logs), `state` (a store of keys) and `snapshots`.

use crate::log::LogStorage;
use crate::snapshot::SnapshotDir;
use crate::state::{Application, StateMachine};
use lavastore::{Db, Env, LogOptions, LogStore, Result};
use openraft::RaftTypeConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// How the stores of a node are opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// That of the logs.
    pub logs: LogOptions,
    /// That of the states.
    pub state: lavastore::Options,
}

/// A node's stores, for all of its groups. Open as long as anything made from it lives.
#[derive(Clone, Debug)]
pub struct Store {
    logs: LogStore,
    db: Db,
    snapshots: SnapshotDir,
}

impl Store {
    /// Opens a directory with default options, making what is missing.
    ///
    /// # Errors
    /// Those of [`Store::open_in`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Store> {
        Self::open_in(&Env::kernel(), dir, &Options::default())
    }

    /// Opens a directory in an environment: the kernel's, a volume of LavaFS, or a simulated machine.
    ///
    /// # Errors
    /// Those of [`LogStore::open_in`] and [`Db::open_in`].
    pub fn open_in(env: &Env, dir: impl AsRef<Path>, options: &Options) -> Result<Store> {
        let dir = dir.as_ref();
        env.fs.create_dir_all(dir)?;
        let logs = LogStore::open_in(env, dir.join("log"), &options.logs)?;
        let db = Db::open_in(env, dir.join("state"), &options.state)?;
        let snapshots = SnapshotDir::open(env, &dir.join("snapshots"))?;
        env.fs.sync_dir(dir)?;
        Ok(Store { logs, db, snapshots })
    }

    /// The storage of a Raft group, which is made if it is missing. One at a time may be in use for a group.
    ///
    /// # Errors
    /// Those of [`LogStore::log`] and [`Db::family`]; `Corruption` and `Unsupported` for what the log or the snapshot of the group has.
    pub fn group<C, A>(&self, name: &str, application: A) -> Result<(LogStorage<C>, StateMachine<C, A>)>
    where
        C: RaftTypeConfig<SnapshotData = crate::SnapshotFile>,
        C::Entry: Serialize + DeserializeOwned,
        C::R: Default,
        A: Application<C>,
    {
        let log = LogStorage::open(self.logs.clone(), name)?;
        let state = StateMachine::open(&self.db, self.snapshots.of(log.id()), name, application)?;
        Ok((log, state))
    }

    /// The store of logs: for operators, and for tests that make durable what was written.
    pub fn logs(&self) -> &LogStore {
        &self.logs
    }

    /// The store of states.
    pub fn db(&self) -> &Db {
        &self.db
    }
}
