//! Where the groups of a node are: the seam between Raft and the stores below it.
//!
//! A node's directory has `store` (the logs and the states, one store) and `snapshots`.

use crate::groups::Groups;
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
    groups: Groups,
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
    /// Those of [`Db::open_with_logs_in`].
    pub fn open_in(env: &Env, dir: impl AsRef<Path>, options: &Options) -> Result<Store> {
        let dir = dir.as_ref();
        env.fs.create_dir_all(dir)?;
        let db = Db::open_with_logs_in(env, dir.join("store"), &options.state, &options.logs)?;
        let logs = db.logs()?;
        let snapshots = SnapshotDir::open(env, &dir.join("snapshots"))?;
        env.fs.sync_dir(dir)?;
        Ok(Store { logs, db, snapshots, groups: Groups::default() })
    }

    /// The storage of a Raft group, which is made if it is missing. A group can be had again when both are gone, and the snapshot that
    /// is perhaps in the making: after `Raft::shutdown`.
    ///
    /// A damaged snapshot is replaced by a new one if log and state are whole without it.
    ///
    /// # Errors
    /// `Locked` if the group is in use; those of [`LogStore::log`] and [`Db::family`]; `Corruption` and `Unsupported` for what the log has,
    /// and for the snapshot if the group needs it.
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

    /// The store of logs: for operators, and for tests that make durable what was written.
    pub fn logs(&self) -> &LogStore {
        &self.logs
    }

    /// The store of states.
    pub fn db(&self) -> &Db {
        &self.db
    }
}
