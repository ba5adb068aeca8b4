//! What is asked of logs one by one.

use super::*;
use crate::disk::directory::{Block, LogRows};
use crate::index::Found;
use crate::lsn_set::{Builder, Size};

mod model;

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

    fn append(&mut self, lsns: std::ops::Range<u64>) {
        lsns.for_each(|lsn| self.op(Op::Append { log: 5, lsn, bytes: &[7; 100] }));
    }

    fn log(&self) -> &Log {
        self.logs.get(5).unwrap()
    }

    fn lsns(&self) -> Vec<u64> {
        self.log().index().runs_from(0).flat_map(|(first, last)| first..=last).collect()
    }

    /// What a file of these LSNs would say, of the sequences up to the last.
    fn part(&self, source: Source, lsns: std::ops::Range<u64>) -> (LogId, Part) {
        let mut set = Builder::default();
        lsns.for_each(|lsn| set.push(lsn, 100).unwrap());
        (5, part_of(source, self.seq, set))
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
fn a_trimmed_lsn_cannot_come_back() {
    let mut all = Applied::new();
    all.append(1..11);
    all.op(Op::Trim { log: 5, below: 6 });
    assert_eq!(all.lsns(), [6, 7, 8, 9, 10]);
    let e = all.log().admit(5).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Trimmed);
    assert_eq!(e.to_string(), "trimmed: record 5 of log a is trimmed: all below 6 are");
    assert_eq!(all.log().find(5).unwrap_err().kind(), ErrorKind::Trimmed);
    assert_eq!(all.log().find(11).unwrap_err().kind(), ErrorKind::NotFound);
    all.append(3..4);
    all.op(Op::Trim { log: 5, below: 2 });
    assert_eq!((all.log().trimmed_below(), all.lsns().len()), (6, 5), "a trim only rises");
    // Numbers that were never there are trimmed, too.
    all.op(Op::Trim { log: 5, below: 100 });
    all.append(50..60);
    assert_eq!((all.lsns(), all.log().first(), all.log().last()), (vec![], None, Some(59)));
}

#[test]
fn an_lsn_that_is_there_is_found_and_told_from_a_free_one() {
    let mut all = Applied::new();
    all.append(1..3);
    assert_eq!(all.log().admit(3).unwrap(), None);
    let Some(Found::Record(Source::Group(1), entry)) = all.log().admit(2).unwrap() else {
        panic!("is there")
    };
    assert_eq!((entry.lsn, entry.seq, entry.at, entry.len), (2, 3, 3000, 100));
    assert_eq!(all.log().exists(2).kind(), ErrorKind::AlreadyExists);
    let part = all.part(Source::Group(1), 1..3);
    install(&mut all.logs, 1, [part]);
    let Some(Found::Block(Source::Group(1), handle)) = all.log().admit(2).unwrap() else {
        panic!("in a block")
    };
    assert_eq!((handle.offset, handle.len), (64, 50));
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

#[test]
fn the_last_lsn_after_a_truncation_is_one_that_existed() {
    let mut all = Applied::new();
    (1..6).step_by(4).for_each(|lsn| all.append(lsn..lsn + 1));
    all.op(Op::TruncateAfter { log: 5, lsn: 3 });
    assert_eq!((all.lsns(), all.log().last()), (vec![1], Some(1)));
    all.op(Op::TruncateAfter { log: 5, lsn: 0 });
    assert_eq!((all.lsns(), all.log().last()), (vec![], None));

    // Of trimmed records the highest one counts, wherever the trim and the truncation lie.
    all.append(2..5);
    all.append(20..21);
    all.op(Op::Trim { log: 5, below: 10 });
    assert_eq!(all.log().last(), Some(20));
    all.op(Op::TruncateAfter { log: 5, lsn: 15 });
    assert_eq!((all.lsns(), all.log().last()), (vec![], Some(4)));
    all.op(Op::Trim { log: 5, below: 100 });
    all.append(150..151);
    all.op(Op::TruncateAfter { log: 5, lsn: 120 });
    assert_eq!(all.log().last(), Some(4));

    // A checkpoint keeps the last LSN only.
    all.append(110..113);
    all.op(Op::Trim { log: 5, below: 115 });
    let mut reopened = Logs::new();
    reopened.restore(all.log().save()).unwrap();
    let mut again = Applied { logs: reopened, ..all };
    again.append(150..151);
    again.op(Op::TruncateAfter { log: 5, lsn: 130 });
    assert_eq!(again.log().last(), Some(112));
}

#[test]
fn a_copy_counts_as_far_as_the_record_is_still_there_when_it_comes() {
    let mut all = Applied::new();
    all.append(1..101);
    let file = all.part(Source::Group(1), 1..101);
    all.ltn = 2;
    // While the index file is written: trims, a truncation, and records in the place of what it took.
    all.op(Op::Trim { log: 5, below: 11 });
    all.op(Op::TruncateAfter { log: 5, lsn: 89 });
    all.append(90..93);
    install(&mut all.logs, 1, [file]);
    assert_eq!(all.lsns(), (11..93).collect::<Vec<_>>());
    assert_eq!(all.logs.ledger().usage(Source::Group(1)).live, Size { records: 79, bytes: 7900 });
    // The same once more while the file is collected.
    let copies = all.part(Source::Cold(9), 11..90);
    all.op(Op::Trim { log: 5, below: 21 });
    all.op(Op::TruncateAfter { log: 5, lsn: 79 });
    all.append(80..81);
    all.logs.relocate([Moved { log: 5, from: vec![(Source::Group(1), 1)], to: Some(copies.1) }]);
    all.logs.forget(&[Source::Group(1)]);
    assert_eq!(all.lsns(), (21..81).collect::<Vec<_>>());
    let ledger = all.logs.ledger();
    assert_eq!(ledger.usage(Source::Cold(9)).live, Size { records: 59, bytes: 5900 });
    assert_eq!(ledger.usage(Source::Group(1)), Default::default());
    assert!(matches!(all.log().find(80).unwrap(), Found::Record(Source::Group(2), _)));
    // And after a restart, from what is on disk: the cold file has 11 to 89.
    let mut copies = Builder::default();
    (11..90).for_each(|lsn| copies.push(lsn, 100).unwrap());
    let mut again = Logs::new();
    again.restore(all.log().save()).unwrap();
    again.reach_id(6);
    assert!(again.load(5, part_of(Source::Cold(9), 101, copies)));
    let runs: Vec<_> = again.get(5).unwrap().index().runs_from(0).collect();
    assert_eq!(runs, [(21, 79)]);
}

/// A trim takes a few parts out of the index at a time. A part below it that is left must not come back with a file.
#[test]
fn trimmed_records_of_a_collected_group_stay_gone() {
    let mut all = Applied::new();
    for ltn in 1..=4 {
        all.ltn = ltn;
        let lsns = ltn * 10..ltn * 10 + 10;
        all.append(lsns.clone());
        let file = all.part(Source::Group(ltn), lsns);
        install(&mut all.logs, ltn, [file]);
    }
    let copies = all.part(Source::Cold(9), 30..50);
    all.op(Op::Trim { log: 5, below: 45 });
    assert_eq!(all.log().index().runs_from(0).next(), Some((30, 39)), "the trim is not done");
    let from = vec![(Source::Group(3), 30), (Source::Group(4), 40)];
    all.logs.relocate([Moved { log: 5, from, to: Some(copies.1) }]);
    assert_eq!(all.lsns(), (45..50).collect::<Vec<_>>());
    assert_eq!(all.logs.ledger().usage(Source::Cold(9)).live, Size { records: 5, bytes: 500 });
}

#[test]
fn gaps_are_what_is_not_there_and_not_trimmed() {
    let mut all = Applied::new();
    all.append(10..20);
    all.append(30..31);
    let file = all.part(Source::Group(1), 10..20);
    all.ltn = 2;
    all.append(22..24);
    all.append(20..21);
    let recent = all.part(Source::Group(1), 30..31);
    let mut both = Builder::default();
    let runs = [file.1.set(), recent.1.set()].into_iter().flat_map(|set| set.runs().collect::<Vec<_>>());
    runs.for_each(|run| both.push_run(run).unwrap());
    install(&mut all.logs, 1, [(5, part_of(Source::Group(1), 12, both))]);
    let log = all.log();
    assert_eq!(log.gaps(0, 35, 9), [(0, 9), (21, 21), (24, 29), (31, 35)]);
    assert_eq!(log.gaps(0, 35, 2), [(0, 9), (21, 21)]);
    assert_eq!(log.gaps(12, 18, 9), []);
    assert_eq!(log.gaps(19, 22, 9), [(21, 21)]);
    assert_eq!(log.gaps(40, 39, 9), []);
    assert_eq!(log.gaps(31, u64::MAX, 9), [(31, crate::limits::LSN_MAX)]);
    all.op(Op::Trim { log: 5, below: 25 });
    assert_eq!(all.log().gaps(0, 35, 9), [(25, 29), (31, 35)]);
    assert_eq!(all.log().gaps(0, 20, 9), []);
}

#[test]
fn numbers_are_not_used_again_and_names_are() {
    let mut all = Applied::new();
    all.append(1..5);
    assert_eq!(all.logs.check_create("a").unwrap_err().kind(), ErrorKind::AlreadyExists);
    all.op(Op::Delete { log: 5 });
    assert_eq!(all.logs.ledger().usage(Source::Group(1)).live, Size::default());
    all.logs.check_create("a").unwrap();
    assert_eq!(all.logs.next_id(), 6);
    all.op(Op::Create { log: 6, name: "a" });
    // What is replayed of the log that is gone does nothing, whatever it is.
    let before = all.logs.get(6).unwrap().save();
    all.at(1, Op::Create { log: 5, name: "a" });
    all.append(1..3);
    all.at(2, Op::SetMetadata { log: 5, bytes: b"x" });
    all.at(4, Op::Delete { log: 5 });
    assert_eq!((all.logs.len(), all.logs.named("a").unwrap().save()), (1, before));
    let e = all.logs.apply(99, &Op::Delete { log: 7 }, GroupPlace { ltn: 1, at: 0 });
    e.unwrap();
    assert_eq!(all.logs.next_id(), 8);
    let e = all.logs.apply(99, &Op::Trim { log: 8, below: 1 }, GroupPlace { ltn: 1, at: 0 });
    assert!(e.unwrap_err().is_corruption());
    assert_eq!(all.logs.named("b").unwrap_err().kind(), ErrorKind::NotFound);
    for (name, kind) in [("", ErrorKind::InvalidArgument), (&*"n".repeat(1025), ErrorKind::TooLarge)] {
        assert_eq!(all.logs.check_create(name).unwrap_err().kind(), kind);
    }
}

#[test]
fn logs_are_listed_by_their_names() {
    let mut all = Applied::new();
    for (log, name) in [(6, "c"), (7, "b"), (8, "bb")] {
        all.op(Op::Create { log, name });
    }
    let names = |from| all.logs.list_from(from).map(|log| log.name().to_string()).collect::<Vec<_>>();
    assert_eq!(names(""), ["a", "b", "bb", "c"]);
    assert_eq!(names("ba"), ["bb", "c"]);
}

#[test]
fn metadata_of_the_highest_sequence_stay() {
    let mut all = Applied::new();
    all.at(10, Op::SetMetadata { log: 5, bytes: b"new" });
    all.at(9, Op::SetMetadata { log: 5, bytes: b"old" });
    assert_eq!(&**all.log().metadata().unwrap(), b"new");
    all.at(10, Op::SetMetadata { log: 5, bytes: b"new" });
    all.at(11, Op::SetMetadata { log: 5, bytes: b"" });
    assert_eq!(&**all.log().metadata().unwrap(), b"");
}

#[test]
fn truncations_are_forgotten_when_nothing_can_come_up_for_them() {
    let mut all = Applied::new();
    all.append(1..50);
    all.op(Op::TruncateAfter { log: 5, lsn: 40 });
    let first = all.seq;
    all.append(41..45);
    all.op(Op::TruncateAfter { log: 5, lsn: 42 });
    all.op(Op::TruncateAfter { log: 5, lsn: 41 });
    let third = all.seq;
    assert_eq!(all.log().save().truncations, [(first, 40), (third, 41)], "the second says nothing more");
    assert_eq!(all.logs.forget_truncations(third, 0, 1), None);
    assert_eq!(all.log().save().truncations, [(third, 41)]);
    // One that took something of a file stays, whatever is replayed.
    let file = all.part(Source::Group(1), 1..42);
    install(&mut all.logs, 1, [file]);
    all.op(Op::TruncateAfter { log: 5, lsn: 30 });
    all.logs.forget_truncations(all.seq + 1, 0, 1);
    assert_eq!(all.log().save().truncations, [(all.seq, 30)]);
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

#[test]
fn a_log_that_is_in_the_checkpoint_twice_is_refused() {
    let saved = |id, name: &str| SavedLog { id, name: name.into(), ..SavedLog::default() };
    let mut logs = Logs::new();
    logs.restore(saved(1, "a")).unwrap();
    for twice in [saved(1, "b"), saved(2, "a")] {
        let e = logs.restore(twice).unwrap_err();
        assert!(e.is_corruption() && e.message().ends_with("is in the checkpoint twice"), "{e}");
    }
    logs.restore(saved(2, "b")).unwrap();
}
