//! The format on disk does not change by accident: a group written once is still read, and still written, byte for byte.
//!
//! `LAVASTORE_BLESS=1 cargo test -p lavastore-wal --test golden` writes the file anew.

use io::sim::SimEnv;
use io::{Access, PAGE};
use lavastore_wal::{
    Durability, History, LogGroup, PreparedGroup, RecoveryMode, Wal, WalOptions, dump_group, recover,
};
use std::path::Path;

use base::Uid;

const GOLDEN: &[u8] = include_bytes!("golden/group-v2.log");
const TEXT: &str = include_str!("golden/group-v2.txt");
/// The same batches as an older release wrote them.
const GOLDEN_V1: &[u8] = include_bytes!("golden/group-v1.log");
const TEXT_V1: &str = include_str!("golden/group-v1.txt");
const PATH: &str = "/000000000003.log";

fn store() -> Uid {
    Uid::from_words(0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210)
}

fn group() -> Uid {
    Uid::from_words(0x1111_2222_3333_4444, 0x5555_6666_7777_8888)
}

fn batches() -> Vec<Vec<u8>> {
    let bytes = |len: usize, seed: usize| (0..len).map(|i| (i * 7 + seed * 31) as u8).collect();
    vec![b"first".to_vec(), bytes(200, 1), bytes(9000, 2), bytes(3, 3), bytes(4000, 4)]
}

/// A group with small batches, one over several pages, durable and buffered ones, and a watermark.
fn write() -> Vec<u8> {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let file = env.fs.create_in_place(Path::new(PATH), 8 * PAGE as u64, Access::Direct).unwrap();
    let options = WalOptions { staging_len: 4 * PAGE, ..WalOptions::default() };
    let first = PreparedGroup { ltn: 3, uid: group(), file };
    let start = (1 << 32) - 2;
    let wal = Wal::start(&env, Path::new("/"), options, store(), start, first, History::default()).unwrap();
    for (i, batch) in batches().iter().enumerate() {
        let seq = 100 + 10 * i as u64;
        let position = wal.append(&[batch], seq, seq + 9, Durability::Buffered, 40 + i as u64).unwrap();
        if i % 2 == 0 {
            wal.sync(position).unwrap();
        }
    }
    wal.close().unwrap();
    sim.read_file(PATH).unwrap()
}

#[allow(clippy::disallowed_methods, reason = "writes into the source tree, not a store")]
fn bless(name: &str, bytes: &[u8]) {
    std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name), bytes).unwrap();
}

#[test]
fn a_group_is_written_byte_for_byte() {
    let bytes = write();
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        bless("group-v2.log", &bytes);
    } else {
        assert!(bytes == GOLDEN, "the log's format changed: give it a new version");
    }
}

/// Everything in a group comes back; a listing of it.
fn read(bytes: &[u8], uid: Option<Uid>) -> String {
    let sim = SimEnv::new(2);
    sim.write_file(PATH, bytes).unwrap();
    let env = sim.env();
    let file = env.fs.open_in_place(Path::new(PATH), Access::Direct).unwrap();
    let mut text = String::new();
    dump_group(&*file, &mut text).unwrap();
    let mut replayed = Vec::new();
    let groups = [LogGroup { ltn: 3, uid, file, sealed_end: None }];
    let mode = RecoveryMode::ReadOnly;
    let report = recover(&env, Path::new("/"), store(), &groups, mode, &mut |seq, payload| {
        replayed.push((seq, payload.to_vec()));
        Ok(())
    })
    .unwrap();
    let expected: Vec<_> = batches().into_iter().enumerate().map(|(i, b)| (100 + 10 * i as u64, b)).collect();
    assert!(replayed == expected);
    assert_eq!((report.last_seq, report.witness_edit, report.unverified_tail_bytes), (Some(149), 44, 0));
    assert_eq!(report.sealed, Some((3, report.next_lpn)));
    text
}

#[test]
fn a_group_is_read_and_shown() {
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        return bless("group-v2.txt", read(&write(), Some(group())).as_bytes());
    }
    assert_eq!(read(GOLDEN, Some(group())), TEXT);
}

#[test]
fn a_group_of_version_1_is_read_and_shown() {
    assert_eq!(read(GOLDEN_V1, None), TEXT_V1);
}
