//! A listener that panics.

use crate::common::*;
use lavastore_lavakv::{Db, Event, EventListener, Options, sim::SimEnv};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
struct Panics {
    called: AtomicU64,
}

impl EventListener for Panics {
    fn event(&self, event: &Event) {
        self.called.fetch_add(1, Ordering::Relaxed);
        panic!("the listener does not like {event:?}");
    }
}

fn run(db: &Db, listener: &Panics) {
    let mut model = Model::new();
    for round in 0..3 {
        fill(db, &mut model, 0..1500, round);
    }
    db.flush().unwrap();
    settle(db);
    let called = listener.called.load(Ordering::Relaxed);
    assert!(called > 3, "flushes and compactions were reported");
    assert_eq!(db.stats().listener_panics, called);
    assert!(contents(db) == model);
}

#[test]
fn a_panicking_callback_is_caught_in_simulation() {
    let listener = Arc::new(Panics::default());
    let options = Options { listener: Some(listener.clone()), ..small() };
    run(&Db::open_in(SimEnv::new(1).env(), DIR, options).unwrap(), &listener);
}

#[test]
fn a_panicking_callback_is_caught_on_threads() {
    let listener = Arc::new(Panics::default());
    let tmp = TempDir::new("listener");
    let options = Options { listener: Some(listener.clone()), ..small() };
    run(&Db::open_with(tmp.path(), options).unwrap(), &listener);
}
