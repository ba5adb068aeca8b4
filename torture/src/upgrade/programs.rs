//! Programs of earlier formats and the present one, alternating on one store.
//!
//! `.ci/formats` builds the command line of the commit that `torture/formats.txt` names for each
//! format, and keeps it in `target/formats/COMMIT`. The present program is in the directory of this
//! one. Without them this half is skipped with a message.
//!
//! The earlier program creates a store. Both change it alternately and find each other's data,
//! until the present one raises the format (or is killed in the attempt). From then on the earlier
//! one refuses the store, and the present one finds all data.

use crate::case::{Context, Outcome};
use crate::check::{Check, Doing, ensure};
use crate::plan::pick;
use io::Rng;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Formats with their commits.
const FORMATS: &str = include_str!("../../formats.txt");

/// Exit status of `lava` on a store of a newer format.
const UNSUPPORTED: i32 = 1;
/// Messages of earlier releases that refuse a newer format.
const REFUSALS: [&str; 2] = ["manifest format version 3", "the store has format"];

/// A program, and the newest format it knows.
struct Program {
    path: PathBuf,
    format: u32,
}

pub(super) fn case(context: &Context, seed: u64, outcome: &mut Outcome) {
    match all() {
        Ok((present, earlier)) => {
            for program in earlier {
                let dir = context.dir.join(format!("upgrade-{seed}-{}", program.format));
                let mut pair = Pair::new(&dir, seed, &program, &present);
                let ran = pair.run();
                let is_sound = ran.is_ok();
                outcome.take(
                    ran.map_err(|why| format!("beside the program of format {}: {why}", program.format)),
                );
                outcome.note("turns of two programs", pair.turns);
                outcome.note("kills in an upgrade", pair.kills);
                if is_sound {
                    let _ = std::fs::remove_dir_all(&dir);
                }
            }
            let _ = std::fs::remove_dir(&context.dir);
        }
        Err(why) => outcome.note(why, 1),
    }
}

/// Returns the present program, and the built ones of earlier formats.
fn all() -> Result<(Program, Vec<Program>), &'static str> {
    let own = std::env::current_exe().map_err(|_| "skipped: this program has no path")?;
    let (Some(beside), Some(target)) = (own.parent(), own.ancestors().nth(2)) else {
        return Err("skipped: this program lies in no target directory");
    };
    let lava = beside.join("lava");
    if !lava.exists() {
        return Err("skipped: lava was not built beside this program");
    }
    let mut earlier = Vec::new();
    for line in FORMATS.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(Ok(format)), Some(commit)) = (words.next().map(str::parse), words.next()) else { continue };
        let path = target.join("formats").join(commit).join("lava");
        if path.exists() {
            earlier.push(Program { path, format });
        }
    }
    match earlier.is_empty() {
        true => Err("skipped: no program of an earlier format was built (.ci/formats)"),
        false => Ok((Program { path: lava, format: u32::MAX }, earlier)),
    }
}

struct Pair<'a> {
    dir: &'a Path,
    rng: Rng,
    earlier: &'a Program,
    present: &'a Program,
    keys: BTreeMap<String, String>,
    records: Vec<String>,
    turns: u64,
    kills: u64,
}

impl<'a> Pair<'a> {
    fn new(dir: &'a Path, seed: u64, earlier: &'a Program, present: &'a Program) -> Pair<'a> {
        let rng = Rng::new(seed ^ 0x7072_6f67_7261_6d73);
        Pair { dir, rng, earlier, present, keys: BTreeMap::new(), records: Vec::new(), turns: 0, kills: 0 }
    }

    fn run(&mut self) -> Check {
        let _ = std::fs::remove_dir_all(self.dir);
        std::fs::create_dir_all(self.dir).doing(|| "make the directory".into())?;
        let mut format = self.earlier.format.min(lavastore::StoreFormat::DEFAULT.number());
        self.write(self.earlier)?;
        for _ in 0..self.rng.range(2, 5) {
            let program = if self.rng.one_in(2) { self.earlier } else { self.present };
            self.look(program)?;
            self.write(program)?;
            ensure!(self.format()? == format, "the format changed");
        }
        self.look(self.earlier)?;
        if self.rng.one_in(2) {
            self.kill_upgrade()?;
            self.kills += 1;
            format = self.format()?;
            self.look(self.present)?;
            if format <= self.earlier.format {
                self.look(self.earlier)?;
                self.write(self.earlier)?;
            } else {
                self.refused()?;
            }
        }
        for _ in 0..2 {
            self.lava(self.present, &["upgrade"], "")?;
            self.look(self.present)?;
            self.write(self.present)?;
        }
        let newest = lavastore::StoreFormat::NEWEST.number();
        ensure!(self.format()? == newest, "the format was not raised");
        if newest > self.earlier.format {
            self.refused()?;
        }
        self.look(self.present)?;
        self.lava(self.present, &["verify"], "").map(drop)
    }

    /// Checks that every command of the earlier program refuses the store and changes nothing.
    fn refused(&mut self) -> Check {
        for args in
            [&["put", "a", "b"][..], &["get", "a"], &["stat"], &["verify"], &["log", "append", "log", "x"]]
        {
            let output = self.spawn(self.earlier, args, "")?;
            let text = String::from_utf8_lossy(&output.stderr);
            let is_it =
                output.status.code() == Some(UNSUPPORTED) && REFUSALS.iter().any(|why| text.contains(why));
            ensure!(is_it, "the earlier program ends with {:?} for {args:?}: {text}", output.status.code());
        }
        Ok(())
    }

    fn write(&mut self, program: &Program) -> Check {
        self.turns += 1;
        let mut rows = String::new();
        for _ in 0..pick(&mut self.rng, &[1, 20, 300]) {
            let (key, value) =
                (format!("key{:04}", self.rng.below(500)), "v".repeat(self.rng.below(2_000) as usize));
            let _ = writeln!(rows, "{key}\t{value}");
            self.keys.insert(key, value);
        }
        self.lava(program, &["import", "-", "--format", "tsv"], &rows)?;
        let gone: Vec<String> = self.keys.keys().take(self.rng.below(5) as usize).cloned().collect();
        if !gone.is_empty() {
            let args: Vec<&str> = ["del"].into_iter().chain(gone.iter().map(String::as_str)).collect();
            self.lava(program, &args, "")?;
            gone.iter().for_each(|key| drop(self.keys.remove(key)));
        }
        if self.rng.one_in(3) {
            self.lava(program, &["compact"], "")?;
        }
        let record = format!("record {}", self.records.len());
        self.lava(program, &["log", "append", "log", &record], "")?;
        self.records.push(record);
        Ok(())
    }

    fn look(&self, program: &Program) -> Check {
        let rows = self.lava(program, &["export", "-", "--format", "tsv"], "")?;
        let found: BTreeMap<String, String> = rows
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        ensure!(found == self.keys, "{} keys of {} are there, or others", found.len(), self.keys.len());
        let records = self.lava(program, &["log", "tail", "log", "--from", "1"], "")?;
        let found = records.lines().filter_map(|line| Some(line.split_once('\t')?.1));
        ensure!(found.eq(self.records.iter()), "the log has other records: {records}");
        Ok(())
    }

    fn format(&self) -> Check<u32> {
        let stat = self.lava(self.present, &["stat", "--json"], "")?;
        let stat: serde_json::Value = serde_json::from_str(&stat).doing(|| "stat".into())?;
        let format = stat["counters_since_open"]["format"].as_u64().ok_or("stat tells no format")?;
        Ok(format as u32)
    }

    /// Kills the upgrade at a random moment.
    fn kill_upgrade(&mut self) -> Check {
        let mut child = self.command(self.present, &["upgrade"]).spawn().doing(|| "start".into())?;
        lavastore::Env::kernel().clock.sleep_ns(self.rng.below(40_000_000));
        let _ = child.kill();
        child.wait_with_output().doing(|| "end".into()).map(drop)
    }

    fn command(&self, program: &Program, args: &[&str]) -> Command {
        let mut command = Command::new(&program.path);
        command
            .arg("--db")
            .arg(self.dir.join("db"))
            .args(args)
            .env_remove("LAVA_DB")
            .env_remove("LAVA_SPEED")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn spawn(&self, program: &Program, args: &[&str], input: &str) -> Check<Output> {
        let mut child = self.command(program, args).spawn().doing(|| format!("start of {args:?}"))?;
        let stdin = child.stdin.take();
        if let Some(mut stdin) = stdin {
            // A program that refuses the store reads no input.
            let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
        }
        child.wait_with_output().doing(|| format!("end of {args:?}"))
    }

    fn lava(&self, program: &Program, args: &[&str], input: &str) -> Check<String> {
        let output = self.spawn(program, args, input)?;
        let what = if program.format == u32::MAX { "present" } else { "earlier" };
        ensure!(
            output.status.success(),
            "the {what} program ends with {:?} for {args:?}: {}",
            output.status.code(),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).doing(|| "output".into())
    }
}
