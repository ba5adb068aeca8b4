//! Log storage and state machine for [openraft] 0.9 on LavaStore: any number of Raft groups in one directory.
//!
//! The entries of a group are the records of a LavaLog log; its vote and committed log id are the
//! metadata of that log ([`LogStorage`]). Its state is a column family ([`StateMachine`]). Changes
//! by an [`Application`] and the applied position are written to the family together, as volatile
//! writes: the state has no log but that of Raft. After a crash the state is the last flushed one
//! or that of the last snapshot, and openraft applies the committed entries after it.
//!
//! ```
//! use lavastore::{Family, Result, testing::SimEnv};
//! use openraft_lavalog::{Application, Changes, Options, SnapshotFile, Store};
//!
//! openraft::declare_raft_types!(
//!     pub Types: D = (String, String), R = Option<String>, SnapshotData = SnapshotFile
//! );
//!
//! /// Sets keys, and answers what was there before.
//! struct Registers;
//!
//! impl Application<Types> for Registers {
//!     fn apply(
//!         &mut self,
//!         (key, value): &(String, String),
//!         state: &Family,
//!         changes: &mut Changes,
//!     ) -> Result<Option<String>> {
//!         changes.put(key, value);
//!         Ok(state.get(key)?.map(|before| String::from_utf8_lossy(&before).into_owned()))
//!     }
//! }
//!
//! // A program has `Store::open(path)` here.
//! let store = Store::open_in(&SimEnv::new(1).env(), "/node", &Options::default())?;
//! let (log, state_machine) = store.group::<Types, _>("registers", Registers)?;
//! // openraft::Raft::new(node_id, config, network, log, state_machine).await
//! # Ok::<(), lavastore::Error>(())
//! ```
//!
//! `examples/raft_kv` is a cluster of three processes: network, clients, linearizable reads, and
//! kills under load.

#![warn(missing_debug_implementations)]

mod groups;
mod log;
mod record;
mod snapshot;
mod state;
mod store;

pub use log::{LogReader, LogStorage};
pub use snapshot::SnapshotFile;
pub use state::{Application, Changes, RaftGroupState, SnapshotBuilder, StateMachine};
pub use store::{Options, Store};
