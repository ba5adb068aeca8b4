//! Gaps between values that are read over: their length follows from the read costs of the device,
//! or from the option. The values read are the same.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::{
    Ablation, Db, FamilyOptions, Options, ReadOptions, Statistics,
    sim::{Costs, SimEnv},
};

const KEYS: u64 = 1500;
const VALUE_LEN: usize = 4000;
/// One value is read of this many: between two of them are 32 KB.
const STRIDE: u64 = 9;

fn value(i: u64) -> Vec<u8> {
    let mut value = format!("{i:05}/").into_bytes();
    value.resize(VALUE_LEN, i as u8);
    value
}

/// Result of a run: the values, the number of reads, and the measured costs.
struct Done {
    values: Vec<Option<Vec<u8>>>,
    scanned: Vec<(Vec<u8>, Vec<u8>)>,
    reads: u64,
    statistics: Statistics,
}

/// Stores values in key order on a device with these read costs. Reads some, single and batched,
/// until the costs are measured; then every ninth value.
fn read_on(request_ns: u64, change: impl Fn(&mut Options)) -> Done {
    let sim = SimEnv::new(7);
    let (read_ns, further_read_ns) = (request_ns.max(80_000), request_ns);
    sim.set_costs(Costs { read_ns, further_read_ns, kib_ns: 1000, ..Costs::default() });
    let family = FamilyOptions { min_blob_size: 64, ..FamilyOptions::default() }
        .expert(|expert| expert.vsst_bytes = 64 << 20);
    let mut options = Options { family, cache_bytes: 1 << 20, ..Options::default() };
    change(&mut options);
    let db = Db::open_in(sim.env(), DIR, options).unwrap();
    (0..KEYS).for_each(|i| db.put(&key(i), &value(i)).unwrap());
    db.flush().unwrap();
    let family = db.default_column_family();
    let without = ReadOptions { fill_cache: false, ..ReadOptions::default() };
    let mut rng = Rng::new(11);
    for _ in 0..20 {
        for _ in 0..4 {
            let i = rng.below(KEYS);
            assert_eq!(db.get_opt(family, &key(i), &without).unwrap().as_deref(), Some(&value(i)[..]));
        }
        let some: Vec<Vec<u8>> = (0..32).map(|_| key(rng.below(KEYS))).collect();
        assert!(db.multi_get_at(family, &some, without.at()).into_iter().all(|got| got.unwrap().is_some()));
        let mut iter = db.iter(without.clone()).unwrap();
        iter.seek_to_first().unwrap();
        for _ in 0..KEYS / 2 {
            iter.value().unwrap();
            iter.next().unwrap();
        }
    }
    let keys: Vec<Vec<u8>> = (0..KEYS).step_by(STRIDE as usize).map(key).collect();
    let before = db.stats().get_device_reads;
    let values = db
        .multi_get_at(family, &keys, without.at())
        .into_iter()
        .map(|got| got.unwrap().map(|v| v.to_vec()))
        .collect();
    let reads = db.stats().get_device_reads - before;
    let mut scanned = Vec::new();
    let mut iter = db.iter(without).unwrap();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        scanned.push((iter.key().to_vec(), iter.value().unwrap().to_vec()));
        iter.next().unwrap();
    }
    drop(iter);
    Done { values, scanned, reads, statistics: db.stats() }
}

#[test]
fn distant_blocks_share_a_read_if_requests_are_expensive() {
    // A disk arm: a request costs as much as reading 8 MB.
    let slow = read_on(8_000_000, |_| {});
    // A request costs as much as reading 2 KiB.
    let fast = read_on(2000, |_| {});
    let [far, near] = [&slow, &fast].map(|done| done.statistics.io_read_gap_bytes);
    assert_eq!((far, near), (256 << 10, 4 << 10));
    assert!(slow.statistics.io_read_request_ns > 100 * fast.statistics.io_read_request_ns);
    assert!(
        slow.statistics.io_read_window_bytes > 1 << 20 && fast.statistics.io_read_window_bytes < 256 << 10
    );
    let asked = KEYS.div_ceil(STRIDE);
    assert!(slow.reads * 4 < asked && fast.reads >= asked, "{} and {} of {asked}", slow.reads, fast.reads);
    // The option has precedence; without measurements the fixed default applies.
    let given = read_on(2000, |options| options.expert.read_gap_bytes = Some(100 << 10));
    assert!(given.reads * 4 < asked && given.statistics.io_read_gap_bytes == 100 << 10);
    let off = read_on(8_000_000, |options| {
        options.expert.ablation = Ablation::without(["measured_reads"]).unwrap()
    });
    assert!(off.reads >= asked && off.statistics.io_read_gap_bytes == 0);
    let expected: Vec<_> = (0..KEYS).step_by(STRIDE as usize).map(|i| Some(value(i))).collect();
    let all: Vec<_> = (0..KEYS).map(|i| (key(i), value(i))).collect();
    for done in [slow, fast, given, off] {
        assert!(done.values == expected && done.scanned == all);
    }
}
