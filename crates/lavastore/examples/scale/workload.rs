//! Load, overwrite, reopen, verify, scan both ways: N keys of 24 bytes, compared with the checksum
//! of a model.
//!
//! The model has one byte per key, the number of overwrites; keys and values are functions of the
//! key's index and that byte. The checksum is a sum over all pairs, so it does not depend on their
//! order. The scans check the order separately.

use io::Rng;
use lavastore::{Db, Options, ReadOptions, Result};
use std::path::Path;
use std::time::Duration;

/// Bytes of a key.
pub const KEY_LEN: usize = 24;
/// Default size of a value in bytes.
pub const VALUE_LEN: usize = 100;

/// One phase and its duration.
pub struct Phase {
    /// Name of the phase.
    pub name: &'static str,
    /// Number of operations.
    pub ops: u64,
    /// Wall time.
    pub elapsed_ns: u64,
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Number of keys.
    pub keys: u64,
    /// Bytes of each value.
    pub value_len: usize,
}

/// Results of a run.
pub struct Outcome {
    /// Bytes of tables and value files at the end, after all background work.
    pub file_bytes: u64,
    /// Bytes written to tables and log per byte written by the user.
    pub write_amplification: f64,
}

/// A checksum over key-value pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of pairs.
    pub pairs: u64,
    /// Sum of their hashes, wrapping.
    pub hash: u64,
}

impl Sum {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut hash = value.len() as u64;
        for part in [key, value] {
            for chunk in part.chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                hash = mix(hash ^ u64::from_le_bytes(word));
            }
        }
        self.pairs += 1;
        self.hash = self.hash.wrapping_add(hash);
    }
}

/// A permutation of 64-bit words.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the unique key of an index, scattered over the key space.
fn key(i: u64) -> [u8; KEY_LEN] {
    let mut out = [0; KEY_LEN];
    out[..8].copy_from_slice(&mix(i).to_be_bytes());
    out[8..16].copy_from_slice(b"/record/");
    out[16..].copy_from_slice(&i.to_be_bytes());
    out
}

/// Writes the value of a key after `version` overwrites to `out`; half of it is noise.
fn value(i: u64, version: u8, out: &mut [u8]) {
    out.fill(b'.');
    let mut word = mix(i << 8 | u64::from(version));
    let noise = out.len() / 2;
    for chunk in out[..noise].chunks_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        word = mix(word);
    }
    if let Some(byte) = out.get_mut(noise) {
        *byte = version;
    }
}

/// Runs all phases in `dir`, which must be missing or empty.
///
/// # Panics
/// If data read differs from the model.
pub fn run(dir: &Path, work: Work, options: &Options, mut tell: impl FnMut(&Phase)) -> Result<Outcome> {
    let Work { keys, value_len } = work;
    let mut buf = vec![0; value_len];
    let env = lavastore::Env::kernel();
    let mut timed = |name, ops, body: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        let start_ns = env.clock.now_ns();
        body()?;
        tell(&Phase { name, ops, elapsed_ns: env.clock.now_ns() - start_ns });
        Ok(())
    };
    let mut versions = vec![0u8; keys as usize];
    let db = Db::open_with(dir, options)?;
    timed("load", keys, &mut || {
        (0..keys).try_for_each(|i| {
            value(i, 0, &mut buf);
            db.put(key(i), &buf)
        })
    })?;
    let mut rng = Rng::new(keys);
    timed("overwrite", keys, &mut || {
        (0..keys).try_for_each(|_| {
            let i = rng.below(keys);
            let version = &mut versions[i as usize];
            *version = version.wrapping_add(1);
            value(i, *version, &mut buf);
            db.put(key(i), &buf)
        })
    })?;
    timed("background work", 0, &mut || {
        assert!(db.wait_idle(Duration::from_secs(3600)), "{}", db.describe());
        Ok(())
    })?;
    let stats = db.stats();
    let tables = stats.flush_bytes_written + stats.compaction_bytes_written + stats.gc_bytes_written;
    let written = stats.wal_bytes_written + tables;
    let space = db.space()?;
    let file_bytes = space.table_bytes + space.value_bytes + space.garbage_bytes;
    let mut handle = Some(db);
    timed("reopen", 1, &mut || {
        handle.take().map_or(Ok(()), Db::close)?;
        handle = Some(Db::open_with(dir, options)?);
        Ok(())
    })?;
    let db = handle.expect("it was just opened");
    let mut expected = Sum::default();
    (0..keys).for_each(|i| {
        value(i, versions[i as usize], &mut buf);
        expected.add(&key(i), &buf);
    });
    timed("verify", keys, &mut || {
        let report = db.verify()?;
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        Ok(())
    })?;
    timed("scan", keys, &mut || same(scan(&db, true)?, expected))?;
    timed("scan backwards", keys, &mut || same(scan(&db, false)?, expected))?;
    let reads = keys / 30;
    timed("get", reads, &mut || {
        (0..reads).try_for_each(|_| {
            let i = rng.below(keys);
            let found = db.get(key(i))?;
            value(i, versions[i as usize], &mut buf);
            assert!(found.as_deref() == Some(&buf[..]), "key {i}");
            Ok(())
        })
    })?;
    db.close()?;
    let write_amplification = written as f64 / stats.user_bytes_written as f64;
    Ok(Outcome { file_bytes, write_amplification })
}

fn same(found: Sum, expected: Sum) -> Result<()> {
    assert_eq!(found, expected, "the store differs from the model");
    Ok(())
}

/// Returns the checksum of a scan; keys must ascend (or descend) strictly.
fn scan(db: &Db, forward: bool) -> Result<Sum> {
    let options = ReadOptions { readahead_bytes: 256 << 10, fill_cache: false, ..Default::default() };
    let mut i = db.reading(&options).iter().cursor()?;
    if forward {
        i.seek_to_first()?
    } else {
        i.seek_to_last()?
    }
    let (mut sum, mut last) = (Sum::default(), Vec::new());
    while i.valid() {
        let in_order = if forward { last.as_slice() < i.key() } else { last.as_slice() > i.key() };
        assert!(last.is_empty() || in_order, "{last:?} before {:?}", i.key());
        last.clear();
        last.extend_from_slice(i.key());
        sum.add(i.key(), i.value()?);
        if forward { i.next()? } else { i.prev()? }
    }
    Ok(sum)
}
