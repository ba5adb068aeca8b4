use super::*;
use base::Uid;
use base::ValueKind;
use base::key::encode;
use std::collections::BTreeMap;
use version::{AliasTarget, Dependency, FileMeta};

/// Builds versions from metadata alone.
pub(crate) struct Shop {
    levels: Vec<Vec<FileMeta>>,
    vssts: BTreeMap<u64, VsstMeta>,
    aliases: BTreeMap<u64, Vec<AliasTarget>>,
    last: (usize, usize),
}

pub(crate) fn dependency(blob_id: u64, count: u64, stored_bytes: u64) -> Dependency {
    Dependency { blob_id, count, raw_bytes: stored_bytes, stored_bytes }
}

fn ikey(i: u64) -> Vec<u8> {
    encode(format!("{i:08}").as_bytes(), 1, ValueKind::Value)
}

impl Shop {
    pub(crate) fn new() -> Shop {
        Shop { levels: vec![Vec::new(); 7], vssts: BTreeMap::new(), aliases: BTreeMap::new(), last: (0, 0) }
    }

    pub(crate) fn vsst(&mut self, number: u64, record_bytes: u64) -> &mut Shop {
        let meta = VsstMeta {
            number,
            uid: Uid::from_words(number, 0),
            len: record_bytes + 10,
            record_bytes,
            entries: 1,
            smallest: ikey(0),
            largest: ikey(9),
            ..VsstMeta::default()
        };
        self.vssts.insert(number, meta);
        self
    }

    pub(crate) fn edit(&mut self, number: u64, change: impl FnOnce(&mut VsstMeta)) -> &mut Shop {
        change(self.vssts.get_mut(&number).unwrap());
        self
    }

    pub(crate) fn alias(&mut self, name: u64, files: &[u64]) -> &mut Shop {
        let target = |(i, &file): (usize, &u64)| AliasTarget {
            first_key: if i == 0 { Vec::new() } else { ikey(i as u64) },
            file,
        };
        self.aliases.insert(name, files.iter().enumerate().map(target).collect());
        for file in files {
            let ids = &mut self.vssts.get_mut(file).unwrap().blob_ids;
            ids.push(name);
            ids.sort_unstable();
            ids.dedup();
        }
        self
    }

    pub(crate) fn table(&mut self, number: u64, dependencies: &[Dependency]) -> &mut Shop {
        self.table_at(1, number, 1, dependencies)
    }

    pub(crate) fn table_at(
        &mut self,
        level: usize,
        number: u64,
        entries: u64,
        dependencies: &[Dependency],
    ) -> &mut Shop {
        let meta = FileMeta {
            number,
            smallest: ikey(number * 10),
            largest: ikey(number * 10 + 9),
            entries,
            uses: dependencies.to_vec().into(),
            ..FileMeta::default()
        };
        self.levels[level].push(meta);
        self.last = (level, self.levels[level].len() - 1);
        self
    }

    pub(crate) fn version(&self) -> Version {
        let levels = self.levels.iter().map(|l| l.iter().cloned().map(Arc::new).collect()).collect();
        let mut version = Version::with_files(1, levels);
        version.vssts = self.vssts.iter().map(|(n, v)| (*n, Arc::new(v.clone()))).collect();
        version.aliases = self.aliases.iter().map(|(n, t)| (*n, Arc::new(t.clone()))).collect();
        for d in self.levels.iter().flatten().flat_map(|f| f.uses.list().unwrap_or_default()) {
            let mut totals = version.references.get(&d.blob_id).copied().unwrap_or_default();
            totals.tables += 1;
            totals.count += d.count;
            totals.raw_bytes += d.raw_bytes;
            totals.stored_bytes += d.stored_bytes;
            version.references.insert(d.blob_id, totals);
        }
        version
    }

    fn pick(&self, options: &GcOptions) -> Option<Gc> {
        self.pick_without(options, &[])
    }

    fn pick_without(&self, options: &GcOptions, busy: &[u64]) -> Option<Gc> {
        let version = self.version();
        pick(&version, &Ledger::of(&version), options, &|v| busy.contains(&v.number))
    }
}

fn numbers(gc: Option<Gc>) -> Vec<u64> {
    gc.map(|gc| gc.numbers().collect()).unwrap_or_default()
}

/// Returns files of 1000 bytes with these bytes referenced.
fn shop(referenced: &[(u64, u64)]) -> Shop {
    let mut shop = Shop::new();
    for &(number, bytes) in referenced {
        shop.vsst(number, 1000);
        if bytes > 0 {
            shop.table(number, &[dependency(number, 1, bytes)]);
        }
    }
    shop
}

fn options(file_bytes: u64) -> GcOptions {
    GcOptions { file_bytes, ..GcOptions::default() }
}

#[test]
fn the_highest_ratio_comes_first_until_an_output_is_full() {
    let shop = shop(&[(20, 700), (21, 100), (22, 300), (23, 850), (24, 500)]);
    assert_eq!(numbers(shop.pick(&options(10_000))), [21, 22, 24, 20], "23 is under the threshold");
    let gc = shop.pick(&GcOptions { gap_bytes: Some(0), ..options(1000) }).unwrap();
    assert_eq!(numbers(Some(gc.clone())), [21, 22, 24], "the next would not fit any more");
    assert_eq!((gc.expected_free, gc.expected_write, gc.exact), (900 + 700 + 500, 900, true));
    assert_eq!(gc.expected_read, 900 + 3 * 10);
    assert_eq!(numbers(shop.pick(&options(1))), [21], "the first is taken whatever its size");
    assert_eq!(numbers(shop.pick_without(&options(1000), &[21, 24])), [22, 20]);
}

#[test]
fn collection_input_bounds_hold() {
    let shop = shop(&[(20, 100), (21, 100), (22, 100), (23, 100)]);
    let of = |inputs_max, input_bytes_max| {
        numbers(shop.pick(&GcOptions { inputs_max, input_bytes_max, ..options(10_000) }))
    };
    assert_eq!(of(16, 1 << 40), [20, 21, 22, 23]);
    assert_eq!(of(2, 1 << 40), [20, 21]);
    assert_eq!(of(16, 3030), [20, 21, 22]);
    assert_eq!(of(0, 0), [20]);
}

/// Files that are copied because of their tier are taken in the given order, within the same
/// limits.
#[test]
fn collection_input_bounds_hold_for_given_files() {
    let shop = shop(&[(20, 100), (21, 100), (22, 100), (23, 100)]);
    let version = shop.version();
    let of = |inputs_max, input_bytes_max, file_bytes, which: &[u64]| {
        let options = GcOptions { inputs_max, input_bytes_max, ..options(file_bytes) };
        let files = which.iter().filter_map(|number| version.vssts.get(number));
        numbers(of_files(&version, &Ledger::of(&version), &options, files))
    };
    let all = [23, 20, 22, 21];
    assert_eq!(of(16, 1 << 40, 10_000, &all), all);
    assert_eq!(of(2, 1 << 40, 10_000, &all), [23, 20]);
    assert_eq!(of(16, 1 << 40, 350, &all), [23, 20, 22], "one output");
    assert_eq!(of(16, 2500, 10_000, &all), [23, 20], "they stay until the job is over");
    assert_eq!(of(0, 0, 0, &all), [23], "the first whatever its size");
    assert!(of(16, 1 << 40, 10_000, &[]).is_empty());
}

#[test]
fn no_collection_is_picked_without_garbage() {
    let shop = shop(&[(20, 1000), (21, 1000)]);
    for ratio_percent in [0, 1, 20] {
        assert!(shop.pick(&GcOptions { ratio_percent, ..options(10_000) }).is_none());
    }
    assert!(Shop::new().pick(&options(1)).is_none());
}

#[test]
fn a_dead_file_is_picked_first_and_alone() {
    let shop = shop(&[(20, 100), (21, 0), (22, 0)]);
    let gc = shop.pick(&options(10_000)).unwrap();
    assert_eq!(numbers(Some(gc.clone())), [21]);
    assert_eq!((gc.expected_free, gc.expected_write, gc.expected_read), (1000, 0, 0));
}

#[test]
fn hot_files_are_collected_separately_and_survivors_turn_warm() {
    let mut shop = shop(&[(20, 100), (21, 200), (22, 300), (23, 400), (24, 500), (30, 150), (31, 350)]);
    shop.edit(20, |v| v.class = VsstClass::Hot).edit(22, |v| v.class = VsstClass::Hot);
    shop.edit(23, |v| v.class = VsstClass::Cold);
    // An output of a collection has taken over blob ids.
    for warm in [30, 31] {
        shop.edit(warm, |v| (v.class, v.blob_ids) = (VsstClass::Hot, vec![warm - 20]));
    }
    let gc = shop.pick(&options(10_000)).unwrap();
    assert_eq!(gc.class, VsstClass::Hot);
    assert_eq!(numbers(Some(gc)), [20, 22]);
    let without = shop.pick(&GcOptions { warm_survivors: false, ..options(10_000) }).unwrap();
    assert_eq!((without.class, numbers(Some(without.clone()))), (VsstClass::Cold, vec![20, 22]));
    let gc = shop.pick_without(&options(10_000), &[20]).unwrap();
    assert_eq!((gc.class, numbers(Some(gc.clone()))), (VsstClass::Cold, vec![30, 31]), "once");
    let (busy, with_cold) = ([20, 22, 30, 31], [20, 22, 30, 31, 23]);
    let gc = shop.pick_without(&options(10_000), &busy).unwrap();
    assert_eq!(gc.class, VsstClass::Cold);
    assert_eq!(numbers(Some(gc)), [21, 23, 24], "what nobody has classified goes with the cold");
    assert_eq!(shop.pick_without(&options(10_000), &with_cold).unwrap().class, VsstClass::Mixed);
}

#[test]
fn segments_and_ingested_files_are_collected_only_when_dead() {
    let mut shop = shop(&[(20, 100), (21, 200), (22, 300)]);
    shop.edit(20, |v| v.segment = true).edit(21, |v| v.global_seq = Some(7));
    assert_eq!(numbers(shop.pick(&options(10_000))), [22]);
    let mut dead = Shop::new();
    dead.vsst(20, 1000).edit(20, |v| v.segment = true);
    assert_eq!(numbers(dead.pick(&options(10_000))), [20]);
}

#[test]
fn estimated_plans_are_marked_inexact() {
    let mut shop = Shop::new();
    shop.vsst(20, 1000).vsst(21, 1000).vsst(22, 1000).alias(5, &[20, 21]);
    shop.table(1, &[dependency(5, 1, 400), dependency(22, 1, 600)]);
    let gc = shop.pick(&options(10_000)).unwrap();
    assert_eq!(numbers(Some(gc.clone())), [20, 21, 22]);
    assert!(!gc.exact);
    assert!(shop.pick_without(&options(10_000), &[20, 21]).unwrap().exact);
}
