//! `fast-tier`: the fast tier of a store, which holds its log.

use super::directory;
use super::place::StoreLocation;
use crate::{Result, output};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;

/// Commands for the fast tier. An open for writing with `--fast-tier` attaches it.
#[derive(Subcommand)]
pub enum FastTierCommand {
    /// Move log, tables and values back into the directory of the closed store and detach the fast
    /// tier
    #[command(alias = "give-back")]
    Detach(DetachArgs),
}

/// Options of `fast-tier detach`.
#[derive(Args)]
pub struct DetachArgs {
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

/// Runs a command.
pub fn run(db: Option<PathBuf>, command: &FastTierCommand) -> Result<()> {
    let FastTierCommand::Detach(args) = command;
    let db = directory(db)?;
    let Some((volumes, speed)) = StoreLocation::volumes(&db)? else {
        return output::usage(
            "no fast tier is named: pass --fast-tier DIR, the directory on the second disk",
        );
    };
    volumes.detach_fast_tier()?;
    let (db, speed) = (db.display().to_string(), speed.display().to_string());
    output::report(args.json, &json!({ "db": db, "given_back": speed }), || {
        format!("the log of {db} is in its own directory; {speed} is detached from the store\n")
    })
}
