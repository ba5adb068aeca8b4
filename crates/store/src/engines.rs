//! The engines of a store as an operator sees them, and the removal of an engine.
//!
//! An engine that the store was opened without is *absent* ("away" in listings). Its files stay,
//! and the log cannot shrink below its floor. If the store will never be opened with it again, one
//! manifest edit removes the engine. Its records are gone, its files are orphans, and its part of
//! the log is no longer needed. If a crash interrupts the removal of files, the next open removes
//! the rest.
//!
//! The edit records which log groups may still hold batches of the removed engine. Until none of
//! them is listed, the engine cannot be added again (`Busy`): a replay would hand it the old
//! batches as new ones. The record itself holds no group.

use crate::commit::Log;
use crate::context::Context;
use crate::files::StoreFiles;
use crate::manifest::{EngineId, ManifestState, Record};
use crate::names;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Shows which engines have data in a store, to decide how to open or repair it: the engine of the
/// keys, or that of the logs, with its space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineSpace {
    /// Name of the engine: `lavakv` for keys, `LavaLog` for logs.
    pub name: String,
    /// The store was opened with the engine. Such an engine cannot be removed: open the store
    /// without it first.
    pub is_open: bool,
    /// Number of its files, without the log, which all engines share.
    pub files: u64,
    /// Allocated bytes of its files.
    pub bytes: u64,
}

/// Returns the engines of a store in the order of their ids, with their space.
///
/// # Errors
/// Errors of listing the directory.
pub fn list(files: &StoreFiles) -> Result<Vec<EngineSpace>> {
    let Context { env, dir, .. } = &**files.context();
    let state = files.manifest().state();
    let mut all: Vec<(EngineId, EngineSpace)> = state
        .engines
        .iter()
        .map(|engine| {
            let (name, is_open) = (engine.name.to_owned(), engine.is_here);
            (engine.id, EngineSpace { name, is_open, files: 0, bytes: 0 })
        })
        .collect();
    for entry in env.fs.list(dir)? {
        let owner = names::parse(&entry.name).and_then(EngineId::owner);
        if let Some((_, engine)) = all.iter_mut().find(|(id, _)| Some(*id) == owner) {
            engine.files += 1;
            engine.bytes += entry.allocated;
        }
    }
    all.sort_by_key(|(id, _)| id.0);
    Ok(all.into_iter().map(|(_, engine)| engine).collect())
}

/// Removes an engine from the store for good, by its name: its records, its files, and its batches
/// in the log. Log groups of the open lanes (`logs`) are released once no other engine needs them.
/// The engine may be added anew after that. The removal is durable on return. If a crash interrupts
/// the removal of files, the next open removes the rest.
///
/// # Errors
/// `NotFound` if there is no such engine. `InvalidArgument` if the store was opened with it.
/// `Unsupported` for the key-value engine, because no other engine knows its files. Manifest
/// errors, after which nothing is removed, and of the file system.
pub fn remove<'a>(files: &StoreFiles, logs: impl Iterator<Item = &'a Arc<Log>>, name: &str) -> Result<()> {
    let state = files.manifest().state();
    let Some(engine) = state.engines.iter().find(|engine| engine.name == name) else {
        let names: Vec<&str> = state.engines.iter().map(|engine| engine.name).collect();
        let why = format!("there is no engine \"{name}\" in this store: name one of {}", names.join(", "));
        return Err(Error::not_found(why));
    };
    if engine.id == EngineId::NATIVE {
        let why = "the key-value engine cannot be removed from a store: copy the data of the other engines into a new store";
        return Err(Error::new(ErrorKind::Unsupported, why));
    }
    if engine.is_here {
        return Err(Error::invalid(format!(
            "engine \"{name}\" cannot be removed while it is open: open the store without it"
        )));
    }
    let id = engine.id;
    let remove = |tip: &ManifestState| Ok(vec![Record::RemoveEngine { engine: id, below_ltn: tip.next_ltn }]);
    files.manifest().commit_store(remove, |_| {})?;
    logs.for_each(|log| log.floors().hint());
    let Context { env, dir, .. } = &**files.context();
    for entry in env.fs.list(dir)? {
        if names::parse(&entry.name).and_then(EngineId::owner) == Some(id) {
            files.remove(&entry.name)?;
        }
    }
    Ok(())
}
