use super::*;
use crate::vec_iter::{Entry, VecIter};
use base::key::{ValueKind, encode};
use base::{Error, ErrorKind, MAX_SEQ};
use io::Rng;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files in memory by number. Opening one fails while the switch is on.
#[derive(Clone)]
struct Files(Arc<Vec<Arc<Vec<Entry>>>>, Arc<AtomicBool>);

impl CursorSource for Files {
    type Cursor = VecIter;
    fn open(&self, file: &FileMeta) -> Result<VecIter> {
        if self.1.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "injected"));
        }
        Ok(VecIter::new(self.0[file.number as usize - 1].clone()))
    }
}

/// Builds a level of files with gaps, files that begin at the exclusive end of the last one, and
/// files without entries.
fn level(rng: &mut Rng) -> (Vec<Arc<FileMeta>>, Vec<Arc<Vec<Entry>>>) {
    let (mut metas, mut files) = (Vec::new(), Vec::new());
    let mut next = 0u8;
    for number in 1..=rng.below(6) {
        let low = next + rng.below(3) as u8;
        let mut entries = Vec::new();
        let mut user = low;
        for _ in 0..rng.below(4) {
            for seq in (0..1 + rng.below(3)).rev() {
                entries.push((encode(&[user], seq, ValueKind::Value), vec![user, seq as u8]));
            }
            user += 1 + rng.below(2) as u8;
        }
        let exclusive = entries.is_empty() || rng.one_in(2);
        let end = user + u8::from(entries.is_empty());
        let largest = match entries.last() {
            Some(last) if !exclusive => last.0.clone(),
            _ => encode(&[end], MAX_SEQ, ValueKind::Seek),
        };
        let smallest = encode(&[low], MAX_SEQ, ValueKind::RangeDeletion);
        metas.push(Arc::new(FileMeta { number, smallest, largest, ..FileMeta::default() }));
        files.push(Arc::new(entries));
        next = end;
    }
    (metas, files)
}

#[test]
fn random_walks_agree_with_one_sorted_list() {
    for case in 0..2000 {
        let mut rng = Rng::new(case);
        let (metas, files) = level(&mut rng);
        let border = |rng: &mut Rng| rng.one_in(3).then(|| vec![rng.below(25) as u8]);
        let (lower, upper) = (border(&mut rng), border(&mut rng));
        let bounds = Bounds { lower: lower.as_deref(), upper: upper.as_deref() };
        let taken: Vec<u64> = metas.iter().filter(|m| bounds.meet(m)).map(|m| m.number).collect();
        let all: Vec<Entry> = taken.iter().flat_map(|&n| files[n as usize - 1].iter().cloned()).collect();
        let switch = Arc::new(AtomicBool::new(false));
        let source = Files(Arc::new(files), switch.clone());
        let mut iter = LevelIterator::new(metas.into(), bounds, source);
        let mut at = usize::MAX;
        for _ in 0..50 {
            let valid = at < all.len();
            let target = encode(&[rng.below(26) as u8], rng.below(4), ValueKind::Seek);
            switch.store(rng.one_in(10), Ordering::Relaxed);
            let (result, now) = match rng.below(8) {
                0 => (iter.seek_to_first(), 0),
                1 => (iter.seek_to_last(), all.len().wrapping_sub(1)),
                2 => (iter.seek(&target), all.partition_point(|e| key::compare(&e.0, &target).is_lt())),
                3 => (
                    iter.seek_for_prev(&target),
                    all.partition_point(|e| key::compare(&e.0, &target).is_le()).wrapping_sub(1),
                ),
                4 | 5 if valid => (iter.next(), at + 1),
                _ if valid => (iter.prev(), at.wrapping_sub(1)),
                _ => (Ok(()), at),
            };
            at = if result.is_ok() { now } else { usize::MAX };
            assert_eq!(iter.valid(), at < all.len(), "case {case}");
            if let Some((k, v)) = all.get(at) {
                assert_eq!((iter.key(), iter.value()), (k.as_slice(), v.as_slice()), "case {case}");
            }
        }
    }
}
