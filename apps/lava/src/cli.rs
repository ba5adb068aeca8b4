//! The parser of the command line. Help, man pages and completions are generated from it.

use crate::{commands, demo, examples, status};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Heading of the options that every command has.
const GLOBAL: &str = "Global options";

/// A local storage engine for write-heavy services.
#[derive(Parser)]
#[command(name = "lava", version, disable_help_subcommand = true, after_long_help = status::table())]
pub struct Cli {
    /// Directory of the store. On a LavaFS volume (a device or an image): lavafs:PATH for the store
    /// in /db, lavafs:PATH:/DIR for another directory of the volume. A volume on two devices is
    /// PATH+FAST. The commands below fs name the volume instead
    #[arg(long, global = true, value_name = "DIR", env = "LAVA_DB", help_heading = GLOBAL)]
    pub db: Option<PathBuf>,
    /// Fast tier of the store for its log: a directory, or lavafs:PATH as with --db [default:
    /// none]. A store without one gets it when it is opened for writing, and needs this option from
    /// then on; lava fast-tier detach detaches it
    #[arg(long, alias = "speed", global = true, value_name = "DIR", env = "LAVA_SPEED", help_heading = GLOBAL)]
    pub fast_tier: Option<PathBuf>,
    /// Page cache of LavaFS volumes in bytes: a number, alone or with K, M, G or T (powers of
    /// 1024), at least 64K; 0: none. It serves repeated reads of up to 64 KiB. The store's own
    /// cache is separate. No effect on directories [default: 0]
    #[arg(long, global = true, value_name = "BYTES", value_parser = commands::fs::size, help_heading = GLOBAL)]
    pub page_cache: Option<u64>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Set a key to a value; creates a missing store
    Put(commands::keys::PutArgs),
    /// Print the value of a key; exit status 4 if there is no such key
    Get(commands::keys::GetArgs),
    /// Delete keys, or all keys of a range, in one atomic write. Keys that do not exist are no
    /// error
    Del(commands::keys::DelArgs),
    /// Print entries in key order, one per line: key, tab, value, with escapes
    Scan(commands::keys::ScanArgs),
    /// Import records from files: TSV, JSON lines, Debian package indexes; plain, .gz, .lz4 or .zst
    Import(commands::import::ImportArgs),
    /// Export records of a column family in key order, to standard output or a file
    Export(commands::export::ExportArgs),
    /// Show column families, the shape of the tree and counters
    #[command(visible_alias = "stats")]
    Stat(commands::inspect::StatArgs),
    /// List, create and drop column families
    #[command(subcommand)]
    Family(commands::families::FamilyCommand),
    /// Show the owner of each byte on disk: tables, values, garbage, log and others
    Space(commands::inspect::ReportArgs),
    /// Collect the garbage of separated values: rewrite their files without it
    Gc(commands::gc::GcArgs),
    /// Compact column families down to the last level, which drops deleted and overwritten entries
    Compact(commands::gc::CompactArgs),
    /// Read and check every byte of the keys: tables, value files, log, manifest; exit status 5 if
    /// any is damaged. lava log verify checks logs
    Verify(commands::inspect::ReportArgs),
    /// Salvage the undamaged keys and logs into a new store; exit status 5 if data is lost
    Repair(commands::repair::RepairArgs),
    /// Make a consistent copy of the store in another directory. Another process may have the store
    /// open, but not on a LavaFS volume
    Checkpoint(commands::checkpoint::CheckpointArgs),
    /// Detach the fast tier from the store; --fast-tier attaches it
    #[command(subcommand, alias = "speed")]
    FastTier(commands::speed::FastTierCommand),
    /// List the engines that share the store (keys, logs), or remove one with its data
    Engines(commands::engines::EnginesArgs),
    /// Raise the format of the store for good; earlier releases then refuse it
    Upgrade(commands::upgrade::UpgradeArgs),
    /// Run a benchmark: load, overwrite, read, scan, tail and others, in a new store, by default
    /// below ./bench-data
    Bench(Box<commands::bench::BenchCommand>),
    /// Import real data, overwrite it, kill the writer, verify that no acknowledged write is lost;
    /// without --db in a temporary directory, which is kept
    Demo(demo::DemoArgs),
    /// Append to, read and trim logs
    #[command(subcommand)]
    Log(commands::log::LogCommand),
    /// Create, inspect and check LavaFS volumes
    #[command(subcommand)]
    Fs(commands::fs::FsCommand),
    /// Print the contents of the store's files, even if the store does not open
    #[command(visible_alias = "inspect")]
    Dump(commands::inspect::DumpArgs),
    /// Explain a command, or the exit statuses (lava help exit-codes)
    Help(commands::help::HelpArgs),
    /// Print shell completions: lava completions bash > /etc/bash_completion.d/lava
    #[command(hide = true)]
    Completions(commands::help::CompletionsArgs),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(commands::help::ManArgs),
    /// Writer process that `demo` kills
    #[command(hide = true)]
    DemoWriter(demo::writer::WriterArgs),
}

/// Returns the command line parser with examples.
pub fn command() -> clap::Command {
    examples::added_to(Cli::command())
}

/// Parses the command line.
pub fn parse(all: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(all)?;
    Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
}

/// Runs a command.
pub fn run(cli: Cli) -> crate::Result<()> {
    let db = cli.db;
    commands::place::set_speed(db.as_deref(), cli.fast_tier);
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
        Command::FastTier(command) => commands::speed::run(db, &command),
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

    /// Every command with output can print JSON.
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
    fn fs_bench_is_a_separate_command() {
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
    fn documented_benchmark_options_are_accepted() {
        let line = "lava bench overwrite --value-size 1 --num 2 --updates 3 --distribution zipf --threads 4 --rate 5 --sync \
            --db d --json f";
        assert!(parse(line).is_ok());
    }
}
