//! `lava`: the command line of LavaStore.
//!
//! Every command works on the store in `--db DIR`, or on a LavaFS volume in `--db lavafs:PATH`;
//! `fs` works on volumes. Results go to standard output, as text or with `--json` for programs. An
//! error is one line on standard error that starts with `lava:`, with an exit status by its kind
//! ([`status`]).

mod cli;
mod commands;
mod demo;
mod examples;
mod formats;
mod input;
mod interrupt;
mod nearest;
mod output;
mod progress;
mod status;

use clap::error::ErrorKind;
use std::ffi::OsString;
use std::process::ExitCode;

/// Any failure: a message for the user. [`status::of`] returns its exit status.
type Error = Box<dyn std::error::Error + Send + Sync>;
/// Result type of the program.
type Result<T, E = Error> = std::result::Result<T, E>;

/// Effect of every usage error: commands check their arguments first.
const NOTHING_DONE: &str = "; nothing was done";

fn main() -> ExitCode {
    let all: Vec<OsString> = std::env::args_os().collect();
    let cli = match cli::parse(&all) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &all),
    };
    match cli::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_broken_pipe(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            let status = status::of(error.as_ref());
            let hint = if error.is::<output::Usage>() {
                NOTHING_DONE.to_owned() + &hint(&all)
            } else {
                String::new()
            };
            let remedy =
                status::remedy(error.as_ref()).map(|remedy| format!("; {remedy}")).unwrap_or_default();
            let message = output::one_line(&error.to_string());
            base::error::made::note(&status, &message);
            output::tell(&format!("{message}{remedy}{hint}"));
            interrupt::die();
            ExitCode::from(status as u8)
        }
    }
}

/// Prints help to standard output, and a usage error on one line.
fn usage(error: &clap::Error, all: &[OsString]) -> ExitCode {
    let status = ExitCode::from(status::Status::Usage as u8);
    match error.kind() {
        // A broken pipe is no error here.
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            status
        }
        _ => {
            let text = error.to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            let message = output::one_line(first) + &nearest::of_parser(error);
            base::error::made::note(&status::Status::Usage, &message);
            output::tell(&format!("{message}{NOTHING_DONE}{}", hint(all)));
            status
        }
    }
}

/// Returns a hint to the help of the intended command.
fn hint(all: &[OsString]) -> String {
    let root = cli::command();
    let mut command = &root;
    let mut path = String::new();
    let mut words = all.iter().skip(1).filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        match command.find_subcommand(word) {
            Some(found) => {
                path = format!("{path} {}", found.get_name());
                command = found;
            }
            // Options with a value before a command.
            None if ["--db", "--fast-tier", "--speed", "--page-cache"].contains(&word) => drop(words.next()),
            None if word.starts_with('-') => {}
            None => break,
        }
    }
    format!(" (see lava help{path} for details)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_leads_to_the_help_of_the_command() {
        for (line, expected) in [
            ("lava", "lava help "),
            ("lava put k", "lava help put "),
            ("lava --db x fs mkfs", "lava help fs mkfs "),
            ("lava --db=x stats", "lava help stat "),
            ("lava get put", "lava help get "),
            ("lava nonsense", "lava help "),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert!(hint(&words).contains(expected), "{line}: {}", hint(&words));
        }
    }
}
