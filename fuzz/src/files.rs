//! Files in memory, and small valid tables and files of values to begin with.

use base::range_del::RangeTombstone;
use base::sync::leaf::Mutex;
use base::sync::rank::MemoryFile;
use base::{Compression, Error, Result, Uid, ValueKind, key};
use io::{AppendFile, ReadFile, Rng, SyncKind};
use std::path::Path;
use std::sync::Arc;
use table::{
    KsstBuilder, Reference, SegmentIdentity, SegmentWriter, TableIdentity, TableOptions, VsstBuilder,
    VsstOptions,
};

/// The uid of every table that is made here.
pub const UID: Uid = Uid([7; 16]);
/// The number of every table that is made here.
pub const NUMBER: u64 = 7;

/// A file for reading, in memory.
#[derive(Debug)]
pub struct MemRead(pub Vec<u8>);

impl ReadFile for MemRead {
    fn len(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let at = usize::try_from(offset).ok();
        let bytes = at.and_then(|at| self.0.get(at..)?.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or_else(|| Error::corruption("the file ends before"))?);
        Ok(())
    }
    fn path(&self) -> &Path {
        Path::new("000000000007.ksst")
    }
}

/// A file for appending, in memory. Its copies are the same file.
#[derive(Clone, Default)]
pub struct MemAppend(Arc<Mutex<Vec<u8>, MemoryFile>>);

impl MemAppend {
    /// All that was appended, which is then gone.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *base::sync::leaf::lock(&self.0))
    }
}

impl AppendFile for MemAppend {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        base::sync::leaf::lock(&self.0).extend_from_slice(data);
        Ok(())
    }
    fn len(&self) -> u64 {
        base::sync::leaf::lock(&self.0).len() as u64
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn sync(&mut self, _: SyncKind) -> Result<()> {
        Ok(())
    }
}

/// The entries of a small table: all kinds, both streams, several versions of some keys.
pub fn entries(seed: u64, count: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rng = Rng::new(seed);
    let mut all = Vec::new();
    for i in 0..count {
        let user = format!("key/{:05}/{}", i * 3, "x".repeat(rng.below(9) as usize)).into_bytes();
        for version in 0..1 + rng.below(3) {
            let seq = 1000 - version * 100 - rng.below(90);
            let (kind, value) = match rng.below(8) {
                0 => (ValueKind::Deletion, Vec::new()),
                1 => (ValueKind::SingleDeletion, Vec::new()),
                2 => (ValueKind::Merge, b"operand".to_vec()),
                3 | 4 => {
                    let raw_len = 512 + rng.below(99);
                    let reference =
                        Reference { blob_id: 3 + rng.below(3), raw_len, stored_len: raw_len + 24 };
                    (ValueKind::Reference, reference.encode())
                }
                _ => (ValueKind::Value, vec![b'v'; rng.below(70) as usize]),
            };
            all.push((key::encode(&user, seq, kind), value));
        }
    }
    all
}

/// A table of `count` keys with blocks of a few hundred bytes, so that it has several partitions.
pub fn build_table(seed: u64, count: u64, compression: Compression) -> Vec<u8> {
    let file = MemAppend::default();
    let identity = TableIdentity {
        number: NUMBER,
        uid: UID,
        family: 1,
        level: 2,
        job: 3,
        inputs: vec![4, 5],
        edit: 6,
        ..TableIdentity::default()
    };
    let options = TableOptions { compression, block_len: 300, partition_len: 100, ..TableOptions::default() };
    let path = Path::new("000000000007.ksst");
    let mut builder = KsstBuilder::new(Box::new(file.clone()), path, identity, &options, None);
    let added: Result<()> =
        entries(seed, count).iter().try_for_each(|(ikey, value)| builder.add(ikey, value));
    added.expect("entries ascend");
    for (start, end, seq) in [("key/00003", "key/00009", 500), ("key/00006", "z", 2000)] {
        let tombstone = RangeTombstone { start: start.into(), end: end.into(), seq };
        builder.add_range_tombstone(&tombstone).expect("the range is not empty");
    }
    builder.finish().expect("memory takes every write");
    file.take()
}

/// Tables of every codec and of several sizes.
pub fn tables() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = [Compression::None, Compression::Lz4, Compression::Zstd]
        .into_iter()
        .flat_map(|codec| [build_table(1, 40, codec), build_table(2, 3, codec)])
        .collect();
    all.push(build_table(3, 150, Compression::None));
    all
}

/// Key and sequence of record `i` of a vSST; some neighbours are versions of one key.
pub fn value_key(i: u64) -> (Vec<u8>, u64) {
    let n = i / 4 * 4 + i % 4 / 2;
    (format!("key/{:05}/{}", n * 3, "y".repeat((n % 7) as usize)).into_bytes(), 5000 - i)
}

/// A vSST of `count` records: most short, a few of several hundred bytes.
pub fn build_vsst(count: u64, compression: Compression, alignment: u32) -> Vec<u8> {
    let file = MemAppend::default();
    let identity = TableIdentity {
        number: NUMBER,
        uid: UID,
        family: 1,
        level: 0,
        job: 3,
        inputs: vec![4, 5],
        edit: 6,
        ..TableIdentity::default()
    };
    let options = VsstOptions { compression, alignment };
    let path = Path::new("000000000007.vsst");
    let mut builder = VsstBuilder::new(Box::new(file.clone()), path, identity, &options, None);
    for i in 0..count {
        let (key, seq) = value_key(i);
        let value = [b'a' + (i % 20) as u8].repeat(if i % 50 == 7 { 700 } else { (i % 30) as usize });
        builder.add(&key, seq, &value).expect("keys ascend");
    }
    builder.finish(vec![2, 3]).expect("memory takes every write");
    file.take()
}

/// vSSTs of every codec, of one and of several crit-bit blocks, and of three alignments.
pub fn vssts() -> Vec<Vec<u8>> {
    vec![
        build_vsst(40, Compression::None, 1),
        build_vsst(40, Compression::Lz4, 0),
        build_vsst(40, Compression::Zstd, 8),
        build_vsst(1, Compression::None, 64),
        build_vsst(400, Compression::None, 8),
    ]
}

/// Segments of no chunk, of one, and of several.
pub fn segments() -> Vec<Vec<u8>> {
    let build = |len: usize| {
        let file = MemAppend::default();
        let identity =
            SegmentIdentity { number: NUMBER, uid: UID, family: 1, edit: 6, created_unix_seconds: 7 };
        let path = Path::new("000000000007.vsst");
        let writer = SegmentWriter::with_chunks(Box::new(file.clone()), path, &identity, b"large", 100);
        let done = writer.and_then(|mut writer| {
            writer.append(&vec![b'v'; len])?;
            writer.finish()
        });
        done.expect("memory takes every write");
        file.take()
    };
    [0, 1, 100, 1234].map(build).into()
}
