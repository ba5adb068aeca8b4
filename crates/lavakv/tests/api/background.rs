//! Background work as seen by its owner: it ends, it keeps its limits, and it reports events.

use crate::common::*;
use lavastore_lavakv::{Db, Event, EventListener, Options, sim::SimEnv};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn wait_idle_returns_when_nothing_more_is_written() {
    let sim = SimEnv::new(1);
    let (db, mut model) = (open(&sim), Model::new());
    for round in 0..4 {
        fill(&db, &mut model, 0..1500, round);
    }
    settle(&db);
    let (ops, hash) = (sim.op_count(), sim.state_hash());
    for _ in 0..100 {
        sim.advance_ns(100_000_000);
        assert!(!db.run_background_step(), "{}", sim.trace());
    }
    // In ten seconds it checks ten times for checkpoint requests of other processes.
    assert!(sim.op_count() - ops <= 10 && sim.state_hash() == hash, "{}", sim.trace());
    assert!(db.wait_idle(Duration::ZERO));
}

#[test]
fn wait_idle_returns_at_its_timeout() {
    let tmp = TempDir::new("idle");
    let options = Options { io_budget: 1 << 20, ..small() };
    let (db, mut model) = (Db::open_with(tmp.path(), options).unwrap(), Model::new());
    for round in 0..6 {
        fill(&db, &mut model, 0..2000, round);
    }
    assert!(!db.wait_idle(Duration::ZERO), "there is work left: {}", db.describe());
    settle(&db);
    assert!(contents(&db) == model);
}

/// Background reads and writes keep the budget over time.
#[test]
fn the_io_budget_binds() {
    let rate = 2 << 20;
    let mut seconds = Vec::new();
    for limit in [0, rate] {
        let sim = SimEnv::new(2);
        let options = Options { io_budget: limit, ..small() };
        let (db, mut model) = (Db::open_in(env(&sim), DIR, options).unwrap(), Model::new());
        let start_ns = sim.now_ns();
        for round in 0..20 {
            fill(&db, &mut model, 0..1500, round);
        }
        settle(&db);
        let stats = db.stats();
        assert_eq!(stats.io_budget_bytes_per_s, limit);
        // A flush reads nothing; a compaction reads its inputs.
        assert_eq!(stats.io_flush_bytes, stats.flush_bytes_written);
        assert!(stats.io_compaction_bytes > stats.compaction_bytes_written, "{stats:?}");
        let moved =
            stats.io_flush_bytes + stats.io_compaction_bytes + stats.io_gc_bytes + stats.io_other_bytes;
        let elapsed = (sim.now_ns() - start_ns) as f64 / 1e9;
        seconds.push(elapsed);
        if limit > 0 {
            assert!(moved as f64 / elapsed <= limit as f64 * 1.1, "{moved} bytes in {elapsed} s");
        }
        assert!(contents(&db) == model);
    }
    assert!(seconds[1] > seconds[0], "{seconds:?}");
}

#[derive(Default)]
struct Events(Mutex<Vec<Event>>);

impl EventListener for Events {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

#[test]
fn listener_receives_all_events() {
    let sim = SimEnv::new(3);
    let events = Arc::new(Events::default());
    let options = Options { listener: Some(events.clone()), ..small() };
    let (db, mut model) = (Db::open_in(env(&sim), DIR, options).unwrap(), Model::new());
    let family = db.create_column_family("other", small_family()).unwrap();
    for round in 0..5 {
        fill(&db, &mut model, 0..1500, round);
    }
    db.put_cf(&family, b"k", b"v").unwrap();
    db.flush().unwrap();
    settle(&db);
    let stats = db.stats();
    let told = events.0.lock().unwrap();
    let (mut flushes, mut flushed, mut compactions, mut compacted) = (0, 0, 0, 0);
    let mut names: Vec<&str> = Vec::new();
    for event in told.iter() {
        match event {
            Event::Flush { family, output_bytes } => {
                assert!(*output_bytes > 0);
                flushes += 1;
                flushed += output_bytes;
                names.push(family);
            }
            Event::Compaction { family, level, output_level, input_bytes, .. } => {
                assert!(family == "default" && output_level >= level && *input_bytes > 0);
                compactions += 1;
                compacted += input_bytes;
            }
            Event::Stall { wait_ns, .. } => assert!(*wait_ns < 60_000_000_000),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((flushes, flushed), (stats.flushes, stats.flush_bytes_written));
    assert_eq!(compactions, stats.compactions);
    assert!(compacted >= stats.compaction_bytes_read, "moves read nothing");
    assert!(names.contains(&"other") && names.contains(&"default"), "{names:?}");
}

/// A background error reaches the listener and the caller.
#[test]
fn a_background_error_reaches_listener_and_caller() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    use lavastore_lavakv::ErrorKind;
    use lavastore_lavakv::sim::{FaultEffect, FaultPlan, OpKind};
    let sim = SimEnv::new(4);
    let events = Arc::new(Events::default());
    let options = Options { listener: Some(events.clone()), ..small() };
    let (db, mut model) = (Db::open_in(env(&sim), DIR, options).unwrap(), Model::new());
    fill(&db, &mut model, 0..100, 0);
    sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Append]).path(".ksst"));
    fails(db.flush(), ErrorKind::Poisoned);
    fails(db.put(b"k", b"v"), ErrorKind::Poisoned);
    assert!(contents(&db) == model, "reads go on");
    assert_eq!(db.stats().background_errors, 1);
    let told = events
        .0
        .lock()
        .unwrap()
        .iter()
        .any(|e| matches!(e, Event::BackgroundError { error } if error.kind() == ErrorKind::Io));
    assert!(told);
    drop(db);
    assert!(contents(&open(&sim)) == model);
}

/// Memtables and cache keep their budgets at full speed.
#[test]
fn memory_budgets_are_kept() {
    let tmp = TempDir::new("budgets");
    let options =
        Options { memtable_bytes: 256 << 10, memory_bytes: 1 << 20, cache_bytes: 256 << 10, ..small() };
    let db = Db::open_with(tmp.path(), options.clone()).unwrap();
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..2u64)
            .map(|t| {
                let db = &db;
                s.spawn(move || (0..20_000).for_each(|i| db.put(&key(i * 2 + t), &value(i, t)).unwrap()))
            })
            .collect();
        let mut rng = lavastore_lavakv::io::Rng::new(1);
        while writers.iter().any(|w| !w.is_finished()) {
            let _ = db.get(&key(rng.below(40_000))).unwrap();
            let memory = db.space().unwrap().memtable_bytes;
            assert!(memory <= (1 << 20) + (256 << 10), "{memory} bytes in memtables");
            let cache = db.cache_stats();
            assert!(cache.index.bytes + cache.data.bytes <= 256 << 10, "{cache:?}");
        }
    });
    for i in (0..40_000).step_by(7) {
        assert!(db.get(&key(i)).unwrap().is_some());
    }
    let cache = db.cache_stats();
    assert!(
        cache.data.hits + cache.data.misses > 0 && cache.index.bytes + cache.data.bytes <= 256 << 10,
        "{cache:?}"
    );
}

/// Levels stay near their targets, and level 0 does not pile up.
#[test]
fn the_tree_keeps_its_shape() {
    let sim = SimEnv::new(5);
    let family = small_family().expert(|expert| expert.level_multiplier = 4);
    let (db, mut model) = (Db::open_in(env(&sim), DIR, Options { family, ..small() }).unwrap(), Model::new());
    for round in 0..10 {
        fill(&db, &mut model, 0..3000, round);
    }
    settle(&db);
    let space = db.space().unwrap();
    let live: u64 = model.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum();
    assert!(space.table_bytes < live * 2, "{} bytes for {live}: {}", space.table_bytes, db.describe());
    assert!(db.describe().contains("L6"), "{}", db.describe());
    assert!(contents(&db) == model);
}

/// Tables of large memtables look deep to small ones. Writes must not wait for a compaction that is
/// not due.
#[test]
fn reopen_with_smaller_memtables_succeeds() {
    let sim = SimEnv::new(6);
    let family = small_family().expert(|expert| {
        expert.level_base_bytes = 64 << 20;
        expert.file_bytes = 1 << 20;
    });
    let large = Options { memtable_bytes: 1 << 20, memory_bytes: 4 << 20, family: family.clone(), ..small() };
    let mut model = Model::new();
    let db = Db::open_in(env(&sim), DIR, large).unwrap();
    for round in 0..3 {
        fill(&db, &mut model, 0..3000, round);
        db.flush().unwrap();
    }
    drop(db);
    let db = Db::open_in(env(&sim), DIR, Options { memtable_bytes: 16 << 10, family, ..small() }).unwrap();
    let start_ns = sim.now_ns();
    fill(&db, &mut model, 0..50, 3);
    assert!(db.stats().stall_l0_ns < (sim.now_ns() - start_ns) / 2, "{}", db.describe());
    assert!(contents(&db) == model);
}

/// Nice values of this process's threads with this name prefix; empty if the system does not report
/// them.
#[allow(
    clippy::disallowed_methods,
    reason = "what the kernel says of threads is read from outside the engine"
)]
fn nice_of_threads(prefix: &str) -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |task: std::path::PathBuf| {
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.join("stat")).ok()?;
        // After the name, which is in parentheses, the nice value is the seventeenth field.
        let nice = stat.rsplit_once(')')?.1.split_whitespace().nth(16)?.parse().ok()?;
        name.starts_with(prefix).then_some(nice)
    };
    tasks.filter_map(|task| of(task.path())).collect()
}

/// Background threads yield to the surrounding program; the log thread, for which writers wait,
/// does not.
#[test]
fn only_the_log_thread_keeps_normal_priority() {
    let own = nice_of_threads("");
    let Some(&own) = own.first() else { return println!("skipped: no /proc") };
    let tmp = TempDir::new("nice");
    let _db = Db::open_with(tmp.path(), small()).unwrap();
    // A thread gets its name and priority soon after its start.
    for _ in 0..500 {
        let (background, log) = (nice_of_threads("lava-bg"), nice_of_threads("lava-log"));
        let lowered = background.len() >= 2 && background.iter().all(|&nice| nice == (own + 10).min(19));
        if lowered && !log.is_empty() && log.iter().all(|&nice| nice == own) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("own {own}, background {:?}, log {:?}", nice_of_threads("lava-bg"), nice_of_threads("lava-log"));
}
