//! Features of the facade: ranges, double-ended iterators, handles that keep the store open, checks
//! of misuse.

#![allow(clippy::disallowed_methods, reason = "tests run threads")]

use lavastore::testing::{SimEnv, store};
use lavastore::{Db, ErrorKind, Options, ReadOptions, Result, Snapshot, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::ops::Bound;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn filled(entries: u32) -> (Db, Model) {
    let (db, mut model) = (store(), Model::new());
    for i in 0..entries {
        let (key, value) = (format!("key{i:03}"), format!("value {i}"));
        db.put(&key, &value).unwrap();
        model.insert(key.into_bytes(), value.into_bytes());
        if i == entries / 2 {
            db.flush().unwrap();
        }
    }
    (db, model)
}

#[test]
fn ranges_agree_with_standard_collections() {
    let (db, model) = filled(40);
    let keys: Vec<&[u8]> = vec![b"", b"key000", b"key0", b"key017", b"key017\0", b"key039", b"z"];
    for &a in &keys {
        for &b in keys.iter().filter(|b| **b >= a) {
            let ends =
                |key: &[u8]| [Bound::Unbounded, Bound::Included(key.to_vec()), Bound::Excluded(key.to_vec())];
            for (start, end) in ends(a).into_iter().flat_map(|start| ends(b).map(|end| (start.clone(), end)))
            {
                if matches!((&start, &end), (Bound::Excluded(a), Bound::Excluded(b)) if a == b) {
                    continue;
                }
                let bounds = (start, end);
                let expected: Vec<_> =
                    model.range(bounds.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
                let found = db.range(bounds.clone()).collect::<Result<Vec<_>>>().unwrap();
                assert_eq!(found, expected, "{bounds:?}");
                let mut backward = db.range(bounds.clone()).rev().collect::<Result<Vec<_>>>().unwrap();
                backward.reverse();
                assert_eq!(backward, expected, "{bounds:?} backward");
                let keys = db.iter().within(bounds.clone()).keys().collect::<Result<Vec<_>>>().unwrap();
                assert!(keys.iter().eq(expected.iter().map(|(key, _)| key)), "{bounds:?} within all");
            }
        }
    }
    assert_eq!(db.range("key010".."key020").count(), 10);
    assert_eq!(db.range(..).count(), 40);
    assert_eq!(db.range(b"key010"..=b"key020").count(), 11);
    assert_eq!(db.range("z".."a").count(), 0, "no range is empty, and no panic");
    assert_eq!(db.prefix("key03").within(.."key035").count(), 5);
}

/// Alternating between both ends in any pattern returns each entry once.
#[test]
fn double_ended_iteration_returns_each_entry_once() {
    let (db, model) = filled(9);
    let expected: Vec<_> = model.into_iter().collect();
    for pattern in 0u32..1 << 9 {
        let (mut iter, mut front, mut back) = (db.iter(), Vec::new(), Vec::new());
        for nth in 0..9 {
            match pattern >> nth & 1 {
                0 => front.push(iter.next().expect("nine entries").unwrap()),
                _ => back.push(iter.next_back().expect("nine entries").unwrap()),
            }
        }
        assert!(iter.next().is_none() && iter.next_back().is_none() && iter.next().is_none(), "{pattern:b}");
        front.extend(back.into_iter().rev());
        assert_eq!(front, expected, "{pattern:b}");
    }
    // The other end sees the same moment, even if it is used late.
    let mut iter = db.iter();
    iter.next().expect("nine entries").unwrap();
    db.put("z", "late").unwrap();
    assert_eq!(iter.next_back().expect("nine entries").unwrap(), expected[8]);
}

#[test]
fn an_exhausted_iterator_releases_its_snapshot() {
    let (db, _) = filled(3);
    let mut iter = db.reading(&ReadOptions { name: "scan".into(), ..Default::default() }).iter();
    assert_eq!(db.space().unwrap().holders.len(), 1);
    assert_eq!(iter.by_ref().count(), 3);
    assert_eq!(db.space().unwrap().holders.len(), 0);
    assert!(iter.next().is_none());
}

#[test]
fn handles_keep_the_store_open() {
    let env = SimEnv::new(1).env();
    let open = || Db::open_in(&env, "/store", &Options::default());
    type Made = Box<dyn std::any::Any>;
    let makers: [fn(&Db) -> Made; 7] = [
        |db| Box::new(db.clone()),
        |db| Box::new(db.family("users").unwrap()),
        |db| Box::new(db.snapshot()),
        |db| Box::new(db.iter()),
        |db| Box::new(db.iter().cursor().unwrap()),
        |db| Box::new(db.put_stream("key").unwrap()),
        |db| Box::new(db.get_stream("old").unwrap().unwrap()),
    ];
    for maker in makers {
        let db = open().unwrap();
        db.put("old", "value").unwrap();
        let made = maker(&db);
        drop(db);
        assert_eq!(open().unwrap_err().kind(), ErrorKind::Locked);
        drop(made);
        // A close does not wait for open handles.
        let db = open().unwrap();
        let made = maker(&db);
        db.close().unwrap();
        let next = open().unwrap();
        drop(made);
        next.put("new", "value").unwrap();
        next.close().unwrap();
    }
    // Two concurrent closes both return after the store is closed.
    let db = open().unwrap();
    let twin = db.clone();
    let other = std::thread::spawn(move || twin.close());
    db.close().unwrap();
    open().unwrap();
    other.join().unwrap().unwrap();
}

#[test]
fn handles_of_another_store_are_refused() {
    let (one, two) = (store(), Db::open_in(&SimEnv::new(2).env(), "/store", &Options::default()).unwrap());
    let users = two.family("users").unwrap();
    one.family("users").unwrap();
    let mut batch = WriteBatch::new();
    batch.family(&users).put("7", "ada");
    assert_eq!(one.write(&batch).unwrap_err().kind(), ErrorKind::InvalidArgument);
    two.write(&batch).unwrap();
    let before: Snapshot = one.snapshot();
    assert_eq!(before.family(&users).get("7").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let first = before.family(&users).iter().next().expect("the error is an item");
    assert_eq!(first.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(one.drop_family(&users).unwrap_err().kind(), ErrorKind::InvalidArgument);
    batch.clear();
    batch.put("key", "value");
    one.write(&batch).unwrap();
}

#[test]
fn families_are_created_on_demand() {
    let db = store();
    assert_eq!(db.open_family("users").unwrap_err().kind(), ErrorKind::NotFound);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn({
                let db = db.clone();
                move || db.family("users").map(|f| f.id())
            })
        })
        .collect();
    let ids: Vec<u32> = threads.into_iter().map(|t| t.join().unwrap().unwrap()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(db.family_names(), ["default", "users"]);
    let dropped = db.family("users").unwrap();
    db.drop_family(&dropped).unwrap();
    assert_eq!(dropped.put("7", "ada").unwrap_err().kind(), ErrorKind::NotFound);
    assert_ne!(db.family("users").unwrap().id(), ids[0], "a new one");
    assert_eq!(db.drop_family(db.default_family()).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Formats the error and its sources like `{:#}` of anyhow.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

#[test]
fn error_sources_name_each_cause_once() {
    let error = Db::open("/dev/null/store").unwrap_err();
    let cause = error.io_error().expect("the system refused").to_string();
    assert_eq!(chain(&error).matches(&cause).count(), 1, "{}", chain(&error));
    assert!(error.to_string().contains(&cause), "also where only the error is printed: {error}");
    let around = error.clone().context("while the program started");
    assert_eq!(around.cause().map(ToString::to_string), error.cause().map(ToString::to_string));
}

#[test]
fn every_write_call_accepts_durable_options() {
    let machine = SimEnv::new(3);
    let db = Db::open_in(&machine.env(), "/store", &Options::default()).unwrap();
    let users = db.family("users").unwrap();
    db.put("a", "").unwrap();
    db.put("b", "").unwrap();
    let durable = WriteOptions::durable();
    let calls: [&dyn Fn() -> Result<()>; 5] = [
        &|| users.writing(&durable).put("7", "ada"),
        &|| users.writing(&durable).delete("6"),
        &|| db.writing(&durable).delete_range("a".."b"),
        &|| db.writing(&durable).put_stream("film")?.finish(),
        &|| db.writing(&durable).write(&WriteBatch::new()),
    ];
    for call in calls {
        db.put("last", "buffered").unwrap();
        call().unwrap();
        let lost = machine
            .crash(lavastore::testing::CrashKind::PowerLossWith(lavastore::testing::Policy::Dropped), 1);
        let after = Db::open_in(&lost.env(), "/store", &Options::default()).unwrap();
        assert!(after.get("last").unwrap().is_some(), "what was before it is durable with it");
        drop(after);
        db.delete("last").unwrap();
    }
}
