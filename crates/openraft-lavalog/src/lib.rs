//! Log storage and state machine for [openraft] 0.9 on LavaStore: any number of Raft groups in one directory.
//!
//! A group's entries are the records of a log of LavaLog, its vote and what is committed the metadata of that log
//! ([`LogStorage`]). Its state is a column family ([`StateMachine`]); what an [`Application`] changes is written there together with
//! the position up to which the log was applied, as volatile writes: the state has no log but that of Raft. After a crash it is as
//! it was flushed last, or as the last snapshot has it, and openraft applies what is committed behind that.
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
//! `examples/raft_kv` is a cluster of three processes: network, clients, linearizable reads, and kills under load.

#![warn(missing_debug_implementations)]

mod groups;
mod log;
mod record;
mod snapshot;
mod state;
mod store;

pub use log::{LogReader, LogStorage};
pub use snapshot::SnapshotFile;
pub use state::{Application, Changes, SnapshotBuilder, State, StateMachine};
pub use store::{Options, Store};
