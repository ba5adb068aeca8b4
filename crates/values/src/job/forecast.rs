//! A forecast of the reads that the lookups of a collection will make.
//!
//! The forecast considers the same tables as the job, and checks the cache as the job will: a
//! cached block costs nothing. It makes two assumptions about data that it does not read. The keys
//! of an input are spread like any others within its key range. Levels hold live references in
//! proportion to all their references.

use super::lookup::SEEK_AFTER_JOINING;
use super::names::Names;
use crate::pick::{Gc, GcOptions, Lookups};
use base::{HashMap, Result, key};
use std::sync::Arc;
use table::{Ksst, UncachedReferences};
use version::{FileMeta, Version};

/// One in this many absent keys passes a filter.
const FALSE_POSITIVE_EVERY: f64 = 100.0;

/// Forecasts of several collections, one after another: see the module.
#[derive(Debug)]
pub struct LookupForecast {
    /// Bytes that lookups can bring into the cache before it evicts any of them.
    room: u64,
    /// Bytes of each table that lookups have brought into the cache.
    brought_in: HashMap<u64, u64>,
}

/// A table to look up.
struct AskedTable {
    number: u64,
    uncached: UncachedReferences,
}

/// Tables of one level to look up.
#[derive(Default)]
struct AskedLevel {
    tables: Vec<AskedTable>,
    references: u64,
}

impl LookupForecast {
    /// Returns a forecast for a cache of `cache_bytes`.
    pub fn new(cache_bytes: u64) -> LookupForecast {
        LookupForecast { room: cache_bytes, brought_in: HashMap::default() }
    }

    /// Returns the bytes of tables that the next collection is expected to read to find its live
    /// records.
    ///
    /// # Errors
    /// The errors of `open`, and of reading the index of a table.
    pub fn bytes_of(
        &mut self,
        gc: &Gc,
        version: &Version,
        options: &GcOptions,
        open: &dyn Fn(&FileMeta) -> Result<Arc<Ksst>>,
    ) -> Result<u64> {
        let names = Names::new(version, &gc.inputs);
        if names.are_dead() {
            return Ok(0);
        }
        let all: u64 = gc.inputs.iter().map(|input| input.entries).sum();
        let live = share(names.expected(), all);
        let mut bytes = 0u64;
        for range in ranges_of(gc) {
            let mut levels = Vec::new();
            for files in &version.levels {
                let mut level = AskedLevel::default();
                let is_asked = |file: &&Arc<FileMeta>| {
                    !file.ends_before(range.first)
                        && !file.starts_after(range.last)
                        && names.may_be_used_by(file)
                };
                for file in files.iter().filter(is_asked) {
                    let uncached = open(file)?.uncached_references(range.first, range.last)?;
                    level.references = level.references.saturating_add(uncached.references);
                    level.tables.push(AskedTable { number: file.number, uncached });
                }
                levels.push(level);
            }
            let live = (range.keys as f64 * live) as u64;
            bytes = bytes.saturating_add(self.bytes_of_levels(&levels, range.keys, live, options.lookups));
        }
        Ok(bytes)
    }

    /// Returns the bytes read by lookups of `keys` keys, of which `live` are live, from the deepest
    /// level up.
    fn bytes_of_levels(&mut self, levels: &[AskedLevel], keys: u64, live: u64, lookups: Lookups) -> u64 {
        let most = levels.iter().map(|level| level.references).max().unwrap_or(0);
        let all: u64 = levels.iter().map(|level| level.references).sum();
        let (mut left, mut bytes) = (keys as f64, 0u64);
        for (depth, level) in levels.iter().enumerate().rev() {
            let in_table = share(level.references, most);
            for table in &level.tables {
                // Tables of level 0 overlap: each is searched for all remaining keys.
                let own = if depth == 0 { 1.0 } else { share(table.uncached.references, level.references) };
                let read = self.bytes_of_table(table, left * own, in_table, lookups);
                bytes = bytes.saturating_add(read);
            }
            left = (left - live as f64 * share(level.references, all)).max(0.0);
        }
        bytes
    }

    /// Returns the bytes read by lookups of `keys` keys in one table. `in_table` is the share of
    /// the keys with a version in the table.
    fn bytes_of_table(&mut self, asked: &AskedTable, keys: f64, in_table: f64, lookups: Lookups) -> u64 {
        if keys < 0.5 {
            return 0;
        }
        let (table, brought_in) = (&asked.uncached, self.brought_in.entry(asked.number).or_default());
        let cached = share(*brought_in, table.table_block_bytes).min(1.0);
        let is_joined = match lookups {
            Lookups::Join => true,
            Lookups::Points => false,
            Lookups::Cheaper => table.references as f64 <= keys * f64::from(SEEK_AFTER_JOINING),
        };
        let blocks = table.uncached_block_bytes as f64 * (1.0 - cached);
        // The first lookups of a table read its index and filters.
        let heads = |bytes: u64| if cached > 0.0 { 0 } else { bytes };
        if is_joined {
            return heads(table.uncached_index_bytes).saturating_add(blocks as u64);
        }
        let passing = keys * (in_table + 1.0 / FALSE_POSITIVE_EVERY).min(1.0);
        // Of `n` blocks `k` random keys touch `n (1 - (1 - 1/n)^k)`.
        let touched = 1.0 - (1.0 - 1.0 / table.blocks.max(1) as f64).powf(passing);
        let heads = heads(table.uncached_index_bytes.saturating_add(table.uncached_filter_bytes));
        let read = heads.saturating_add((blocks * touched) as u64);
        // Point lookups fill the cache; joins do not.
        if self.room >= read {
            self.room -= read;
            *brought_in = brought_in.saturating_add(read);
        }
        read
    }
}

/// Keys of inputs with overlapping ranges.
struct KeyRange<'a> {
    first: &'a [u8],
    last: &'a [u8],
    keys: u64,
}

/// Returns the ranges of the inputs, with overlapping ones merged.
fn ranges_of(gc: &Gc) -> Vec<KeyRange<'_>> {
    let mut all: Vec<KeyRange<'_>> = Vec::new();
    for input in &gc.inputs {
        let (first, last) = (key::user_key(&input.smallest), key::user_key(&input.largest));
        all.push(KeyRange { first, last, keys: input.entries });
    }
    all.sort_by_key(|range| range.first);
    let mut ranges: Vec<KeyRange<'_>> = Vec::new();
    for range in all {
        match ranges.last_mut().filter(|before| range.first <= before.last) {
            Some(before) => {
                before.last = before.last.max(range.last);
                before.keys += range.keys;
            }
            None => ranges.push(range),
        }
    }
    ranges
}

fn share(of: u64, all: u64) -> f64 {
    of as f64 / all.max(1) as f64
}
