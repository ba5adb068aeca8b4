//! Which commands may make a store, and where.
//!
//! A command that writes records makes the store in a directory that is missing or empty. The directory above it must be there:
//! a mistyped path is an error and leaves nothing. An engine is added to a store of the other one on request only.

use super::place::Place;
use super::{has_logs, open_in};
use crate::status::{Status, failure};
use crate::{Result, output};
use clap::Args;
use lavastore::{Db, Env, ErrorKind, Options};
use std::io::IsTerminal;
use std::path::Path;

/// Permissions to make missing things.
#[derive(Args)]
pub struct CreateArgs {
    /// Make the directories above a new store if they are missing
    #[arg(long)]
    parents: bool,
    /// Let a store of logs have keys too, or one of keys logs
    #[arg(long)]
    add_engine: bool,
}

/// The file that every store has.
const CURRENT: &str = "CURRENT";

/// Fails if a directory that is to be made is missing together with the one above it.
pub fn check_parent(env: &Env, dir: &Path, hint: &str) -> Result<()> {
    let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    if env.fs.exists(dir)? || env.fs.exists(parent)? || env.fs.list(parent).is_ok() {
        return Ok(());
    }
    let (dir, parent) = (dir.display(), parent.display());
    Err(failure(Status::NotFound, format!("cannot make {dir}: there is no directory {parent}; {hint}")))
}

/// The same for a copy of a store.
pub fn check_parent_of_copy(place: &Place) -> Result<()> {
    check_parent(&place.env, &place.dir, "make it first")
}

/// True if there is a store in a place. An error if none may be made there.
pub fn is_there(place: &Place, create: &CreateArgs) -> Result<bool> {
    // The open reports a place that is no directory.
    let Ok(is_there) = place.env.fs.exists(&place.dir.join(CURRENT)) else { return Ok(true) };
    if !is_there && !create.parents {
        check_parent(&place.env, &place.dir, "--parents makes it")?;
    }
    Ok(is_there)
}

/// Opens the keys of a store, which is made if it is missing.
pub fn open_or_create(db: &Path, create: &CreateArgs) -> Result<Db> {
    open_or_create_in(db, Place::to_write(db)?, create)
}

/// The same in the place that `db` names.
pub fn open_or_create_in(db: &Path, place: Place, create: &CreateArgs) -> Result<Db> {
    let is_there = is_there(&place, create)?;
    if is_there && !create.add_engine && has_logs(&place)? && !has_keys(&place)? {
        return Err(other_engine(db, "logs", "keys"));
    }
    let store = open_in(place, Options::default())?;
    tell_if_new(db, is_there);
    Ok(store)
}

/// Checks that logs may be appended to in a place; true if there is a store.
pub fn may_have_logs(db: &Path, place: &Place, create: &CreateArgs) -> Result<bool> {
    let is_there = is_there(place, create)?;
    if is_there && !create.add_engine && !has_logs(place)? && has_keys(place)? {
        return Err(other_engine(db, "keys", "logs"));
    }
    Ok(is_there)
}

/// Tells a person that a store was made, which shows a mistyped path. Scripts get errors on standard error, and no more.
pub fn tell_if_new(db: &Path, is_there: bool) {
    if !is_there && std::io::stderr().is_terminal() {
        output::tell(&format!("made a new store in {}", db.display()));
    }
}

fn has_keys(place: &Place) -> Result<bool> {
    match Db::stored_family_options_in(&place.env, &place.dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        families => Ok(!families?.is_empty()),
    }
}

fn other_engine(db: &Path, has: &str, wanted: &str) -> crate::Error {
    let what =
        format!("the store in {} has {has} and no {wanted}: --add-engine lets it have both", db.display());
    failure(Status::Usage, what)
}
