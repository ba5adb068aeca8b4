//! Which limits there may be.

use crate::common::*;
use crate::overwrites::{bytes, family, kept, limited, occupied};
use lavastore_lavakv::{Db, ErrorKind, Options, SpaceLimit, io::Rng, sim::SimEnv};

/// What a store with these options must have at least, as the refusal of less says.
pub fn least_limit(options: Options) -> u64 {
    let e = Db::open_in(env(&SimEnv::new(1)), DIR, options).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    let text = e.to_string();
    let needed = text.split("at least ").nth(1).and_then(|t| t.split(' ').next()).unwrap();
    needed.parse().unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn a_limit_below_the_reserve_is_refused_with_what_is_needed() {
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

/// A ratio: an empty store grows without being held up for ever, and stays within the ratio as it is overwritten.
#[test]
fn a_ratio_of_live_data() {
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

/// What a family keeps in reserve follows what it has: one made for large files does not take the room of a small store.
#[test]
fn a_family_of_large_files_leaves_a_small_store_its_room() {
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
