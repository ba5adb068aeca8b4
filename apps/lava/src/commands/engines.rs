//! `engines`: lists the engines that share the store, and removes one.

use super::{Halves, directory, open_without_logs};
use crate::status::with_message;
use crate::{Result, nearest, output};
use bench::report::{counted, human_bytes};
use clap::Args;
use lavastore::{EngineSpace, ErrorKind, LogStore, Options};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Name of the engine that `lava log` opens.
const LOGS: &str = "LavaLog";

/// Options of `engines`.
#[derive(Args)]
pub struct EnginesArgs {
    /// Remove this engine (such as LavaLog, the logs) for good, with its records, its files and its
    /// part of the log. The keys cannot be removed. Needs --yes [default: list the engines]
    #[arg(long, value_name = "NAME")]
    remove: Option<String>,
    /// Confirm the removal, which cannot be undone. Only with --remove
    #[arg(long, requires = "remove")]
    yes: bool,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

/// Lists the engines, or removes one.
pub fn engines(db: Option<PathBuf>, args: &EnginesArgs) -> Result<()> {
    let Some(name) = &args.remove else {
        let halves = Halves::open(db)?;
        let (all, whole) = match &halves.keys {
            Some(store) => (store.engines()?, halves.keys_whole()),
            None => halves.logs(LogStore::engines)?.unwrap_or((Vec::new(), Ok(()))),
        };
        output::report(args.json, &json!({ "engines": as_json(&all) }), || as_text(&all))?;
        return whole;
    };
    if !args.yes {
        return output::usage(format!(
            "removing the engine {name} deletes all of its data: confirm with --yes"
        ));
    }
    let store =
        open_without_logs(directory(db)?, Options { create_if_missing: false, ..Options::default() })?;
    let all = store.engines()?;
    let before = all.iter().find(|engine| engine.name == *name).cloned().unwrap_or_default();
    store.remove_engine(name).map_err(|e| match e.kind() {
        ErrorKind::NotFound => with_message(e, |e| {
            format!("{e}{}", nearest::tip(name, all.iter().map(|engine| &engine.name[..])))
        }),
        _ => e.into(),
    })?;
    store.close()?;
    let report = json!({ "removed": name, "files": before.files, "bytes": before.bytes });
    output::report(args.json, &report, || {
        format!(
            "removed {name}: {}, {}; its part of the log goes as the store is written\n",
            counted(before.files, "file"),
            human_bytes(before.bytes)
        )
    })
}

fn as_json(all: &[EngineSpace]) -> Vec<Value> {
    let one = |e: &EngineSpace| json!({ "name": e.name, "known": e.is_open || e.name == LOGS, "files": e.files, "bytes": e.bytes });
    all.iter().map(one).collect()
}

fn as_text(all: &[EngineSpace]) -> String {
    let mut text = String::new();
    for engine in all {
        let note = match engine.name.as_str() {
            _ if engine.is_open => "",
            LOGS => "  see lava log ls",
            _ => "  not known here",
        };
        let (files, bytes) = (counted(engine.files, "file"), human_bytes(engine.bytes));
        let _ = writeln!(text, "{:<20} {files:>14} {bytes:>12}{note}", engine.name);
    }
    text
}
