//! Measures building, scanning and point reads in memory: `cargo run --release -p lavastore-table
//! --example table_speed`.
//!
//! Keys have 24 bytes and inline values 200, as in the usual comparison with other engines. Files
//! are in memory, so the numbers are the CPU cost of the format and nothing else.

mod in_memory;

use base::hash::key_hash;
use base::{Compression, InternalIterator, MAX_SEQ, Uid, ValueKind, key};
use cache::Cache;
use in_memory::{Memory, Stored};
use lavastore_table::{IterOptions, Ksst, KsstBuilder, ReadCounters, Reference, TableIdentity, TableOptions};
use std::path::Path;
use std::sync::{Arc, Mutex};

const ENTRIES: u64 = 500_000;

fn user_key(i: u64) -> [u8; 24] {
    let mut out = [b'0'; 24];
    out[..4].copy_from_slice(b"user");
    let mut v = i * 7;
    for digit in out[4..].iter_mut().rev() {
        *digit = b'0' + (v % 10) as u8;
        v /= 10;
    }
    out
}

struct Bench {
    rng: io::Rng,
}

impl Bench {
    fn time<T>(&self, what: &str, count: u64, run: impl FnOnce() -> T) -> T {
        // CPU time: the machine may be busy with something else.
        let cpu_ns = || io::kernel::usage::process().unwrap().cpu_ns;
        let start = cpu_ns();
        let result = run();
        let ns = (cpu_ns() - start) as f64 / count as f64;
        println!("{what:44} {ns:8.1} ns");
        result
    }

    fn table(&mut self, name: &str, options: &TableOptions, reference_of: impl Fn(u64) -> bool) {
        // The pages are touched in advance, so that their faults are not counted.
        let mut pages = vec![1; 128 << 20];
        pages.clear();
        let bytes = Arc::new(Mutex::new(pages));
        let identity = TableIdentity { number: 1, uid: Uid::from_words(1, 2), ..TableIdentity::default() };
        let uid = identity.uid;
        let file = Box::new(Memory(bytes.clone()));
        let mut builder = KsstBuilder::new(file, Path::new("memory"), identity, options, None);
        let mut noise = vec![0; 1 << 20];
        self.rng.fill(&mut noise);
        // Half of each value can be compressed.
        noise.chunks_mut(2).for_each(|c| c[0] = b'v');
        let mut ikey = Vec::new();
        let mut value = Vec::new();
        let finished = self.time(&format!("{name}: add and finish"), ENTRIES, || {
            for i in 0..ENTRIES {
                ikey.clear();
                if reference_of(i) {
                    value.clear();
                    Reference { blob_id: 12, raw_len: 1024, stored_len: 1064 }.encode_into(&mut value);
                    key::encode_into(&mut ikey, &user_key(i), i, ValueKind::Reference);
                    builder.add(&ikey, &value).unwrap();
                } else {
                    key::encode_into(&mut ikey, &user_key(i), i, ValueKind::Value);
                    let at = (i as usize * 40) % (noise.len() - 200);
                    builder.add(&ikey, &noise[at..at + 200]).unwrap();
                }
            }
            builder.finish().unwrap()
        });
        let p = &finished.properties;
        println!(
            "  {:.2} B/entry: inline {} references {} index {} filter {}",
            finished.len as f64 / ENTRIES as f64,
            p.inline_block_bytes,
            p.reference_block_bytes,
            p.index_bytes,
            p.filter_bytes
        );
        let file = Arc::new(Stored(std::mem::take(&mut *bytes.lock().unwrap())));
        let cache = Arc::new(Cache::new(1 << 30));
        let table = Arc::new(Ksst::open(file, 1, uid, None, cache).unwrap());
        self.reads(name, &table);
    }

    fn reads(&mut self, name: &str, table: &Arc<Ksst>) {
        for (how, options) in [
            ("readahead", IterOptions { fill_cache: false, readahead_bytes: 512 << 10 }),
            ("filling the cache", IterOptions { fill_cache: true, readahead_bytes: 0 }),
            ("cached", IterOptions { fill_cache: true, readahead_bytes: 0 }),
        ] {
            let mut iter = table.iter(options);
            let sum = self.time(&format!("{name}: next, {how}"), ENTRIES, || {
                let mut sum = 0;
                iter.seek_to_first().unwrap();
                while iter.valid() {
                    sum += iter.key().len() + iter.value().len();
                    iter.next().unwrap();
                }
                sum
            });
            assert!(sum > 0);
        }
        let mut iter = table.iter(IterOptions { fill_cache: true, readahead_bytes: 0 });
        self.time(&format!("{name}: prev, cached"), ENTRIES, || {
            iter.seek_to_last().unwrap();
            while iter.valid() {
                iter.prev().unwrap();
            }
        });
        let order: Vec<u64> = (0..200_000).map(|_| self.rng.below(ENTRIES)).collect();
        let mut counters = ReadCounters::default();
        self.time(&format!("{name}: get, cached, random"), order.len() as u64, || {
            for &i in &order {
                let k = user_key(i);
                assert!(table.get(&k, MAX_SEQ, key_hash(&k), &mut counters).unwrap().is_some());
            }
        });
        assert_eq!(counters.device_reads, counters.filter_reads);
        self.time(&format!("{name}: get of absent keys"), order.len() as u64, || {
            for &i in &order {
                let mut k = user_key(i);
                k[23] ^= 0x40;
                table.get(&k, MAX_SEQ, key_hash(&k), &mut counters).unwrap();
            }
        });
        println!(
            "  false positives {:.2} %",
            counters.filter_false_positives as f64 * 100.0 / order.len() as f64
        );
        self.time(&format!("{name}: seek, cached, random"), order.len() as u64, || {
            for &i in &order {
                iter.seek(&key::seek_target(&user_key(i), MAX_SEQ)).unwrap();
                assert!(iter.valid());
            }
        });
        self.time(&format!("{name}: verify"), ENTRIES, || table.verify().unwrap());
    }
}

fn main() {
    let mut bench = Bench { rng: io::Rng::new(1) };
    let plain = TableOptions::default();
    bench.table("inline", &plain, |_| false);
    bench.table("references", &plain, |_| true);
    bench.table("both", &plain, |i| i % 2 == 0);
    for compression in [Compression::Lz4, Compression::Zstd] {
        let options = TableOptions { compression, ..plain.clone() };
        bench.table(compression.name(), &options, |_| false);
    }
}
