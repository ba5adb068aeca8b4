//! Volumes of two devices: the placement of files, full, failed or grown devices, and states after
//! a crash.

use base::{ErrorKind, Result};
use io::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, Policy, Record, SimEnv};
use io::{Access, CreateOptions, FileSystem, Placement, Rng, SyncKind};
use lavastore_lavafs::geometry::SECOND;
use lavastore_lavafs::{
    DeviceStatistics, Devices, FormatOptions, LavaFs, MountOptions, Role, format_on, fsck_on, mount_on,
};
use std::collections::BTreeMap;
use std::path::Path;

const BLOCK: u64 = 4096;
const NAMES: [&str; 2] = ["/fast", "/large"];

fn devices(sim: &SimEnv, blocks: [u64; 2]) -> Devices {
    let device = |n: usize| sim.device(NAMES[n], blocks[n] * BLOCK).unwrap();
    Devices::two(device(0), device(1))
}

/// Makes a volume with these numbers of blocks on the speed device and the capacity device.
fn made(seed: u64, blocks: [u64; 2]) -> SimEnv {
    let sim = SimEnv::new(seed);
    let options = FormatOptions {
        unit_len: 8 * BLOCK,
        small_unit_len: 2 * BLOCK,
        journal_len: 4 * BLOCK,
        ..FormatOptions::default()
    };
    format_on(&sim.env(), &devices(&sim, blocks), &options).unwrap();
    sim
}

fn mounted(sim: &SimEnv) -> Result<LavaFs> {
    let options =
        MountOptions { write_buffer_len: 4096, compact_journal_at: 4 * BLOCK, ..MountOptions::default() };
    mount_on(&sim.env(), devices(sim, [0, 0]), options)
}

fn write_as(fs: &LavaFs, path: &str, len: u64, options: &CreateOptions) -> Result<()> {
    let mut file = fs.create(Path::new(path), options)?;
    file.append(&contents(path, len))?;
    file.sync(SyncKind::Full)
}

fn write(fs: &LavaFs, path: &str, len: u64) -> Result<()> {
    write_as(fs, path, len, &CreateOptions::default())
}

/// Returns contents that are unique to a file.
fn contents(path: &str, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    Rng::new(base::hash::key_hash(path.as_bytes())).fill(&mut bytes);
    bytes
}

/// Returns the number of blocks of a file on each device.
fn on(fs: &LavaFs, path: &str) -> [u64; 2] {
    let mut blocks = [0; 2];
    for extent in fs.extents(Path::new(path)).unwrap() {
        blocks[usize::from(extent.start >= SECOND)] += u64::from(extent.blocks);
    }
    blocks
}

fn of(fs: &LavaFs, role: Role) -> DeviceStatistics {
    fs.devices().into_iter().find(|d| d.role == role).unwrap()
}

fn is_whole(fs: &LavaFs, path: &str, len: u64) -> bool {
    fs.read_all(Path::new(path), 1 << 30).unwrap() == contents(path, len)
}

#[test]
fn file_names_and_options_select_the_device() {
    let fs = mounted(&made(1, [300, 600])).unwrap();
    let hint = |placement| CreateOptions { placement, ..CreateOptions::default() };
    let cases = [
        ("/000000000001.log", Placement::ByName, [4, 0]),
        ("/MANIFEST-000000000002", Placement::ByName, [4, 0]),
        ("/000000000003.ksst", Placement::ByName, [0, 4]),
        ("/000000000004.ksst", Placement::Fast, [4, 0]),
        ("/000000000005.log", Placement::Capacity, [0, 4]),
    ];
    for (path, placement, blocks) in cases {
        write_as(&fs, path, 4 * BLOCK, &hint(placement)).unwrap();
        assert_eq!(on(&fs, path), blocks, "{path}");
    }
    for (path, blocks) in [("/000000000006.log", [3, 0]), ("/in-place", [0, 3])] {
        fs.create_in_place(Path::new(path), 3 * BLOCK, Access::Direct).unwrap();
        assert_eq!(on(&fs, path), blocks, "{path}");
    }
    fs.create_scratch(Path::new("/STAGING"), 5000).unwrap();
    assert_eq!(on(&fs, "/STAGING"), [2, 0]);
    assert_eq!(fs.devices().iter().map(|d| d.file_bytes / BLOCK).collect::<Vec<_>>(), [17, 11]);
    let whole = fs.statistics();
    let sum = |of: fn(&DeviceStatistics) -> u64| fs.devices().iter().map(of).sum::<u64>();
    assert_eq!(
        (sum(|d| d.free_bytes), sum(|d| d.available_bytes)),
        (whole.free_bytes, whole.available_bytes)
    );
    assert_eq!((sum(|d| d.total_bytes), sum(|d| d.file_bytes)), (whole.total_bytes, whole.file_bytes));
    assert_eq!(sum(|d| d.fallen_over_bytes), 0);
}

#[test]
fn a_file_of_known_length_is_contiguous_if_possible() {
    let fs = mounted(&made(1, [300, 600])).unwrap();
    for n in 0..24 {
        write_as(
            &fs,
            &format!("/f{n}"),
            8 * BLOCK,
            &CreateOptions { exact: true, ..CreateOptions::default() },
        )
        .unwrap();
    }
    // Holes of eight blocks, and one run after them.
    (0..24).step_by(2).for_each(|n| fs.remove(Path::new(&format!("/f{n}"))).unwrap());
    fs.sync_dir(Path::new("/")).unwrap();
    for expected_len in [100 * BLOCK, 0] {
        let options = CreateOptions { expected_len, ..CreateOptions::default() };
        let paths = ["/a", "/b"].map(|name| format!("{name}{expected_len}"));
        let mut files = paths.each_ref().map(|path| fs.create(Path::new(path), &options).unwrap());
        for n in 0..100 {
            files.iter_mut().for_each(|file| file.append(&[n; BLOCK as usize]).unwrap());
        }
        files.iter_mut().for_each(|file| file.sync(SyncKind::Full).unwrap());
        for path in &paths {
            let runs = fs.extents(Path::new(path)).unwrap().len();
            assert!((expected_len > 0) == (runs == 1), "{path}: {runs} runs");
            assert_eq!(on(&fs, path)[0], 0);
        }
    }
}

#[test]
fn a_full_device_falls_over_to_the_other_until_both_are_full() {
    let sim = made(1, [200, 300]);
    let fs = mounted(&sim).unwrap();
    let mut full = [false; 2];
    let mut written = Vec::new();
    for n in 0..100 {
        let path = format!("/{n:03}.log");
        match write(&fs, &path, 8 * BLOCK) {
            Ok(()) => written.push(path.clone()),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                break;
            }
        }
        let blocks = on(&fs, &path);
        full[0] |= blocks[1] > 0;
        assert!(full[0] || blocks[1] == 0, "the speed device is used up first: {path} has {blocks:?}");
    }
    let (speed, capacity) = (of(&fs, Role::Fast), of(&fs, Role::Capacity));
    assert!(speed.available_bytes + capacity.available_bytes < 8 * BLOCK, "{speed:?} {capacity:?}");
    assert!(capacity.fallen_over_bytes >= 200 * BLOCK, "{capacity:?}");
    assert_eq!(speed.fallen_over_bytes, 0);
    // Blocks of removed files are reused immediately. No file falls back to the other device
    // because their removal is not durable yet.
    written.iter().take(10).for_each(|path| fs.remove(Path::new(path)).unwrap());
    write(&fs, "/again.log", 24 * BLOCK).unwrap();
    assert_eq!(on(&fs, "/again.log")[1], 0);
    // Names can be made and the journal can be compacted with only the reserve free.
    for n in 0..300 {
        fs.rename(Path::new(&written[10]), Path::new(&format!("/x{n}"))).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        written[10] = format!("/x{n}");
    }
    assert!(fs.statistics().journal_compactions > 0);
    fs.unmount().unwrap();
    drop(fs);
    let fs = mounted(&sim).unwrap();
    assert!(written[11..].iter().all(|path| is_whole(&fs, path, 8 * BLOCK)));
    drop(fs);
    assert!(fsck_on(&sim.env(), &devices(&sim, [0, 0]), false).unwrap().findings.is_empty());
}

#[test]
fn capacity_device_files_fall_over_to_the_speed_device() {
    let fs = mounted(&made(1, [300, 200])).unwrap();
    write(&fs, "/table", 220 * BLOCK).unwrap();
    let blocks = on(&fs, "/table");
    assert!(blocks[0] > 40 && blocks[1] > 150, "{blocks:?}");
    assert!(is_whole(&fs, "/table", 220 * BLOCK));
    assert_eq!(of(&fs, Role::Fast).fallen_over_bytes, blocks[0] * BLOCK);
    assert_eq!(write(&fs, "/more", 300 * BLOCK).unwrap_err().kind(), ErrorKind::NoSpace);
    fs.remove(Path::new("/more")).unwrap();
    fs.remove(Path::new("/table")).unwrap();
    write(&fs, "/more", 100 * BLOCK).unwrap();
    assert_eq!(on(&fs, "/more"), [0, 100]);
}

/// A log is synced without the other device, even if that has unsynced writes.
#[test]
fn a_sync_of_a_log_does_not_wait_for_the_capacity_device() {
    let sim = made(1, [300, 300]);
    let fs = mounted(&sim).unwrap();
    let mut table = fs.create(Path::new("/table"), &CreateOptions::default()).unwrap();
    let mut log = fs.create(Path::new("/1.log"), &CreateOptions::default()).unwrap();
    let syncs = |name: &str| sim.count_ops(Some(OpKind::SyncData), name);
    log.append(&[1; 9000]).unwrap();
    log.sync(SyncKind::Full).unwrap();
    let before = syncs("/large");
    for n in 0..20 {
        table.append(&[n; 5000]).unwrap();
        table.flush().unwrap();
        log.append(&[n; 3000]).unwrap();
        log.sync(if n % 3 == 0 { SyncKind::Full } else { SyncKind::Data }).unwrap();
    }
    assert!(fs.statistics().journal_commits > 4);
    assert_eq!(syncs("/large"), before);
    table.sync(SyncKind::Full).unwrap();
    assert!(syncs("/large") > before);
}

/// Writes that a failed device may have lost are never acknowledged.
#[test]
fn a_sync_of_either_device_that_fails_poisons_the_volume() {
    for (device, path) in [("/fast", "/1.log"), ("/large", "/table")] {
        let sim = made(1, [300, 300]);
        let fs = mounted(&sim).unwrap();
        let mut file = fs.create(Path::new(path), &CreateOptions::default()).unwrap();
        sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::SyncData]).path(device));
        // Too long for a claim.
        file.append(&[1; 100_000]).unwrap();
        file.sync(SyncKind::Data).unwrap_err();
        for other in ["/2.log", "/other"] {
            assert_eq!(write(&fs, other, 10).unwrap_err().kind(), ErrorKind::Poisoned, "{device}");
        }
    }
}

/// Returns a machine in which both devices crashed at the same moment, each in its own way.
fn died(record: &Record, op: u64, kinds: [CrashKind; 2], seed: u64) -> SimEnv {
    let after = SimEnv::new(seed);
    for (n, (name, kind)) in NAMES.iter().zip(kinds).enumerate() {
        let left = record.crash_at(op, kind, seed * 2 + n as u64);
        after.write_file(name, &left.read_file(name).unwrap()).unwrap();
    }
    after
}

/// Synced files, with the operation from which on they were synced.
type Synced = BTreeMap<String, (u64, u64)>;

/// Writes files to both devices, removes some, and compacts the journal frequently.
fn life(sim: &SimEnv, fs: &LavaFs, seed: u64) -> (Synced, BTreeMap<String, u64>) {
    let mut rng = Rng::new(seed);
    let (mut synced, mut removed) = (Synced::new(), BTreeMap::new());
    for n in 0..40 {
        let path = format!("/{n}{}", if rng.one_in(2) { ".log" } else { "" });
        let most = [3, 60, 120][rng.below(3) as usize] * 1000;
        let len = rng.range(1, most);
        let placement = if rng.one_in(8) { Placement::Capacity } else { Placement::ByName };
        match write_as(fs, &path, len, &CreateOptions { placement, ..CreateOptions::default() }) {
            Ok(()) => drop(synced.insert(path, (sim.op_count(), len))),
            Err(e) => assert_eq!(e.kind(), ErrorKind::NoSpace),
        }
        if synced.len() > 8 {
            let path = synced.keys().nth(rng.below(8) as usize).unwrap().clone();
            removed.insert(path.clone(), sim.op_count());
            fs.remove(Path::new(&path)).unwrap();
            synced.remove(&path);
        }
    }
    (synced, removed)
}

/// Each device loses unsynced writes independently: all, none, or some of them.
#[test]
fn synced_data_survives_independent_losses_of_both_devices() {
    let mut kinds: Vec<CrashKind> = Policy::ALL.map(CrashKind::PowerLossWith).into();
    kinds.push(CrashKind::ProcessKill);
    let mut states = 0;
    for seed in 0..12 {
        let sim = made(seed, [220, 260]).fork(seed);
        let fs = mounted(&sim).unwrap();
        let (synced, removed) = life(&sim, &fs, seed);
        assert!(fs.statistics().journal_compactions > 0);
        let (record, mut rng) = (sim.record(), Rng::new(seed));
        let moments = record.mutations();
        for state in 0..60 {
            let op = moments[rng.below(moments.len() as u64) as usize];
            let kinds = [(); 2].map(|()| kinds[rng.below(kinds.len() as u64) as usize]);
            let left = died(&record, op, kinds, seed * 1000 + state);
            let told = format!("seed {seed}, state {state}: {kinds:?} at operation {op}");
            let report = fsck_on(&left.env(), &devices(&left, [0, 0]), false).unwrap();
            assert!(report.findings.iter().all(|f| f.what.contains("slot")), "{told}: {:?}", report.findings);
            let fs = mounted(&left).unwrap_or_else(|e| panic!("{told}: {e}"));
            for (path, (since, len)) in &synced {
                assert!(*since > op || is_whole(&fs, path, *len), "{told}: {path}");
            }
            // Other files hold only their own bytes, as far as their size is recorded.
            for entry in fs.list(Path::new("/")).unwrap() {
                let path = format!("/{}", entry.name);
                let found = fs.read_all(Path::new(&path), 1 << 20).unwrap();
                assert!(found == contents(&path, 120_000)[..found.len()], "{told}: {path}");
            }
            assert!(removed.keys().all(|path| !synced.contains_key(path)));
            write(&fs, "/after", 9000).unwrap_or_else(|e| assert_eq!(e.kind(), ErrorKind::NoSpace, "{told}"));
            states += 1;
        }
    }
    assert_eq!(states, 720);
}

/// A crash at any operation of a grow of either device leaves the old or the new size.
#[test]
fn each_device_grows_by_itself() {
    for (name, role) in NAMES.into_iter().zip(Role::ALL) {
        let sim = made(1, [200, 200]).fork(2);
        let fs = mounted(&sim).unwrap();
        let before = sim.op_count();
        sim.lengthen_device(name, 333 * BLOCK).unwrap();
        assert_eq!(fs.grow_device(role, None).unwrap(), 333 * BLOCK);
        let after = sim.op_count();
        assert_eq!(
            (of(&fs, role).total_bytes, of(&fs, role.other()).total_bytes),
            (333 * BLOCK, 200 * BLOCK)
        );
        let path = if role == Role::Fast { "/1.log" } else { "/1" };
        write(&fs, path, 200 * BLOCK).unwrap();
        assert_eq!(on(&fs, path)[role as usize], 200, "it reaches into the new blocks");
        fs.compact_journal().unwrap();
        let record = sim.record();
        let mut sizes = std::collections::BTreeSet::new();
        for (op, seed) in record.mutations().into_iter().flat_map(|op| (0..6).map(move |seed| (op, seed))) {
            let left = record.crash_at(op, CrashKind::PowerLoss, seed);
            let fs = mounted(&left).unwrap();
            let size = of(&fs, role).total_bytes / BLOCK;
            assert!(size == 333 || (size == 200 && op < after), "{role:?} at {op}: {size}");
            assert!(op >= before || size == 200);
            assert_eq!(of(&fs, role.other()).total_bytes, 200 * BLOCK);
            sizes.insert(size);
        }
        assert_eq!(sizes.len(), 2);
        let e = fs.grow_device(role, Some(100 * BLOCK)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    }
    let sim = made(1, [200, 200]);
    NAMES.iter().for_each(|name| sim.lengthen_device(name, 250 * BLOCK).unwrap());
    let options = MountOptions { grow: true, ..MountOptions::default() };
    let fs = mount_on(&sim.env(), devices(&sim, [0, 0]), options).unwrap();
    assert_eq!(fs.statistics().total_bytes, 500 * BLOCK);
    let one = SimEnv::new(1);
    let device = || one.device("/one", 250 * BLOCK).unwrap();
    lavastore_lavafs::format(&one.env(), &*device(), &FormatOptions::default()).unwrap_err();
    let options = FormatOptions {
        unit_len: 8 * BLOCK,
        small_unit_len: BLOCK,
        journal_len: 4 * BLOCK,
        ..FormatOptions::default()
    };
    lavastore_lavafs::format(&one.env(), &*device(), &options).unwrap();
    let fs = lavastore_lavafs::mount(&one.env(), device(), MountOptions::default()).unwrap();
    let e = fs.grow_device(Role::Capacity, None).unwrap_err();
    assert!(e.kind() == ErrorKind::InvalidArgument && e.message().contains("one device"), "{e}");
}

/// The error for a truncated device names it.
#[test]
fn a_device_that_is_too_short_is_named() {
    for name in NAMES {
        let sim = made(1, [200, 200]);
        let bytes = sim.read_file(name).unwrap();
        let cut = SimEnv::new(2);
        NAMES.iter().for_each(|n| cut.write_file(n, &sim.read_file(n).unwrap()).unwrap());
        cut.write_file(name, &bytes[..150 * BLOCK as usize]).unwrap();
        let e = mounted(&cut).unwrap_err();
        assert!(e.is_corruption() && e.to_string().contains(name), "{e}");
        let report = fsck_on(&cut.env(), &devices(&cut, [0, 0]), false).unwrap();
        assert!(report.findings.len() == 1 && report.findings[0].what.contains(name), "{report:?}");
    }
}
