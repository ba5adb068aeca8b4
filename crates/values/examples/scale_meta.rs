//! What the bookkeeping of values costs in a store of terabytes, without its data:
//! `cargo run --release -p lavastore-values --example scale_meta -- 1 10 100`.
//!
//! For each number of terabytes it makes the description of a store under random overwrites: vSSTs of 64 MiB that are up to a
//! third garbage, tables of 64 MiB in one level, each of which references vSSTs at random. How many names a table uses grows with the
//! store; so that the lists fit into memory, the level has no more tables than use [`NAMES_MAX`] names together, and what the lists
//! of all tables would take is told beside it. Then it does what a running store does, and tells how long each takes (the best
//! of some): a flush, a compaction of a table, the replacement of a vSST, a pick, a prune, a snapshot of the manifest, an open.
//! One line of JSON for each number.

#![allow(clippy::print_stdout, reason = "an example tells what it measures")]

use base::{Uid, ValueKind, key};
use io::{Env, Rng};
use lavastore_values::{GcOptions, Ledger, Pins, pick, prune};
use std::sync::Arc;
use version::{Dependency, Edit, FileMeta, Record, State, Version, VsstMeta};

const FILE_BYTES: u64 = 64 << 20;
const VALUE_BYTES: u64 = 1000;
/// Bytes of an entry of a table that references a value.
const ENTRY_BYTES: u64 = 25;
/// All dependencies of the store that is made.
const NAMES_MAX: u64 = 4_000_000;
const ROUNDS: usize = 9;

fn bounds(from: u64, to: u64) -> (Vec<u8>, Vec<u8>) {
    let bound = |at: u64| key::encode(format!("{at:012}").as_bytes(), 1, ValueKind::Value);
    (bound(from), bound(to))
}

fn vsst(number: u64) -> VsstMeta {
    let (smallest, largest) = bounds(0, 999_999_999_999);
    VsstMeta {
        number,
        uid: Uid::from_words(number, 1),
        len: FILE_BYTES,
        record_bytes: FILE_BYTES,
        raw_bytes: FILE_BYTES,
        entries: FILE_BYTES / VALUE_BYTES,
        smallest,
        largest,
        min_seq: 1,
        max_seq: 1,
        ..VsstMeta::default()
    }
}

fn table(number: u64, place: u64, dependencies: Vec<Dependency>) -> FileMeta {
    let (smallest, largest) = bounds(place * 10, place * 10 + 9);
    let entries = FILE_BYTES / ENTRY_BYTES;
    let (min_seq, max_seq) = (number, number);
    FileMeta {
        number,
        len: FILE_BYTES,
        smallest,
        largest,
        min_seq,
        max_seq,
        entries,
        dependencies,
        ..FileMeta::default()
    }
}

struct Shop {
    rng: Rng,
    state: State,
    next: u64,
    clock: Env,
}

impl Shop {
    fn version(&self) -> Arc<Version> {
        self.state.family(0).expect("it was made").version.clone()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn commit(&mut self, records: Vec<Record>) {
        self.state = self.state.apply(Edit(records)).expect("the edit fits");
    }

    /// The best of some rounds, in milliseconds.
    fn best_ms(&mut self, mut of: impl FnMut(&mut Self) -> u64) -> f64 {
        (0..ROUNDS).map(|_| of(self)).min().unwrap_or(0) as f64 / 1e6
    }

    fn timed<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        let begun_ns = self.clock.clock.now_ns();
        let made = work();
        (made, self.clock.clock.now_ns() - begun_ns)
    }
}

/// A store with so many vSSTs, and tables of which each references so many.
fn shop(vssts: u64, tables: u64, names: u64) -> Shop {
    let mut shop =
        Shop { rng: Rng::new(1), state: State::empty(Uid::default(), 1), next: vssts, clock: Env::kernel() };
    let mut records = vec![Record::CreateFamily { id: 0, name: "default".into(), options: vec![] }];
    records.extend((1..=vssts).map(|number| Record::AddVsst { family: 0, meta: vsst(number) }));
    shop.commit(records);
    let each_bytes = FILE_BYTES * vssts / (tables * names).max(1);
    for place in 0..tables {
        let step = (vssts / names).max(1);
        let dependency = |nth: u64, rng: &mut Rng| {
            let stored_bytes = each_bytes * rng.range(67, 100) / 100;
            let blob_id = 1 + (nth * step + place) % vssts;
            Dependency { blob_id, count: stored_bytes / VALUE_BYTES, raw_bytes: stored_bytes, stored_bytes }
        };
        let mut dependencies: Vec<_> = (0..names).map(|nth| dependency(nth, &mut shop.rng)).collect();
        dependencies.sort_unstable_by_key(|d| d.blob_id);
        dependencies.dedup_by_key(|d| d.blob_id);
        let number = shop.number();
        shop.commit(vec![Record::AddFile { family: 0, level: 6, meta: table(number, place, dependencies) }]);
    }
    shop
}

/// An edit: applied, and the ledger of what comes of it.
fn edit(shop: &mut Shop, ledger: &mut Ledger, records: Vec<Record>) -> (u64, u64) {
    let before = shop.version();
    let (encoded, encode_ns) = shop.timed(|| Edit(records.clone()).encode().len());
    assert!(encoded > 0);
    let state = shop.state.clone();
    let (state, apply_ns) = shop.timed(|| state.apply(Edit(records)).expect("the edit fits"));
    shop.state = state;
    let now = shop.version();
    let (after, ledger_ns) = shop.timed(|| ledger.after(&before, &now));
    *ledger = after;
    (encode_ns + apply_ns, ledger_ns)
}

fn measure(terabytes: u64) {
    let vssts = (terabytes * 1_000_000_000_000 / FILE_BYTES).max(1);
    let references = terabytes * 1_000_000_000_000 / VALUE_BYTES;
    let all_tables = (references * ENTRY_BYTES / FILE_BYTES).max(1);
    let names = vssts.min(FILE_BYTES / ENTRY_BYTES);
    let tables = (NAMES_MAX / names).clamp(2, all_tables.max(2));
    let mut shop = shop(vssts, tables, names);
    let version = shop.version();
    let mut ledger = Ledger::of(&version);
    let walk_ms = shop.best_ms(|shop| shop.timed(|| Ledger::of(&version)).1);
    let (mut flush_ns, mut flush_ledger_ns) = (u64::MAX, u64::MAX);
    let (mut compaction_ns, mut compaction_ledger_ns) = (u64::MAX, u64::MAX);
    let mut collection_ledger_ns = u64::MAX;
    for nth in 0..ROUNDS as u64 {
        let (file, number) = (shop.number(), shop.number());
        let bytes = FILE_BYTES * 9 / 10;
        let own =
            Dependency { blob_id: file, count: bytes / VALUE_BYTES, raw_bytes: bytes, stored_bytes: bytes };
        let flush = vec![
            Record::AddVsst { family: 0, meta: vsst(file) },
            Record::AddFile { family: 0, level: 0, meta: table(number, 5, vec![own]) },
        ];
        let (apply, derive) = edit(&mut shop, &mut ledger, flush);
        (flush_ns, flush_ledger_ns) = (flush_ns.min(apply), flush_ledger_ns.min(derive));
        // A compaction that drops a record of each tenth name.
        let old = shop.version().files(6)[(nth % tables) as usize].clone();
        let mut new = table(shop.number(), 0, old.dependencies.clone());
        (new.smallest, new.largest) = (old.smallest.clone(), old.largest.clone());
        let dropped = |d: &mut Dependency| {
            (d.count, d.stored_bytes) =
                (d.count.saturating_sub(1), d.stored_bytes.saturating_sub(VALUE_BYTES));
        };
        new.dependencies.iter_mut().step_by(10).for_each(dropped);
        let compaction = vec![
            Record::RemoveFile { family: 0, level: 6, number: old.number },
            Record::AddFile { family: 0, level: 6, meta: new },
        ];
        let (apply, derive) = edit(&mut shop, &mut ledger, compaction);
        (compaction_ns, compaction_ledger_ns) = (compaction_ns.min(apply), compaction_ledger_ns.min(derive));
        let collected = pick(&shop.version(), &ledger, &GcOptions::default(), &|_| false).expect("garbage");
        let inputs: Vec<u64> = collected.numbers().collect();
        let mut output = vsst(shop.number());
        output.blob_ids = inputs.iter().flat_map(|&input| shop.version().names_of(input)).collect();
        output.blob_ids.sort_unstable();
        let replaced = vec![Record::ReplaceVsst { family: 0, inputs, outputs: vec![output] }];
        collection_ledger_ns = collection_ledger_ns.min(edit(&mut shop, &mut ledger, replaced).1);
    }
    let version = shop.version();
    assert_eq!(ledger, Ledger::of(&version), "what is kept is what a walk finds");
    let options = GcOptions::default();
    let pick_ms = shop.best_ms(|shop| shop.timed(|| pick(&version, &ledger, &options, &|_| false)).1);
    let pins = Pins::new();
    let prune_ms = shop.best_ms(|shop| shop.timed(|| prune(&version, &ledger, &pins)).1);
    let state = shop.state.clone();
    let (snapshot, snapshot_ns) = shop.timed(|| state.snapshot());
    let read = || State::from_snapshot(Uid::default(), 1, &snapshot).and_then(|s| s.verify().map(|()| s));
    let (opened, open_ns) = shop.timed(read);
    let opened = opened.expect("it was just written");
    assert_eq!(opened.family(0).expect("it was made").version.vssts.len(), version.vssts.len());
    let ms = |ns: u64| ns as f64 / 1e6;
    let listed: u64 = version.levels.iter().flatten().map(|f| f.dependencies.len() as u64).sum();
    let list_bytes = (snapshot.len() as u64 - vssts * 70) / listed.max(1);
    println!(
        "{{\"terabytes\":{terabytes},\"vssts\":{vssts},\"tables\":{all_tables},\"tables_made\":{tables},\
         \"names_of_a_table\":{names},\"lists_of_all_tables_bytes\":{},\"manifest_of_all_tables_bytes\":{},\
         \"ledger_walk_ms\":{walk_ms:.3},\"flush_edit_ms\":{:.3},\"flush_ledger_ms\":{:.3},\
         \"compaction_edit_ms\":{:.3},\"compaction_ledger_ms\":{:.3},\"collection_ledger_ms\":{:.3},\
         \"pick_ms\":{pick_ms:.4},\"prune_ms\":{prune_ms:.4},\"snapshot_ms\":{:.1},\"open_ms\":{:.1}}}",
        all_tables * names * 32,
        all_tables * names * list_bytes,
        ms(flush_ns),
        ms(flush_ledger_ns),
        ms(compaction_ns),
        ms(compaction_ledger_ns),
        ms(collection_ledger_ns),
        ms(snapshot_ns),
        ms(open_ns),
    );
}

fn main() {
    let asked: Vec<u64> = std::env::args().skip(1).filter_map(|n| n.parse().ok()).collect();
    let all = if asked.is_empty() { vec![1, 10] } else { asked };
    all.into_iter().for_each(measure);
}
