//! Other engines under LavaStore's benchmark: one run, or alternating pairs.
//!
//! Every run of a comparison is a process of its own, so that CPU, memory and I/O counters belong to that run alone. The
//! engines get the same settings where they mean the same; each prints what it made of them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "other engines run on the machine itself, never in simulation"
)]

mod compare;
mod counters;
mod figures;
mod fjall3;
mod graph;
mod logs;
mod multi_get;
mod pages;
mod pairs;
mod queue;
mod recovery;
mod rocks;
mod rocks_transactions;
mod tail;
mod transactions;

use bench::{BenchArgs, Opener, Report, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use rocks::Shape;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
pub enum EngineName {
    /// LavaStore.
    Lavastore,
    /// RocksDB with values inline.
    Rocksdb,
    /// RocksDB-IO of the vLSM paper: large tables, and no debt of compaction.
    RocksdbIo,
    /// RocksDB with small tables.
    RocksdbSmall,
    /// RocksDB with values of 512 B or more in blob files.
    Blobdb,
    /// fjall with values of 512 B or more in blob files.
    Fjall,
}

impl EngineName {
    fn opener(self) -> Box<dyn Opener> {
        let rocks = |blobs, shape| -> Box<dyn Opener> {
            Box::new(rocks::Rocks { blobs, shape, flushes_replayed: true })
        };
        match self {
            EngineName::Lavastore => Box::new(bench::lava::Lava),
            EngineName::Rocksdb => rocks(false, Shape::Tuned),
            EngineName::RocksdbIo => rocks(false, Shape::Paper),
            EngineName::RocksdbSmall => rocks(false, Shape::SmallTables),
            EngineName::Blobdb => rocks(true, Shape::Tuned),
            EngineName::Fjall => Box::new(fjall3::Fjall),
        }
    }

    /// As on the command line.
    pub fn name(self) -> String {
        bench::args::name(self)
    }
}

#[derive(Parser)]
#[command(about = "Benchmarks of other engines beside LavaStore", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One run of one engine
    Run(RunArgs),
    /// Alternating runs of several engines
    Compare(compare::CompareArgs),
    /// Alternating runs of several engines as stores of logs
    Log(logs::LogCompareArgs),
    /// Alternating runs of several engines under a page server
    Pages(pages::PageCompareArgs),
    /// Alternating runs of several engines at a part of the rate that RocksDB sustains
    Tail(tail::TailCompareArgs),
    /// Alternating runs of several engines that read many keys in one call
    MultiGet(multi_get::MultiGetCompareArgs),
    /// Alternating runs of several engines with a queue on keys
    Queue(queue::QueueCompareArgs),
    /// Alternating runs of transactions
    Transactions(transactions::TransactionsCompareArgs),
    /// Alternating runs of counters by merge operands
    Counters(counters::CountersCompareArgs),
    /// Alternating runs of a social graph
    Graph(graph::GraphCompareArgs),
    /// Alternating runs of several engines that open what a killed process left in a long log
    Recovery(recovery::RecoveryCompareArgs),
    /// The comparisons of the table in the README, recorded in one file
    Figures(figures::FiguresArgs),
    /// One run of a comparison
    #[command(hide = true)]
    Child { engine: EngineName, dir: PathBuf, out: PathBuf, args: String },
    /// One run of a comparison of logs
    #[command(hide = true)]
    LogChild { engine: logs::LogEngineName, dir: PathBuf, out: PathBuf, args: String },
    /// One run of a comparison of page servers
    #[command(hide = true)]
    PagesChild { engine: pages::PageEngineName, dir: PathBuf, out: PathBuf, args: String },
    /// One run of a comparison of latencies under load
    #[command(hide = true)]
    TailChild { engine: EngineName, dir: PathBuf, out: PathBuf, args: String },
    /// One run of a comparison of calls with many keys
    #[command(hide = true)]
    MultiGetChild { engine: EngineName, dir: PathBuf, out: PathBuf, args: String },
    /// One run of a comparison of queues
    #[command(hide = true)]
    QueueChild { engine: EngineName, dir: PathBuf, out: PathBuf, args: String },
    /// One run of a comparison of transactions
    #[command(hide = true)]
    TransactionsChild { engine: EngineName, dir: PathBuf, out: PathBuf, args: String },
    /// One run of a comparison of counters
    #[command(hide = true)]
    CountersChild { engine: EngineName, dir: PathBuf, out: PathBuf, args: String },
    /// One run of a comparison of graphs
    #[command(hide = true)]
    GraphChild { engine: EngineName, dir: PathBuf, out: PathBuf, args: String },
    /// One run of a comparison of recoveries
    #[command(hide = true)]
    RecoveryChild { engine: recovery::RecoveryEngineName, dir: PathBuf, out: PathBuf, args: String },
    /// The process of such a run that is killed
    #[command(hide = true)]
    RecoveryFill { engine: recovery::RecoveryEngineName, dir: PathBuf, args: String },
}

#[derive(Args)]
struct RunArgs {
    /// Which engine
    #[arg(long, value_enum)]
    engine: EngineName,
    /// Directory of the store, kept afterwards [default: a fresh one in ./bench-data, removed afterwards]
    #[arg(long)]
    db: Option<PathBuf>,
    /// Write the report to this file, too
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Log(args) => logs::compare(&args),
        Command::Pages(args) => pages::compare(&args),
        Command::Tail(args) => tail::compare(&args),
        Command::MultiGet(args) => multi_get::compare(&args),
        Command::Queue(args) => queue::compare(&args),
        Command::Transactions(args) => transactions::compare(&args),
        Command::Counters(args) => counters::compare(&args),
        Command::Graph(args) => graph::compare(&args),
        Command::Recovery(args) => recovery::compare(&args),
        Command::Figures(args) => figures::record(&args),
        Command::Child { engine, dir, out, args } => child(engine, &dir, &out, &args),
        Command::LogChild { engine, dir, out, args } => logs::child(engine, &dir, &out, &args),
        Command::PagesChild { engine, dir, out, args } => pages::child(engine, &dir, &out, &args),
        Command::TailChild { engine, dir, out, args } => tail::child(engine, &dir, &out, &args),
        Command::MultiGetChild { engine, dir, out, args } => multi_get::child(engine, &dir, &out, &args),
        Command::QueueChild { engine, dir, out, args } => queue::child(engine, &dir, &out, &args),
        Command::TransactionsChild { engine, dir, out, args } => {
            transactions::child(engine, &dir, &out, &args)
        }
        Command::CountersChild { engine, dir, out, args } => counters::child(engine, &dir, &out, &args),
        Command::GraphChild { engine, dir, out, args } => graph::child(engine, &dir, &out, &args),
        Command::RecoveryChild { engine, dir, out, args } => recovery::child(engine, &dir, &out, &args),
        Command::RecoveryFill { engine, dir, args } => recovery::fill(engine, &dir, &args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &RunArgs) -> Result<()> {
    let dir = match &args.db {
        Some(dir) => bench::host::WorkDir::named(dir, args.bench.reuse)?,
        None => bench::host::WorkDir::fresh(Path::new("bench-data"))?,
    };
    let report = bench::run(&args.bench, args.engine.opener().as_ref(), dir.path())?;
    print!("{}", report.table());
    write_report(&report, args.json.as_deref())
}

fn child(engine: EngineName, dir: &Path, out: &Path, args: &str) -> Result<()> {
    let args: BenchArgs = serde_json::from_str(args)?;
    let report = bench::run(&args, engine.opener().as_ref(), dir)?;
    write_report(&report, Some(out))
}

fn write_report(report: &Report, file: Option<&Path>) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let text = serde_json::to_string_pretty(report)?;
    std::fs::write(file, text + "\n").map_err(|e| format!("cannot write {}: {e}", file.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_comparison_accepts_a_number_of_pairs() {
        for line in [
            "peers compare overwrite --pairs 2",
            "peers tail tail --pairs 2 --load 20,80",
            "peers log --pairs 2",
            "peers pages --pairs 2",
            "peers multi-get multi-get --pairs 2",
            "peers transactions --pairs 2 --threads 8",
            "peers recovery --pairs 2 --log-size 4000000000",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }
}
