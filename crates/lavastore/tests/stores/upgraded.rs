//! Stores with a raised format: damage to one file of `CURRENT` or the manifest prevents no open
//! and loses no data.

use lavastore::testing::SimEnv;
use lavastore::{Db, ErrorKind, LogBatch, LogOptions, LogStore, Options, Result, StoreFormat, WriteBatch};
use std::ops::Bound;
use std::path::PathBuf;

const DIR: &str = "/store";

/// The files of `CURRENT` and the manifest.
fn files(sim: &SimEnv) -> Vec<PathBuf> {
    let is_of_manifest = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("CURRENT") || name.starts_with("MANIFEST")
    };
    sim.files().into_iter().map(|(path, _)| path).filter(is_of_manifest).collect()
}

/// Calls `look` on copies of the machine, each with one damage to one of these files.
fn each_damage(sim: &SimEnv, mut look: impl FnMut(&SimEnv, &str)) {
    let all = files(sim);
    assert!(all.len() >= 2, "{all:?}");
    for path in all {
        let len = sim.read_file(&path).unwrap().len() as u64;
        type Damage<'a> = &'a dyn Fn(&SimEnv) -> Result<()>;
        let damages: [(&str, Damage<'_>); 5] = [
            ("missing", &|sim| sim.erase(&path)),
            ("empty", &|sim| sim.set_file_len(&path, 0)),
            ("cut off", &|sim| sim.set_file_len(&path, len / 2)),
            ("flipped at its beginning", &|sim| sim.flip_bit(&path, 9, 1)),
            ("flipped in the middle", &|sim| sim.flip_bit(&path, len / 2, 5)),
        ];
        for (what, damage) in damages {
            let damaged = sim.fork(1);
            damage(&damaged).unwrap();
            look(&damaged, &format!("{} {what}", path.display()));
        }
    }
}

#[test]
fn a_store_with_keys_opens_with_one_damaged_file() {
    let sim = SimEnv::new(1);
    let open = |sim: &SimEnv| Db::open_in(&sim.env(), DIR, &Options::default());
    let db = open(&sim).unwrap();
    (0..50u32).for_each(|i| db.put(i.to_be_bytes(), "value").unwrap());
    db.upgrade(StoreFormat::V2).unwrap();
    db.flush().unwrap();
    db.put("last", "value").unwrap();
    db.close().unwrap();
    each_damage(&sim, |damaged, what| {
        let reader = Db::open_read_only_in(&damaged.env(), DIR, &Options::default());
        assert_eq!(reader.unwrap_or_else(|e| panic!("{what}: {e}")).iter().count(), 51, "{what}");
        let db = open(damaged).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!((db.iter().count(), db.format()), (51, StoreFormat::V2), "{what}");
        let report = db.verify().unwrap();
        assert!(report.errors.is_empty(), "{what}: the open made both files anew: {:?}", report.errors);
        db.put("more", "value").unwrap();
        db.close().unwrap();
        assert_eq!(open(damaged).unwrap().iter().count(), 52, "{what}");
    });
}

#[test]
fn a_store_of_logs_opens_with_one_damaged_file() {
    let sim = SimEnv::new(2);
    let open = |sim: &SimEnv| LogStore::open_in(&sim.env(), DIR, &LogOptions::default());
    let store = open(&sim).unwrap();
    let log = store.log("orders").unwrap();
    (1..50).for_each(|lsn| log.append(lsn, "two apples").unwrap());
    store.upgrade(StoreFormat::V2).unwrap();
    log.append(50, "one pear").unwrap();
    drop(log);
    store.close().unwrap();
    each_damage(&sim, |damaged, what| {
        let store = open(damaged).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(store.log("orders").unwrap().scan(..).count(), 50, "{what}");
        let report = store.verify();
        assert!(report.damages.is_empty(), "{what}: {:?}", report.damages);
        store.close().unwrap();
    });
}

#[test]
fn an_empty_key_is_accepted_only_after_the_upgrade() {
    let sim = SimEnv::new(3);
    let logs = LogOptions::default();
    let db = Db::open_with_logs_in(&sim.env(), DIR, &Options::default(), &logs).unwrap();
    db.put("a", "1").unwrap();
    let log = db.logs().unwrap().log("orders").unwrap();
    log.append(1, "one").unwrap();
    let mut applier = db.applier(&log).unwrap();
    let mut changes = WriteBatch::new();
    changes.put("b", "2");
    changes.put("", "empty");
    let mut records = LogBatch::new();
    records.append(&log, 2, "two");
    let long = vec![7; 20 << 20];
    let mut write = |nth: usize| match nth {
        0 => db.put("", "empty"),
        1 => db.delete(""),
        2 => db.write(&changes),
        3 => db.put("", &long),
        4 => applier.apply(1, &changes),
        _ => db.write_with_logs(&changes, &records),
    };
    for nth in 0..6 {
        let e = write(nth).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{nth}: {e}");
        assert!(e.to_string().contains("raise it with 'lava upgrade' or Db::upgrade"), "{nth}: {e}");
    }
    assert_eq!((db.iter().count(), log.last_lsn().unwrap(), db.get("").unwrap()), (1, Some(1), None));
    assert!(!db.contains_key("").unwrap());
    db.delete_range(.."a").unwrap();
    db.upgrade(StoreFormat::V2).unwrap();
    for nth in 0..6 {
        write(nth).unwrap_or_else(|e| panic!("{nth}: {e}"));
        assert_eq!(db.contains_key("").unwrap(), nth != 1, "{nth}");
    }
    assert_eq!(log.last_lsn().unwrap(), Some(2));
    assert_eq!(db.range("".."a").count(), 1);
    assert_eq!(db.range(..="").count(), 1);
    assert_eq!(db.range((Bound::Excluded(""), Bound::Unbounded)).count(), 2);
    assert_eq!(db.prefix("").count(), 3);
    db.delete_range(.."a").unwrap();
    assert_eq!(db.get("").unwrap(), None);
}
