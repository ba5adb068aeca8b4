//! What is asked of logs one by one.

use super::*;
use crate::disk::directory::{Block, LogRows};
use crate::index::Found;
use crate::lsn_set::{Builder, Size};

mod model;
mod script;

/// Applies operations with ascending sequences; places do not matter.
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
        self.logs.apply(seq, &op, GroupPlace { ltn: self.ltn, at: 1000 * seq }).unwrap();
    }

    fn log(&self) -> &Log {
        self.logs.get(5).unwrap()
    }

    fn lsns(&self) -> Vec<u64> {
        self.log().index().runs_from(0).flat_map(|(first, last)| first..=last).collect()
    }
}

/// The index file of a group comes, which has these parts.
fn install(logs: &mut Logs, ltn: u64, parts: impl IntoIterator<Item = (LogId, Part)>) {
    let mut parts: HashMap<LogId, Part> = parts.into_iter().collect();
    let ids = logs.recent_in(ltn, 0, usize::MAX).to_vec();
    ids.chunks(2).for_each(|some| {
        let some: Vec<_> = some.iter().map(|id| (*id, parts.remove(id))).collect();
        logs.install(ltn, some);
    });
    logs.installed(ltn);
    assert_eq!((parts.len(), logs.recent_in(ltn, 0, 1).len()), (0, 0));
}

/// What a file with one block would say.
fn part_of(source: Source, last_seq: SeqNo, set: Builder) -> Part {
    let lsns = set.build();
    let blocks = vec![Block { first: lsns.first().unwrap(), offset: 64, len: 50 }];
    Part::of(source, &LogRows { log: 5, seqs: (1, last_seq), lsns, blocks }).unwrap()
}

#[test]
fn a_truncation_takes_what_came_before_it_in_whatever_order_they_are_applied() {
    // Of LSNs 1 to 9: truncated after 4, and 5 and 6 written anew.
    let script = |all: &mut Applied, order: &[u64]| {
        for step in order {
            match step {
                1..=9 => all.at(1 + step, Op::Append { log: 5, lsn: *step, bytes: b"old" }),
                10 => all.at(11, Op::TruncateAfter { log: 5, lsn: 4 }),
                _ => all.at(1 + step, Op::Append { log: 5, lsn: step - 6, bytes: b"newer" }),
            }
        }
    };
    let mut rng = io::Rng::new(2);
    for _ in 0..200 {
        let mut order: Vec<u64> = (1..=12).collect();
        (1..order.len()).rev().for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
        let mut all = Applied::new();
        script(&mut all, &order);
        assert_eq!(all.lsns(), [1, 2, 3, 4, 5, 6], "{order:?}");
        let Some(Found::Record(_, five)) = all.log().admit(5).unwrap() else { panic!("is there") };
        assert_eq!((five.seq, five.len), (12, 5));
        let usage = all.logs.ledger().usage(Source::Group(1));
        assert_eq!(usage.live, Size { records: 6, bytes: 4 * 3 + 2 * 5 });
    }
}

/// Not that it is fast, but that it does not look at all logs: 100,000 of them take memory each for themselves, and operations on
/// one see nothing of the others.
#[test]
fn many_logs_are_independent_of_each_other() {
    let mut all = Applied::new();
    for i in 0..100_000 {
        all.op(Op::Create { log: 10 + i, name: &format!("log {i}") });
        all.op(Op::Append { log: 10 + i, lsn: i, bytes: b"x" });
    }
    assert_eq!(all.logs.len(), 100_001);
    let per_log = all.logs.memory_bytes() / all.logs.len();
    assert!(per_log < 700, "{per_log} bytes for a log of one record");
    all.op(Op::Trim { log: 77, below: 68 });
    assert_eq!(all.logs.ledger().usage(Source::Group(1)).live.records, 99_999);
}
