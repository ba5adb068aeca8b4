//! vSSTs in memory.

use super::{MemAppend, MemRead, PATH, identity, random_key, uid};
use base::Result;
use cache::Cache;
use io::Rng;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use table::{FinishedVsst, RecordLens, Reference, Vsst, VsstBuilder, VsstOptions};

/// (user key, inverted sequence) -> value.
pub type Values = BTreeMap<(Vec<u8>, u64), Vec<u8>>;

pub fn random_value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(20) {
        0 => 0,
        1 => rng.below(40_000),
        _ => rng.below(1500),
    };
    let mut value = vec![0; len as usize];
    rng.fill(&mut value);
    if rng.one_in(2) {
        value.iter_mut().for_each(|b| *b = b"lava"[(*b & 3) as usize]);
    }
    value
}

pub fn random_values(rng: &mut Rng, count: u64) -> Values {
    let mut values = Values::new();
    while (values.len() as u64) < count {
        let user = random_key(rng);
        let versions = if rng.one_in(30) { rng.below(300) } else { 1 };
        for _ in 0..=versions {
            let seq = if rng.one_in(20) { rng.next_u64() >> 8 } else { rng.below(2000) };
            values.insert((user.clone(), !seq), random_value(rng));
        }
    }
    values
}

pub fn builder(options: &VsstOptions, warm: Option<Arc<Cache>>) -> (VsstBuilder, Shared) {
    let file = MemAppend::default();
    let bytes = file.shared();
    (VsstBuilder::new(Box::new(file), Path::new(PATH), identity(), options, warm), bytes)
}

pub type Shared = Arc<std::sync::Mutex<Vec<u8>>>;

pub fn take(shared: &Shared) -> Vec<u8> {
    std::mem::take(&mut *shared.lock().unwrap())
}

/// A vSST with its expected content.
pub struct Built {
    pub bytes: Vec<u8>,
    pub finished: FinishedVsst,
    pub lens: Vec<RecordLens>,
}

pub fn build(values: &Values, options: &VsstOptions, warm: Option<Arc<Cache>>) -> Built {
    let (mut builder, shared) = builder(options, warm);
    assert!(builder.is_empty());
    builder.set_created(1_700_000_000);
    builder.set_class(1);
    let mut lens = Vec::new();
    for ((user, inverted), value) in values {
        lens.push(builder.add(user, !inverted, value).unwrap());
    }
    assert_eq!(builder.entries(), values.len() as u64);
    assert_eq!(builder.record_bytes(), lens.iter().map(|l| l.stored_len).sum::<u64>());
    assert_eq!(builder.raw_bytes(), values.values().map(|v| v.len() as u64).sum::<u64>());
    let estimate = builder.len_estimate();
    let finished = builder.finish(vec![2, 90]).unwrap();
    let bytes = take(&shared);
    assert_eq!(finished.len, bytes.len() as u64);
    assert!(estimate.abs_diff(finished.len) < finished.len / 8 + 2000, "{estimate} {}", finished.len);
    Built { bytes, finished, lens }
}

impl Built {
    pub fn reference(&self, i: usize) -> Reference {
        Reference { blob_id: 7, raw_len: self.lens[i].raw_len, stored_len: self.lens[i].stored_len }
    }
}

pub fn open(bytes: Vec<u8>, cache: &Arc<Cache>) -> Result<Arc<Vsst>> {
    Ok(Arc::new(Vsst::open(MemRead::new(bytes), 7, uid(), cache.clone())?))
}
