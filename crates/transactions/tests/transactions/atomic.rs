//! Atomic updates: alone, and by several threads at once.

use crate::{small, store};
use lavastore_transactions::atomic::{Update, compare_and_set, fetch_and_update};
use lavastore_transactions::lavakv::Db;

#[test]
fn compare_and_set_changes_only_the_expected_value() {
    let db = store(1);
    let family = db.default_column_family();
    let set = |expected: Option<&[u8]>, new: Option<&[u8]>| {
        compare_and_set(&db, family, b"key", expected, new, &Default::default()).unwrap()
    };
    assert!(!set(Some(b"a"), Some(b"b")), "it is absent");
    assert!(set(None, Some(b"a")));
    assert!(!set(None, Some(b"b")), "it is there");
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"a"[..]));
    assert!(set(Some(b"a"), Some(b"")));
    assert!(set(Some(b""), None), "an empty value is a value");
    assert_eq!(db.get(b"key").unwrap(), None);
    assert!(set(None, None));
}

/// No addition is lost, whatever several threads do at once.
#[test]
fn additions_of_several_threads_are_all_counted() {
    let dir = std::env::temp_dir().join(format!("lavastore-atomic-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    {
        let db = Db::open_with(&dir, small()).unwrap();
        let add = |db: &Db| {
            for _ in 0..500 {
                fetch_and_update(db, db.default_column_family(), b"sum", &Default::default(), |old| {
                    let old = old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap()));
                    Update::Set((old + 1).to_le_bytes().to_vec())
                })
                .unwrap();
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| add(&db)))));
        assert_eq!(db.get(b"sum").unwrap().as_deref(), Some(&2000u64.to_le_bytes()[..]));
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
