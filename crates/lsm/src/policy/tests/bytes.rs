//! Bytes that the policies write for each flushed byte, in the same simulation: at a rate that all
//! of them sustain, and as fast as the throttle allows. The bytes written to settle the tree at the
//! end are included.

use super::simulation::{Keys, Machine};
use super::*;

/// Number of entries of a table of size M.
const M: u64 = 64;

fn leveled() -> Leveled {
    let file_bytes = 2 * M * ENTRY;
    Leveled {
        l0_compaction_bytes: 32 * M * ENTRY,
        level_base_bytes: 8 * M * ENTRY,
        file_bytes,
        ..Leveled::default()
    }
}

fn vlsm(f: u32, growth_max: u32, q: u32, overlap: OverlapOf) -> Vlsm {
    let own = VlsmOptions {
        table_bytes: M * ENTRY,
        level_1_tables: f,
        growth_max,
        queue_tables: q,
        overlap,
        ..VlsmOptions::default()
    };
    Vlsm::new(own, leveled())
}

#[derive(Clone, Copy)]
enum Rate {
    /// This many tables of size M of work for each flushed one.
    Tables(u64),
    /// As fast as the throttle allows.
    Closed,
}

/// Returns the bytes flushed and written by merges for each flushed byte.
fn bytes_for(policy: impl Shape, keys: u32, rate: Rate, key: &Keys) -> (f64, String) {
    let memtable = policy.tree().file_bytes / ENTRY;
    let mut machine = Machine::new(u64::from(keys), 1, policy);
    let mut n = 0;
    let mut next = |rng: &mut Rng| {
        n += 1;
        key(rng, n)
    };
    let flushes = |times: u64| (u64::from(keys) * times / memtable) as usize;
    machine.write_entries(flushes(3), memtable, Some(8 * memtable * ENTRY), &mut next);
    machine.rest();
    let (flushed, written) = (machine.store.flushed_bytes, machine.store.written_bytes);
    machine.forget();
    let measured = flushes(4);
    match rate {
        Rate::Tables(tables) => {
            machine.write_entries(measured, memtable, Some(tables * memtable * ENTRY), &mut next);
        }
        Rate::Closed => {
            for _ in 0..measured {
                machine.work_off_excess(15);
                machine.write_entries(1, memtable, None, &mut next);
            }
        }
    }
    let peak = machine.describe();
    machine.rest();
    machine.store.check(keys);
    let (flushed, written) = (machine.store.flushed_bytes - flushed, machine.store.written_bytes - written);
    (1.0 + written as f64 / flushed as f64, peak)
}

/// Write amplification of a store of 600 MB with M of 8 MiB and the defaults, at a rate that both
/// policies sustain.
#[test]
fn vlsm_writes_at_most_a_tenth_more_than_leveled() {
    let keys = 75 * M as u32;
    let uniform = move |rng: &mut Rng, _: u64| rng.below(u64::from(keys)) as u32;
    let own = VlsmOptions { table_bytes: M * ENTRY, ..VlsmOptions::default() };
    let (ours, seen) = bytes_for(Vlsm::new(own, leveled()), keys, Rate::Tables(20), &uniform);
    let (theirs, _) = bytes_for(leveled(), keys, Rate::Tables(20), &uniform);
    println!("{ours:.2} bytes, {theirs:.2} of leveled; {seen}");
    assert!(ours <= 1.1 * theirs, "{ours:.2} bytes, {theirs:.2} of leveled");
}

#[test]
#[ignore = "prints a table"]
fn measure_write_amplification_of_policies() {
    let rates = [("slow", Rate::Tables(60)), ("open", Rate::Tables(20)), ("closed", Rate::Closed)];
    for keys in [75 * M, 400 * M, 2500 * M] {
        let keys = keys as u32;
        let uniform = move |rng: &mut Rng, _: u64| rng.below(u64::from(keys)) as u32;
        let skewed = move |rng: &mut Rng, _: u64| (rng.unit().powi(4) * f64::from(keys)) as u32;
        let moving = move |rng: &mut Rng, n: u64| match rng.one_in(10) {
            true => rng.below(u64::from(keys)) as u32,
            false => ((n / 50 + rng.below(u64::from(keys) / 100)) % u64::from(keys)) as u32,
        };
        let all: [(&str, &Keys); 3] = [("uniform", &uniform), ("skewed", &skewed), ("moving", &moving)];
        for (name, key) in all {
            for (at, rate) in rates {
                println!("{} M, {name}, {at}", u64::from(keys) / M);
                let (bytes, peak) = bytes_for(leveled(), keys, rate, key);
                println!("  leveled           {bytes:6.2}  {peak}");
                for (f, growth, q) in
                    [(8, 32, 1), (8, 32, 8), (8, 10, 8), (12, 10, 8), (16, 10, 8), (8, 16, 4)]
                {
                    let (bytes, peak) = bytes_for(vlsm(f, growth, q, OverlapOf::Table), keys, rate, key);
                    println!("  f {f:2} F {growth:2} q {q:2}    {bytes:6.2}  {peak}");
                }
            }
        }
    }
}
