use super::*;
use datadriven::TestCase;
use std::error::Error;

/// Reads of a script, on a simulated clock.
#[derive(Default)]
struct Script {
    reads: ReadLatency,
    now_us: u64,
}

impl Script {
    fn run(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let out = match &*case.directive {
            "new" => {
                *self = Script::default();
                String::new()
            }
            "read" => self.read(case)?,
            "pass" => {
                self.now_us += case.take_arg::<u64>("us")?;
                String::new()
            }
            "learn" => learn(case)?,
            "slow-device" => self.slow_device(case)?,
            "usual" => format!("{} us\n", self.reads.usual_ns() / 1000),
            "is-reading" => format!("{}\n", self.reads.is_reading(self.now_us * 1000)),
            other => return Err(format!("no command is called {other}").into()),
        };
        case.expect_empty()?;
        Ok(out)
    }

    /// Reads one after the other, the first `slow` of each window of 32 taking a millisecond;
    /// prints the judgments of the windows.
    fn read(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let (us, every_us) = (case.take_arg::<u64>("us")?, case.take_arg::<u64>("every-us")?);
        let (slow, is_alone) = (case.try_take_arg("slow")?.unwrap_or(0), case.take_flag("alone")?);
        let mut out = String::new();
        for nth in 0..case.try_take_arg("times")?.unwrap_or(1) {
            self.now_us += every_us;
            let ns = if nth % WINDOW_READS < slow { 1_000_000 } else { us * 1000 };
            if let Some(judgement) = self.reads.took(ns, self.now_us * 1000, is_alone) {
                out += &format!("{judgement:?} after {} reads\n", nth + 1);
            }
        }
        Ok(out)
    }

    /// Makes a read each 400 us. One in four takes a millisecond, alone or beside background work.
    /// Counts the slow windows of the second half.
    fn slow_device(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let mut judgements = Vec::new();
        for i in 0..case.take_arg::<u64>("reads")? {
            self.now_us += 400;
            let ns = if i * 7919 % 100 < 25 { 1_000_000 } else { 80_000 };
            judgements.extend(self.reads.took(ns, self.now_us * 1000, i * 31 % 7 < 3));
        }
        let late = &judgements[judgements.len() / 2..];
        let slow = late.iter().filter(|judgement| **judgement == Judgement::Slow).count();
        Ok(format!("slow windows: {slow} of {}\n", late.len()))
    }
}

/// Prints the usual latency of 10,000 reads of 50 us and a random addition of up to 100 us, times
/// the spread. Every thousandth takes a second, as on a stalled device.
fn learn(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let spread = case.take_arg("times-the-spread")?;
    let (mut usual_ns, mut above, mut rng) = (learnt(0, 1_000_000), 0, io::Rng::new(spread));
    for i in 0..10_000_u64 {
        let ns = if i % 1000 == 0 { 1_000_000_000 } else { 50_000 + rng.below(100_000) * spread };
        above += u64::from(i > 2000 && ns > usual_ns);
        usual_ns = learnt(usual_ns, ns);
    }
    Ok(format!("usual {} us, longer reads: {above} of 8000\n", usual_ns / 1000))
}

#[test]
fn scripts() {
    datadriven::walk("src/pacing/foreground/scripts", |file| {
        let mut script = Script::default();
        file.run(|case| script.run(case));
    });
}
