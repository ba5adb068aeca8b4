//! Examples of the equations, and the extremes they leave open.

use super::*;
use datadriven::TestCase;
use std::error::Error;

const MIB: u64 = 1 << 20;

/// Parses a family: `levels 10 0 30 exposed 400 live 1000`, the bytes of its levels, its exposed
/// garbage and its live values, in MiB.
fn pressure(line: &str) -> Pressure {
    let numbers =
        |text: &str| text.split_whitespace().map(|n| n.parse::<u64>().unwrap() * MIB).collect::<Vec<_>>();
    let (levels, values) = line.strip_prefix("levels").and_then(|line| line.split_once("exposed")).unwrap();
    let (exposed, live) = values.split_once("live").unwrap();
    Pressure::new(&numbers(levels), 10, numbers(exposed)[0], numbers(live)[0], 20)
}

fn run(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let mut sum = Pressure::default();
    case.input.lines().for_each(|line| sum.add(&pressure(line)));
    let (index, value, share) = (sum.index_pressure(), sum.value_pressure(), sum.gc_share());
    let mut out =
        format!("index pressure {index:.4}, value pressure {value:.4}, share of collection {share:.4}\n");
    let threads = case.try_take_arg("threads")?.unwrap_or(8);
    let is_fixed = case.take_flag("fixed")?;
    let compactions_max = case.try_take_arg("compactions-max")?;
    let fills: Vec<u64> = case.try_take_args("fill")?.unwrap_or_else(|| vec![0]);
    let befores: Vec<usize> = case.try_take_args("before")?.unwrap_or_else(|| vec![1]);
    for (fill, before) in fills.iter().flat_map(|fill| befores.iter().map(move |before| (fill, before))) {
        let slots = if is_fixed { Slots::fixed(threads) } else { Slots::of(&sum, threads, *fill, *before) };
        let slots = compactions_max.map_or(slots, |max| slots.limited(threads, max));
        let Slots { compactions, collections, urgent, by_pressure } = slots;
        out += &format!("fill {fill}, before {before}: {compactions} compactions, ");
        out += &format!("{collections} collections ({by_pressure} by pressure), {urgent} urgent\n");
    }
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/plan/slots/scripts", |file| file.run(run));
}

#[test]
fn each_job_class_keeps_a_thread_at_any_pressure() {
    for threads in 1..20 {
        for before in [0, 1, threads, 64] {
            for (level0, exposed) in [(0, 0), (0, 900), (900, 0), (900, 900)] {
                for fill in [0, 80, 95, 100, 200] {
                    let t =
                        Pressure::new(&[level0, 0, 1000].map(|n| n * MIB), 10, exposed * MIB, 1000 * MIB, 20);
                    let slots = Slots::of(&t, threads, fill, before);
                    assert!((1..=threads).contains(&slots.collections), "{slots:?}");
                    assert!((1..=all_but_one(threads)).contains(&slots.compactions), "{slots:?}");
                    assert!(slots.urgent <= all_but_one(threads), "{slots:?}");
                    assert!(threads < 2 || slots.urgent < threads, "{slots:?}");
                }
            }
        }
    }
}
