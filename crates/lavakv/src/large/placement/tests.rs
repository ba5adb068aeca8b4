//! Files of placed values that are asked for what they cannot do any more, and records that are not those referred to.

use super::*;
use crate::{Db, FamilyOptions, Options, ValuePlacement};
use io::sim::SimEnv;
use table::vsst::record::LooseRecord;

fn store(sim: &SimEnv) -> Db {
    let family = FamilyOptions { value_placement: ValuePlacement::Log, ..FamilyOptions::default() };
    let db = Db::open_in(sim.env(), "/store", Options { family, ..Options::default() }).unwrap();
    db.put(b"key", &[7; 2000]).unwrap();
    db
}

/// The steps around it look at the state of the file first; what they would do otherwise is no panic.
#[test]
fn a_file_that_failed_takes_no_values_and_no_sync_and_gets_no_index() {
    let sim = SimEnv::new(1);
    let db = store(&sim);
    let placement = &db.engine().writes.large.placement;
    let memtable = db.default_column_family().0.read_state().active.id();
    let arrival = placement.of(memtable).expect("the value was placed");
    arrival.fail(true);
    let mut file = arrival.lock();
    let told = [
        (file.append(b"other", 9, b"value").map(drop), "a value was to be placed in a file that is not open"),
        (file.begin().map(drop), "a file of values that is not open was to be synced"),
        (file.finish(Arc::default()).map(drop), "the file of a memtable's values failed earlier"),
    ];
    for (result, told) in told {
        let e = result.unwrap_err();
        assert_eq!((e.kind(), e.message()), (ErrorKind::InvalidArgument, told));
    }
    drop(file);
    // The flush takes the value from memory.
    db.flush().unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&[7; 2000][..]));
}

#[test]
fn a_record_of_another_key_is_told() {
    let sim = SimEnv::new(2);
    let db = store(&sim);
    let large = &db.engine().writes.large;
    let reference = RecordReference {
        file: 9,
        uid: Uid::from_words(1, 1),
        offset: 70,
        raw_len: 1,
        stored_len: 40,
        synced_bytes: 0,
    };
    let record = LooseRecord { user_key: b"key".to_vec(), seq: 5, value: vec![1] };
    replayed::is_of(large, &record, b"key", 5, &reference).unwrap();
    for (key, seq) in [(&b"other"[..], 5), (b"key", 6)] {
        let e = replayed::is_of(large, &record, key, seq, &reference).unwrap_err();
        assert!(e.is_corruption() && e.offset() == Some(70) && e.file().is_some(), "{e}");
        assert_eq!(e.message(), "the record that the log refers to is of another key");
    }
}
