//! Files in memory, and tables built into them.

pub mod vsst;

use base::range_del::RangeTombstone;
use base::{Error, Result, Uid, ValueKind, key};
use cache::Cache;
use io::{AppendFile, ReadFile, Rng, SyncKind};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use table::{FinishedTable, Ksst, KsstBuilder, Reference, TableIdentity, TableOptions};

pub const PATH: &str = "000000000007.ksst";

/// An append-only file whose bytes outlive it.
#[derive(Default)]
pub struct MemAppend {
    bytes: Arc<Mutex<Vec<u8>>>,
    synced: bool,
}

impl MemAppend {
    /// Returns the buffer that will have the written bytes.
    pub fn shared(&self) -> Arc<Mutex<Vec<u8>>> {
        self.bytes.clone()
    }
}

impl AppendFile for MemAppend {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        assert!(!self.synced, "nothing is appended after the sync");
        self.bytes.lock().unwrap().extend_from_slice(data);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn sync(&mut self, kind: SyncKind) -> Result<()> {
        // Intermediate syncs may cover the data alone; the last one must be full.
        self.synced |= kind == SyncKind::Full;
        Ok(())
    }
}

/// A file in memory that counts its reads.
#[derive(Debug)]
pub struct MemRead {
    pub bytes: Vec<u8>,
    pub reads: AtomicU64,
    /// Maximum number of reads requested together.
    pub together: AtomicU64,
}

impl MemRead {
    pub fn new(bytes: Vec<u8>) -> Arc<MemRead> {
        Arc::new(MemRead { bytes, reads: AtomicU64::new(0), together: AtomicU64::new(0) })
    }
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl ReadFile for MemRead {
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let at = usize::try_from(offset).unwrap();
        let Some(bytes) = at.checked_add(buf.len()).and_then(|end| self.bytes.get(at..end)) else {
            return Err(Error::corruption("the file ends before").at_file(PATH));
        };
        buf.copy_from_slice(bytes);
        Ok(())
    }
    fn read_batch(&self, requests: &mut [io::ReadRequest<'_>]) -> Result<()> {
        self.together.fetch_max(requests.len() as u64, Ordering::Relaxed);
        requests.iter_mut().try_for_each(|r| self.read_at(r.buf, r.offset))
    }
    fn path(&self) -> &Path {
        Path::new(PATH)
    }
}

/// Entries in internal-key order: (user key, inverted trailer) -> value.
pub type Model = BTreeMap<(Vec<u8>, u64), Vec<u8>>;

pub fn insert(model: &mut Model, user: &[u8], seq: u64, kind: ValueKind, value: &[u8]) {
    model.insert((user.to_vec(), !key::pack_trailer(seq, kind)), value.to_vec());
}

/// Returns the model as encoded internal keys and values.
pub fn entries(model: &Model) -> Vec<(Vec<u8>, Vec<u8>)> {
    model.iter().map(|((u, t), v)| ([&u[..], &(!t).to_le_bytes()].concat(), v.clone())).collect()
}

pub fn uid() -> Uid {
    Uid::from_words(0x1111, 0x2222)
}

pub fn identity() -> TableIdentity {
    let (number, uid, inputs) = (7, uid(), vec![4, 5]);
    TableIdentity { number, uid, family: 1, level: 2, job: 3, inputs, edit: 6, ..TableIdentity::default() }
}

pub fn build(
    model: &Model,
    tombstones: &[RangeTombstone],
    options: &TableOptions,
    warm: Option<Arc<Cache>>,
) -> (Vec<u8>, FinishedTable) {
    let file = MemAppend::default();
    let bytes = file.bytes.clone();
    let mut builder = KsstBuilder::new(Box::new(file), Path::new(PATH), identity(), options, warm);
    assert!(builder.is_empty());
    let mut raw = 0;
    for (ikey, value) in entries(model) {
        builder.add(&ikey, &value).unwrap();
        raw += ikey.len() as u64;
        raw += match key::kind(&ikey) {
            Some(ValueKind::Reference) => Reference::decode(&value).unwrap().raw_len,
            _ => value.len() as u64,
        };
    }
    for t in tombstones {
        builder.add_range_tombstone(t).unwrap();
    }
    assert_eq!(builder.raw_bytes(), raw);
    let estimate = builder.len_estimate();
    let finished = builder.finish().unwrap();
    assert_eq!(finished.len, bytes.lock().unwrap().len() as u64);
    let slack = finished.len / 8 + 2000 + 6 * finished.properties.index_bytes;
    if options.compression == base::Compression::None {
        assert!(estimate.abs_diff(finished.len) < slack, "estimate {estimate}, file {}", finished.len);
    }
    let bytes = std::mem::take(&mut *bytes.lock().unwrap());
    (bytes, finished)
}

pub fn open(bytes: Vec<u8>, cache: &Arc<Cache>) -> Result<Arc<Ksst>> {
    Ok(Arc::new(Ksst::open(MemRead::new(bytes), 7, uid(), None, cache.clone())?))
}

/// Returns a user key of one of several awkward shapes.
pub fn random_key(rng: &mut Rng) -> Vec<u8> {
    match rng.below(6) {
        0 => (0..rng.below(6)).map(|_| [0, 1, b'a', b'b', 0xff][rng.below(5) as usize]).collect(),
        1 => vec![b'p'; 1 + rng.below(40) as usize],
        2 => format!("user{:012}", rng.below(3000)).into_bytes(),
        3 => [&b"prefix shared by many keys/"[..], &rng.below(500).to_be_bytes()].concat(),
        4 => vec![0; 1 + rng.below(9) as usize],
        _ => {
            let mut key = vec![0; 1 + rng.below(20) as usize];
            rng.fill(&mut key);
            key
        }
    }
}

pub fn random_value(rng: &mut Rng, kind: ValueKind) -> Vec<u8> {
    match kind {
        ValueKind::Reference => Reference {
            blob_id: 100 + rng.below(4),
            raw_len: 512 + rng.below(4000),
            stored_len: 600 + rng.below(4000),
        }
        .encode(),
        ValueKind::Deletion | ValueKind::SingleDeletion => Vec::new(),
        _ => {
            let mut value = vec![0; rng.below(60) as usize];
            if rng.one_in(2) {
                rng.fill(&mut value);
            }
            value
        }
    }
}

/// Returns `count` random entries; `which`: 0 both streams, 1 references only, 2 inline only.
pub fn random_model(rng: &mut Rng, count: u64, which: u64) -> Model {
    let mut model = Model::new();
    let kinds = [ValueKind::Value, ValueKind::Merge, ValueKind::Deletion, ValueKind::SingleDeletion];
    while (model.len() as u64) < count {
        let user = random_key(rng);
        let versions = if rng.one_in(20) { rng.below(60) } else { 1 };
        for _ in 0..=versions {
            let kind = match which {
                1 => ValueKind::Reference,
                0 if rng.one_in(2) => ValueKind::Reference,
                _ => kinds[rng.below(4) as usize],
            };
            let seq = if rng.one_in(50) { rng.next_u64() >> 8 } else { rng.below(1000) };
            let value = random_value(rng, kind);
            insert(&mut model, &user, seq, kind, &value);
        }
    }
    model
}

pub fn codecs() -> Vec<base::Compression> {
    let all = [base::Compression::None, base::Compression::Lz4, base::Compression::Zstd];
    all.into_iter().filter(|&c| table::compress::require(c).is_ok()).collect()
}
