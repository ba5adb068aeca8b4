//! Claims: states after a crash in which one flush should have made the bytes and the journal
//! durable together.

use crate::compaction::encode_dump;
use crate::fs::LavaFs;
use crate::layout::{self, Extent};
use crate::op::{FileRecord, Op};
use crate::superblock;
use crate::transaction::Owner;
use crate::{FormatOptions, MountOptions, format, mount};
use base::hash::key_hash;
use base::sync::lock;
use io::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, Policy, SimEnv};
use io::{AppendFile, CreateOptions, FileSystem, SyncKind};
use std::path::Path;

const BLOCK: u64 = 4096;
const FILE: &str = "/a";

fn machine() -> SimEnv {
    let sim = SimEnv::new(3);
    let options = FormatOptions {
        unit_len: 8 * BLOCK,
        small_unit_len: 2 * BLOCK,
        journal_len: 8 * BLOCK,
        ..FormatOptions::default()
    };
    format(&sim.env(), &*sim.device("/device", 400 * BLOCK).unwrap(), &options).unwrap();
    sim
}

fn mounted(sim: &SimEnv) -> LavaFs {
    mount(&sim.env(), sim.device("/device", 0).unwrap(), MountOptions::default()).unwrap()
}

fn power_losses(sim: &SimEnv) -> Vec<SimEnv> {
    let seeds = |policy| (0..40).map(move |seed| (policy, seed));
    let all = Policy::ALL.into_iter().flat_map(seeds);
    all.map(|(policy, seed)| sim.crash(CrashKind::PowerLossWith(policy), seed)).collect()
}

fn create(fs: &LavaFs, path: &str) -> Box<dyn AppendFile> {
    fs.create(Path::new(path), &CreateOptions::default()).unwrap()
}

fn content(fs: &LavaFs, path: &str) -> Option<Vec<u8>> {
    match fs.read_all(Path::new(path), 1 << 20) {
        Ok(bytes) => Some(bytes),
        Err(e) => {
            assert_eq!(e.kind(), base::ErrorKind::NotFound, "{e}");
            None
        }
    }
}

#[test]
fn a_claimed_size_is_accepted_only_with_matching_bytes() {
    let sim = machine();
    let fs = mounted(&sim);
    let whole: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8 + 1).collect();
    let mut file = create(&fs, FILE);
    file.append(&whole[..5_000]).unwrap();
    file.sync(SyncKind::Full).unwrap();
    file.append(&whole[5_000..]).unwrap();
    // A power loss before the flush: the bytes and the journal are not durable yet.
    sim.inject(FaultPlan::nth(0, FaultEffect::Lost).kinds(&[OpKind::SyncData]));
    file.sync(SyncKind::Full).unwrap();
    let (mut without, mut with, mut untrue) = (0, 0, 0);
    for after in power_losses(&sim) {
        let mut text = String::new();
        let device = after.device("/device", 0).unwrap();
        let mut intact = false;
        for block in 0..400 {
            let mut bytes = [0; BLOCK as usize];
            device.read_at(&mut bytes, block * BLOCK).unwrap();
            intact |= bytes.starts_with(b"LFTX") && bytes[32] == 2;
        }
        crate::dump_journal(&*device, &mut |line| text += line).unwrap();
        let fs = mounted(&after);
        let found = content(&fs, FILE).unwrap();
        assert_eq!(found, whole[..found.len()], "a file shows what it was written");
        match found.len() {
            5_000 => without += 1,
            20_000 => with += 1,
            len => panic!("a size of {len} was never recorded"),
        }
        untrue += u32::from(intact && found.len() == 5_000);
        // Torn transactions are overwritten, and the volume continues to work.
        let mut file = create(&fs, "/next");
        file.append(&whole).unwrap();
        file.sync(SyncKind::Full).unwrap();
        let again = mounted(&after.crash(CrashKind::PowerLoss, 1));
        assert_eq!(content(&again, "/next").unwrap(), whole);
        assert_eq!(content(&again, FILE).unwrap(), found);
    }
    assert!(without > 0 && with > 0 && untrue > 0, "{without}, {with}, {untrue}");
}

#[test]
fn claims_on_released_blocks_are_not_verified() {
    let sim = machine();
    let fs = mounted(&sim);
    let old = vec![1; 3 * BLOCK as usize];
    let mut file = create(&fs, FILE);
    file.append(&old).unwrap();
    file.flush().unwrap();
    let blocks = fs.extents(Path::new(FILE)).unwrap();
    {
        // One thread is about to commit its claim when another one removes the file.
        let volume = fs.volume();
        let mut core = lock(&volume.core);
        let ino = core.meta.directories().look_up("", "a").unwrap();
        let claim = Op::Claim { ino, size: old.len() as u64, from: 0, hash: key_hash(&old) };
        volume.queue(&mut core, &claim).unwrap();
        volume.queue(&mut core, &Op::Unlink { dir: String::new(), name: "a".into() }).unwrap();
    }
    fs.sync_dir(Path::new("/")).unwrap();
    drop(file);
    fs.volume().reap().unwrap();
    let mut next = create(&fs, "/next");
    next.append(&vec![2; 3 * BLOCK as usize]).unwrap();
    next.flush().unwrap();
    let reused = fs.extents(Path::new("/next")).unwrap();
    assert!(reused.iter().any(|r| blocks.iter().any(|b| b.start == r.start)), "{blocks:?} {reused:?}");
    for after in power_losses(&sim) {
        assert_eq!(content(&mounted(&after), FILE), None, "a removed file came back");
    }
}

#[test]
fn claims_confirmed_by_a_later_transaction_are_not_verified() {
    let sim = machine();
    let fs = mounted(&sim);
    let mut file = create(&fs, FILE);
    file.append(&[1; 5_000]).unwrap();
    file.sync(SyncKind::Full).unwrap();
    let block = fs.extents(Path::new(FILE)).unwrap()[0];
    fs.sync_dir(Path::new("/")).unwrap();
    let spoil = |sim: &SimEnv| {
        let device = sim.device("/device", 0).unwrap();
        let zeros = io::AlignedBuf::zeroed(BLOCK as usize);
        device.write_durable(zeros.as_slice(), block.offset()).unwrap();
    };
    let last = sim.fork(0);
    spoil(&last);
    assert_eq!(content(&mounted(&last), FILE), None, "the last transaction looks torn");
    drop(create(&fs, "/b"));
    fs.sync_dir(Path::new("/")).unwrap();
    let confirmed = sim.fork(0);
    spoil(&confirmed);
    assert_eq!(
        content(&mounted(&confirmed), FILE).map(|c| c.len()),
        Some(5_000),
        "damage to bytes stays there"
    );
}

/// Another thread writes a transaction between the last sync of an unmount and its superblock
/// write.
#[test]
fn the_superblock_records_the_durable_journal_position() {
    let sim = machine();
    let fs = mounted(&sim);
    fs.sync_dir(Path::new("/")).unwrap();
    let written_only = || {
        let journal = lock(&fs.volume().journal);
        journal.sequence() > journal.durable()
    };
    for i in 0.. {
        if written_only() {
            break;
        }
        drop(create(&fs, &format!("/{i:0200}")));
    }
    fs.volume().note_reached().unwrap();
    for after in power_losses(&sim) {
        mounted(&after);
    }
}

/// A compaction ends while a later transaction is written but not durable. The next sync makes it
/// durable.
#[test]
fn compaction_does_not_assume_later_transactions_are_durable() {
    let sim = machine();
    let fs = mounted(&sim);
    let write_only = |path: &str| {
        drop(create(&fs, path));
        let mut journal = lock(&fs.volume().journal);
        journal.commit(&fs.volume().device, &fs.volume().core, false).unwrap();
        journal.sequence()
    };
    let dumped = write_only("/first");
    let later = write_only("/second");
    {
        let mut journal = lock(&fs.volume().journal);
        journal.note_durable(dumped);
        assert!(journal.durable() < later && !journal.unsynced().is_empty());
    }
    fs.sync_dir(Path::new("/")).unwrap();
    for after in power_losses(&sim) {
        assert!(content(&mounted(&after), "/second").is_some(), "its name was synced");
    }
}

/// The transaction with the journal switch holds no claim, because no device sync precedes the next
/// transaction.
#[test]
fn a_journal_switch_contains_no_claims() {
    let sim = machine();
    let fs = mounted(&sim);
    let mut file = create(&fs, FILE);
    file.append(&[1; 5_000]).unwrap();
    file.sync(SyncKind::Full).unwrap();
    {
        let mut core = lock(&fs.volume().core);
        let ino = core.meta.directories().look_up("", "a").unwrap();
        let hash = key_hash(&[1; 904]);
        core.queue(&Op::Claim { ino, size: 5_000, from: 4_096, hash }).unwrap();
    }
    assert!(!lock(&fs.volume().core).claims.is_empty());
    crate::compaction::Compaction::default().step(fs.volume()).unwrap();
    let (mut transactions, mut claims, mut switches) = (0, Vec::new(), Vec::new());
    crate::fsck::dump_journal(&*sim.fork(0).device("/device", 0).unwrap(), &mut |line| {
        transactions += usize::from(line.starts_with("offset"));
        if line.contains("if those from") {
            claims.push(transactions);
        } else if line.contains("journal switches") {
            switches.push(transactions);
        }
    })
    .unwrap();
    assert!(switches.len() == 1 && !claims.is_empty(), "{switches:?} {claims:?}");
    assert!(!claims.contains(&switches[0]), "{switches:?} {claims:?}");
}

/// Operations that no release writes, as left in the journal by a faulty writer.
#[test]
fn an_inconsistent_journal_is_refused() {
    let switch = || Op::JournalSwitch { extents: vec![Extent::new(300, 8)] };
    let next = || Op::NextIno { ino: 900 };
    let jump = || Op::Jump { sequence: 3, chain: 0, extents: vec![Extent::new(300, 8)] };
    let file = |ino, blocks| {
        let extents = vec![Extent::new(200, blocks)];
        Op::File(FileRecord { ino, size: u64::from(blocks) * BLOCK, closed: true, extents })
    };
    let link = |name: &str, ino| Op::Link { dir: String::new(), name: name.into(), ino };
    let cases: Vec<(&str, Vec<Op>)> = vec![
        (
            "a transaction of the journal has an operation (jump) that only a metadata dump may have",
            vec![jump()],
        ),
        (
            "a transaction of the journal has operations behind its switch to other blocks, which must be the last",
            vec![switch(), next()],
        ),
        (
            "a link to the next blocks of the journal or of its dump names no blocks",
            vec![Op::JournalExtend { extents: Vec::new() }],
        ),
        (
            "a file has a hole of 0 blocks",
            vec![file(800, 8), link("h", 800), Op::Extend { ino: 800, extents: vec![Extent::hole(0)] }],
        ),
        (
            "to two files, or to a file and itself",
            vec![file(800, 8), link("h", 800), file(801, 9), link("i", 801)],
        ),
    ];
    for (told, ops) in cases {
        let sim = machine();
        let fs = mounted(&sim);
        {
            let mut core = lock(&fs.volume().core);
            ops.iter().for_each(|op| op.encode(&mut core.pending));
            core.position += 1;
        }
        fs.sync_dir(Path::new("/")).unwrap();
        drop(fs);
        let device = sim.fork(0).device("/device", 0).unwrap();
        let e = mount(&sim.env(), device, MountOptions::default()).map(drop).expect_err(told);
        assert!(e.is_corruption() && e.message().contains(told), "{told}: {e}");
    }
}

/// Writes a dump that no release writes, in place of the dump of a new volume.
fn told_of_dump(parts: Vec<Vec<u8>>, jump_by: u64) -> String {
    let sim = machine();
    let device = sim.device("/device", 0).unwrap();
    let superblock = superblock::Slots::read(&*device).unwrap().choose().unwrap().0;
    let extents = vec![Extent::new(300, 8)];
    let jump = Op::Jump { sequence: superblock.checkpoint + jump_by, chain: 7, extents };
    let owner = Owner { uid: superblock.uid, key: superblock.key };
    let dump = encode_dump(owner, (superblock.checkpoint, 5), parts, &jump, &superblock.dump).unwrap();
    let image = dump.image.as_slice();
    for (now, offset) in layout::cut(&layout::pieces(&dump.extents, 0, image.len() as u64), image) {
        device.write_at(now, offset.unwrap()).unwrap();
    }
    let e = mount(&sim.env(), device, MountOptions::default()).map(drop).unwrap_err();
    assert!(
        e.is_corruption()
            && e.to_string().contains("the full copy (dump) of the volume's metadata is damaged"),
        "{e}"
    );
    assert!(e.file().is_some() && e.offset().is_some(), "{e}");
    e.message().to_owned()
}

#[test]
fn an_inconsistent_metadata_dump_is_refused() {
    let next = |ino| {
        let mut part = Vec::new();
        Op::NextIno { ino }.encode(&mut part);
        part
    };
    let told = told_of_dump(vec![next(900)], 2);
    assert!(
        told.ends_with("the dump leads to transaction 2 of the journal instead of transaction 1"),
        "{told}"
    );
    let told = told_of_dump(vec![Vec::new()], 1);
    assert!(told.ends_with("a part of the dump has no operations"), "{told}");
}

/// Writes the metadata as a repair does, to a volume without enough free blocks.
#[test]
fn a_metadata_dump_without_space_is_refused() {
    let sim = machine();
    let device = sim.device("/device", 0).unwrap();
    let superblock = superblock::Slots::read(&*device).unwrap().choose().unwrap().0;
    let head = layout::HEAD_BLOCKS;
    let mut meta = crate::meta::Meta::new(400);
    let extents = vec![Extent::new(head, 400 - head - 3)];
    let size = u64::from(400 - head - 3) * BLOCK;
    meta.apply(&Op::File(FileRecord { ino: 1, size, closed: true, extents })).unwrap();
    let before = sim.state_hash();
    let e =
        crate::format::write_journal(&sim.env(), &*device, superblock.clone(), &meta, &[], 9).unwrap_err();
    assert_eq!(e.kind(), base::ErrorKind::NoSpace, "{e}");
    assert_eq!(
        e.message(),
        "the journal and the copy (dump) of the metadata need 8 free blocks of 4096 bytes, more than the device has; use a larger device"
    );
    let owner = Owner { uid: superblock.uid, key: superblock.key };
    let jump = Op::Jump { sequence: 10, chain: 1, extents: vec![Extent::new(390, 3)] };
    let parts = vec![vec![0; 9000]];
    let e = encode_dump(owner, (9, 5), parts, &jump, &[Extent::new(397, 2)]).unwrap_err();
    assert_eq!(e.kind(), base::ErrorKind::NoSpace, "{e}");
    assert_eq!(
        e.message(),
        "the volume has no 16384 free bytes for a copy (dump) of its metadata; remove files, or use a larger device"
    );
    assert_eq!(sim.state_hash(), before, "nothing is written");
}
