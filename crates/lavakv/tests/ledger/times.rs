//! Histograms: one for each kind of operation and for each cause of a wait. In simulation each
//! operation is timed.

use crate::common::*;
use crate::separated;
use lavastore_lavakv::sim::SimEnv;
use lavastore_lavakv::{
    Db, Event, EventListener, GcRequest, Options, ReadOptions, StallCause, Statistics, WriteBatch,
    WriteOptions,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

fn count(stats: &Statistics, operation: &str) -> u64 {
    stats.histograms.operation(operation).unwrap_or_else(|| panic!("no {operation}")).count()
}

#[test]
fn every_kind_of_operation_is_counted_in_its_own_histogram() {
    let sim = SimEnv::new(1);
    let db = Db::open_in(env(&sim), DIR, separated()).unwrap();
    let family = db.default_column_family().clone();
    for round in 0..4 {
        fill(&db, &mut Model::new(), 0..1000, round);
    }
    db.put_opt(&family, b"durable", b"1", &WriteOptions::durable()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1");
    batch.delete(b"b");
    db.write(&batch).unwrap();
    db.delete(b"a").unwrap();
    db.delete_range(b"b", b"c").unwrap();
    (0..100).for_each(|i| drop(db.get(&key(i)).unwrap()));
    db.get_range(&family, &key(1), 1, 1, ReadOptions::default().at()).unwrap();
    let mut stream = db.put_stream(&family, b"stream", WriteOptions::default()).unwrap();
    (0..3).for_each(|_| stream.append(&[7; 100]).unwrap());
    stream.finish().unwrap();
    let mut stream = db.get_stream(&family, b"stream", ReadOptions::default().at()).unwrap().unwrap();
    assert_eq!(stream.read_some(&mut [0; 1000]).unwrap(), 300);
    drop(stream);
    let mut iterator = db.iter(ReadOptions::default()).unwrap();
    iterator.seek(&key(5)).unwrap();
    iterator.seek_to_last().unwrap();
    iterator.prev().unwrap();
    (0..7).for_each(|_| iterator.prev().unwrap());
    iterator.next().unwrap();
    drop(iterator);
    db.flush().unwrap();
    db.compact_range(&family, None, None).unwrap();
    db.collect_garbage(GcRequest { until_percent: Some(0), ..Default::default() }).unwrap();
    settle(&db);
    let stats = db.stats();
    let told = ["put", "delete", "write_batch", "get", "seek", "next", "put_stream", "get_stream"];
    let told = told.map(|name| count(&stats, name));
    assert_eq!(told, [4001, 2, 1, 102, 2, 9, 4, 1]);
    // An append without a log group is repeated.
    assert!((0..20).contains(&(count(&stats, "log_append") - stats.write_batches)), "{stats:?}");
    assert!(count(&stats, "log_sync") >= 1 && count(&stats, "log_sync") <= stats.wal_syncs, "{stats:?}");
    assert_eq!(count(&stats, "flush"), stats.flushes);
    assert_eq!(count(&stats, "compaction"), stats.compactions - stats.compaction_moves);
    assert_eq!(count(&stats, "collection"), stats.gc_runs);
    assert!(stats.flushes > 0 && stats.compactions > 0 && stats.gc_runs > 0, "{stats:?}");
    let (width, chain) = (&stats.histograms.compaction_width, &stats.histograms.compaction_chain);
    assert_eq!(width.sum(), stats.compaction_bytes_read);
    assert!(chain.count() == width.count() && chain.quantile(0.0) >= 1 && chain.max() <= 7, "{chain:?}");
    assert!(stats.histograms.operation("flush").unwrap().mean() > 100_000, "a flush syncs");
    drop(db);
    assert_eq!(count(&open(&sim).stats(), "put"), 0, "since the store was opened");
}

/// Records every wait.
#[derive(Default)]
struct Heard(Mutex<Vec<(StallCause, u64)>>);

impl EventListener for Heard {
    fn event(&self, event: &Event) {
        if let Event::Stall { cause, wait_ns } = event {
            self.0.lock().unwrap().push((*cause, *wait_ns));
        }
    }
}

/// Checks that histograms, counters and events report the same waits.
fn waits_agree(stats: &Statistics, heard: &Heard) {
    let heard = heard.0.lock().unwrap();
    let fields: HashMap<_, _> = stats.fields().into_iter().collect();
    for cause in StallCause::ALL {
        let sum = fields[&*format!("stall_{}_ns", cause.name())];
        let told = stats.histograms.waits_for(cause).unwrap();
        let of_cause = || heard.iter().filter(|(of, _)| *of == cause).map(|(_, ns)| *ns);
        assert_eq!((told.sum(), told.sum()), (sum, of_cause().sum()), "{cause:?}");
        assert_eq!((told.count(), told.max()), (of_cause().count() as u64, of_cause().max().unwrap_or(0)));
    }
    assert_eq!(stats.stalls, heard.len() as u64);
}

fn heard(options: Options) -> (Arc<Heard>, Options) {
    let heard = Arc::new(Heard::default());
    let options = Options { listener: Some(heard.clone()), ..options };
    (heard, options)
}

#[test]
fn every_wait_of_a_writer_is_in_the_histogram_of_its_cause() {
    let mut causes = [false; StallCause::ALL.len()];
    for (seed, space_limit) in [(1, None), (2, Some(lavastore_lavakv::SpaceLimit::Bytes(5 << 19)))] {
        let sim = SimEnv::new(seed);
        let (heard, options) = heard(Options { space_limit, ..separated() });
        let db = Db::open_in(env(&sim), DIR, options).unwrap();
        // Background work runs only in waiting calls.
        for round in 0..4 {
            for i in 0..12_000 {
                let _ = db.put(&key(i), &value(i, round));
            }
        }
        let stats = db.stats();
        waits_agree(&stats, &heard);
        for (cause, met) in StallCause::ALL.into_iter().zip(&mut causes) {
            *met |= !stats.histograms.waits_for(cause).unwrap().is_empty();
        }
    }
    for cause in [StallCause::Memory, StallCause::Garbage, StallCause::Space] {
        assert!(causes[cause as usize], "{cause:?}: {causes:?}");
    }
}

/// Level 0 of one family does not slow down or stop writes to another.
#[test]
fn writers_of_a_family_do_not_wait_for_level_0_of_another() {
    let sim = SimEnv::new(4);
    let shallow = small_family().expert(|expert| {
        expert.l0_compaction_files = 50;
        expert.l0_slowdown_files = 50;
        expert.l0_stop_files = 60;
    });
    let (heard, options) = heard(Options { family: shallow.clone(), ..small() });
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    let deep = shallow.expert(|expert| {
        expert.l0_compaction_files = 2;
        expert.l0_slowdown_files = 2;
        expert.l0_stop_files = 3;
    });
    let other = db.create_column_family("other", deep.clone()).unwrap();
    let l0 = |stats: &Statistics| stats.histograms.waits_for(StallCause::L0).unwrap().count();
    for round in 0..8 {
        fill(&db, &mut Model::new(), 0..10, round);
        db.flush().unwrap();
    }
    // From now on that is over the limit.
    db.set_family_options(db.default_column_family(), deep).unwrap();
    assert!(db.describe().contains("L0: 8 files"), "{}", db.describe());
    let before = l0(&db.stats());
    for i in 0..100 {
        db.put_cf(&other, &key(i), b"v").unwrap();
    }
    assert!(db.describe().contains("L0: 8 files"), "{}", db.describe());
    assert_eq!(l0(&db.stats()), before, "{:?}", db.stats());
    db.put(b"k", b"v").unwrap();
    assert!(l0(&db.stats()) > before, "its own writers do: {}", db.describe());
    waits_agree(&db.stats(), &heard);
}
