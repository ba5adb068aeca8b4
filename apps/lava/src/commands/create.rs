//! Creation of stores by commands.
//!
//! A command that writes records creates the store in a missing or empty directory. The parent
//! directory must exist: a mistyped path is an error and leaves nothing. An engine is added to a
//! store of the other engine only on request.

use super::place::StoreLocation;
use super::{has_logs, open_in};
use crate::status::{Status, failure};
use crate::{Result, output};
use clap::Args;
use lavastore::{Db, Env, ErrorKind, Options};
use std::io::IsTerminal;
use std::path::Path;

/// Permissions to create missing things.
#[derive(Args)]
pub struct CreateArgs {
    /// Create missing parent directories of a new store. Without it a missing parent is an error,
    /// because the path may be mistyped. No effect if the store exists
    #[arg(long)]
    parents: bool,
    /// Allow to add keys to a store with only logs, or logs to one with only keys. Without it the
    /// command refuses such a store, because the path may be wrong
    #[arg(long)]
    add_engine: bool,
}

/// File that every store has.
const CURRENT: &str = "CURRENT";

/// Fails if the directory and its parent are both missing.
pub fn check_parent(env: &Env, dir: &Path, hint: &str) -> Result<()> {
    let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    if env.fs.exists(dir)? || env.fs.exists(parent)? || env.fs.list(parent).is_ok() {
        return Ok(());
    }
    let (dir, parent) = (dir.display(), parent.display());
    Err(failure(
        Status::NotFound,
        format!("cannot create {dir}: there is no directory {parent}, and nothing was made; {hint}"),
    ))
}

/// Same as [`check_parent`], for a copy of a store.
pub fn check_parent_of_copy(place: &StoreLocation) -> Result<()> {
    check_parent(&place.env, &place.dir, "create it first")
}

/// Returns whether a store exists in a place. Fails if none may be created there.
pub fn is_there(place: &StoreLocation, create: &CreateArgs) -> Result<bool> {
    // The open reports a place that is no directory.
    let Ok(is_there) = place.env.fs.exists(&place.dir.join(CURRENT)) else { return Ok(true) };
    if !is_there && !create.parents {
        check_parent(&place.env, &place.dir, "--parents creates it")?;
    }
    Ok(is_there)
}

/// Opens the keys of a store, and creates it if it is missing.
pub fn open_or_create(db: &Path, create: &CreateArgs) -> Result<Db> {
    open_or_create_in(db, StoreLocation::to_write(db)?, create)
}

/// Same as [`open_or_create`], in the place named by `db`.
pub fn open_or_create_in(db: &Path, place: StoreLocation, create: &CreateArgs) -> Result<Db> {
    let is_there = is_there(&place, create)?;
    if is_there && !create.add_engine && has_logs(&place)? && !has_keys(&place)? {
        return Err(other_engine(db, "logs", "keys"));
    }
    let store = open_in(place, Options::default())?;
    tell_if_new(db, is_there);
    Ok(store)
}

/// Checks that logs may be appended to in a place; returns whether a store exists.
pub fn may_have_logs(db: &Path, place: &StoreLocation, create: &CreateArgs) -> Result<bool> {
    let is_there = is_there(place, create)?;
    if is_there && !create.add_engine && !has_logs(place)? && has_keys(place)? {
        return Err(other_engine(db, "keys", "logs"));
    }
    Ok(is_there)
}

/// Reports a new store on a terminal, so that a mistyped path shows. Scripts get only errors on
/// standard error.
pub fn tell_if_new(db: &Path, is_there: bool) {
    if !is_there && std::io::stderr().is_terminal() {
        output::tell(&format!("made a new store in {}", db.display()));
    }
}

fn has_keys(place: &StoreLocation) -> Result<bool> {
    match Db::stored_family_options_in(&place.env, &place.dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        families => Ok(!families?.is_empty()),
    }
}

fn other_engine(db: &Path, has: &str, wanted: &str) -> crate::Error {
    let what = format!(
        "the store in {} has {has} and no {wanted}: pass --add-engine to add them; nothing was written",
        db.display()
    );
    failure(Status::Usage, what)
}
