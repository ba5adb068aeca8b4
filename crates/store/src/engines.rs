//! The engines of a store, as an operator sees them, and how one that is not wanted any more leaves it.
//!
//! An engine that the store was opened without is *away*: what it has stays as it is, and the log cannot shrink below what
//! it needs. Where nobody will open the store with it again it is removed, by one edit of the manifest: after that its
//! records are gone, its files are nobody's, and its part of the log is needed no more. What a crash keeps from being removed
//! goes at the next open.

use crate::commit::Log;
use crate::context::Context;
use crate::files::Files;
use crate::manifest::{EngineId, Record, State};
use crate::names;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// What an engine has in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineSpace {
    /// Its name.
    pub name: String,
    /// The store was opened with it. What is not open may be removed.
    pub is_open: bool,
    /// Its files, without the log, which all engines share.
    pub files: u64,
    /// What they occupy, bytes.
    pub bytes: u64,
}

/// The engines of a store in the order of their ids, with what each has there.
///
/// # Errors
/// Those of listing the directory.
pub fn list(files: &Files) -> Result<Vec<EngineSpace>> {
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

/// Removes an engine from the store for good, by its name: its records, its files, and what it has in the log, whose groups
/// go as soon as nobody else needs them, of the lanes that are open (`logs`). It may be added anew after that. Durable on return; files that a crash kept
/// from being removed go at the next open.
///
/// # Errors
/// `NotFound` if there is no such engine; `InvalidArgument` if the store was opened with it; `Unsupported` for the key-value
/// engine, whose files nobody else knows. Those of the manifest, after which nothing is removed, and of the file system.
pub fn remove<'a>(files: &Files, logs: impl Iterator<Item = &'a Arc<Log>>, name: &str) -> Result<()> {
    let state = files.manifest().state();
    let Some(engine) = state.engines.iter().find(|engine| engine.name == name) else {
        let names: Vec<&str> = state.engines.iter().map(|engine| engine.name).collect();
        return Err(Error::not_found(format!("no engine \"{name}\" is in this store, only {names:?}")));
    };
    if engine.id == EngineId::NATIVE {
        let why = "the key-value engine cannot be removed: copy what the other engines have elsewhere";
        return Err(Error::new(ErrorKind::Unsupported, why));
    }
    if engine.is_here {
        return Err(Error::invalid(format!(
            "engine \"{name}\" is open: open the store without it to remove it"
        )));
    }
    let id = engine.id;
    let remove = |tip: &State| Ok(vec![Record::RemoveEngine { engine: id, below_ltn: tip.next_ltn }]);
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
