use super::*;

const MB: u64 = 1 << 20;

/// What is allowed while what `more` sets rises over `steps`: less and less, and never nothing.
fn falls(
    p: &mut Pressure,
    cause: StallCause,
    steps: impl Iterator<Item = u64>,
    set: impl Fn(&mut Pressure, u64),
) {
    let mut last = u64::MAX;
    for step in steps {
        set(p, step);
        let (rate, limited_by) = p.allowed_rate().unwrap();
        assert!(rate <= last && rate > 0 && limited_by == cause, "{cause:?} at {step}: {rate} after {last}");
        last = rate;
    }
}

#[test]
fn no_backlog_no_limit_and_the_price_rises_with_the_backlog() {
    let mut p = Pressure { memory_max: 64 * MB, flush_bytes_per_s: 100 * MB, ..Default::default() };
    assert_eq!(p.allowed_rate(), None);
    p.backlog = 16 * MB;
    falls(&mut p, StallCause::Memory, [20, 40, 60, 64].into_iter(), |p, used| p.memory_used = used * MB);
    p.backlog = 0;
    let l0 = Level0 { slowdown: 12.0, stop: 24.0, bytes_per_s: 50 * MB, ..Default::default() };
    falls(&mut p, StallCause::L0, 13..30, |p, depth| p.l0 = Some(Level0 { depth: depth as f64, ..l0 }));
    (p.l0, p.gc_bytes_per_s) = (None, 40 * MB);
    falls(&mut p, StallCause::Garbage, 1..30, |p, over| p.garbage_over_percent = over);
    (p.garbage_over_percent, p.excess_percent) = (0, EXCESS_SLOW_PERCENT);
    assert_eq!(p.allowed_rate(), None);
    falls(&mut p, StallCause::Levels, 1..60, |p, more| p.excess_percent = EXCESS_SLOW_PERCENT + more);
    p.excess_percent = EXCESS_SLOW_PERCENT + EXCESS_BALANCE_PERCENT;
    p.absorbed_bytes_per_s = Some(30 * MB);
    assert_eq!(p.allowed_rate(), Some((30 * MB, StallCause::Levels)));
    p.absorbed_bytes_per_s = Some(0);
    assert_eq!(
        p.allowed_rate(),
        Some((MB, StallCause::Levels)),
        "nothing is another thing than nothing known"
    );
    p.excess_percent = 0;
    (p.space_margin, p.space_room) = (1000, 1000);
    assert_eq!(p.allowed_rate(), None);
    falls(&mut p, StallCause::Space, (0..1000).rev(), |p, room| p.space_room = room);
    p.space_room = 618;
    assert!(p.allowed_rate().unwrap().0.abs_diff(40 * MB) < MB);
}

/// A level 0 that is drained by compactions, a table of writes at a time: what the rate is over what drains it, smallest and largest, and
/// how deep it was, from the moment at which it was slowed down for the tenth time.
fn drained(takes: impl Fn(f64) -> f64, begins_at: f64) -> (f64, f64, f64) {
    let (rate, step) = (50.0 * MB as f64, 0.01);
    let (mut depth, mut draining) = (0.0, Draining { takes_all: true, ..Default::default() });
    let (mut low, mut high, mut deepest, mut done) = (f64::MAX, 0.0f64, 0.0f64, 0);
    while done < 400 {
        let l0 = Level0 { depth, slowdown: 16.0, stop: 32.0, draining, bytes_per_s: rate as u64 };
        // Nobody is held back above it: ten times as fast.
        let allowed = if depth > 16.0 { (l0.allowed_rate(0) as f64 / rate).min(10.0) } else { 10.0 };
        if done > 20 {
            (low, high) = (low.min(allowed), if depth > 16.0 { high.max(allowed) } else { high });
            deepest = deepest.max(depth);
        }
        depth += step * allowed;
        if draining.takes == 0.0 && depth >= begins_at {
            let takes = takes(depth.floor());
            draining = Draining { takes, left: takes, fallen: 0.0, takes_all: takes > 0.75 * depth };
        }
        (draining.left, draining.fallen) = (draining.left - step, draining.fallen + step);
        if draining.takes > 0.0 && draining.left <= 0.0 {
            depth -= draining.takes;
            draining = Draining { takes_all: draining.takes_all, ..Default::default() };
            done += 1;
        }
    }
    (low, high, deepest)
}

/// From where slowing starts to the stop, with or without compactions under way, a little deeper is a little slower.
#[test]
fn the_price_of_level_0_has_no_steps() {
    let under_way = |takes: f64, part: f64| Draining {
        takes,
        left: takes * (1.0 - part),
        fallen: takes * part,
        takes_all: false,
    };
    for draining in [under_way(0.0, 0.0), under_way(1.0, 0.5), under_way(6.0, 0.1), under_way(6.0, 0.9)] {
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
        assert!(rate(31.0) > 50.0, "{draining:?}: it goes on at a twentieth of what drains it");
    }
}

/// However much a compaction takes, writers come to what drains the level and stay near it, and do not meet the stop.
#[test]
fn level_0_comes_to_rest_without_a_stop() {
    let (low, high, deepest) = drained(|depth| depth, 4.0);
    assert!(low > 0.5 && high < 4.0 && deepest < 32.0, "all of it: {low} to {high}, {deepest} deep");
    for takes in [1.0, 2.0, 4.0] {
        let (low, high, deepest) = drained(|depth| depth.min(takes), 4.0);
        assert!(low > 0.6 && high < 1.5 && deepest < 32.0, "{takes} of it: {low} to {high}, {deepest} deep");
    }
}

/// Deletes make room, so space is no limit to them. All others are.
#[test]
fn deletes_pay_for_memory_where_space_is_scarcer() {
    let pressure = Pressure {
        memory_used: 50 << 20,
        memory_max: 100 << 20,
        backlog: 40 << 20,
        flush_bytes_per_s: 100 << 20,
        space_room: 1,
        space_margin: 1 << 30,
        ..Pressure::default()
    };
    assert_eq!(pressure.on(Payer::Write).allowed_rate().unwrap().1, StallCause::Space);
    assert_eq!(pressure.on(Payer::Deletes).allowed_rate().unwrap().1, StallCause::Memory);
    assert_eq!(pressure.on(Payer::Segment).allowed_rate().unwrap().1, StallCause::Space);
}
