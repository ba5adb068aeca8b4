//! Trees of references to long values: costs and savings of a larger base level
//! ([`crate::policy::leveled::targets`]).
//!
//! The trees are scaled down by a thousand from full stores: sixteen entries stand for the thousand
//! values of 16 KB in a memtable of 16 MiB.

use super::*;

/// Bytes of a reference with its key, and of the value.
const REFERENCE: u64 = 28;
const VALUE: u64 = 16_000;
/// Number of entries of a memtable.
const MEMTABLE: u64 = 16;

/// Returns a policy whose base level may be `factor` times as large.
fn policy(factor: u64) -> Leveled {
    let memtable = MEMTABLE * (REFERENCE + VALUE);
    Leveled {
        l0_compaction_bytes: 16 * memtable,
        level_base_bytes: factor * 4 * memtable,
        // A quarter of it is the shortest table, on disk: the references of nine memtables, a table
        // of 256 KiB.
        file_bytes: memtable / 16,
        ..Leveled::default()
    }
}

/// Returns the bytes written by merges into tables for each flushed byte, and the mean hidden bytes
/// for each live byte.
fn run(memtables: u64, factor: u64) -> (f64, f64) {
    let keys = memtables * MEMTABLE;
    let mut store = Store::new(7, policy(factor));
    store.entry = (REFERENCE, VALUE);
    let mut next = 0;
    for _ in 0..memtables {
        store.flush(MEMTABLE as usize, 0, |_| {
            next += 1;
            (next * 7_919 % keys) as u32
        });
        while store.work(1, 0) {}
    }
    let (flushed, written) = (store.flushed_bytes, store.written_bytes);
    let mut hidden = 0.0;
    for _ in 0..2 * memtables {
        store.flush(MEMTABLE as usize, 0, |rng| rng.below(keys) as u32);
        while store.work(1, 0) {}
        hidden += store.space_amplification() - 1.0;
    }
    store.check(keys as u32);
    let (flushed, written) = (store.flushed_bytes - flushed, store.written_bytes - written);
    (written as f64 / flushed as f64, hidden / (2 * memtables) as f64)
}

/// A base level three times as large absorbs the tenth of the store that was in a level above it,
/// and is rewritten for each level 0.
#[test]
fn a_larger_base_level_hides_less_and_writes_more() {
    let [(few, much), (many, little)] = [1, 3].map(|factor| run(256, factor));
    println!("{few:.2} bytes, {much:.3} hidden; three times as large {many:.2}, {little:.3}");
    assert!(few < 20.0 && many > 3.0 * few, "{few:.2} and {many:.2} bytes of tables");
    assert!(much < 0.12 && little < 0.03, "{much:.3} and {little:.3} hidden");
    // If the base level is the only one, its size makes no difference.
    assert_eq!(run(64, 1), run(64, 3));
}

#[test]
#[ignore = "prints a table"]
fn measure_writes_and_garbage_of_base_levels() {
    for memtables in [64, 192, 256, 384, 512, 768, 1024] {
        for factor in [1, 3] {
            let (written, hidden) = run(memtables, factor);
            println!(
                "{memtables} memtables, factor {factor}: {written:.2} bytes of tables, {hidden:.3} hidden"
            );
        }
    }
}
