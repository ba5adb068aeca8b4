//! Damage under valid checksums, byte by byte: verification detects damage that a hostile or faulty
//! writer could leave, and names it.

use crate::common::*;
use base::{Compression, Result};
use cache::Cache;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use table::segment::footer::{FOOTER_LEN, SegmentFooter};
use table::{
    ReadCounters, SegmentIdentity, SegmentReader, SegmentWriter, TableOptions, Vsst, VsstBuilder, VsstOptions,
};

/// Changes the payload of the frame at `offset`, and seals it again.
fn reseal(bytes: &mut [u8], (offset, len): (usize, usize), change: impl FnOnce(&mut [u8])) {
    let frame = &mut bytes[offset..offset + len];
    let mut sealed = frame[..len - 5].to_vec();
    change(&mut sealed);
    table::frame::seal(&mut sealed, 0, Compression::None);
    table::frame::mask(&mut sealed, uid(), offset as u64);
    frame.copy_from_slice(&sealed);
}

/// Returns the blocks of a listing.
fn blocks(listing: &str) -> Vec<(usize, usize)> {
    let numbers = |line: &str| {
        let (offset, rest) = line.strip_prefix("block ")?.split_once('+')?;
        Some((offset.trim().parse().ok()?, rest.split(' ').next()?.parse().ok()?))
    };
    listing.lines().filter_map(numbers).collect()
}

/// Returns the verification messages when each byte of the blocks is changed in each of these ways.
fn told(
    bytes: &[u8],
    blocks: &[(usize, usize)],
    changes: &[fn(u8) -> u8],
    verify: impl Fn(Vec<u8>) -> Result<u64>,
) -> BTreeSet<String> {
    verify(bytes.to_vec()).unwrap();
    let mut told = BTreeSet::new();
    for &block in blocks {
        for at in 0..block.1 - 5 {
            for change in changes {
                let mut damaged = bytes.to_vec();
                reseal(&mut damaged, block, |payload| payload[at] = change(payload[at]));
                if let Err(e) = verify(damaged) {
                    assert!(e.file().is_some() && e.offset().is_some(), "block {block:?}, byte {at}: {e}");
                    told.insert(e.message().to_owned());
                }
            }
        }
    }
    told
}

const CHANGES: &[fn(u8) -> u8] =
    &[|b| b.wrapping_add(1), |b| b.wrapping_sub(1), |b| b ^ 0x80, |_| 0, |b| b ^ 3];

fn verify_vsst(bytes: Vec<u8>) -> Result<u64> {
    vsst::open(bytes, &Arc::new(Cache::new(0)))?.verify()
}

fn listing(vsst: &Arc<Vsst>) -> String {
    let mut text = String::new();
    table::dump_vsst(vsst, Default::default(), &mut text).unwrap();
    text
}

#[test]
fn a_gap_between_arrival_order_values_is_refused() {
    let file = MemAppend::default();
    let shared = file.shared();
    let options = VsstOptions { compression: Compression::None, alignment: 8 };
    let mut builder =
        VsstBuilder::new(Box::new(file), Path::new(PATH), identity(), &options, None).in_order_of_arrival();
    for n in 0..20_u64 {
        builder.append(format!("{:03}", n * 7 % 20).as_bytes(), n + 1, &[n as u8; 40]).unwrap();
    }
    builder.finish(Vec::new()).unwrap();
    let bytes = vsst::take(&shared);
    let text = listing(&vsst::open(bytes.clone(), &Arc::new(Cache::new(0))).unwrap());
    let told = told(&bytes, &blocks(&text), CHANGES, verify_vsst);
    let expected = "a value record does not begin at the end of the one before it";
    assert!(told.iter().any(|told| told.starts_with(expected)), "{told:#?}");
}

/// Versions of a few long keys, so that index blocks end inside a key, and two of their separators
/// fill a node.
#[test]
fn wrong_separators_of_a_two_level_directory_are_refused() {
    let (mut builder, shared) =
        vsst::builder(&VsstOptions { compression: Compression::None, alignment: 8 }, None);
    for n in 0..6_u8 {
        for seq in (1..=129).rev() {
            builder.add(&[b'a' + n; 4096], seq, b"v").unwrap();
        }
    }
    builder.finish(Vec::new()).unwrap();
    let bytes = vsst::take(&shared);
    let text = listing(&vsst::open(bytes.clone(), &Arc::new(Cache::new(0))).unwrap());
    let of_index = |line: &&str| {
        [" index frame ", " directory up to ", " root of "].iter().any(|part| line.contains(part))
    };
    let lines: Vec<&str> = text.lines().filter(of_index).collect();
    let blocks = blocks(&lines.join("\n"));
    let mut told = BTreeSet::new();
    for &block in &blocks {
        // Changes a byte of each separator; about two of them fill a node.
        for part in 1..8 {
            let mut damaged = bytes.clone();
            reseal(&mut damaged, block, |payload| payload[payload.len() * part / 8] ^= 1);
            let e = verify_vsst(damaged).expect_err("a separator that nothing compares");
            assert!(e.file().is_some() && e.offset().is_some(), "block {block:?}: {e}");
            told.insert(e.message().to_owned());
        }
    }
    for expected in [
        "a node of the index tree (directory) ends at another key than its parent gives for it",
        "an index block ends at another key than the index tree (directory) gives for it",
    ] {
        assert!(told.iter().any(|told| told.starts_with(expected)), "{expected}: {told:#?}");
    }
}

/// A value segment whose footer assigns bytes of the header to the value, so that the header is too
/// short.
#[test]
fn a_segment_header_shorter_than_its_checksum_is_refused() {
    let file = MemAppend::default();
    let shared = file.shared();
    let identity = SegmentIdentity { number: 7, uid: uid(), family: 3, edit: 44, created_unix_seconds: 9 };
    let mut writer =
        SegmentWriter::with_chunks(Box::new(file), Path::new(PATH), &identity, b"k", 1000).unwrap();
    writer.append(&[1; 200]).unwrap();
    writer.finish().unwrap();
    let bytes = vsst::take(&shared);
    let (body, footer) = bytes.split_last_chunk::<FOOTER_LEN>().unwrap();
    let footer = SegmentFooter::decode(footer, uid(), bytes.len() as u64).unwrap();
    let moved = u64::from(footer.header_len) - 3;
    let lying = SegmentFooter { header_len: 3, raw_len: footer.raw_len + moved, ..footer };
    let e = SegmentReader::open(MemRead::new([body, &lying.encode()].concat()), 7, uid()).unwrap_err();
    let expected = "the header of the value segment has 3 bytes, but its checksum has 4";
    assert!(e.is_corruption() && e.message() == expected, "{e}");
}

/// A dependency list that does not match the references of the table is rejected on reading it.
#[test]
fn a_name_list_of_another_table_is_refused() {
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let (bytes, _) = build(&random_model(&mut io::Rng::new(1), 60, 0), &[], &options, None);
    let open_table = |bytes| crate::common::open(bytes, &Arc::new(Cache::new(0)));
    let mut text = String::new();
    table::dump::dump(&open_table(bytes.clone()).unwrap(), Default::default(), &mut text).unwrap();
    let properties = text.lines().filter(|line| line.ends_with(" properties")).collect::<Vec<_>>().join("\n");
    let asked = |bytes| {
        let table = open_table(bytes)?;
        table.dependencies(&mut ReadCounters::default()).map(|all| all.len() as u64)
    };
    let told = told(&bytes, &blocks(&properties), CHANGES, asked);
    assert!(told.iter().any(|told| told.starts_with("the properties list ")), "{told:#?}");
}
