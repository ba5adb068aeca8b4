//! Prints inserts and lookups per second (the best of ten rounds each): `cargo run --release -p
//! lavastore-memtable --example memtable_speed`.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock; it is not part of the engine")]

use base::{InternalIterator, MAX_SEQ, ValueKind};
use lavastore_memtable::MemTable;
use std::sync::Arc;
use std::time::Instant;

const VALUE: [u8; 200] = [7; 200];
const TABLE_BYTES: usize = 16 << 20;
const ROUNDS: u64 = 10;
const GETS: u64 = 200_000;

fn mix(n: u64) -> u64 {
    let x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 32)
}

/// Returns 24 bytes: random ones, or 16 decimal digits and a tail as in db_bench.
fn key(n: u64, decimal: bool) -> [u8; 24] {
    let mut key = [b'0'; 24];
    if decimal {
        let digits = format!("{n:016}");
        key[..16].copy_from_slice(digits.as_bytes());
    } else {
        (0..3).for_each(|i| key[i * 8..i * 8 + 8].copy_from_slice(&mix(n * 3 + i as u64).to_be_bytes()));
    }
    key
}

fn report(what: &str, operations: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{what}: {:.2} M/s ({:.0} ns)",
        operations as f64 / seconds / 1e6,
        seconds * 1e9 / operations as f64
    );
}

fn fill(table: &MemTable, keys: &[[u8; 24]]) -> u64 {
    let mut n = 0;
    for (seq, key) in (1..).zip(keys) {
        table.insert(seq, ValueKind::Value, key, &VALUE);
        n = seq;
        if table.bytes() >= TABLE_BYTES {
            break;
        }
    }
    n
}

fn run(name: &str, decimal: bool, order: impl Fn(u64) -> u64) {
    let keys: Vec<_> = (0..100_000).map(|n| key(order(n), decimal)).collect();
    let mut best = [f64::MAX; 2];
    let mut entries = 0;
    for id in 0..ROUNDS {
        let table = MemTable::new(id);
        let start = Instant::now();
        entries = fill(&table, &keys);
        best[0] = best[0].min(start.elapsed().as_nanos() as f64 / entries as f64);
        let start = Instant::now();
        let found = |i: &u64| table.get(&keys[(mix(*i) % entries) as usize], MAX_SEQ).is_some();
        assert_eq!((0..GETS).filter(found).count() as u64, GETS);
        best[1] = best[1].min(start.elapsed().as_nanos() as f64 / GETS as f64);
    }
    for (what, ns) in ["insert", "get"].iter().zip(best) {
        println!("{name}, {entries} entries: {what} {:.2} M/s ({ns:.0} ns)", 1e3 / ns);
    }
}

fn main() {
    run("random keys", false, |n| n);
    run("random decimal keys", true, |n| mix(n) % 100_000_000_000);
    run("ascending decimal keys", true, |n| n);
    let keys: Vec<_> = (0..400_000u64).map(|n| key(n, false)).collect();
    for threads in [1usize, 2, 4] {
        let table = MemTable::new(0);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for t in 0..threads {
                let (table, keys) = (&table, &keys);
                scope.spawn(move || {
                    for (i, key) in keys.iter().enumerate().skip(t).step_by(threads) {
                        table.insert(i as u64 + 1, ValueKind::Value, key, &VALUE);
                    }
                });
            }
        });
        report(
            &format!("{threads} threads: insert up to {} MiB", table.bytes() >> 20),
            keys.len() as u64,
            start,
        );
    }
    let table = Arc::new(MemTable::new(0));
    fill(&table, &keys);
    let mut iter = table.iter();
    let start = Instant::now();
    let mut steps = 0;
    if iter.seek_to_first().is_ok() {
        while iter.valid() && iter.next().is_ok() {
            steps += 1;
        }
    }
    report("next", steps, start);
    let start = Instant::now();
    let mut steps = 0;
    if iter.seek_to_last().is_ok() {
        while iter.valid() && iter.prev().is_ok() {
            steps += 1;
        }
    }
    report("prev", steps, start);
}
