use super::*;
use base::hash::key_hash;
use std::thread;

fn hash(i: u64) -> u64 {
    key_hash(format!("user key {i}").as_bytes())
}

fn remember(cache: &DropCache, keys: std::ops::Range<u64>) {
    keys.for_each(|i| cache.remember(hash(i)));
}

/// Returns the number of keys of a range that are classified as hot.
fn hot(cache: &DropCache, keys: std::ops::Range<u64>) -> u64 {
    keys.filter(|&i| cache.is_hot(hash(i))).count() as u64
}

#[test]
fn memory_is_as_configured_and_a_key_takes_four_bytes() {
    for bytes in [256, 4 << 10, 1 << 20] {
        let cache = DropCache::new(bytes);
        cache.remember(hash(1));
        assert_eq!(cache.bytes(), bytes);
        assert_eq!(cache.bytes() / cache.keys_max(), 4);
    }
    let cache = DropCache::new(0);
    cache.remember(hash(1));
    assert_eq!(cache.bytes(), 256);
}

/// A store may have thousands of families, and most of them overwrite nothing.
#[test]
fn an_empty_drop_cache_allocates_nothing() {
    let cache = DropCache::new(1 << 20);
    cache.set_live_keys(1 << 20);
    cache.book(1000, 0);
    assert!(!cache.is_hot(hash(1)));
    assert_eq!((cache.parting(), cache.bytes()), (HotColdSplit::AllCold, 0));
}

#[test]
fn a_key_dropped_within_one_generation_of_others_is_hot() {
    let cache = DropCache::new(64 << 10);
    let generation = cache.keys_max() as u64;
    assert_eq!(hot(&cache, 0..generation), 0);
    for i in 0..generation * 10 {
        cache.remember(hash(i));
        // Checks all keys that a generation holds now and then.
        if i % 1999 == 0 {
            let from = i.saturating_sub(generation - 1);
            assert_eq!(hot(&cache, from..i + 1), i + 1 - from, "{i}");
        }
    }
}

#[test]
fn old_drops_are_forgotten_unless_repeated() {
    let cache = DropCache::new(64 << 10);
    let generation = cache.keys_max() as u64;
    remember(&cache, 0..generation / 4);
    for round in 1..10 {
        remember(&cache, round * generation..round * generation + generation / 2);
        remember(&cache, 0..100);
    }
    assert_eq!(hot(&cache, 0..100), 100);
    assert!(hot(&cache, 100..generation / 4) < generation / 4 / 20);
}

#[test]
fn false_positives_are_rare() {
    let cache = DropCache::new(64 << 10);
    let generation = cache.keys_max() as u64;
    // One key before a rotation: both generations are as full as they get.
    let mut i = 0;
    while cache.keys.load(Relaxed) + 1 < cache.keys_max() || i < generation * 3 / 2 {
        cache.remember(hash(i));
        i += 1;
    }
    let strangers = 1 << 40..(1 << 40) + 100_000;
    let taken = hot(&cache, strangers);
    assert!(taken < 3000, "{taken} of 100,000");
}

#[test]
fn at_most_a_bounded_share_of_keys_is_remembered() {
    let cache = DropCache::new(1 << 20);
    let keys = 40_000;
    cache.set_live_keys(keys);
    assert_eq!(cache.keys_max() as u64, keys / KEYS_PART);
    for round in 0..3 {
        remember(&cache, 0..keys);
        assert!(hot(&cache, 0..keys) <= keys * 2 / KEYS_PART + keys / 100, "round {round}");
    }
    cache.set_live_keys(0);
    assert_eq!(cache.keys_max(), KEYS_MIN);
    cache.set_live_keys(u64::MAX);
    assert_eq!(cache.keys_max(), (1 << 20) / 4, "as many as fit");
}

#[test]
fn skewed_keys_are_classified_hot_and_cold() {
    let cache = DropCache::new(64 << 10);
    assert_eq!(cache.parting(), HotColdSplit::AllCold, "nothing was asked yet");
    cache.book(1000, 125);
    assert_eq!(cache.parting(), HotColdSplit::AllCold, "as with uniform keys");
    (0..5).for_each(|_| cache.book(1000, 600));
    assert_eq!(cache.parting(), HotColdSplit::ByKey);
    (0..40).for_each(|_| cache.book(1000, 1000));
    assert_eq!(cache.parting(), HotColdSplit::AllHot);
    cache.book(0, 0);
    assert_eq!(cache.parting(), HotColdSplit::AllHot, "a flush without values says nothing");
    (0..40).for_each(|_| cache.book(u64::MAX, 0));
    assert_eq!(cache.parting(), HotColdSplit::AllCold);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the cache is for any number of threads")]
fn keys_remembered_after_concurrent_inserts_stay_hot() {
    let cache = DropCache::new(16 << 10);
    let generation = cache.keys_max() as u64;
    thread::scope(|scope| {
        for t in 0..4 {
            let cache = &cache;
            scope.spawn(move || remember(cache, t << 32..(t << 32) + generation * 5));
        }
    });
    assert!(cache.keys.load(Relaxed) < cache.keys_max());
    remember(&cache, 1 << 50..(1 << 50) + generation / 2);
    assert_eq!(hot(&cache, 1 << 50..(1 << 50) + generation / 2), generation / 2);
}
