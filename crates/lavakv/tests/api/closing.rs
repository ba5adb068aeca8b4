//! Close beside running calls and live handles.

use crate::common::*;
use lavastore_lavakv::{
    Cancel, ColumnFamily, CompactRequest, Db, DbIterator, Durability, Error, ErrorKind, GcRequest, Options,
    ReadOptions, RequestOptions, Result, WriteBatch, WriteOptions, sim::SimEnv,
};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn is_closed<T>(told: Result<T>) {
    fails(told, ErrorKind::Closed);
}

fn iterators_are_refused((standing, fresh): (&mut DbIterator, &mut DbIterator), family: &ColumnFamily) {
    is_closed(standing.value().map(drop));
    is_closed(standing.next());
    assert!(!standing.valid() && standing.key().is_empty());
    is_closed(standing.prev());
    is_closed(standing.skip_damaged());
    is_closed(fresh.seek_to_first());
    is_closed(fresh.beside(family, ReadOptions::default()));
}

/// Every handle of a closed store is refused, and does not disturb the store that is opened
/// afterwards.
fn refused_after(db: Db, open: impl Fn() -> Db) {
    let mut model = Model::new();
    fill(&db, &mut model, 0..300, 0);
    let family = db.create_column_family("family", small_family()).unwrap();
    db.flush().unwrap();
    let clone = db.clone();
    let (mut standing, mut fresh) =
        (db.iter(ReadOptions::default()).unwrap(), db.iter(ReadOptions::default()).unwrap());
    standing.seek(&key(10)).unwrap();
    let mut entries = db.iter(ReadOptions::default()).unwrap().entries();
    entries.next().unwrap().unwrap();
    let snapshot = db.snapshot();
    let mut writer = db.put_stream(db.default_column_family(), b"film", WriteOptions::default()).unwrap();
    writer.append(&vec![1; 2 << 20]).unwrap();
    let mut reader =
        db.get_stream(db.default_column_family(), &key(1), ReadOptions::default().at()).unwrap().unwrap();
    let requests = db.requests(&RequestOptions::default()).unwrap();
    let pause = db.pause_gc();
    let held = db.get(&key(7)).unwrap().unwrap();
    db.close().unwrap();

    let next = open();
    next.put(b"after", b"1").unwrap();
    let (default, dir) = (clone.default_column_family(), Path::new("/copy"));
    is_closed(clone.put(b"k", b"v"));
    is_closed(clone.put_opt(default, b"k", &vec![0; 1 << 20], &WriteOptions::default()));
    is_closed(clone.write(&WriteBatch::new()));
    is_closed(clone.sync());
    is_closed(clone.delete_range_cf(&family, b"a", b"b"));
    is_closed(clone.get(&key(1)));
    is_closed(clone.contains_key_at(&family, b"k", ReadOptions::default().at()));
    is_closed(clone.multi_get_at(default, &[key(1)], ReadOptions::default().at()).remove(0));
    is_closed(clone.get_range(default, &key(1), 0, 1, ReadOptions::default().at()));
    is_closed(clone.iter(ReadOptions { snapshot: Some(snapshot.clone()), ..Default::default() }));
    is_closed(clone.put_stream(&family, b"k", WriteOptions::default()));
    is_closed(clone.flush());
    is_closed(clone.compact_range(&family, None, None));
    is_closed(clone.collect_garbage(GcRequest::default()));
    is_closed(clone.gc_plan(GcRequest::default()));
    is_closed(clone.checkpoint(dir));
    is_closed(clone.verify());
    is_closed(clone.space());
    is_closed(clone.metrics());
    is_closed(clone.create_column_family("other", small_family()));
    is_closed(clone.drop_column_family(&family));
    is_closed(clone.set_space_limit(None));
    is_closed(clone.requests(&RequestOptions::default()));
    is_closed(requests.put(default, b"k".to_vec(), b"v".to_vec()));
    is_closed(requests.get(default, key(1)));
    is_closed(requests.scan(default, ReadOptions::default(), 1));
    is_closed(requests.flush());
    iterators_are_refused((&mut standing, &mut fresh), &family);
    is_closed(entries.next().unwrap());
    assert!(entries.next().is_none());
    is_closed(writer.append(b"more"));
    is_closed(writer.finish());
    is_closed(reader.read_some(&mut [0; 8]));
    is_closed(reader.read_range(0, 1));
    assert!(!clone.wait_idle(Duration::ZERO) && clone.column_families().is_empty());
    assert_eq!(held, value(7, 0));
    clone.clone().close().unwrap();
    drop((clone, family, standing, fresh, entries, snapshot, reader, requests, pause));

    model.insert(b"after".to_vec(), b"1".to_vec());
    assert!(contents(&next) == model && next.verify().unwrap().errors.is_empty());
    next.close().unwrap();
    let last = open();
    assert!(contents(&last) == model);
}

#[test]
fn handles_of_a_closed_store_are_refused() {
    let sim = SimEnv::new(1);
    refused_after(open(&sim), || open(&sim));
}

#[test]
fn handles_of_a_closed_store_are_refused_on_the_machine() {
    let tmp = TempDir::new("closed");
    let open = || Db::open_with(tmp.path(), small()).unwrap();
    refused_after(open(), open);
}

/// A read-only store is closed as well; its later state is not.
#[test]
fn a_reader_is_closed_alone() {
    let sim = SimEnv::new(2);
    let db = open(&sim);
    db.put(b"k", b"v").unwrap();
    db.sync().unwrap();
    let early = Db::open_read_only_in(env(&sim), "/store", small()).unwrap();
    let late = early.catch_up().unwrap();
    let clone = early.clone();
    early.close().unwrap();
    is_closed(clone.get(b"k"));
    is_closed(clone.iter(ReadOptions::default()));
    assert!(late.get(b"k").unwrap().is_some());
    late.close().unwrap();
}

/// A progress callback may close the store: the call ends.
#[test]
fn a_call_that_closes_its_store_ends() {
    let sim = SimEnv::new(3);
    let db = open(&sim);
    fill(&db, &mut Model::new(), 0..2000, 0);
    let (mut own, request) = (Some(db.clone()), CompactRequest { rewrite: true, cancel: None });
    let ended = db.compact_range_with(db.default_column_family(), (None, None), request, &mut |_| {
        own.take().into_iter().for_each(|db| db.close().unwrap());
    });
    is_closed(ended);
    assert_eq!(contents(&open(&sim)).len(), 2000);
}

fn ends(told: Result<()>) -> bool {
    match told {
        Ok(()) => false,
        Err(e) => {
            assert!(matches!(e.kind(), ErrorKind::Closed | ErrorKind::Cancelled), "{e}");
            true
        }
    }
}

/// Writers, readers and every long call run on threads during a close: acknowledged writes persist,
/// and all other calls get an error.
#[test]
fn calls_concurrent_with_a_close_end() {
    for round in 0..12 {
        let tmp = TempDir::new("beside-close");
        let options = || Options { memtable_bytes: 256 << 10, memory_bytes: 2 << 20, ..small() };
        let open = || Db::open_with(tmp.join("store"), options()).unwrap();
        let db = open();
        let acknowledged: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (nth, done) in acknowledged.iter().enumerate() {
                let db = db.clone();
                let durability = [Durability::Buffered, Durability::Durable, Durability::Volatile][nth];
                let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
                scope.spawn(move || {
                    for i in 1.. {
                        let key = [nth as u64, i].map(u64::to_be_bytes).concat();
                        let value = if i % 50 == 0 { vec![7; 600 << 10] } else { value(i, 0) };
                        if ends(db.put_opt(db.default_column_family(), &key, &value, &options)) {
                            return;
                        }
                        done.store(i, Ordering::Release);
                    }
                });
            }
            type Call = fn(&Db, &Path, u64) -> Result<()>;
            let long: [Call; 6] = [
                |db, _, _| db.compact_range(db.default_column_family(), None, None),
                |db, _, _| db.collect_garbage(GcRequest { until_percent: Some(0), cancel: None }).map(drop),
                |db, dir, n| db.checkpoint(dir.join(format!("copy-{n}"))),
                |db, _, _| db.verify().map(drop),
                |db, _, n| db.create_column_family(&n.to_string(), small_family()).map(drop),
                |db, _, _| db.iter(ReadOptions::default())?.entries().try_for_each(|e| e.map(drop)),
            ];
            for call in long {
                let (db, dir) = (db.clone(), tmp.path());
                scope.spawn(move || (0..).find(|&n| ends(call(&db, dir, n))));
            }
            let db = db.clone();
            std::thread::sleep(Duration::from_millis(20 + round * 15));
            let began = std::time::Instant::now();
            db.close().unwrap();
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
            // The lock is released before the calls have returned on their threads.
            let next = open();
            for (nth, done) in acknowledged.iter().enumerate() {
                for i in 1..=done.load(Ordering::Acquire) {
                    let key = [nth as u64, i].map(u64::to_be_bytes).concat();
                    assert!(next.get(&key).unwrap().is_some(), "round {round}: {i} of writer {nth} is lost");
                }
            }
            next.close().unwrap();
        });
        // An incomplete checkpoint leaves nothing.
        for entry in std::fs::read_dir(tmp.path()).unwrap() {
            let path = entry.unwrap().path();
            Db::open_with(&path, options()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
}

/// Requests in flight complete at a close: performed, or `Closed`.
#[test]
fn requests_in_flight_are_answered_at_close() {
    let tmp = TempDir::new("requests-close");
    let db = Db::open_with(tmp.path(), small()).unwrap();
    let requests = db.requests(&RequestOptions::default()).unwrap();
    let family = db.default_column_family().clone();
    let made: Vec<_> = (0..200).map(|i| requests.put(&family, key(i), value(i, 0)).unwrap()).collect();
    let mut queue = requests.queue();
    made.into_iter().zip(0..).for_each(|(request, i)| queue.submit(request, i));
    db.close().unwrap();
    let mut written = Vec::new();
    while let Some((i, told)) = queue.wait(None) {
        match told {
            Ok(_) => written.push(i),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Closed, "{e}"),
        }
    }
    let next = Db::open_with(tmp.path(), small()).unwrap();
    for i in written {
        assert_eq!(next.get(&key(i)).unwrap().as_deref(), Some(&value(i, 0)[..]));
    }
}

#[test]
fn a_cancelled_call_returns_cancelled() {
    let cancel = Cancel::new();
    cancel.cancel();
    let told: Error = cancel.check().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Cancelled);
    assert_eq!(
        told.message(),
        "the call was cancelled, or its deadline has passed: its unfinished files are removed; \
         repeat the call"
    );
}
