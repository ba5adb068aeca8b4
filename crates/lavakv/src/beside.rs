//! LavaKV and other engines in one store: they share a manifest and a log, each with its own part
//! of both.
//!
//! The caller names the other engines, receives their records in the log, and uses the manifest and
//! the log while the store is open. LavaKV's jobs run the log's background work for all engines.
//! Closing the store closes the log for the other engines too.
//!
//! This is for engines of this project, and for tests of their shared parts; it is not a stable
//! interface.

use crate::db::Db;
use crate::open::{Guests, open_beside};
use crate::{Env, Options, Result, WriteBatch, WriteOptions};
use base::SeqNo;
use std::path::Path;
use std::sync::Arc;
use store::commit::Log;
use store::guest::{BatchSink, Guest};
use store::manifest::{Engines, Manifest};
use wal::{OnReplay, TenantId};

/// The manifest and the log shared by the engines of a store.
pub type Shared = (Arc<Manifest>, Arc<Log>);

/// Opens a store with LavaKV and other engines. `replay` receives every batch of the log that is
/// not LavaKV's. The log has begun, unless there was no room for it.
///
/// # Errors
/// As [`Db::open_in`].
pub fn open(
    env: Env,
    dir: &Path,
    options: Options,
    engines: Engines,
    replay: &mut OnReplay<'_>,
) -> Result<(Db, Shared)> {
    let engine = open_beside(env, dir, options, Guests { engines, replay, records: None })?;
    let shared = (engine.files.manifest.shared().clone(), engine.log.shared().clone());
    Ok((Db::from_engine(engine)?, shared))
}

/// Opens a store with LavaKV and a secondary engine that keeps records in a lane of its own.
///
/// # Errors
/// As [`Db::open_in`], and those of the secondary engine; `NoSpace` if there is no room to begin
/// both logs: the store is not open then.
pub fn open_with_records(env: Env, dir: &Path, options: Options, guest: &mut dyn Guest) -> Result<Db> {
    let replay = &mut |_: TenantId, _: SeqNo, _: &[u8]| Ok(());
    let guests = Guests { engines: Engines::default(), replay, records: Some(guest) };
    Db::from_engine(open_beside(env, dir, options, guests)?)
}

/// Writes a LavaKV batch embedded in a secondary engine's batch: see [`store::guest::HostWrite`].
///
/// # Errors
/// As [`Db::write_opt`], and those of the sink; `InvalidArgument` for a volatile write, which is
/// not logged; `TooLarge` for a value that needs a segment.
pub fn write_carried(
    db: &Db,
    batch: &WriteBatch,
    options: &WriteOptions,
    sink: &mut dyn BatchSink,
) -> Result<()> {
    db.write_carried(batch, options, sink)
}
