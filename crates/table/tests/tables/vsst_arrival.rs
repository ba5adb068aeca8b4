//! Value log files: the same answers as from a vSST in key order, and each record is readable
//! before the file is finished.

use crate::common::*;
use base::{Compression, ErrorKind};
use cache::Cache;
use io::Rng;
use std::path::Path;
use std::sync::Arc;
use table::vsst::record::read_loose;
use table::{FinishedVsst, ReadCounters, RecordLens, Reference, Vsst, VsstBuilder, VsstOptions};

/// Appended records, in order: user key, sequence, value.
type Appended = Vec<(Vec<u8>, u64, Vec<u8>)>;

fn some_appends(rng: &mut Rng, n: u64) -> Appended {
    let mut seq = rng.below(1 << 40);
    let one = |_| {
        seq += 1 + rng.below(3);
        let mut value = vec![0; rng.below(700) as usize];
        rng.fill(&mut value);
        if rng.below(3) == 0 {
            value.iter_mut().for_each(|b| *b &= 1);
        }
        (random_key(rng), seq, value)
    };
    (0..n).map(one).filter(|(k, ..)| !k.is_empty()).collect()
}

fn write(
    all: &Appended,
    compression: Compression,
    alignment: u32,
) -> (Vec<u8>, FinishedVsst, Vec<(RecordLens, u64)>) {
    let file = MemAppend::default();
    let bytes = file.shared();
    let options = VsstOptions { compression, alignment };
    let mut builder =
        VsstBuilder::new(Box::new(file), Path::new(PATH), identity(), &options, None).in_order_of_arrival();
    assert!(builder.is_empty());
    let mut places = Vec::new();
    for (k, seq, v) in all {
        let (lens, offset) = builder.append(k, *seq, v).unwrap();
        places.push((lens, offset));
        assert!(!builder.is_empty() && builder.written_bytes() == offset + lens.stored_len);
        // The file is unfinished, and more records may follow.
        let so_far = MemRead::new(bytes.lock().unwrap().clone());
        let loose = read_loose(&*so_far, uid(), offset, lens.stored_len).unwrap();
        assert!((&loose.user_key, loose.seq, &loose.value) == (k, *seq, v));
    }
    let finished = builder.finish(Vec::new()).unwrap();
    let bytes = std::mem::take(&mut *bytes.lock().unwrap());
    (bytes, finished, places)
}

fn open(bytes: Vec<u8>) -> base::Result<Arc<Vsst>> {
    let cache = Arc::new(Cache::new(1 << 20));
    Vsst::open(MemRead::new(bytes), 7, uid(), cache).map(Arc::new)
}

#[test]
fn every_value_in_arrival_order_is_found() {
    let mut rng = Rng::new(401);
    for round in 0..40 {
        let n = [1, 2, 127, 128, 129, 300][round % 6];
        let compression = [Compression::None, Compression::Lz4, Compression::Zstd][round % 3];
        let all = some_appends(&mut rng, n);
        let (bytes, finished, places) = write(&all, compression, [0, 1, 16][round % 3]);
        assert!(finished.properties.segment && finished.properties.entries == all.len() as u64);
        let vsst = open(bytes.clone()).unwrap();
        assert_eq!(vsst.verify().unwrap(), bytes.len() as u64);
        let mut counters = ReadCounters::default();
        for ((k, seq, v), (lens, offset)) in all.iter().zip(&places) {
            let reference = Reference { blob_id: 7, raw_len: lens.raw_len, stored_len: lens.stored_len };
            assert_eq!(vsst.locate(k, *seq, &mut counters).unwrap(), *offset);
            assert!(*vsst.get(k, *seq, &reference, true, &mut counters).unwrap() == v[..]);
        }
        assert_eq!(counters.vsst_dense_searches, 0);
        let mut sorted: Vec<_> = all.iter().zip(&places).collect();
        sorted.sort_by(|((a, s, _), _), ((b, t, _), _)| a.cmp(b).then(t.cmp(s)));
        let mut keys = vsst.keys().unwrap();
        for ((k, seq, v), (lens, offset)) in sorted {
            let entry = keys.entry();
            assert_eq!((entry.user_key, entry.seq, entry.offset), (&k[..], *seq, *offset));
            assert_eq!((entry.raw_len, entry.stored_len), (v.len() as u64, lens.stored_len));
            keys.next().unwrap();
        }
        assert!(!keys.valid());
    }
}

#[test]
fn every_flipped_byte_is_caught() {
    let mut rng = Rng::new(402);
    let all = some_appends(&mut rng, 40);
    let (bytes, _, places) = write(&all, Compression::None, 0);
    for i in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[i] ^= 1 << rng.below(8);
        let result = open(damaged).and_then(|vsst| vsst.verify());
        let e = result.expect_err("a flip that nothing noticed");
        assert!(e.is_corruption() || e.kind() == ErrorKind::Unsupported, "byte {i}: {e}");
        assert!(e.file().is_some(), "byte {i}: {e}");
    }
    // A single record, cut at any place.
    let (lens, offset) = places[0];
    for end in 0..offset + lens.stored_len {
        let cut = MemRead::new(bytes[..end as usize].to_vec());
        assert!(read_loose(&*cut, uid(), offset, lens.stored_len).unwrap_err().is_corruption());
    }
    let whole = MemRead::new(bytes);
    for (at, len) in
        [(offset + 1, lens.stored_len), (offset, lens.stored_len - 1), (u64::MAX, 8), (0, u64::MAX)]
    {
        assert!(read_loose(&*whole, uid(), at, len).unwrap_err().is_corruption());
    }
}
