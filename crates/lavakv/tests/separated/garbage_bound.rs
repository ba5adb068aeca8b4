//! The bound on garbage holds however much is written at once: a batch pays what its puts would have paid one by one.
//!
//! A simulated machine has no threads, so time is shared out here: while the writer computes or sleeps because it is slowed
//! down, jobs run on a device that is slower than the writer.

use crate::common::*;
use crate::*;
use lavastore_lavakv::WriteBatch;
use lavastore_lavakv::sim::Costs;

/// Bytes of all values.
const DATA_LEN: u64 = 2 << 20;
/// What is written, in units of that.
const ROUNDS: u64 = 5;
/// Nanoseconds that the writer needs for each byte: 500 MB/s.
const WRITER_NS_PER_BYTE: u64 = 2;
const KIB_NS: u64 = 12_000;

/// Records in vSSTs over values that live, in percent, at their worst during random overwrites in batches of `batch` values
/// of `len` bytes.
fn peak_percent(seed: u64, batch: u64, len: usize) -> u64 {
    let sim = SimEnv::new(seed);
    let family = FamilyOptions { vsst_bytes: 32 << 10, ..apart_family(200) };
    let options = Options {
        memtable_bytes: 128 << 10,
        memory_bytes: 1 << 20,
        log_group_bytes: 2 << 20,
        wal_bytes_max: 8 << 20,
        family,
        ..small()
    };
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    let keys = DATA_LEN / len as u64;
    fill_long(&db, &mut Model::new(), 0..keys, 0, len);
    settle(&db);
    sim.set_costs(Costs { kib_ns: KIB_NS, ..Costs::default() });
    let (mut rng, mut peak, mut budget_ns) = (Rng::new(seed), 0, 0);
    for round in 0..ROUNDS * keys / batch {
        let mut writes = WriteBatch::new();
        for _ in 0..batch {
            let i = rng.below(keys);
            writes.put(&key(i), &long(i, round, len));
        }
        let slowed_ns = db.stats().stall_garbage_ns;
        db.write(&writes).unwrap();
        budget_ns += db.stats().stall_garbage_ns - slowed_ns + batch * len as u64 * WRITER_NS_PER_BYTE;
        while budget_ns > 0 {
            let start_ns = sim.now_ns();
            let worked = db.run_background_step();
            // A device without work does not make up for it later.
            budget_ns = if worked { budget_ns.saturating_sub(sim.now_ns() - start_ns) } else { 0 };
        }
        let records = db.gc_plan(Default::default()).unwrap().record_bytes;
        peak = peak.max(records * 100 / DATA_LEN);
    }
    peak
}

#[test]
fn a_batch_pays_for_its_garbage_like_single_puts() {
    let single = peak_percent(1, 1, 500);
    for (batch, len) in [(64, 500), (16, 8000), (1, 32_000)] {
        let peak = peak_percent(1, batch, len);
        assert!(
            peak < single + 25,
            "{single} % with single puts, {peak} % with batches of {batch} x {len} B"
        );
    }
}
