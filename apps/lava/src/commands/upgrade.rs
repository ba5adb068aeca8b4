//! `upgrade`: raises the format of a store, once all programs that open it know the new format.

use super::place::StoreLocation;
use super::{Halves, directory, log, open_with};
use crate::{Result, output};
use clap::Args;
use lavastore::{LogStore, Options, StoreFormat};
use serde_json::json;
use std::path::PathBuf;

/// Options of `upgrade`.
#[derive(Args)]
pub struct UpgradeArgs {
    /// Number of the store format to raise to: not below the present one, and known to this
    /// release. A format is never lowered [default: the newest one of this release]
    #[arg(long, value_name = "FORMAT")]
    to: Option<u32>,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

/// Raises the format of the store.
pub fn upgrade(db: Option<PathBuf>, args: &UpgradeArgs) -> Result<()> {
    let to = args.to.map_or(Ok(StoreFormat::NEWEST), StoreFormat::from_number)?;
    let is_of_logs = Halves::open(db.clone())?.keys.is_none();
    let before = match is_of_logs {
        true => upgrade_logs(&directory(db)?, to)?,
        false => {
            let store =
                open_with(directory(db)?, Options { create_if_missing: false, ..Options::default() })?;
            let before = store.format();
            store.upgrade(to)?;
            store.close()?;
            before
        }
    };
    let report = json!({ "format_before": before.number(), "format": to.number() });
    output::report(args.json, &report, || match before == to {
        true => format!("the store has format {to} already\n"),
        false => {
            format!("format {before} raised to {to}: releases that know no format {to} refuse the store\n")
        }
    })
}

/// Upgrades a store with only logs.
fn upgrade_logs(dir: &std::path::Path, to: StoreFormat) -> Result<StoreFormat> {
    let place = StoreLocation::to_write(dir)?;
    let store = LogStore::open_in(&place.env, &place.dir, &log::options(false))?;
    let before = store.format();
    store.upgrade(to)?;
    store.close()?;
    Ok(before)
}
