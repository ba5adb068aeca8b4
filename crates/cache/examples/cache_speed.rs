//! Prints the costs of lookups, inserts and the removal of a file: `cargo run --release -p
//! lavastore-cache --example cache_speed`.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock; it is not part of the engine")]

use lavastore_cache::{Block, Cache, CacheKey, Segment};
use std::time::Instant;

const BLOCKS: u64 = 100_000;
const LOOKUPS: u64 = 4_000_000;

fn key(n: u64) -> CacheKey {
    CacheKey { file: n % 64, offset: n / 64 * 4096 }
}

fn lookups(cache: &Cache, seed: u64, n: u64) -> u64 {
    let mut x = seed;
    (0..n)
        .filter(|_| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            cache.get(Segment::Data, &key((x >> 33) % BLOCKS)).is_some()
        })
        .count() as u64
}

fn main() {
    let cache = Cache::new(1 << 30);
    let blocks: Vec<Block> = (0..BLOCKS).map(|_| vec![0u8; 4096].into()).collect();
    let start = Instant::now();
    for (n, block) in (0..BLOCKS).zip(&blocks) {
        cache.insert(Segment::Data, key(n), block);
    }
    println!("insert: {:.0} ns", start.elapsed().as_nanos() as f64 / BLOCKS as f64);
    for threads in [1u64, 2, 4, 8] {
        let start = Instant::now();
        let found: u64 = std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads)
                .map(|t| {
                    scope.spawn({
                        let cache = &cache;
                        move || lookups(cache, t, LOOKUPS / threads)
                    })
                })
                .collect();
            all.into_iter().map(|t| t.join().unwrap_or(0)).sum()
        });
        let wall_ns = start.elapsed().as_nanos() as f64;
        println!(
            "get, {threads} threads: {:.0} ns a lookup, {:.1} M/s, {found} found",
            wall_ns * threads as f64 / LOOKUPS as f64,
            LOOKUPS as f64 * 1e3 / wall_ns
        );
    }
    let start = Instant::now();
    cache.remove_file(1);
    println!("remove_file: {:.0} ns an entry held", start.elapsed().as_nanos() as f64 / BLOCKS as f64);
    let small = Cache::new(64 << 20);
    let start = Instant::now();
    for (n, block) in (0..BLOCKS).zip(&blocks) {
        small.insert(Segment::Data, key(n), block);
    }
    println!("insert with eviction: {:.0} ns", start.elapsed().as_nanos() as f64 / BLOCKS as f64);
}
