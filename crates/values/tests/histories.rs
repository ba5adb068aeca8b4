//! Random histories: flushes, compactions and collections on real files, in any order and
//! overlapping. Every reference in every held version resolves to its value, and files are deleted
//! exactly when they are unreachable.

mod store;

use io::Rng;
use lavastore_values::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Compaction, FAMILY, Store};
use version::{Heat, IdMap, Record, Version, VsstClass};

/// A collection in progress.
struct Running {
    job: GcJob,
    version: Arc<Version>,
}

struct History {
    store: Store,
    rng: Rng,
    keys: u64,
    /// Ledger derived from check to check; `ledger_of` is its version.
    ledger: Ledger,
    ledger_of: Arc<Version>,
    compaction: Option<Compaction>,
    collections: Vec<Running>,
    /// Counters of events.
    installed: u64,
    emptied: u64,
    abandoned: u64,
    overtaken: u64,
    parted: u64,
    checked: u64,
    points: u64,
    joined: u64,
}

impl History {
    fn new(seed: u64) -> History {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let keys = rng.range(40, 600);
        History {
            store: Store::new(seed),
            rng,
            keys,
            ledger: Ledger::default(),
            ledger_of: Arc::new(Version::new(FAMILY)),
            compaction: None,
            collections: Vec::new(),
            installed: 0,
            emptied: 0,
            abandoned: 0,
            overtaken: 0,
            parted: 0,
            checked: 0,
            points: 0,
            joined: 0,
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..35 => (0..self.rng.below(40)).for_each(|_| self.store.write(&mut self.rng, self.keys)),
            35..50 => self.store.flush(&mut self.rng),
            50..60 if self.compaction.is_none() => {
                self.compaction = self.store.begin_compaction(&mut self.rng);
            }
            50..60 => {
                let job = self.compaction.take().expect("checked");
                self.store.finish_compaction(job, &mut self.rng);
            }
            60..66 => self.begin_collection(),
            66..88 if !self.collections.is_empty() => {
                for _ in 0..self.rng.below(40) {
                    let at = self.rng.below(self.collections.len() as u64) as usize;
                    self.step_collection(at);
                    if self.collections.is_empty() {
                        break;
                    }
                }
            }
            88..93 => self.store.prune(),
            93..96 => self.store.kept.push(self.store.version()),
            96..98 if !self.store.kept.is_empty() => {
                let at = self.rng.below(self.store.kept.len() as u64) as usize;
                self.store.kept.swap_remove(at);
            }
            _ => self.clean(),
        }
    }

    /// Removes files that no version or job holds. Of the vSSTs, collections hold their inputs, and
    /// compactions none.
    fn clean(&mut self) {
        let with = |version: &Version, vssts| Arc::new(Version { vssts, ..version.clone() });
        let inputs = |job: &GcJob| job.gc().inputs.iter().map(|v| (v.number, v.clone())).collect();
        let mut held: Vec<Arc<Version>> =
            self.collections.iter().map(|c| with(&c.version, inputs(&c.job))).collect();
        held.extend(self.compaction.iter().map(|c| with(&c.version, IdMap::new())));
        let writing: BTreeSet<u64> =
            self.collections.iter().flat_map(|c| c.job.created().iter().map(|(n, _)| *n)).collect();
        self.store.remove_files(&held, &writing);
    }

    fn begin_collection(&mut self) {
        let version = self.store.version();
        let ledger = Ledger::of(&version);
        let rng = &mut self.rng;
        let options = GcOptions {
            ratio_percent: rng.range(1, 60) as u32,
            file_bytes: if rng.one_in(2) { rng.range(300, 3000) } else { rng.range(3000, 30_000) },
            inputs_max: rng.range(1, 6) as usize,
            input_bytes_max: rng.range(1000, 200_000),
            step_bytes: rng.range(1, 4000),
            window_keys: rng.range(1, 300) as usize,
            window_key_bytes: rng.range(10, 4000) as usize,
            gap_bytes: rng.one_in(2).then(|| rng.below(2000)),
            lazy_read: !rng.one_in(4),
            pipelined: !rng.one_in(4),
            lookups: [Lookups::Cheaper, Lookups::Cheaper, Lookups::Join, Lookups::Points]
                [rng.below(4) as usize],
            abandon_percent: if rng.one_in(2) { 50 } else { 120 },
            warm_survivors: !rng.one_in(4),
        };
        let busy: BTreeSet<u64> = self.collections.iter().flat_map(|c| c.job.gc().numbers()).collect();
        let Some(gc) = pick(&version, &ledger, &options, &|v| busy.contains(&v.number)) else { return };
        let heat = gc.inputs[0].heat();
        assert!(gc.inputs.iter().all(|v| v.heat() == heat), "hot, warm and other files together");
        let is_warm = heat == Heat::Hot && options.warm_survivors;
        assert_eq!(gc.class == VsstClass::Hot, is_warm, "what survives");
        assert!(gc.inputs.iter().all(|v| !busy.contains(&v.number)));
        assert!(gc.inputs.len() <= options.inputs_max);
        let job = GcJob::new(gc, &version, options);
        self.collections.push(Running { job, version });
    }

    fn step_collection(&mut self, at: usize) {
        let running = &mut self.collections[at];
        let GcStep::Done(outcome) = running.job.step(&mut self.store.world).unwrap() else { return };
        let running = self.collections.swap_remove(at);
        let stats = running.job.stats();
        self.points += stats.point_lookups;
        self.joined += stats.joined_references;
        match outcome {
            GcOutcome::Replace { inputs, outputs } => {
                let version = self.store.version();
                if !inputs.iter().all(|n| version.vssts.contains_key(n)) {
                    // Its last reference disappeared meanwhile, and it was pruned.
                    self.overtaken += 1;
                    return;
                }
                let expected = running.job.gc();
                if expected.exact {
                    assert_eq!(stats.live_bytes, expected.expected_write, "exact is exact");
                }
                let live: u64 = outputs.iter().map(|o| o.record_bytes).sum();
                assert_eq!(live, stats.live_bytes);
                assert!(outputs.iter().all(|o| o.class == expected.class));
                self.installed += 1;
                self.emptied += u64::from(outputs.is_empty());
                self.parted += u64::from(outputs.len() > 1);
                self.store.commit(vec![Record::ReplaceVsst { family: FAMILY, inputs, outputs }]);
            }
            GcOutcome::Abandoned { measured } => {
                assert!(!running.job.gc().exact);
                assert_eq!(measured.len(), running.job.gc().inputs.len());
                self.abandoned += 1;
            }
        }
    }

    fn check(&mut self) {
        let current = self.store.version();
        self.checked += self.store.check(&current);
        for version in self.store.kept.clone() {
            self.checked += self.store.check(&version);
        }
        self.store.check_newest();
        let ledger = self.ledger.after(&self.ledger_of, &current);
        assert_eq!(ledger, Ledger::of(&current), "kept, and made anew");
        (self.ledger, self.ledger_of) = (ledger.clone(), current.clone());
        let (mut records, mut garbage) = (0, 0);
        for (number, file) in ledger.iter() {
            let referenced = current.referenced_in(number);
            assert_eq!(file.references, referenced.count);
            assert_eq!(file.referenced_bytes, referenced.stored_bytes.min(file.record_bytes));
            assert_eq!(file.record_bytes, current.vssts.get(&number).unwrap().record_bytes);
            if file.exact {
                assert!(referenced.stored_bytes <= file.record_bytes, "more is referenced than is there");
            }
            records += file.record_bytes;
            garbage += file.garbage_bytes;
        }
        assert_eq!(records, ledger.record_bytes());
        if ledger.iter().all(|(_, f)| f.exact) {
            assert_eq!(garbage, ledger.exposed_bytes());
        }
    }

    /// Ends all jobs, deletes every key, and compacts until nothing is left.
    fn wind_up(&mut self) {
        while !self.collections.is_empty() {
            self.step_collection(0);
        }
        self.store.kept.clear();
        if let Some(job) = self.compaction.take() {
            self.store.finish_compaction(job, &mut self.rng);
        }
        assert!(self.store.pins.is_empty());
        self.check();
        self.store.delete_all();
        self.store.flush(&mut self.rng);
        for _ in 0..400 {
            if let Some(job) = self.store.begin_compaction(&mut self.rng) {
                self.store.finish_compaction(job, &mut self.rng);
            }
            if self.store.version().table_count() == 0 {
                break;
            }
        }
        self.store.prune();
        let version = self.store.version();
        assert_eq!(version.table_count(), 0);
        assert!(version.vssts.is_empty() && version.aliases.is_empty(), "{}", version.describe());
        self.clean();
        assert_eq!(self.store.file_count(), 0, "files that nothing can reach");
    }
}

#[test]
fn every_reference_of_every_version_resolves_to_its_value() {
    let mut sums = [0u64; 8];
    for seed in 0..24 {
        let mut history = History::new(seed);
        for step in 0..400 {
            history.step();
            if step % 50 == 49 {
                history.clean();
                history.check();
            }
        }
        history.wind_up();
        let h = &history;
        let seen =
            [h.installed, h.emptied, h.abandoned, h.overtaken, h.parted, h.checked, h.points, h.joined];
        sums.iter_mut().zip(seen).for_each(|(sum, n)| *sum += n);
    }
    let [installed, emptied, abandoned, overtaken, parted, checked, points, joined] = sums;
    println!("{sums:?}");
    assert!(installed > 250 && emptied > 20 && parted > 20 && checked > 100_000, "too thin: {sums:?}");
    assert!(abandoned > 0 && overtaken > 0 && points > 1000 && joined > 1000, "too thin: {sums:?}");
}
