//! Incremental reads: a reader that reads a log at several moments gets the batches of the whole
//! log, each once.

use super::*;
use crate::store_model::{Manifest, Replayed, dir, groups, store};

/// A reader between two readings.
struct Reader {
    report: RecoveryReport,
    seen: Replayed,
    /// Number of incremental reads, then of full ones.
    counts: [u64; 2],
}

impl Reader {
    fn new() -> Reader {
        Reader { report: RecoveryReport::default(), seen: Vec::new(), counts: [0; 2] }
    }

    fn read(&mut self, sim: &SimEnv, manifest: &Manifest, whose: &str) {
        let (whole, expected) = recover_all(sim, manifest, RecoveryMode::ReadOnly).unwrap();
        let mut new = Replayed::new();
        let mut take = |_: TenantId, seq: SeqNo, bytes: &[u8]| {
            new.push((seq, bytes.to_vec()));
            Ok(())
        };
        let (env, groups) = (sim.env(), groups(sim, manifest));
        let begins = self.report.point.map_or(0, |point| point.lpn());
        let staging = Staging::to_read_on(&env, dir(), store(), begins).unwrap();
        let read = read_on(&env, &staging, store(), &groups, &self.report, &mut take).unwrap();
        let Some(report) = read else {
            self.counts[1] += 1;
            (self.report, self.seen) = (whole, expected);
            return;
        };
        self.counts[0] += 1;
        assert_eq!(report.history.chain, whole.history.chain, "{whose}");
        let ltns = |report: &RecoveryReport| -> Vec<u64> {
            report.history.groups.iter().map(|group| group.ltn).collect()
        };
        assert_eq!(ltns(&report), ltns(&whole), "{whose}");
        assert!(new.iter().all(|batch| !self.seen.contains(batch)), "{whose}: a batch twice");
        self.seen.append(&mut new);
        let of_now: Replayed = self.seen.iter().filter(|batch| expected.contains(batch)).cloned().collect();
        assert!(of_now == expected, "{whose}: {} batches of {}", of_now.len(), expected.len());
        self.report = report;
    }
}

/// Reads images of the store at ascending operations. Returns the last operation.
fn read_along(caller: &Caller, rng: &mut Rng, reader: &mut Reader, whose: &str) -> u64 {
    let record = caller.sim.record();
    let mut op = caller.manifests[0].0;
    while op <= record.op_count() {
        let kind = CrashKind::ProcessKill;
        let manifest = caller.expectation(op, kind).manifest;
        reader.read(&record.crash_at(op, kind, 0), &manifest, &format!("{whose}, operation {op}"));
        op += rng.range(1, 12);
    }
    record.op_count()
}

#[test]
fn a_reader_beside_a_writer_gets_each_batch_once() {
    let mut counts = [0; 2];
    for seed in 0..300 {
        let mut rng = Rng::new(seed ^ 0x6f6e);
        let start = STARTS[rng.below(2) as usize];
        let mut caller = match seed % 3 {
            0 => Caller::that_keeps_pages(seed, start),
            _ => Caller::on(Lane::FIRST, seed, start),
        };
        caller.tenants = [1, 2, 4][seed as usize % 3];
        for _ in 0..rng.range(20, 80) {
            caller.step().unwrap();
        }
        let mut reader = Reader::new();
        let whose = format!("seed {seed}");
        read_along(&caller, &mut rng, &mut reader, &whose);

        // The writer is killed or its machine loses power, and a new writer continues.
        let record = caller.sim.record();
        let op = rng.range(caller.manifests[0].0, record.op_count() + 1);
        let kind = any_kind(&mut rng);
        let expected = caller.expectation(op, kind);
        let sim = record.crash_at(op, kind, rng.next_u64());
        let (report, kept) = recover_and_check(&sim, &expected);
        let mut next = expected.resume(sim, &report, kept, rng.next_u64());
        for _ in 0..rng.below(30) {
            next.step().unwrap();
        }
        // A reader of the first life starts over, or keeps only batches of the second life.
        let mut reader = Reader::new();
        let image = record.crash_at(op, CrashKind::ProcessKill, 0);
        reader.read(&image, &expected.manifest, &whose);
        if kind == CrashKind::ProcessKill {
            read_along(&next, &mut rng, &mut reader, &format!("{whose}, second life"));
        }
        (0..2).for_each(|nth| counts[nth] += reader.counts[nth]);
    }
    assert!(counts[0] > 400 && counts[1] > 100, "{counts:?}");
}
