//! The bound on bytes over target holds at any write rate. A store of small values under long
//! overwrites stays near its data, writes are slowed down evenly, and without separated values they
//! never wait for garbage.
//!
//! A simulated machine has no threads, so time is divided here: while the writer computes or
//! sleeps, jobs run on a device slower than the writer.

use crate::common::*;
use lavastore_lavakv::sim::{Costs, SimEnv};
use lavastore_lavakv::{Db, FamilyOptions, Options, io::Rng};

const KEYS: u64 = 20_000;
const VALUE_LEN: usize = 200;
/// CPU time of a put, nanoseconds: 100 MB/s.
const WRITER_NS: u64 = 2_000;
/// Cost of the device: 20 MB/s.
const KIB_NS: u64 = 50_000;
const ROUNDS: u64 = 3;

#[test]
fn small_overwrites_bound_space_without_stalls() {
    let sim = SimEnv::new(16);
    let family = FamilyOptions { min_blob_size: 512, ..small().family }.expert(|expert| {
        expert.file_bytes = 32 << 10;
        expert.level_base_bytes = 64 << 10;
        expert.vsst_bytes = 4 << 10;
    });
    let options = Options { memtable_bytes: 32 << 10, memory_bytes: 256 << 10, family, ..small() };
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    let value = |round: u64| vec![round as u8; VALUE_LEN];
    (0..KEYS).for_each(|n| db.put(&key(n), &value(0)).unwrap());
    settle(&db);
    sim.set_costs(Costs { kib_ns: KIB_NS, ..Costs::default() });
    let (mut rng, mut budget_ns, mut peak, mut longest_ns) = (Rng::new(16), 0i64, 0, 0);
    let data = KEYS * (VALUE_LEN + key(0).len()) as u64;
    for n in 0..ROUNDS * KEYS {
        let slept_ns = db.stats().stall_ns;
        db.put(&key(rng.below(KEYS)), &value(1)).unwrap();
        let slept_ns = db.stats().stall_ns - slept_ns;
        longest_ns = longest_ns.max(slept_ns);
        // A step may exceed the remaining budget; later steps then wait.
        budget_ns += (WRITER_NS + slept_ns) as i64;
        while budget_ns > 0 {
            let begun_ns = sim.now_ns();
            if !db.run_background_step() {
                budget_ns = 0;
            }
            budget_ns -= (sim.now_ns() - begun_ns) as i64;
        }
        if n % 64 == 0 {
            let space = db.space().unwrap();
            // Log and manifest have fixed sizes, however small the store.
            peak = peak.max(space.table_bytes + space.pinned_bytes + space.job_bytes);
        }
    }
    let stats = db.stats();
    println!(
        "peak {:.2} of the data, longest wait {longest_ns} ns, levels {} ns",
        peak as f64 / data as f64,
        stats.stall_levels_ns
    );
    assert!(stats.stall_levels_ns > 0, "a writer as fast as this one is slowed down");
    assert_eq!(stats.stall_garbage_ns, 0, "nothing is separated");
    // 1.58 to 1.62 with eight seeds; two hundredths are outputs of two running compactions. The
    // blocks of a volume are long relative to tables of 32 KiB.
    let most_percent = if on_lavafs() { 200 } else { 165 };
    assert!(peak < data * most_percent / 100, "{peak} bytes for {data}");
    assert!(longest_ns < 100_000_000, "{longest_ns}");
}
