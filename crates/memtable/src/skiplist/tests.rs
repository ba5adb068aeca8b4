use super::*;
use base::key::{ValueKind, compare, encode, pack_trailer};

fn keys(list: &SkipList) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut node = list.first();
    while let Some(n) = node {
        keys.push(n.key().to_vec());
        // SAFETY: every node has level 0.
        node = unsafe { n.links().next(0) };
    }
    keys
}

/// Every level is sorted, and a sublist of the level below.
fn check_levels(list: &SkipList) {
    let mut below: Option<Vec<Vec<u8>>> = None;
    for level in 0..HEIGHT_MAX {
        let mut on_level = Vec::new();
        // SAFETY: the head has every level, and the nodes found on a level have it.
        let mut node = unsafe { list.head().next(level) };
        while let Some(n) = node {
            assert!(n.height() > level);
            on_level.push(n.key().to_vec());
            // SAFETY: as above.
            node = unsafe { n.links().next(level) };
        }
        assert!(on_level.is_sorted_by(|a, b| compare(a, b) == Ordering::Less));
        if let Some(below) = below {
            let mut rest = below.iter();
            assert!(on_level.iter().all(|k| rest.any(|b| b == k)), "level {level} is a sublist");
        }
        below = Some(on_level);
    }
}

#[test]
fn prefixes_agree_with_the_order_of_keys() {
    let keys: [&[u8]; 12] = [
        b"",
        b"\0",
        b"\0\0\0\0\0\0\0\0",
        b"\0\0\0\0\0\0\0\0\0",
        b"a",
        b"a\0",
        b"a\0\0\0\0\0\0\0",
        b"a\0\0\0\0\0\0\0\0",
        b"a\x01",
        b"abcdefgh",
        b"abcdefgh\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    let list = SkipList::new(0);
    for (i, key) in keys.iter().rev().enumerate() {
        list.insert(key, pack_trailer(i as u64, ValueKind::Value), key);
    }
    let found: Vec<Vec<u8>> = self::keys(&list).iter().map(|k| split(k).0.to_vec()).collect();
    assert_eq!(found, keys.map(<[u8]>::to_vec));
    for a in keys {
        for (snapshot, trailer) in [(99, pack_trailer(99, ValueKind::Seek)), (0, 0)] {
            let node = list.first_from(&Target::new(a, trailer));
            let expected = keys.iter().find(|k| if snapshot == 99 { **k >= a } else { **k > a });
            assert_eq!(node.map(|n| n.user_key()), expected.copied(), "{a:?} {snapshot}");
        }
    }
}

#[test]
fn a_quarter_of_nodes_reach_each_next_height() {
    let mut counts = [0usize; HEIGHT_MAX + 1];
    (0..1 << 16).for_each(|n| counts[height_of(n)] += 1);
    assert_eq!(counts[0], 0);
    assert!((45_000..53_000).contains(&counts[1]), "{counts:?}");
    assert!((9_000..15_000).contains(&counts[2]), "{counts:?}");
    assert!(counts[8..].iter().sum::<usize>() < 40, "{counts:?}");
}

#[test]
fn every_order_of_arrival_builds_the_same_list() {
    const N: u64 = 3000;
    let key = |n: u64| format!("key{n:06}").into_bytes();
    let trailer = |n: u64| pack_trailer(n, ValueKind::Value);
    let expected: Vec<Vec<u8>> = (0..N).map(|n| encode(&key(n), n, ValueKind::Value)).collect();
    // Ascending, descending, scattered, and two alternating ascending streams.
    let orders: [&dyn Fn(u64) -> u64; 4] =
        [&|n| n, &|n| N - 1 - n, &|n| n * 1789 % N, &|n| n / 2 + n % 2 * (N / 2)];
    for order in orders {
        let list = SkipList::new(5);
        (0..N).map(order).for_each(|n| list.insert(&key(n), trailer(n), b"v"));
        assert_eq!(keys(&list), expected);
        assert_eq!(list.last().map(|n| n.key().to_vec()), expected.last().cloned());
        check_levels(&list);
    }
}

#[test]
#[should_panic(expected = "inserted twice")]
fn the_same_internal_key_twice_is_a_bug() {
    let list = SkipList::new(0);
    list.insert(b"k", pack_trailer(4, ValueKind::Value), b"1");
    list.insert(b"k", pack_trailer(4, ValueKind::Value), b"2");
}

#[test]
fn large_entries_keep_their_bytes() {
    let list = SkipList::new(0);
    let big: Vec<u8> = (0..VALUE_LEN_MAX).map(|i| (i * 7) as u8).collect();
    let long_key = vec![b'k'; KEY_LEN_MAX];
    list.insert(&long_key, pack_trailer(1, ValueKind::Value), &big);
    list.insert(b"", pack_trailer(2, ValueKind::Value), b"");
    list.insert(&long_key[1..], pack_trailer(3, ValueKind::Value), &big[..100_000]);
    let mut cursor = Cursor::new(Arc::new(list));
    cursor.last();
    assert!(cursor.node().unwrap().value() == big && cursor.node().unwrap().user_key() == long_key);
    cursor.prev();
    assert!(cursor.node().unwrap().value() == &big[..100_000]);
    cursor.prev();
    assert_eq!(cursor.node().unwrap().key(), encode(b"", 2, ValueKind::Value));
    cursor.prev();
    assert!(cursor.node().is_none());
    cursor.next();
    assert!(cursor.node().is_none(), "from nowhere to nowhere");
}

/// Lists filled alternately by inserts and by held entries, in several batches, have the same
/// contents and sound levels.
#[test]
fn linking_held_entries_equals_inserting_them() {
    for seed in 0..200u64 {
        let (list, plain) = (Arc::new(SkipList::new(seed)), SkipList::new(seed));
        let mut state = seed;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let common = ["", "user", "a common beginning, "][next(3) as usize];
        let mut seq = 0;
        for _ in 0..1 + next(4) {
            let mut lots: Vec<Held> = (0..1 + next(3)).map(|_| Held::of(&list)).collect();
            for _ in 0..next(150) {
                seq += 1;
                let (key, value) = (format!("{common}{}", next(60)), vec![seq as u8; next(50) as usize]);
                let trailer = pack_trailer(seq, ValueKind::Value);
                plain.insert(key.as_bytes(), trailer, &value);
                match next(4) {
                    0 => list.insert(key.as_bytes(), trailer, &value),
                    lot => {
                        let at = lot as usize % lots.len();
                        lots[at].push(key.as_bytes(), trailer, &value);
                    }
                }
            }
            let mut all = lots.swap_remove(0);
            lots.into_iter().for_each(|lot| all.append(lot));
            let before = keys(&list).len();
            let held = all.len();
            all.link();
            assert_eq!(keys(&list).len(), before + held, "seed {seed}");
        }
        assert_eq!((keys(&list), list.len()), (keys(&plain), plain.len()), "seed {seed}");
        check_levels(&list);
        let values = |list: &SkipList| {
            let mut cursor = list.first();
            let mut all = Vec::new();
            while let Some(node) = cursor {
                all.push(node.value().to_vec());
                // SAFETY: every node has level 0.
                cursor = unsafe { node.links().next(0) };
            }
            all
        };
        assert_eq!(values(&list), values(&plain), "seed {seed}");
    }
}

#[test]
#[should_panic(expected = "inserted twice")]
fn linking_a_duplicate_entry_panics() {
    let list = Arc::new(SkipList::new(1));
    list.insert(b"key", 256, b"value");
    let mut held = Held::of(&list);
    held.push(b"key", 256, b"value");
    held.link();
}

#[test]
fn dropped_held_entries_are_never_found() {
    let list = Arc::new(SkipList::new(1));
    let mut held = Held::of(&list);
    held.push(b"key", 256, b"value");
    drop(held);
    assert!(list.first().is_none());
    list.insert(b"key", 256, b"another");
    assert_eq!(list.first().map(|node| node.value()), Some(&b"another"[..]));
}
