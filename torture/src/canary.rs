//! `torture canary`: seeded bugs, each of which a named row or test must catch.
//!
//! A campaign that never fails proves little until a seeded bug makes it fail. Each file
//! `torture/canaries/NAME.patch` is one realistic slip of one line. The command copies the tree to
//! `target/canaries`, applies the patches to the copy and builds it there; the sources themselves
//! know nothing of canaries. A patch makes its change under a condition, so patches whose lines do
//! not overlap share one build. One of them is active in a process ([`switch`]).
//!
//! A row runs first from the recorded seed that caught the bug. If that seed catches nothing any
//! more, the row runs from the beginning at the counts of the profile `soak`, and stops at its
//! first finding. A bug that no row can see is caught by a unit test.
//!
//! A canary passes when it is caught. One that is not is a hole in the campaigns, not in the
//! engine.

use crate::Cli;
use catalogue::{Canary, canaries, root};
use copy::TreeCopy;
use lavastore::Env;
use patch::Catcher;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

mod apply;
mod catalogue;
mod copy;
mod patch;
mod switch;
#[cfg(test)]
mod tests;

/// The longest that a row may search for a bug, seconds.
const ROW_SECONDS_MAX: u64 = 400;
/// The longest that the stored seed or a unit test may take, seconds.
const CASE_SECONDS_MAX: u64 = 120;
/// The interval between looks at a child, nanoseconds.
const LOOK_EVERY_NS: u64 = 20_000_000;

/// The outcome of a child, and its output.
struct Ended {
    /// `None`: killed, by a signal or at the end of its time.
    code: Option<i32>,
    timed_out: bool,
    printed: String,
}

/// Runs the canaries that the command line asks for. Fails if one is not caught.
pub(crate) fn run(cli: &Cli) -> ExitCode {
    let root = match root() {
        Ok(root) => root,
        Err(why) => {
            eprintln!("canary: {why}");
            return ExitCode::from(2);
        }
    };
    let canaries = match canaries(&root) {
        Ok(canaries) => canaries,
        Err(defects) => {
            for why in &defects {
                eprintln!("canary: {why}");
            }
            println!("canary: {} patches do not apply", defects.len());
            return ExitCode::FAILURE;
        }
    };
    if cli.check {
        let builds = canaries.iter().map(|canary| canary.build + 1).max().unwrap_or(0);
        println!("canary: {} patches apply, in {builds} builds", canaries.len());
        return ExitCode::SUCCESS;
    }
    match chosen(cli, &canaries) {
        Ok(chosen) => run_all(cli, &root, &canaries, &chosen),
        Err(why) => {
            eprintln!("canary: {why}");
            ExitCode::from(2)
        }
    }
}

fn run_all(cli: &Cli, root: &Path, canaries: &[Canary], chosen: &[&Canary]) -> ExitCode {
    let clock = Env::kernel().clock;
    let mut builds = Builds { root, canaries, copies: BTreeMap::new(), built: Vec::new() };
    let (mut passed, mut failed) = (0, 0);
    for canary in chosen {
        let start_ns = clock.now_ns();
        let copy = builds.build(canary);
        let built_ns = clock.now_ns();
        let found = copy.and_then(|copy| catch(canary, copy, cli));
        let name = &canary.patch.name;
        let seconds = |from_ns: u64, to_ns: u64| (to_ns - from_ns) as f64 / 1e9;
        let (build_s, run_s) = (seconds(start_ns, built_ns), seconds(built_ns, clock.now_ns()));
        let took = format!("{run_s:.1} s (and {build_s:.1} s to build)");
        match found {
            Ok(by) => {
                passed += 1;
                println!("canary: {name:<44} caught by {by}, {took}");
            }
            Err(why) => {
                failed += 1;
                println!("canary: {name:<44} NOT CAUGHT: {why}, {took}");
                println!("  again: cargo run -p torture -- canary --only {name}");
            }
        }
    }
    println!("canary: {passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// The canaries to run: all, one by name, or a part (`--part K/N`). A part has canaries that need
/// the same builds.
fn chosen<'c>(cli: &Cli, canaries: &'c [Canary]) -> Result<Vec<&'c Canary>, String> {
    if let Some(name) = &cli.only {
        let is_named = |canary: &&Canary| canary.patch.name == *name || canary.patch.is_for(name);
        let named: Vec<&Canary> = canaries.iter().filter(is_named).collect();
        return if named.is_empty() { Err(format!("there is no canary `{name}`")) } else { Ok(named) };
    }
    let Some(part) = &cli.part else { return Ok(canaries.iter().collect()) };
    let numbers = part.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    let (k, n): (usize, usize) =
        numbers.filter(|(_, n)| *n > 0).ok_or("--part takes K/N, as in 3/10".to_owned())?;
    let mut by_build: Vec<&Canary> = canaries.iter().collect();
    by_build.sort_by_key(|canary| (canary.build, canary.patch.by.build_name(), &canary.patch.name));
    Ok(by_build[part_of(by_build.len(), k, n)].to_vec())
}

/// The `k`-th of `n` parts of a list. Every element is in one part.
fn part_of(len: usize, k: usize, n: usize) -> std::ops::Range<usize> {
    let k = k % n;
    len * k / n..len * (k + 1) / n
}

/// The patched copies of this run.
struct Builds<'c> {
    root: &'c Path,
    canaries: &'c [Canary],
    copies: BTreeMap<usize, TreeCopy>,
    /// The builds that exist: of which copy, and what.
    built: Vec<(usize, String)>,
}

impl Builds<'_> {
    /// Builds the copy that has the patch of a canary, as far as its row or test needs it.
    fn build(&mut self, canary: &Canary) -> Result<&TreeCopy, String> {
        let number = canary.build;
        if !self.copies.contains_key(&number) {
            let edits: Vec<_> =
                self.canaries.iter().filter(|c| c.build == number).map(|c| &c.edits).collect();
            let target =
                std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.root.join("target"), PathBuf::from);
            let into = target.join(format!("canaries/{number}"));
            let copy =
                TreeCopy::make(self.root, &into, &edits).map_err(|e| format!("cannot copy the tree: {e}"))?;
            self.copies.insert(number, copy);
        }
        let copy = self.copies.get(&number).ok_or("there is no copy")?;
        let what = canary.patch.by.build_name();
        if !self.built.contains(&(number, what.clone())) {
            copy.build(&canary.patch.by).map_err(|why| format!("the copy does not build:\n{why}"))?;
            self.built.push((number, what));
        }
        Ok(copy)
    }
}

/// Returns the finding that caught a canary, or the reason why there is none.
fn catch(canary: &Canary, copy: &TreeCopy, cli: &Cli) -> Result<String, String> {
    let name = &canary.patch.name;
    match &canary.patch.by {
        Catcher::Row { row, seed } => {
            if let Some(seed) = seed.filter(|_| !cli.fresh) {
                let args = ["--seed", &seed.to_string(), "--count", "1", "--jobs", "1"];
                if let Ok(found) = judge_row(row, &run_row(name, copy, cli, row, &args, CASE_SECONDS_MAX)) {
                    return Ok(found);
                }
            }
            let first = cli.seed.unwrap_or(1).to_string();
            let args = ["--seed", &first, "--profile", "soak", "--until-failure"];
            judge_row(row, &run_row(name, copy, cli, row, &args, ROW_SECONDS_MAX))
        }
        Catcher::Test { package, name: test, .. } => {
            let mut command = copy.cargo(&canary.patch.by);
            command.args(["--", "--exact", test]).env(switch::VARIABLE, name);
            judge_test(package, test, &ended(command, CASE_SECONDS_MAX)?)
        }
    }
}

fn run_row(
    name: &str,
    copy: &TreeCopy,
    cli: &Cli,
    row: &str,
    args: &[&str],
    seconds_max: u64,
) -> Result<Ended, String> {
    let mut command = copy.torture();
    command.arg(row).args(args).args(["--ledger", "/dev/null"]).env(switch::VARIABLE, name);
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

/// A test catches a bug by failing, by dying of it, or by not ending.
fn judge_test(package: &str, name: &str, ended: &Ended) -> Result<String, String> {
    let ran = ended.printed.contains("running 1 test");
    match ended.code {
        _ if !ran && ended.timed_out => Err(format!("test {name} had not begun when its time was over")),
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
