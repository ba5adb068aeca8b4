//! The range of valid limits.

use crate::common::*;
use crate::overwrites::{Filled, bytes, family, kept, limited, occupied};
use lavastore_lavakv::io::{Priority, Rng};
use lavastore_lavakv::sim::{SimEnv, threads::Plan};
use lavastore_lavakv::{Db, Env, ErrorKind, Options, SpaceLimit};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the smallest limit for these options, from the refusal of a smaller one.
pub fn least_limit(options: Options) -> u64 {
    let e = Db::open_in(env(&SimEnv::new(1)), DIR, options).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    let text = e.to_string();
    let needed = text.split("at least ").nth(1).and_then(|t| t.split(' ').next()).unwrap();
    needed.parse().unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn a_limit_below_the_reserve_is_refused_with_the_minimum() {
    let sim = SimEnv::new(1);
    let needed = least_limit(limited(100 << 10));
    fails(Db::open_in(env(&sim), DIR, limited(needed - 1)), ErrorKind::InvalidArgument);
    let db = Db::open_in(env(&sim), DIR, limited(needed)).unwrap();
    for i in 0..20 {
        db.put(&key(i), &value(i, 0)).unwrap();
    }
    for ratio in [0.5, 1.0, f64::NAN, f64::INFINITY] {
        let options = Options { space_limit: Some(SpaceLimit::Ratio(ratio)), ..limited(0) };
        fails(Db::open_in(env(&sim), "/other", options), ErrorKind::InvalidArgument);
    }
}

/// With a ratio as limit, an empty store can grow, and stays within the ratio under overwrites.
#[test]
fn a_relative_limit_follows_the_live_data() {
    let sim = SimEnv::new(3);
    let options = Options { space_limit: Some(SpaceLimit::Ratio(1.5)), ..limited(0) };
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    let mut rng = Rng::new(3);
    let (n, len) = (2000u64, 2500);
    let mut peak = 0;
    for round in 0..3 * n {
        let k = if round < n { round * 7919 % n } else { rng.below(n) };
        db.put(&key(k), &bytes(k, round, len)).unwrap_or_else(|e| panic!("{round}: {e}\n{}", db.describe()));
        db.run_background_step();
        peak = peak.max(occupied(&sim));
    }
    let live = n * (len as u64 + 40);
    assert!(peak < live * 3 / 2 + live / 20, "{peak} bytes at {live} live");
    settle(&db);
    assert!(db.stats().stall_space_ns > 0 || peak < live * 7 / 5);
}

/// The reserve of a family follows its data: a family for large files does not take the room of a
/// small store.
#[test]
fn a_large_file_family_leaves_space_in_a_small_store() {
    let sim = SimEnv::new(3);
    let db = Db::open_in(env(&sim), DIR, limited(1 << 20)).unwrap();
    let large = family().expert(|expert| expert.vsst_bytes = 64 << 20);
    let large = db.create_column_family("large", large).unwrap();
    for n in 0..40 {
        db.put(&key(n), &bytes(n, 0, 600)).unwrap_or_else(|e| panic!("{n}: {e}"));
        db.put_cf(&large, &key(n), &bytes(n, 0, 600)).unwrap_or_else(|e| panic!("{n}: {e}"));
    }
    db.flush().unwrap();
    for n in 0..40 {
        db.delete_cf(&large, &key(n)).unwrap_or_else(|e| panic!("{n}: {e}"));
        kept(&sim, 1 << 20);
    }
}

/// The limit of an open store changes at random: its files keep to it or shrink to it, and deletes
/// are always admitted.
#[test]
fn a_limit_changes_while_the_store_is_open() {
    for seed in 1..7 {
        let mut s = Filled::new(seed, limited(4 << 20), 4 << 20);
        let mut rng = Rng::new(seed);
        let (mut admitted, mut refused) = (0, 0);
        for round in 0..3000u64 {
            if rng.one_in(150) {
                let mib = [Some(1), Some(2), Some(4), Some(8), None][rng.below(5) as usize];
                let limit = mib.map(|mib| SpaceLimit::Bytes(mib << 20));
                s.db.set_space_limit(limit).unwrap();
                // A store above a lower limit may keep its present size until it has shrunk.
                let limit = mib.map_or(u64::MAX, |mib| mib << 20);
                s.limit = most_after(&s.db, occupied(&s.sim), limit);
            }
            let k = rng.below(1500);
            if rng.one_in(3) {
                s.delete(k);
            } else if s.put(k, bytes(k, round, 2500)) {
                admitted += 1;
            } else {
                refused += 1;
            }
            s.steps(rng.below(4));
        }
        assert!(admitted > 500 && refused > 10, "seed {seed}: {admitted} puts admitted, {refused} refused");
        // Down to a low limit: writes are refused until enough is deleted, then admitted.
        let low = 3 << 20;
        s.db.set_space_limit(Some(SpaceLimit::Bytes(low))).unwrap();
        (0..1500).for_each(|k| s.delete(k));
        settle(&s.db);
        kept(&s.sim, low);
        s.limit = low;
        assert!(s.put(1, bytes(1, 0, 2500)), "{}", s.refusal);
        s.check(limited(low));
    }
}

#[test]
fn an_invalid_limit_keeps_the_old_one() {
    let sim = SimEnv::new(1);
    let db = Db::open_in(env(&sim), DIR, limited(2 << 20)).unwrap();
    for limit in [SpaceLimit::Bytes(10_000), SpaceLimit::Ratio(1.0)] {
        fails(db.set_space_limit(Some(limit)), ErrorKind::InvalidArgument);
    }
    assert_eq!(db.space().unwrap().limit_bytes, 2 << 20);
}

/// Returns the most bytes that the files may occupy after a change of the limit: a store above it
/// keeps its present claims until it has shrunk.
fn most_after(db: &Db, occupied: u64, limit: u64) -> u64 {
    let unflushed = 2 * db.space().unwrap().memtable_bytes;
    limit.max(occupied.saturating_add(db.space().unwrap().reserve_bytes).saturating_add(unflushed))
}

fn occupied_in(env: &Env) -> u64 {
    env.fs.list(Path::new(DIR)).unwrap().iter().map(|e| e.allocated).sum()
}

/// Two writers, and a thread that changes the limit, under schedules.
#[test]
fn no_schedule_lets_a_writer_over_a_changed_limit() {
    for seed in 0..40 {
        let sim = SimEnv::new(seed);
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let db = Arc::new(Db::open_in(env.clone(), DIR, limited(8 << 20)).unwrap());
            let most = Arc::new(AtomicU64::new(8 << 20));
            let spawn = |work: Box<dyn FnOnce() + Send>| {
                env.spawner.as_ref().unwrap().spawn("foreground", Priority::Foreground, work).unwrap()
            };
            let writer = |n: u64| {
                let (db, most, env) = (db.clone(), most.clone(), env.clone());
                spawn(Box::new(move || {
                    for round in 0..60 {
                        let k = 2 * (round % 40) + n;
                        match round % 3 {
                            0 => db.delete(&key(k)).unwrap(),
                            _ => match db.put(&key(k), &bytes(k, round, 14_000)) {
                                Ok(()) => {}
                                Err(e) => assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}"),
                            },
                        }
                        let before = most.load(Ordering::SeqCst);
                        let there = occupied_in(&env);
                        assert!(
                            there <= before || most.load(Ordering::SeqCst) != before,
                            "{there} of {before}"
                        );
                    }
                }))
            };
            let threads = [writer(0), writer(1)];
            for mib in [2, 1, 4, 1, 8] {
                // No check during the change.
                most.store(u64::MAX, Ordering::SeqCst);
                db.set_space_limit(Some(SpaceLimit::Bytes(mib << 20))).unwrap();
                most.store(most_after(&db, occupied_in(env), mib << 20), Ordering::SeqCst);
            }
            threads.into_iter().for_each(|thread| assert!(thread.join(), "a thread panicked"));
        });
        if let Err(stuck) = ran {
            panic!("seed {seed}: {}", stuck.0);
        }
    }
}

/// A limit in percent of the volume follows a growing volume. On the simulated disk, whose capacity
/// can change.
#[test]
fn a_limit_in_percent_follows_the_volume() {
    let sim = SimEnv::new(1);
    sim.set_capacity(Some(8 << 20));
    let options = Options { space_limit: Some(SpaceLimit::VolumePercent(50)), ..limited(0) };
    let env = sim.env();
    let db = Db::open_in(env.clone(), DIR, options.clone()).unwrap();
    let fill = |from: u64, limit: u64| {
        for n in from..from + 10_000 {
            match db.put(&key(n), &bytes(n, 0, 2500)) {
                Ok(()) => assert!(occupied_in(&env) <= limit, "{} bytes of {limit}", occupied_in(&env)),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                    return n;
                }
            }
            db.run_background_step();
        }
        panic!("it never filled up");
    };
    let first = fill(0, 4 << 20);
    assert!(first * 2500 > 2 << 20, "{first} entries in half of the volume");
    assert_eq!(db.space().unwrap().limit_bytes, 4 << 20);
    sim.set_capacity(Some(16 << 20));
    sim.advance_ns(1_000_000_000);
    db.delete(&key(0)).unwrap();
    settle(&db);
    let second = fill(first, 8 << 20);
    assert!((second - first) * 2500 > 2 << 20, "{second} entries after {first}");
    for percent in [0, 101] {
        let options = Options { space_limit: Some(SpaceLimit::VolumePercent(percent)), ..options.clone() };
        fails(Db::open_in(env.clone(), "/other", options), ErrorKind::InvalidArgument);
    }
}
