use super::*;
use datadriven::TestCase;
use std::error::Error;

/// Reads of a script, on a clock of its own.
#[derive(Default)]
struct Script {
    reads: Foreground,
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
            "usual" => format!("{} us\n", self.reads.usual_ns() / 1000),
            "is-reading" => format!("{}\n", self.reads.is_reading(self.now_us * 1000)),
            other => return Err(format!("no command is called {other}").into()),
        };
        case.expect_empty()?;
        Ok(out)
    }

    /// Reads one after the other, the first `slow` of each window of 32 taking a millisecond; prints the judgements of the windows.
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
}

#[test]
fn scripts() {
    datadriven::walk("src/pacing/foreground/scripts", |file| {
        let mut script = Script::default();
        file.run(|case| script.run(case));
    });
}

#[test]
fn what_is_usual_is_what_nine_of_ten_take() {
    for tenths in [1, 2, 5] {
        let (mut usual_ns, mut above, mut rng) = (learnt(0, 1_000_000), 0, io::Rng::new(tenths));
        for i in 0..10_000_u64 {
            // Spread evenly from 50 to 150 us, and now and then a device that stood still.
            let ns = if i % 1000 == 0 { 1_000_000_000 } else { 50_000 + rng.below(100_000) * tenths };
            above += u64::from(i > 2000 && ns > usual_ns);
            usual_ns = learnt(usual_ns, ns);
        }
        assert!((500..1100).contains(&above), "{above} of 8,000");
        let expected = 50_000 + 90_000 * tenths;
        assert!((expected * 7 / 10..expected * 13 / 10).contains(&usual_ns), "{usual_ns}");
    }
}

#[test]
fn a_device_that_others_slow_down_is_not_blamed_on_the_store() {
    let (reads, mut told) = (Foreground::default(), Vec::new());
    for i in 0..20_000_u64 {
        // One of four takes a millisecond, whether it was alone or not.
        let ns = if i * 7919 % 100 < 25 { 1_000_000 } else { 80_000 };
        told.extend(reads.took(ns, (i + 1) * 400_000, i * 31 % 7 < 3));
    }
    let late = &told[told.len() / 2..];
    assert!(late.iter().filter(|told| **told == Judgement::Slow).count() * 20 < late.len(), "{late:?}");
}
