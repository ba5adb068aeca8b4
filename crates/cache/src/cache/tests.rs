use super::*;
use crate::ENTRY_OVERHEAD_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn key(file: u64, n: u64) -> CacheKey {
    CacheKey { file, offset: n * 4096 }
}

fn block(len: usize) -> Block {
    vec![7u8; len].into()
}

fn charged(cache: &Cache) -> usize {
    let s = cache.stats();
    s.index.bytes as usize + s.data.bytes as usize + s.ghost_bytes
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Looks a block up and inserts it if it is missing, as a reader does. Returns true if it was
/// there.
fn read(cache: &Cache, segment: Segment, key: CacheKey, block: &Block) -> bool {
    let found = cache.get(segment, &key).is_some();
    if !found {
        cache.insert(segment, key, block);
    }
    found
}

#[test]
fn nothing_is_cached_without_a_budget() {
    let cache = Cache::new(0);
    cache.insert(Segment::Index, key(1, 1), &block(1));
    cache.insert(Segment::Data, key(1, 1), &block(0));
    assert_eq!(cache.get(Segment::Index, &key(1, 1)), None);
    let stats = cache.stats();
    assert_eq!((stats.index.declined, stats.index.misses, stats.data.entries), (1, 1, 0));
    cache.set_budget(64 << 20);
    cache.insert(Segment::Data, key(1, 1), &block(100));
    assert!(cache.get(Segment::Data, &key(1, 1)).is_some());
    cache.set_budget(0);
    assert_eq!(charged(&cache), 0);
}

#[test]
fn the_budget_holds_after_every_call() {
    for budget in [1, 100, 4096, 10_000, 100_000, 3 << 20, 20 << 20] {
        let cache = Cache::new(budget);
        let mut rng = Rng(budget as u64);
        let mut budget = budget;
        let blocks: Vec<Block> = [0, 1, 200, 4096, 5000, 70_000, 2 << 20].map(block).into();
        for i in 0..4000 {
            let segment = if rng.below(3) == 0 { Segment::Index } else { Segment::Data };
            let len_class = rng.below(if i % 50 == 0 { 7 } else { 5 }) as usize;
            read(&cache, segment, key(rng.below(5), rng.below(3000)), &blocks[len_class]);
            if i % 500 == 499 {
                budget = rng.below(2 * budget as u64 + 2) as usize;
                cache.set_budget(budget);
            }
            if i % 16 == 0 {
                let s = cache.stats();
                assert!(charged(&cache) <= budget, "{} over {budget}", charged(&cache));
                assert!(s.index.bytes <= s.index.capacity && s.data.bytes <= s.data.capacity);
            }
        }
    }
}

#[test]
fn overhead_is_charged_and_large_blocks_are_declined() {
    let cache = Cache::new(1 << 20);
    cache.insert(Segment::Data, key(1, 0), &block(1000));
    assert_eq!(cache.stats().data.bytes, 1000 + ENTRY_OVERHEAD_BYTES as u64);
    cache.insert(Segment::Data, key(1, 0), &block(1000));
    assert_eq!(cache.stats().data.entries, 1, "the same block again");
    assert_eq!(cache.stats().data.evictions, 0);
    cache.insert(Segment::Data, key(1, 1), &block(600 << 10));
    assert_eq!(cache.stats().data.declined, 1, "half of the budget is the index segment's");
    assert_eq!(cache.stats().data.entries, 1);
}

#[test]
fn a_scan_over_data_leaves_the_index_alone() {
    let cache = Cache::new(1 << 20);
    let b = block(4096);
    for n in 0..20 {
        cache.insert(Segment::Index, key(1, n), &b);
    }
    for n in 0..10_000 {
        read(&cache, Segment::Data, key(2, n), &b);
    }
    assert!((0..20).all(|n| cache.get(Segment::Index, &key(1, n)).is_some()));
    assert!(cache.stats().data.evictions > 9000);
    assert_eq!(cache.stats().data.returned_soon, 0);
}

#[test]
fn evicting_a_file_removes_its_blocks_from_the_cache() {
    let cache = Cache::new(8 << 20);
    let b = block(100);
    for file in 0..10 {
        for n in 0..50 {
            cache.insert(Segment::Data, key(file, n), &b);
            cache.insert(Segment::Index, key(file, n), &b);
        }
    }
    let entries = |c: &Cache| (c.stats().index.entries, c.stats().data.entries);
    assert_eq!(entries(&cache), (500, 500));
    cache.remove_file(3);
    cache.remove_file(77);
    assert_eq!(entries(&cache), (450, 450));
    cache.remove_files([4, 5, 99]);
    cache.remove_files([]);
    assert_eq!(entries(&cache), (350, 350));
    assert!(cache.get(Segment::Data, &key(4, 1)).is_none() && cache.get(Segment::Data, &key(6, 1)).is_some());
    assert_eq!(cache.stats().data.evictions, 0, "removal is not eviction");
}

/// A working set that is slightly too large for its segment, and little demand in the other: the
/// space follows.
#[test]
fn the_cache_share_follows_the_benefit() {
    let b = block(4000);
    for (hungry, modest) in [(Segment::Index, Segment::Data), (Segment::Data, Segment::Index)] {
        let cache = Cache::new(4 << 20);
        let mut rng = Rng(3);
        let mut hits = [0u32; 2];
        for i in 0..60_000 {
            let hit = read(&cache, hungry, key(1, rng.below(750)), &b);
            hits[i / 30_000] += u32::from(hit);
            read(&cache, modest, key(2, rng.below(20)), &b);
        }
        let s = cache.stats();
        let share = s.index_share_per_mille;
        let hungry_share = if hungry == Segment::Index { share } else { 1000 - share };
        assert!(hungry_share > 650, "{hungry:?} has only {hungry_share} per mille: {s:?}");
        assert!(hits[1] > hits[0], "more space, more hits: {hits:?}");
    }
}

#[test]
fn equal_calls_have_equal_results() {
    let run = || {
        let cache = Cache::new(2 << 20);
        let mut rng = Rng(11);
        let blocks: Vec<Block> = [40, 700, 4096, 9000].map(block).into();
        for i in 0..30_000 {
            let segment = if rng.below(2) == 0 { Segment::Index } else { Segment::Data };
            let n = rng.below(900);
            read(&cache, segment, key(n % 7, n), &blocks[(n % 4) as usize]);
            if i % 10_000 == 9999 {
                cache.remove_file(rng.below(7));
            }
        }
        let held: Vec<bool> = (0..900).map(|n| cache.get(Segment::Data, &key(n % 7, n)).is_some()).collect();
        (cache.stats(), held)
    };
    assert_eq!(run(), run());
}

#[test]
fn the_budget_holds_under_threads() {
    const BUDGET: usize = 6 << 20;
    let cache = Arc::new(Cache::new(BUDGET));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3u64)
            .map(|t| {
                let cache = &cache;
                scope.spawn(move || {
                    let mut rng = Rng(t);
                    let blocks: Vec<Block> = [300, 4096, 20_000].map(block).into();
                    for i in 0..20_000 {
                        let segment = if rng.below(2) == 0 { Segment::Index } else { Segment::Data };
                        let n = rng.below(1500);
                        read(cache, segment, key(n % 5, n), &blocks[(n % 3) as usize]);
                        if t == 0 && i % 4000 == 0 {
                            cache.set_budget(BUDGET - rng.below(2 << 20) as usize);
                            cache.remove_file(rng.below(5));
                        }
                    }
                })
            })
            .collect();
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let s = cache.stats();
                assert!(s.index.bytes + s.data.bytes + s.ghost_bytes as u64 <= BUDGET as u64, "{s:?}");
            }
        });
        workers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
}
