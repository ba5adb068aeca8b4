//! The log of a block device, and its images after a loss of power.
//!
//! QEMU's `blklogwrites` writes the format of the kernel's dm-log-writes: sectors of 512 bytes. The
//! first sector is the superblock. For each request there is one sector that describes it, followed
//! by its data. All integers are little-endian.
//!
//! | of the superblock | bytes | |
//! |---|---|---|
//! | 0 | 8 | `0x6a736677736872` |
//! | 8 | 8 | version, 1 |
//! | 16 | 8 | number of requests at the last write of the superblock |
//! | 24 | 4 | bytes per sector |
//!
//! | of a request | bytes | |
//! |---|---|---|
//! | 0 | 8 | first sector |
//! | 8 | 8 | sectors |
//! | 16 | 8 | 1 flush (before the data), 2 FUA, 4 discard (no data), 8 mark (no data for the device) |
//! | 24 | 8 | length of a mark in bytes |
//!
//! A request is logged on completion, so a flush covers all earlier entries. Of the writes after
//! the last flush a device may hold any: each sector of 512 bytes has any of its later versions. An
//! image includes each of these writes wholly, in part, or not at all, in order; a random draw
//! decides.

use crate::check::{Check, ensure};
use crate::state::entry_hash;
use io::Rng;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const SECTOR: usize = 512;
const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const DURABLE: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
const BLOCK: usize = 4096;

/// A request in the log.
#[derive(Debug)]
pub(super) struct Request {
    /// End of the log in bytes after this request was logged.
    pub log_end: u64,
    pub flushes: bool,
    durable: bool,
    /// Offset on the device in bytes.
    offset: u64,
    /// Its data in the log.
    data: Range<usize>,
}

/// Completed requests of a device, in order.
#[derive(Debug)]
pub(super) struct Log {
    bytes: Vec<u8>,
    pub requests: Vec<Request>,
}

fn word(bytes: &[u8], at: usize) -> Check<u64> {
    let word = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    word.map(u64::from_le_bytes).ok_or_else(|| format!("the log of the device ends inside a number at {at}"))
}

impl Log {
    /// Parses a log after its daemon has ended.
    pub fn parse(bytes: Vec<u8>) -> Check<Log> {
        ensure!(word(&bytes, 0)? == MAGIC, "the log of the device has no superblock");
        ensure!(word(&bytes, 8)? == 1, "the log of the device has an unknown version");
        let (mut at, mut requests) = (SECTOR, Vec::new());
        while at + SECTOR <= bytes.len() {
            let (sector, count, flags) = (word(&bytes, at)?, word(&bytes, at + 8)?, word(&bytes, at + 16)?);
            ensure!(flags < 16 && count < 1 << 32, "the log of the device makes no sense at {at}");
            ensure!(
                flags & DISCARD == 0,
                "the log of the device holds a discard at {at}, which was switched off"
            );
            let data_len = if flags & MARK != 0 { word(&bytes, at + 24)? } else { count * SECTOR as u64 };
            let data = at + SECTOR..at + SECTOR + (data_len as usize).next_multiple_of(SECTOR);
            at = data.end;
            if at > bytes.len() {
                // The daemon was killed while it logged this request.
                break;
            }
            requests.push(Request {
                log_end: at as u64,
                flushes: flags & FLUSH != 0,
                durable: flags & DURABLE != 0,
                offset: sector * SECTOR as u64,
                data: if flags & MARK != 0 { at..at } else { data },
            });
        }
        Ok(Log { bytes, requests })
    }

    fn data(&self, request: &Request) -> &[u8] {
        &self.bytes[request.data.clone()]
    }

    /// Returns the points of power failures in ascending order, as numbers of completed requests.
    /// Half of them are right before a flush, where most data is at risk.
    pub fn points(&self, rng: &mut Rng, count: usize) -> Vec<usize> {
        let all = self.requests.len() as u64;
        let mut points: Vec<usize> = (0..count)
            .map(|_| {
                let at = rng.below(all + 1) as usize;
                if rng.one_in(2) {
                    return at;
                }
                let rest = self.requests[at..].iter().position(|r| r.flushes);
                rest.map_or(at, |more| at + more)
            })
            .collect();
        points.sort_unstable();
        points
    }
}

/// A replay of a log up to its flushes.
pub(super) struct Replay<'a> {
    log: &'a Log,
    image: DeviceImage,
    /// Number of requests in the image: all up to a flush.
    held: usize,
    /// Unit of atomic writes in bytes.
    atom: usize,
}

impl<'a> Replay<'a> {
    /// Starts with the contents of the device before the log.
    pub fn new(log: &'a Log, image: DeviceImage, atom: usize) -> Self {
        Replay { log, image, held: 0, atom }
    }

    /// Returns a possible image after a power failure at `point`, which must not decrease between
    /// calls.
    pub fn image_at(&mut self, point: usize, rng: &mut Rng) -> DeviceImage {
        let flushed = self.log.requests[..point].iter().rposition(|r| r.flushes).unwrap_or(self.held);
        for request in &self.log.requests[self.held.min(flushed)..flushed] {
            self.image.write(request.offset, self.log.data(request));
        }
        self.held = self.held.max(flushed);
        let mut image = self.image.clone();
        let kept_of_four = rng.below(5);
        for request in &self.log.requests[self.held..point] {
            if request.durable {
                image.write(request.offset, self.log.data(request));
            } else if rng.below(4) < kept_of_four {
                let torn = rng.one_in(4);
                for (n, atom) in self.log.data(request).chunks(self.atom).enumerate() {
                    if !torn || rng.one_in(2) {
                        image.write(request.offset + (n * self.atom) as u64, atom);
                    }
                }
            }
        }
        image
    }
}

/// Contents of a device: the blocks that are not all zero.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceImage {
    blocks: BTreeMap<u64, Arc<[u8]>>,
    /// Sum of the hashes of the blocks.
    hash: u64,
}

impl DeviceImage {
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns runs of bytes that are not all zero, with their offsets.
    pub fn runs(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.blocks.iter().map(|(block, bytes)| (block * BLOCK as u64, &bytes[..]))
    }

    pub fn write(&mut self, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let (block, within) = (offset / BLOCK as u64, (offset % BLOCK as u64) as usize);
            let (now, rest) = data.split_at(data.len().min(BLOCK - within));
            self.write_in(block, within, now);
            (offset, data) = (offset + now.len() as u64, rest);
        }
    }

    fn write_in(&mut self, block: u64, within: usize, data: &[u8]) {
        let hash = |bytes: &[u8]| entry_hash(&block.to_le_bytes(), bytes);
        let old = self.blocks.get(&block);
        let mut bytes = old.map_or_else(|| vec![0; BLOCK], |old| old.to_vec());
        self.hash = self.hash.wrapping_sub(old.map_or(0, |old| hash(old)));
        bytes[within..within + data.len()].copy_from_slice(data);
        if bytes.iter().all(|b| *b == 0) {
            self.blocks.remove(&block);
            return;
        }
        self.hash = self.hash.wrapping_add(hash(&bytes));
        self.blocks.insert(block, bytes.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a log of (first sector, data, flags).
    fn log(requests: &[(u64, &[u8], u64)]) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8] = 1;
        for (sector, data, flags) in requests {
            let mut head = [0; SECTOR];
            head[..8].copy_from_slice(&sector.to_le_bytes());
            head[8..16].copy_from_slice(&((data.len() / SECTOR) as u64).to_le_bytes());
            head[16..24].copy_from_slice(&flags.to_le_bytes());
            bytes.extend_from_slice(&head);
            bytes.extend_from_slice(data);
        }
        bytes
    }

    fn read(image: &DeviceImage, sector: u64) -> u8 {
        let mut all = vec![0; 1 << 16];
        image.runs().for_each(|(at, bytes)| all[at as usize..][..bytes.len()].copy_from_slice(bytes));
        let sector = &all[sector as usize * SECTOR..][..SECTOR];
        assert!(sector.iter().all(|b| *b == sector[0]), "a torn sector");
        sector[0]
    }

    #[test]
    fn flushed_sectors_are_kept_and_others_may_be_lost() {
        let (one, two, three) = ([1; 2 * SECTOR], [2; SECTOR], [3; 2 * SECTOR]);
        let bytes = log(&[(4, &one, 0), (0, &[], FLUSH), (4, &two, 0), (6, &three, 0), (20, &one, DURABLE)]);
        let log = Log::parse(bytes).expect("a log");
        assert_eq!(log.requests.len(), 5);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..500 {
            let image = Replay::new(&log, DeviceImage::default(), SECTOR).image_at(5, &mut Rng::new(seed));
            assert!([1, 2].contains(&read(&image, 4)));
            assert_eq!((read(&image, 5), read(&image, 20)), (1, 1));
            seen.insert((read(&image, 4), read(&image, 6), read(&image, 7)));
        }
        assert_eq!(seen.len(), 8, "each of three sectors is there or not: {seen:?}");
        let nothing = Replay::new(&log, DeviceImage::default(), SECTOR).image_at(0, &mut Rng::new(1));
        assert_eq!(nothing.hash(), DeviceImage::default().hash());
    }

    #[test]
    fn equal_images_have_equal_hashes() {
        let (mut a, mut b) = (DeviceImage::default(), DeviceImage::default());
        a.write(4000, &[7; 200]);
        b.write(4100, &[7; 100]);
        assert_ne!(a.hash(), b.hash());
        b.write(4000, &[7; 150]);
        assert_eq!(a.hash(), b.hash());
        a.write(0, &[0; 8192]);
        assert_eq!((a.hash(), a.runs().count()), (0, 0));
    }

    #[test]
    fn a_log_cut_short_ends_with_its_last_whole_request() {
        let bytes = log(&[(4, &[1; SECTOR], 0), (5, &[2; SECTOR], 0)]);
        let cut = Log::parse(bytes[..bytes.len() - 1].to_vec()).expect("a log");
        assert_eq!(cut.requests.len(), 1);
        assert!(Log::parse(vec![0; 4096]).is_err());
        assert!(Log::parse(log(&[(4, &[], DISCARD)])).is_err());
    }
}
