//! The command line as it is parsed. Help, man pages and completions are made from it.

use crate::{commands, demo, examples, status};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Options that every command has stand apart from its own.
const GLOBAL: &str = "Global options";

/// A local storage engine for write-heavy services.
#[derive(Parser)]
#[command(name = "lava", version, disable_help_subcommand = true, after_long_help = status::table())]
pub struct Cli {
    /// Directory of the store; lavafs:PATH for one on a LavaFS volume (a device or an image), lavafs:PATH:/DIR for one in
    /// another directory of it than /db
    #[arg(long, global = true, value_name = "DIR", env = "LAVA_DB", help_heading = GLOBAL)]
    pub db: Option<PathBuf>,
    /// The second disk of the store, on which its log lies: a directory, or lavafs:PATH as with --db. A store that has none yet gets it when
    /// it is opened for writing, and is named with it from then on; lava speed give-back takes it away again
    #[arg(long, global = true, value_name = "DIR", env = "LAVA_SPEED", help_heading = GLOBAL)]
    pub speed: Option<PathBuf>,
    /// Memory for pages of files on a LavaFS volume: a number of bytes with K, M, G or T. A store has a cache of its own
    #[arg(long, global = true, value_name = "BYTES", value_parser = commands::fs::size, help_heading = GLOBAL)]
    pub page_cache: Option<u64>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Set a key
    Put(commands::keys::PutArgs),
    /// Print the value of a key
    Get(commands::keys::GetArgs),
    /// Delete keys
    Del(commands::keys::DelArgs),
    /// Print entries in key order
    Scan(commands::keys::ScanArgs),
    /// Read records from files: TSV, JSON lines, Debian package indexes; plain, .gz, .lz4 or .zst
    Import(commands::import::ImportArgs),
    /// Write records in key order
    Export(commands::export::ExportArgs),
    /// Show column families, the shape of the tree and counters
    #[command(visible_alias = "stats")]
    Stat(commands::inspect::StatArgs),
    /// List, make and drop column families
    #[command(subcommand)]
    Family(commands::families::FamilyCommand),
    /// Show who owns which bytes on disk
    Space(commands::inspect::ReportArgs),
    /// Collect the garbage of separated values
    Gc(commands::gc::GcArgs),
    /// Compact down to the last level
    Compact(commands::gc::CompactArgs),
    /// Read and check every byte of every table
    Verify(commands::inspect::ReportArgs),
    /// Make a new store of everything that is undamaged, keys and logs; exit status 5 if anything is lost
    Repair(commands::repair::RepairArgs),
    /// Make a consistent copy of the store in a new directory
    Checkpoint(commands::checkpoint::CheckpointArgs),
    /// Show the second disk of the store, or give it back
    #[command(subcommand)]
    Speed(commands::speed::SpeedCommand),
    /// Show which engines share the store, or remove one
    Engines(commands::engines::EnginesArgs),
    /// Raise the format of the store, which earlier releases refuse then
    Upgrade(commands::upgrade::UpgradeArgs),
    /// Measure: load, overwrite, read, readwhilewriting or scan
    Bench(Box<commands::bench::BenchCommand>),
    /// Import real data, overwrite it, kill the writer, verify
    Demo(demo::DemoArgs),
    /// Append to, read and trim logs
    #[command(subcommand)]
    Log(commands::log::LogCommand),
    /// Make, look into and check LavaFS volumes
    #[command(subcommand)]
    Fs(commands::fs::FsCommand),
    /// Print the contents of the store's files
    #[command(visible_alias = "inspect")]
    Dump(commands::inspect::DumpArgs),
    /// Explain a command, or the exit statuses (lava help exit-codes)
    Help(commands::help::HelpArgs),
    /// Print the completions of a shell: lava completions bash > /etc/bash_completion.d/lava
    #[command(hide = true)]
    Completions(commands::help::CompletionsArgs),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(commands::help::ManArgs),
    /// The process that `demo` kills
    #[command(hide = true)]
    DemoWriter(demo::writer::WriterArgs),
}

/// The command line, with examples.
pub fn command() -> clap::Command {
    examples::added_to(Cli::command())
}

/// Reads the command line.
pub fn parse(all: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(all)?;
    Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
}

/// Runs a command.
pub fn run(cli: Cli) -> crate::Result<()> {
    let db = cli.db;
    commands::place::set_speed(db.as_deref(), cli.speed);
    commands::place::set_page_cache(cli.page_cache);
    match cli.command {
        Command::Put(args) => commands::keys::put(db, args),
        Command::Get(args) => commands::keys::get(db, &args),
        Command::Del(args) => commands::keys::del(db, &args),
        Command::Scan(args) => commands::keys::scan(db, &args),
        Command::Import(args) => commands::import::import(db, &args),
        Command::Export(args) => commands::export::export(db, &args),
        Command::Stat(args) => commands::inspect::stat(db, &args),
        Command::Family(command) => commands::families::run(db, command),
        Command::Space(args) => commands::space::space(db, &args),
        Command::Gc(args) => commands::gc::gc(db, &args),
        Command::Compact(args) => commands::gc::compact(db, &args),
        Command::Verify(args) => commands::inspect::verify(db, &args),
        Command::Repair(args) => commands::repair::repair(db, &args),
        Command::Checkpoint(args) => commands::checkpoint::checkpoint(db, &args),
        Command::Speed(command) => commands::speed::run(db, &command),
        Command::Engines(args) => commands::engines::engines(db, &args),
        Command::Upgrade(args) => commands::upgrade::upgrade(db, &args),
        Command::Bench(args) => commands::bench::bench(db, *args),
        Command::Demo(args) => demo::demo(db, &args),
        Command::Log(command) => commands::log::run(db, command),
        Command::Fs(command) => commands::fs::run(command),
        Command::Dump(args) => commands::inspect::dump(db, &args),
        Command::Help(args) => commands::help::help(&args),
        Command::Completions(args) => commands::help::completions(&args),
        Command::Man(args) => commands::help::man(&args),
        Command::DemoWriter(args) => demo::writer::write(db, &args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Every command that says anything can say it to a program.
    #[test]
    fn every_command_takes_json() {
        fn check(command: &clap::Command) {
            let below: Vec<_> = command.get_subcommands().collect();
            below.iter().for_each(|c| check(c));
            let exempt = ["help", "completions", "demo-writer", "mount"].contains(&command.get_name());
            let leaf = below.is_empty() || command.get_positionals().next().is_some();
            let has = command.get_arguments().any(|arg| arg.get_long() == Some("json"));
            assert!(!leaf || exempt || has, "{} has no --json", command.get_name());
        }
        check(&Cli::command());
    }

    #[test]
    fn the_benchmark_of_file_systems_is_a_command_of_its_own() {
        for line in [
            "lava bench fs --db lavafs:x --io-size 4096 --sync fdatasync --threads 2 --file-size 64M --json f",
            "lava --db x bench fs --sync none",
        ] {
            assert!(parse(line).unwrap().db.is_some(), "{line}");
        }
        assert!(matches!(parse("lava get bench").unwrap().command, Command::Get(_)));
    }

    #[test]
    fn the_store_may_be_named_before_and_after_the_command() {
        for line in ["lava --db x get k", "lava get k --db x"] {
            assert_eq!(parse(line).unwrap().db, Some(PathBuf::from("x")));
        }
    }

    #[test]
    fn the_promised_options_of_the_benchmark_are_there() {
        let line = "lava bench overwrite --value-size 1 --num 2 --updates 3 --distribution zipf --threads 4 --rate 5 --sync \
            --db d --json f";
        assert!(parse(line).is_ok());
    }
}
