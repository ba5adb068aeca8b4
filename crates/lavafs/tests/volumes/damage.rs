//! Damage to an unmounted volume: it is detected, or harmless. Invalid volumes never cause a panic
//! or a hang.

use io::sim::SimEnv;
use io::{CreateOptions, FileSystem, Rng, SyncKind};
use lavastore_lavafs::{FormatOptions, LavaFs, MountOptions, dump_journal, format, fsck, mount, occupant};
use std::collections::BTreeMap;
use std::path::Path;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 256;
const SLOTS: [u64; 2] = [1, 16];

/// Returns a cleanly unmounted volume with a dump and some later transactions.
fn volume() -> SimEnv {
    let sim = SimEnv::new(3);
    let options = FormatOptions {
        unit_len: 8 * BLOCK,
        small_unit_len: 2 * BLOCK,
        journal_len: 8 * BLOCK,
        ..FormatOptions::default()
    };
    format(&sim.env(), &*sim.device("/device", BLOCKS * BLOCK).unwrap(), &options).unwrap();
    let options = MountOptions { compact_journal_at: 6 * BLOCK, ..MountOptions::default() };
    let fs = mount(&sim.env(), sim.device("/device", 0).unwrap(), options).unwrap();
    fs.create_dir_all(Path::new("/d")).unwrap();
    for n in 0..12 {
        let mut file = fs.create(Path::new(&format!("/d/{n}")), &CreateOptions::default()).unwrap();
        file.append(&vec![n as u8 + 1; 3000 * n]).unwrap();
        file.sync(SyncKind::Full).unwrap();
    }
    fs.link(Path::new("/d/3"), Path::new("/three")).unwrap();
    fs.unmount().unwrap();
    sim
}

fn open(sim: &SimEnv) -> base::Result<LavaFs> {
    mount(&sim.env(), sim.device("/device", 0)?, MountOptions { read_only: true, ..MountOptions::default() })
}

fn contents(fs: &LavaFs) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for dir in ["/", "/d"] {
        for entry in fs.list(Path::new(dir)).unwrap() {
            let path = Path::new(dir).join(&entry.name);
            all.insert(path.display().to_string(), fs.read_all(&path, 1 << 30).unwrap());
        }
    }
    all
}

/// Returns the blocks of the superblock and the journal.
fn metadata_blocks(sim: &SimEnv) -> Vec<u64> {
    let mut offsets = Vec::new();
    dump_journal(&*sim.device("/device", 0).unwrap(), &mut |line| {
        let offset = line.strip_prefix("offset ").and_then(|l| l.split(':').next()?.parse::<u64>().ok());
        offsets.extend(offset.map(|o| o / BLOCK));
    })
    .unwrap();
    assert!(offsets.len() > 4, "dump and transactions");
    SLOTS.into_iter().chain(offsets).collect()
}

#[test]
fn metadata_bit_flips_are_detected_or_have_no_effect() {
    let sim = volume();
    let sound = contents(&open(&sim).unwrap());
    let mut rng = Rng::new(1);
    let (mut noticed, mut harmless) = (0, 0);
    for block in metadata_blocks(&sim) {
        for _ in 0..60 {
            // Most data lies at the front of its block.
            let at = if rng.one_in(2) { rng.below(200) } else { rng.below(BLOCK) };
            let damaged = sim.fork(1);
            damaged.flip_bit("/device", block * BLOCK + at, rng.below(8) as u32).unwrap();
            match open(&damaged) {
                Ok(fs) => {
                    assert_eq!(contents(&fs), sound, "block {block}, byte {at}");
                    harmless += 1;
                }
                Err(e) => {
                    assert!(e.is_corruption() && e.file().is_some(), "block {block}, byte {at}: {e}");
                    noticed += 1;
                    let report =
                        fsck::fsck(&damaged.env(), &*damaged.device("/device", 0).unwrap(), false).unwrap();
                    assert!(!report.is_clean(), "fsck names the damage");
                }
            }
        }
    }
    assert!(noticed > 50 && harmless > 50, "{noticed} noticed, {harmless} harmless");
}

#[test]
fn one_damaged_slot_is_survived_named_and_healed() {
    for slot in SLOTS {
        let sim = volume();
        let sound = contents(&open(&sim).unwrap());
        let damaged = sim.fork(1);
        damaged.overwrite("/device", slot * BLOCK, &[0x5a; 4096]).unwrap();
        assert_eq!(contents(&open(&damaged).unwrap()), sound);
        let device = damaged.device("/device", 0).unwrap();
        let report = fsck::fsck(&damaged.env(), &*device, false).unwrap();
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
        assert!(report.findings[0].what.contains("slot"), "{:?}", report.findings);
        // A writable mount repairs the damage, and so does a repair.
        let mounted = damaged.fork(2);
        drop(mount(&mounted.env(), mounted.device("/device", 0).unwrap(), MountOptions::default()).unwrap());
        assert!(fsck::fsck(&damaged.env(), &*device, true).unwrap().is_clean());
        for healed in [mounted, damaged] {
            let device = healed.device("/device", 0).unwrap();
            let report = fsck::fsck(&healed.env(), &*device, false).unwrap();
            assert!(report.findings.is_empty(), "{:?}", report.findings);
            assert_eq!(contents(&open(&healed).unwrap()), sound);
        }
    }
}

#[test]
fn a_repair_keeps_transactions_before_the_damage() {
    let sim = volume();
    let sound = contents(&open(&sim).unwrap());
    let blocks = metadata_blocks(&sim);
    let damaged = sim.fork(1);
    damaged.flip_bit("/device", blocks[blocks.len() - 2] * BLOCK + 80, 3).unwrap();
    assert!(open(&damaged).unwrap_err().is_corruption());
    let device = damaged.device("/device", 0).unwrap();
    let report = fsck::fsck(&damaged.env(), &*device, true).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    let told = &report.findings[0].what;
    assert!(
        told.contains("gives up transactions 14; behind the damage it keeps 1)"),
        "{:?}",
        report.findings
    );
    assert!(fsck::fsck(&damaged.env(), &*device, false).unwrap().findings.is_empty());
    let kept = contents(&open(&damaged).unwrap());
    assert!(kept.len() + 3 > sound.len() && kept.len() <= sound.len(), "{} of {}", kept.len(), sound.len());
    for (path, bytes) in &kept {
        assert!(sound[path].starts_with(bytes), "{path}");
    }
    // The repaired volume works normally.
    let fs = mount(&damaged.env(), device, MountOptions::default()).unwrap();
    fs.create(Path::new("/new"), &CreateOptions::default()).unwrap().append(b"x").unwrap();
    fs.unmount().unwrap();
}

#[test]
fn stale_or_misplaced_blocks_are_detected_or_have_no_effect() {
    let sim = volume();
    let sound = contents(&open(&sim).unwrap());
    let blocks = metadata_blocks(&sim);
    let mut rng = Rng::new(2);
    for _ in 0..400 {
        let damaged = sim.fork(1);
        let to = blocks[rng.below(blocks.len() as u64) as usize];
        let from =
            if rng.one_in(2) { rng.below(BLOCKS) } else { blocks[rng.below(blocks.len() as u64) as usize] };
        damaged.copy_block(("/device", from * BLOCK), ("/device", to * BLOCK), BLOCK as usize).unwrap();
        match open(&damaged) {
            Ok(fs) => assert_eq!(contents(&fs), sound, "block {from} over {to}"),
            Err(e) => assert!(e.is_corruption(), "block {from} over {to}: {e}"),
        }
    }
}

#[test]
fn a_device_that_holds_something_else_is_not_overwritten() {
    let sim = SimEnv::new(1);
    let device = sim.device("/disk", 4 << 20).unwrap();
    assert_eq!(occupant(&*device).unwrap(), None);
    for (at, bytes, name) in [(1080, &b"\x53\xef"[..], "ext"), (0, b"XFSB", "XFS"), (70_000, b"?", "unknown")]
    {
        let sim = sim.fork(1);
        sim.overwrite("/disk", at, bytes).unwrap();
        let device = sim.device("/disk", 0).unwrap();
        assert!(occupant(&*device).unwrap().unwrap().contains(name));
        let small = FormatOptions { unit_len: 64 << 10, journal_len: 64 << 10, ..FormatOptions::default() };
        let refused = format(&sim.env(), &*device, &small).unwrap_err();
        assert_eq!(refused.kind(), base::ErrorKind::AlreadyExists, "{refused}");
        format(&sim.env(), &*device, &FormatOptions { force: true, ..small }).unwrap();
        assert!(occupant(&*device).unwrap().unwrap().contains("LavaFS"));
        assert!(format(&sim.env(), &*device, &small).is_err(), "a volume is not overwritten either");
    }
    assert_eq!(
        mount(&sim.env(), device, MountOptions::default()).unwrap_err().kind(),
        base::ErrorKind::NotFound
    );
}

#[test]
fn a_device_that_was_cut_off_is_refused() {
    let sim = volume();
    sim.set_file_len("/device", (BLOCKS - 1) * BLOCK).unwrap();
    assert!(open(&sim).unwrap_err().is_corruption());
}

/// Returns the transactions and dump parts of a volume: for each the offset and the numbers of the
/// affected files.
fn journal(sim: &SimEnv) -> Vec<(u64, bool, Vec<u64>)> {
    let mut all: Vec<(u64, bool, Vec<u64>)> = Vec::new();
    dump_journal(&*sim.device("/device", 0).unwrap(), &mut |line| {
        if let Some(rest) = line.strip_prefix("offset ") {
            let (offset, rest) = rest.split_once(": ").unwrap();
            all.push((offset.parse().unwrap(), rest.starts_with("dump"), Vec::new()));
        } else if let Some((_, rest)) = line.split_once("file ")
            && let Ok(ino) = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse()
        {
            all.last_mut().unwrap().2.push(ino);
        }
    })
    .unwrap();
    all
}

/// Returns the file numbers by path.
fn inos(sim: &SimEnv) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    dump_journal(&*sim.device("/device", 0).unwrap(), &mut |line| {
        if let Some((ino, path)) = line.trim().strip_prefix("link file ").and_then(|l| l.split_once(" as ")) {
            all.insert(path.replace("//", "/"), ino.parse().unwrap());
        }
    })
    .unwrap();
    all
}

/// Damages each block of the dump and the journal in turn. A repair loses at most files of the
/// damaged transactions, and names them.
#[test]
fn a_damaged_journal_block_loses_only_its_transactions() {
    let sim = volume();
    let (sound, inos) = (contents(&open(&sim).unwrap()), inos(&sim));
    let (mut lost, mut of_dump) = (0, 0);
    for (offset, is_dump, about) in journal(&sim) {
        let damaged = sim.fork(1);
        damaged.overwrite("/device", offset, &[0x5a; 4096]).unwrap();
        let device = damaged.device("/device", 0).unwrap();
        let report = fsck::fsck(&damaged.env(), &*device, false).unwrap();
        if is_dump {
            assert_eq!(contents(&open(&damaged).unwrap()), sound, "the dump is there twice");
            of_dump += 1;
        }
        let is_last = report.findings.is_empty();
        assert!(report.findings.len() < 20, "offset {offset}: {:?}", report.findings);
        assert!(fsck::fsck(&damaged.env(), &*device, true).unwrap().is_clean());
        let again = fsck::fsck(&damaged.env(), &*device, false).unwrap();
        assert!(again.findings.is_empty(), "offset {offset}: {:?}", again.findings);
        let kept = contents(&open(&damaged).unwrap());
        for (path, bytes) in &sound {
            if kept.get(path) == Some(bytes) {
                continue;
            }
            lost += 1;
            assert!(!is_last && !is_dump, "offset {offset}: {path} is lost");
            assert!(
                about.contains(&inos[path]),
                "offset {offset} is about files {about:?}, and {path} is lost"
            );
        }
        // The file has a name again, or the transaction that removed it is lost.
        assert!(
            kept.keys().all(|path| sound.contains_key(path) || path.starts_with("/lost-")),
            "{:?}",
            kept.keys()
        );
        let fs = mount(&damaged.env(), device, MountOptions::default()).unwrap();
        fs.create(Path::new("/new"), &CreateOptions::default()).unwrap().append(b"x").unwrap();
        fs.unmount().unwrap();
    }
    assert!(lost > 0 && of_dump > 0, "{lost} lost, {of_dump} parts of a dump");
}
