//! The in-memory state of logs, under single operations.

use base::SeqNo;
use io::Rng;
use lavalog::Source;
use lavalog::index::RecordLocation;
use lavalog::logs::{GroupPosition, Log, Logs};
use lavalog::lsn_set::Size;
use lavalog::ops::Op;

/// Applies operations with ascending sequence numbers; positions do not matter.
struct Applied {
    logs: Logs,
    seq: SeqNo,
    ltn: u64,
}

impl Applied {
    fn new() -> Applied {
        let mut out = Applied { logs: Logs::new(), seq: 0, ltn: 1 };
        out.op(Op::Create { log: 5, name: "a" });
        out
    }

    fn op(&mut self, op: Op<'_>) {
        self.seq += 1;
        self.at(self.seq, op);
    }

    fn at(&mut self, seq: SeqNo, op: Op<'_>) {
        self.logs.apply(seq, &op, GroupPosition { ltn: self.ltn, at: 1000 * seq }).unwrap();
    }

    fn log(&self) -> &Log {
        self.logs.get(5).unwrap()
    }

    fn lsns(&self) -> Vec<u64> {
        self.log().live().index().runs_from(0).flat_map(|(first, last)| first..=last).collect()
    }
}

#[test]
fn a_truncation_removes_earlier_records_in_any_replay_order() {
    // Of LSNs 1 to 9: truncated after 4, then 5 and 6 rewritten.
    let script = |all: &mut Applied, order: &[u64]| {
        for step in order {
            match step {
                1..=9 => all.at(1 + step, Op::Append { log: 5, lsn: *step, bytes: b"old" }),
                10 => all.at(11, Op::TruncateAfter { log: 5, lsn: 4 }),
                _ => all.at(1 + step, Op::Append { log: 5, lsn: step - 6, bytes: b"newer" }),
            }
        }
    };
    let mut rng = Rng::new(2);
    for _ in 0..200 {
        let mut order: Vec<u64> = (1..=12).collect();
        (1..order.len()).rev().for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
        let mut all = Applied::new();
        script(&mut all, &order);
        assert_eq!(all.lsns(), [1, 2, 3, 4, 5, 6], "{order:?}");
        let Some(RecordLocation::Record(_, five)) = all.log().admit(5).unwrap() else { panic!("is there") };
        assert_eq!((five.seq, five.len), (12, 5));
        let usage = all.logs.ledger().usage(Source::Group(1));
        assert_eq!(usage.live, Size { records: 6, bytes: 4 * 3 + 2 * 5 });
    }
}

/// Each of 100,000 logs takes its own memory, and an operation on one does not affect the others.
#[test]
fn many_logs_are_independent_of_each_other() {
    let mut all = Applied::new();
    for i in 0..100_000 {
        all.op(Op::Create { log: 10 + i, name: &format!("log {i}") });
        all.op(Op::Append { log: 10 + i, lsn: i, bytes: b"x" });
    }
    assert_eq!(all.logs.registry().len(), 100_001);
    let per_log = all.logs.memory_bytes() / all.logs.registry().len();
    assert!(per_log < 700, "{per_log} bytes for a log of one record");
    all.op(Op::Trim { log: 77, below: 68 });
    assert_eq!(all.logs.ledger().usage(Source::Group(1)).live.records, 99_999);
}
