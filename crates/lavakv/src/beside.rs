//! LavaKV and other engines on one store: one manifest, one log, each with its own part of both.
//!
//! Who opens a store this way names the other engines, is handed what they have in the log, and gets the manifest and the
//! log to work with as long as the store is open. LavaKV's jobs do the work of the log for all. Closing the store ends the
//! log for the others too.
//!
//! This is for engines of this project, and for tests of what they have in common; it promises nothing to users yet.

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

/// What the engines of a store share.
pub type Shared = (Arc<Manifest>, Arc<Log>);

/// Opens a store with LavaKV and other engines. `replay` gets every batch of the log that is not LavaKV's. The log has begun
/// unless there was no room for that.
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

/// Opens a store with LavaKV and an engine that keeps records in a lane of its own.
///
/// # Errors
/// As [`Db::open_in`], and those of the guest; `NoSpace` if there is no room to begin both logs: the store is not open then.
pub fn open_with_records(env: Env, dir: &Path, options: Options, guest: &mut dyn Guest) -> Result<Db> {
    let replay = &mut |_: TenantId, _: SeqNo, _: &[u8]| Ok(());
    let guests = Guests { engines: Engines::default(), replay, records: Some(guest) };
    Db::from_engine(open_beside(env, dir, options, guests)?)
}

/// Writes a batch of LavaKV's to a sink, a guest's batch that carries it: see [`store::guest::HostWrite`].
///
/// # Errors
/// As [`Db::write_opt`], and those of the sink; `InvalidArgument` for a volatile write, which no log has; `TooLarge` for a value that
/// gets a file of its own.
pub fn write_carried(
    db: &Db,
    batch: &WriteBatch,
    options: &WriteOptions,
    sink: &mut dyn BatchSink,
) -> Result<()> {
    db.write_carried(batch, options, sink)
}
