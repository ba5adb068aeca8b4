use super::*;
use datadriven::TestCase;
use std::error::Error;

const SECOND: u64 = 1_000_000_000;
const US: u64 = 1000;
/// Maximum debt that a write without a wait may leave behind, in clock nanoseconds.
const DEBT_NS_MAX: u64 = 10_000_000;

#[derive(Default)]
struct Script {
    pacer: WriteRateLimiter,
    now_ns: u64,
}

impl Script {
    fn run(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let pacer = &self.pacer;
        let out = match &*case.directive {
            "pacer" => {
                *self = Script::default();
                String::new()
            }
            "pass" => {
                self.now_ns += US * case.take_arg::<u64>("us")?;
                String::new()
            }
            "charge" => self.charge(case)?,
            "refund" => {
                pacer.refund(US * case.take_arg::<u64>("us")?);
                String::new()
            }
            "owed" => format!("{} us\n", pacer.owed_ns(self.now_ns) / US),
            "paid-at-once" => {
                let paid = |us: u64| pacer.is_paid_by(self.now_ns, us * US, self.now_ns);
                let line = |us: u64| format!("{us} us: {}\n", paid(us));
                case.take_args("us")?.into_iter().map(line).collect()
            }
            "piece" => {
                let (bytes, rate) = (case.take_arg("bytes")?, case.take_arg("rate")?);
                let piece = piece(bytes, rate);
                format!("{piece} B cost {} us\n", cost_ns(piece, rate) / US)
            }
            "stream" => {
                let rate = case.take_arg::<u64>("mib-per-s")? << 20;
                case.take_args("lengths")?.into_iter().map(|len| stream(len, rate)).collect()
            }
            other => return Err(format!("no command is called {other}").into()),
        };
        case.expect_empty()?;
        Ok(out)
    }

    /// Charges a write without a deadline, or with one; `times` as often, at the same moment.
    fn charge(&self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let (cost_ns, times) = (US * case.take_arg::<u64>("us")?, case.try_take_arg("times")?.unwrap_or(1));
        let until = match case.try_take_arg::<u64>("wait-at-most-us")? {
            Some(us) => ChargeDeadline { ns: self.now_ns + us * US, debt_ns_max: DEBT_NS_MAX },
            None => ChargeDeadline { ns: u64::MAX, debt_ns_max: 0 },
        };
        let charged: Vec<Option<u64>> =
            (0..times).map(|_| self.pacer.charge(self.now_ns, cost_ns, until)).collect();
        let admitted = charged.iter().flatten().count();
        Ok(match charged[..] {
            [Some(wait_ns)] => format!("waits {} us\n", wait_ns / US),
            [None] => "refused\n".into(),
            _ => format!("{admitted} admitted, {} refused\n", charged.len() - admitted),
        })
    }
}

/// Charges ten seconds of writes of one length, in pieces. Prints their share of the rate, and the
/// longest sleep.
fn stream(len: u64, rate: u64) -> String {
    let patient = ChargeDeadline { ns: u64::MAX, debt_ns_max: 0 };
    let (pacer, mut now, mut written, mut longest_ns) = (WriteRateLimiter::default(), 0u64, 0u64, 0);
    while now < 10 * SECOND {
        now += 2_000;
        let mut left = len;
        while left > 0 {
            let paid = piece(left, rate);
            assert!(paid > 0);
            let sleep_ns = pacer.charge(now, cost_ns(paid, rate), patient).unwrap();
            left -= paid;
            now += sleep_ns;
            longest_ns = longest_ns.max(sleep_ns);
        }
        written += len;
    }
    let percent = (u128::from(written) * 100 * u128::from(SECOND)) / (u128::from(rate) * u128::from(now));
    format!("{len} B: {percent} % of the rate, longest sleep {} us\n", longest_ns / US)
}

#[test]
fn scripts() {
    datadriven::walk("src/context/write_rate_limiter/scripts", |file| {
        let mut script = Script::default();
        file.run(|case| script.run(case));
    });
}
