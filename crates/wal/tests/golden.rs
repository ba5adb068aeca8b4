//! Guards the disk format: a group written once is still read, and still written, byte for byte.
//!
//! `LAVASTORE_BLESS=1 cargo test -p lavastore-wal --test golden` rewrites the file.

use io::sim::SimEnv;
use io::{Access, PAGE};
use lavastore_wal::{
    Durability, History, Lane, LogGroup, LoggedBatch, PreparedGroup, RecoveryMode, TenantId, Wal, WalOptions,
    dump_group, recover_lane,
};
use std::path::Path;

use base::Uid;

#[path = "../../io/tests/golden_files/mod.rs"]
mod golden_files;

const GOLDEN: &[u8] = include_bytes!("golden/group-v2.log");
const TEXT: &str = include_str!("golden/group-v2.txt");
/// The same batches, of two tenants.
const GOLDEN_V3: &[u8] = include_bytes!("golden/group-v3.log");
const TEXT_V3: &str = include_str!("golden/group-v3.txt");
/// The same batches in the lane that keeps records.
const GOLDEN_V4: &[u8] = include_bytes!("golden/group-v4.log");
const TEXT_V4: &str = include_str!("golden/group-v4.txt");
/// The same, from before the first release with that lane.
const GOLDEN_LANE_V3: &[u8] = include_bytes!("golden/group-v3-lane-1.log");
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

/// Writes a group with small batches, one over several pages, durable and buffered ones, and a
/// watermark.
fn write(lane: Lane, tenant_of: fn(usize) -> TenantId) -> Vec<u8> {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let file = env.fs.create_in_place(Path::new(PATH), 8 * PAGE as u64, Access::Direct).unwrap();
    let options = WalOptions { lane, tail_buffer_len: 4 * PAGE, ..WalOptions::default() };
    let first = PreparedGroup { ltn: 3, uid: group(), file };
    let start = (1 << 32) - 2;
    let wal = Wal::start(&env, Path::new("/"), options, store(), start, first, History::default()).unwrap();
    for (i, batch) in batches().iter().enumerate() {
        let seq = 100 + 10 * i as u64;
        let position = wal.append(tenant_of(i), &[batch], seq, seq + 9, Durability::Buffered, 40 + i as u64);
        let position = position.unwrap();
        if i % 2 == 0 {
            wal.syncer().sync(position).unwrap();
        }
    }
    wal.close().unwrap();
    sim.read_file(PATH).unwrap()
}

/// The tenants of the batches in a store with one engine, and with two.
fn alone(_: usize) -> TenantId {
    TenantId::FIRST
}

fn two(i: usize) -> TenantId {
    TenantId([0, 5][i % 2])
}

#[test]
fn a_group_is_written_byte_for_byte() {
    golden_files::check(
        env!("CARGO_MANIFEST_DIR"),
        &[
            ("group-v2.log", write(Lane::FIRST, alone), GOLDEN),
            ("group-v3.log", write(Lane::FIRST, two), GOLDEN_V3),
            ("group-v4.log", write(Lane::LOG, two), GOLDEN_V4),
        ],
    );
}

/// Reads all batches of a group; returns its dump.
fn read(bytes: &[u8], lane: Lane, uid: Option<Uid>, tenant_of: fn(usize) -> TenantId) -> String {
    let sim = SimEnv::new(2);
    sim.write_file(PATH, bytes).unwrap();
    let env = sim.env();
    let file = env.fs.open_in_place(Path::new(PATH), Access::Direct).unwrap();
    let mut text = String::new();
    dump_group(&*file, &mut text).unwrap();
    let mut replayed = Vec::new();
    let groups = [LogGroup { ltn: 3, uid, file, sealed_end: None, begin: None }];
    let mode = RecoveryMode::ReadOnly;
    let mut take = |batch: &LoggedBatch<'_>| {
        replayed.push((batch.tenant, batch.first_seq, batch.bytes.to_vec()));
        Ok(())
    };
    let report = recover_lane(&env, Path::new("/"), (store(), lane), &groups, mode, &mut take).unwrap();
    let batches = batches().into_iter().enumerate();
    let expected: Vec<_> = batches.map(|(i, b)| (tenant_of(i), 100 + 10 * i as u64, b)).collect();
    assert!(replayed == expected);
    assert_eq!((report.seqs.last(TenantId::FIRST), report.witness_edit), (Some(149), 44));
    assert_eq!(report.unverified_tail_bytes, 0);
    assert_eq!(report.sealed, Some((3, report.next_lpn)));
    text
}

#[test]
fn a_group_is_read_and_shown() {
    let texts = [
        (
            "group-v2.txt",
            read(&write(Lane::FIRST, alone), Lane::FIRST, Some(group()), alone).into_bytes(),
            TEXT.as_bytes(),
        ),
        (
            "group-v4.txt",
            read(&write(Lane::LOG, two), Lane::LOG, Some(group()), two).into_bytes(),
            TEXT_V4.as_bytes(),
        ),
        (
            "group-v3.txt",
            read(&write(Lane::FIRST, two), Lane::FIRST, Some(group()), two).into_bytes(),
            TEXT_V3.as_bytes(),
        ),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &texts);
    assert_eq!(read(GOLDEN_V4, Lane::LOG, Some(group()), two), TEXT_V4);
    assert_eq!(read(GOLDEN, Lane::FIRST, Some(group()), alone), TEXT);
    assert_eq!(read(GOLDEN_V3, Lane::FIRST, Some(group()), two), TEXT_V3);
}

#[test]
fn a_group_of_version_1_is_read_and_shown() {
    assert_eq!(read(GOLDEN_V1, Lane::FIRST, None, alone), TEXT_V1);
}

/// The group is refused by its version, and not taken for an empty log.
#[test]
fn the_other_lane_in_version_3_is_refused() {
    let sim = SimEnv::new(2);
    sim.write_file(PATH, GOLDEN_LANE_V3).unwrap();
    let env = sim.env();
    let file = env.fs.open_in_place(Path::new(PATH), Access::Direct).unwrap();
    let groups = [LogGroup { ltn: 3, uid: Some(group()), file, sealed_end: None, begin: None }];
    let of = (store(), Lane::LOG);
    let read = recover_lane(&env, Path::new("/"), of, &groups, RecoveryMode::ReadOnly, &mut |_| Ok(()));
    let e = read.unwrap_err();
    assert_eq!((e.kind(), e.offset()), (base::ErrorKind::Unsupported, Some(0)));
    assert!(e.message().contains("log stream 1 has format 3"), "{e}");
}
