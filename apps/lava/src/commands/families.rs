//! `family`: lists, creates and drops column families.

use super::create::{CreateArgs, open_or_create};
use super::{FamilyArgs, Halves, directory, family, open_to_write, read_whole};
use crate::status::{Status, failure};
use crate::{Result, output};
use bench::report::{counted, human_bytes};
use clap::{Args, Subcommand};
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The commands.
#[derive(Subcommand)]
pub enum FamilyCommand {
    /// List the column families: tables, bytes, name
    Ls(ListArgs),
    /// Create a column family; creates a missing store
    Create(CreateFamilyArgs),
    /// Drop a column family with all its data, for good
    Drop(DropArgs),
}

/// Runs a command.
pub fn run(db: Option<PathBuf>, command: FamilyCommand) -> Result<()> {
    match command {
        FamilyCommand::Ls(args) => ls(db, &args),
        FamilyCommand::Create(args) => create(db, &args),
        FamilyCommand::Drop(args) => drop_family(db, &args),
    }
}

/// Options of `family ls`.
#[derive(Args)]
pub struct ListArgs {
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

fn ls(db: Option<PathBuf>, args: &ListArgs) -> Result<()> {
    let halves = Halves::open(db)?;
    let Some(store) = &halves.keys else {
        return Err(failure(
            Status::NotFound,
            "the store has only logs and therefore no column families: list its logs with lava log ls",
        ));
    };
    let families = store.space()?.families;
    let bytes = |f: &lavastore::FamilySpace| f.levels.iter().map(|l| l.bytes).sum::<u64>() + f.vsst_bytes;
    let tables = |f: &lavastore::FamilySpace| f.levels.iter().map(|l| l.files).sum::<u64>();
    let one = |f: &lavastore::FamilySpace| json!({ "name": f.name, "tables": tables(f), "vssts": f.vssts, "bytes": bytes(f) });
    let all: Vec<_> = families.iter().map(one).collect();
    output::report(args.json, &json!({ "families": all }), || {
        let mut text = String::new();
        for f in &families {
            let (tables, bytes) = (counted(tables(f), "table"), human_bytes(bytes(f)));
            let _ = writeln!(text, "{tables:>14} {bytes:>12}  {}", output::one_line(&f.name));
        }
        text
    })?;
    read_whole(store)
}

/// Options of `family create`.
#[derive(Args)]
pub struct CreateFamilyArgs {
    /// Name of the new column family, at most 1024 bytes. An existing one is refused
    name: String,
    #[command(flatten)]
    options: FamilyArgs,
    #[command(flatten)]
    create: CreateArgs,
    /// Print a JSON object with the name; without it a successful command prints nothing
    #[arg(long)]
    json: bool,
}

fn create(db: Option<PathBuf>, args: &CreateFamilyArgs) -> Result<()> {
    let store = open_or_create(&directory(db)?, &args.create)?;
    let family = store.create_family(&args.name, &lavastore::FamilyOptions::default())?;
    args.options.apply(&family)?;
    drop(family);
    store.close()?;
    if args.json { output::report(true, &json!({ "created": args.name }), String::new) } else { Ok(()) }
}

/// Options of `family drop`.
#[derive(Args)]
pub struct DropArgs {
    /// Name of the column family, which must exist
    name: String,
    /// Confirm the drop, which cannot be undone. Without it nothing is dropped
    #[arg(long)]
    yes: bool,
    /// Print a JSON object with the name; without it a successful command prints nothing
    #[arg(long)]
    json: bool,
}

fn drop_family(db: Option<PathBuf>, args: &DropArgs) -> Result<()> {
    let store = open_to_write(db)?;
    let family = family(&store, Some(&args.name))?;
    if !args.yes {
        let name = &args.name;
        return output::usage(format!(
            "dropping the column family {name} deletes all of its data: confirm with --yes"
        ));
    }
    store.drop_family(&family)?;
    drop(family);
    store.close()?;
    if args.json { output::report(true, &json!({ "dropped": args.name }), String::new) } else { Ok(()) }
}
