//! A device that takes its time over one sync holds up nobody who does not wait for that sync.

use crate::common::*;
use lavastore_lavakv::{Db, Durability, FamilyOptions, Options, ValuePlacement, WriteOptions};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Whether syncs of value files wait, and how many do.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, closed: bool) {
        self.state.lock().unwrap().0 = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        while state.0 {
            state = self.changed.wait(state).unwrap();
        }
        state.1 -= 1;
    }

    fn wait_for_one(&self) {
        let mut state = self.state.lock().unwrap();
        while state.1 == 0 {
            state = self.changed.wait(state).unwrap();
        }
    }
}

#[test]
fn a_sync_of_placed_values_stops_neither_writers_of_other_families_nor_the_choice_of_jobs() {
    let (tmp, gate) = (TempDir::new("held-sync"), Arc::new(Gate::default()));
    let passed = gate.clone();
    let env = around_syncs(move |path, sync| {
        if path.extension().is_some_and(|e| e == "vsst") {
            passed.pass();
        }
        sync()
    });
    let options = Options { durability: Durability::Buffered, memory_bytes: 1 << 20, ..small() };
    let db = Db::open_in(env, tmp.join("store"), options).unwrap();
    let placed = FamilyOptions { value_placement: ValuePlacement::Log, ..small_family() };
    let one = db.create_column_family("one", placed).unwrap();
    gate.set(true);
    let (done, ended) = mpsc::channel();
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| db.put_opt(&one, &key(1), &[1; 2000], &WriteOptions::durable()).unwrap());
        gate.wait_for_one();
        scope.spawn(|| {
            // A memtable becomes full and its flush is picked, which asks for the file of its values.
            fill(&db, &mut Model::new(), 0..400, 0);
            // Workers look for work some times meanwhile; this looks at the same claims as they do.
            for _ in 0..200 {
                db.gc_plan(Default::default()).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            done.send(()).unwrap();
        });
        // Only a failure takes that long.
        let ended = ended.recv_timeout(Duration::from_secs(10));
        gate.set(false);
        ended
    });
    assert!(ended.is_ok(), "writers and jobs waited for a sync of values that are not theirs");
    db.close().unwrap();
    let again = Db::open_with(tmp.join("store"), small()).unwrap();
    let one = again.column_family("one").unwrap();
    assert_eq!(again.get_cf(&one, &key(1)).unwrap().as_deref(), Some(&[1; 2000][..]));
}
