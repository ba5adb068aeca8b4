//! Tests of the collection threshold and of the garbage pressure.

use super::*;
use crate::tree::summary::VersionSummary;
use datadriven::TestCase;
use std::error::Error;

/// Prints a table: a line for each share of exposed garbage, a column for each fill of the space.
fn thresholds(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let (exposed, fills) = (case.take_args::<u64>("exposed")?, case.take_args::<u64>("fill")?);
    let (floor, is_quiet) = (case.try_take_arg("gc-ratio")?.unwrap_or(20), case.take_flag("quiet")?);
    let has_limit = case.take_flag("limited")?;
    let line = |exposed: u64| {
        let of = fills.iter().map(|fill| {
            let (lazy, full) = lazy_percents(*fill, has_limit);
            let full = if has_limit { full } else { EXPOSED_FULL_PERCENT };
            format!("{:4}", threshold_percent(exposed, full, (floor, lazy), is_quiet, *fill))
        });
        format!("exposed {exposed:3}:{}\n", of.collect::<String>())
    };
    let head = format!("fill       :{}\n", fills.iter().map(|fill| format!("{fill:4}")).collect::<String>());
    Ok(head + &exposed.into_iter().map(line).collect::<String>())
}

fn run(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let out = match &*case.directive {
        "thresholds" => thresholds(case)?,
        "pressure" => {
            let garbage_percent = case.try_take_arg("garbage")?.unwrap_or(0);
            let summary = VersionSummary { garbage_percent, ..VersionSummary::default() };
            let by_garbage = summary.garbage_pressure_percent(false);
            let line = |fill| format!("fill {fill}: {}\n", garbage_pressure(by_garbage, fill));
            case.take_args("fill")?.into_iter().map(line).collect()
        }
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/plan/collection/scripts", |file| file.run(run));
}

/// The threshold is monotone in garbage and fill, including at points that the scripts leave out.
#[test]
fn the_threshold_never_rises_with_garbage_or_fill() {
    let of = |exposed, fill, floor, is_quiet, is_lazier| {
        let (lazy, full) = lazy_percents(fill, is_lazier);
        threshold_percent(exposed, full, (floor, lazy), is_quiet, fill)
    };
    for (floor, is_quiet, is_lazier) in
        [(20, false, false), (20, false, true), (3, true, false), (99, false, false)]
    {
        let at = |exposed, fill| of(exposed, fill, floor, is_quiet, is_lazier);
        for exposed in 0..100 {
            assert!((0..120).all(|fill| at(exposed, fill + 1) <= at(exposed, fill)), "{exposed}");
            assert!((0..120).all(|fill| at(exposed + 1, fill) <= at(exposed, fill)), "{exposed}");
            assert_eq!(u64::from(at(exposed, 90)), floor, "everything that frees enough");
            assert_eq!(
                u64::from(at(exposed, 100)),
                floor.min(FULL_RATIO_PERCENT),
                "everything that frees something"
            );
            // With a limit, fill decides below three fifths as well.
            let same = |fill| of(exposed, fill, floor, is_quiet, false);
            assert!((60..120).all(|fill| at(exposed, fill) == same(fill)), "{exposed}");
            assert!((0..75).all(|fill| same(fill) == same(0)), "{exposed}");
        }
    }
}
