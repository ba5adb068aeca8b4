use super::*;
use std::io::Write;

fn try_read(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    // A tiny buffer, so that every position in a header is once at its edge.
    let input = io::BufReader::with_capacity(3, io::Cursor::new(packed.to_vec()));
    let mut unpacked = io::BufReader::with_capacity(1000, unpack(Box::new(input))?);
    unpacked.read_to_end(&mut out)?;
    Ok(out)
}

fn read(packed: &[u8]) -> Vec<u8> {
    try_read(packed).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut out = lz4_flex::frame::FrameEncoder::new(Vec::new());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// With a content checksum and linked blocks of 64 KiB, like the program `lz4`.
fn lz4_checked(bytes: &[u8]) -> Vec<u8> {
    let info = lz4_flex::frame::FrameInfo::new()
        .content_checksum(true)
        .block_mode(lz4_flex::frame::BlockMode::Linked)
        .block_size(lz4_flex::frame::BlockSize::Max64KB);
    let mut out = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

type Pack = fn(&[u8]) -> Vec<u8>;
const PACKS: [(&str, Pack); 4] =
    [("gzip", gzip), ("LZ4", lz4), ("LZ4, checked", lz4_checked), ("Zstandard", zstd)];

fn text() -> Vec<u8> {
    (0..50_000u32).flat_map(|i| (i % 1000).to_le_bytes()).collect()
}

/// All members of a file are read, not only the first.
#[test]
fn concatenated_members_are_all_read() {
    for (name, pack) in PACKS {
        let parts = [b"one\t1\n".to_vec(), text(), Vec::new(), b"three\t3\n".to_vec()];
        let packed: Vec<u8> = parts.iter().flat_map(|part| pack(part)).collect();
        assert!(read(&packed) == parts.concat(), "{name}");
    }
}

#[test]
fn packed_and_plain_input_reads_alike() {
    assert_eq!(read(&text()), text());
    for plain in [&b""[..], b"a", b"abc", b"abcd", &[0x04, 0x22], &[0x28, 0xb5, 0x2f]] {
        assert_eq!(read(plain), plain);
    }
    for (name, pack) in PACKS {
        assert!(read(&pack(&text())) == text(), "{name}");
        assert_eq!(read(&pack(b"")), b"", "{name}");
    }
}

#[test]
fn trailing_garbage_after_a_member_is_an_error_with_its_offset() {
    for (name, pack) in PACKS {
        let packed = pack(&text());
        let other = if name == "gzip" { lz4(b"x") } else { gzip(b"x") };
        for garbage in [&b"x"[..], b"garbage\n", &[0; 512], &[0x1f], &packed[..1], &other] {
            if name == "gzip" && garbage == [0x1f, 0x8b] {
                continue;
            }
            let error = try_read(&[&packed[..], garbage].concat()).unwrap_err().to_string();
            let place = format!("offset {} of the packed file", packed.len());
            assert!(error.starts_with(&place), "{name}, {garbage:?}: {error}");
        }
    }
}

#[test]
fn a_truncated_member_is_an_error_at_every_length() {
    let long: Vec<u8> = (0..40_000u64).flat_map(|i| (i * i * 0x9e37_79b9).to_le_bytes()).collect();
    for (name, pack) in PACKS {
        let (first, second) = (pack(b"first\n"), pack(b"second\n"));
        for cut in 1..second.len() {
            let packed = [&first[..], &second[..cut]].concat();
            assert!(try_read(&packed).is_err(), "{name}: cut off at {cut} of {}", second.len());
        }
        // Also at the end of any block of a long one.
        let packed = pack(&long);
        for cut in (5..packed.len()).step_by(4_999).chain(packed.len() - 12..packed.len()) {
            assert!(try_read(&packed[..cut]).is_err(), "{name}: cut off at {cut} of {}", packed.len());
        }
    }
}

#[test]
fn a_frame_without_its_end_mark_is_cut_off() {
    // The decoder takes the end of the file for the end of the frame.
    let packed = lz4(b"line\n");
    let error = try_read(&packed[..packed.len() - 4]).unwrap_err().to_string();
    assert!(error.contains("cut off"), "{error}");
}

#[test]
fn damage_is_an_error() {
    for (name, pack) in [PACKS[0], PACKS[2]] {
        let mut packed = pack(&text());
        let middle = packed.len() / 2;
        packed[middle] ^= 0x40;
        let error = try_read(&packed).unwrap_err().to_string();
        assert!(error.contains("offset ") && error.contains("cannot be unpacked"), "{name}: {error}");
    }
}

#[test]
fn skippable_frames_are_skipped() {
    let skippable =
        |len: u32| [&[0x5a, 0x2a, 0x4d, 0x18][..], &len.to_le_bytes(), &vec![7; len as usize]].concat();
    for pack in [lz4 as Pack, zstd] {
        let packed =
            [skippable(0), pack(b"a"), skippable(1000), skippable(3), pack(b"b"), skippable(5)].concat();
        assert_eq!(read(&packed), b"ab");
    }
    assert_eq!(read(&skippable(9)), b"");
    assert!(try_read(&[&lz4(b"a")[..], &skippable(100)[..50]].concat()).is_err());
    assert!(try_read(&[&skippable(5)[..], b"plain"].concat()).is_err());
    assert!(try_read(&[&gzip(b"a")[..], &skippable(5)].concat()).is_err());
}

#[test]
fn a_legacy_frame_is_refused() {
    let error = try_read(&[0x02, 0x21, 0x4c, 0x18, 1, 0, 0, 0, 0]).unwrap_err().to_string();
    assert!(error.contains("lz4 -d"), "{error}");
}
