//! A random history of a store with only a toy log, with a crash at every operation.

use crate::engine::ToyLog;
use crate::model::{Entry, Model, Trim};
use crate::story::open;
use base::ErrorKind;
use io::Rng;
use io::sim::{CrashKind, SimEnv};
use store::Store;
use store::commit::Durability;

struct Life {
    sim: SimEnv,
    rng: Rng,
    store: Store,
    toy: ToyLog,
    model: Model,
}

impl Life {
    fn op(&self) -> u64 {
        self.sim.op_count()
    }

    fn append(&mut self) {
        let len = [10, 300, 5000, 60_000][self.rng.below(4) as usize];
        let mut bytes = vec![0; 1 + self.rng.below(len) as usize];
        self.rng.fill(&mut bytes);
        let durable = self.rng.one_in(2);
        let begun_op = self.op();
        let durability = if durable { Durability::Durable } else { Durability::Buffered };
        let (number, ticket) = match self.toy.append(&bytes, durability) {
            Err(e) if e.kind() == ErrorKind::NoSpace => return,
            appended => appended.unwrap(),
        };
        assert_eq!(number as usize, self.model.entries.len() + 1);
        let buffered_op = (!durable).then(|| self.op());
        self.model.entries.push(Entry { bytes, ticket, begun_op, buffered_op, durable_op: None });
        if durable && !self.rng.one_in(3) {
            self.toy.sync(ticket).unwrap();
            let op = self.op();
            self.model.durable(ticket, op);
        }
    }

    fn step(&mut self) {
        match self.rng.below(12) {
            0 | 1 => drop(self.store.tend().unwrap()),
            2 => {
                let range = self.toy.range();
                let below = range.start + self.rng.below(range.end - range.start + 1);
                self.model.trims.push(Trim { below, begun_op: self.op(), done_op: None });
                self.toy.trim(below).unwrap();
                let op = self.op();
                self.model.trims.last_mut().unwrap().done_op = Some(op);
            }
            3 if self.rng.one_in(4) => self.store.manifest().commits().roll().unwrap(),
            4 if self.rng.one_in(4) => {
                self.store.log().upkeep().persist_watermark().unwrap();
                let op = self.op();
                self.model.all_durable(op);
            }
            _ => self.append(),
        }
    }
}

fn begin(sim: SimEnv, rng: Rng, model: Model) -> Life {
    let (store, toy) = open(sim.env()).unwrap();
    Life { sim, rng, store, toy, model }
}

/// Crashes at every operation. Some states continue with a second history, and a crash at its end.
fn campaign(seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let mut life = begin(SimEnv::new(seed), Rng::new(seed ^ 5), Model::default());
    let first = life.op();
    for _ in 0..rng.range(10, 60) {
        life.step();
    }
    let record = life.sim.record();
    let mut states = 0;
    for op in first..=record.op_count() {
        let kind = if rng.one_in(3) { CrashKind::ProcessKill } else { CrashKind::PowerLoss };
        let sim = record.crash_at(op, kind, rng.next_u64());
        let mut model = life.model.clone();
        let mut next = begin(sim, Rng::new(rng.next_u64()), Model::default());
        model
            .check(op, kind, &next.toy)
            .unwrap_or_else(|e| panic!("seed {seed}, operation {op}, {kind:?}: {e}"));
        states += 1;
        if rng.one_in(10) {
            next.model = model;
            (0..rng.below(10)).for_each(|_| next.step());
            let at = next.op();
            let crashed = next.sim.crash(CrashKind::PowerLoss, op);
            let last = begin(crashed, Rng::new(1), Model::default());
            next.model.check(at, CrashKind::PowerLoss, &last.toy).unwrap();
        }
    }
    states
}

#[test]
fn every_crash_leaves_a_prefix_with_all_acknowledged_writes() {
    let states: u64 = (0..16).map(campaign).sum();
    println!("{states} crash states");
    assert!(states > 700, "{states}");
}

/// A store that was opened with hardly any space accepts entries again once there is space, without
/// a reopen.
#[test]
fn appends_resume_when_space_returns() {
    let mut refused = 0;
    for free in [100 << 10, 200 << 10, 300 << 10, 400 << 10, 500 << 10] {
        let sim = SimEnv::new(free);
        sim.set_capacity(Some(free));
        let (store, toy) = match open(sim.env()) {
            Err(e) if e.kind() == ErrorKind::NoSpace => continue,
            opened => opened.unwrap(),
        };
        let append = || toy.append(&[7; 20_000], Durability::Buffered);
        let full = (0..100).map(|_| append()).find_map(Result::err);
        assert_eq!(full.map(|e| e.kind()), Some(ErrorKind::NoSpace), "{free}");
        refused += 1;
        sim.set_capacity(None);
        for _ in 0..20 {
            append().unwrap_or_else(|e| panic!("{free}: {e}"));
            store.tend().unwrap();
        }
    }
    assert!(refused > 1, "{refused}");
}
