//! Files in memory, and small valid tables to begin with.

use base::range_del::RangeTombstone;
use base::{Compression, Error, Result, Uid, ValueKind, key};
use io::{AppendFile, ReadFile, Rng, SyncKind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use table::{KsstBuilder, Reference, TableIdentity, TableOptions};

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

#[derive(Clone, Default)]
struct MemAppend(Arc<Mutex<Vec<u8>>>);

impl AppendFile for MemAppend {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        base::sync::lock(&self.0).extend_from_slice(data);
        Ok(())
    }
    fn len(&self) -> u64 {
        base::sync::lock(&self.0).len() as u64
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
    let identity =
        TableIdentity { number: NUMBER, uid: UID, family: 1, level: 2, job: 3, inputs: vec![4, 5], edit: 6 };
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
    std::mem::take(&mut *base::sync::lock(&file.0))
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
