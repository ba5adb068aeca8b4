//! The order of work: its written bytes, and the peak of space. Bytes and space, not times.

use crate::common::*;
use crate::garbage_bound::Overwriter;
use crate::*;
use lavastore_lavakv::{Ablation, PolicyChoice, SpaceLimit};

/// Result of random overwrites.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    /// Bytes of tables and values written per byte of values.
    written: f64,
    /// The part of `written` by collections; `merged`: by compactions.
    copied: f64,
    merged: f64,
    /// Peak of records per live byte.
    peak: f64,
    exposures: u64,
}

/// A load of overwrites.
#[derive(Clone, Copy, Debug)]
struct Load {
    keys: u64,
    len: usize,
    /// Divisor of the data that gives the length of a memtable.
    part: u64,
    policy: &'static str,
    /// Percent of the data.
    limit: Option<u64>,
}

/// Overwrites all values of a store several times, without one of the mechanisms.
fn overwritten(seed: u64, load: Load, without: Option<&str>) -> Seen {
    let Load { keys, len, part, policy, limit } = load;
    let data = keys * len as u64;
    let policy = PolicyChoice::named(policy).unwrap();
    let ablation = Ablation::without(without).unwrap();
    let family = FamilyOptions { policy, ..apart_family(200) }
        .expert(|expert| expert.vsst_bytes = (data / 64).next_power_of_two());
    let options = Options {
        memtable_bytes: (data / part) as usize,
        memory_bytes: 2 << 20,
        space_limit: limit.map(|times| SpaceLimit::Bytes(times * data / 100)),
        family,
        ..small()
    }
    .expert(|expert| {
        expert.log_group_bytes = 512 << 10;
        expert.wal_bytes_max = 4 << 20;
        expert.ablation = ablation;
    });
    let mut store = Overwriter::open(seed, keys, len, options);
    for _ in 0..keys {
        store.overwrite(1);
    }
    let before = store.db.stats();
    let mut peak = 0.0f64;
    let overwrites = 5 * keys;
    for nth in 0..overwrites {
        store.overwrite(1);
        if nth % 8 == 0 {
            let records = store.db.gc_plan(Default::default()).unwrap().record_bytes;
            peak = peak.max(records as f64 / data as f64);
        }
    }
    let after = store.db.stats();
    let user = (overwrites * len as u64) as f64;
    let of = |bytes: fn(&lavastore_lavakv::Statistics) -> u64| (bytes(&after) - bytes(&before)) as f64 / user;
    let (copied, merged) = (of(|s| s.gc_bytes_written), of(|s| s.compaction_bytes_written));
    let written = of(|s| s.flush_bytes_written) + copied + merged;
    assert!(store.db.verify().unwrap().errors.is_empty());
    let exposures = after.compaction_exposures - before.compaction_exposures;
    Seen { written, copied, merged, peak, exposures }
}

const LOAD: Load = Load { keys: 2000, len: 1000, part: 8, policy: "leveled", limit: None };

/// Where few flushes hide as much garbage as the throttle allows, a compaction that no level needs
/// exposes it: the store takes less space for few more bytes written.
#[test]
fn unexposed_garbage_is_exposed_first() {
    for (keys, len) in [(500, 4000), (250, 8000)] {
        let load = Load { keys, len, part: 5, ..LOAD };
        let [on, off] = [None, Some("exposing_first")].map(|without| overwritten(1, load, without));
        println!("{len} B: {on:.3?}\n  without: {off:.3?}");
        assert!(on.exposures > 0 && off.exposures == 0, "{on:?} {off:?}");
        assert!(on.peak + 0.1 < off.peak && on.written < 1.15 * off.written, "{on:?} {off:?}");
    }
}

/// With most of a limit unused less is copied, with more space in use; without a limit nothing
/// changes.
#[test]
fn free_space_below_the_limit_saves_copies() {
    let at = |limit, without| overwritten(1, Load { part: 32, limit, ..LOAD }, without);
    let [roomy, as_ever] = [None, Some("lazy_with_room")].map(|without| at(Some(2000), without));
    println!("{roomy:.3?}\n{as_ever:.3?}");
    assert!(roomy.copied < 0.8 * as_ever.copied && roomy.written < as_ever.written, "{roomy:?} {as_ever:?}");
    assert!(as_ever.peak < roomy.peak && roomy.peak < 2.0, "{roomy:?} {as_ever:?}");
    assert_eq!(at(None, None), at(None, Some("lazy_with_room")));
}
