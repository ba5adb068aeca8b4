//! Compares both file choices on the same writes, with inline and with separated values.
//!
//! The trees are scaled-down full stores: tables of some hundred entries, and levels ten times as
//! large as those above. A table of references overlaps as many bytes as ten of them have. Bytes of
//! the separated values themselves are the same for both choices, and are not counted. Values that
//! tables still reference are counted, as unexposed garbage.

use super::*;

const KEYS: u64 = 20_000;
/// Number of entries of a table, and of a memtable.
const TABLE: u64 = 64;
const MEMTABLE: u64 = 170;
/// Bytes of a reference with its key, and the inline overhead of an entry.
const REFERENCE: u64 = 32;
const INLINE: u64 = 24;

/// Length of the values, and their placement.
#[derive(Clone, Copy, Debug)]
struct Load {
    value: u64,
    is_apart: bool,
    zipf: bool,
}

impl Load {
    fn entry(&self) -> (u64, u64) {
        if self.is_apart { (REFERENCE, self.value) } else { (INLINE + self.value, 0) }
    }

    fn policy(&self, choice: FileChoice) -> Leveled {
        let (of_table, of_value) = self.entry();
        let table = TABLE * of_table;
        let tree = Leveled {
            // Tables of references are cut at a quarter of that.
            file_bytes: if self.is_apart { 4 * table } else { table },
            overlap_ratio_max: if self.is_apart { 3 } else { 10 },
            level_base_bytes: 4 * TABLE * (of_table + of_value),
            choice,
            ..Leveled::default()
        };
        Leveled { l0_compaction_bytes: 4 * tree.level_base_bytes, ..tree }
    }

    fn key(&self, rng: &mut Rng) -> u32 {
        if !self.zipf {
            return rng.below(KEYS) as u32;
        }
        // Draws from Zipf's law with exponent 1, with the ranks scattered over the keys.
        let rank = ((KEYS as f64 + 1.0).ln() * rng.unit()).exp() as u64 - 1;
        (rank.min(KEYS - 1) * 7_919 % KEYS) as u32
    }

    /// Returns the bytes that compactions write into tables for each flushed byte, and the maximum
    /// bytes of tables and referenced values for each live byte.
    fn run(&self, choice: FileChoice) -> (f64, f64) {
        let mut store = Store::new(7, self.policy(choice));
        store.entry = self.entry();
        let mut next = 0;
        for _ in 0..=KEYS / MEMTABLE {
            store.flush(MEMTABLE as usize, 0, |_| {
                next += 1;
                (next * 7_919 % KEYS) as u32
            });
            while store.work(1, 0) {}
        }
        let (flushed, written) = (store.flushed_bytes, store.written_bytes);
        let mut peak: f64 = 0.0;
        for _ in 0..3 * KEYS / MEMTABLE {
            store.flush(MEMTABLE as usize, 0, |rng| self.key(rng));
            while store.work(1, 0) {
                peak = peak.max(store.space_amplification());
            }
        }
        store.check(KEYS as u32);
        let used = (1..7).filter(|&level| !store.version().files(level).is_empty()).count();
        assert!(used > 1, "there is a level to choose from: {}", store.version().describe());
        let (flushed, written) = (store.flushed_bytes - flushed, store.written_bytes - written);
        (written as f64 / flushed as f64, peak)
    }
}

/// For all values and placements, `MinOverlap` writes at least a fifth less. (`LargestCompensated`
/// leaves a little less above the last level, since it moves more at once.)
#[test]
fn default_file_choice_writes_less() {
    for (value, is_apart) in [(200, false), (1_000, true), (16_000, true)] {
        for zipf in [false, true] {
            let load = Load { value, is_apart, zipf };
            let (least, peak) = load.run(FileChoice::MinOverlap);
            let (largest, peak_of_largest) = load.run(FileChoice::LargestCompensated);
            println!(
                "{load:?}: {least:.2} bytes, peak {peak:.3}; largest first {largest:.2}, {peak_of_largest:.3}"
            );
            assert!(least < 0.8 * largest && peak < peak_of_largest + 0.05, "{load:?}");
        }
    }
    assert_eq!(FileChoice::default(), FileChoice::MinOverlap);
}
