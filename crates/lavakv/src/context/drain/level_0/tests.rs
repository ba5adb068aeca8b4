use super::*;

const SECOND: u64 = 1_000_000_000;
const STOP: usize = 32;

/// A job of the chain, from one second to another, which takes so many bytes out of level 0.
fn job(level_0: &Level0Drain, from_s: u64, to_s: u64, bytes: u64, is_deep: bool) {
    level_0.begins(from_s * SECOND);
    if bytes > 0 {
        level_0.record_drained(bytes, to_s * SECOND, STOP);
    }
    level_0.ends(to_s * SECOND, is_deep);
}

#[test]
fn level_0_is_drained_in_bytes_of_memtables() {
    let level_0 = Level0Drain::default();
    assert_eq!(
        (level_0.bytes_per_s(SECOND), level_0.draining()),
        (0, Draining { takes_all: true, ..Default::default() })
    );
    job(&level_0, 1, 2, 100, false);
    assert_eq!(level_0.bytes_per_s(9 * SECOND), 100, "as long as nothing was flushed a byte is a byte");
    let level_0 = Level0Drain::default();
    level_0.flushed(16_000, 1_000);
    job(&level_0, 1, 2, 100, false);
    assert_eq!(level_0.bytes_per_s(9 * SECOND), 1_600, "values are elsewhere");
    level_0.flushed(8_000, 1_000);
    assert_eq!(level_0.of_memtables(100), 1_400, "a quarter of what is new");
}

#[test]
fn time_counts_in_which_the_chain_has_work() {
    let level_0 = Level0Drain::default();
    level_0.flushed(1_000, 1_000);
    job(&level_0, 1, 2, 0, false);
    job(&level_0, 5, 6, 1_000, false);
    assert_eq!(
        level_0.bytes_per_s(20 * SECOND),
        500,
        "one that makes room takes its time, nothing to do takes none"
    );
    // Two at a time.
    let level_0 = Level0Drain::default();
    level_0.flushed(1_000, 1_000);
    level_0.begins(SECOND);
    job(&level_0, 1, 3, 1_000, false);
    level_0.record_drained(1_000, 3 * SECOND, STOP);
    level_0.ends(3 * SECOND, false);
    assert_eq!(level_0.bytes_per_s(20 * SECOND), 1_000);
    // Somebody else works while level 0 is deep.
    let level_0 = Level0Drain::default();
    level_0.flushed(1_000, 1_000);
    job(&level_0, 1, 2, 1_000, true);
    assert_eq!((level_0.bytes_per_s(2 * SECOND), level_0.bytes_per_s(5 * SECOND)), (1_000, 250));
    job(&level_0, 5, 6, 1_000, false);
    assert_eq!((level_0.bytes_per_s(6 * SECOND), level_0.bytes_per_s(60 * SECOND)), (400, 400));
}

#[test]
fn a_job_that_is_slower_than_usual_is_believed_while_it_goes_on() {
    let level_0 = Level0Drain::default();
    level_0.flushed(1_000, 1_000);
    job(&level_0, 1, 2, 1_000, false);
    level_0.begins(10 * SECOND);
    let share = level_0.is_drained(1_000, 1.0, 20.0);
    assert_eq!(level_0.bytes_per_s(10 * SECOND), 1_000);
    assert_eq!(level_0.bytes_per_s(14 * SECOND), 200, "nothing is done in four seconds");
    level_0.has_come(&share, 0.5);
    assert_eq!(level_0.bytes_per_s(14 * SECOND), 300);
}

#[test]
fn what_was_long_ago_is_forgotten() {
    let level_0 = Level0Drain::default();
    level_0.flushed(1_000, 1_000);
    (1..100).for_each(|s| job(&level_0, s, s + 1, 8_000, true));
    (50..250).for_each(|n| job(&level_0, 2 * n, 2 * n + 2, 1_000, true));
    assert!(level_0.bytes_per_s(502 * SECOND) < 600, "{}", level_0.bytes_per_s(502 * SECOND));
}

#[test]
fn jobs_add_up_whoever_ends_first() {
    let level_0 = Level0Drain::default();
    level_0.flushed(500, 500);
    let first = level_0.is_drained(6_000, 12.0, 12.0);
    level_0.has_come(&first, 0.25);
    assert_eq!(level_0.draining(), Draining { takes: 12.0, left: 9.0, fallen: 3.0, takes_all: true });
    let second = level_0.is_drained(1_000, 1.0, 12.0);
    level_0.has_come(&second, 0.5);
    // One of its threads says what is past.
    level_0.has_come(&second, 0.25);
    assert_eq!(level_0.draining(), Draining { takes: 14.0, left: 10.0, fallen: 3.5, takes_all: false });
    level_0.rests(&first);
    assert_eq!(level_0.draining(), Draining { takes: 2.0, left: 1.0, fallen: 0.5, takes_all: false });
    level_0.has_come(&second, 1.5);
    assert_eq!(level_0.draining(), Draining { takes: 2.0, left: 0.0, fallen: 1.0, takes_all: false });
    level_0.rests(&second);
    assert_eq!(level_0.draining(), Draining::default(), "as the last one was");
}

#[test]
fn tables_from_before_the_store_was_opened_are_as_many_as_they_are() {
    let level_0 = Level0Drain::default();
    let share = level_0.is_drained(6_000, 12.0, 12.0);
    level_0.has_come(&share, 0.5);
    assert_eq!((level_0.draining().takes, level_0.draining().left), (12.0, 6.0));
}

/// Threads that merge pieces of one job say how far it has come at the same time.
#[test]
fn nothing_is_lost_between_threads() {
    for _ in 0..50 {
        let level_0 = Level0Drain::default();
        level_0.flushed(1, 1);
        let share = level_0.is_drained(777, 7.0, 12.0);
        std::thread::scope(|scope| {
            for n in 1..=4u64 {
                let (level_0, share) = (&level_0, &share);
                scope
                    .spawn(move || (0..100u64).for_each(|i| level_0.has_come(share, (i * n) as f64 / 450.0)));
            }
        });
        assert_eq!(level_0.jobs.done.load(Relaxed), 777 * 880 / 1000);
        level_0.rests(&share);
        assert_eq!(level_0.draining().left, 0.0);
        assert_eq!(level_0.jobs.fallen.load(Relaxed), 0);
    }
}
