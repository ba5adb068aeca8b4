//! Damaged files: an error or the right answer, never a panic and never wrong data.

use crate::common::*;
use base::hash::key_hash;
use base::range_del::RangeTombstone;
use base::{Error, ErrorKind, InternalIterator, MAX_SEQ, Result, Uid, ValueKind, key};
use cache::Cache;
use io::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use table::{IterOptions, Ksst, ReadCounters, TableOptions};

fn small_table(rng: &mut Rng, options: &TableOptions) -> (Vec<u8>, Model) {
    let model = random_model(rng, 40, 0);
    let tombstones = vec![RangeTombstone { start: b"a".to_vec(), end: b"q".to_vec(), seq: 77 }];
    (build(&model, &tombstones, options, None).0, model)
}

/// Reads the whole table in every way; results without an error must be right.
fn read_all(bytes: Vec<u8>, all: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    let table = open(bytes, &Arc::new(Cache::new(1 << 20)))?;
    let mut first_error = Ok(());
    let mut note = |e: Error| {
        if first_error.is_ok() {
            first_error = Err(e);
        }
    };
    let fragments = table.range_tombstones().fragments();
    assert!(fragments.len() == 1 && fragments[0].start == b"a" && fragments[0].seqs == [77]);
    for readahead_bytes in [0, 1 << 20] {
        let mut iter = table.iter(IterOptions { fill_cache: true, readahead_bytes });
        let mut expected = all.iter();
        let mut moved = iter.seek_to_first();
        while moved.is_ok() && iter.valid() {
            let (k, v) = expected.next().expect("no more entries than were written");
            assert_eq!((iter.key(), iter.value()), (&k[..], &v[..]));
            moved = iter.next();
        }
        match moved {
            Ok(()) => assert!(expected.next().is_none(), "an entry was lost in silence"),
            Err(e) => note(e),
        }
    }
    for (k, v) in all {
        let (user, seq) = (key::user_key(k), key::seq(k));
        match table.get(user, seq, key_hash(user), &mut ReadCounters::default()) {
            Ok(found) => {
                let found = found.expect("a key was lost in silence");
                if Some(found.kind) == key::kind(k) {
                    assert_eq!((found.seq, &found.value[..]), (seq, &v[..]));
                }
            }
            Err(e) => note(e),
        }
    }
    if let Err(e) = table.verify() {
        note(e);
    }
    first_error
}

fn is_typed(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported)
        && e.file().is_some_and(|f| f.ends_with(PATH))
        && e.offset().is_some()
}

#[test]
fn every_flipped_byte_is_caught() {
    let mut rng = Rng::new(201);
    for compression in codecs() {
        let options =
            TableOptions { compression, block_len: 256, partition_len: 64, ..TableOptions::default() };
        let (bytes, model) = small_table(&mut rng, &options);
        let all = entries(&model);
        read_all(bytes.clone(), &all).unwrap();
        for i in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[i] ^= 1 << rng.below(8);
            let e = read_all(damaged, &all).expect_err("a flip that nothing noticed");
            assert!(is_typed(&e), "byte {i}: {e}");
        }
    }
}

#[test]
fn every_truncation_is_caught() {
    let mut rng = Rng::new(202);
    let (bytes, _) = small_table(&mut rng, &TableOptions::default());
    let cache = Arc::new(Cache::new(0));
    for len in 0..bytes.len() {
        let e = open(bytes[..len].to_vec(), &cache).expect_err("a cut file was opened");
        assert!(e.is_corruption() && is_typed(&e), "{len}: {e}");
        let mut zeros = bytes[..len].to_vec();
        zeros.resize(bytes.len(), 0);
        if zeros != bytes {
            assert!(open(zeros, &cache).is_err(), "{len}");
        }
    }
    let longer = [&bytes[..], &[0; 100]].concat();
    assert!(open(longer, &cache).unwrap_err().is_corruption());
    let twice = [&bytes[..], &bytes[..]].concat();
    assert!(open(twice, &cache).unwrap_err().is_corruption());
}

#[test]
fn a_swapped_file_is_caught() {
    let (bytes, _) = small_table(&mut Rng::new(203), &TableOptions::default());
    let cache = Arc::new(Cache::new(0));
    let other = Uid::from_words(9, 9);
    let e = Ksst::open(MemRead::new(bytes), 7, other, None, cache).unwrap_err();
    assert!(e.is_corruption() && is_typed(&e), "{e}");
}

#[test]
fn misplaced_blocks_are_caught() {
    let mut rng = Rng::new(204);
    let options = TableOptions { block_len: 256, ..TableOptions::default() };
    let (bytes, model) = small_table(&mut rng, &options);
    let all = entries(&model);
    for _ in 0..300 {
        // A misdirected write: some bytes end up elsewhere.
        let len = 1 + rng.below(300) as usize;
        let from = rng.below((bytes.len() - len) as u64) as usize;
        let to = rng.below((bytes.len() - len) as u64) as usize;
        let mut damaged = bytes.clone();
        damaged.copy_within(from..from + len, to);
        if damaged != bytes {
            assert!(is_typed(&read_all(damaged, &all).unwrap_err()));
        }
    }
}

#[test]
fn noise_never_panics() {
    let mut rng = Rng::new(205);
    let cache = Arc::new(Cache::new(0));
    for _ in 0..2000 {
        let mut noise = vec![0; rng.below(400) as usize];
        rng.fill(&mut noise);
        if rng.one_in(2) && noise.len() >= 8 {
            let n = noise.len();
            noise[n - 8..].copy_from_slice(b"LAVAKSST");
        }
        assert!(open(noise, &cache).is_err());
    }
}

/// Returns the blocks of a table whose line in its listing contains `word`.
fn blocks_like(table: &Ksst, word: &str) -> Vec<(usize, usize)> {
    let mut text = String::new();
    table::dump::dump(table, table::dump::DumpOptions::default(), &mut text).unwrap();
    let numbers = |line: &str| {
        let (offset, rest) = line.strip_prefix("block ")?.split_once('+')?;
        Some((offset.trim().parse().ok()?, rest.split(' ').next()?.parse().ok()?))
    };
    text.lines().filter(|line| line.contains(word)).filter_map(numbers).collect()
}

fn blocks(table: &Ksst) -> Vec<(usize, usize)> {
    blocks_like(table, "")
}

/// Changes a block and gives it a valid checksum.
fn reseal(bytes: &mut [u8], (offset, len): (usize, usize), change: impl FnOnce(&mut [u8])) {
    let frame = &mut bytes[offset..offset + len];
    change(&mut frame[..len - 5]);
    let mut sealed = frame[..len - 5].to_vec();
    table::frame::seal(&mut sealed, 0, base::Compression::None);
    table::frame::mask(&mut sealed, uid(), offset as u64);
    frame.copy_from_slice(&sealed);
}

/// Damage under a valid checksum, as a hostile or buggy writer would leave it: any answer, but no
/// panic and no hang.
#[test]
fn random_bytes_with_valid_checksums_never_panic() {
    const STEPS: usize = 300;
    let mut rng = Rng::new(206);
    let options = TableOptions { block_len: 256, partition_len: 64, ..TableOptions::default() };
    let (bytes, model) = small_table(&mut rng, &options);
    let all = entries(&model);
    let blocks = blocks(&open(bytes.clone(), &Arc::new(Cache::new(0))).unwrap());
    let mut opened = 0;
    for _ in 0..3000 {
        let mut bytes = bytes.clone();
        let (offset, len) = blocks[rng.below(blocks.len() as u64) as usize];
        reseal(&mut bytes, (offset, len), |frame| {
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(frame.len() as u64) as usize;
                frame[at] = rng.next_u64() as u8;
            }
        });
        let global_seq = rng.one_in(4).then_some(5);
        let cache = Arc::new(Cache::new(0));
        let Ok(table) = Ksst::open(MemRead::new(bytes), 7, uid(), global_seq, cache) else { continue };
        opened += 1;
        let table = Arc::new(table);
        let (target, _) = &all[rng.below(all.len() as u64) as usize];
        let mut iter = table.iter(IterOptions { fill_cache: false, readahead_bytes: 1000 });
        let mut moved = iter.seek_to_first();
        for _ in 0..STEPS {
            if moved.is_err() || !iter.valid() {
                break;
            }
            moved = iter.next();
        }
        moved = iter.seek_for_prev(target);
        for _ in 0..STEPS {
            if moved.is_err() || !iter.valid() {
                break;
            }
            moved = if rng.one_in(5) { iter.next() } else { iter.prev() };
        }
        let _ = iter.seek(target);
        let user = key::user_key(target);
        let _ = table.get(user, MAX_SEQ, key_hash(user), &mut ReadCounters::default());
        let _ = table.get_reference(user, key::seq(target), key_hash(user), &mut ReadCounters::default());
        let _ = table.offset_of(target);
        let _ = table.verify();
    }
    assert!(opened > 1000, "{opened}");
}

/// With an index of another table under valid checksums, and an unreadable data block, a failed
/// seek reports a gap that ends after its target, or no gap.
#[test]
fn inconsistent_separators_never_move_a_seek_backward() {
    let mut rng = Rng::new(207);
    let options = TableOptions { block_len: 256, partition_len: 1024, ..TableOptions::default() };
    let model = random_model(&mut rng, 300, 0);
    let bytes = build(&model, &[], &options, None).0;
    let all = entries(&model);
    let table = open(bytes.clone(), &Arc::new(Cache::new(0))).unwrap();
    let (indexes, data) = (blocks_like(&table, " index "), blocks_like(&table, " up to "));
    assert!(indexes.len() > 1 && data.len() > 10, "{indexes:?}, {data:?}");
    let (mut told, mut silent) = (0, 0);
    for _ in 0..60 {
        let mut bytes = bytes.clone();
        for &index in &indexes {
            // Changes letters of separators.
            reseal(&mut bytes, index, |frame| {
                for letter in frame.iter_mut().filter(|byte| byte.is_ascii_lowercase()) {
                    if rng.one_in(4) {
                        *letter = b'a' + rng.below(26) as u8;
                    }
                }
            });
        }
        for _ in 0..3 {
            bytes[data[rng.below(data.len() as u64) as usize].0] ^= 0xff;
        }
        let Ok(table) = open(bytes, &Arc::new(Cache::new(0))) else { continue };
        let mut iter = table.iter(IterOptions { fill_cache: false, readahead_bytes: 0 });
        for (target, _) in &all {
            for forward in [true, false] {
                let moved = if forward { iter.seek(target) } else { iter.seek_for_prev(target) };
                match (moved, iter.gap()) {
                    (Ok(()), _) => {}
                    (Err(_), None) => silent += 1,
                    (Err(_), Some(gap)) => {
                        let further = if forward {
                            key::compare(&gap.last, target).is_ge()
                        } else {
                            key::compare(&gap.first, target).is_le()
                        };
                        assert!(further, "{gap:?} does not go beyond {target:?}");
                        told += 1;
                    }
                }
            }
        }
    }
    assert!(told > 1000 && silent > 100, "{told} told where the damage ends, {silent} did not");
}

#[test]
fn invalid_table_entries_are_refused() {
    let options = TableOptions::default();
    let builder = || {
        let file = Box::new(MemAppend::default());
        table::KsstBuilder::new(file, std::path::Path::new(PATH), identity(), &options, None)
    };
    let kind_of = |r: Result<()>| r.unwrap_err().kind();
    let mut b = builder();
    b.add(&key::encode(b"k", 5, ValueKind::Value), b"v").unwrap();
    for (user, seq) in [(&b"k"[..], 5), (b"k", 6), (b"j", 1)] {
        let e = b.add(&key::encode(user, seq, ValueKind::Value), b"v").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    }
    b.add(&key::encode(b"k", 4, ValueKind::Value), b"v").unwrap();
    let long = vec![b'z'; base::limits::KEY_LEN_MAX + 1];
    assert_eq!(kind_of(b.add(&key::encode(&long, 1, ValueKind::Value), b"")), ErrorKind::TooLarge);
    for kind in [ValueKind::Prepare, ValueKind::RangeDeletion, ValueKind::PlacedReference, ValueKind::Seek] {
        assert_eq!(kind_of(b.add(&key::encode(b"l", 1, kind), b"")), ErrorKind::InvalidArgument);
    }
    assert_eq!(kind_of(b.add(&key::encode(b"l", 1, ValueKind::Reference), b"")), ErrorKind::InvalidArgument);
    assert_eq!(kind_of(b.add(b"short", b"")), ErrorKind::InvalidArgument);
    assert_eq!(kind_of(b.add(&key::encode(b"", 1, ValueKind::Value), b"")), ErrorKind::InvalidArgument);
    let mut empty_first = builder();
    empty_first.add(&key::encode(b"", 5, ValueKind::Value), b"v").unwrap();
    let again = empty_first.add(&key::encode(b"", 5, ValueKind::Value), b"v");
    assert_eq!(kind_of(again), ErrorKind::InvalidArgument);
    assert_eq!(builder().finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
    let mut only_ranges = builder();
    only_ranges
        .add_range_tombstone(&RangeTombstone { start: b"a".to_vec(), end: b"b".to_vec(), seq: MAX_SEQ })
        .unwrap();
    only_ranges.finish().unwrap();
}

/// Returns the user keys that a scan in one direction leaves out, when it continues after
/// unreadable parts. The entries that it returns are right and in order, and it leaves out only the
/// keys of its gaps.
fn left_out(table: &Arc<Ksst>, all: &[(Vec<u8>, Vec<u8>)], forward: bool) -> BTreeSet<Vec<u8>> {
    let mut iter = table.iter(IterOptions { fill_cache: false, readahead_bytes: 0 });
    let (mut seen, mut gaps) = (Vec::new(), Vec::new());
    let mut moved = if forward { iter.seek_to_first() } else { iter.seek_to_last() };
    loop {
        while let Err(e) = moved {
            assert!(is_typed(&e), "{e}");
            let gap = iter.gap().expect("a sound index tells what is lost");
            moved = match (forward, key::split(&gap.first)) {
                // The first block: no entry is before it.
                (false, ([], u64::MAX)) => {
                    iter.clear();
                    Ok(())
                }
                (true, _) => iter.seek(&[key::user_key(&gap.last), &[0], &[0xff; 8]].concat()),
                // The key is not in the gap.
                (false, (user, 0)) => iter.seek_for_prev(&[user, &[0; 8]].concat()),
                (false, (user, _)) => iter.seek_for_prev(&[user, &[0xff; 8]].concat()),
            };
            gaps.push(gap);
            assert!(gaps.len() < 100, "it does not come further");
        }
        if !iter.valid() {
            break;
        }
        seen.push((iter.key().to_vec(), iter.value().to_vec()));
        moved = if forward { iter.next() } else { iter.prev() };
    }
    if !forward {
        seen.reverse();
    }
    assert!(seen.windows(2).all(|w| key::compare(&w[0].0, &w[1].0).is_lt()), "not in order");
    let mut missed = BTreeSet::new();
    for (k, v) in all {
        match seen.iter().find(|(found, _)| found == k) {
            Some((_, value)) => assert!(value == v),
            None => {
                let user = key::user_key(k);
                let behind = |first: &[u8]| {
                    let (first, trailer) = key::split(first);
                    first < user || first == user && trailer != 0
                };
                assert!(
                    gaps.iter().any(|g| behind(&g.first) && user <= key::user_key(&g.last)),
                    "lost in silence"
                );
                missed.insert(user.to_vec());
            }
        }
    }
    assert!(seen.iter().all(|entry| all.contains(entry)));
    missed
}

/// With both streams, several versions of a key, and keys whose versions span blocks: a damaged
/// block or index part costs its own keys, in both directions. Entries of the other stream before
/// it are not lost.
#[test]
fn scans_continue_after_a_damaged_block() {
    let mut rng = Rng::new(206);
    let mut short = 0;
    for _ in 0..3 {
        let options = TableOptions { block_len: 256, partition_len: 64, ..TableOptions::default() };
        let (bytes, model) = small_table(&mut rng, &options);
        let all = entries(&model);
        let users: BTreeSet<&[u8]> = all.iter().map(|(k, _)| key::user_key(k)).collect();
        for at in (0..bytes.len()).step_by(5) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << rng.below(8);
            // The end of the file is not read in parts.
            let Ok(table) = open(damaged, &Arc::new(Cache::new(1 << 20))) else { continue };
            let forward = left_out(&table, &all, true);
            assert_eq!(forward, left_out(&table, &all, false), "byte {at}");
            short += usize::from(!forward.is_empty() && forward.len() < users.len() / 2);
        }
    }
    assert!(short > 100, "only {short} damages left most of the table");
}

/// A scan leaves out exactly the keys for which a get fails, and a damaged filter fails no get.
#[test]
fn a_damaged_block_loses_its_keys_and_a_damaged_filter_none() {
    let mut model = Model::new();
    for i in 0..300u64 {
        insert(&mut model, format!("user{i:06}").as_bytes(), i + 1, ValueKind::Value, &[i as u8; 20]);
    }
    let options = TableOptions { block_len: 512, partition_len: 128, ..TableOptions::default() };
    let bytes = build(&model, &[], &options, None).0;
    let all = entries(&model);
    let (mut without_filter, mut blocks) = (0, 0);
    for at in (0..bytes.len()).step_by(23) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        let Ok(table) = open(damaged, &Arc::new(Cache::new(1 << 20))) else { continue };
        let mut counters = ReadCounters::default();
        let mut failed = BTreeSet::new();
        for (k, v) in &all {
            let user = key::user_key(k);
            match table.get(user, MAX_SEQ, key_hash(user), &mut counters) {
                Ok(found) => assert_eq!(&found.expect("a key was lost in silence").value[..], &v[..]),
                Err(_) => drop(failed.insert(user.to_vec())),
            }
        }
        assert_eq!(left_out(&table, &all, true), failed, "byte {at}");
        assert_eq!(left_out(&table, &all, false), failed, "byte {at}");
        assert!(failed.is_empty() || counters.filters_unreadable == 0);
        if counters.filters_unreadable > 0 {
            without_filter += 1;
            assert_eq!(table.verify().unwrap_err().kind(), ErrorKind::Corruption);
        }
        blocks += usize::from((1..60).contains(&failed.len()));
    }
    assert!(without_filter > 3 && blocks > 100, "{without_filter} filters, {blocks} blocks");
}

/// Returns the offsets of all damage that a check lists, and the number of sound parts; `None`: the
/// file does not open.
fn checked(bytes: Vec<u8>) -> Option<(Vec<u64>, u64)> {
    let table = open(bytes, &Arc::new(Cache::new(0))).ok()?;
    let mut check = table::TableCheck::new(table);
    let (mut damage, mut parts) = (Vec::new(), 0);
    loop {
        let step = check.step(&mut damage);
        parts += step.parts;
        if step.done {
            return Some((damage.iter().map(|e| e.offset().unwrap()).collect(), parts));
        }
    }
}

/// A check continues after damage: several damaged places are listed as each is alone, and the rest
/// counts as sound.
#[test]
fn a_check_lists_every_damaged_block() {
    let (mut cases, mut kinds) = (0, BTreeSet::new());
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let options = TableOptions { block_len: 512, ..TableOptions::default() };
        let bytes = build(&random_model(&mut rng, 400, 0), &[], &options, None).0;
        let (none, whole) = checked(bytes.clone()).unwrap();
        assert!(none.is_empty(), "{none:?}");
        let (mut places, mut expected, mut lost) = (Vec::<u64>::new(), BTreeSet::new(), 0);
        for _ in 0..rng.range(2, 9) {
            let at = rng.below(bytes.len() as u64);
            let mut one = bytes.clone();
            one[at as usize] ^= 4;
            // Damaged neighbors may count as one place.
            if places.iter().any(|before| before.abs_diff(at) < 600) {
                continue;
            }
            let Some((offsets, parts)) = checked(one) else { continue };
            let [offset] = offsets[..] else { continue };
            // A block is reachable only through its index.
            if parts + 1 < whole {
                continue;
            }
            if expected.insert(offset) {
                lost += whole - parts;
                kinds.insert(offset * 4 / bytes.len() as u64);
            }
            places.push(at);
        }
        let mut all = bytes.clone();
        places.iter().for_each(|at| all[*at as usize] ^= 4);
        let (found, parts) = checked(all).unwrap();
        let found: BTreeSet<u64> = found.into_iter().collect();
        assert_eq!(found, expected, "seed {seed}: {places:?}");
        assert_eq!(parts, whole - lost, "seed {seed}: {places:?} at {found:?}");
        cases += u64::from(expected.len() > 2);
    }
    assert!(cases > 20 && kinds.len() > 2, "{cases} {kinds:?}");
}
