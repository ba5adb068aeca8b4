//! What the policy answers is what the free functions answered that it replaces, on trees of any shape.

use super::*;
use crate::picker::{self, LeveledOptions};
use base::SeqNo;
use io::Rng;
use std::collections::BTreeSet;
use version::{Dependency, VsstMeta};

const VSSTS: u64 = 12;

fn boundary(key: u64, seq: SeqNo) -> Vec<u8> {
    key::encode(&user_key(key as u32), seq, ValueKind::Value)
}

fn any_table(rng: &mut Rng, number: u64, keys: (u64, u64), seq: SeqNo) -> FileMeta {
    let long = if rng.one_in(3) { 32 << 20 } else { 64 << 10 };
    let len = rng.range(1, long);
    let mut used: Vec<u64> = (0..rng.below(6)).map(|_| 1000 + rng.below(VSSTS)).collect();
    used.sort_unstable();
    used.dedup();
    let bytes = rng.range(1, 40 << 20);
    let depend = |blob_id| Dependency { blob_id, count: 5, raw_bytes: bytes, stored_bytes: bytes };
    FileMeta {
        number,
        uid: Uid::from_words(number, number),
        len,
        smallest: boundary(keys.0, seq),
        largest: boundary(keys.1, seq),
        min_seq: seq,
        max_seq: seq,
        entries: rng.range(1, 1000),
        tombstones: if rng.one_in(3) { rng.below(500) } else { 0 },
        range_tombstones: u64::from(rng.one_in(9)),
        raw_bytes: len + rng.below(1 << 22),
        hidden_bytes: if rng.one_in(3) { rng.below(1 << 25) } else { 0 },
        dependencies: if rng.one_in(2) { used.into_iter().map(depend).collect() } else { Vec::new() },
        ..FileMeta::default()
    }
}

/// A tree of any shape: level 0 in any order, some of the levels below used.
fn any_tree(rng: &mut Rng) -> State {
    let mut records = vec![Record::CreateFamily { id: 0, name: "default".into(), options: vec![] }];
    records.extend((0..VSSTS).map(|n| {
        let meta = VsstMeta {
            number: 1000 + n,
            record_bytes: 1 << 20,
            smallest: boundary(0, 1),
            largest: boundary(9999, 1),
            ..VsstMeta::default()
        };
        Record::AddVsst { family: 0, meta }
    }));
    let mut number = 1;
    for level in (1..7).rev() {
        let mut at = rng.below(300);
        for _ in 0..if rng.one_in(2) { rng.below(25) } else { 0 } {
            let end = at + rng.below(200);
            let meta = any_table(rng, number, (at, end), number);
            records.push(Record::AddFile { family: 0, level, meta });
            (number, at) = (number + 1, end + 1 + rng.below(60));
        }
    }
    for _ in 0..rng.below(14) {
        let low = rng.below(3000);
        let keys = (low, low + rng.below(1500));
        let meta = any_table(rng, number, keys, number);
        records.push(Record::AddFile { family: 0, level: 0, meta });
        number += 1;
    }
    State::empty(Uid::default(), 1).apply(&Edit(records)).unwrap()
}

fn any_policy(rng: &mut Rng) -> Leveled {
    Leveled {
        l0_compaction_files: rng.range(1, 8) as usize,
        l0_compaction_bytes: 1 << rng.range(10, 28),
        level_base_bytes: 1 << rng.range(12, 26),
        level_multiplier: rng.range(1, 20),
        levels: rng.range(2, 8) as usize,
        file_bytes: 1 << rng.range(10, 25),
        overlap_ratio_max: rng.range(1, 20),
        compaction_bytes_max: if rng.one_in(2) { 0 } else { 1 << rng.range(12, 28) },
        choice: if rng.one_in(2) { FileChoice::MinOverlap } else { FileChoice::LargestCompensated },
        compensated: rng.one_in(2),
        placement: [0; LEVELS_MAX],
    }
}

fn before(policy: &Leveled, set_aside: &SetAside) -> LeveledOptions {
    LeveledOptions {
        l0_compaction_files: policy.l0_compaction_files,
        l0_compaction_bytes: policy.l0_compaction_bytes,
        level_base_bytes: policy.level_base_bytes,
        level_multiplier: policy.level_multiplier,
        levels: policy.levels,
        file_bytes: policy.file_bytes,
        overlap_ratio_max: policy.overlap_ratio_max,
        compaction_bytes_max: policy.compaction_bytes_max,
        choice: policy.choice,
        compensated: policy.compensated,
        placement: policy.placement,
        set_aside: Arc::new(set_aside.clone()),
    }
}

/// What a pick says, but for the sizes of outputs where nothing is written.
fn told(c: Option<Compaction>) -> String {
    match c {
        Some(c) if c.reason == Reason::SetAside => {
            format!("{:?}", Compaction { file_bytes: 0, overlap_max: 0, compensated: true, ..c })
        }
        c => format!("{c:?}"),
    }
}

/// All questions, asked of both.
fn compare(facts: &Facts<'_>, policy: &Leveled, rng: &mut Rng, counts: &mut [u64; 7]) -> Vec<Compaction> {
    let (version, busy) = (facts.version, facts.busy);
    let old = before(policy, facts.set_aside);
    let all: &dyn CompactionPolicy = policy;
    let mut found = Vec::new();
    let mut same = |nth: usize, now: Option<Compaction>, then: Option<Compaction>| {
        assert_eq!(told(now.clone()), told(then), "question {nth} of\n{}", version.describe());
        counts[nth] += u64::from(now.is_some());
        found.extend(now);
    };
    same(0, all.levels(facts), picker::pick(version, &old, busy));
    same(1, all.l0(facts), picker::pick_l0(version, &old, busy));
    same(2, all.quiet(facts), picker::pick_quiet(version, &old, busy));
    let released = |n: u64| n.is_multiple_of(3);
    for need in [Need::Worth(3), Need::Any] {
        let then = picker::pick_for_space(
            version,
            &old,
            busy,
            match need {
                Need::Worth(written) => picker::Need::Worth(written),
                Need::Any => picker::Need::Any,
            },
        );
        let then = then.or_else(|| picker::pick_rewrite(version, &old, busy, released));
        same(3, all.for_space(facts, need, &released), then);
    }
    let keys = [rng.below(4000), rng.below(4000)].map(|key| user_key(key as u32));
    let range = if rng.one_in(2) { (None, None) } else { (keys.iter().min(), keys.iter().max()) };
    let range = (range.0.map(|k| &k[..]), range.1.map(|k| &k[..]));
    let mut now = ManualRange::new(range.0, range.1);
    let mut then = picker::ManualRange::new(range.0, range.1);
    for _ in 0..30 {
        let steps = (all.manual(facts, &mut now), then.step(version, &old, busy));
        match steps {
            (ManualStep::Start(now), picker::ManualStep::Start(then)) => same(4, Some(*now), Some(*then)),
            (now, then) => {
                assert_eq!(format!("{now:?}"), format!("{then:?}"));
                break;
            }
        }
        assert_eq!(format!("{now:?}"), format!("{then:?}"), "where the walk is");
    }
    let job_bytes = 1 << rng.range(10, 26);
    let (spread_max, bytes_max) = (rng.below(3), 1 << rng.range(10, 30));
    let now = Rebuild::choose(version, &RebuildOptions { spread_max, bytes_max, job_bytes }, busy);
    let then =
        picker::Rebuild::choose(version, &picker::RebuildOptions { spread_max, bytes_max, job_bytes }, busy);
    assert_eq!(format!("{now:?}"), format!("{then:?}"));
    if let (Some(mut now), Some(mut then)) = (now, then) {
        for _ in 0..30 {
            match (all.rebuild(facts, &mut now), then.step(version, &old, busy)) {
                (RebuildStep::Start(now), picker::RebuildStep::Start(then)) => {
                    same(5, Some(*now), Some(*then));
                }
                (now, then) => {
                    assert_eq!(format!("{now:?}"), format!("{then:?}"));
                    break;
                }
            }
        }
    }
    assert_eq!(policy.scores(facts), picker::scores(version, &old, busy));
    let (now, then) = (policy.level_targets(version, facts.set_aside), picker::level_targets(version, &old));
    assert_eq!(format!("{now:?}"), format!("{then:?}"));
    assert_eq!(policy.debt_bytes(version, facts.set_aside), picker::debt_bytes(version, &old));
    assert_eq!(all.width_bytes(version, facts.set_aside), picker::usual_width_bytes(version, &old));
    let (now, then) = (all.l0_load(version, facts.set_aside), picker::l0_load(version, &old));
    assert_eq!((now.files, now.bytes), (then.files, then.bytes));
    let wants = all.l0_wants_compaction(version, facts.set_aside);
    assert_eq!(wants, picker::l0_wants_compaction(version, &old));
    counts[6] += u64::from(wants);
    found
}

#[test]
fn every_answer_is_as_before() {
    let mut counts = [0; 7];
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let state = any_tree(&mut rng);
        let version = &state.family(0).unwrap().version;
        let policy = any_policy(&mut rng);
        let numbers: BTreeSet<u64> = (0..rng.below(4)).map(|_| rng.range(1, 80)).collect();
        let bad = version.levels.iter().flatten().filter(|f| rng.one_in(2) && numbers.contains(&f.number));
        let set_aside = SetAside::new(bad.map(|f| &**f).collect::<Vec<_>>());
        let mut busy = InProgress::default();
        // One after the other is started, so that the next has something in its way.
        for _ in 0..6 {
            let facts = Facts { version, set_aside: &set_aside, busy: &busy };
            let mut found = compare(&facts, &policy, &mut rng, &mut counts);
            if rng.one_in(4) {
                busy.claim_vsst(1000 + rng.below(VSSTS));
            }
            found.retain(|c| busy.allows(c));
            if found.is_empty() {
                break;
            }
            let c = found.swap_remove(rng.below(found.len() as u64) as usize);
            busy.add(&c);
        }
    }
    println!("answers that were a compaction, by question: {counts:?}");
    assert!(counts.iter().all(|&n| n > 300), "every question has been answered both ways: {counts:?}");
}
