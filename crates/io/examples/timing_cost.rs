//! Cost of timing an operation: nanoseconds for each of ten million, on one thread and on two.
//!
//! ```text
//! cargo run --release -p lavastore-io --example timing_cost
//! ```
//!
//! `record` is a value whose timestamps the caller has; `clock` is one clock reading; `each` is an
//! operation that is timed every time, with two readings; `sampled` is one that is timed by
//! samples.

use lavastore_io::{Env, timing::Timing};
use std::hint::black_box;

const RECORDS: u64 = 10_000_000;

/// Nanoseconds per operation of `count`.
fn each_of(env: &Env, count: u64, one: impl Fn(u64)) -> f64 {
    let begun_ns = env.clock.now_ns();
    (0..count).for_each(one);
    (env.clock.now_ns() - begun_ns) as f64 / count as f64
}

/// The same on several threads, each of which does `RECORDS / threads` operations.
fn on_threads(env: &Env, threads: u64, one: impl Fn(u64) + Sync) -> f64 {
    let times = std::thread::scope(|scope| {
        let started: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| each_of(env, RECORDS / threads, &one))).collect();
        started.into_iter().map(|thread| thread.join().expect("a thread that counts")).sum::<f64>()
    });
    times / threads as f64
}

/// Keeps the compiler from removing the value.
fn touch(value: u64) {
    black_box(value);
}

fn main() {
    let env = Env::kernel();
    let (rare, frequent) = (Timing::each(&env), Timing::sampled(&env));
    // Values like those of operations: from 200 ns to some milliseconds.
    let value = |i: u64| 200 + (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (42 + i % 16));
    println!("{RECORDS} records, nanoseconds each:");
    let loop_ns = each_of(&env, RECORDS, |i| touch(value(i)));
    println!("  the loop itself        {loop_ns:6.1}");
    for (name, timing) in [("one stripe", &rare), ("striped", &frequent)] {
        let ns = each_of(&env, RECORDS, |i| timing.record_ns(value(i)));
        println!("  record, {name:<14} {ns:6.1}");
    }
    println!("  record, 2 threads      {:6.1}", on_threads(&env, 2, |i| frequent.record_ns(value(i))));
    println!("  clock                  {:6.1}", each_of(&env, RECORDS, |_| touch(env.clock.now_ns())));
    println!("  each, with two looks   {:6.1}", each_of(&env, RECORDS, |i| rare.time(|| touch(i))));
    let sampled = Timing::sampled(&env);
    println!("  sampled                {:6.1}", each_of(&env, RECORDS, |i| sampled.time(|| touch(i))));
    println!("  sampled, 2 threads     {:6.1}", on_threads(&env, 2, |i| sampled.time(|| touch(i))));
}
