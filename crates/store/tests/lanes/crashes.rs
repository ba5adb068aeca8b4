//! Random histories of a store with two lanes, with a crash at every operation.
//!
//! Each lane's own history determines its required records: those that were durable, or that
//! survived the process, in order and whole. Groups are retained, freed and reused meanwhile, and
//! the store is opened without the second lane from time to time.

use crate::engine::{Machine, OTHER};
use io::Rng;
use io::sim::{CrashKind, SimEnv};
use std::collections::BTreeMap;
use store::commit::{Durability, Ticket};

/// An appended record, and the operations after which it must survive each kind of crash.
#[derive(Clone, Debug)]
struct Written {
    bytes: Vec<u8>,
    ticket: Option<Ticket>,
    begun_op: u64,
    buffered_op: Option<u64>,
    durable_op: Option<u64>,
}

/// The records appended to a lane; the record `i` has the number `i + 1`.
#[derive(Clone, Debug, Default)]
struct Lane(Vec<Written>);

impl Lane {
    fn durable(&mut self, upto: Ticket, op: u64) {
        for written in self.0.iter_mut().filter(|w| w.ticket.is_some_and(|ticket| ticket <= upto)) {
            written.durable_op.get_or_insert(op);
            written.buffered_op.get_or_insert(op);
        }
    }

    /// Returns the minimum and maximum number of records after a crash at an operation.
    fn bounds(&self, op: u64, kind: CrashKind) -> (usize, usize) {
        let passed = |at: Option<u64>| at.is_some_and(|at| at <= op);
        let kept = |w: &Written| match kind {
            CrashKind::ProcessKill => passed(w.buffered_op),
            _ => passed(w.durable_op),
        };
        let begun = self.0.iter().take_while(|w| w.begun_op <= op).count();
        (self.0.iter().rposition(kept).map_or(0, |i| i + 1), begun)
    }
}

/// A freed group: its records, and the operations at which its removal began and returned.
#[derive(Clone, Debug)]
struct Freed {
    seqs: Vec<u64>,
    begun_op: u64,
    done_op: u64,
}

struct Life {
    sim: SimEnv,
    rng: Rng,
    machine: Machine,
    first: Lane,
    records: Lane,
    freed: Vec<Freed>,
}

impl Life {
    fn new(sim: SimEnv, seed: u64) -> Life {
        let machine = Machine::open(sim.env()).unwrap();
        let (first, records, freed) = (Lane::default(), Lane::default(), Vec::new());
        Life { sim, rng: Rng::new(seed), machine, first, records, freed }
    }

    fn append(&mut self, to_first: bool) {
        let len = [10, 300, 5000, 30_000][self.rng.below(4) as usize];
        let mut bytes = vec![0; 1 + self.rng.below(len) as usize];
        self.rng.fill(&mut bytes);
        let durable = self.rng.one_in(3);
        let durability = if durable { Durability::Durable } else { Durability::Buffered };
        let begun_op = self.sim.op_count();
        let lane = if to_first { &mut self.first } else { &mut self.records };
        lane.0.push(Written {
            bytes: bytes.clone(),
            ticket: None,
            begun_op,
            buffered_op: None,
            durable_op: None,
        });
        let ticket = match to_first {
            true => self.machine.append_first(&bytes, durability).unwrap(),
            false => self.machine.append(&bytes, durability).unwrap(),
        };
        let written = lane.0.last_mut().unwrap();
        written.ticket = Some(ticket);
        written.buffered_op = (!durable).then(|| self.sim.op_count());
        if durable {
            match to_first {
                true => self.machine.store.log().sync(ticket).unwrap(),
                false => self.machine.log.sync(ticket).unwrap(),
            }
            lane.durable(ticket, self.sim.op_count());
        }
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0 | 1 => drop(self.machine.store.tend().unwrap()),
            2 => {
                self.machine.log.upkeep().seal_active().unwrap();
                let op = self.sim.op_count();
                if let Some(last) = self.records.0.iter().filter_map(|w| w.ticket).max() {
                    self.records.durable(last, op);
                }
            }
            3 => self.machine.pass().unwrap(),
            4 | 5 => {
                let most = 1 + self.rng.below(3) as usize;
                self.machine.retain(most).unwrap();
            }
            6 => {
                let kept = self.machine.retained();
                if !kept.is_empty() {
                    let ltn = kept[self.rng.below(kept.len() as u64) as usize];
                    let seqs = self.machine.entries(ltn).iter().map(|(seq, ..)| *seq).collect();
                    let begun_op = self.sim.op_count();
                    self.machine.free(ltn).unwrap();
                    self.freed.push(Freed { seqs, begun_op, done_op: self.sim.op_count() });
                }
            }
            7 if self.rng.one_in(3) => self.machine.store.manifest().commits().roll().unwrap(),
            8 => {
                // The other engine needs none of its batches.
                let floor = self.first.0.len() as u64 + 1;
                self.machine.store.log().floors().tell(OTHER, floor.saturating_sub(5));
                self.machine.store.log().floors().hint();
            }
            n => self.append(n % 2 == 0),
        }
    }
}

/// Checks the records of both lanes after a crash.
fn check(life: &Life, op: u64, kind: CrashKind, machine: &Machine) {
    let (least, most) = life.first.bounds(op, kind);
    let last = machine.first.keys().next_back().map_or(0, |last| *last as usize);
    // Released records may be gone.
    assert!(
        last <= most && (last >= least || machine.first.is_empty()),
        "first lane: {last} of {least}..{most}"
    );
    for (seq, bytes) in &machine.first {
        assert!(life.first.0[*seq as usize - 1].bytes == *bytes, "first lane: {seq}");
    }
    let (least, most) = life.records.bounds(op, kind);
    let mut expected: BTreeMap<u64, bool> = (1..=least as u64).map(|seq| (seq, true)).collect();
    for freed in &life.freed {
        for seq in &freed.seqs {
            if freed.done_op <= op {
                expected.remove(seq);
            } else if freed.begun_op <= op {
                expected.entry(*seq).and_modify(|must| *must = false);
            }
        }
    }
    for (seq, must) in &expected {
        match machine.read(*seq) {
            Ok(bytes) => assert!(bytes == life.records.0[*seq as usize - 1].bytes, "record {seq}"),
            Err(e) => assert!(!must, "record {seq} of {least}: {e}"),
        }
    }
    let others: Vec<u64> = machine.index.keys().filter(|seq| !expected.contains_key(seq)).copied().collect();
    for seq in others {
        assert!(seq > least as u64 && seq <= most as u64, "record {seq} of {least}..{most} is back");
        assert!(machine.read(seq).unwrap() == life.records.0[seq as usize - 1].bytes, "record {seq}");
    }
}

/// Crashes at every operation. Returns the number of crash states.
fn campaign(seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let mut life = Life::new(SimEnv::new(seed), seed ^ 77);
    let first = life.sim.op_count();
    for _ in 0..rng.range(30, 90) {
        life.step();
    }
    let record = life.sim.record();
    for op in first..=record.op_count() {
        let kind = if rng.one_in(3) { CrashKind::ProcessKill } else { CrashKind::PowerLoss };
        let sim = record.crash_at(op, kind, rng.next_u64());
        let opened = Machine::open(sim.env());
        let mut machine = opened.unwrap_or_else(|e| panic!("seed {seed}, operation {op}, {kind:?}: {e}"));
        check(&life, op, kind, &machine);
        if rng.one_in(8) {
            // The store continues, and new records do not collide with discarded ones.
            machine.append(&[7; 9000], Durability::Durable).unwrap();
            machine.log.upkeep().seal_active().unwrap();
            machine.pass().unwrap();
            machine.retain(9).unwrap();
            machine.store.tend().unwrap();
            let all: Vec<(u64, Vec<u8>)> =
                machine.index.keys().map(|&seq| (seq, machine.read(seq).unwrap())).collect();
            drop(machine);
            let sim = sim.crash(CrashKind::PowerLoss, op);
            let machine = Machine::open(sim.env()).unwrap();
            let again: Vec<(u64, Vec<u8>)> =
                machine.index.keys().map(|&seq| (seq, machine.read(seq).unwrap())).collect();
            assert!(all == again, "seed {seed}, operation {op}");
        }
    }
    record.op_count() - first
}

#[test]
fn every_crash_keeps_the_durability_of_each_lane() {
    let states: u64 = (0..20).map(campaign).sum();
    println!("{states} crash states");
    assert!(states > 1500, "{states}");
}
