//! Tests of the pace on a simulated clock: congestion signals, enforcement, increase, and garbage
//! pressure.

use super::*;
use datadriven::TestCase;
use std::error::Error;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// The pace under test, and its clock.
struct Script {
    pace: GcPace,
    now_ns: u64,
}

/// Runs a collection that takes all its allowance for `ns`, in pieces of 1 MiB; returns the bytes.
fn collect(pace: &GcPace, now_ns: &mut u64, ns: u64, garbage_pressure: u64) -> u64 {
    let (end_ns, mut bytes) = (*now_ns + ns, 0);
    while *now_ns < end_ns {
        match pace.wait_ns(*now_ns, garbage_pressure) {
            0 => {
                pace.charge(MIB);
                bytes += MIB;
                // At most 1,000 MiB a second.
                *now_ns += MS;
            }
            wait_ns => {
                assert!(wait_ns <= WAIT_NS_MAX);
                *now_ns += wait_ns;
            }
        }
    }
    bytes
}

impl Script {
    fn new() -> Script {
        Script { pace: GcPace::default(), now_ns: SECOND }
    }

    fn run(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let pressure = case.try_take_arg("garbage-pressure")?.unwrap_or(0);
        let mut out = String::new();
        match &*case.directive {
            "pace" => *self = Script::new(),
            "flush" => {
                let (mib, rate): (u64, u64) = (16, case.take_arg("mib-per-s")?);
                let waited_for = case.take_flag("waited-for")?;
                self.pace.flushed(
                    self.now_ns,
                    CompletedFlush { bytes: mib * MIB, ns: mib * SECOND / rate, waited_for },
                );
            }
            "charge" => self.pace.charge(case.take_arg::<u64>("bytes")?),
            "pass" => self.now_ns += MS * case.take_arg::<u64>("ms")?,
            "collect" => {
                let (from_ns, ns) = (self.now_ns, MS * case.take_arg::<u64>("ms")?);
                let bytes = collect(&self.pace, &mut self.now_ns, ns, pressure);
                out = format!("{} MiB in {} ms\n", bytes / MIB, (self.now_ns - from_ns) / MS);
            }
            "bound" => {
                for pressure in case.try_take_args("garbage-pressures")?.unwrap_or_else(|| vec![pressure]) {
                    let bound = self.pace.bytes_per_s(self.now_ns, pressure);
                    out += &bound.map_or("none\n".into(), |bytes| format!("{} MiB/s\n", bytes / MIB));
                }
            }
            "forget-debt" => assert_eq!(self.pace.wait_ns(self.now_ns, GARBAGE_PRESSURE_FULL), 0),
            "congest" => out = self.congest(case)?,
            "wait" => out = self.wait(case)?,
            other => return Err(format!("no command is called {other}").into()),
        }
        case.expect_empty()?;
        Ok(out)
    }

    /// Runs flushes with a waiting memtable alongside a collection; prints the lowest bound.
    fn congest(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let (bytes, ns) = (case.take_arg("bytes")?, MS * case.take_arg::<u64>("ms")?);
        let (every_ns, charged) = (MS * case.take_arg::<u64>("every-ms")?, case.take_arg("collected")?);
        let mut lowest = u64::MAX;
        for _ in 0..case.take_arg("times")? {
            self.pace.charge(charged);
            self.now_ns += every_ns;
            self.pace.flushed(self.now_ns, CompletedFlush { bytes, ns, waited_for: true });
            lowest = lowest.min(self.pace.bytes_per_s(self.now_ns, 0).unwrap_or(u64::MAX));
        }
        Ok(format!("lowest bound: {lowest} B/s\n"))
    }

    /// Waits for the charged bytes, in pieces of `poll-ns`, and prints the deviation from the time
    /// that the bound implies.
    fn wait(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let (debt, poll_ns) =
            (case.take_arg::<u64>("bytes")?, case.try_take_arg("poll-ns")?.unwrap_or(u64::MAX));
        self.pace.charge(debt);
        let due_ns = debt * SECOND / self.pace.bytes_per_s(self.now_ns, 0).ok_or("there is no bound")?;
        let mut waited_ns = 0;
        loop {
            let wait_ns = self.pace.wait_ns(self.now_ns, 0).min(poll_ns);
            if wait_ns == 0 || waited_ns > 10 * due_ns + MS {
                break Ok(format!("due: {due_ns} ns, waited: {waited_ns} ns\n"));
            }
            self.now_ns += wait_ns;
            waited_ns += wait_ns;
        }
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/plan/gc_pace/scripts", |file| {
        let mut script = Script::new();
        file.run(|case| script.run(case));
    });
}
