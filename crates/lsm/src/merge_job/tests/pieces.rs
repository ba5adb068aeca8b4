//! A merge in pieces writes the same as one merge.

use super::*;

fn file(points: Vec<Entry>, ranges: &[RangeTombstone]) -> MemFile {
    let tombstones = Arc::new(FragmentedRangeTombstones::new(ranges));
    MemFile { meta: Arc::default(), points: Arc::new(points), tombstones }
}

/// Some of the keys and tombstones may exist underneath.
#[derive(Clone)]
struct Under(BTreeSet<Vec<u8>>);

impl OlderEntryCheck for Under {
    fn may_hold_key(&mut self, user_key: &[u8]) -> bool {
        self.0.contains(user_key)
    }
    fn may_hold_range(&mut self, start: &[u8], end: &[u8]) -> bool {
        self.0.range(start.to_vec()..end.to_vec()).next().is_some()
    }
}

fn points(files: &[MemFile]) -> Vec<Entry> {
    files.iter().flat_map(|f| f.points.iter().cloned()).collect()
}

/// Returns the sequences of the range tombstones over a key.
fn over(files: &[MemFile], user_key: &[u8]) -> Vec<SeqNo> {
    let all = files.iter().flat_map(|f| f.tombstones.tombstones());
    let mut seqs: Vec<SeqNo> = all
        .filter(|t| t.start.as_slice() <= user_key && user_key < t.end.as_slice())
        .map(|t| t.seq)
        .collect();
    seqs.sort_unstable();
    seqs
}

/// With `AssumeOlderEntries` below, pieces write the same entries as one merge, and their
/// tombstones cover the same keys. With a known set below, a piece with nothing below drops the
/// rest of a tombstone there, and zeroes the sequences that it covered; readers see the same.
#[test]
fn subcompactions_write_the_same_as_one_merge() {
    let mut dropped_more = 0;
    for case in 0..3000 {
        let mut rng = Rng::new(case);
        let mix = Mix::random(&mut rng);
        let mut history = History::default();
        (0..rng.below(120)).for_each(|_| history.write(&mut rng, &mix));
        let last = history.last_seq();
        let middle = rng.below(last + 1);
        let inputs: Vec<MemFile> = [(middle, last), (0, middle)]
            .map(|(after, upto)| history.entries(after, upto))
            .map(|(points, ranges)| file(points, &ranges))
            .into();
        let inputs: Vec<&MemFile> = inputs.iter().collect();
        let mut snapshots: Vec<SeqNo> = (0..rng.below(4)).map(|_| rng.below(last + 1)).collect();
        snapshots.push(last);
        snapshots.sort_unstable();
        snapshots.dedup();
        let mut options = MergeOptions::new(snapshots.clone());
        options.operator = rng.one_in(2).then(|| Arc::new(Append) as Arc<dyn MergeOperator>);
        let keys: Vec<Vec<u8>> = (0..=mix.keys).map(crate::model::user_key).collect();
        let mut cuts: Vec<Vec<u8>> =
            (0..1 + rng.below(4)).map(|_| keys[rng.below(keys.len() as u64) as usize].clone()).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let anything = rng.one_in(2);
        let under = Under(keys.iter().filter(|_| rng.one_in(5)).cloned().collect());
        let run = |rng: &mut Rng, lower: Option<Vec<u8>>, upper: Option<Vec<u8>>| {
            let mut known = under.clone();
            let below: &mut dyn OlderEntryCheck = if anything { &mut AssumeOlderEntries } else { &mut known };
            let options = MergeOptions { lower, upper, ..options.clone() };
            run_job(rng, &inputs, below, options, &mut 1).0
        };
        let whole = run(&mut rng, None, None);
        let lowers = std::iter::once(None).chain(cuts.iter().cloned().map(Some));
        let uppers = cuts.iter().cloned().map(Some).chain([None]);
        let pieces: Vec<MemFile> =
            lowers.zip(uppers).flat_map(|(lower, upper)| run(&mut rng, lower, upper)).collect();
        for pair in pieces.windows(2) {
            assert!(
                pair[0].meta.ends_before(pair[1].meta.smallest_user_key()),
                "case {case}: pieces overlap"
            );
        }
        let zeroed = |(ikey, value): Entry| {
            (
                key::user_key(&ikey).to_vec(),
                key::kind(&ikey),
                value,
                if anything { key::seq(&ikey) } else { 0 },
            )
        };
        let entries = |files: &[MemFile]| points(files).into_iter().map(zeroed).collect::<Vec<_>>();
        assert_eq!(entries(&pieces), entries(&whole), "case {case}, cut at {cuts:?}");
        for key in &keys {
            let (of_pieces, of_whole) = (over(&pieces, key), over(&whole, key));
            dropped_more += usize::from(of_pieces != of_whole);
            let is_there = anything || under.0.contains(key);
            let no_more = of_pieces.iter().all(|seq| of_whole.contains(seq));
            assert!(of_pieces == of_whole || !is_there && no_more, "case {case}: over {key:?}");
        }
        for snapshot in snapshots {
            let view = |files: &[MemFile]| scan(&files.iter().collect::<Vec<_>>(), snapshot, false);
            assert_eq!(view(&pieces), view(&whole), "case {case} snapshot {snapshot}");
        }
    }
    assert!(dropped_more > 50, "{dropped_more}: of tombstones that ended at a cut");
}
