//! Fault campaigns: one command each, seeded, counted.
//!
//! ```text
//! cargo run --profile ci -p torture -- list
//! cargo run --profile ci -p torture -- crash --profile soak --seed 7 --jobs 2
//! cargo run --profile ci -p torture -- all --profile ci --sample 7
//! ```
//!
//! Each row prints how many checks passed and failed, and for each failure the command that repeats it. The exit status
//! is 1 if anything failed. Every run is appended to a ledger (commit, seeds, counts).
//!
//! `torture canary` breaks the engine on purpose and sees that the rows notice. `torture soak --hours N` uses one store on the
//! real disk for a long time; it is not among `all`.
//!
//! Modules: `case` and `row` (what a row is made of), `rows`, `runner`, `totals` and `ledger` (which there are, how they are run
//! and counted), `driver` (random operations on a store, beside a model), `history` (what may be left of them after a crash),
//! and one module for each row.

mod age;
mod block;
mod canary;
mod case;
mod check;
mod crash;
mod damage;
mod damaged_log;
mod driver;
mod engines;
mod files;
mod flip;
mod fork;
mod forks;
mod full;
mod history;
mod io_errors;
mod iterators;
mod kernel;
mod kill;
mod lavafs;
mod ledger;
mod logs;
mod machine;
mod model;
mod place;
mod plan;
mod queue;
mod quiet;
mod reclaim;
mod refused_step;
mod regressions;
mod repair;
mod requests;
mod row;
mod rows;
mod runner;
mod sched;
mod soak;
mod state;
mod tally;
#[cfg(test)]
mod tests;
mod threads;
mod totals;
mod two_disks;
mod upgrade;
mod wide;

use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// How much of a row is run when no count is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// What every change has to pass, in minutes.
    Ci,
    /// Ten times as much, from seeds that nobody has tried.
    Soak,
}

/// Fault campaigns of LavaStore.
#[derive(Debug, Parser)]
struct Cli {
    /// A row, or `list`, `all`, `canary`, `soak`.
    row: String,
    /// How much to run.
    #[arg(long, value_enum, default_value = "ci")]
    profile: Profile,
    /// The first seed. Default: 1, or that of the sample, or in the profile `soak` one that nobody has tried.
    #[arg(long)]
    seed: Option<u64>,
    /// In the profile `ci`: which sample is tried by rows that try a few of very many cases. The same number tries the same.
    #[arg(long, default_value_t = 0)]
    sample: u64,
    /// How much to run, in the unit of the row.
    #[arg(long)]
    count: Option<u64>,
    /// How long to run, whatever that comes to.
    #[arg(long, conflicts_with = "count")]
    minutes: Option<u64>,
    /// The same in hours.
    #[arg(long, conflicts_with_all = ["count", "minutes"])]
    hours: Option<u64>,
    /// Threads that run cases.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// What every store has, beside what is drawn.
    #[arg(long, value_enum)]
    with: Vec<plan::With>,
    /// The ledger.
    #[arg(long, default_value = "target/torture-ledger.jsonl")]
    ledger: PathBuf,
    /// Where the rows on the real disk make their stores. Default: the directory for temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Stop at the first failure.
    #[arg(long)]
    until_failure: bool,
    /// With `canary`: only see whether all patches apply.
    #[arg(long)]
    check: bool,
    /// With `canary`: only the canary of this name, or those of this row or package.
    #[arg(long)]
    only: Option<String>,
    /// With `canary`: the K-th of N parts, as in `3/10`; those of a part need few builds.
    #[arg(long)]
    part: Option<String>,
    /// With `canary`: search each bug from seed 1 on, not from the stored seed.
    #[arg(long)]
    fresh: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    plan::all_have(&cli.with);
    if plan::is_with(plan::With::BufferedAge) {
        logs::joint::all_keep_pages();
    }
    match cli.row.as_str() {
        "list" => {
            for row in rows::ROWS {
                println!("{:<20}{:>9} {:<10} {}", row.name, row.ci, row.unit.name(), row.about);
            }
            ExitCode::SUCCESS
        }
        child @ (kill::CHILD | kill::CHILD_ON_LAVAFS) => {
            let on_lavafs = child == kill::CHILD_ON_LAVAFS;
            let (seed, from) = (cli.seed.unwrap_or(0), cli.count.unwrap_or(0));
            kill::child(cli.dir.unwrap_or_default(), on_lavafs, seed, from)
        }
        child @ (logs::kill::CHILD | logs::kill::CHILD_ON_LAVAFS) => {
            let on_lavafs = child == logs::kill::CHILD_ON_LAVAFS;
            logs::kill::child(
                cli.dir.unwrap_or_default(),
                on_lavafs,
                cli.seed.unwrap_or(0),
                cli.count.unwrap_or(0),
            )
        }
        parent @ (fork::PARENT | fork::PARENT_ON_LAVAFS) => {
            let on_lavafs = parent == fork::PARENT_ON_LAVAFS;
            let (seed, number) = (cli.seed.unwrap_or(0), cli.count.unwrap_or(0));
            fork::parent(cli.dir.unwrap_or_default(), on_lavafs, seed, number)
        }
        "canary" => canary::run(&cli),
        "soak" => ExitCode::from(u8::from(!runner::run(&soak::ROW, &cli))),
        kill::CHECK => {
            kill::check(cli.dir.unwrap_or_default(), cli.seed.unwrap_or(0), cli.count.unwrap_or(0))
        }
        child @ (block::INSIDE | block::WRITER) => {
            let (dir, seed) = (cli.dir.unwrap_or_default(), cli.seed.unwrap_or(0));
            let run = if child == block::WRITER { block::writer } else { block::inside };
            run(&dir, seed, cli.count.unwrap_or(0))
        }
        "all" => {
            let sound =
                rows::ROWS.iter().map(|row| runner::run(row, &cli)).filter(|sound| !sound).count() == 0;
            ExitCode::from(u8::from(!sound))
        }
        name => match rows::ROWS.iter().find(|row| row.name == name) {
            Some(row) => ExitCode::from(u8::from(!runner::run(row, &cli))),
            None => {
                eprintln!("torture: there is no row `{name}`: see `torture list`");
                ExitCode::from(2)
            }
        },
    }
}
