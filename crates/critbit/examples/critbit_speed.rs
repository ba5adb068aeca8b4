//! Measures the index of a value file: `cargo run --release -p lavastore-critbit --example
//! critbit_speed`.
//!
//! Uses a file of 32,768 records. Prints the bytes per key of all memory that a lookup needs
//! (blocks, offsets, and the directory of separators above the blocks). Prints the time of a lookup
//! inside its block, from encoded bytes to the offset of the record. Compares with blocks of
//! prefix-compressed keys and binary search.

use base::codec::{get_varint, put_varint};
use io::{Env, Rng};
use lavastore_critbit::offsets::{self, Offsets};
use lavastore_critbit::{BLOCK_KEYS_MAX, Block, BlockBuilder};
use std::collections::BTreeSet;
use std::hint::black_box;

const KEYS: usize = 32_768;
const LOOKUPS: usize = 200_000;
const RESTART_INTERVAL: usize = 16;

type Keys = Vec<(Vec<u8>, u64)>;
/// Makes a key.
type Make = fn(&mut Rng) -> Vec<u8>;

/// Returns keys in order, each with a sequence as after random overwrites.
fn keys(rng: &mut Rng, make: impl Fn(&mut Rng) -> Vec<u8>) -> Keys {
    let mut set = BTreeSet::new();
    while set.len() < KEYS {
        set.insert(make(rng));
    }
    set.into_iter().map(|key| (key, rng.below(1 << 32))).collect()
}

/// Keys of `db_bench`: a big-endian number, padded with '0'. Here one in two hundred of 100 GB.
fn db_bench(rng: &mut Rng) -> Vec<u8> {
    let mut key = rng.below(6_500_000).to_be_bytes().to_vec();
    key.resize(36, b'0');
    key
}

/// Keys of YCSB: "user" and a hashed number in decimal digits.
fn ycsb(rng: &mut Rng) -> Vec<u8> {
    format!("user{:019}", rng.next_u64() >> 1).into_bytes()
}

fn random(rng: &mut Rng) -> Vec<u8> {
    let mut key = vec![0; 16];
    rng.fill(&mut key);
    key
}

fn url(rng: &mut Rng) -> Vec<u8> {
    let hosts =
        ["www.example.com", "blog.example.org", "shop.example.net", "static.example.io", "api.example.dev"];
    let words =
        ["article", "product", "image", "user", "category", "search", "archive", "comment", "tag", "page"];
    let mut key = format!("https://{}", hosts[rng.below(5) as usize]);
    for _ in 0..rng.range(1, 5) {
        let word = words[rng.below(10) as usize];
        let digits = rng.range(1, 7) as u32;
        let number = rng.below(10u64.pow(digits));
        key += &if rng.one_in(2) { format!("/{word}") } else { format!("/{word}-{number}") };
    }
    if rng.one_in(3) {
        key += &format!("?id={}&lang=en", rng.below(1_000_000));
    }
    key.into_bytes()
}

/// Returns the offsets of records of these lengths, in units of `alignment`.
fn layout(lengths: impl Iterator<Item = u64>, alignment: u64) -> Vec<u64> {
    let starts = lengths.scan(0, |at, len| {
        let start = *at;
        *at += (len + 64).div_ceil(alignment);
        Some(start)
    });
    starts.collect()
}

/// Encoded blocks, and the first ordinal behind each.
struct Index {
    blocks: Vec<Vec<u8>>,
    block_bytes: usize,
    offset_bytes: usize,
    directory_bytes: usize,
}

impl Index {
    fn bytes_per_key(&self) -> f64 {
        (self.block_bytes + self.offset_bytes + self.directory_bytes) as f64 / KEYS as f64
    }
}

fn crit_bit(keys: &Keys, offsets: &[u64]) -> Index {
    let mut builder = BlockBuilder::new();
    let (mut blocks, mut block_bytes, mut offset_bytes) = (Vec::new(), 0, 0);
    for (keys, offsets) in keys.chunks(BLOCK_KEYS_MAX).zip(offsets.chunks(BLOCK_KEYS_MAX)) {
        let mut out = Vec::new();
        keys.iter().for_each(|(key, seq)| builder.push(key, *seq));
        builder.finish_into(&mut out);
        block_bytes += out.len();
        let end = out.len();
        offsets::encode_ascending(offsets, &mut out);
        offset_bytes += out.len() - end;
        blocks.push(out);
    }
    let directory_bytes = directory(keys, block_bytes + offset_bytes);
    Index { blocks, block_bytes, offset_bytes, directory_bytes }
}

/// Returns the bytes of shortest separators without their common prefix, with the bits of two
/// offsets and a length per row.
fn directory(keys: &Keys, index_bytes: usize) -> usize {
    let shared = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let common = shared(&keys[0].0, &keys[KEYS - 1].0);
    let cuts = (BLOCK_KEYS_MAX..KEYS).step_by(BLOCK_KEYS_MAX);
    let separators: usize = cuts.clone().map(|i| shared(&keys[i - 1].0, &keys[i].0) + 1 - common).sum();
    let bits = |n: usize| n.max(1).ilog2() as usize + 1;
    let row_bits = bits(separators) + bits(index_bytes) + 8;
    separators + cuts.count() * row_bits / 8
}

fn crit_bit_lookup(block: &[u8], key: &[u8], seq: u64) -> u64 {
    let trie = Block::parse(block).unwrap();
    let offsets = Offsets::parse(&block[trie.encoded_len()..]).unwrap();
    offsets.get(trie.find(key, seq)).unwrap()
}

/// Format: restart count (u8) and restarts (u16), then entries: shared, suffix length, suffix,
/// sequence, offset.
fn prefixed(keys: &Keys, offsets: &[u64]) -> Index {
    let mut blocks = Vec::new();
    let mut block_bytes = 0;
    for (keys, offsets) in keys.chunks(BLOCK_KEYS_MAX).zip(offsets.chunks(BLOCK_KEYS_MAX)) {
        let (mut restarts, mut entries) = (Vec::new(), Vec::new());
        for (i, ((key, seq), offset)) in keys.iter().zip(offsets).enumerate() {
            let mut shared = 0;
            if i % RESTART_INTERVAL == 0 {
                restarts.push(entries.len() as u16);
            } else {
                shared = keys[i - 1].0.iter().zip(key).take_while(|(x, y)| x == y).count();
            }
            put_varint(&mut entries, shared as u64);
            put_varint(&mut entries, (key.len() - shared) as u64);
            entries.extend_from_slice(&key[shared..]);
            put_varint(&mut entries, *seq);
            put_varint(&mut entries, *offset);
        }
        let mut out = vec![restarts.len() as u8];
        restarts.iter().for_each(|r| out.extend_from_slice(&r.to_le_bytes()));
        out.extend_from_slice(&entries);
        block_bytes += out.len();
        blocks.push(out);
    }
    Index { blocks, block_bytes, offset_bytes: 0, directory_bytes: directory(keys, block_bytes) }
}

fn prefixed_lookup(block: &[u8], key: &[u8], built: &mut Vec<u8>) -> u64 {
    let restarts = usize::from(block[0]);
    let entries = &block[1 + 2 * restarts..];
    let varint = |at: &mut usize| {
        let (v, len) = get_varint(&entries[*at..]).unwrap();
        *at += len;
        v as usize
    };
    let start = |i: usize| usize::from(u16::from_le_bytes([block[1 + 2 * i], block[2 + 2 * i]]));
    let (mut low, mut high) = (0, restarts);
    while low < high {
        let middle = (low + high) / 2;
        let mut at = start(middle);
        let (_, len) = (varint(&mut at), varint(&mut at));
        if &entries[at..at + len] <= key { low = middle + 1 } else { high = middle }
    }
    let mut at = start(low.saturating_sub(1));
    loop {
        let (shared, len) = (varint(&mut at), varint(&mut at));
        built.truncate(shared);
        built.extend_from_slice(&entries[at..at + len]);
        at += len;
        let (_, offset) = (varint(&mut at), varint(&mut at));
        if built == key {
            return offset as u64;
        }
    }
}

/// Looks up random keys. Returns the mean, and the median and the 99th percentile of single
/// lookups, less the clock's own time.
fn time(keys: &Keys, offsets: &[u64], mut lookup: impl FnMut(usize, &[u8], u64) -> u64) -> String {
    let mut rng = Rng::new(9);
    let order: Vec<usize> = (0..LOOKUPS).map(|_| rng.below(KEYS as u64) as usize).collect();
    for (i, (key, seq)) in keys.iter().enumerate() {
        assert_eq!(lookup(i / BLOCK_KEYS_MAX, key, *seq), offsets[i]);
    }
    let cpu_ns = || io::kernel::usage::process().unwrap().cpu_ns;
    let start = cpu_ns();
    for &i in &order {
        black_box(lookup(i / BLOCK_KEYS_MAX, &keys[i].0, keys[i].1));
    }
    let mean = (cpu_ns() - start) as f64 / LOOKUPS as f64;
    let clock = Env::kernel().clock;
    let sample = |run: &mut dyn FnMut(usize)| {
        let mut taken: Vec<u64> = Vec::with_capacity(LOOKUPS);
        for &i in &order {
            let start = clock.now_ns();
            run(i);
            taken.push(clock.now_ns() - start);
        }
        taken.sort_unstable();
        [taken[LOOKUPS / 2], taken[LOOKUPS * 99 / 100]]
    };
    let [empty, _] = sample(&mut |i| _ = black_box(i));
    let [median, p99] = sample(&mut |i| _ = black_box(lookup(i / BLOCK_KEYS_MAX, &keys[i].0, keys[i].1)));
    format!(
        "mean {mean:4.0}, median {:4}, P99 {:4} ns",
        median.saturating_sub(empty),
        p99.saturating_sub(empty)
    )
}

fn report(name: &str, keys: &Keys, offsets: &[u64]) {
    let index = crit_bit(keys, offsets);
    let of = |bytes: usize| bytes as f64 / KEYS as f64;
    let times = time(keys, offsets, |b, key, seq| crit_bit_lookup(&index.blocks[b], key, seq));
    println!(
        "{name:36} crit-bit {:5.2} B/key (blocks {:.2}, offsets {:.2}, directory {:.2}); {times}",
        index.bytes_per_key(),
        of(index.block_bytes),
        of(index.offset_bytes),
        of(index.directory_bytes)
    );
    let index = prefixed(keys, offsets);
    let mut built = Vec::new();
    let times = time(keys, offsets, |b, key, _| prefixed_lookup(&index.blocks[b], key, &mut built));
    println!("{:36} prefixes {:5.2} B/key; {times}", "", index.bytes_per_key());
}

fn main() {
    let mut rng = Rng::new(1);
    let fixed = layout((0..KEYS).map(|_| 16 << 10), 64);
    let compressed = layout((0..KEYS).map(|_| rng.range(7000, 9000)), 64);
    let small = layout((0..KEYS).map(|_| rng.range(200, 1500)), 8);
    let skewed = layout((0..KEYS).map(|_| 512 << rng.below(6)), 64);
    let named: [(&str, Make); 4] =
        [("db_bench 36 B", db_bench), ("YCSB 23 B", ycsb), ("random 16 B", random), ("URLs", url)];
    for (name, make) in named {
        let keys = keys(&mut rng, make);
        report(&format!("{name}, values 16 KB"), &keys, &fixed);
        report(&format!("{name}, values 7-9 KB"), &keys, &compressed);
        report(&format!("{name}, values 0.2-1.5 KB"), &keys, &small);
        report(&format!("{name}, values 0.5-16 KB"), &keys, &skewed);
    }
}
