//! `checkpoint`: a copy of the store at one moment.
//!
//! A checkpoint shares files with the store, so it is on the same file system: for a store in a directory it is a directory, for
//! one on a LavaFS volume another directory of that volume, `lavafs:PATH:/DIR`, which `--db` takes as well.

use super::create::check_parent_of_copy;
use super::place::{OnVolume, Place, on_volume};
use super::{directory, open_in};
use crate::{Result, output};
use bench::host::now_ns;
use clap::Args;
use lavastore::Options;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Options of `checkpoint`.
#[derive(Args)]
pub struct CheckpointArgs {
    /// The directory of the copy, which must not exist; for a store on a LavaFS volume lavafs:PATH:/DIR on the same volume
    pub target: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Makes a copy. It opens the store for writing, because tables are made of what is in memory first.
pub fn checkpoint(db: Option<PathBuf>, args: &CheckpointArgs) -> Result<()> {
    let start_ns = now_ns();
    let db = directory(db)?;
    let target = target_beside(&db, &args.target)?;
    let place = Place::to_write(&db)?;
    check_parent_of_copy(&Place { env: place.env.clone(), dir: target.clone() })?;
    let store = open_in(place, Options { create_if_missing: false, ..Options::default() })?;
    store.checkpoint(&target)?;
    store.close()?;
    made(args, start_ns)
}

/// Says that it was made, since it was begun at a time.
pub fn made(args: &CheckpointArgs, start_ns: u64) -> Result<()> {
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    let target = args.target.display().to_string();
    output::report(args.json, &json!({ "target": target, "seconds": seconds }), || {
        format!("checkpoint in {target}, made in {seconds:.2} s\n")
    })
}

/// The directory on the file system of the store.
pub fn target_beside(db: &Path, target: &Path) -> Result<PathBuf> {
    match (on_volume(db), on_volume(target)) {
        (None, None) => Ok(target.to_owned()),
        (Some(store), Some(OnVolume { path, dir: Some(dir) })) if is_same(store.path, path) => Ok(dir),
        (Some(store), _) => {
            let path = store.path.display();
            output::usage(format!(
                "a store on a volume has its checkpoints there, too: name this one lavafs:{path}:/NAME, under which --db finds it"
            ))
        }
        (None, Some(_)) => output::usage(
            "a checkpoint shares files with its store, so it is a directory on the same file system; lava repair --into \
             lavafs:PATH copies a store to a volume",
        ),
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
