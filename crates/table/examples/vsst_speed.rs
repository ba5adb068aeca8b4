//! Measures vSSTs in memory: `cargo run --release -p lavastore-table --example vsst_speed [MB]`.
//!
//! Keys are 36-byte keys like those of db_bench: a random number in 8 bytes, big-endian, padded
//! with zeros ('0'). Half of each value can be compressed. Files are in memory, so the numbers are
//! the CPU cost of the format and nothing else.

mod in_memory;

use base::{Compression, Uid};
use cache::Cache;
use in_memory::{Memory, Stored};
use lavastore_table::{ReadCounters, RecordLens, Reference, TableIdentity, Vsst, VsstBuilder, VsstOptions};
use std::path::Path;
use std::sync::{Arc, Mutex};

fn cpu_ns() -> u64 {
    // CPU time: the machine may be busy with something else.
    io::kernel::usage::process().unwrap().cpu_ns
}

/// Prints nanoseconds for each of `count`, and MB/s if there are bytes.
fn time<T>(what: &str, count: u64, bytes: u64, run: impl FnOnce() -> T) -> T {
    let start = cpu_ns();
    let result = run();
    let ns = (cpu_ns() - start) as f64;
    print!("  {what:28} {:9.1} ns", ns / count as f64);
    if bytes > 0 {
        print!(" {:9.0} MB/s", bytes as f64 * 1e3 / ns);
    }
    println!();
    result
}

struct Bench {
    rng: io::Rng,
    noise: Vec<u8>,
    mb: u64,
}

impl Bench {
    fn keys(&mut self, count: u64) -> Vec<[u8; 36]> {
        let mut all: Vec<[u8; 36]> = (0..count)
            .map(|_| {
                let mut key = [b'0'; 36];
                key[..8].copy_from_slice(&self.rng.below(100 * count).to_be_bytes());
                key
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn run(&mut self, value_len: usize, spread: usize, compression: Compression) {
        let count = (self.mb << 20) / value_len as u64;
        let keys = self.keys(count);
        let count = keys.len() as u64;
        println!("{count} values of {value_len} +- {spread} bytes, {}", compression.name());
        // The pages are touched in advance, so that their faults are not counted.
        let mut pages = vec![1; ((self.mb + self.mb / 4 + 8) << 20) as usize];
        pages.clear();
        let bytes = Arc::new(Mutex::new(pages));
        let identity = TableIdentity { number: 1, uid: Uid::from_words(1, 2), ..TableIdentity::default() };
        let uid = identity.uid;
        let options = VsstOptions { compression, alignment: 0 };
        let cache = Arc::new(Cache::new(1 << 30));
        let file = Box::new(Memory(bytes.clone()));
        let mut builder =
            VsstBuilder::new(file, Path::new("memory"), identity, &options, Some(cache.clone()));
        let seqs: Vec<u64> = keys.iter().map(|_| self.rng.below(1 << 26)).collect();
        let lens: Vec<usize> = keys
            .iter()
            .map(|_| value_len - spread + self.rng.below(2 * spread as u64 + 1) as usize)
            .collect();
        let raw_bytes = lens.iter().map(|&n| n as u64).sum();
        let (lens, finished) = time("add and finish", count, raw_bytes, || {
            let mut made: Vec<RecordLens> = Vec::with_capacity(keys.len());
            for (i, key) in keys.iter().enumerate() {
                let at = (i * 40) % (self.noise.len() - lens[i]);
                made.push(builder.add(key, seqs[i], &self.noise[at..at + lens[i]]).unwrap());
            }
            (made, builder.finish(vec![]).unwrap())
        });
        let p = &finished.properties;
        let per_key = |n: u64| n as f64 / count as f64;
        println!(
            "  alignment {}, B/key: index {:.2}, dense {:.2}, others {:.2}; padding and heads {:.2} %",
            p.alignment,
            per_key(p.index_bytes),
            per_key(p.dense_bytes),
            per_key(finished.len - p.index_bytes - p.dense_bytes - p.record_bytes),
            100.0 * (p.record_bytes as f64 / p.raw_bytes as f64 - 1.0)
        );
        let file = Arc::new(Stored(std::mem::take(&mut *bytes.lock().unwrap())));
        let table = Arc::new(Vsst::open(file, 1, uid, cache).unwrap());
        let order: Vec<usize> = (0..200_000).map(|_| self.rng.below(count) as usize).collect();
        let n = order.len() as u64;
        let counters = &mut ReadCounters::default();
        time("locate", n, 0, || {
            for &i in &order {
                table.locate(&keys[i], seqs[i], counters).unwrap();
            }
        });
        for (what, fill) in [("get, uncached", false), ("get, filling", true), ("get, cached", true)] {
            time(what, n, 0, || {
                for &i in &order {
                    let RecordLens { raw_len, stored_len } = lens[i];
                    let reference = Reference { blob_id: 1, raw_len, stored_len };
                    table.get(&keys[i], seqs[i], &reference, fill, counters).unwrap();
                }
            });
        }
        time("keys", count, 0, || {
            let mut all = table.keys().unwrap();
            while all.valid() {
                all.next().unwrap();
            }
        });
        time("verify", count, finished.len, || table.verify().unwrap());
    }
}

fn main() {
    let mb = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(64);
    let mut rng = io::Rng::new(7);
    let mut noise = vec![0; 4 << 20];
    rng.fill(&mut noise);
    noise.chunks_mut(64).for_each(|c| c[..32].fill(b'v'));
    let mut bench = Bench { rng, noise, mb };
    for (value_len, spread) in [(1 << 10, 0), (1 << 10, 256), (16 << 10, 0), (16 << 10, 4096)] {
        bench.run(value_len, spread, Compression::None);
    }
    bench.run(1 << 10, 256, Compression::Lz4);
    bench.run(16 << 10, 4096, Compression::Lz4);
}
