use super::Missing;
use base::{Error, SeqNo};
use io::Rng;
use store::repair::LogGap;

fn gap(after_seq: SeqNo, before_seq: Option<SeqNo>) -> LogGap {
    LogGap { error: Error::corruption("a gap"), after_seq, before_seq, between_groups: false }
}

/// Each gap is narrowed to the hull of the sequences at or above the floor that no lane has.
#[test]
fn gaps_are_narrowed_to_sequences_missing_in_all_lanes() {
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let there: Vec<bool> = (0..40).map(|_| rng.one_in(2)).collect();
        let (mut gaps, mut next) = (Vec::new(), 0);
        while next < 38 {
            let before = next + 2 + rng.below(6);
            let is_last = before > 39;
            gaps.push(gap(next, (!is_last).then_some(before)));
            next = before + rng.below(3);
        }
        let floor = 1 + rng.below(30);
        let is_lost = |seq: SeqNo| !there.get(seq as usize).copied().unwrap_or(false);
        let mut expected = Vec::new();
        for gap in &gaps {
            let end = gap.before_seq.unwrap_or(50);
            let range = (gap.after_seq + 1).max(floor)..end;
            let lost: Vec<SeqNo> = range.filter(|seq| is_lost(*seq)).collect();
            if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
                let open = gap.before_seq.is_none();
                expected.push((first - 1, (!open).then_some(last + 1)));
            }
        }
        let mut missing = Missing::between(&gaps, floor);
        let mut first = 1;
        for seq in 1..40 {
            if !is_lost(seq) {
                if first < seq {
                    missing.add(first, seq - 1);
                }
                first = seq + 1;
            }
        }
        missing.add(first, SeqNo::MAX);
        missing.narrow(&mut gaps);
        let found: Vec<_> = gaps.iter().map(|gap| (gap.after_seq, gap.before_seq)).collect();
        assert_eq!(found, expected, "seed {seed}");
    }
}
