//! Salvage of damaged tables and vSSTs: the damage is reported, and everything else is readable.

use crate::common::*;
use base::range_del::RangeTombstone;
use base::{Compression, key};
use cache::Cache;
use io::Rng;
use std::sync::Arc;
use table::salvage::{self, Kind, Missing, SalvageIter};
use table::vsst::salvage::find_records;
use table::{TableOptions, VsstOptions};
use vsst::Values;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn table_of(rng: &mut Rng) -> (Vec<u8>, Entries) {
    let model = random_model(rng, 150, 0);
    let tombstones = vec![RangeTombstone { start: b"a".to_vec(), end: b"q".to_vec(), seq: 77 }];
    let options = TableOptions { block_len: 256, partition_len: 64, ..TableOptions::default() };
    (build(&model, &tombstones, &options, None).0, entries(&model))
}

/// Checks that the entries which a walk over a damaged table leaves out lie in a reported range,
/// and that its other entries are right. Returns true if the table was readable at all.
fn check(bytes: Vec<u8>, all: &[(Vec<u8>, Vec<u8>)]) -> bool {
    let Ok((table, missing)) = salvage::open(MemRead::new(bytes), 7, uid(), Arc::new(Cache::new(1 << 20)))
    else {
        return false;
    };
    let whole_stream = missing.iter().any(|m| matches!(m, Missing::Entries(_)));
    let no_tombstones = missing.iter().any(|m| matches!(m, Missing::RangeTombstones(_)));
    assert_eq!(table.range_tombstones().fragments().is_empty(), no_tombstones);
    assert!(missing.iter().all(|m| m.error().file().is_some() && m.error().offset().is_some()));
    let mut iter = SalvageIter::new(table);
    let mut expected = all.iter();
    let mut left_out = Vec::new();
    while iter.valid() {
        let next = expected.find(|(k, _)| {
            let same = k == iter.key();
            if !same {
                left_out.push(k.clone());
            }
            same
        });
        assert_eq!(next.expect("an entry that was never written").1, iter.value());
        iter.advance();
    }
    left_out.extend(expected.map(|(k, _)| k.clone()));
    let lost = iter.take_lost();
    for k in left_out {
        let user = key::user_key(&k);
        let named = lost.iter().any(|l| *l.from <= *user && user <= l.to.as_slice());
        assert!(named || whole_stream, "{} is missing and was not named", user.escape_ascii());
    }
    for l in &lost {
        assert!(l.error.file().is_some() && l.error.offset().is_some(), "{}", l.error);
    }
    // One place is damaged, so at most one block, partition or part is reported.
    assert!(lost.len() + missing.len() <= 1, "{lost:?} {missing:?}");
    true
}

#[test]
fn a_damaged_byte_loses_at_most_its_block() {
    let mut rng = Rng::new(301);
    let (bytes, all) = table_of(&mut rng);
    assert!(check(bytes.clone(), &all));
    let mut unreadable = 0;
    for i in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[i] ^= 1 << rng.below(8);
        unreadable += usize::from(!check(damaged, &all));
    }
    // Only the meta index cannot be found in a second way.
    assert!(unreadable < 100, "{unreadable} of {} bytes take the whole table", bytes.len());
}

#[test]
fn zeroed_table_blocks_are_skipped() {
    let mut rng = Rng::new(302);
    let (bytes, all) = table_of(&mut rng);
    let zeroed = |from: usize, len: usize| {
        let mut damaged = bytes.clone();
        damaged[from..(from + len).min(bytes.len())].fill(0);
        let opened =
            salvage::open(MemRead::new(damaged), 7, uid(), Arc::new(Cache::new(1 << 20))).map(|(t, _)| t);
        opened.ok().map(|t| {
            let mut iter = SalvageIter::new(t);
            let mut n = 0;
            while iter.valid() {
                n += 1;
                iter.advance();
            }
            n
        })
    };
    assert_eq!(zeroed(0, 0), Some(all.len()));
    let first = zeroed(0, 512).expect("the front of a table is not needed to open it");
    assert!(first < all.len() && first > all.len() / 2, "{first} of {}", all.len());
    assert_eq!(zeroed(0, bytes.len()), None);
}

#[test]
fn files_are_identified_by_their_footer() {
    let mut rng = Rng::new(303);
    let (bytes, _) = table_of(&mut rng);
    let len = bytes.len() as u64;
    let identify = |bytes: Vec<u8>, len: u64| salvage::identify(&*MemRead::new(bytes), len).unwrap();
    assert_eq!(identify(bytes.clone(), len), Some((Kind::Ksst, uid())));
    assert_eq!(identify(bytes.clone(), len - 1), None);
    assert_eq!(identify([&bytes[..], &[0; 100]].concat(), len), Some((Kind::Ksst, uid())), "a file too long");
    let values = vsst::random_values(&mut rng, 5);
    let built = vsst::build(&values, &VsstOptions::default(), None);
    assert_eq!(identify(built.bytes.clone(), built.finished.len), Some((Kind::Vsst, uid())));
    assert_eq!(identify(Vec::new(), 0), None);
}

/// Returns the records of `values` that `find_records` finds in `bytes`.
fn found(bytes: &[u8], values: &Values) -> Vec<usize> {
    let keys: Vec<_> = values.keys().collect();
    let records = find_records(&*MemRead::new(bytes.to_vec()), uid(), bytes.len() as u64);
    let at = |r: &table::vsst::salvage::FoundRecord| {
        let i = keys.binary_search(&&(r.user_key.clone(), !r.seq)).expect("a record that was never written");
        let loose =
            table::vsst::record::read_loose(&*MemRead::new(bytes.to_vec()), uid(), r.offset, r.stored_len);
        assert_eq!(loose.unwrap().value, values[keys[i]]);
        i
    };
    records.iter().map(at).collect()
}

#[test]
fn records_are_found_without_an_index() {
    let mut rng = Rng::new(304);
    for (alignment, compression) in [1, 8, 64].into_iter().zip(codecs().into_iter().cycle()) {
        let values = vsst::random_values(&mut rng, 60);
        let built = vsst::build(&values, &VsstOptions { compression, alignment }, None);
        let records: u64 = built.lens.iter().map(|l| l.stored_len).sum();
        let all: Vec<usize> = (0..values.len()).collect();
        assert_eq!(found(&built.bytes[..records as usize], &values), all);
        // Without all bytes after the records.
        let mut cut = built.bytes.clone();
        cut[records as usize..].fill(0);
        assert_eq!(found(&cut, &values), all);
        for _ in 0..20 {
            let mut damaged = cut.clone();
            let from = rng.below(records) as usize;
            let to = (from + 1 + rng.below(600) as usize).min(records as usize);
            damaged[from..to].iter_mut().for_each(|b| *b ^= 0x5a);
            let mut start = 0;
            let hit = |len: u64| {
                let range = start..start + len as usize;
                start = range.end;
                range.start < to && from < range.end
            };
            let mut hit = hit;
            let wanted: Vec<usize> = built
                .lens
                .iter()
                .enumerate()
                .filter_map(|(i, l)| (!hit(l.stored_len)).then_some(i))
                .collect();
            assert_eq!(found(&damaged, &values), wanted, "bytes {from}..{to}");
        }
    }
    assert_eq!(Compression::None as u8, 0);
}
