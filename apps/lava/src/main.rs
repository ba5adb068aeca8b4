//! `lava`: the command line of LavaStore.
//!
//! Every command works on the store in `--db DIR`, or on a LavaFS volume in `--db lavafs:PATH`; `fs` works on volumes. Results go to standard output, as text for people or with `--json`
//! for programs; an error is one line on standard error that starts with `lava:`. Exit status: 0 done, 1 an error (also:
//! a key that is not there, damage found), 2 wrong usage, 3 done but for what cannot be read (`export --skip-damaged`).

mod commands;
mod demo;
mod formats;
mod input;
mod output;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Any failure: a message for a person.
type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of anything here.
type Result<T, E = Error> = std::result::Result<T, E>;

/// A local storage engine for write-heavy services.
#[derive(Parser)]
#[command(name = "lava", version, disable_help_subcommand = true)]
struct Cli {
    /// Directory of the store, or lavafs:PATH for one on a LavaFS volume (a device or an image)
    #[arg(long, global = true, value_name = "DIR", env = "LAVA_DB")]
    db: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set a key
    Put(commands::keys::PutArgs),
    /// Print the value of a key
    Get(commands::keys::GetArgs),
    /// Delete keys
    Del(commands::keys::DelArgs),
    /// Print entries in key order
    Scan(commands::keys::ScanArgs),
    /// Read records from files: TSV, JSON lines, Debian package indexes; plain, .gz, .lz4 or .zst
    Import(commands::transfer::ImportArgs),
    /// Write records in key order
    Export(commands::transfer::ExportArgs),
    /// Show column families, the shape of the tree and counters
    #[command(visible_alias = "stats")]
    Stat(commands::inspect::StatArgs),
    /// Show who owns which bytes on disk
    Space(commands::inspect::ReportArgs),
    /// Collect the garbage of separated values
    Gc(commands::gc::GcArgs),
    /// Compact down to the last level
    Compact(commands::gc::CompactArgs),
    /// Read and check every byte of every table
    Verify(commands::inspect::ReportArgs),
    /// Make a new store of everything that is undamaged; exit status 1 if anything is lost
    Repair(commands::repair::RepairArgs),
    /// Make a consistent copy of the store in a new directory
    Checkpoint(commands::inspect::CheckpointArgs),
    /// Measure: load, overwrite, read, readwhilewriting or scan
    Bench(Box<commands::bench::BenchCommand>),
    /// Import real data, overwrite it, kill the writer, verify
    Demo(demo::DemoArgs),
    /// Make, look into and check LavaFS volumes
    #[command(subcommand)]
    Fs(commands::fs::FsCommand),
    /// Print the contents of the store's files
    #[command(visible_alias = "inspect")]
    Dump(commands::inspect::DumpArgs),
    /// The process that `demo` kills
    #[command(hide = true)]
    DemoWriter(demo::writer::WriterArgs),
}

/// `bench fs` has options of its own, some under the names of those of the other benchmarks.
#[derive(Parser)]
#[command(name = "lava bench fs", version, disable_help_subcommand = true)]
struct BenchFsCli {
    /// Directory, or lavafs:PATH for a LavaFS volume, or device:PATH for a bare device
    #[arg(long, value_name = "DIR", env = "LAVA_DB")]
    db: Option<PathBuf>,
    #[command(flatten)]
    args: commands::bench::BenchFsCommand,
}

/// The arguments of `bench fs`, if that is the command.
fn bench_fs_args(all: &[std::ffi::OsString]) -> Option<Vec<std::ffi::OsString>> {
    let at = all.windows(2).position(|pair| pair[0] == "bench" && pair[1] == "fs")?;
    // Before it, only the store may be named.
    let named = match &all[1..at] {
        [] => true,
        [option, _] => option == "--db",
        [option] => option.to_str().is_some_and(|o| o.starts_with("--db=")),
        _ => false,
    };
    named.then(|| [&all[..at], &all[at + 2..]].concat())
}

fn run(cli: Cli) -> Result<()> {
    let db = cli.db;
    match cli.command {
        Command::Put(args) => commands::keys::put(db, args),
        Command::Get(args) => commands::keys::get(db, &args),
        Command::Del(args) => commands::keys::del(db, &args),
        Command::Scan(args) => commands::keys::scan(db, &args),
        Command::Import(args) => commands::transfer::import(db, &args),
        Command::Export(args) => commands::transfer::export(db, &args),
        Command::Stat(args) => commands::inspect::stat(db, &args),
        Command::Space(args) => commands::space::space(db, &args),
        Command::Gc(args) => commands::gc::gc(db, &args),
        Command::Compact(args) => commands::gc::compact(db, &args),
        Command::Verify(args) => commands::inspect::verify(db, &args),
        Command::Repair(args) => commands::repair::repair(db, &args),
        Command::Checkpoint(args) => commands::inspect::checkpoint(db, &args),
        Command::Bench(args) => commands::bench::bench(db, &args),
        Command::Demo(args) => demo::demo(db, &args),
        Command::Fs(command) => commands::fs::run(command),
        Command::Dump(args) => commands::inspect::dump(db, &args),
        Command::DemoWriter(args) => demo::writer::write(db, &args),
    }
}

fn main() -> ExitCode {
    let all: Vec<_> = std::env::args_os().collect();
    let done = match bench_fs_args(&all) {
        Some(args) => {
            BenchFsCli::try_parse_from(args).map(|cli| commands::bench::bench_fs(cli.db, &cli.args))
        }
        None => Cli::try_parse_from(all).map(run),
    };
    let done = match done {
        Ok(done) => done,
        Err(error) => return usage(&error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_broken_pipe(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            let status = if error.is::<output::Usage>() {
                2
            } else if error.is::<output::NotWhole>() {
                3
            } else {
                1
            };
            eprintln!("lava: {}", output::one_line(&error.to_string()));
            ExitCode::from(status)
        }
    }
}

/// Help goes to standard output; a mistake is one line like every other error.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A reader that has seen enough is no error.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprint!("{error}");
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    eprintln!("lava: {} (lava --help tells more)", output::one_line(first));
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_benchmark_of_file_systems_is_found() {
        BenchFsCli::command().debug_assert();
        for line in [
            "lava bench fs --db lavafs:x --io-size 4096 --sync fdatasync --threads 2 --file-size 64M --json f",
            "lava --db x bench fs --sync none",
        ] {
            let all: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
            let cli = BenchFsCli::try_parse_from(bench_fs_args(&all).unwrap()).unwrap();
            assert!(cli.db.is_some());
        }
        let other: Vec<_> = "lava get bench fs".split(' ').map(std::ffi::OsString::from).collect();
        assert!(bench_fs_args(&other).is_none());
    }

    #[test]
    fn the_store_may_be_named_before_and_after_the_command() {
        for line in ["lava --db x get k", "lava get k --db x"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.db, Some(PathBuf::from("x")));
        }
    }

    #[test]
    fn the_promised_options_of_the_benchmark_are_there() {
        let line = "lava bench overwrite --value-size 1 --num 2 --updates 3 --distribution zipf --threads 4 --rate 5 --sync \
            --db d --json f";
        assert!(Cli::try_parse_from(line.split_whitespace()).is_ok());
    }
}
