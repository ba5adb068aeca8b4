use super::*;
use datadriven::TestCase;
use std::error::Error;

fn shown(allowed: Allowed) -> String {
    allowed.map_or("no limit".into(), |(rate, cause)| format!("{rate} B/s for {}", cause.name()))
}

/// Asks for the limit of a write of `bytes` at an epoch and a time. An evaluation returns a rate
/// (0: no limit) and a credit.
fn ask(verdict: &CachedLimit, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let now_ns: Option<u64> = case.try_take_arg("at-ns")?;
    let (rate, credit_bytes): (u64, _) = (case.take_arg("rate")?, case.take_arg("credit")?);
    let mut is_evaluated = false;
    let allowed = verdict.allowed(
        case.take_arg("bytes")?,
        case.take_arg("epoch")?,
        || now_ns.expect("nothing needs the time"),
        || {
            is_evaluated = true;
            Evaluation { allowed: (rate > 0).then_some((rate, StallCause::L0)), credit_bytes }
        },
    );
    Ok(format!("{}, {}\n", shown(allowed), if is_evaluated { "evaluated" } else { "kept" }))
}

fn run(verdict: &mut CachedLimit, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let out = match &*case.directive {
        "new" => {
            *verdict = CachedLimit::default();
            String::new()
        }
        "ask" => ask(verdict, case)?,
        "admits" => format!("{}\n", verdict.admits(case.take_arg("bytes")?, case.take_arg("epoch")?)),
        // Limits of each cause, packed and unpacked.
        "pack" => {
            let rates: Vec<u64> = case.take_args("rates")?;
            let pairs = StallCause::ALL.iter().flat_map(|cause| rates.iter().map(|rate| (*rate, *cause)));
            let limit = |limit| format!("{}\n", shown(unpack(pack(Some(limit)))));
            pairs.map(limit).collect::<String>()
                + &format!("{} is {}\n", shown(unpack(pack(None))), pack(None))
        }
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/context/write_throttle/scripts", |file| {
        let mut verdict = CachedLimit::default();
        file.run(|case| run(&mut verdict, case));
    });
}
