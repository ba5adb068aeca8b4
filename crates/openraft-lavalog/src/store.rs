//! The stores of a node's Raft groups: the boundary between Raft and LavaStore.
//!
//! A node's directory contains `store`, a single store with the logs and the states, and
//! `snapshots`.

use crate::groups::Groups;
use crate::log::LogStorage;
use crate::snapshot::SnapshotDir;
use crate::state::{Application, StateMachine};
use lavastore::{Db, Env, LogOptions, LogStore, Result};
use openraft::RaftTypeConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// Options for opening the stores of a node.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Options of the logs.
    pub logs: LogOptions,
    /// Options of the states.
    pub state: lavastore::Options,
}

/// The stores of a node for all of its groups. They stay open while any object created from them
/// lives.
#[derive(Clone, Debug)]
pub struct Store {
    logs: LogStore,
    db: Db,
    snapshots: SnapshotDir,
    groups: Groups,
}

impl Store {
    /// Opens a directory with default options, creating missing parts.
    ///
    /// # Errors
    /// The errors of [`Store::open_in`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Store> {
        Self::open_in(&Env::kernel(), dir, &Options::default())
    }

    /// Opens a directory in an environment: the kernel, a volume of LavaFS, or a simulated machine.
    ///
    /// # Errors
    /// The errors of [`Db::open_with_logs_in`].
    pub fn open_in(env: &Env, dir: impl AsRef<Path>, options: &Options) -> Result<Store> {
        let dir = dir.as_ref();
        env.fs.create_dir_all(dir)?;
        let db = Db::open_with_logs_in(env, dir.join("store"), &options.state, &options.logs)?;
        let logs = db.logs()?;
        let snapshots = SnapshotDir::open(env, &dir.join("snapshots"))?;
        env.fs.sync_dir(dir)?;
        Ok(Store { logs, db, snapshots, groups: Groups::default() })
    }

    /// Opens the storage of a Raft group, creating it if necessary. A group can be opened again
    /// after both parts and any unfinished snapshot are dropped: after `Raft::shutdown`.
    ///
    /// A damaged snapshot is replaced by a new one if the log and the state are complete without
    /// it.
    ///
    /// # Errors
    /// `Locked` if the group is in use; the errors of [`LogStore::log`] and [`Db::family`];
    /// `Corruption` and `Unsupported` for records of the log, and for the snapshot if the group
    /// needs it.
    pub fn group<C, A>(&self, name: &str, application: A) -> Result<(LogStorage<C>, StateMachine<C, A>)>
    where
        C: RaftTypeConfig<SnapshotData = crate::SnapshotFile>,
        C::Entry: Serialize + DeserializeOwned,
        C::R: Default,
        A: Application<C>,
    {
        let in_use = self.groups.enter(name)?;
        let log = LogStorage::open(self.logs.clone(), name, in_use.clone())?;
        let snapshots = self.snapshots.of(log.id(), in_use);
        let state = StateMachine::open(&self.db, snapshots, name, application, log.purged())?;
        Ok((log, state))
    }

    /// Returns the store of logs, for operators and for tests that sync it.
    pub fn logs(&self) -> &LogStore {
        &self.logs
    }

    /// Returns the store of states.
    pub fn db(&self) -> &Db {
        &self.db
    }
}
