//! Footers of the files of logs.

use base::{ErrorKind, Uid, checksum};
use lavalog::disk::footer::{FOOTER_LEN, FileKind, Footer};

const KINDS: [FileKind; 3] = [FileKind::Index, FileKind::Checkpoint, FileKind::Cold];

fn footer(kind: FileKind) -> Footer {
    let uid = Uid::from_words(5, 6);
    Footer { kind, uid, file_len: 1000, directory_offset: 836, directory_len: 100, rows: 9 }
}

#[test]
fn every_bit_flip_is_detected() {
    for kind in KINDS {
        let footer = footer(kind);
        let mut bytes = footer.encode();
        assert_eq!(Footer::decode(kind, &bytes, footer.uid, 1000).unwrap(), footer);
        for i in 0..FOOTER_LEN * 8 {
            bytes[i / 8] ^= 1 << (i % 8);
            let e = Footer::decode(kind, &bytes, footer.uid, 1000).unwrap_err();
            assert!(e.is_corruption() || e.kind() == ErrorKind::Unsupported, "bit {i}: {e}");
            bytes[i / 8] ^= 1 << (i % 8);
        }
        for other in KINDS.into_iter().filter(|other| *other != kind) {
            assert!(Footer::decode(other, &bytes, footer.uid, 1000).unwrap_err().is_corruption());
        }
        assert!(Footer::decode(kind, &bytes, Uid::from_words(5, 7), 1000).unwrap_err().is_corruption());
        assert!(Footer::decode(kind, &bytes, footer.uid, 1001).unwrap_err().is_corruption());
    }
}

#[test]
fn a_newer_version_is_unsupported() {
    let footer = footer(FileKind::Cold);
    let mut bytes = footer.encode();
    bytes[52] = 2;
    base::footer::seal(&mut bytes, checksum::mask(footer.uid, 1000 - FOOTER_LEN as u64));
    let e = Footer::decode(FileKind::Cold, &bytes, footer.uid, 1000).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_misplaced_directory_is_refused_despite_a_valid_checksum() {
    let good = footer(FileKind::Index);
    for bad in [
        Footer { directory_offset: 837, ..good },
        Footer { directory_len: 99, ..good },
        Footer { directory_offset: u64::MAX, directory_len: 937, ..good },
        Footer { directory_offset: 933, directory_len: 3, ..good },
    ] {
        let e = Footer::decode(bad.kind, &bad.encode(), good.uid, good.file_len).unwrap_err();
        assert!(e.is_corruption() && e.offset() == Some(936), "{e}");
    }
}
