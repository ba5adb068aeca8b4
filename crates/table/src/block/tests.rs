use super::*;
use crate::prefix::shared_len;
use io::Rng;
use std::collections::BTreeMap;

/// Entries sorted as internal keys: (user key, inverted trailer) -> (expiry, value).
type Model = BTreeMap<(Vec<u8>, u64), (u64, Vec<u8>)>;

fn random_model(rng: &mut Rng) -> Model {
    let mut model = Model::new();
    let expiring = rng.one_in(3);
    for _ in 0..1 + rng.below(60) {
        let mut user = vec![0; 1 + rng.below(6) as usize];
        user.iter_mut().for_each(|b| *b = [0, 1, b'a', b'b', 0xff][rng.below(5) as usize]);
        let seq = if rng.one_in(10) { rng.next_u64() >> 8 } else { rng.below(9) };
        let trailer = seq << 8 | rng.below(4);
        let expiry = if expiring && rng.one_in(2) { 1 + rng.below(1 << 40) } else { 0 };
        let mut value = vec![0; rng.below(40) as usize];
        rng.fill(&mut value);
        model.insert((user, !trailer), (expiry, value));
    }
    model
}

fn build(model: &Model, builder: &mut InlineBlockBuilder) -> Vec<u8> {
    let mut last: &[u8] = &[];
    for ((user, trailer), (expiry, value)) in model {
        builder.add(user, shared_len(last, user), !trailer, *expiry, value);
        last = user;
    }
    let estimate = builder.len_estimate();
    let block = builder.finish().clone();
    assert!(block.len() <= estimate);
    builder.clear();
    block
}

fn encoded(user: &[u8], inverted: u64) -> Vec<u8> {
    [user, &(!inverted).to_le_bytes()].concat()
}

#[test]
fn cursor_and_find_agree_with_a_model() {
    let mut rng = Rng::new(11);
    for round in 0..300 {
        let model = random_model(&mut rng);
        let mut builder = InlineBlockBuilder::new(1 + (round % 17));
        let block: Block = build(&model, &mut builder).into();
        let all: Vec<_> = model.iter().map(|((u, t), v)| (encoded(u, *t), v.clone())).collect();
        let mut cursor = InlineCursor::default();
        cursor.load(block.clone(), None).unwrap();
        cursor.seek_to_first().unwrap();
        for (key, (expiry, value)) in &all {
            assert_eq!((cursor.key(), cursor.value(), cursor.expiry()), (&key[..], &value[..], *expiry));
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        cursor.seek_to_last().unwrap();
        for (key, (_, value)) in all.iter().rev() {
            assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
            cursor.prev().unwrap();
        }
        assert!(!cursor.valid());
        for _ in 0..40 {
            let probe = random_model(&mut rng);
            let (user, trailer) = probe.keys().next().unwrap();
            let target = encoded(user, *trailer);
            let at = all.partition_point(|(k, _)| key::compare(k, &target).is_lt());
            cursor.seek(&target).unwrap();
            assert_eq!(cursor.key(), all.get(at).map_or(&[][..], |e| &e.0));
            cursor.seek_for_prev(&target).unwrap();
            let before = all.partition_point(|(k, _)| key::compare(k, &target).is_le());
            let expected = before.checked_sub(1).map_or(&[][..], |i| &all[i].0);
            assert_eq!(cursor.key(), expected);
            if cursor.valid() && rng.one_in(2) {
                cursor.prev().unwrap();
                assert_eq!(cursor.key(), before.checked_sub(2).map_or(&[][..], |i| &all[i].0));
                if cursor.valid() {
                    cursor.next().unwrap();
                    assert_eq!(cursor.key(), expected);
                }
            }
            let hit = find(&block, user, !trailer).unwrap();
            let expected = all.get(at).filter(|(k, _)| key::user_key(k) == user);
            assert_eq!(
                hit.map(|h| (h.trailer, block[h.value].to_vec(), h.expiry)),
                expected.map(|(k, (expiry, v))| (key::split(k).1, v.clone(), *expiry)),
            );
        }
    }
}

/// Exercises all reads of a block; only panics and endless loops are failures.
fn exercise(bytes: &[u8], target: &[u8]) {
    let (user, trailer) = key::split(target);
    let _ = find(bytes, user, trailer);
    let mut cursor = InlineCursor::default();
    if cursor.load(bytes.into(), None).is_err() {
        return;
    }
    let mut steps = 0;
    let _ = cursor.seek_to_first();
    while cursor.valid() && cursor.next().is_ok() {
        steps += 1;
        assert!(steps <= bytes.len());
    }
    steps = 0;
    let _ = cursor.seek_to_last();
    while cursor.valid() && cursor.prev().is_ok() {
        steps += 1;
        assert!(steps <= 1000 * bytes.len());
    }
    let _ = cursor.seek(target);
    let _ = cursor.seek_for_prev(target);
}

#[test]
fn hostile_bytes_never_panic() {
    let mut rng = Rng::new(12);
    let mut builder = InlineBlockBuilder::new(3);
    for _ in 0..200 {
        let model = random_model(&mut rng);
        let (user, trailer) = model.keys().nth(model.len() / 2).unwrap();
        let target = encoded(user, *trailer);
        let block = build(&model, &mut builder);
        for _ in 0..60 {
            let mut damaged = block.clone();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(damaged.len() as u64) as usize;
                damaged[at] = rng.next_u64() as u8;
            }
            damaged.truncate(damaged.len() - if rng.one_in(3) { rng.below(9) as usize } else { 0 });
            exercise(&damaged, &target);
        }
        let mut noise = vec![0; rng.below(64) as usize];
        rng.fill(&mut noise);
        exercise(&noise, &target);
    }
}

#[test]
fn backward_iteration_over_overlapping_restarts_terminates() {
    // Restarts that point at the same entry: each step back must still move to a smaller offset.
    let mut builder = InlineBlockBuilder::new(1);
    builder.add(b"a", 0, 1 << 8 | 1, 0, b"x");
    builder.add(b"b", 0, 1 << 8 | 1, 0, b"x");
    let mut block = builder.finish().clone();
    let n = block.len();
    // The tail has 16 bytes; before it are two restarts of 8.
    let second = block[n - 24..n - 16].to_vec();
    block[n - 32..n - 24].copy_from_slice(&second);
    exercise(&block, &key::seek_target(b"b", 5));
}
