//! Damaged vSSTs: an error or the right answer, never a panic and never wrong data.

use crate::common::*;
use base::{Compression, Error, ErrorKind, Result, Uid};
use cache::Cache;
use io::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use table::{ReadCounters, Vsst, VsstOptions};
use vsst::{Built, Values, build, open};

fn small(rng: &mut Rng, count: usize, compression: Compression) -> (Values, Built) {
    let mut values = Values::new();
    while values.len() < count {
        let mut value = vec![0; rng.below(150) as usize];
        rng.fill(&mut value);
        if rng.one_in(2) {
            value.fill(b'v');
        }
        values.insert((random_key(rng), !rng.below(1000)), value);
    }
    let built = build(&values, &VsstOptions { compression, alignment: [1, 8][count % 2] }, None);
    (values, built)
}

fn is_typed(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported)
        && e.file().is_some_and(|f| f.ends_with(PATH))
        && e.offset().is_some()
}

/// Reads the whole vSST in every way; results without an error must be right. Verification must
/// detect all damage.
fn read_all(bytes: Vec<u8>, values: &Values, built: &Built, counters: &mut ReadCounters) -> Result<()> {
    let table = open(bytes, &Arc::new(Cache::new(1 << 20)))?;
    for (i, ((user, inverted), value)) in values.iter().enumerate() {
        for _ in 0..2 {
            match table.get(user, !inverted, &built.reference(i), true, counters) {
                Ok(found) => assert!(found[..] == value[..], "a wrong value"),
                Err(e) => assert!(is_typed(&e), "{e}"),
            }
        }
    }
    table.verify().map(|_| ())
}

/// Checks that the readable keys are the written ones, in order.
fn read_keys(bytes: &[u8], values: &Values) {
    let Ok(table) = open(bytes.to_vec(), &Arc::new(Cache::new(0))) else { return };
    let mut expected = values.iter();
    let mut keys = match table.keys() {
        Ok(keys) => keys,
        Err(e) => return assert!(is_typed(&e), "{e}"),
    };
    while keys.valid() {
        let (entry, ((user, inverted), value)) = (keys.entry(), expected.next().unwrap());
        assert_eq!((entry.user_key, entry.seq, entry.raw_len), (&user[..], !inverted, value.len() as u64));
        if let Err(e) = keys.next() {
            return assert!(is_typed(&e) && !keys.valid(), "{e}");
        }
    }
    assert!(expected.next().is_none(), "a key was lost in silence");
}

#[test]
fn every_flipped_byte_is_caught() {
    let mut rng = Rng::new(401);
    for compression in codecs() {
        let (values, built) = small(&mut rng, 50, compression);
        let counters = &mut ReadCounters::default();
        read_all(built.bytes.clone(), &values, &built, counters).unwrap();
        for i in 0..built.bytes.len() {
            let mut damaged = built.bytes.clone();
            damaged[i] ^= 1 << rng.below(8);
            if i % 5 == 0 {
                read_keys(&damaged, &values);
            }
            let caught = if i % 16 == 0 {
                read_all(damaged, &values, &built, counters)
            } else {
                open(damaged, &Arc::new(Cache::new(0))).and_then(|table| table.verify().map(|_| ()))
            };
            let e = caught.expect_err("a flip that nothing noticed");
            assert!(is_typed(&e), "byte {i}: {e}");
        }
    }
}

#[test]
fn every_truncation_is_caught() {
    let (_, built) = small(&mut Rng::new(402), 40, Compression::None);
    let (bytes, cache) = (built.bytes, Arc::new(Cache::new(0)));
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
}

#[test]
fn a_swapped_file_is_caught() {
    let (_, built) = small(&mut Rng::new(403), 40, Compression::None);
    let cache = Arc::new(Cache::new(0));
    let other = Uid::from_words(9, 9);
    let e = Vsst::open(MemRead::new(built.bytes.clone()), 7, other, cache.clone()).unwrap_err();
    assert!(e.is_corruption() && is_typed(&e), "{e}");
    // A kSST is no vSST.
    let (bytes, _) =
        crate::common::build(&random_model(&mut Rng::new(1), 10, 0), &[], &Default::default(), None);
    assert!(open(bytes, &cache).unwrap_err().is_corruption());
    assert!(crate::common::open(built.bytes, &cache).unwrap_err().is_corruption());
}

#[test]
fn misplaced_bytes_are_caught() {
    let mut rng = Rng::new(404);
    let (values, built) = small(&mut rng, 120, Compression::None);
    // A misdirected write: some bytes end up elsewhere.
    for _ in 0..200 {
        let len = 1 + rng.below(300) as usize;
        let from = rng.below((built.bytes.len() - len) as u64) as usize;
        let to = rng.below((built.bytes.len() - len) as u64) as usize;
        let mut damaged = built.bytes.clone();
        damaged.copy_within(from..from + len, to);
        if damaged != built.bytes {
            let counters = &mut ReadCounters::default();
            assert!(is_typed(&read_all(damaged, &values, &built, counters).unwrap_err()));
        }
    }
}

#[test]
fn stale_records_are_caught() {
    // The same records at the same places, under another uid: the remains of a file whose space was
    // reused.
    let (values, built) = small(&mut Rng::new(405), 60, Compression::None);
    let file = MemAppend::default();
    let shared = file.shared();
    let identity = table::TableIdentity { uid: Uid::from_words(8, 8), ..identity() };
    let options = VsstOptions { compression: Compression::None, alignment: 8 };
    let path = std::path::Path::new(PATH);
    let mut other = table::VsstBuilder::new(Box::new(file), path, identity, &options, None);
    for ((user, inverted), value) in &values {
        other.add(user, !inverted, value).unwrap();
    }
    other.finish(vec![]).unwrap();
    let stale = vsst::take(&shared);
    let first = built.lens[0].stored_len as usize;
    let mut bytes = built.bytes.clone();
    bytes[..first].copy_from_slice(&stale[..first]);
    assert_eq!(bytes[..first - 4], built.bytes[..first - 4], "only the checksum differs");
    let table = open(bytes.clone(), &Arc::new(Cache::new(0))).unwrap();
    assert!(table.verify().unwrap_err().is_corruption());
    assert!(table.open_record(&bytes[..first], 0).unwrap_err().is_corruption());
    assert!(table.open_record(&built.bytes[..first], 0).is_ok());
    let ((user, inverted), _) = values.first_key_value().unwrap();
    let counters = &mut ReadCounters::default();
    let e = table.get(user, !inverted, &built.reference(0), true, counters).unwrap_err();
    assert!(is_typed(&e) && e.offset() == Some(0), "{e}");
}

/// Returns the blocks of a vSST, from its listing.
fn blocks(table: &Arc<Vsst>) -> Vec<(usize, usize, bool)> {
    let mut text = String::new();
    table::dump_vsst(table, Default::default(), &mut text).unwrap();
    let numbers = |line: &str| {
        let (offset, rest) = line.strip_prefix("block ")?.split_once('+')?;
        let is_index = rest.contains(" index frame ") || rest.contains(" root of ");
        Some((offset.trim().parse().ok()?, rest.split(' ').next()?.parse().ok()?, is_index))
    };
    text.lines().filter_map(numbers).collect()
}

/// Damage under a valid checksum, as a hostile or buggy writer would leave it, causes no panic and
/// no hang. While records and dense keys are sound, reads return right values or errors, whatever
/// the index contains.
#[test]
fn random_bytes_with_valid_checksums_never_panic() {
    let mut rng = Rng::new(406);
    let (values, built) = small(&mut rng, 700, Compression::None);
    let blocks = blocks(&open(built.bytes.clone(), &Arc::new(Cache::new(0))).unwrap());
    let (mut opened, mut right) = (0, 0);
    let mut counters = ReadCounters::default();
    for round in 0..3000 {
        let mut bytes = built.bytes.clone();
        let (offset, len, is_index) = blocks[rng.below(blocks.len() as u64) as usize];
        let frame = &mut bytes[offset..offset + len];
        for _ in 0..1 + rng.below(4) {
            frame[rng.below(len as u64 - 5) as usize] = rng.next_u64() as u8;
        }
        let mut sealed = frame[..len - 5].to_vec();
        table::frame::seal(&mut sealed, 0, Compression::None);
        table::frame::mask(&mut sealed, uid(), offset as u64);
        frame.copy_from_slice(&sealed);
        let Ok(table) = open(bytes, &Arc::new(Cache::new(1 << 20))) else { continue };
        opened += 1;
        for _ in 0..20 {
            let i = rng.below(values.len() as u64) as usize;
            let ((user, inverted), value) = values.iter().nth(i).unwrap();
            if let Ok(found) = table.get(user, !inverted, &built.reference(i), true, &mut counters) {
                assert!(found[..] == value[..], "a wrong value");
                right += u64::from(is_index);
            }
        }
        if round % 4 == 0 {
            let _ = table.verify();
            let _ = table::dump_vsst(&table, Default::default(), &mut String::new());
        }
        if let Ok(mut keys) = table.keys() {
            while keys.valid() && keys.next().is_ok() {}
        }
    }
    assert!(opened > 1000 && right > 1000, "{opened} {right}");
    assert!(counters.vsst_dense_searches > 100, "{counters:?}");
}

#[test]
fn noise_never_panics() {
    let mut rng = Rng::new(407);
    let cache = Arc::new(Cache::new(0));
    for _ in 0..2000 {
        let mut noise = vec![0; rng.below(400) as usize];
        rng.fill(&mut noise);
        if rng.one_in(2) && noise.len() >= 8 {
            let n = noise.len();
            noise[n - 8..].copy_from_slice(b"LAVAVSST");
        }
        assert!(open(noise, &cache).is_err());
    }
    let (_, built) = small(&mut rng, 10, Compression::None);
    let table = open(built.bytes, &cache).unwrap();
    for _ in 0..20_000 {
        let mut record = vec![0; rng.below(40) as usize];
        record.iter_mut().for_each(|b| *b = rng.below(12) as u8);
        if let Some(body) = record.len().checked_sub(4) {
            let sum = base::checksum::stored(&record[..body], uid(), 16).to_le_bytes();
            record[body..].copy_from_slice(&sum);
        }
        let _ = table.open_record(&record, 16);
    }
}

/// A file whose reads fail from some read on.
#[derive(Debug)]
struct Failing {
    file: Arc<MemRead>,
    reads_left: std::sync::atomic::AtomicU64,
}

impl io::ReadFile for Failing {
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        let left = self.reads_left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
        left.map_err(|_| Error::new(ErrorKind::Io, "the device is gone"))?;
        self.file.read_at(buf, offset)
    }
    fn path(&self) -> &std::path::Path {
        self.file.path()
    }
}

#[test]
fn a_failed_read_is_no_damage() {
    let (values, built) = small(&mut Rng::new(408), 600, Compression::None);
    let ((user, inverted), value) = values.first_key_value().unwrap();
    let gone = |e: Error| {
        assert!(e.kind() == ErrorKind::Io && e.file().is_some() && e.offset().is_some(), "{e}");
    };
    let mut steps = [0; 3];
    for reads in 0..40 {
        let file = Failing { file: MemRead::new(built.bytes.clone()), reads_left: reads.into() };
        let table = match Vsst::open(Arc::new(file), 7, uid(), Arc::new(Cache::new(1 << 20))) {
            Ok(table) => Arc::new(table),
            Err(e) => {
                gone(e);
                continue;
            }
        };
        let counters = &mut ReadCounters::default();
        match table.get(user, !inverted, &built.reference(0), true, counters) {
            Ok(found) => assert_eq!(found[..], value[..]),
            Err(e) => gone(e),
        }
        assert_eq!(counters.vsst_dense_searches, 0, "only damage is looked into");
        steps[0] += counters.value_reads;
        match table.keys() {
            Ok(_) => steps[1] += 1,
            Err(e) => gone(e),
        }
        match table.verify() {
            Ok(_) => steps[2] += 1,
            Err(e) => gone(e),
        }
    }
    assert!(steps[0] > steps[1] && steps[1] > steps[2] && steps[2] > 0, "{steps:?}");
}

/// Returns the offsets of all damage that a check lists, and the number of sound parts; `None`: the
/// file does not open.
fn checked(bytes: Vec<u8>) -> Option<(Vec<u64>, u64)> {
    let vsst = open(bytes, &Arc::new(Cache::new(0))).ok()?;
    let mut check = table::VsstCheck::new(vsst);
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
        let compression = [Compression::None, Compression::Lz4][seed as usize % 2];
        let (_, built) = small(&mut rng, 300 + seed as usize * 20, compression);
        let bytes = built.bytes.clone();
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
