//! LavaFS: slots of the superblock, transactions, operations, whole volumes.

use ::lavafs::op::Op;
use ::lavafs::superblock::Superblock;
use ::lavafs::transaction::{self, Header, Kind, Owner};
use ::lavafs::{MountOptions, dump_journal, fsck, mount};
use base::Result;
use base::codec::Reader;
use io::sim::SimEnv;
use io::{Access, CreateOptions, FileSystem};
use std::path::Path;

const GOLDEN: &[u8] = include_bytes!("../../crates/lavafs/tests/golden/volume-v1.bin");
const BLOCK: usize = 4096;
const BLOCKS: usize = 160;

/// The blocks of the golden volume, by number.
fn golden_blocks() -> impl Iterator<Item = (usize, &'static [u8])> {
    GOLDEN.chunks(BLOCK + 4).filter_map(|entry| {
        let (n, block) = entry.split_first_chunk::<4>()?;
        Some((u32::from_le_bytes(*n) as usize, block))
    })
}

fn golden_image() -> Vec<u8> {
    let mut image = vec![0; BLOCKS * BLOCK];
    for (n, block) in golden_blocks() {
        image[n * BLOCK..][..BLOCK].copy_from_slice(block);
    }
    image
}

fn golden_owner() -> Owner {
    let image = golden_image();
    let superblock = Superblock::decode(&image[BLOCK..2 * BLOCK], 0).expect("the golden volume is sound");
    Owner { uid: superblock.uid, key: superblock.key }
}

/// A slot of the superblock.
pub fn superblock(data: &[u8]) {
    for slot in 0..2 {
        if let Ok(found) = Superblock::decode(data, slot) {
            assert_eq!(found.encode(slot).get(..12), data.get(..12), "a superblock is not what it was");
        }
    }
}

/// The golden slots.
pub fn superblock_seeds() -> Vec<Vec<u8>> {
    let image = golden_image();
    [1, 16].map(|block| image[block * BLOCK..][..BLOCK].to_vec()).to_vec()
}

/// Operations: decoded, shown, encoded again.
pub fn operations(data: &[u8]) {
    let Ok(ops) = Op::decode_all(data) else { return };
    let mut again = Vec::new();
    for op in &ops {
        drop(op.to_string());
        op.encode(&mut again);
    }
    assert_eq!(Op::decode_all(&again).ok(), Some(ops), "operations are not what they were");
}

/// Those of the golden journal.
pub fn operations_seeds() -> Vec<Vec<u8>> {
    let found = golden_blocks().filter_map(|(_, block)| transaction::decode(golden_owner(), block).ok());
    found.map(|found| found.ops.to_vec()).collect()
}

/// A transaction.
pub fn transaction(data: &[u8]) {
    let owner = golden_owner();
    if let Ok(found) = transaction::decode(owner, data) {
        let (bytes, hash) = transaction::encode(owner, &found.header, found.ops);
        assert!(data.starts_with(&bytes) && hash == found.hash, "a transaction is not what it was");
    }
}

/// Those of the golden journal.
pub fn transaction_seeds() -> Vec<Vec<u8>> {
    let owner = golden_owner();
    let found = golden_blocks().filter(|(_, block)| transaction::decode(owner, block).is_ok());
    found.map(|(_, block)| block.to_vec()).collect()
}

/// Checks, mounts, uses and repairs an image.
fn try_out(image: &[u8]) -> Result<()> {
    let sim = SimEnv::new(1);
    sim.write_file("/device", image)?;
    let device = sim.device("/device", 0)?;
    dump_journal(&*device, &mut |_| {})?;
    let report = fsck::fsck(&sim.env(), &*device, false);
    let mounted = mount(&sim.env(), device, MountOptions::default());
    match (&report, &mounted) {
        (Ok(report), Err(e)) => assert!(!report.findings.is_empty(), "fsck does not see why: {e}"),
        (Err(_), Ok(_)) => panic!("a volume that cannot be checked is mounted"),
        _ => {}
    }
    if let Ok(fs) = mounted {
        for dir in fs.directories(Path::new("/"))?.into_iter().chain([String::new()]) {
            for entry in fs.list(Path::new(&dir))? {
                let path = Path::new(&dir).join(entry.name);
                let _ = fs.read_all(&path, 1 << 20);
                let _ =
                    (fs.stamp(&path), fs.scan_extent_tail(&path), fs.open_in_place(&path, Access::Direct));
            }
        }
        if let Ok(mut file) = fs.create(Path::new("/fuzzed"), &CreateOptions::default()) {
            file.append(b"bytes")?;
        }
        fs.unmount()?;
    }
    let device = sim.device("/device", 0)?;
    if fsck::fsck(&sim.env(), &*device, true).is_ok_and(|report| report.is_clean()) {
        let again = fsck::fsck(&sim.env(), &*device, false)?;
        assert!(again.findings.is_empty(), "a repair left {:?}", again.findings);
        mount(&sim.env(), device, MountOptions::default()).expect("what was repaired can be mounted");
    }
    Ok(())
}

/// An image, stored as the golden one is; blocks that are left out are zeros.
pub fn volume(data: &[u8]) {
    let mut image = vec![0; BLOCKS * BLOCK];
    for entry in data.chunks(BLOCK + 4) {
        if let Some((n, block)) = entry.split_first_chunk::<4>() {
            let at = u32::from_le_bytes(*n) as usize % BLOCKS * BLOCK;
            image[at..at + block.len()].copy_from_slice(block);
        }
    }
    let _ = try_out(&image);
}

/// The golden volume.
pub fn volume_seeds() -> Vec<Vec<u8>> {
    vec![GOLDEN.to_vec()]
}

/// The golden volume with one more transaction, of these operations, under right checksums.
pub fn volume_sealed(data: &[u8]) {
    let owner = golden_owner();
    let mut image = golden_image();
    let changes = golden_blocks().filter_map(|(n, block)| {
        let found = transaction::decode(owner, block).ok()?;
        (found.header.kind == Kind::Change).then_some((n, found.header.sequence, found.hash))
    });
    let Some((block, sequence, chain)) = changes.max_by_key(|(_, sequence, _)| *sequence) else { return };
    let header = Header { kind: Kind::Change, sequence: sequence + 1, chain, durable: 0, salt: 1, part: 0 };
    let mut ops = data.to_vec();
    let mut r = Reader::new(data);
    let mut whole = 0;
    // What follows the last whole operation is left out: it would only be refused.
    while Op::decode(&mut r).is_ok() {
        whole = data.len() - r.rest().len();
    }
    ops.truncate(whole);
    let (bytes, _) = transaction::encode(owner, &header, &ops);
    let at = (block + 1) * BLOCK;
    if bytes.len() <= BLOCK && at + BLOCK <= image.len() {
        image[at..at + bytes.len()].copy_from_slice(&bytes);
        let _ = try_out(&image);
    }
}

/// The operations of the golden journal.
pub fn volume_sealed_seeds() -> Vec<Vec<u8>> {
    operations_seeds()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_volume_is_sound() {
        try_out(&golden_image()).unwrap();
        assert!(operations_seeds().len() > 3 && transaction_seeds().len() > 3);
        volume_seeds().iter().for_each(|seed| volume(seed));
        volume_sealed_seeds().iter().for_each(|seed| volume_sealed(seed));
        let mut rng = io::Rng::new(1);
        for target in ["volume", "volume_sealed", "operations", "transaction", "superblock"] {
            let target = crate::TARGETS.iter().find(|t| t.name == target).unwrap();
            let seeds = (target.seeds)();
            for n in 0..300 {
                let mut input = seeds[n % seeds.len()].clone();
                crate::mutate::mutate(&mut rng, &mut input, &seeds, target.len_max);
                (target.run)(&input);
            }
        }
    }
}
