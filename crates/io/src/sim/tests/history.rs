use super::*;
use std::collections::BTreeSet;

/// Random operations on few names, in steps of one or several operations, including failures. Stops
/// before the step that would begin at operation `end` or later.
fn run(seed: u64, end: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    let fs = sim.env().fs;
    let mut rng = Rng::new(seed);
    let mut appends: Vec<Box<dyn AppendFile>> = Vec::new();
    let log = in_place(&sim, "/log", 8);
    let map = fs.create_scratch(p("/map"), 4 * PAGE).unwrap();
    let _ = fs.create_dir_all(p("/d"));
    while sim.op_count() < end {
        let mut name = || format!("{}/f{}", ["", "/d"][rng.below(2) as usize], rng.below(8));
        let (name, other) = (name(), name());
        let byte = rng.next_u64() as u8 | 1;
        match rng.below(16) {
            0 => appends.extend(fs.create(p(&name), &CreateOptions::default())),
            1..=3 => {
                if let Some(file) = appends.last_mut() {
                    file.append(&vec![byte; rng.below(9000) as usize]).unwrap();
                    file.flush().unwrap();
                }
            }
            4 => drop(appends.last_mut().map(|file| file.sync(SyncKind::Data))),
            5..=6 => log.write_at(&filled(2, byte), rng.below(7) * PAGE as u64).unwrap(),
            7 => log.write_durable(&filled(1, byte), rng.below(8) * PAGE as u64).unwrap(),
            8 => log.sync_data().unwrap(),
            9 => map
                .write(rng.below(3 * PAGE as u64) as usize, &vec![byte; rng.below(5000).min(4096) as usize])
                .unwrap(),
            10 => drop(fs.rename(p(&name), p(&other))),
            11 => drop(fs.remove(p(&name))),
            12 => drop(fs.link(p(&name), p(&other))),
            13 => drop(fs.sync_dir(p(if byte > 99 { "/" } else { "/d" }))),
            14 => drop(fs.punch_hole(p(&name), 0, rng.below(9000))),
            _ => drop(fs.list(p("/d"))),
        }
    }
    sim
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 0..20 {
        let (a, b) = (run(seed, 400), run(seed, 400));
        assert_eq!(a.trace(), b.trace());
        assert_eq!((a.state_hash(), a.durable_hash()), (b.state_hash(), b.durable_hash()));
        assert_eq!((a.now_ns(), a.record().mutations()), (b.now_ns(), b.record().mutations()));
        let (a, b) = (a.crash(CrashKind::PowerLoss, seed), b.crash(CrashKind::PowerLoss, seed));
        assert_eq!(a.state_hash(), b.state_hash());
        assert_eq!(a.env().new_uid(), b.env().new_uid());
    }
    assert_ne!(run(1, 400).state_hash(), run(2, 400).state_hash());
}

#[test]
fn the_state_at_an_index_equals_a_truncated_run() {
    for seed in 0..4 {
        let whole = run(seed, 300).record();
        for end in 4..300 {
            let cut = run(seed, end);
            let op = cut.op_count();
            let killed = whole.crash_before(op, CrashKind::ProcessKill, end);
            assert_eq!(killed.state_hash(), cut.state_hash(), "seed {seed}, operation {op}");
            assert_eq!(killed.durable_hash(), cut.durable_hash(), "seed {seed}, operation {op}");
            let lost = |env: SimEnv| (env.state_hash(), env.env().new_uid());
            let from_whole = whole.crash_before(op, CrashKind::PowerLoss, end);
            assert_eq!(lost(from_whole), lost(cut.crash(CrashKind::PowerLoss, end)));
        }
    }
}

#[test]
fn after_a_loss_of_power_nothing_is_pending() {
    let record = run(5, 400).record();
    for op in record.mutations() {
        let after = record.crash_at(op, CrashKind::PowerLoss, op);
        assert_eq!(after.state_hash(), after.durable_hash());
        assert_eq!(after.crash(CrashKind::PowerLoss, 1).state_hash(), after.state_hash());
    }
}

#[test]
fn one_run_yields_many_distinct_crash_images() {
    let record = run(9, 300).record();
    let mut images = BTreeSet::new();
    let ops = record.mutations();
    for n in 0..2000u64 {
        let op = ops[n as usize % ops.len()];
        images.insert(record.crash_at(op, CrashKind::PowerLoss, n).state_hash());
    }
    assert!(images.len() > 1000, "{} distinct of 2000", images.len());
}

#[test]
fn a_crashed_state_can_crash_again() {
    let first = run(6, 200).record().crash_at(150, CrashKind::ProcessKill, 1);
    let fs = first.env().fs;
    let log = fs.open_in_place(p("/log"), Access::Direct).unwrap();
    log.write_at(&filled(1, 77), 0).unwrap();
    assert_eq!(first.op_count(), 2);
    let record = first.record();
    let unsynced_of_both: BTreeSet<u64> =
        (0..200).map(|seed| record.crash_at(2, CrashKind::PowerLoss, seed).state_hash()).collect();
    assert!(unsynced_of_both.len() > 20);
    let again = record.crash_at(1, CrashKind::PowerLoss, 3);
    assert!(again.now_ns() > first.now_ns());
}

/// Independent model of an in-place file: the set of possible versions of each sector.
struct Oracle(Vec<BTreeSet<u8>>);

impl Oracle {
    fn sectors(&mut self, page: u64, pages: usize) -> &mut [BTreeSet<u8>] {
        let per_page = PAGE / SECTOR;
        &mut self.0[page as usize * per_page..(page as usize + pages) * per_page]
    }

    fn check(&self, sim: &SimEnv, context: &str) {
        let bytes = sim.read_file("/log").unwrap();
        for (n, (sector, allowed)) in bytes.chunks(SECTOR).zip(&self.0).enumerate() {
            assert!(sector.iter().all(|b| *b == sector[0]), "sector {n} is torn inside ({context})");
            assert!(
                allowed.contains(&sector[0]),
                "sector {n} holds {}, not {allowed:?} ({context})",
                sector[0]
            );
        }
    }
}

#[test]
fn in_place_files_agree_with_an_oracle() {
    const PAGES: u64 = 6;
    for seed in 0..30 {
        let sim = SimEnv::new(seed);
        let mut rng = Rng::new(seed);
        let file = in_place(&sim, "/log", PAGES as usize);
        let mut oracle = Oracle(vec![BTreeSet::from([0]); PAGES as usize * PAGE / SECTOR]);
        let mut newest = vec![0u8; oracle.0.len()];
        for version in 1..120u8 {
            let page = rng.below(PAGES - 1);
            let op = sim.op_count();
            let (at, what) = (page * PAGE as u64, rng.below(8));
            match what {
                0..=4 => file.write_at(&filled(2, version), at).unwrap(),
                5..=6 => file.write_durable(&filled(2, version), at).unwrap(),
                _ => file.sync_data().unwrap(),
            }
            if what == 7 {
                oracle.0 = newest.iter().map(|v| BTreeSet::from([*v])).collect();
            } else {
                for allowed in oracle.sectors(page, 2) {
                    allowed.insert(version);
                }
                newest[page as usize * 8..page as usize * 8 + 16].fill(version);
                let record = sim.record();
                for try_seed in 0..4 {
                    let under_way = record.crash_at(op, CrashKind::PowerLoss, try_seed);
                    oracle.check(&under_way, "under way");
                }
            }
            if (5..=6).contains(&what) {
                oracle.sectors(page, 2).fill(BTreeSet::from([version]));
            }
            for try_seed in 0..4 {
                let after = sim.crash(CrashKind::PowerLoss, try_seed);
                oracle.check(&after, &format!("seed {seed}, version {version}"));
            }
        }
    }
}

#[test]
fn append_files_keep_every_synced_prefix() {
    for seed in 0..30 {
        let sim = SimEnv::new(seed);
        let mut rng = Rng::new(seed);
        let mut file = settled(&sim, "/t", b"");
        let (mut model, mut synced) = (Vec::new(), 0);
        for round in 0..40u8 {
            let more = vec![round + 1; rng.below(3000) as usize];
            file.append(&more).unwrap();
            model.extend(more);
            match rng.below(3) {
                0 => file.flush().unwrap(),
                1 => {
                    file.sync(SyncKind::Data).unwrap();
                    synced = model.len();
                }
                _ => {}
            }
            for try_seed in 0..6 {
                let bytes = sim.crash(CrashKind::PowerLoss, try_seed).read_file("/t").unwrap();
                assert!(bytes.len() >= synced && bytes.len() <= model.len().next_multiple_of(PAGE));
                assert_eq!(bytes[..synced], model[..synced]);
            }
        }
    }
}

#[test]
fn handles_may_be_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let sim = SimEnv::new(0);
    shared(&sim);
    shared(&sim.env());
    shared(&sim.record());
    assert!(sim.env().is_simulated());
}
