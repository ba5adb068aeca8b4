//! `speed`: the fast tier of a store, which holds its log.

use super::directory;
use super::place::Place;
use crate::{Result, output};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;

/// Commands for the fast tier. An open for writing with `--speed` attaches it.
#[derive(Subcommand)]
pub enum SpeedCommand {
    /// Move the log back into the directory of the closed store and detach the fast tier
    GiveBack(GiveBackArgs),
}

/// Options of `speed give-back`.
#[derive(Args)]
pub struct GiveBackArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs a command.
pub fn run(db: Option<PathBuf>, command: &SpeedCommand) -> Result<()> {
    let SpeedCommand::GiveBack(args) = command;
    let db = directory(db)?;
    let Some((volumes, speed)) = Place::volumes(&db)? else {
        return output::usage("name the fast tier with --speed DIR");
    };
    volumes.give_back()?;
    let (db, speed) = (db.display().to_string(), speed.display().to_string());
    output::report(args.json, &json!({ "db": db, "given_back": speed }), || {
        format!("the log of {db} is in its own directory; {speed} is detached from the store\n")
    })
}
