//! Scans within one key prefix pass over streams without such a key, and over no other.

use crate::common::*;
use base::{InternalIterator, key};
use cache::Cache;
use io::Rng;
use std::sync::Arc;
use table::{IterOptions, KeyPrefix, ScanBounds, TableOptions};

/// Returns the internal keys that a scan of the table finds in `lower..upper`, and the number of
/// streams that it passed over.
fn scan(table: &Arc<table::Ksst>, borders: ScanBounds) -> (Vec<Vec<u8>>, u64) {
    let (lower, upper) = (borders.lower.clone().unwrap(), borders.upper.clone().unwrap());
    let mut cursor = table.iter_within(IterOptions::default(), &Arc::new(borders));
    let mut found = Vec::new();
    cursor.seek(&key::encode(&lower, base::MAX_SEQ, base::ValueKind::Seek)).unwrap();
    while cursor.valid() && key::user_key(cursor.key()) < upper.as_slice() {
        found.push(cursor.key().to_vec());
        cursor.next().unwrap();
    }
    (found, cursor.excluded_streams())
}

#[test]
fn scans_within_a_prefix_find_every_key() {
    let mut rng = Rng::new(17);
    let kinds =
        [KeyPrefix::Fixed(1), KeyPrefix::Fixed(3), KeyPrefix::Delimiter(b'b'), KeyPrefix::Delimiter(0xff)];
    let mut passed_over = 0;
    for round in 0..60 {
        let model = random_model(&mut rng, [1, 20, 300][round % 3], round as u64 % 3);
        let options = TableOptions {
            prefix: Some(kinds[round % kinds.len()]),
            partition_len: [64, 300, 4096][rng.below(3) as usize],
            block_len: [64, 300, 4096][rng.below(3) as usize],
            filter_bits_per_key: [1, 4, 10][rng.below(3) as usize],
            ..TableOptions::default()
        };
        let (bytes, finished) = build(&model, &[], &options, None);
        assert_eq!(KeyPrefix::from_code(finished.properties.prefix_code), options.prefix);
        let table = open(bytes, &Arc::new(Cache::new(1 << 20))).unwrap();
        assert_eq!(table.verify().unwrap(), finished.len);
        let all = entries(&model);
        for _ in 0..200 {
            let mut lower = key::user_key(&all[rng.below(all.len() as u64) as usize].0).to_vec();
            if rng.one_in(3) {
                lower.insert(rng.below(lower.len() as u64 + 1) as usize, rng.next_u64() as u8);
            }
            lower.truncate(rng.below(lower.len() as u64 + 1) as usize);
            let mut upper = lower.clone();
            match upper.iter().rposition(|&b| b != 0xff) {
                Some(last) => {
                    upper.truncate(last + 1);
                    upper[last] += 1;
                }
                None => upper.push(0xff),
            }
            let expected: Vec<Vec<u8>> = (all.iter().map(|(ikey, _)| ikey.clone()))
                .filter(|ikey| (&lower[..]..&upper[..]).contains(&key::user_key(ikey)))
                .collect();
            for asks_filters in [true, false] {
                let (lower, upper) = (Some(lower.clone()), Some(upper.clone()));
                let borders = ScanBounds { lower, upper, asks_filters, ..ScanBounds::default() };
                let (found, excluded) = scan(&table, borders);
                assert_eq!(found, expected, "round {round}");
                assert!(asks_filters || excluded == 0);
                passed_over += excluded;
            }
        }
    }
    assert!(passed_over > 100, "{passed_over}");
}
