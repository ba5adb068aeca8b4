//! vSSTs against a map.

extern crate lavastore_table as table;

mod common;
#[path = "common/vsst.rs"]
mod vsst;

use base::{Compression, ErrorKind, MAX_SEQ, ValueKind, key};
use cache::Cache;
use common::*;
use io::Rng;
use std::sync::Arc;
use table::{ReadCounters, Reference, Vsst, VsstOptions};
use vsst::{Built, Values, build, open, random_values};

fn options_of(rng: &mut Rng) -> VsstOptions {
    let codecs = codecs();
    let compression = codecs[rng.below(codecs.len() as u64) as usize];
    VsstOptions { compression, alignment: [0, 1, 8, 64][rng.below(4) as usize] }
}

fn check_gets(table: &Arc<Vsst>, values: &Values, built: &Built, fill: bool) {
    let mut counters = ReadCounters::default();
    for (i, ((user, inverted), value)) in values.iter().enumerate() {
        let found = table.get(user, !inverted, &built.reference(i), fill, &mut counters).unwrap();
        assert_eq!(&found[..], &value[..]);
    }
    assert_eq!(counters.value_reads + counters.values_cached, values.len() as u64);
    assert_eq!(counters.vsst_dense_searches, 0);
}

fn check_keys(table: &Arc<Vsst>, values: &Values, built: &Built) {
    let mut keys = table.keys().unwrap();
    let mut offset = 0;
    for (i, ((user, inverted), value)) in values.iter().enumerate() {
        assert!(keys.valid());
        let e = keys.entry();
        assert_eq!((e.user_key, e.seq, e.raw_len), (&user[..], !inverted, value.len() as u64));
        assert_eq!((e.offset, e.stored_len), (offset, built.lens[i].stored_len));
        offset += e.stored_len;
        let located = table.locate(e.user_key, e.seq, &mut ReadCounters::default()).unwrap();
        assert_eq!(located, e.offset);
        keys.next().unwrap();
    }
    assert!(!keys.valid());
    assert_eq!(keys.counters().value_reads, 0, "keys are read without the values");
}

#[test]
fn reads_what_was_written() {
    let mut rng = Rng::new(301);
    for round in 0..24 {
        let count = [1, 2, 127, 128, 129, 700, 3000][round % 7];
        let values = random_values(&mut rng, count);
        let options = options_of(&mut rng);
        let built = build(&values, &options, None);
        let cache = Arc::new(Cache::new(if round % 2 == 0 { 0 } else { 16 << 20 }));
        let table = open(built.bytes.clone(), &cache).unwrap();
        check_gets(&table, &values, &built, true);
        check_gets(&table, &values, &built, false);
        check_keys(&table, &values, &built);
        assert_eq!(table.verify().unwrap(), built.finished.len);
        let p = table.properties();
        assert_eq!(*p, built.finished.properties);
        assert_eq!((p.entries, p.class, &p.took_over[..]), (values.len() as u64, 1, &[2, 90][..]));
        assert_eq!(p.identity, identity());
        let (first, last) = (values.first_key_value().unwrap().0, values.last_key_value().unwrap().0);
        assert_eq!(built.finished.smallest, key::encode(&first.0, !first.1, ValueKind::Value));
        assert_eq!(built.finished.largest, key::encode(&last.0, !last.1, ValueKind::Value));
        assert!(options.alignment == 0 || p.alignment == options.alignment);
        assert!(built.lens.iter().all(|l| l.stored_len % u64::from(p.alignment) == 0));
    }
}
