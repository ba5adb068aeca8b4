//! Runs fuzz targets on stable Rust.
//!
//! ```text
//! cargo run --profile ci -p fuzz -- list
//! cargo run --profile ci -p fuzz -- all --seconds 2
//! cargo run --profile ci -p fuzz -- directory --seconds 60 --seed 7
//! cargo run --profile ci -p fuzz -- ksst --input fuzz/crashes/ksst/0123456789abcdef
//! ```
//!
//! Prints a line for each target and each failure, and at the end how many targets passed. The exit status is 1 if
//! anything failed; what failed lies in `fuzz/crashes`, and repeats with `--input`.

use base::Result;
use clap::Parser;
use fuzz::memory::Counting;
use fuzz::runner::{self, Budget};
use fuzz::{TARGETS, Target};
use io::Env;
use std::path::PathBuf;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Fuzz targets of LavaStore.
#[derive(Debug, Parser)]
struct Cli {
    /// A target, or `list`, or `all`.
    target: String,
    /// Time for mutations of each target.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// What the mutations depend on.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs this input only, and lets it panic.
    #[arg(long)]
    input: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.target == "list" {
        TARGETS.iter().for_each(|t| println!("{}", t.name));
        return ExitCode::SUCCESS;
    }
    match run(&cli) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(e) => {
            eprintln!("fuzz: {e}");
            ExitCode::from(2)
        }
    }
}

/// Runs what was asked for; returns how many targets failed.
fn run(cli: &Cli) -> Result<usize> {
    let env = Env::kernel();
    let targets = runner::targets_named(&cli.target)?;
    if let Some(path) = &cli.input {
        let input = env.fs.read_all(path, 1 << 30)?;
        targets.iter().for_each(|t| (t.run)(&input));
        return Ok(0);
    }
    runner::keep_panics();
    let mut failed = 0;
    for target in &targets {
        failed += usize::from(!run_target(&env, cli, target)?);
    }
    println!("{} passed, {failed} failed", targets.len() - failed);
    Ok(failed)
}

fn run_target(env: &Env, cli: &Cli, target: &Target) -> Result<bool> {
    let outcome = runner::run(env, target, cli.seed, Budget::Nanoseconds(cli.seconds * 1_000_000_000))?;
    println!("{:<18}{:>10} inputs, {} failures", target.name, outcome.runs, outcome.failures.len());
    for failure in &outcome.failures {
        let path = runner::save(env, target, &failure.input)?;
        println!("  {}: {}", path.display(), failure.why);
    }
    Ok(outcome.failures.is_empty())
}
