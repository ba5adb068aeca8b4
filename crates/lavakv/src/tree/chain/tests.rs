use super::*;

const MB: u64 = 1 << 20;

fn with_excess(excess_bytes: u64) -> Chain {
    Chain { excess_bytes, ..Chain::default() }
}

/// A tree that is `excess` behind at the times, in seconds, at which as much was flushed.
fn run(steps: &[(u64, u64, u64)]) -> Chain {
    let begun = with_excess(0);
    steps.iter().fold(begun, |chain, (second, flushed, excess)| {
        with_excess(excess * MB).after(&chain, flushed * MB, second * SPAN_NS)
    })
}

#[test]
fn what_is_flushed_and_does_not_stay_above_was_absorbed() {
    let chain = run(&[(1, 0, 100), (2, 30, 110)]);
    assert_eq!(chain.absorbed_bytes_per_s, Some(20 * MB), "30 came, 10 stayed");
    let chain = run(&[(1, 0, 100), (2, 10, 80)]);
    assert_eq!(chain.absorbed_bytes_per_s, Some(30 * MB), "10 came, and 20 that were there before went");
    let chain = run(&[(1, 0, 100), (2, 30, 110), (3, 30, 100)]);
    assert_eq!(chain.absorbed_bytes_per_s, Some(25 * MB), "a quarter of what is new");
    let chain = run(&[(1, 0, 100), (5, 10, 200)]);
    assert_eq!(chain.absorbed_bytes_per_s, Some(0), "nothing was, and nothing overflows");
    let chain = run(&[(1, 0, 100), (5, 10, 200), (6, 8, 200)]);
    assert_eq!(chain.absorbed_bytes_per_s, Some(2 * MB), "which is known, and counts as what is known");
}

#[test]
fn versions_within_a_span_are_one_measurement() {
    let first = with_excess(100 * MB).after(&with_excess(0), 0, 1);
    let second = with_excess(120 * MB).after(&first, 30 * MB, SPAN_NS / 2);
    assert_eq!(second.absorbed_bytes_per_s, None);
    let third = with_excess(110 * MB).after(&second, 10 * MB, SPAN_NS + 1);
    assert_eq!(third.absorbed_bytes_per_s, Some(30 * MB));
}

#[test]
fn a_compaction_longer_than_a_span_is_measured_when_it_ends() {
    let chain = run(&[(1, 0, 100), (2, 30, 130), (3, 30, 160)]);
    assert_eq!(chain.absorbed_bytes_per_s, None, "it is under way");
    let chain = run(&[(1, 0, 100), (2, 30, 130), (3, 30, 160), (4, 30, 100)]);
    assert_eq!(chain.absorbed_bytes_per_s, Some(30 * MB), "90 in three seconds");
}

#[test]
fn a_tree_that_had_nothing_to_do_says_nothing_of_what_it_can() {
    let known = run(&[(1, 0, 100), (2, 30, 110)]);
    let rest = with_excess(0).after(&known, 5 * MB, 3 * SPAN_NS);
    assert_eq!(rest.absorbed_bytes_per_s, known.absorbed_bytes_per_s);
    let behind = with_excess(10 * MB).after(&rest, 10 * MB, 4 * SPAN_NS);
    assert_eq!(behind.absorbed_bytes_per_s, known.absorbed_bytes_per_s, "the span begins here");
    let later = with_excess(10 * MB).after(&behind, 1, 4 * SPAN_NS + SPAN_NS_MAX + 1);
    assert_eq!(later.absorbed_bytes_per_s, known.absorbed_bytes_per_s, "nobody wrote");
    let other_options = with_excess(10 * MB).with_what_is_known(&known);
    assert_eq!(other_options.absorbed_bytes_per_s, known.absorbed_bytes_per_s);
}

#[test]
fn where_nobody_compacts_nobody_waits() {
    let (version, options) = (Version::new(1), FamilyOptions::default());
    let chain = Chain::of(&version, &Ledger::default(), None, &SetAside::default(), &options, 16 << 20);
    assert_eq!(chain, Chain::default());
}
