use super::*;
use crate::prefix::shared_len;
use io::Rng;
use std::collections::BTreeMap;

type Model = BTreeMap<(Vec<u8>, u64), (u64, Reference)>;

fn random_model(rng: &mut Rng) -> Model {
    let mut model = Model::new();
    let blobs = 1 + rng.below(5);
    let wide = rng.one_in(4);
    let expiring = rng.one_in(4);
    for _ in 0..1 + rng.below(80) {
        let mut user = vec![0; 1 + rng.below(6) as usize];
        user.iter_mut().for_each(|b| *b = [0, 1, b'a', b'b', 0xff][rng.below(5) as usize]);
        let seq = if wide { rng.next_u64() >> 8 } else { rng.below(9) };
        let raw_len = if wide { rng.next_u64() } else { 500 + rng.below(100) };
        let reference =
            Reference { blob_id: rng.below(blobs) * 1_000_003, raw_len, stored_len: rng.below(1000) };
        let expiry = if expiring { rng.below(1 << 40) } else { 0 };
        model.insert((user, !(seq << 8 | ValueKind::Reference as u64)), (expiry, reference));
    }
    model
}

fn build(model: &Model, builder: &mut ReferenceBlockBuilder) -> Vec<u8> {
    let mut last: &[u8] = &[];
    for ((user, trailer), (expiry, reference)) in model {
        builder.add(user, shared_len(last, user), !trailer >> 8, *expiry, reference);
        last = user;
    }
    let block = builder.finish().clone();
    builder.clear();
    block
}

fn encoded(user: &[u8], inverted: u64) -> Vec<u8> {
    [user, &(!inverted).to_le_bytes()].concat()
}

#[test]
fn cursor_and_find_agree_with_a_model() {
    let mut rng = Rng::new(21);
    for round in 0..300 {
        let model = random_model(&mut rng);
        let mut builder = ReferenceBlockBuilder::new(1 + (round % 17));
        let block: Block = build(&model, &mut builder).into();
        let all: Vec<_> = model.iter().map(|((u, t), v)| (encoded(u, *t), *v)).collect();
        let mut cursor = ReferenceCursor::default();
        cursor.load(block.clone(), None).unwrap();
        cursor.seek_to_first().unwrap();
        for (key, (expiry, reference)) in &all {
            assert_eq!((cursor.key(), cursor.expiry()), (&key[..], *expiry));
            assert_eq!(Reference::decode(cursor.value()).unwrap(), *reference);
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        cursor.seek_to_last().unwrap();
        for (key, _) in all.iter().rev() {
            assert_eq!(cursor.key(), &key[..]);
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
            assert_eq!(cursor.key(), before.checked_sub(1).map_or(&[][..], |i| &all[i].0));
            let hit = find(&block, user, !trailer).unwrap();
            let expected = all.get(at).filter(|(k, _)| key::user_key(k) == user);
            assert_eq!(
                hit.map(|h| (h.trailer, h.reference, h.expiry)),
                expected.map(|(k, (expiry, r))| (key::split(k).1, *r, *expiry)),
            );
        }
    }
}

#[test]
fn a_reference_costs_a_byte_or_two() {
    let mut builder = ReferenceBlockBuilder::new(16);
    let mut rng = Rng::new(22);
    for fixed in [true, false] {
        let mut last = Vec::new();
        for i in 0..300u64 {
            let user = (i * 7).to_be_bytes();
            let raw_len = if fixed { 1024 } else { 512 + rng.below(3584) };
            let r = Reference { blob_id: 77, raw_len, stored_len: raw_len + 29 };
            builder.add(&user, shared_len(&last, &user), 5, 0, &r);
            last = user.to_vec();
        }
        let keys = builder.keys.len() + builder.restarts.len() * 4;
        let estimate = builder.len_estimate();
        let len = builder.finish().len();
        builder.clear();
        assert!(len <= estimate, "{len} {estimate}");
        let per_entry = (len - keys) as f64 / 300.0;
        assert!(per_entry < if fixed { 0.2 } else { 1.8 }, "{per_entry} bytes a reference");
    }
}

/// BlobIds that take each other's slot while the block is built are in its dictionary once, and
/// counted in full.
#[test]
fn reencountered_blob_ids_appear_once_in_the_dictionary() {
    let mut rng = Rng::new(29);
    let mut builder = ReferenceBlockBuilder::new(16);
    for _ in 0..50 {
        let names = 1 + rng.below(12);
        let (mut expected, mut sums) = (Vec::new(), BTreeMap::<u64, [u64; 3]>::new());
        for i in 0..1 + rng.below(200) {
            let blob_id = 7 + rng.below(names) * PLACES as u64;
            let reference = Reference { blob_id, raw_len: i, stored_len: i + 40 };
            builder.add(&i.to_be_bytes(), if i == 0 { 0 } else { 7 }, i, 0, &reference);
            let sum = sums.entry(blob_id).or_default();
            *sum = [sum[0] + 1, sum[1] + i, sum[2] + i + 40];
            expected.push(reference);
        }
        let mut told = BTreeMap::<u64, [u64; 3]>::new();
        for name in builder.names() {
            let sum = told.entry(name.blob_id).or_default();
            *sum = [sum[0] + name.count, sum[1] + name.raw_bytes, sum[2] + name.stored_bytes];
        }
        assert_eq!(told, sums);
        let block: Block = builder.finish().clone().into();
        builder.clear();
        assert_eq!(Shape::parse(&block).unwrap().dictionary_len, sums.len());
        let mut cursor = ReferenceCursor::default();
        cursor.load(block, None).unwrap();
        cursor.seek_to_first().unwrap();
        for reference in expected {
            assert_eq!(Reference::decode(cursor.value()).unwrap(), reference);
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
    }
}

fn exercise(bytes: &[u8], target: &[u8]) {
    let (user, trailer) = key::split(target);
    let _ = find(bytes, user, trailer);
    let mut cursor = ReferenceCursor::default();
    if cursor.load(bytes.into(), Some(9)).is_err() {
        return;
    }
    let mut steps = 0;
    let _ = cursor.seek_to_first();
    while cursor.valid() && cursor.next().is_ok() {
        steps += 1;
        assert!(steps <= bytes.len());
    }
    let _ = cursor.seek_to_last();
    while cursor.valid() && cursor.prev().is_ok() {
        steps += 1;
        assert!(steps <= 2 * bytes.len());
    }
    let _ = cursor.seek(target);
    let _ = cursor.seek_for_prev(target);
}

#[test]
fn hostile_bytes_never_panic() {
    let mut rng = Rng::new(23);
    let mut builder = ReferenceBlockBuilder::new(3);
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
