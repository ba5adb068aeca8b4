use super::*;
use datadriven::TestCase;
use std::collections::BTreeMap;

/// Length of the record by LSN.
type Model = BTreeMap<Lsn, u32>;

fn set_of(model: &Model) -> LsnSet {
    let mut out = Builder::default();
    model.iter().for_each(|(lsn, len)| out.push(*lsn, *len).unwrap());
    out.build()
}

/// Checks the invariants of a set.
fn check(set: &LsnSet) {
    let runs: Vec<Run> = set.runs().collect();
    assert!(runs.windows(2).all(|two| two[0].last() + 1 < two[1].first), "{set:?}");
    assert_eq!(runs.iter().map(Run::size).sum::<Size>(), set.size());
    assert_eq!(runs.len() == 1, matches!(set.0, Few::One { .. }), "{set:?}");
    if let Few::Many(pieces) = &set.0 {
        assert!(pieces.iter().all(|p| (1..=2 * RUNS_MAX).contains(&p.runs().count())));
    }
}

fn lsns(set: &LsnSet) -> Vec<Lsn> {
    set.runs().flat_map(|run| run.first..=run.last()).collect()
}

#[test]
fn agrees_with_a_map_after_any_removal() {
    let mut rng = io::Rng::new(7);
    for round in 0..300 {
        // From dense runs to single numbers.
        let sparse = rng.range(1, 6);
        let mut model: Model =
            (0..rng.range(1, 800)).filter(|_| rng.one_in(sparse)).map(|lsn| (lsn, 100)).collect();
        let mut set = set_of(&model);
        for _ in 0..40 {
            check(&set);
            assert_eq!(lsns(&set), model.keys().copied().collect::<Vec<_>>(), "round {round}");
            assert_eq!(set.first(), model.keys().next().copied());
            assert_eq!(set.last(), model.keys().next_back().copied());
            assert_eq!(set.is_empty(), model.is_empty());
            let lsn = rng.below(900);
            assert_eq!(set.contains(lsn), model.contains_key(&lsn));
            let from: Vec<Lsn> = set.runs_from(lsn).flat_map(|run| run.first.max(lsn)..=run.last()).collect();
            assert_eq!(from, model.range(lsn..).map(|(lsn, _)| *lsn).collect::<Vec<_>>());
            let before = model.len();
            let removed = match rng.below(8) {
                0 => {
                    model.retain(|l, _| *l >= lsn / 8);
                    set.remove_below(lsn / 8)
                }
                1 => {
                    model.retain(|l, _| *l <= 900 - lsn / 8);
                    set.remove_above(900 - lsn / 8)
                }
                2 => {
                    let high = lsn + rng.below(100);
                    model.retain(|l, _| *l < lsn || *l > high);
                    set.remove(lsn..=high)
                }
                _ => {
                    model.remove(&lsn);
                    set.remove(lsn..=lsn)
                }
            };
            // With records of one length the proportions are exact.
            let gone = (before - model.len()) as u64;
            assert_eq!(removed, Size { records: gone, bytes: 100 * gone });
        }
    }
}

#[test]
fn intersects_as_sets_do() {
    let mut rng = io::Rng::new(8);
    for _ in 0..300 {
        let mut draw = || {
            let sparse = rng.range(1, 5);
            (0..rng.below(500)).filter(|_| !rng.one_in(sparse)).map(|lsn| (lsn, 10)).collect::<Model>()
        };
        let (a, b) = (draw(), draw());
        let both = set_of(&a).intersection(&set_of(&b));
        check(&both);
        assert_eq!(lsns(&both), a.keys().filter(|l| b.contains_key(l)).copied().collect::<Vec<_>>());
        assert_eq!(both.size().bytes, 10 * both.size().records);
    }
}

fn shown(size: Size) -> String {
    format!("{} records, {} B\n", size.records, size.bytes)
}

fn run(set: &mut LsnSet, case: &mut TestCase) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let out = match &*case.directive {
        // Runs as lines: first LSN, records, bytes. An invalid run is refused, and building
        // continues without it.
        "build" => {
            let (mut builder, mut out) = (Builder::default(), String::new());
            for line in case.input.lines() {
                let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
                let [first, count, bytes] = numbers[..] else { return Err("a run has three numbers".into()) };
                if let Err(e) = builder.push_run(Run { first, count: count as u32, bytes }) {
                    out += &format!("{line}: {e}\n");
                }
            }
            *set = builder.build();
            check(set);
            out
        }
        "runs" => {
            let run = |run: Run| format!("{}-{}: {} B\n", run.first, run.last(), run.bytes);
            set.runs().map(run).collect::<String>() + &format!("empty: {}\n", set.is_empty())
        }
        "contains" => {
            let contains = |lsn: Lsn| format!("{lsn}: {}\n", set.contains(lsn));
            case.take_args("lsns")?.into_iter().map(contains).collect()
        }
        "remove-above" => shown(set.remove_above(case.take_arg("lsn")?)),
        "remove-below" => shown(set.remove_below(case.take_arg("lsn")?)),
        "remove" => shown(set.remove(case.take_arg("first")?..=case.take_arg("last")?)),
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/lsn_set/scripts", |file| {
        let mut set = LsnSet::new();
        file.run(|case| run(&mut set, case));
    });
}
