use super::*;
use datadriven::TestCase;
use std::error::Error;

type Outcome = Result<String, Box<dyn Error>>;

const MB: u64 = 1 << 20;

/// Sets a field of the pressure by its name in scripts.
fn set(p: &mut WritePressure, field: &str, value: u64) {
    match field {
        "memory-used-mib" => p.memory_used = value * MB,
        "memory-max-mib" => p.memory_max = value * MB,
        "backlog-mib" => p.backlog = value * MB,
        "flush-mib-per-s" => p.flush_bytes_per_s = value * MB,
        "gc-mib-per-s" => p.gc_bytes_per_s = value * MB,
        "absorbed-mib-per-s" => p.absorbed_bytes_per_s = Some(value * MB),
        "excess-percent" => p.excess_percent = value,
        "garbage-over-percent" => p.garbage_over_percent = value,
        "space-room" => p.space_room = value,
        "space-margin" => p.space_margin = value,
        "l0-depth" => {
            let l0 = Level0 { slowdown: 12.0, stop: 24.0, bytes_per_s: 50 * MB, ..Default::default() };
            p.l0 = Some(Level0 { depth: value as f64, ..l0 });
        }
        other => panic!("pressure has no {other}"),
    }
}

fn shown(allowed: Option<(u64, StallCause)>) -> String {
    allowed.map_or("no limit\n".into(), |(rate, cause)| {
        format!("{:.2} MiB/s for {}\n", rate as f64 / MB as f64, cause.name())
    })
}

/// Returns the rates for values of a field, or for all from `first` to `last`. They must fall, and
/// never reach zero.
fn falls(mut p: WritePressure, case: &mut TestCase) -> Outcome {
    let field: String = case.take_arg("field")?;
    let values: Vec<u64> = match case.try_take_args("values")? {
        Some(values) => values,
        None => {
            let (first, last) = (case.take_arg("first")?, case.take_arg("last")?);
            if first <= last { (first..=last).collect() } else { (last..=first).rev().collect() }
        }
    };
    let mut rates: Vec<(u64, StallCause)> = Vec::new();
    for value in values {
        set(&mut p, &field, value);
        let (rate, cause) = p.allowed_rate().ok_or("there is no limit")?;
        let falls = rates.last().is_none_or(|(last, of)| rate <= *last && *of == cause);
        assert!(falls && rate > 0, "{field} {value}: {rate} for {cause:?} after {rates:?}");
        rates.push((rate, cause));
    }
    Ok(shown(rates.first().copied()) + &shown(rates.last().copied()))
}

/// Compactions that drain level 0.
fn draining(case: &mut TestCase) -> Result<Draining, Box<dyn Error>> {
    let (takes, done): (f64, f64) = (case.take_arg("takes")?, case.take_arg("done-part")?);
    Ok(Draining { takes, left: takes * (1.0 - done), fallen: takes * done, takes_all: false })
}

/// From the slowdown to the stop, a tenth of a table more lowers the rate by a seventh at most.
fn steps(case: &mut TestCase) -> Outcome {
    let draining = draining(case)?;
    let rate = |depth| {
        let l0 = Level0 { depth, slowdown: 16.0, stop: 32.0, draining, bytes_per_s: 1000 * MB };
        l0.allowed_rate(0) as f64 / MB as f64
    };
    let mut depth = 16.0;
    while depth < 31.0 {
        let (now, next) = (rate(depth), rate(depth + 0.1));
        assert!(next <= now && next > 0.85 * now, "{draining:?} at {depth}: {next} after {now}");
        depth += 0.1;
    }
    Ok(format!("{:.0} MiB/s at the slowdown, {:.0} MiB/s a table before the stop\n", rate(16.0), rate(31.0)))
}

/// A level 0 under compactions, with writes in steps of a hundredth of a table. Each compaction
/// takes all of it, or `takes` tables. Prints the lowest and the highest rate relative to the drain
/// rate, and the depth, after the first twenty compactions.
fn drained(case: &mut TestCase) -> Outcome {
    let takes_max: f64 = case.try_take_arg("takes")?.unwrap_or(f64::INFINITY);
    let (rate, step) = (50.0 * MB as f64, 0.01);
    let (mut depth, mut draining) = (0.0, Draining { takes_all: true, ..Default::default() });
    let (mut low, mut high, mut deepest, mut done) = (f64::MAX, 0.0f64, 0.0f64, 0);
    while done < 400 {
        let l0 = Level0 { depth, slowdown: 16.0, stop: 32.0, draining, bytes_per_s: rate as u64 };
        // Below the slowdown writes are unlimited: ten times as fast.
        let allowed = if depth > 16.0 { (l0.allowed_rate(0) as f64 / rate).min(10.0) } else { 10.0 };
        if done > 20 {
            (low, high) = (low.min(allowed), if depth > 16.0 { high.max(allowed) } else { high });
            deepest = deepest.max(depth);
        }
        depth += step * allowed;
        if draining.takes == 0.0 && depth >= 4.0 {
            let takes = f64::min(depth.floor(), takes_max);
            draining = Draining { takes, left: takes, fallen: 0.0, takes_all: takes > 0.75 * depth };
        }
        (draining.left, draining.fallen) = (draining.left - step, draining.fallen + step);
        if draining.takes > 0.0 && draining.left <= 0.0 {
            depth -= draining.takes;
            draining = Draining { takes_all: draining.takes_all, ..Default::default() };
            done += 1;
        }
    }
    Ok(format!("{low:.2} to {high:.2} of the rate of draining, {deepest:.1} tables deep\n"))
}

fn run(pressure: &mut WritePressure, case: &mut TestCase) -> Outcome {
    let out = match &*case.directive {
        // Lines of fields and values; all other fields are at their defaults.
        "pressure" => {
            *pressure = WritePressure::default();
            for line in case.input.lines() {
                let (field, value) = line.split_once(' ').unwrap();
                set(pressure, field, value.parse()?);
            }
            shown(pressure.allowed_rate())
        }
        "payers" => {
            let payers = [ChargedKind::Write, ChargedKind::Deletes, ChargedKind::Segment];
            let payer = |payer| format!("{payer:?}: {}", shown(pressure.on(payer).allowed_rate()));
            payers.map(payer).concat()
        }
        "falls" => falls(*pressure, case)?,
        "steps-of-level-0" => steps(case)?,
        "drained-level-0" => drained(case)?,
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/write/admission/price/scripts", |file| {
        let mut pressure = WritePressure::default();
        file.run(|case| run(&mut pressure, case));
    });
}
