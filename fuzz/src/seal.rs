//! Where the checksums of each file of a store are, and how they are computed anew after damage.
//!
//! The formats are those of `docs/format`. What is written here a second time is only where a checksum lies and what it
//! covers; a mistake in it shows at once, because then the seeds are not valid any more (see the tests).

use crate::files::MemRead;
use base::checksum::{checksum, checksum_of, mask};
use base::{Compression, Uid};
use io::PAGE;
use std::sync::Arc;
use table::footer::FOOTER_LEN;
use table::{Ksst, Vsst, segment};
use version::names::FileKind;
use wal::page::{FIRST_FRAGMENT_HEADER_LEN, NEXT_FRAGMENT_HEADER_LEN, Owner};

/// A part of a file under a checksum of its own.
#[derive(Clone, Debug)]
pub struct Region {
    /// Where it begins.
    pub start: usize,
    /// Its bytes, checksum included.
    pub len: usize,
    /// True for a record of a vSST.
    pub is_record: bool,
    seal: Seal,
}

impl Region {
    fn new(start: usize, len: usize, seal: Seal) -> Self {
        Region { start, len, is_record: false, seal }
    }
}

#[derive(Clone, Debug)]
enum Seal {
    Frame(Uid),
    Footer,
    Page,
    OpenPage,
    ManifestHeader,
    Record(Uid),
    Current,
}

/// Bytes that end with a checksum of all before it.
pub fn frame_at(start: usize, len: usize, uid: Uid) -> Region {
    Region::new(start, len, Seal::Frame(uid))
}

/// The regions of a valid file of a store.
pub fn regions(kind: FileKind, bytes: &[u8]) -> Vec<Region> {
    match kind {
        FileKind::Ksst(_) | FileKind::FastKsst(_) => of_table(bytes),
        FileKind::Vsst(_) | FileKind::FastVsst(_) if bytes.ends_with(&segment::footer::MAGIC) => {
            of_segment(bytes)
        }
        FileKind::Vsst(_) | FileKind::FastVsst(_) => of_vsst(bytes),
        FileKind::Log(_) => of_pages(bytes, &Seal::Page),
        FileKind::Staging | FileKind::LaneStaging(_) => of_pages(bytes, &Seal::OpenPage),
        FileKind::Manifest(_) => of_manifest(bytes),
        FileKind::Current => vec![Region::new(0, bytes.len(), Seal::Current)],
        _ => Vec::new(),
    }
}

fn of_table(bytes: &[u8]) -> Vec<Region> {
    let file = Arc::new(MemRead(bytes.to_vec()));
    let uid = table::footer::uid_of(&*file).expect("a valid table");
    let table = Ksst::open(file, 1, uid, None, Arc::new(cache::Cache::new(0))).expect("a valid table");
    let mut text = String::new();
    table::dump::dump(&table, table::dump::DumpOptions::default(), &mut text).expect("a valid table");
    let mut all = listed(&text, "block", uid);
    all.push(footer_of(bytes));
    all
}

/// The regions that a listing names, one a line. Their order does not matter.
fn listed(text: &str, what: &str, uid: Uid) -> Vec<Region> {
    let region = |line: &str| {
        let (offset, rest) = line.strip_prefix(what)?.split_once('+')?;
        let (start, len) = (offset.trim().parse().ok()?, rest.split(' ').next()?.parse().ok()?);
        Some(Region::new(start, len, Seal::Frame(uid)))
    };
    text.lines().filter_map(region).collect()
}

/// The last bytes of a table, a file of values or a file of logs, whose footers are sealed alike.
pub fn footer_of(bytes: &[u8]) -> Region {
    Region::new(bytes.len() - FOOTER_LEN, FOOTER_LEN, Seal::Footer)
}

/// The records first, then the rest.
fn of_vsst(bytes: &[u8]) -> Vec<Region> {
    let file = Arc::new(MemRead(bytes.to_vec()));
    let uid = table::footer::uid_of(&*file).expect("a valid vSST");
    let vsst = Vsst::open(file, 1, uid, Arc::new(cache::Cache::new(0))).expect("a valid vSST");
    let mut text = String::new();
    let options = table::dump::DumpOptions { entries: true };
    table::dump_vsst(&Arc::new(vsst), options, &mut text).expect("a valid vSST");
    // A record ends with a checksum of all before it, as a frame does.
    let mut all = listed(&text, "record", uid);
    all.iter_mut().for_each(|record| record.is_record = true);
    all.extend(listed(&text, "block", uid));
    all.push(footer_of(bytes));
    all
}

/// Header and chunks are sealed as frames are.
fn of_segment(bytes: &[u8]) -> Vec<Region> {
    let footer = bytes.last_chunk().expect("a valid segment");
    let uid = uid_at(footer, 0);
    let footer =
        segment::footer::SegmentFooter::decode(footer, uid, bytes.len() as u64).expect("a valid segment");
    let mut all = vec![Region::new(0, footer.header_len as usize, Seal::Frame(uid))];
    let chunk_len = footer.chunk_len as usize + segment::SUM_LEN;
    let end = bytes.len() - FOOTER_LEN;
    for start in (footer.header_len as usize..end).step_by(chunk_len) {
        all.push(Region::new(start, chunk_len.min(end - start), Seal::Frame(uid)));
    }
    all.push(footer_of(bytes));
    all
}

fn of_pages(bytes: &[u8], seal: &Seal) -> Vec<Region> {
    let pages = bytes.chunks_exact(PAGE).enumerate().filter(|(_, page)| page.starts_with(&wal::page::MAGIC));
    pages.map(|(i, _)| Region::new(i * PAGE, PAGE, seal.clone())).collect()
}

fn of_manifest(bytes: &[u8]) -> Vec<Region> {
    let mut all = vec![Region::new(0, MANIFEST_HEADER_LEN, Seal::ManifestHeader)];
    let uid = manifest_uid(bytes);
    let mut start = MANIFEST_HEADER_LEN;
    while let Some(len) = bytes.get(start..start + 4) {
        let len = RECORD_HEADER_LEN + u32_at(len, 0) as usize;
        all.push(Region::new(start, len, Seal::Record(uid)));
        start += len;
    }
    all
}

/// Bytes of a manifest's header.
pub const MANIFEST_HEADER_LEN: usize = 64;
/// Bytes before the payload of a manifest's record.
pub const RECORD_HEADER_LEN: usize = 24;

/// The identity in a manifest's header.
pub fn manifest_uid(bytes: &[u8]) -> Uid {
    uid_at(bytes, 32)
}

fn uid_at(bytes: &[u8], at: usize) -> Uid {
    let mut uid = Uid::default();
    uid.0.copy_from_slice(&bytes[at..at + 16]);
    uid
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn put_sum(bytes: &mut [u8], at: usize, sum: u32) {
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Computes the checksum of a region anew.
pub fn seal(file: &mut [u8], region: &Region) {
    let file_len = file.len();
    let Some(bytes) = file.get_mut(region.start..region.start + region.len) else { return };
    let offset = region.start as u64;
    match &region.seal {
        Seal::Frame(uid) => {
            let Some(sum_at) = bytes.len().checked_sub(4) else { return };
            let sum = checksum(&bytes[..sum_at]) ^ mask(*uid, offset);
            put_sum(bytes, sum_at, sum);
        }
        Seal::Footer => {
            let sum = checksum_of(&[&bytes[..48], &bytes[52..]]);
            let at = (file_len - FOOTER_LEN) as u64;
            put_sum(bytes, 48, sum ^ mask(uid_at(bytes, 0), at));
        }
        Seal::Page => {
            seal_fragments(bytes);
            let sum = checksum(&bytes[8..]) ^ mask(page_uid(bytes), u64_at(bytes, 40));
            put_sum(bytes, 4, sum);
        }
        Seal::OpenPage => {
            seal_fragments(bytes);
            let covered = &bytes[8..owner_of(bytes).header_len()];
            let sum = checksum(covered) ^ mask(page_uid(bytes), u64_at(bytes, 40));
            put_sum(bytes, 4, sum);
        }
        Seal::ManifestHeader => {
            let sum = checksum(&bytes[..60]) ^ mask(manifest_uid(bytes), 0);
            put_sum(bytes, 60, sum);
        }
        Seal::Record(uid) => {
            let sum = checksum_of(&[&bytes[..4], &bytes[8..]]) ^ mask(*uid, offset);
            put_sum(bytes, 4, sum);
        }
        Seal::Current => seal_current(bytes),
    }
}

/// Whose a page says that it is.
fn owner_of(page: &[u8]) -> Owner {
    Owner { store: uid_at(page, 16), group: (page[8] > 1).then(|| uid_at(page, 88)) }
}

/// What the checksums of a page are masked with.
fn page_uid(page: &[u8]) -> Uid {
    let Owner { store: mut uid, group } = owner_of(page);
    uid.0.iter_mut().zip(group.unwrap_or_default().0).for_each(|(a, b)| *a ^= b);
    uid
}

/// The checksums of the fragments of a page, as far as their lengths lead.
fn seal_fragments(page: &mut [u8]) {
    let (uid, lpn) = (page_uid(page), u64_at(page, 40));
    let mut pos = owner_of(page).header_len();
    while pos + NEXT_FRAGMENT_HEADER_LEN < page.len() {
        let header_len = match page[pos + 6] {
            1 | 2 => FIRST_FRAGMENT_HEADER_LEN,
            3 | 4 => NEXT_FRAGMENT_HEADER_LEN,
            _ => return,
        };
        let end = pos + header_len + usize::from(u16_at(page, pos + 4));
        let Some(covered) = page.get(pos + 4..end) else { return };
        let place = lpn.wrapping_mul(PAGE as u64).wrapping_add(pos as u64);
        let sum = checksum(covered) ^ mask(uid, place);
        put_sum(page, pos, sum);
        pos = end;
    }
}

fn seal_current(bytes: &mut [u8]) {
    let sum_len = "checksum 00000000\n".len();
    let Some(at) = bytes.len().checked_sub(sum_len) else { return };
    let line = format!("checksum {:08x}\n", checksum(&bytes[..at]));
    bytes[at..].copy_from_slice(line.as_bytes());
}

/// A frame of a table around a payload, for offset 0.
pub fn frame(payload: &[u8], codec: u8, uid: Uid) -> Vec<u8> {
    let mut frame = payload.to_vec();
    table::frame::seal(&mut frame, 0, Compression::None);
    let codec_at = payload.len();
    frame[codec_at] = codec;
    let sum = checksum(&frame[..=codec_at]) ^ mask(uid, 0);
    put_sum(&mut frame, codec_at + 1, sum);
    frame
}
