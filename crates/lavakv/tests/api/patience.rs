//! Deadlines and the stall budget: a write that may not wait is refused unwritten, and a wait over
//! the budget is counted.

use crate::common::*;
use lavastore_lavakv::sim::{Costs, SimEnv};
use lavastore_lavakv::{
    Db, Durability, ErrorKind, Event, EventListener, Options, StallCause, WriteBatch, WriteOptions,
};
use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Told(Mutex<Vec<(StallCause, u64)>>);

impl EventListener for Told {
    fn event(&self, event: &Event) {
        if let Event::StallOverBudget { cause, wait_ns } = event {
            self.0.lock().unwrap().push((*cause, *wait_ns));
        }
    }
}

/// A store on a device so slow that memory is full after some writes. (In simulation only waiting
/// calls run flushes.)
fn slow(told: &Arc<Told>) -> (SimEnv, Db) {
    let sim = SimEnv::new(16);
    let options = Options { listener: Some(told.clone()), ..small() };
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    sim.set_costs(Costs { kib_ns: 1_000_000, ..Costs::default() });
    (sim, db)
}

#[test]
fn a_nonblocking_write_returns_busy_without_effect() {
    let told = Arc::new(Told::default());
    let (sim, db) = slow(&told);
    let family = db.default_column_family();
    let mut model = Model::new();
    let put = |n: u64, options: &WriteOptions| db.put_opt(family, &key(n), &value(n, 1), options);
    let mut refused = 0;
    for n in 0..2000 {
        let (options, begun_ns) = (WriteOptions::default().no_wait(), sim.now_ns());
        match put(n, &options) {
            Ok(()) => drop(model.insert(key(n), value(n, 1))),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
                assert!(
                    e.message().contains("would exceed its deadline while it waits for memtables"),
                    "{e}"
                );
                assert_eq!(sim.now_ns(), begun_ns, "it did not wait");
                refused += 1;
            }
        }
    }
    assert!(refused > 500 && model.len() > 100, "{refused} refused, {} written", model.len());
    assert_eq!((contents(&db), db.stats().stall_memory_ns), (model.clone(), 0));
    // Also a batch and a stream, and then a write that may wait long enough.
    let mut batch = WriteBatch::new();
    batch.put(&key(5000), &value(5000, 1));
    let refused = db.write_opt(&batch, &WriteOptions::durable().no_wait());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Busy);
    let mut stream = db.put_stream(family, &key(5001), WriteOptions::default().no_wait()).unwrap();
    stream.write_all(&[7; 100]).unwrap();
    assert_eq!(stream.finish().unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(contents(&db), model);
    assert!(told.0.lock().unwrap().is_empty(), "nothing has waited");
    let durable = WriteOptions { durability: Some(Durability::Durable), ..WriteOptions::default() };
    put(5002, &durable.wait_at_most(Duration::from_secs(3600))).unwrap();
    model.insert(key(5002), value(5002, 1));
    assert_eq!(contents(&db), model);
}

#[test]
fn stalls_over_the_budget_are_counted_and_reported_by_cause() {
    let told = Arc::new(Told::default());
    let (_sim, db) = slow(&told);
    for n in 0..2000 {
        db.put(&key(n), &value(n, 1)).unwrap();
    }
    let told = told.0.lock().unwrap();
    assert!(!told.is_empty() && told.iter().all(|(_, ns)| *ns > 10_000_000), "{told:?}");
    assert!(told.iter().any(|(cause, _)| *cause == StallCause::Memory), "{told:?}");
    let stats = db.stats();
    assert_eq!(stats.stalls_over_budget, told.len() as u64);
    let fields: HashMap<_, _> = stats.fields().into_iter().collect();
    for cause in StallCause::ALL {
        let count = fields[&*format!("stalls_over_budget_{}", cause.name())];
        assert_eq!(count, told.iter().filter(|(of, _)| *of == cause).count() as u64, "{cause:?}");
    }
    assert!(db.stats().stalls > db.stats().stalls_over_budget || db.stats().stalls > 0);
}
