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
use crate::open::{SecondaryEngines, open_with_secondary};
use crate::{Conditions, Env, Options, Result, WriteBatch, WriteOptions};
use base::SeqNo;
use std::path::Path;
use std::sync::Arc;
use store::commit::Log;
use store::manifest::{Engines, Manifest};
use store::secondary_engine::{BatchSink, SecondaryEngine};
use wal::{OnReplay, TenantId};

/// The manifest and the log shared by the engines of a store.
pub type SharedStore = (Arc<Manifest>, Arc<Log>);

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
) -> Result<(Db, SharedStore)> {
    let engine = open_with_secondary(env, dir, options, SecondaryEngines { engines, replay, records: None })?;
    let shared = (engine.files.manifest.shared().clone(), engine.log.shared().clone());
    Ok((Db::from_engine(engine)?, shared))
}

/// Opens a store with LavaKV and a secondary engine that keeps records in a lane of its own.
///
/// # Errors
/// As [`Db::open_in`], and those of the secondary engine; `NoSpace` if there is no room to begin
/// both logs: the store is not open then.
pub fn open_with_records(
    env: Env,
    dir: &Path,
    options: Options,
    secondary: &mut dyn SecondaryEngine,
) -> Result<Db> {
    let replay = &mut |_: TenantId, _: SeqNo, _: &[u8]| Ok(());
    let secondaries = SecondaryEngines { engines: Engines::default(), replay, records: Some(secondary) };
    Db::from_engine(open_with_secondary(env, dir, options, secondaries)?)
}

/// Writes a LavaKV batch, under the conditions of a transaction, embedded in a secondary engine's
/// batch: see [`store::secondary_engine::PrimaryWrite`].
///
/// # Errors
/// As [`Db::write_opt`], and those of the sink; `InvalidArgument` for a volatile write, which is
/// not logged; `TooLarge` for a value that needs a segment.
pub fn write_embedded_in_secondary(
    db: &Db,
    write: (&WriteBatch, Option<&Conditions>),
    options: &WriteOptions,
    sink: &mut dyn BatchSink,
) -> Result<()> {
    db.write_embedded_in_secondary(write, options, sink)
}
