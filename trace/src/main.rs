//! Prints the functions of this project that one operation runs, in their order.
//!
//! ```text
//! cargo run -p trace -- put
//! ```
//!
//! The operation runs in a child process, on a store that [`operation`] prepares, in a build without optimization and so
//! without inlining. [`steps`] runs the thread of the operation one machine instruction at a time and notes each
//! entry into a function. [`symbols`] knows the addresses at which functions begin, their names and their files.
//!
//! Functions of the standard library and of other crates are left out, and so is the simulated device. A closure counts as
//! part of the function around it. The sums also count the functions without accessors: those of more than two lines in
//! their body. A call out of `commit.rs` counts if it runs such a function.
//! Background threads are not part of the trace of a put or get; a flush and a collection run on a simulated machine, where
//! the caller does the background work.

#![allow(clippy::disallowed_methods, reason = "a tool beside the engine, which is not simulated")]

mod operation;
mod report;
mod steps;
mod symbols;

use clap::Parser;
use operation::Operation;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Prints the functions that one operation runs.
#[derive(Parser)]
struct Args {
    operation: Operation,
    /// Print each function once, with the number of its calls.
    #[arg(long)]
    summary: bool,
    /// Fail if the operation runs more functions than this, accessors left out.
    #[arg(long)]
    functions_max: Option<usize>,
    /// Run the operation in this process, for the tracer.
    #[arg(long, hide = true)]
    traced: bool,
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.traced {
        true => operation::run(args.operation),
        false => print(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("trace: {e}");
            ExitCode::FAILURE
        }
    }
}

fn print(args: &Args) -> Result<()> {
    let program = build()?;
    let symbols = symbols::Symbols::of(&program)?;
    let entries = steps::entries(&program, args.operation, &symbols)?;
    match args.summary {
        true => report::summary(&entries, &symbols),
        false => report::sequence(&entries),
    }
    let functions = report::totals(&entries, &symbols);
    match args.functions_max {
        Some(most) if functions > most => {
            Err(format!("{functions} functions without accessors, at most {most}").into())
        }
        _ => Ok(()),
    }
}

/// This program, built without optimization.
fn build() -> Result<PathBuf> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the folder of the project is missing")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "trace", "--profile", "trace"]).current_dir(root);
    if !build.status()?.success() {
        return Err("the program without optimization could not be built".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("trace/trace"))
}
