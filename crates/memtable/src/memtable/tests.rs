use super::*;
use base::MAX_SEQ;
use base::key::{InternalKey, encode, seek_target};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    /// Few enough keys to repeat, with lengths around the eight bytes of the prefix.
    fn key(&mut self) -> Vec<u8> {
        let mut key =
            [&b""[..], b"a", b"abcdefg", b"abcdefgh", b"abcdefghi"][self.below(5) as usize].to_vec();
        (0..self.below(3)).for_each(|_| key.push(b"\0ab\xff"[self.below(4) as usize]));
        key
    }
}

type Model = BTreeMap<(Vec<u8>, Reverse<u64>), (ValueKind, Vec<u8>)>;

const KINDS: [ValueKind; 5] = [
    ValueKind::Value,
    ValueKind::Deletion,
    ValueKind::Merge,
    ValueKind::Reference,
    ValueKind::PlacedReference,
];

fn build(seed: u64, entries: u64) -> (Arc<MemTable>, Model) {
    let mut rng = Rng(seed);
    let table = Arc::new(MemTable::new(seed));
    let mut model = Model::new();
    for seq in 1..=entries {
        let (key, kind) = (rng.key(), KINDS[rng.below(5) as usize]);
        let value = vec![seq as u8; rng.below(40) as usize];
        table.insert(seq, kind, &key, &value);
        model.insert((key, Reverse(seq)), (kind, value));
    }
    (table, model)
}

#[test]
fn lookups_agree_with_the_model() {
    for seed in 0..30 {
        let (table, model) = build(seed, 300);
        let mut rng = Rng(seed + 1000);
        for _ in 0..500 {
            let key = rng.key();
            let snapshot = [rng.below(310), MAX_SEQ][usize::from(rng.below(4) == 0)];
            let expected = model
                .range((key.clone(), Reverse(snapshot))..)
                .next()
                .filter(|((k, _), _)| *k == key)
                .map(|((_, seq), (kind, value))| MemEntry { seq: seq.0, kind: *kind, value });
            assert_eq!(table.get(&key, snapshot), expected, "{key:?} at {snapshot}");
        }
        assert_eq!((table.len(), table.seq_range()), (300, Some((1, 300))));
    }
}

#[test]
fn iterators_agree_with_the_model() {
    for seed in 0..10 {
        let (table, model) = build(seed, 200);
        let all: Vec<(Vec<u8>, Vec<u8>)> =
            model.iter().map(|((k, s), (kind, v))| (encode(k, s.0, *kind), v.clone())).collect();
        let mut iter = table.iter();
        assert!(!iter.valid());
        iter.seek_to_first().unwrap();
        for (key, value) in &all {
            assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
            iter.next().unwrap();
        }
        assert!(!iter.valid());
        iter.seek_to_last().unwrap();
        for (key, _) in all.iter().rev() {
            assert_eq!(iter.key(), key);
            iter.prev().unwrap();
        }
        assert!(!iter.valid());
        walk_at_random(&mut Rng(seed), &all, &mut iter);
    }
}

/// Seeks both ways to present and absent keys, then takes a few steps in either direction.
fn walk_at_random(rng: &mut Rng, all: &[(Vec<u8>, Vec<u8>)], iter: &mut MemIter) {
    let compare = base::key::compare;
    for _ in 0..400 {
        let target = match rng.below(3) {
            0 => all[rng.below(all.len() as u64) as usize].0.clone(),
            1 => seek_target(&rng.key(), rng.below(220)),
            _ => encode(&rng.key(), rng.below(220), ValueKind::Deletion),
        };
        let mut at = if rng.below(2) == 0 {
            iter.seek(&target).unwrap();
            all.iter().position(|(k, _)| compare(k, &target).is_ge())
        } else {
            iter.seek_for_prev(&target).unwrap();
            all.iter().rposition(|(k, _)| compare(k, &target).is_le())
        };
        for _ in 0..rng.below(6) {
            assert_eq!(iter.valid(), at.is_some());
            let Some(i) = at else { break };
            assert_eq!(iter.key(), all[i].0);
            if rng.below(2) == 0 {
                iter.next().unwrap();
                at = Some(i + 1).filter(|&i| i < all.len());
            } else {
                iter.prev().unwrap();
                at = i.checked_sub(1);
            }
        }
    }
}

#[test]
fn an_empty_table_is_cheap_and_empty() {
    let table = Arc::new(MemTable::new(3));
    assert_eq!((table.id(), table.len(), table.bytes(), table.seq_range()), (3, 0, 0, None));
    assert!(table.is_empty() && !table.has_range_tombstones() && table.range_tombstones().is_empty());
    assert_eq!(table.get(b"k", MAX_SEQ), None);
    let mut iter = table.iter();
    for seek in [MemIter::seek_to_first, MemIter::seek_to_last] {
        seek(&mut iter).unwrap();
        assert!(!iter.valid());
    }
    iter.seek_for_prev(&seek_target(b"z", 1)).unwrap();
    assert!(!iter.valid());
    table.insert(5, ValueKind::Value, b"k", b"v");
    assert_eq!(table.bytes(), 16 << 10, "no values apart yet");
    let table = MemTable::sparing(2, 16 << 20);
    table.insert(5, ValueKind::Value, b"k", b"v");
    assert_eq!(table.bytes(), 1 << 10);
}

#[test]
fn sequences_beyond_32_bits_are_found() {
    let table = MemTable::new(0);
    let base = (1u64 << 32) - 10;
    (0..20).for_each(|i| table.insert(base + i, ValueKind::Value, b"k", &i.to_le_bytes()));
    table.insert(MAX_SEQ, ValueKind::Value, b"k", b"last");
    for i in 0..20 {
        assert_eq!(table.get(b"k", base + i).unwrap().seq, base + i);
    }
    assert_eq!(table.get(b"k", MAX_SEQ - 1).unwrap().seq, base + 19);
    assert_eq!(table.seq_range(), Some((base, MAX_SEQ)));
}

#[test]
fn range_tombstones_are_kept_apart() {
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let table = Arc::new(MemTable::new(seed));
        let mut all = Vec::new();
        table.insert(1, ValueKind::Value, b"abcdefgh", b"v");
        for seq in 2..150 {
            let (start, end) = (rng.key(), rng.key());
            table.insert(seq, ValueKind::RangeDeletion, &start, &end);
            all.push(RangeTombstone { start, end, seq });
            let (key, snapshot) = (rng.key(), rng.below(160));
            let covers = |t: &&RangeTombstone| t.start <= key && key < t.end && t.seq <= snapshot;
            let expected = all.iter().filter(covers).map(|t| t.seq).max();
            assert_eq!(table.covering_range_tombstone(&key, snapshot), expected);
            if rng.below(3) == 0 {
                let parts = table.range_tombstone_parts();
                let newest = parts.iter().filter_map(|part| part.covering(&key, snapshot)).max();
                assert_eq!(newest, expected);
                assert!(parts.len() <= 8, "{} parts of {} tombstones", parts.len(), all.len());
            }
            if rng.below(10) == 0 {
                let fragments = table.range_tombstones();
                assert_eq!(*fragments, FragmentedRangeTombstones::new(&all));
                assert!(Arc::ptr_eq(&fragments, &table.range_tombstones()), "made once");
            }
        }
        assert_eq!((table.len(), table.seq_range()), (149, Some((1, 149))));
        assert_eq!(table.get(b"abcdefgh", MAX_SEQ).unwrap().seq, 1);
        assert!(table.bytes() > 16 << 10);
    }
}

#[test]
#[should_panic(expected = "in a memtable")]
fn log_only_kinds_are_refused() {
    MemTable::new(0).insert(1, ValueKind::Commit, b"k", b"");
}

/// Concurrent writers with interleaved keys and sequences, and readers that check the guarantees.
#[test]
fn threads_insert_and_read_at_once() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 6000;
    let table = Arc::new(MemTable::new(1));
    // Per writer: all entries with a smaller number are inserted.
    let frontier: [AtomicU64; WRITERS as usize] = Default::default();
    let done = AtomicBool::new(false);
    // Writer 0 appends, writer 1 scatters, writer 2 runs downward; keys repeat with newer
    // sequences.
    let key = |w: u64, i: u64| format!("{w}-{:07}", [i, i * 4099 % 2048, EACH - i][w as usize]).into_bytes();
    let seq = |w: u64, i: u64| i * WRITERS + w + 1;
    std::thread::scope(|scope| {
        for w in 0..WRITERS {
            let (table, frontier) = (&table, &frontier);
            scope.spawn(move || {
                for i in 0..EACH {
                    let s = seq(w, i);
                    table.insert(
                        s,
                        ValueKind::Value,
                        &key(w, i),
                        &s.to_le_bytes().repeat(1 + i as usize % 30),
                    );
                    frontier[w as usize].store(i + 1, Ordering::Release);
                }
            });
        }
        let readers: Vec<_> = (0..2u64)
            .map(|r| {
                let (table, frontier, done) = (&table, &frontier, &done);
                scope.spawn(move || {
                    let mut rng = Rng(r);
                    while !done.load(Ordering::Relaxed) {
                        let w = rng.below(WRITERS);
                        let known = frontier[w as usize].load(Ordering::Acquire);
                        if known > 0 {
                            let i = rng.below(known);
                            let found = table.get(&key(w, i), seq(w, i)).expect("inserted before");
                            assert_eq!(
                                (found.seq, &found.value[..8]),
                                (seq(w, i), &seq(w, i).to_le_bytes()[..])
                            );
                        }
                        if rng.below(64) == 0 {
                            check_walk(table, rng.key());
                        }
                    }
                })
            })
            .collect();
        while frontier.iter().any(|f| f.load(Ordering::Acquire) < EACH) {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|r| r.join().unwrap());
    });
    assert_eq!(table.len() as u64, WRITERS * EACH);
    let mut iter = table.iter();
    iter.seek_to_first().unwrap();
    let mut seqs = Vec::new();
    while iter.valid() {
        seqs.push(base::key::seq(iter.key()));
        iter.next().unwrap();
    }
    seqs.sort_unstable();
    assert!(seqs.into_iter().eq(1..=WRITERS * EACH), "every entry is there once");
}

/// Checks that a part of the table is in order and that its values belong to its keys.
fn check_walk(table: &Arc<MemTable>, from: Vec<u8>) {
    let mut iter = table.iter();
    iter.seek(&seek_target(&from, MAX_SEQ)).unwrap();
    let mut last: Option<Vec<u8>> = None;
    for _ in 0..200 {
        if !iter.valid() {
            break;
        }
        let key = InternalKey::decode(iter.key()).unwrap();
        assert_eq!(iter.value()[..8], key.seq.to_le_bytes());
        if let Some(last) = last {
            assert!(base::key::compare(&last, iter.key()).is_lt());
        }
        last = Some(iter.key().to_vec());
        iter.next().unwrap();
    }
}

#[test]
fn memtable_growth_is_reported_exactly_once() {
    let table = MemTable::for_bytes(1, 1 << 20);
    assert_eq!(table.take_grown(), None);
    let put = |writer: u64| {
        let mut told = 0;
        for n in 0..2000 {
            let key = [writer.to_be_bytes(), u64::to_be_bytes(n)].concat();
            table.insert(writer * 2000 + n, ValueKind::Value, &key, &[7; 100]);
            told += table.take_grown().unwrap_or(0);
        }
        told
    };
    let told: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|writer| scope.spawn(move || put(writer))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(told, table.bytes());
    assert_eq!(table.take_grown(), None);
    table.insert(9000, ValueKind::RangeDeletion, b"a", b"b");
    assert!(table.take_grown().is_some_and(|grown| grown > 0));
}
