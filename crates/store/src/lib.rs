//! The common base of all engines: the services that any engine with files in a store directory
//! needs.
//!
//! * [`names`]: names and numbers of store files. One number sequence serves all kinds of files.
//! * [`manifest`]: the durable history of a store: one file with the edits of all engines.
//! * [`format`](mod@format): the format version of a store and the features of each version.
//! * [`commit`]: the write-ahead log, which all engines share.
//! * [`open`]: a store for engines without a top-level crate of their own. [`directory`]: the store
//!   directory. [`secondary_engine`]: a secondary engine on the store of another engine.
//! * [`engines`]: lists the engines of a store and removes one. [`mod@copy`]: copies a store.
//! * [`context`]: shared state: the environment, health and signals. [`run`]: the background
//!   scheduler.
//! * [`mailbox`]: requests from other processes to the process that has the store open.
//! * [`descriptors`]: the store's share of the process's file descriptors.
//! * [`pacing`]: limits the device share of background work.
//! * [`volumes`]: locations and sizes of files. [`space`]: the space limit. [`files`]: creation,
//!   caching and removal of files.
//! * [`fast_tier`]: the fast tier, a second disk for the log.
//! * [`repair`]: steps that are common to all repairs.
//! * [`numbers`]: bounds of file, log group, page and edit numbers. [`field`]: decoding of such
//!   fields.
//! * [`idmap`]: a copy-on-write ordered map for the file lists of manifest states.
//!
//! This crate knows nothing of keys, column families or the meaning of a sequence. It must not
//! depend on `version`, `lsm` or any engine. LavaKV is the first engine. A second engine can share
//! the file numbers, the manifest and the log of the same store; neither engine is compiled into
//! the other.

pub mod commit;
pub mod context;
pub mod copy;
pub mod descriptors;
pub mod directory;
pub mod engines;
pub mod fast_tier;
pub mod field;
pub mod files;
pub mod format;
pub mod idmap;
pub mod mailbox;
pub mod manifest;
pub mod names;
pub mod numbers;
pub mod open;
pub mod pacing;
pub mod read_only;
pub mod repair;
pub mod run;
pub mod secondary_engine;
pub mod space;
pub mod volumes;

pub use idmap::IdMap;
pub use open::Store;
