use crate::{Db, Options, SpaceLimit, context::family_options::FamilyOptions, sim::SimEnv};
use std::time::Duration;

const DIR: &str = "/store";

thread_local! {
    /// Number of recomputations of the reserve, on this thread.
    pub(crate) static SUMS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn small() -> Options {
    Options {
        memtable_bytes: 32 << 10,
        memory_bytes: 96 << 10,
        cache_bytes: 64 << 10,
        family: FamilyOptions::default().expert(|expert| {
            expert.file_bytes = 16 << 10;
            expert.level_base_bytes = 64 << 10;
            expert.vsst_bytes = 32 << 10;
        }),
        ..Options::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 128 << 10;
        expert.wal_bytes_max = 512 << 10;
    })
}

fn listed(sim: &SimEnv) -> u64 {
    sim.env().fs.list(std::path::Path::new(DIR)).unwrap().iter().map(|e| e.allocated).sum()
}

/// The accounted bytes are never less than those in the directory, and equal once the store is
/// idle.
#[test]
fn the_count_agrees_with_the_directory() {
    let sim = SimEnv::new(5);
    let mut rng = io::Rng::new(5);
    let mut peak = 0;
    for round in 0..4u64 {
        let db = Db::open_in(sim.env(), DIR, small()).unwrap();
        assert_eq!(db.engine().space.used_bytes(), listed(&sim), "after open {round}");
        for i in 0..3000u64 {
            let key = format!("key{:05}", rng.below(600));
            match rng.below(20) {
                0 => db.delete(key.as_bytes()).unwrap(),
                1 if i % 100 == 0 => db.flush().unwrap(),
                2 => db.put(key.as_bytes(), &vec![7; 100 + rng.below(50_000) as usize]).unwrap(),
                _ => db.put(key.as_bytes(), &vec![7; rng.below(3000) as usize]).unwrap(),
            }
            let (counted, there) = (db.engine().space.used_bytes(), listed(&sim));
            assert!(counted >= there, "counted {counted} bytes of {there}");
            peak = peak.max(counted - there);
        }
        assert!(db.wait_idle(Duration::from_secs(60)));
        assert_eq!(db.engine().space.used_bytes(), listed(&sim), "at rest {round}");
        assert_eq!(db.engine().space.used_bytes(), db.space().unwrap().total_bytes);
        sim.set_capacity(Some(sim.used() * 4));
        sim.advance_ns(1_000_000_000);
        db.flush().unwrap();
        db.put(b"key", &[1; 5000]).unwrap();
        db.flush().unwrap();
        assert!(
            (24..=26).contains(&db.engine().space.fill_percent()),
            "{}",
            db.engine().space.fill_percent()
        );
        sim.set_capacity(None);
    }
    // The reservations of jobs are part of the count.
    assert!(peak > 0 && peak < 1 << 20, "{peak}");
}

/// An idle store under a limit queries the volume ten times a second, but sums its files up only
/// when the result matters.
#[test]
fn an_idle_store_does_not_recompute_space_sums() {
    let sim = SimEnv::new(6);
    let limit = Some(SpaceLimit::Bytes(16 << 20));
    let db = Db::open_in(sim.env(), DIR, Options { space_limit: limit, ..small() }).unwrap();
    for i in 0..400u64 {
        db.put(format!("key{i}").as_bytes(), &vec![7; 2000]).unwrap();
    }
    assert!(db.wait_idle(Duration::from_secs(60)));
    let look_for_a_second = || {
        let before = SUMS.get();
        for _ in 0..10 {
            sim.advance_ns(store::space::ASK_NS);
            while db.run_background_step() {}
        }
        SUMS.get() - before
    };
    look_for_a_second();
    assert_eq!(look_for_a_second(), 0, "the volume has room enough");
    // Other programs take the space below the limit.
    sim.set_capacity(Some(sim.used() + (1 << 20)));
    assert!((1..=2).contains(&look_for_a_second()));
    let narrow = db.engine().space.limit_bytes();
    assert!(narrow < 16 << 20, "the store has not more than the volume: {narrow}");
    assert_eq!(look_for_a_second(), 0, "nothing has changed since");
    sim.set_capacity(None);
    assert!((1..=2).contains(&look_for_a_second()));
    assert_eq!(db.engine().space.limit_bytes(), 16 << 20, "room came back");
}
