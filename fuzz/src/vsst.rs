//! Files of values: vSSTs and segments, whole and in parts.

use crate::files::{MemRead, NUMBER, UID, segments, value_key, vssts};
use crate::ksst::Listing;
use crate::script::{self, patches};
use crate::seal::{Region, regions, seal};
use base::{Result, Uid};
use cache::Cache;
use std::sync::{Arc, OnceLock};
use table::dump::DumpOptions;
use table::footer::{FOOTER_LEN, FileKind, Footer};
use table::segment::footer as segment_footer;
use table::{ReadCounters, Reference, SegmentReader, SegmentReference, Vsst, VsstProperties, dump_vsst};
use version::names;

/// Everything that can be done with a vSST.
fn use_vsst(bytes: &[u8], uid: Uid) -> Result<()> {
    let cache = Arc::new(Cache::new(1 << 20));
    let vsst = Arc::new(Vsst::open(Arc::new(MemRead(bytes.to_vec())), NUMBER, uid, cache)?);
    let mut counters = ReadCounters::default();
    for i in (0..400).step_by(13) {
        let (key, seq) = value_key(i);
        let _ = read(&vsst, &key, seq, &Reference { blob_id: 1, raw_len: 20, stored_len: 64 }, &mut counters);
    }
    // The dense keys say what there is; each record takes some of the file, so there are not more than bytes.
    let mut entries = 0;
    let mut keys = vsst.keys();
    while let Ok(cursor) = &mut keys
        && cursor.valid()
    {
        entries += 1;
        assert!(entries <= bytes.len(), "a walk that does not end");
        let e = cursor.entry();
        let reference = Reference { blob_id: 1, raw_len: e.raw_len, stored_len: e.stored_len };
        if entries % 7 == 0 {
            let _ = read(&vsst, e.user_key, e.seq, &reference, &mut counters);
        }
        let place = usize::try_from(e.offset).unwrap_or(usize::MAX);
        let end = place.saturating_add(usize::try_from(e.stored_len).unwrap_or(usize::MAX));
        if let Some(stored) = bytes.get(place..end)
            && let Ok(record) = vsst.open_record(stored, e.offset)
        {
            assert_eq!(record.stored.len(), stored.len());
            let _ = vsst.open_value(stored.to_vec(), e.offset, record.user_key, record.seq, &reference);
        }
        if cursor.next().is_err() {
            break;
        }
    }
    let _ = vsst.verify();
    let mut listing = Listing::new(bytes.len() * 1000 + (1 << 28));
    let _ = dump_vsst(&vsst, DumpOptions { entries: true }, &mut listing);
    Ok(())
}

/// Reads a value twice; what is returned has the length that was asked for.
fn read(vsst: &Vsst, key: &[u8], seq: u64, reference: &Reference, counters: &mut ReadCounters) -> Result<()> {
    for fill_cache in [true, false] {
        let value = vsst.get(key, seq, reference, fill_cache, counters)?;
        assert_eq!(value.len() as u64, reference.raw_len, "a value of another length");
    }
    Ok(())
}

/// The bytes of a vSST.
pub fn vsst(data: &[u8]) {
    let uid = table::footer::uid_of(&MemRead(data.to_vec())).unwrap_or(UID);
    let _ = use_vsst(data, uid);
}

/// Valid vSSTs.
pub fn vsst_seeds() -> Vec<Vec<u8>> {
    let mut all = vssts();
    all.push(include_bytes!("../../crates/table/tests/golden/vsst-v1-none.bin").to_vec());
    all.push(include_bytes!("../../crates/table/tests/golden/vsst-v1-lz4.bin").to_vec());
    all.push(include_bytes!("../../crates/table/tests/golden/vsst-v1-zstd.bin").to_vec());
    all
}

type Base = (Vec<u8>, Vec<Region>);

fn with_regions(bytes: Vec<u8>) -> Base {
    let regions = regions(names::FileKind::Vsst(NUMBER), &bytes);
    (bytes, regions)
}

/// Runs a script over one of several files.
fn damaged(bases: &[Base], data: &[u8]) -> Vec<u8> {
    let (&first, script) = data.split_first().unwrap_or((&0, &[]));
    let (bytes, regions) = &bases[usize::from(first) % bases.len()];
    let mut bytes = bytes.clone();
    for patch in patches(script) {
        // Records are many, and what reads them little: every other patch is for the parts behind them.
        let from = if patch.part % 2 == 0 { 0 } else { regions.iter().filter(|r| r.is_record).count() };
        let regions = &regions[from..];
        let Some(region) = patch.region_of(regions.len()).map(|i| &regions[i]) else { continue };
        patch.apply(&mut bytes[region.start..region.start + region.len]);
        seal(&mut bytes, region);
    }
    bytes
}

fn vsst_bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| vssts().into_iter().map(with_regions).collect())
}

/// A script of damage to a valid vSST, under valid checksums. The first byte chooses the file.
pub fn vsst_sealed(data: &[u8]) {
    let _ = use_vsst(&damaged(vsst_bases(), data), UID);
}

/// Scripts for each of the files.
pub fn vsst_script_seeds() -> Vec<Vec<u8>> {
    script::seeds().into_iter().enumerate().map(|(i, s)| [&[i as u8][..], &s].concat()).collect()
}

/// The properties of a vSST.
pub fn vsst_properties(data: &[u8]) {
    let Ok(p) = VsstProperties::decode(data) else { return };
    assert!(p.alignment.is_power_of_two() && p.record_bytes / u64::from(p.alignment) >= p.entries);
    let _ = format!("{p:?}");
    assert_eq!(VsstProperties::decode(&p.encode()).ok(), Some(p));
}

/// Properties with every field.
pub fn vsst_properties_seeds() -> Vec<Vec<u8>> {
    let mut p = VsstProperties {
        entries: 9,
        record_bytes: 1 << 30,
        raw_bytes: 1 << 31,
        min_seq: 1,
        max_seq: 1 << 50,
        alignment: 64,
        class: 1,
        took_over: vec![3, 5, 1 << 40],
        codecs: 7,
        created_unix_seconds: 1 << 31,
        smallest: b"a".to_vec(),
        largest: b"z".to_vec(),
        dense_bytes: 300,
        index_bytes: 200,
        ..VsstProperties::default()
    };
    p.identity.number = NUMBER;
    p.identity.uid = UID;
    p.identity.inputs = vec![1, 1 << 40];
    vec![p.encode()]
}

/// The footers of a vSST and of a segment: as they are, and with a checksum that fits.
pub fn vsst_footer(data: &[u8]) {
    let mut bytes = [0; FOOTER_LEN];
    let len = data.len().min(FOOTER_LEN);
    bytes[..len].copy_from_slice(&data[..len]);
    let file_len = data.get(FOOTER_LEN).map_or(1000, |&n| u64::from(n) * 8);
    let mut uid = Uid::default();
    uid.0.copy_from_slice(&bytes[..16]);
    for _ in 0..2 {
        if let Ok(footer) = Footer::decode_as(FileKind::Vsst, &bytes, uid, file_len) {
            assert!(footer.meta.end() <= file_len, "a meta index outside of the file");
        }
        if let Ok(footer) = segment_footer::SegmentFooter::decode(&bytes, uid, file_len) {
            assert!(u64::from(footer.header_len) + footer.raw_len <= file_len, "a value outside of the file");
        }
        let sum = base::checksum::checksum_of(&[&bytes[..48], &bytes[52..]]);
        let sum = sum ^ base::checksum::mask(uid, file_len.saturating_sub(FOOTER_LEN as u64));
        bytes[48..52].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A valid footer of each.
pub fn vsst_footer_seeds() -> Vec<Vec<u8>> {
    let ends = vssts().into_iter().chain(segments());
    ends.filter_map(|file| file.last_chunk::<FOOTER_LEN>().map(|footer| footer.to_vec())).collect()
}

/// Everything that can be done with a segment.
fn use_segment(bytes: &[u8], uid: Uid) -> Result<()> {
    let segment = Arc::new(SegmentReader::open(Arc::new(MemRead(bytes.to_vec())), NUMBER, uid)?);
    let raw_len = segment.raw_len();
    assert!(raw_len <= bytes.len() as u64, "more value than file");
    for offset in [0, 1, raw_len / 2, raw_len.saturating_sub(1), raw_len, u64::MAX] {
        let mut buf = [0; 50];
        let _ = segment.read_range(offset, &mut buf);
        let _ = segment.read_range(offset, &mut buf[..1]);
    }
    let _ = (segment.read_all(10), segment.verify());
    if let Ok(value) = segment.read_all(u64::MAX) {
        assert_eq!(value.len() as u64, raw_len);
    }
    Ok(())
}

/// The bytes of a segment.
pub fn segment(data: &[u8]) {
    let uid = table::footer::uid_of(&MemRead(data.to_vec())).unwrap_or(UID);
    let _ = use_segment(data, uid);
}

/// Valid segments.
pub fn segment_seeds() -> Vec<Vec<u8>> {
    let mut all = segments();
    all.push(include_bytes!("../../crates/table/tests/golden/segment-v1.bin").to_vec());
    all
}

fn segment_bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| segments().into_iter().map(with_regions).collect())
}

/// A script of damage to a valid segment, under valid checksums. The first byte chooses the file.
pub fn segment_sealed(data: &[u8]) {
    let _ = use_segment(&damaged(segment_bases(), data), UID);
}

/// What log and memtable carry in place of a large value.
pub fn segment_reference(data: &[u8]) {
    if let Ok(reference) = SegmentReference::decode(data) {
        assert_eq!(SegmentReference::decode(&reference.encode()).ok(), Some(reference));
        let _ = reference.in_table();
    }
}

/// Small and large references.
pub fn segment_reference_seeds() -> Vec<Vec<u8>> {
    let of = |n| SegmentReference { file: n, uid: UID, raw_len: n / 2, stored_len: n, checksum: n as u32 };
    vec![of(1).encode(), of(1 << 30).encode(), of(u64::MAX).encode()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resealed_files_are_valid() {
        for (bytes, regions) in vsst_bases().iter().chain(segment_bases()) {
            let mut sealed = bytes.clone();
            regions.iter().for_each(|region| seal(&mut sealed, region));
            assert!(&sealed == bytes);
            assert_eq!(regions.iter().map(|r| r.len).sum::<usize>(), bytes.len());
        }
        for (bytes, _) in vsst_bases() {
            use_vsst(bytes, UID).unwrap();
            let vsst = Vsst::open(Arc::new(MemRead(bytes.clone())), NUMBER, UID, Arc::new(Cache::new(0)));
            Arc::new(vsst.unwrap()).verify().unwrap();
        }
        segment_bases().iter().for_each(|(bytes, _)| use_segment(bytes, UID).unwrap());
    }
}
