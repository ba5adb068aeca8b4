//! The report of a recovery.

use super::{Filled, KEY_LEN, Opened, RecoveryArgs};
use crate::host;
use crate::report::{human_bytes, human_count};
use crate::space::Space;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Kinds of files with tables or their values, in any engine.
const TABLES: [&str; 4] = ["ksst", "vsst", "sst", "blob"];

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// Engine and version.
    pub engine: String,
    /// Options of the run.
    pub options: RecoveryArgs,
    /// Number of written keys, all present after the open.
    pub records: u64,
    /// Bytes of keys and values.
    pub user_bytes: u64,
    /// Duration of the fill.
    pub fill_seconds: f64,
    /// Details of the fill.
    #[serde(default)]
    pub fill: Option<Filled>,
    /// Time of the open in milliseconds.
    pub open_ms: f64,
    /// MB of keys and values per second of the open.
    pub mb_per_s: f64,
    /// Processor time of the open in seconds.
    pub cpu_seconds: f64,
    /// Maximum number of threads of the process during the open, including the opening one.
    pub threads_max: u64,
    /// Peak resident memory in bytes.
    pub rss_peak_bytes: u64,
    /// Bytes that the open read from the device.
    pub bytes_read: u64,
    /// Bytes that the open wrote.
    pub bytes_written: u64,
    /// Bytes of logs left by the killed process.
    pub log_bytes: u64,
    /// Bytes of tables left by the killed process.
    pub table_bytes_before: u64,
    /// Bytes of tables after the open, including those of a running flush.
    pub table_bytes: u64,
    /// Description of the machine.
    pub machine: String,
    /// Settings of the engine.
    pub engine_settings: BTreeMap<String, String>,
    /// Counters of the engine.
    pub engine_stats: BTreeMap<String, Value>,
}

fn tables(space: &Space) -> u64 {
    space.kinds.iter().filter(|(kind, _)| TABLES.contains(&kind.as_str())).map(|(_, bytes)| bytes).sum()
}

impl RecoveryReport {
    /// Computes the report of an open from the space before and after it.
    pub(super) fn of(
        args: &RecoveryArgs,
        filled: &Filled,
        engine: String,
        opened: &Opened,
        [before, after]: [&Space; 2],
        checked: u64,
    ) -> RecoveryReport {
        let user_bytes = args.records() * (args.value_size + KEY_LEN as u64);
        let (process, old) = (&opened.after, &opened.before);
        RecoveryReport {
            engine,
            options: args.clone(),
            records: checked,
            user_bytes,
            fill_seconds: filled.seconds,
            fill: Some(filled.clone()),
            open_ms: opened.ns as f64 / 1e6,
            mb_per_s: user_bytes as f64 * 1e3 / opened.ns.max(1) as f64,
            cpu_seconds: (process.cpu_ns - old.cpu_ns) as f64 / 1e9,
            threads_max: opened.threads_max,
            rss_peak_bytes: process.rss_peak_bytes,
            bytes_read: process.read_bytes - old.read_bytes,
            bytes_written: process.write_bytes - old.write_bytes,
            log_bytes: before.kinds.get("log").copied().unwrap_or(0),
            table_bytes_before: tables(before),
            table_bytes: tables(after),
            machine: host::machine(),
            engine_settings: opened.engine.settings().into_iter().collect(),
            engine_stats: opened.engine.stats().into_iter().collect(),
        }
    }

    /// Formats the report as text.
    pub fn text(&self) -> String {
        format!(
            "engine                        {}\n\
             written, then killed          {} keys, {}, in {:.1} s\n\
             filling                       {}\n\
             left                          {} of logs, {} of tables\n\
             opened in                     {:.0} ms, {:.0} MB/s; at most {} threads, {:.2} s of processor\n\
             read, written                 {}, {}\n\
             tables then                   {}\n\
             memory, peak                  {}\n\
             checked                       {} keys, all there\n",
            self.engine,
            human_count(self.records),
            human_bytes(self.user_bytes),
            self.fill_seconds,
            self.fill.as_ref().map_or_else(|| "not told".to_owned(), Filled::text),
            human_bytes(self.log_bytes),
            human_bytes(self.table_bytes_before),
            self.open_ms,
            self.mb_per_s,
            self.threads_max,
            self.cpu_seconds,
            human_bytes(self.bytes_read),
            human_bytes(self.bytes_written),
            human_bytes(self.table_bytes),
            human_bytes(self.rss_peak_bytes),
            human_count(self.records),
        )
    }
}
