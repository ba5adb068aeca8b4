//! Division of threads between compactions and collections in a busy store, by equations 4 to 6
//! (`plan::slots`), with four and with eight threads.

use super::*;
use crate::context::ablation::Ablation;
use crate::tree::summary::Pressure;
use io::Rng;

/// Samples between steps of jobs.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    looks: usize,
    /// Threads that the equations assign to collections, and their slots; sums over all samples.
    due: f64,
    given: usize,
    /// Running collections and compaction jobs; sums and maxima.
    collections: usize,
    merges: usize,
    collections_max: usize,
    merges_max: usize,
}

impl Shares {
    fn look(&mut self, jobs: &Jobs, threads: usize) {
        let mut pressure = Pressure::default();
        jobs.tree.families.all().iter().for_each(|of| pressure.add(&of.read_state().summary.pressure));
        let set = lock(&jobs.in_progress);
        let (collections, merges) = (set.running.collections, set.running.merges());
        self.looks += 1;
        self.due += threads as f64 * pressure.gc_share();
        self.given += set.learned.gc_slots;
        self.collections += collections;
        self.merges += merges;
        self.collections_max = self.collections_max.max(collections);
        self.merges_max = self.merges_max.max(merges);
    }

    fn mean(&self, sum: usize) -> f64 {
        sum as f64 / self.looks as f64
    }
}

/// Runs a store with `keys` values of `len` bytes, half of which are overwritten repeatedly.
fn at_work(threads: usize, ablation: Ablation, (keys, len): (u64, usize)) -> Shares {
    let sim = SimEnv::new(threads as u64);
    let options =
        Options { background_threads: threads, ..options() }.expert(|expert| expert.ablation = ablation);
    let db = Db::open_in(sim.env(), "/store", options).unwrap();
    let (jobs, mut rng, mut shares) = (&db.engine().jobs, Rng::new(1), Shares::default());
    let mut value = vec![0; len];
    for i in 0..6 * keys {
        let at = if i < keys { i } else { rng.below(keys) };
        rng.fill(&mut value);
        db.put(&key(at), &value).unwrap();
        if i < keys {
            continue;
        }
        db.run_background_step();
        shares.look(jobs, threads);
    }
    assert!(db.verify().unwrap().errors.is_empty());
    shares
}

/// With garbage of overwritten values, collections get their share of threads, and compactions at
/// least one. Without garbage, compactions have all threads but one.
#[test]
fn threads_are_shared_out_by_the_pressures() {
    for threads in [4, 8] {
        let values = at_work(threads, Ablation::default(), (4000, 700));
        let (due, given) = (values.due / values.looks as f64, values.mean(values.given));
        println!("{threads} threads: {due:.2} due to collections, {given:.2} given: {values:?}");
        let most = threads as f64 - 1.0;
        assert!(due > threads as f64 / 2.0 && (due.min(most) - given).abs() < 0.75, "{values:?}");
        // With garbage at its bound, collections also take idle threads, up to all of them. The
        // total may exceed the threads, because preempted jobs count as running.
        assert!(
            (1..=threads).contains(&values.merges_max) && values.collections_max <= threads,
            "{values:?}"
        );
        let fixed = Ablation::without(["gc_threads", "gc_threshold", "gc_pace"]).unwrap();
        let unshared = at_work(threads, fixed, (4000, 700));
        assert!(
            unshared.mean(unshared.collections) > 0.75 * threads as f64,
            "all they can get: {unshared:?}"
        );
        assert!(2 * values.collections < unshared.collections + values.collections / 5, "{values:?}");

        let tables = at_work(threads, Ablation::default(), (10_000, 100));
        assert_eq!((tables.mean(tables.given), tables.collections), (1.0, 0), "{tables:?}");
        assert!(tables.merges_max > threads / 2, "{tables:?}");
    }
}
