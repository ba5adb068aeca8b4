//! Fault campaigns: one command each, seeded, counted.
//!
//! ```text
//! cargo run --profile ci -p torture -- list
//! cargo run --profile ci -p torture -- crash --profile soak --seed 7 --jobs 2
//! cargo run --profile ci -p torture -- all --profile ci --sample 7
//! ```
//!
//! Each row prints how many checks passed and failed, and for each failure the command that repeats
//! it. The exit status is 1 if any check failed. Every run is appended to a ledger (commit, seeds,
//! counts).
//!
//! `torture canary` seeds bugs in the engine and checks that the rows detect them. `torture soak
//! --hours N` uses one store on the real disk for a long time; `all` does not include it.
//!
//! Modules: `case` and `row` are the interfaces of rows. `rows`, `runner`, `totals` and `ledger`
//! list, run and count them. `driver` makes random operations on a store with a model, and
//! `history` has the possible states after a crash. Each row has a module.

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
mod families;
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
mod transactions;
mod two_disks;
mod upgrade;
mod wide;

use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// Amount of work if no count is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// Required for every change; takes minutes.
    Ci,
    /// Ten times as much, from unused seeds.
    Soak,
}

/// Fault campaigns of LavaStore.
#[derive(Debug, Parser)]
struct Cli {
    /// A row, or `list`, `all`, `canary`, `soak`.
    row: String,
    /// Amount of work if neither a count nor a time is given.
    #[arg(long, value_enum, default_value = "ci")]
    profile: Profile,
    /// First seed [default: 1, or that of the sample; in the profile `soak` an unused one].
    #[arg(long)]
    seed: Option<u64>,
    /// In the profile `ci`, number of the sample of rows that try a few of very many cases. Equal
    /// numbers try equal cases.
    #[arg(long, default_value_t = 0)]
    sample: u64,
    /// Amount of work, in the unit of the row.
    #[arg(long)]
    count: Option<u64>,
    /// Duration in minutes instead of a count.
    #[arg(long, conflicts_with = "count")]
    minutes: Option<u64>,
    /// Duration in hours instead of a count.
    #[arg(long, conflicts_with_all = ["count", "minutes"])]
    hours: Option<u64>,
    /// Number of threads that run cases.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Option that every store gets in addition to the drawn ones.
    #[arg(long, value_enum)]
    with: Vec<plan::With>,
    /// File of the ledger.
    #[arg(long, default_value = "target/torture-ledger.jsonl")]
    ledger: PathBuf,
    /// Directory for stores of rows on the real disk [default: the directory for temporary files].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Stop at the first failure.
    #[arg(long)]
    until_failure: bool,
    /// With `canary`: only check that all patches apply.
    #[arg(long)]
    check: bool,
    /// With `canary`: only the canary of this name, or those of this row or package.
    #[arg(long)]
    only: Option<String>,
    /// With `canary`: the K-th of N parts, as in `3/10`; the canaries of a part share builds.
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
