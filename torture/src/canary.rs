//! `torture canary`: seeded bugs, each of which a named row or test must catch.
//!
//! A campaign that never fails shows little until it has been seen to fail. Each canary is one realistic slip of one line,
//! compiled into the campaigns' build of the engine and switched on by name in a process of its own ([`base::canary`]).
//! That process runs the row that [`table::canaries`] names for it, first from the seed that caught the bug when it was
//! entered, then, if that seed catches nothing any more, from the beginning at the counts of the profile `soak`; it stops at
//! its first finding. A bug that no row can see is caught by a unit test, which is built first, so that what fails is the
//! test and not the compiler.
//!
//! A canary passes when it is caught. One that is not is a hole in the campaigns, not in the engine.

use crate::Cli;
use base::canary::VARIABLE;
use lavastore::Env;
use seeded::{Canary, Catcher};
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use table::canaries;

mod seeded;
pub(crate) mod table;
#[cfg(test)]
mod tests;

/// The longest that a row may look for a bug, seconds.
const ROW_SECONDS_MAX: u64 = 400;
/// The longest that the tests of a package may take to build on a machine that does other things too, seconds.
const BUILD_SECONDS_MAX: u64 = 1_800;
/// The longest that the stored seed or a unit test may take, seconds.
const CASE_SECONDS_MAX: u64 = 120;
/// With these in the selection Cargo chooses the features of a build of the whole workspace: the engine is built once for all of them, and not at
/// all after `cargo test --workspace`.
const AS_A_WHOLE: [&str; 7] = [
    "torture",
    "lavastore-cli",
    "lavastore",
    "lavastore-lavakv",
    "lavastore-table",
    "lavastore-lsm",
    "lavastore-values",
];
/// How often a child is looked at, nanoseconds.
const LOOK_EVERY_NS: u64 = 20_000_000;

/// How a child ended, and what it printed.
struct Ended {
    /// `None`: it was killed, by a signal or because its time was over.
    code: Option<i32>,
    timed_out: bool,
    printed: String,
}

/// Runs the canaries that the command line asks for. Fails if one is not caught.
pub(crate) fn run(cli: &Cli) -> ExitCode {
    let chosen = match chosen(cli) {
        Ok(chosen) => chosen,
        Err(why) => {
            eprintln!("torture: {why}");
            return ExitCode::from(2);
        }
    };
    let clock = Env::kernel().clock;
    let (mut passed, mut failed) = (0, 0);
    for canary in chosen {
        let start_ns = clock.now_ns();
        let found = catch(canary, cli);
        let seconds = (clock.now_ns() - start_ns) as f64 / 1e9;
        match found {
            Ok(by) => {
                passed += 1;
                println!("canary: {:<44} caught by {by}, {seconds:.1} s", canary.name);
            }
            Err(why) => {
                failed += 1;
                println!("canary: {:<44} NOT CAUGHT: {why}, {seconds:.1} s", canary.name);
                println!("  again: cargo run --release -p torture -- canary --only {}", canary.name);
            }
        }
    }
    println!("canary: {passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// The canaries to run: all, one by name, or every n-th (`--part K/N`).
fn chosen(cli: &Cli) -> Result<Vec<&'static Canary>, String> {
    if let Some(name) = &cli.only {
        let named: Vec<&Canary> = canaries().filter(|c| c.name == name || c.is_for(name)).collect();
        return if named.is_empty() { Err(format!("there is no canary `{name}`")) } else { Ok(named) };
    }
    let Some(part) = &cli.part else { return Ok(canaries().collect()) };
    let numbers = part.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    let (k, n): (usize, usize) =
        numbers.filter(|(_, n)| *n > 0).ok_or("--part takes K/N, as in 3/10".to_owned())?;
    Ok(canaries().enumerate().filter(|(i, _)| i % n == k % n).map(|(_, c)| c).collect())
}

/// What caught a canary, or why nothing did.
fn catch(canary: &Canary, cli: &Cli) -> Result<String, String> {
    match canary.by {
        Catcher::Row { row, seed } => {
            if let Some(seed) = seed.filter(|_| !cli.fresh) {
                let args = ["--seed", &seed.to_string(), "--count", "1", "--jobs", "1"];
                if let Ok(found) = judge_row(row, &run_row(canary, cli, row, &args, CASE_SECONDS_MAX)) {
                    return Ok(found);
                }
            }
            let first = cli.seed.unwrap_or(1).to_string();
            let args = ["--seed", &first, "--profile", "soak", "--until-failure"];
            judge_row(row, &run_row(canary, cli, row, &args, ROW_SECONDS_MAX))
        }
        Catcher::Test { package, target, name } => catch_by_test(canary, package, target, name),
    }
}

fn run_row(canary: &Canary, cli: &Cli, row: &str, args: &[&str], seconds_max: u64) -> Result<Ended, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.arg(row).args(args).args(["--ledger", "/dev/null"]).env(VARIABLE, canary.name);
    if let Some(dir) = &cli.dir {
        command.arg("--dir").arg(dir);
    }
    ended(command, seconds_max)
}

/// A row catches a bug by failing, or by dying of it.
fn judge_row(row: &str, ended: &Result<Ended, String>) -> Result<String, String> {
    let ended = ended.as_ref().map_err(Clone::clone)?;
    if ended.timed_out {
        return Err(format!("row {row} did not end in time"));
    }
    match ended.code {
        Some(0) => Err(format!("row {row} passed")),
        Some(1) => {
            let line = ended.printed.lines().find(|line| line.contains("FAILED"));
            let line = line.ok_or_else(|| format!("row {row} failed without a finding"))?;
            let what = line.split_once(": ").map_or(line, |(_, what)| what);
            let short: String = what.chars().take(120).collect();
            Ok(format!("row {row}, {short}"))
        }
        Some(code) => Err(format!("row {row} could not run: exit {code}")),
        None => Ok(format!("row {row}, which died of it")),
    }
}

fn catch_by_test(canary: &Canary, package: &str, target: &str, name: &str) -> Result<String, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let base = || {
        let mut command = Command::new(&cargo);
        command
            .args(["test", "--quiet", "-p", package])
            .args(AS_A_WHOLE.map(|package| ["-p", package]).as_flattened());
        command.args(target.split_whitespace());
        command
    };
    let mut build = base();
    build.arg("--no-run");
    let built = ended(build, BUILD_SECONDS_MAX)?;
    if built.code != Some(0) {
        return Err(format!("test {name} does not build"));
    }
    let mut test = base();
    test.args(["--", "--exact", name]).env(VARIABLE, canary.name);
    let ended = ended(test, CASE_SECONDS_MAX)?;
    let ran = ended.printed.contains("running 1 test");
    match ended.code {
        _ if !ran && ended.timed_out => {
            Err(format!("test {name} had not begun when its time was over (another build?)"))
        }
        _ if !ran => Err(format!("there is no test {name} in {package}")),
        Some(0) => Err(format!("test {name} passed")),
        _ => Ok(format!("test {package} {name}")),
    }
}

/// Runs a child to its end, or to that of its time.
fn ended(mut command: Command, seconds_max: u64) -> Result<Ended, String> {
    let clock = Env::kernel().clock;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("{command:?} cannot be started: {e}"))?;
    let out = child.stdout.take();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut printed = Vec::new();
            let _ = out.map(|mut out| out.read_to_end(&mut printed));
            String::from_utf8_lossy(&printed).into_owned()
        });
        let deadline_ns = clock.now_ns() + seconds_max * 1_000_000_000;
        let mut timed_out = false;
        let status = loop {
            match child.try_wait().map_err(|e| e.to_string())? {
                Some(status) => break status,
                None if clock.now_ns() > deadline_ns && !timed_out => {
                    timed_out = true;
                    let _ = child.kill();
                }
                None => clock.sleep_ns(LOOK_EVERY_NS),
            }
        };
        let printed = reader.join().unwrap_or_default();
        Ok(Ended { code: status.code(), timed_out, printed })
    })
}
