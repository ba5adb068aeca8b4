//! Protection of the disk format: volumes made by earlier releases are still readable, and the
//! bytes written today are the same.
//!
//! `LAVASTORE_BLESS=1 cargo test -p lavastore-lavafs --test volumes golden` rewrites the files.
//! The image is stored without blocks of zeros: block number (4 bytes), block.

use io::sim::SimEnv;
use io::{Access, CreateOptions, FileSystem, SyncKind};
use lavastore_lavafs::{
    Devices, FormatOptions, MountOptions, dump_journal, dump_journal_on, format, format_on, fsck, fsck_on,
    mount, mount_on,
};
use std::path::Path;

#[path = "../../../io/tests/golden_files/mod.rs"]
mod golden_files;

/// Image by a release that wrote each dump only once.
const IMAGE_ONE_DUMP: &[u8] = include_bytes!("../golden/volume-v2-one-dump.bin");
const TEXT_ONE_DUMP: &str = include_str!("../golden/volume-v2-one-dump.txt");
const IMAGE_V1: &[u8] = include_bytes!("../golden/volume-v1.bin");
const TEXT_V1: &str = include_str!("../golden/volume-v1.txt");
const IMAGE: &[u8] = include_bytes!("../golden/volume-v2.bin");
const TEXT: &str = include_str!("../golden/volume-v2.txt");
/// The same volume after its device became longer.
const GROWN: &[u8] = include_bytes!("../golden/volume-v2-grown.bin");
const GROWN_TEXT: &str = include_str!("../golden/volume-v2-grown.txt");
/// A volume of two devices.
const SPEED: &[u8] = include_bytes!("../golden/volume-v3-speed.bin");
const CAPACITY: &[u8] = include_bytes!("../golden/volume-v3-capacity.bin");
const TWO_TEXT: &str = include_str!("../golden/volume-v3.txt");
const BLOCK: usize = 4096;
const BLOCKS: usize = 160;
const GROWN_BLOCKS: usize = 256;

fn small() -> FormatOptions {
    FormatOptions {
        unit_len: 8 * BLOCK as u64,
        small_unit_len: 2 * BLOCK as u64,
        journal_len: 4 * BLOCK as u64,
        ..FormatOptions::default()
    }
}

/// Writes a volume with all kinds of contents.
fn write() -> SimEnv {
    let sim = SimEnv::new(11);
    let options = small();
    let env = sim.env();
    format(&env, &*sim.device("/device", (BLOCKS * BLOCK) as u64).unwrap(), &options).unwrap();
    let options = MountOptions { compact_journal_at: 3 * BLOCK as u64, ..MountOptions::default() };
    let fs = mount(&env, sim.device("/device", 0).unwrap(), options).unwrap();
    let p = Path::new;
    fs.create_dir_all(p("/store/tables")).unwrap();
    fs.create_dir_all(p("/old")).unwrap();
    let mut file = fs.create(p("/store/tables/a"), &CreateOptions::default()).unwrap();
    file.append(&[b'a'; 20_000]).unwrap();
    file.sync(SyncKind::Data).unwrap();
    file.append(&[b'b'; 7]).unwrap();
    file.sync(SyncKind::Full).unwrap();
    drop(file);
    fs.link(p("/store/tables/a"), p("/second name")).unwrap();
    fs.create_in_place(p("/store/log"), 3 * BLOCK as u64, Access::Direct).unwrap();
    fs.punch_hole(p("/store/tables/a"), 4096, 8192).unwrap();
    drop(fs.create(p("/gone"), &CreateOptions::default()).unwrap());
    fs.sync_dir(p("/")).unwrap();
    fs.remove(p("/gone")).unwrap();
    fs.rename(p("/old"), p("/new")).unwrap();
    fs.rename(p("/second name"), p("/new/name")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    let mut open = fs.create(p("/open"), &CreateOptions::default()).unwrap();
    open.append(b"not closed").unwrap();
    open.sync(SyncKind::Data).unwrap();
    // State after a power loss: no file is closed.
    sim.fork(0)
}

/// Returns contents larger than the old free space. They are mostly zeros, which the golden file
/// omits.
fn grown_file() -> Vec<u8> {
    let mut bytes = vec![0; (GROWN_BLOCKS - BLOCKS) * BLOCK];
    bytes[(GROWN_BLOCKS - BLOCKS - 2) * BLOCK..].fill(b'g');
    bytes
}

/// Grows the volume with its device, and adds a file that needs the new space.
fn write_grown() -> SimEnv {
    let sim = write();
    sim.lengthen_device("/device", (GROWN_BLOCKS * BLOCK) as u64).unwrap();
    let options = MountOptions { grow: true, ..MountOptions::default() };
    let fs = mount(&sim.env(), sim.device("/device", 0).unwrap(), options).unwrap();
    let mut file = fs.create(Path::new("/grown"), &CreateOptions::default()).unwrap();
    file.append(&grown_file()).unwrap();
    file.sync(SyncKind::Full).unwrap();
    sim.fork(0)
}

fn two(sim: &SimEnv) -> Devices {
    let device = |name| sim.device(name, (BLOCKS * BLOCK) as u64).unwrap();
    Devices::two(device("/fast"), device("/large"))
}

/// Writes a volume of two devices, with files on either device and on both.
fn write_two() -> SimEnv {
    let sim = SimEnv::new(12);
    let options = small();
    let env = sim.env();
    format_on(&env, &two(&sim), &options).unwrap();
    let fs = mount_on(&env, two(&sim), MountOptions::default()).unwrap();
    for (path, len) in [("/1.log", 3 * BLOCK), ("/2.ksst", 2 * BLOCK), ("/large", 140 * BLOCK)] {
        let mut file = fs.create(Path::new(path), &CreateOptions::default()).unwrap();
        let mut bytes = vec![0; len];
        bytes[len - 10..].fill(path.as_bytes()[1]);
        file.append(&bytes).unwrap();
        file.sync(SyncKind::Full).unwrap();
    }
    sim.fork(0)
}

fn described_two(sim: &SimEnv) -> String {
    let mut text = String::new();
    dump_journal_on(&two(sim), &mut |line| text += &format!("{line}\n")).unwrap();
    text
}

#[test]
fn a_volume_of_two_devices_is_read() {
    let sim = SimEnv::new(1);
    sim.write_file("/fast", &unpacked(SPEED, BLOCKS)).unwrap();
    sim.write_file("/large", &unpacked(CAPACITY, BLOCKS)).unwrap();
    let report = fsck_on(&sim.env(), &two(&sim), false).unwrap();
    assert!(report.findings.is_empty() && report.files == 3, "{report:?}");
    assert_eq!(described_two(&sim), TWO_TEXT);
    let fs = mount_on(&sim.env(), two(&sim), MountOptions::default()).unwrap();
    for (path, len, end) in [("/1.log", 3, b'1'), ("/2.ksst", 2, b'2'), ("/large", 140, b'l')] {
        let bytes = fs.read_all(Path::new(path), 1 << 20).unwrap();
        let (zeros, last) = bytes.split_at(len * BLOCK - 10);
        assert!(zeros.iter().all(|&b| b == 0) && last == [end; 10], "{path}");
    }
    assert!(fs.devices().iter().all(|device| device.file_bytes > 0));
}

fn packed(sim: &SimEnv) -> Vec<u8> {
    packed_from(sim, "/device")
}

fn packed_from(sim: &SimEnv, device: &str) -> Vec<u8> {
    let bytes = sim.read_file(device).unwrap();
    let mut out = Vec::new();
    for (n, block) in bytes.chunks(BLOCK).enumerate().filter(|(_, b)| b.iter().any(|&x| x != 0)) {
        out.extend_from_slice(&(n as u32).to_le_bytes());
        out.extend_from_slice(block);
    }
    out
}

fn unpacked(packed: &[u8], blocks: usize) -> Vec<u8> {
    let mut bytes = vec![0; blocks * BLOCK];
    for entry in packed.chunks(BLOCK + 4) {
        let n = u32::from_le_bytes(entry[..4].try_into().unwrap()) as usize;
        bytes[n * BLOCK..][..BLOCK].copy_from_slice(&entry[4..]);
    }
    bytes
}

fn described(sim: &SimEnv) -> String {
    let mut text = String::new();
    dump_journal(&*sim.device("/device", 0).unwrap(), &mut |line| text += &format!("{line}\n")).unwrap();
    text
}

#[test]
fn a_volume_is_written_byte_for_byte() {
    let (sim, grown, two) = (write(), write_grown(), write_two());
    let now = [
        ("volume-v3-capacity.bin", packed_from(&two, "/large"), CAPACITY),
        ("volume-v3-speed.bin", packed_from(&two, "/fast"), SPEED),
        ("volume-v3.txt", described_two(&two).into_bytes(), TWO_TEXT.as_bytes()),
        ("volume-v2-grown.bin", packed(&grown), GROWN),
        ("volume-v2-grown.txt", described(&grown).into_bytes(), GROWN_TEXT.as_bytes()),
        ("volume-v2.bin", packed(&sim), IMAGE),
        ("volume-v2.txt", described(&sim).into_bytes(), TEXT.as_bytes()),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
}

#[test]
fn volumes_of_all_versions_are_read() {
    is_read(IMAGE_V1, TEXT_V1, BLOCKS);
    is_read(IMAGE, TEXT, BLOCKS);
    is_read(IMAGE_ONE_DUMP, TEXT_ONE_DUMP, BLOCKS);
    is_read(GROWN, GROWN_TEXT, GROWN_BLOCKS);
}

/// A version 1 volume stays readable by older releases.
#[test]
fn a_volume_of_version_1_gets_no_claims() {
    let sim = SimEnv::new(1);
    sim.write_file("/device", &unpacked(IMAGE_V1, BLOCKS)).unwrap();
    let fs = mount(&sim.env(), sim.device("/device", 0).unwrap(), MountOptions::default()).unwrap();
    let mut file = fs.create(Path::new("/new file"), &CreateOptions::default()).unwrap();
    file.append(b"of 18 bytes, as is").unwrap();
    file.sync(SyncKind::Full).unwrap();
    let text = described(&sim.fork(0));
    assert!(text.contains("has 18 bytes\n") && !text.contains("if those from"), "{text}");
    fs.unmount().unwrap();
    drop((file, fs));
    let bytes = sim.read_file("/device").unwrap();
    for slot in [1, 16] {
        assert_eq!(bytes[slot * BLOCK + 8..][..4], 1u32.to_le_bytes(), "the version in block {slot}");
    }
}

fn is_read(image: &[u8], text: &str, blocks: usize) {
    let sim = SimEnv::new(1);
    sim.write_file("/device", &unpacked(image, blocks)).unwrap();
    let device = sim.device("/device", 0).unwrap();
    let report = fsck::fsck(&sim.env(), &*device, false).unwrap();
    assert!(report.findings.is_empty() && report.dirs == 4, "{report:?}");
    assert_eq!((report.files, report.beyond_bytes), (if blocks == BLOCKS { 3 } else { 4 }, 0));
    assert_eq!(described(&sim), text);
    let fs = mount(&sim.env(), device, MountOptions::default()).unwrap();
    assert_eq!(fs.statistics().total_bytes, (blocks * BLOCK) as u64);
    if blocks == GROWN_BLOCKS {
        let grown = fs.read_all(Path::new("/grown"), 1 << 20).unwrap();
        assert!(grown == grown_file());
    }
    let mut a = vec![b'a'; 20_000];
    a.extend_from_slice(&[b'b'; 7]);
    a[4096..12_288].fill(0);
    for name in ["/store/tables/a", "/new/name"] {
        assert!(fs.read_all(Path::new(name), 1 << 20).unwrap() == a, "{name}");
    }
    assert_eq!(fs.metadata(Path::new("/new/name")).unwrap().links, 2);
    assert_eq!(fs.open_in_place(Path::new("/store/log"), Access::Direct).unwrap().len(), 3 * BLOCK as u64);
    assert_eq!(fs.read_all(Path::new("/open"), 100).unwrap(), b"not closed");
    assert_eq!(fs.scan_extent_tail(Path::new("/open")).unwrap(), 2 * BLOCK as u64);
    assert!(!fs.exists(Path::new("/gone")).unwrap() && !fs.exists(Path::new("/old")).unwrap());
}
