use super::*;
use crate::vec_iter::{Entry, VecIter};
use base::key::{self, ValueKind, encode};
use base::{Error, ErrorKind};
use io::Rng;
use std::sync::Arc;

fn boxed(entries: Vec<Entry>) -> Box<dyn InternalIterator> {
    Box::new(VecIter::new(Arc::new(entries)))
}

/// Random children; `duplicates` puts equal internal keys into several of them.
fn children(rng: &mut Rng, duplicates: bool) -> (Vec<Vec<Entry>>, Vec<Entry>) {
    let count = rng.below(7) as usize;
    let mut lists: Vec<Vec<Entry>> = vec![Vec::new(); count];
    let mut all: Vec<(Vec<u8>, usize, Vec<u8>)> = Vec::new();
    if count > 0 {
        for seq in 0..rng.below(40) {
            let user = vec![b'a' + rng.below(6) as u8; 1 + rng.below(2) as usize];
            let k = encode(&user, seq, ValueKind::Value);
            let copies = if duplicates { 1 + rng.below(3) } else { 1 };
            for _ in 0..copies {
                let child = rng.below(count as u64) as usize;
                if lists[child].iter().all(|(have, _)| *have != k) {
                    let value = vec![child as u8, seq as u8];
                    lists[child].push((k.clone(), value.clone()));
                    all.push((k.clone(), child, value));
                }
            }
        }
    }
    for list in &mut lists {
        list.sort_by(|a, b| key::compare(&a.0, &b.0));
    }
    all.sort_by(|a, b| key::compare(&a.0, &b.0).then(a.1.cmp(&b.1)));
    (lists, all.into_iter().map(|(k, _, v)| (k, v)).collect())
}

#[test]
fn random_walks_agree_with_a_sorted_list() {
    for case in 0..3000u64 {
        let mut rng = Rng::new(case);
        let (lists, all) = children(&mut rng, case % 3 == 0);
        let mut merged = MergingIterator::new(lists.into_iter().map(boxed).collect());
        assert!(!merged.valid());
        let mut at: usize = usize::MAX;
        for _ in 0..60 {
            let valid = at < all.len();
            match rng.below(8) {
                0 => {
                    merged.seek_to_first().unwrap();
                    at = 0;
                }
                1 => {
                    merged.seek_to_last().unwrap();
                    at = all.len().wrapping_sub(1);
                }
                2 | 3 => {
                    let user = vec![b'a' + rng.below(7) as u8; 1 + rng.below(2) as usize];
                    let kind = if rng.one_in(2) { ValueKind::Seek } else { ValueKind::Deletion };
                    let target = encode(&user, rng.below(42), kind);
                    if rng.one_in(2) {
                        merged.seek(&target).unwrap();
                        at = all.partition_point(|e| key::compare(&e.0, &target).is_lt());
                    } else {
                        merged.seek_for_prev(&target).unwrap();
                        at = all.partition_point(|e| key::compare(&e.0, &target).is_le()).wrapping_sub(1);
                    }
                }
                4 | 5 if valid => {
                    merged.next().unwrap();
                    at += 1;
                }
                _ if valid => {
                    merged.prev().unwrap();
                    at = at.wrapping_sub(1);
                }
                _ => {}
            }
            assert_eq!(merged.valid(), at < all.len(), "case {case}");
            if let Some((k, v)) = all.get(at) {
                assert_eq!((merged.key(), merged.value()), (k.as_slice(), v.as_slice()), "case {case}");
            }
        }
    }
}

/// Fails every operation while its switch is on.
struct Failing(VecIter, Arc<std::sync::atomic::AtomicBool>);

impl Failing {
    fn check(&self) -> Result<()> {
        match self.1.load(std::sync::atomic::Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Io, "injected")),
            false => Ok(()),
        }
    }
}

impl InternalIterator for Failing {
    fn valid(&self) -> bool {
        self.0.valid()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.check().and_then(|()| self.0.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.check().and_then(|()| self.0.seek_to_last())
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.check().and_then(|()| self.0.seek(target))
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.check().and_then(|()| self.0.seek_for_prev(target))
    }
    fn next(&mut self) -> Result<()> {
        self.check().and_then(|()| self.0.next())
    }
    fn prev(&mut self) -> Result<()> {
        self.check().and_then(|()| self.0.prev())
    }
    fn key(&self) -> &[u8] {
        self.0.key()
    }
    fn value(&self) -> &[u8] {
        self.0.value()
    }
}

#[test]
fn an_error_invalidates_and_a_seek_recovers() {
    let entries = |c: u8| -> Arc<Vec<Entry>> {
        Arc::new((0..10).map(|i| (encode(&[i, c], 1, ValueKind::Value), vec![c])).collect())
    };
    let switch = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let bad = Failing(VecIter::new(entries(1)), switch.clone());
    let mut merged = MergingIterator::new(vec![Box::new(bad), Box::new(VecIter::new(entries(0)))]);
    let set = |on| switch.store(on, std::sync::atomic::Ordering::Relaxed);
    merged.seek_to_first().unwrap();
    merged.next().unwrap();
    set(true);
    assert_eq!(merged.prev().unwrap_err().kind(), ErrorKind::Io);
    assert!(!merged.valid());
    assert!(merged.seek_to_last().is_err() && !merged.valid());
    set(false);
    merged.seek_to_last().unwrap();
    assert_eq!(key::user_key(merged.key()), [9, 1]);
    set(true);
    assert!(merged.prev().is_err() && !merged.valid());
}
