//! Single rules, one at a time, and failures.

use super::*;

fn points(list: &[(&str, SeqNo, ValueKind, &str)]) -> Vec<Entry> {
    let mut all: Vec<Entry> =
        list.iter().map(|(k, s, kind, v)| (encode(k.as_bytes(), *s, *kind), v.as_bytes().to_vec())).collect();
    all.sort_by(|a, b| compare(&a.0, &b.0));
    all
}

fn range(start: &str, end: &str, seq: SeqNo) -> RangeTombstone {
    RangeTombstone { start: start.into(), end: end.into(), seq }
}

/// Only the listed keys may exist underneath.
struct Under(&'static [&'static str]);

impl OlderEntryCheck for Under {
    fn may_hold_key(&mut self, user_key: &[u8]) -> bool {
        self.0.iter().any(|k| k.as_bytes() == user_key)
    }
    fn may_hold_range(&mut self, start: &[u8], end: &[u8]) -> bool {
        self.0.iter().any(|k| start <= k.as_bytes() && k.as_bytes() < end)
    }
}

fn show(files: &[MemFile]) -> Vec<String> {
    let mut out = Vec::new();
    for f in files {
        for (k, v) in f.points.iter() {
            let d = key::InternalKey::decode(k).unwrap();
            let (key, value) = (String::from_utf8_lossy(d.user_key), String::from_utf8_lossy(v));
            out.push(format!("{key}@{}{:?}={value}", d.seq, d.kind));
        }
        for t in f.tombstones.tombstones() {
            out.push(format!(
                "[{},{})@{}",
                String::from_utf8_lossy(&t.start),
                String::from_utf8_lossy(&t.end),
                t.seq
            ));
        }
    }
    out
}

fn merge(
    list: &[(&str, SeqNo, ValueKind, &str)],
    ranges: &[RangeTombstone],
    snapshots: &[SeqNo],
    under: &'static [&'static str],
) -> Vec<String> {
    let file = MemFile {
        meta: Arc::default(),
        points: Arc::new(points(list)),
        tombstones: Arc::new(FragmentedRangeTombstones::new(ranges)),
    };
    let mut options = MergeOptions::new(snapshots.to_vec());
    options.step_bytes = 1;
    let mut job =
        MergeJob::new(VecIter::new(file.points.clone()), std::slice::from_ref(&file.tombstones), options);
    let (mut files, mut cutter) = (MemFiles::default(), SizeCutter { raw_bytes: u64::MAX });
    let mut below = Under(under);
    loop {
        let mut hooks = JobEnv {
            files: &mut files,
            cutter: &mut cutter,
            below: &mut below,
            values: None,
            observer: None,
        };
        if let Step::Done(outputs) = job.step(&mut hooks).unwrap() {
            let described = outputs.into_iter().map(|o| describe(o.number + 1, o.table.0, o.table.1));
            return show(&described.collect::<Vec<_>>());
        }
    }
}

use ValueKind::{Deletion as D, Merge as M, Reference as R, SingleDeletion as S, Value as V};

#[test]
fn one_version_for_each_stripe_and_zeroes_at_the_bottom() {
    let versions = [("a", 9, V, "9"), ("a", 7, V, "7"), ("a", 5, V, "5"), ("a", 3, V, "3")];
    assert_eq!(merge(&versions, &[], &[20], &[]), ["a@0Value=9"]);
    assert_eq!(merge(&versions, &[], &[20], &["a"]), ["a@9Value=9"]);
    assert_eq!(merge(&versions, &[], &[5, 20], &[]), ["a@9Value=9", "a@0Value=5"]);
    assert_eq!(merge(&versions, &[], &[4, 8], &[]), ["a@9Value=9", "a@7Value=7", "a@0Value=3"]);
    assert_eq!(merge(&versions, &[], &[], &[]).len(), 4, "without snapshots nothing is dropped");
    assert_eq!(merge(&[("a", 9, R, "r"), ("a", 2, V, "v")], &[], &[20], &[]), ["a@9Reference=r"]);
}

#[test]
fn tombstones_stay_while_something_may_be_underneath() {
    let versions = [("a", 9, D, ""), ("a", 5, V, "5"), ("b", 4, V, "4")];
    assert_eq!(merge(&versions, &[], &[20], &[]), ["b@0Value=4"]);
    assert_eq!(merge(&versions, &[], &[20], &["a"]), ["a@9Deletion=", "b@0Value=4"]);
    assert_eq!(merge(&versions, &[], &[6, 20], &[]), ["a@9Deletion=", "a@0Value=5", "b@0Value=4"]);
    // The tombstone is above a snapshot, but hides no remaining entry.
    assert_eq!(merge(&[("a", 9, D, ""), ("a", 8, V, "8")], &[], &[6, 20], &[]), [""; 0]);
}

#[test]
fn single_deletes_vanish_with_their_value() {
    assert_eq!(merge(&[("a", 9, S, ""), ("a", 5, V, "5")], &[], &[20], &["a"]), [""; 0]);
    assert_eq!(merge(&[("a", 9, S, ""), ("a", 5, R, "r")], &[], &[20], &["a"]), [""; 0]);
    assert_eq!(
        merge(&[("a", 9, S, ""), ("a", 5, V, "5")], &[], &[7, 20], &["a"]),
        ["a@9SingleDeletion=", "a@5Value=5"]
    );
    assert_eq!(merge(&[("a", 9, S, "")], &[], &[20], &["a"]), ["a@9SingleDeletion="]);
    assert_eq!(merge(&[("a", 9, S, "")], &[], &[20], &[]), [""; 0]);
    // The older value is underneath: a newer value must not cancel its single delete.
    assert_eq!(
        merge(&[("a", 12, V, "12"), ("a", 9, S, "")], &[], &[20], &["a"]),
        ["a@12Value=12", "a@9SingleDeletion="]
    );
    // Against the contract: hidden entries stay hidden.
    assert_eq!(merge(&[("a", 9, S, ""), ("a", 5, M, "5")], &[], &[20], &["a"]), ["a@9Deletion="]);
    assert_eq!(merge(&[("a", 9, S, ""), ("a", 5, D, "")], &[], &[20], &["a"]), ["a@9Deletion="]);
}

#[test]
fn range_tombstones_cover_thin_out_and_vanish() {
    let versions = [("a", 3, V, "3"), ("b", 8, V, "8"), ("c", 4, V, "4")];
    let ranges = [range("a", "d", 6), range("a", "d", 5)];
    assert_eq!(merge(&versions, &ranges, &[20], &[]), ["b@0Value=8"]);
    // Kept because of "c": "b" keeps its sequence, or the tombstone would hide it.
    assert_eq!(merge(&versions, &ranges, &[20], &["c"]), ["b@8Value=8", "[a,d)@6"]);
    assert_eq!(
        merge(&versions, &ranges, &[5, 20], &[]),
        ["b@8Value=8", "[a,d)@6"],
        "the lower stripe needs no tombstone: nothing is underneath"
    );
    assert_eq!(merge(&versions, &ranges, &[4, 5, 20], &["a"]).last().unwrap(), "[a,d)@5");
    assert_eq!(merge(&[], &ranges, &[20], &["a"]), ["[a,d)@6"], "a file of range tombstones alone");
}

#[test]
fn cut_outputs_leave_no_gap_in_a_range_tombstone() {
    struct Always;
    impl OutputCutter for Always {
        fn cut_before(&mut self, _: &[u8], _: OutputSize) -> bool {
            true
        }
    }
    let list = points(&[("b", 9, V, ""), ("b", 8, V, ""), ("f", 9, V, ""), ("p", 9, V, "")]);
    let tombstones = FragmentedRangeTombstones::new(&[range("a", "k", 5), range("m", "n", 4)]);
    let mut options = MergeOptions::new(Vec::new());
    options.upper = Some(b"mm".to_vec());
    let mut job = MergeJob::new(VecIter::new(Arc::new(list)), &[Arc::new(tombstones)], options);
    let mut files = MemFiles::default();
    let mut hooks = JobEnv {
        files: &mut files,
        cutter: &mut Always,
        below: &mut AssumeOlderEntries,
        values: None,
        observer: None,
    };
    let Step::Done(outputs) = job.step(&mut hooks).unwrap() else { panic!("one step is enough") };
    let shown: Vec<Vec<String>> =
        outputs.into_iter().map(|o| show(&[describe(o.number + 1, o.table.0, o.table.1)])).collect();
    let expected: [&[&str]; 4] =
        [&["[a,b)@5"], &["b@9Value=", "b@8Value=", "[b,f)@5"], &["f@9Value=", "[f,k)@5"], &["[m,mm)@4"]];
    assert_eq!(shown, expected);
}

#[test]
fn operands_are_folded_once_there_is_an_operator() {
    let list = [("a", 9, M, "c"), ("a", 8, M, "b"), ("a", 7, V, "a"), ("z", 3, M, "only")];
    assert_eq!(merge(&list, &[], &[20], &["a", "z"]).len(), 4);
    for (operator, expected) in [
        (Arc::new(Append) as Arc<dyn MergeOperator>, vec!["a@9Value=abc", "z@3Merge=only"]),
        (Arc::new(Panics), vec!["a@9Merge=c", "a@8Merge=b", "a@7Value=a", "z@3Merge=only"]),
    ] {
        let mut options = MergeOptions::new(vec![20]);
        options.operator = Some(operator);
        let mut rng = Rng::new(1);
        let file = describe(1, points(&list), Vec::new());
        let (out, stats) = run_job(&mut rng, &[&file], &mut Under(&["a", "z"]), options, &mut 2);
        assert_eq!(show(&out), expected);
        assert_eq!(stats.fold_failures, u64::from(expected.len() == 4));
    }
}

struct Panics;
impl MergeOperator for Panics {
    fn full_merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]], _: &mut Vec<u8>) -> Result<()> {
        panic!("the operator's own bug");
    }
}

/// Separates values of three bytes and more, as a flush does, and inlines references.
struct Separate;
impl ValueHook for Separate {
    fn rewrite(
        &mut self,
        _: &[u8],
        _: SeqNo,
        kind: ValueKind,
        v: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Rewrite> {
        match kind {
            ValueKind::Value if v.len() < 3 => Ok(Rewrite::Keep),
            ValueKind::Value => {
                out.extend_from_slice(b"blob");
                Ok(Rewrite::As(R))
            }
            _ => {
                out.extend_from_slice(b"inline");
                Ok(Rewrite::As(V))
            }
        }
    }
}

#[test]
fn the_value_hook_decides_before_sequences_are_zeroed() {
    let list = points(&[("a", 9, V, "long"), ("b", 8, V, "s"), ("c", 7, R, "ref"), ("c", 6, V, "hidden")]);
    let mut job = MergeJob::new(VecIter::new(Arc::new(list)), &[], MergeOptions::new(vec![20]));
    let mut files = MemFiles::default();
    let mut hooks = JobEnv {
        files: &mut files,
        cutter: &mut SizeCutter { raw_bytes: 1 << 20 },
        below: &mut Under(&[]),
        values: Some(&mut Separate),
        observer: None,
    };
    let Step::Done(outputs) = job.step(&mut hooks).unwrap() else { panic!("one step is enough") };
    let all: Vec<MemFile> =
        outputs.into_iter().map(|o| describe(o.number + 1, o.table.0, o.table.1)).collect();
    assert_eq!(show(&all), ["a@9Reference=blob", "b@0Value=s", "c@0Value=inline"]);
}

#[test]
fn errors_are_permanent_and_created_files_are_listed() {
    let list: Vec<Entry> = points(
        &(0..9).map(|i| (["a", "b", "c", "d", "e", "f", "g", "h", "i"][i], 3, V, "v")).collect::<Vec<_>>(),
    );
    for (fail_create, fail_finish, created) in [(Some(3), None, 3), (None, Some(2), 3)] {
        let options = MergeOptions::new(vec![20]);
        let mut job = MergeJob::new(VecIter::new(Arc::new(list.clone())), &[], options);
        let mut files = MemFiles { next: 0, fail_create, fail_finish };
        let mut step = || {
            let mut hooks = JobEnv {
                files: &mut files,
                cutter: &mut SizeCutter { raw_bytes: 1 },
                below: &mut AssumeOlderEntries,
                values: None,
                observer: None,
            };
            job.step(&mut hooks).map(|_| ()).unwrap_err().kind()
        };
        let first = step();
        assert_eq!(first, step());
        assert_eq!(job.created().len(), created);
    }
}

#[test]
fn unsorted_entries_and_unknown_kinds_are_corruption() {
    struct Unsorted(Vec<Entry>, usize);
    impl InternalIterator for Unsorted {
        fn valid(&self) -> bool {
            self.1 < self.0.len()
        }
        fn seek_to_first(&mut self) -> Result<()> {
            Ok(())
        }
        fn seek_to_last(&mut self) -> Result<()> {
            unreachable!("a job only moves forward")
        }
        fn seek(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn seek_for_prev(&mut self, _: &[u8]) -> Result<()> {
            unreachable!("a job only moves forward")
        }
        fn next(&mut self) -> Result<()> {
            self.1 += 1;
            Ok(())
        }
        fn prev(&mut self) -> Result<()> {
            unreachable!("a job only moves forward")
        }
        fn key(&self) -> &[u8] {
            &self.0[self.1].0
        }
        fn value(&self) -> &[u8] {
            &self.0[self.1].1
        }
    }
    let entry = |k: &str, seq, kind| (encode(k.as_bytes(), seq, kind), Vec::new());
    let mut unknown = Vec::new();
    encode_into(&mut unknown, b"a", 3, ValueKind::Prepare);
    for list in [
        vec![entry("b", 3, V), entry("a", 3, V)],
        vec![entry("a", 3, V), entry("a", 3, V)],
        vec![entry("a", 3, V), entry("a", 4, V)],
        vec![(unknown, Vec::new())],
    ] {
        let mut job = MergeJob::new(Unsorted(list, 0), &[], MergeOptions::new(vec![20]));
        let mut files = MemFiles::default();
        let mut hooks = JobEnv {
            files: &mut files,
            cutter: &mut SizeCutter { raw_bytes: 1 },
            below: &mut AssumeOlderEntries,
            values: None,
            observer: None,
        };
        assert!(job.step(&mut hooks).unwrap_err().is_corruption());
    }
}

/// The hook of a flush moves such a value to a place to which tables can refer. No table holds a
/// reference that only the log can resolve.
#[test]
fn log_only_references_reach_no_table() {
    let list = points(&[("a", 3, ValueKind::PlacedReference, "where")]);
    let mut job = MergeJob::new(VecIter::new(Arc::new(list)), &[], MergeOptions::new(vec![20]));
    let mut files = MemFiles::default();
    let mut hooks = JobEnv {
        files: &mut files,
        cutter: &mut SizeCutter { raw_bytes: 1 },
        below: &mut AssumeOlderEntries,
        values: None,
        observer: None,
    };
    let e = loop {
        match job.step(&mut hooks) {
            Ok(Step::Done(_)) => panic!("it is in a table"),
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    assert!(
        e.message().starts_with("a flush or compaction has no resolver for a reference to a large value"),
        "{e}"
    );
}
