//! The parts of a table, each by itself.

use crate::files::{NUMBER, UID, entries};
use crate::seal;
use base::range_del::{FragmentedRangeTombstones, RangeTombstone};
use base::{Result, Uid, ValueKind, key};
use cache::Block;
use io::Rng;
use table::block::{InlineBlockBuilder, InlineCursor};
use table::cursor::BlockCursor;
use table::footer::{FOOTER_LEN, Footer};
use table::frame::BlockHandle;
use table::index::{IndexShape, Separators};
use table::packed::Packed;
use table::reference_block::{ReferenceBlockBuilder, ReferenceCursor};
use table::sections::{self, Section};
use table::{Dependency, Properties, Reference, filter, index, packed, tombstone_block};

/// Steps that a walk through a block takes at most: more entries than bytes there cannot be.
fn steps_max(data: &[u8]) -> usize {
    data.len() + 2
}

/// Internal keys to search for: those of the seeds, and extremes.
fn targets() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = entries(1, 4).into_iter().map(|(ikey, _)| ikey).collect();
    all.push(key::seek_target(b"", base::MAX_SEQ));
    all.push(vec![0xff; 40]);
    all.push(b"short".to_vec());
    all
}

fn walk<C: BlockCursor>(data: &[u8], global_seq: Option<u64>) -> Result<()> {
    let mut cursor = C::default();
    cursor.load(Block::from(data), global_seq)?;
    let mut steps = 0;
    let mut moved = cursor.seek_to_first();
    while moved.is_ok() && cursor.valid() {
        steps += 1;
        assert!(steps <= steps_max(data), "a walk forward that does not end");
        let _ = (cursor.key(), cursor.value(), cursor.expiry());
        moved = cursor.next();
    }
    steps = 0;
    moved = cursor.seek_to_last();
    while moved.is_ok() && cursor.valid() {
        steps += 1;
        assert!(steps <= steps_max(data), "a walk backward that does not end");
        moved = cursor.prev();
    }
    for target in targets() {
        let _ = cursor.seek(&target);
        if cursor.valid() {
            let _ = cursor.prev();
        }
        let _ = cursor.seek_for_prev(&target);
        if cursor.valid() {
            let _ = cursor.next();
        }
        let _ = (cursor.key(), cursor.value(), cursor.expiry());
    }
    Ok(())
}

/// An inline block.
pub fn inline_block(data: &[u8]) {
    let _ = walk::<InlineCursor>(data, None);
    let _ = walk::<InlineCursor>(data, Some(9));
    for target in targets() {
        let (user, trailer) = key::split(&target);
        if let Ok(Some(hit)) = table::block::find(data, user, trailer) {
            assert!(data.get(hit.value).is_some(), "a value outside of its block");
        }
    }
}

/// Inline blocks of several shapes.
pub fn inline_block_seeds() -> Vec<Vec<u8>> {
    let build = |interval: usize, expiry: u64| {
        let mut builder = InlineBlockBuilder::new(interval);
        let mut last: Vec<u8> = Vec::new();
        for (ikey, value) in entries(1, 12).iter().filter(|(k, _)| key::kind(k) != Some(ValueKind::Reference))
        {
            let (user, trailer) = key::split(ikey);
            let shared = table::prefix::shared_len(&last, user);
            builder.add(user, shared, trailer, expiry * (trailer >> 9 & 1), value);
            last = user.to_vec();
        }
        builder.finish().clone()
    };
    vec![build(1, 0), build(4, 0), build(16, 1_700_000_000)]
}

/// A reference block.
pub fn reference_block(data: &[u8]) {
    let _ = walk::<ReferenceCursor>(data, None);
    let _ = walk::<ReferenceCursor>(data, Some(9));
    for target in targets() {
        let (user, trailer) = key::split(&target);
        let _ = table::reference_block::find(data, user, trailer);
    }
}

/// Reference blocks of several shapes.
pub fn reference_block_seeds() -> Vec<Vec<u8>> {
    let build = |interval: usize, expiry: u64| {
        let mut builder = ReferenceBlockBuilder::new(interval);
        let mut last: Vec<u8> = Vec::new();
        for (i, (ikey, _)) in entries(1, 12).iter().enumerate() {
            let (user, trailer) = key::split(ikey);
            let shared = table::prefix::shared_len(&last, user);
            let (blob_id, raw_len) = (3 + i as u64 % 3, 600 + i as u64);
            let reference = Reference { blob_id, raw_len, stored_len: raw_len + 20 };
            builder.add(user, shared, trailer >> 8, expiry * (i as u64 % 2), &reference);
            last = user.to_vec();
        }
        builder.finish().clone()
    };
    vec![build(1, 0), build(4, 0), build(16, 1_700_000_000)]
}

fn index_of<const N: usize>(data: &[u8], start: usize) {
    let Ok(shape) = IndexShape::<N>::parse(data, start) else { return };
    // What readers rely on to end: every row takes some of the block.
    assert!(shape.rows() <= data.len(), "{} rows in {} bytes", shape.rows(), data.len());
    let mut separator = Vec::new();
    for row in (0..shape.rows()).chain([shape.rows(), usize::MAX / 16]) {
        shape.separator(data, row, &mut separator);
        let _ = (0..N + 1).map(|column| shape.column(data, column, row)).fold(0, u64::wrapping_add);
    }
    for target in targets() {
        let (user, trailer) = key::split(&target);
        assert!(shape.search(data, user, trailer) <= shape.rows());
    }
}

/// An index block: a partition, or a top index.
pub fn index_block(data: &[u8]) {
    index_of::<2>(data, 0);
    index_of::<6>(data, 3);
}

/// Index blocks with and without trailers, of two and six columns.
pub fn index_block_seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (columns, trailer) in [(2, 0), (2, 77), (6, 0)] {
        let mut separators = Separators::default();
        for (ikey, _) in entries(1, 9) {
            separators.push_with(trailer, |out| out.extend_from_slice(key::user_key(&ikey)));
        }
        let rows = separators.len();
        let offsets: Vec<u64> = (0..rows as u64).map(|i| i * 300).collect();
        let mut out = if columns == 6 { vec![40, 1, 90] } else { Vec::new() };
        index::encode(&mut out, &separators, 0..rows, &vec![&offsets[..]; columns]);
        all.push(out);
    }
    all
}

/// A filter partition.
pub fn filter_partition(data: &[u8]) {
    let mut rng = Rng::new(5);
    for hash in [0, 1, u64::MAX, 1 << 32].into_iter().chain((0..8).map(|_| rng.next_u64())) {
        let _ = filter::may_contain(data, hash);
    }
}

/// Filters of one and of many lines.
pub fn filter_seeds() -> Vec<Vec<u8>> {
    let hashes = |n: u64| (0..n).map(|i| base::hash::key_hash(&i.to_le_bytes())).collect::<Vec<_>>();
    vec![filter::build(&hashes(5), 10), filter::build(&hashes(200), 10), filter::build(&hashes(1), 1)]
}

/// The properties of a table.
pub fn properties(data: &[u8]) {
    let Ok(p) = Properties::decode(data) else { return };
    let _ = (p.raw_bytes(), format!("{p:?}"), table::frame::check_codecs(p.codecs));
}

/// Properties with every field.
pub fn properties_seeds() -> Vec<Vec<u8>> {
    let dependency =
        |blob_id| Dependency { blob_id, count: 1 << 33, raw_bytes: 1 << 40, stored_bytes: u64::MAX };
    let mut p = Properties { entries: 9, max_seq: 1 << 50, codecs: 7, ..Properties::default() };
    p.identity.number = NUMBER;
    p.identity.uid = UID;
    p.identity.inputs = vec![1, 1 << 40];
    p.smallest = key::encode(b"a", 1, ValueKind::Value);
    p.largest = key::encode(b"z", 1, ValueKind::Value);
    p.dependencies = vec![dependency(3), dependency(u64::MAX)];
    vec![p.encode(), Properties::default().encode()]
}

/// The meta index.
pub fn meta_index(data: &[u8]) {
    if let Ok(all) = sections::decode(data) {
        assert!(all.len() <= data.len());
    }
}

/// A meta index with every section.
pub fn meta_index_seeds() -> Vec<Vec<u8>> {
    let section = |tag: u8| Section { tag, handle: BlockHandle { offset: u64::from(tag) << 30, len: 900 } };
    vec![sections::encode(&[1, 2, 3, 4, 4, 5, 100].map(section)), sections::encode(&[section(1)])]
}

/// A block of range tombstones.
pub fn range_tombstones(data: &[u8]) {
    let mut all = Vec::new();
    if tombstone_block::decode(data, &mut all).is_ok() {
        let fragments = FragmentedRangeTombstones::new(&all);
        for t in &all {
            assert!(fragments.covering(&t.start, base::MAX_SEQ) >= Some(t.seq), "a tombstone was lost");
        }
    }
}

/// Range tombstones that overlap.
pub fn range_tombstone_seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for (start, end, seq) in [("a", "m", 9), ("b", "c", 1 << 40), ("b", "z", 3), ("", "a", 4)] {
        let tombstone = RangeTombstone { start: start.into(), end: end.into(), seq };
        tombstone_block::encode_into(&mut out, &tombstone);
    }
    vec![out]
}

/// A footer: as it is, and with a checksum that fits.
pub fn footer(data: &[u8]) {
    let mut bytes = [0; FOOTER_LEN];
    let len = data.len().min(FOOTER_LEN);
    bytes[..len].copy_from_slice(&data[..len]);
    let file_len = data.get(FOOTER_LEN).map_or(1000, |&n| u64::from(n));
    let _ = Footer::decode(&bytes, UID, file_len);
    let mut uid = Uid::default();
    uid.0.copy_from_slice(&bytes[..16]);
    let sum = base::checksum::checksum_of(&[&bytes[..48], &bytes[52..]]);
    let sum = sum ^ base::checksum::mask(uid, file_len.saturating_sub(FOOTER_LEN as u64));
    bytes[48..52].copy_from_slice(&sum.to_le_bytes());
    if let Ok(footer) = Footer::decode(&bytes, uid, file_len) {
        assert!(footer.meta.end() <= file_len, "a meta index outside of the file");
    }
}

/// A valid footer.
pub fn footer_seeds() -> Vec<Vec<u8>> {
    let meta = BlockHandle { offset: 900, len: 36 };
    vec![Footer { uid: UID, meta, file_len: 1000 }.encode().to_vec()]
}

/// A frame, whose first byte chooses the codec: its checksum always fits, so that decompression is reached.
pub fn frame(data: &[u8]) {
    let _ = table::frame::open(data, UID, 0);
    let Some((&codec, payload)) = data.split_first() else { return };
    let frame = seal::frame(payload, codec % 4, UID);
    if let Ok((codec, payload)) = table::frame::open(&frame, UID, 0)
        && let Ok(block) = table::compress::decompress(codec, payload)
    {
        assert!(block.len() <= base::limits::BLOCK_LEN_MAX);
    }
}

/// A payload of each codec.
pub fn frame_seeds() -> Vec<Vec<u8>> {
    let raw: Vec<u8> = (0..3000u32).map(|i| (i % 17) as u8).collect();
    let codecs = [base::Compression::Lz4, base::Compression::Zstd];
    let compressed = codecs.into_iter().filter_map(|codec| {
        let mut compressor = table::compress::Compressor::default();
        let payload = compressor.compress(codec, &raw).ok()??.clone();
        Some([&[codec as u8][..], &payload].concat())
    });
    std::iter::once(vec![0, 1, 2, 3]).chain(compressed).collect()
}

/// The value of a reference entry.
pub fn reference(data: &[u8]) {
    if let Ok(reference) = Reference::decode(data) {
        assert_eq!(Reference::decode(&reference.encode()).ok(), Some(reference));
    }
}

/// Small and large references.
pub fn reference_seeds() -> Vec<Vec<u8>> {
    let of = |n| Reference { blob_id: n, raw_len: n / 2, stored_len: n }.encode();
    vec![of(1), of(1 << 30), of(u64::MAX)]
}

/// A packed column, whose first byte is the number of values.
pub fn packed_column(data: &[u8]) {
    let Some((&count, block)) = data.split_first() else { return };
    let count = if count < 250 { usize::from(count) } else { usize::MAX >> (count - 250) };
    let mut reader = base::codec::Reader::new(block);
    if let Ok(column) = Packed::parse(block, &mut reader, count) {
        for i in [0, 1, count / 2, count.wrapping_sub(1), count, usize::MAX] {
            column.get(block, i);
        }
    }
}

/// Columns of several widths.
pub fn packed_seeds() -> Vec<Vec<u8>> {
    let of = |shift: u32| {
        let mut out = vec![20];
        packed::encode(&mut out, (0..20u64).map(|i| 5 + (i << shift)));
        out
    };
    vec![of(0), of(7), of(30), of(59)]
}
