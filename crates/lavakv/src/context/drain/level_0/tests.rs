use super::*;

/// Threads that merge pieces of one job report progress concurrently.
#[test]
fn concurrent_progress_reports_are_not_lost() {
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
