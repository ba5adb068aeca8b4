//! Checked-in stores that an earlier release wrote with `value_placement = log`.
//!
//! `tests/golden/placed-closed` was closed: values 0 to 19 are in a table, values 20 to 39 in a
//! file that only the log refers to. `tests/golden/placed-killed` is the same store after ten more
//! durable and ten more buffered writes and the death of its process: the buffered values are in a
//! tail file only. The binary of commit 6e427b33 wrote both.
#![allow(clippy::disallowed_methods, reason = "copies a directory into a temporary one")]

use lavastore::{Db, ErrorKind, FamilyOptions, Options, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

fn options() -> Options {
    Options {
        memtable_bytes: 16 << 10,
        memory_bytes: 64 << 10,
        create_if_missing: false,
        family: FamilyOptions { min_blob_size: 64, ..Default::default() },
        ..Options::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 64 << 10;
        expert.wal_bytes_max = 128 << 10;
    })
}

fn copy_of(golden: &str) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden);
    static COPIES: AtomicU64 = AtomicU64::new(0);
    let nth = COPIES.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("lavastore-{golden}-{}-{nth}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|e| e.unwrap()) {
        fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
    dir
}

fn expected(count: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let value = |i: u32| format!("value {i}; ").into_bytes().repeat(20);
    (0..count).map(|i| (format!("golden/{i:05}").into_bytes(), value(i))).collect()
}

fn contents(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    db.default_family().iter().collect::<Result<_>>().unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_store_that_was_closed_opens_with_the_default_placement() {
    let dir = copy_of("placed-closed");
    assert!(names(&dir).iter().any(|name| name.ends_with(".tail")));
    let read_only = Db::open_read_only(&dir, &options()).unwrap();
    assert!(contents(&read_only) == expected(40));
    let report = read_only.verify().unwrap();
    assert!(report.errors.is_empty() && report.checked.log_values.count == 20, "{report:?}");
    drop(read_only);
    let db = Db::open_with(&dir, &options()).unwrap();
    assert!(contents(&db) == expected(40));
    // All data is in tables, and the files of the other placement are gone.
    assert!(!names(&dir).iter().any(|name| name.ends_with(".tail")), "{:?}", names(&dir));
    db.put(b"new", vec![7; 300]).unwrap();
    db.default_family().compact_range(..).unwrap();
    assert!(db.verify().unwrap().errors.is_empty());
    db.close().unwrap();
    let again = Db::open_with(&dir, &options()).unwrap();
    assert_eq!(contents(&again).len(), 41);
    drop(again);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_missing_value_file_of_a_closed_store_is_corruption() {
    let dir = copy_of("placed-closed");
    let file = dir.join("000000000008.vsst");
    fs::remove_file(&file).unwrap();
    let e = Db::open_with(&dir, &options()).map(drop).unwrap_err();
    assert!(e.is_corruption() && e.file() == Some(&*file), "{e}");
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_killed_store_is_refused_and_left_unchanged() {
    let dir = copy_of("placed-killed");
    let bytes = |dir: &Path| -> BTreeMap<String, Vec<u8>> {
        names(dir).into_iter().map(|name| (name.clone(), fs::read(dir.join(name)).unwrap())).collect()
    };
    let before = bytes(&dir);
    for open in [Db::open_with, Db::open_read_only] {
        let e = open(&dir, &options()).map(drop).unwrap_err();
        assert_eq!((e.kind(), e.file()), (ErrorKind::Unsupported, Some(&*dir)), "{e}");
        let told = e.to_string();
        assert!(told.contains("value_placement = log") && told.contains("6e427b33"), "{told}");
    }
    let mut after = bytes(&dir);
    after.insert("LOCK".into(), before["LOCK"].clone());
    assert!(before == after);
    fs::remove_dir_all(&dir).unwrap();
}
