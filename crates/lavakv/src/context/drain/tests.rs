//! Tests of flush and level 0 rates on a simulated clock.

use super::level_0::{Draining, Level0Drain, Share};
use super::*;
use base::HashMap;
use datadriven::TestCase;
use std::error::Error;

const SECOND: u64 = 1_000_000_000;
/// Stop depth of level 0, in files.
const STOP: usize = 32;

#[derive(Default)]
struct Script {
    drain: DrainRates,
    level_0: Level0Drain,
    /// Registered jobs, by name.
    jobs: HashMap<String, Share>,
}

/// Seconds, in nanoseconds.
fn seconds(case: &mut TestCase, name: &str) -> Result<u64, Box<dyn Error>> {
    Ok((case.take_arg::<f64>(name)? * SECOND as f64) as u64)
}

fn said(draining: Draining) -> String {
    let Draining { takes, left, fallen, takes_all } = draining;
    format!("takes {takes} tables, {left} are left, {fallen} have fallen; takes all: {takes_all}\n")
}

impl Script {
    fn run(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let out = match &*case.directive {
            "new" => {
                *self = Script::default();
                String::new()
            }
            "flush-begins" => {
                self.drain.flush_begins(seconds(case, "at")?, case.take_arg("bytes")?);
                String::new()
            }
            "flush-has-written" => {
                self.drain.flush_has_written(case.take_arg("bytes")?);
                String::new()
            }
            "flush-ends" => {
                self.drain.flush_ends();
                String::new()
            }
            "flush-measured" => {
                self.drain.flush.record(case.take_arg("bytes")?, SECOND);
                String::new()
            }
            "left-to-flush" => {
                let left = |bytes: u64| format!("{} B\n", self.drain.left_to_flush(bytes));
                case.take_args("of")?.into_iter().map(left).collect()
            }
            "flush-rate" => {
                let rate =
                    |s: f64| format!("{} B/s\n", self.drain.flush_bytes_per_s((s * SECOND as f64) as u64));
                case.take_args("at")?.into_iter().map(rate).collect()
            }
            _ => self.level_0(case)?,
        };
        case.expect_empty()?;
        Ok(out)
    }

    fn level_0(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let level_0 = &self.level_0;
        match &*case.directive {
            "flushed" => level_0.flushed(case.take_arg("memtable")?, case.take_arg("tables")?),
            "job" => {
                level_0.begins(seconds(case, "from")?);
                let to_ns = seconds(case, "to")?;
                if let Some(bytes) = case.try_take_arg("bytes")? {
                    level_0.record_drained(bytes, to_ns, STOP);
                }
                level_0.ends(to_ns, case.take_flag("deep")?);
            }
            "jobs" => self.jobs(case)?,
            "begins" => level_0.begins(seconds(case, "at")?),
            "ends" => level_0.ends(seconds(case, "at")?, case.take_flag("deep")?),
            "drained" => level_0.record_drained(case.take_arg("bytes")?, seconds(case, "at")?, STOP),
            "takes" => {
                let (bytes, falls) = (case.take_arg("bytes")?, case.take_arg("falls")?);
                let share = level_0.is_drained(bytes, falls, case.take_arg("depth")?);
                self.jobs.insert(case.take_arg("job")?, share);
            }
            "has-come" => {
                level_0.has_come(&self.jobs[&case.take_arg::<String>("job")?], case.take_arg("part")?)
            }
            "rests" => level_0.rests(&self.jobs[&case.take_arg::<String>("job")?]),
            "rate" => {
                let rate = |s: f64| format!("{} B/s\n", level_0.bytes_per_s((s * SECOND as f64) as u64));
                return Ok(case.take_args("at")?.into_iter().map(rate).collect());
            }
            "of-memtables" => return Ok(format!("{} B\n", level_0.of_memtables(case.take_arg("tables")?))),
            "draining" => return Ok(said(level_0.draining())),
            other => return Err(format!("no command is called {other}").into()),
        }
        Ok(String::new())
    }

    /// Runs consecutive jobs of one length while level 0 is deep.
    fn jobs(&self, case: &mut TestCase) -> Result<(), Box<dyn Error>> {
        let (from, each, bytes) = (seconds(case, "from")?, seconds(case, "each")?, case.take_arg("bytes")?);
        for nth in 0..case.take_arg("times")? {
            let begun = from + nth * each;
            self.level_0.begins(begun);
            self.level_0.record_drained(bytes, begun + each, STOP);
            self.level_0.ends(begun + each, true);
        }
        Ok(())
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/context/drain/scripts", |file| {
        let mut script = Script::default();
        file.run(|case| script.run(case));
    });
}
