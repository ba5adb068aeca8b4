//! Tests of estimates for tables written before the open.

use crate::{Db, Options};
use io::sim::SimEnv;

/// A long table of level 0 from an earlier process: its file has a sample, and no compaction is
/// due.
#[test]
fn tables_of_an_earlier_process_get_estimates() {
    let sim = SimEnv::new(4);
    let open = || {
        let options = Options { memtable_bytes: 4 << 20, memory_bytes: 16 << 20, ..Options::default() };
        Db::open_in(sim.env(), "/store", options).unwrap()
    };
    let put = |db: &Db, keys: std::ops::Range<u32>| {
        keys.for_each(|i| db.put(&(i * 7919 % 6000).to_be_bytes(), &[1; 600]).unwrap());
    };
    let db = open();
    put(&db, 0..3000);
    db.compact_range(db.default_column_family(), None, None).unwrap();
    put(&db, 3000..6000);
    db.flush().unwrap();
    db.close().unwrap();
    let db = open();
    let is_unknown = || db.default_column_family().0.read_state().has_unknown_tables();
    assert!(is_unknown(), "there is a table to survey");
    while db.run_background_step() {}
    assert!(!is_unknown());
    assert_eq!(db.default_column_family().0.read_state().chain.l0_depth, 1, "it was not compacted");
}
