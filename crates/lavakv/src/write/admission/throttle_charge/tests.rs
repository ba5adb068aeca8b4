//! Throttle charges on a simulated store: a family is charged for itself, and unwritten data costs
//! nothing.

use super::*;
use crate::batch::Change;
use crate::batch::payload::Payload;
use crate::write::commit::{WriteOp, WriteStep};
use crate::{ColumnFamily, Db, Durability, FamilyOptions, Options, SpaceLimit, WriteBatch, WriteOptions};
use base::ValueKind;
use datadriven::TestCase;
use io::sim::SimEnv;
use std::error::Error;

type Outcome = std::result::Result<String, Box<dyn Error>>;

/// A store. Jobs run in waiting calls, and where a script runs them.
struct Script {
    sim: SimEnv,
    db: Db,
}

impl Script {
    /// A store with the families `a` and `b`.
    fn new() -> Script {
        let sim = SimEnv::new(1);
        let family = FamilyOptions { min_blob_size: 0, ..FamilyOptions::default() }.expert(|expert| {
            expert.l0_compaction_files = 2;
            expert.l0_slowdown_files = 2;
            expert.l0_stop_files = 10;
        });
        let options = Options {
            memtable_bytes: 64 << 10,
            memory_bytes: 4 << 20,
            family: family.clone(),
            ..Options::default()
        }
        .expert(|expert| expert.log_group_bytes = 512 << 10);
        let db = Db::open_in(sim.env(), "/store", options).unwrap();
        for name in ["a", "b"] {
            db.create_column_family(name, family.clone()).unwrap();
        }
        Script { sim, db }
    }

    /// A store with a space limit, filled with values of 200 KiB until one is refused.
    fn full() -> Result<(Script, base::Error)> {
        let sim = SimEnv::new(3);
        let options = Options {
            memtable_bytes: 64 << 10,
            memory_bytes: 256 << 10,
            space_limit: Some(SpaceLimit::Bytes(40 << 20)),
            ..Options::default()
        }
        .expert(|expert| expert.log_group_bytes = 512 << 10);
        let db = Db::open_in(sim.env(), "/store", options)?;
        let (family, value) = (db.default_column_family(), vec![1; 200 << 10]);
        let put = |nth: u64| db.put_opt(family, &nth.to_be_bytes(), &value, &WriteOptions::default()).err();
        let refusal = (1..).find_map(put).unwrap();
        Ok((Script { sim, db }, refusal))
    }

    fn family(&self, case: &mut TestCase) -> std::result::Result<ColumnFamily, Box<dyn Error>> {
        Ok(self.db.column_family(&case.take_arg::<String>("family")?).ok_or("there is no such family")?)
    }

    fn run(&mut self, case: &mut TestCase) -> Outcome {
        let mut out = String::new();
        match &*case.directive {
            "store" => *self = Script::new(),
            "full-store" => {
                let (script, refusal) = Script::full()?;
                (*self, out) = (script, format!("{}\n", refusal.kind().name()));
            }
            "pass" => self.sim.env().clock.sleep_ns(1_000_000 * case.take_arg::<u64>("ms")?),
            "flush" => {
                let family = self.family(case)?;
                self.deepen(&family, case.take_arg("until-tables")?);
            }
            "writes" => out = self.writes(case)?,
            "limits" => {
                let causes = self.limits(case)?.into_iter().map(|(_, cause)| cause.name());
                let causes: Vec<&str> = causes.collect();
                out = if causes.is_empty() { "none\n".into() } else { causes.join(", ") + "\n" };
            }
            "stream" => out = self.stream(case)?,
            "owed" => {
                let pacer = &self.db.engine().writes.admission.gate.pacer;
                out = format!("{} ns\n", pacer.owed_ns(self.db.engine().context.now_ns()));
            }
            "fill-memory" => out = self.fill_memory(case)?,
            "put" => {
                let (family, len) = (self.family(case)?, case.take_arg("len")?);
                for n in 0..case.take_arg::<u8>("values")? {
                    self.db.put_cf(&family, &[n], &vec![n; len])?;
                }
                while self.db.run_background_step() {}
            }
            // Leaves `room` bytes of the volume beyond the store's own.
            "cut-volume" => {
                let engine = self.db.engine();
                self.sim.set_capacity(Some(engine.space.used_bytes() + case.take_arg::<u64>("room")?));
                engine.space.volume_is_full();
                engine.tree.refresh_space();
            }
            other => return Err(format!("no command is called {other}").into()),
        }
        case.expect_empty()?;
        Ok(out)
    }

    /// Flushes a family until its level 0 has `tables` tables, without compactions.
    fn deepen(&self, family: &ColumnFamily, tables: usize) {
        let engine = self.db.engine();
        while family.0.read_state().chain.l0_depth < tables {
            let mut batch = WriteBatch::new();
            batch.put_cf(family, b"key", b"value");
            let mut op = WriteOp::new(&engine.writes, Payload::batch(&batch), Durability::Buffered);
            while let WriteStep::Needs(need) = op.step(u64::MAX).unwrap() {
                engine.writes.admission.wait(&need, u64::MAX);
            }
            engine.writes.memtables.freeze_all(&mut engine.writes.memtables.lock());
            crate::work::jobs::flush::run_inline(&engine.jobs).unwrap();
        }
    }

    /// Writes of the lines, `20 of 200 B in a`, or batches over families, `in b,a`. All stay in
    /// flight until the end. Prints for each line whether its longest charge is above
    /// `longer-than-ms`, or its other waits; `past-charges`: after all charges.
    fn writes(&self, case: &mut TestCase) -> Outcome {
        let (db, is_past) = (&self.db, case.take_flag("past-charges")?);
        let bound_ms: u64 = case.try_take_arg("longer-than-ms")?.unwrap_or(0);
        let budget_ns = saturating_ns(db.engine().context.options.stall_budget);
        let families = |text: &str| -> Vec<ColumnFamily> {
            text.split(',').map(|name| db.column_family(name).unwrap()).collect()
        };
        let lines: Vec<(&str, u64, Vec<u8>, Vec<ColumnFamily>)> = case
            .input
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [count, "of", len, "B", "in", of] = words[..] else { panic!("{line} are no writes") };
                (line, count.parse().unwrap(), vec![7; len.parse().unwrap()], families(of))
            })
            .collect();
        let batches: Vec<WriteBatch> = lines
            .iter()
            .map(|(.., value, families)| {
                let mut batch = WriteBatch::new();
                families.iter().for_each(|family| batch.put_cf(family, b"key", value));
                batch
            })
            .collect();
        let (mut under_way, mut out) = (Vec::new(), String::new());
        for ((line, count, value, families), batch) in lines.iter().zip(&batches) {
            let (mut longest_ns, mut causes) = (0, std::collections::BTreeSet::new());
            for _ in 0..*count {
                let payload = match &families[..] {
                    [family] => {
                        let change =
                            Change { kind: ValueKind::Value, family: family.id(), key: b"key", value };
                        Payload::of_test(&family.0, change)
                    }
                    _ => Payload::batch(batch),
                };
                let mut op = WriteOp::new(&db.engine().writes, payload, Durability::Buffered);
                let mut is_charged = false;
                let cause = loop {
                    match op.step(u64::MAX)? {
                        WriteStep::Done if is_charged => break "done after a charge".to_owned(),
                        WriteStep::Done => break "done".into(),
                        WriteStep::Needs(WaitCondition::Levels(full)) => {
                            break format!("level 0 of {} is full", full.name);
                        }
                        WriteStep::Needs(WaitCondition::Time(..)) if is_past => is_charged = true,
                        WriteStep::Needs(WaitCondition::Time(ns, cause)) => {
                            longest_ns = longest_ns.max(ns);
                            break format!("charged for {}", cause.name());
                        }
                        WriteStep::Needs(_) => break "waits for something else".into(),
                    }
                };
                causes.insert(cause);
                under_way.push(op);
            }
            let longest = match longest_ns {
                0 => String::new(),
                ns if ns == budget_ns => "; the longest charge is the stall budget".into(),
                ns if ns > 1_000_000 * bound_ms => format!("; the longest charge is over {bound_ms} ms"),
                _ => format!("; the longest charge is up to {bound_ms} ms"),
            };
            let causes: Vec<String> = causes.into_iter().collect();
            out += &format!("{line}: {}{longest}\n", causes.join(", "));
        }
        Ok(out)
    }

    /// Returns the limits on a write of 100 bytes in a family. This uses up its part of the credit.
    fn limits(&self, case: &mut TestCase) -> std::result::Result<Vec<(u64, StallCause)>, Box<dyn Error>> {
        let family = self.family(case)?;
        let families = std::slice::from_ref(&*family.0);
        let payment = ThrottleCharge::of_write(100, false);
        let limits = payment.limits(&self.db.engine().writes.admission, families);
        Ok(limits.iter().map(|limit| (limit.rate, limit.cause)).collect())
    }

    /// Streams of unknown length: each asks for room, and is charged, piece by piece.
    fn stream(&self, case: &mut TestCase) -> Outcome {
        let (family, piece) = (self.db.default_column_family(), vec![1; 200 << 10]);
        let (count, mut refused): (u64, u64) = (case.take_arg("times")?, 0);
        for _ in 0..count {
            let mut stream = self.db.put_stream(family, b"stream", WriteOptions::default().no_wait())?;
            let mut append = |_| stream.append(&[2; 5000]).is_err() || stream.append(&piece).is_err();
            refused += u64::from((0..8).any(&mut append));
        }
        Ok(format!("{refused} of {count} are refused\n"))
    }

    /// Fills memory up to the budget in steps of 100 bytes, while `stuck` bytes wait for a flush
    /// that never comes. Memory is the limit each time. Prints the last rate as a part of the
    /// first.
    fn fill_memory(&self, case: &mut TestCase) -> Outcome {
        let (memory, stuck) = (&self.db.engine().space.memory, case.take_arg::<usize>("stuck")?);
        memory.grew(stuck);
        memory.froze(stuck);
        let family = self.family(case)?;
        let families = std::slice::from_ref(&*family.0);
        let rate = || {
            let payment = ThrottleCharge::of_write(100, false);
            let limits = payment.limits(&self.db.engine().writes.admission, families);
            let [Limit { rate, cause: StallCause::Memory, .. }] = limits[..] else {
                panic!("memory is the limit")
            };
            rate
        };
        let (first, max) = (rate(), self.db.engine().context.memtables_bytes_max);
        let mut last = first;
        while memory.used() + 100 < max {
            memory.grew(100);
            last = rate();
        }
        Ok(format!("{} % of the first rate\n", last * 100 / first))
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/write/admission/throttle_charge/scripts", |file| {
        let mut script = Script::new();
        file.run(|case| script.run(case));
    });
}
