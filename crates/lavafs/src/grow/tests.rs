use super::*;
use crate::fsck::fsck;
use crate::{FormatOptions, LavaFs, MountOptions, format, mount};
use base::ErrorKind;
use io::sim::threads::Plan;
use io::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, Policy, SimEnv};
use io::{CreateOptions, FileSystem, Priority, SyncKind};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

const DEVICE: &str = "/device";
const OLD: u64 = 200 * BLOCK;
const NEW: u64 = 331 * BLOCK;

fn made(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    format(&sim.env(), &*sim.device(DEVICE, OLD).unwrap(), &FormatOptions::small()).unwrap();
    sim
}

fn mounted(sim: &SimEnv, options: MountOptions) -> Result<LavaFs> {
    mount(&sim.env(), sim.device(DEVICE, 0).unwrap(), options)
}

fn write(fs: &LavaFs, path: &str, byte: u8, len: u64) -> Result<()> {
    let mut file = fs.create(Path::new(path), &CreateOptions::default())?;
    file.append(&vec![byte; len as usize])?;
    file.sync(SyncKind::Full)
}

/// Returns the names in the root directory, after checking the contents of the files.
fn names(fs: &LavaFs) -> BTreeSet<String> {
    let listed = fs.list(Path::new("/")).unwrap();
    for entry in &listed {
        let bytes = fs.read_all(&Path::new("/").join(&entry.name), 1 << 30).unwrap();
        let byte = entry.name.as_bytes()[0];
        assert!(bytes.iter().all(|&b| b == byte), "{}", entry.name);
    }
    listed.into_iter().map(|entry| entry.name).collect()
}

/// A crash at any operation of a grow, or of writes into the new blocks, leaves the old or the new
/// size. After the grow has returned, it leaves the new size.
#[test]
fn a_crash_at_any_moment_leaves_the_old_size_or_the_new_one() {
    let sim = made(1).fork(2);
    let fs =
        mounted(&sim, MountOptions { compact_journal_at: 4 * BLOCK, ..MountOptions::default() }).unwrap();
    write(&fs, "/a", b'a', 100 * BLOCK).unwrap();
    assert_eq!(write(&fs, "/b", b'b', 120 * BLOCK).unwrap_err().kind(), ErrorKind::NoSpace);
    fs.remove(Path::new("/b")).unwrap();
    let before = sim.op_count();
    sim.lengthen_device(DEVICE, NEW).unwrap();
    assert_eq!(fs.grow(None).unwrap(), NEW);
    let after = sim.op_count();
    // This file extends into the new blocks, and so does the journal.
    write(&fs, "/c", b'c', 120 * BLOCK).unwrap();
    let written = sim.op_count();
    fs.compact_journal().unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    let record = sim.record();
    let mut sizes = BTreeSet::new();
    let mut states = 0;
    let kinds = Policy::ALL.map(CrashKind::PowerLossWith).into_iter().chain([CrashKind::ProcessKill]);
    let moments: Vec<u64> = record.mutations().into_iter().filter(|&op| op >= before).collect();
    for (kind, op, seed) in
        kinds.flat_map(|k| moments.iter().flat_map(move |&op| (0..10).map(move |s| (k, op, s))))
    {
        let left =
            if seed % 2 == 0 { record.crash_at(op, kind, seed) } else { record.crash_before(op, kind, seed) };
        let what = format!("{kind:?} at {op} ({before} to {after}), seed {seed}");
        let report = fsck(&left.env(), &*left.device(DEVICE, 0).unwrap(), false).unwrap();
        assert!(report.findings.iter().all(|f| f.what.contains("slot")), "{what}: {:?}", report.findings);
        // A second crash, immediately after the mount, leaves the same state.
        let fs = mounted(&left, MountOptions::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
        let size = fs.statistics().total_bytes;
        assert!(size == NEW || size == OLD && op < after, "{what}: {size} bytes");
        assert!(names(&fs).contains("a") && (op < written || names(&fs).contains("c")), "{what}");
        let again = left.crash(CrashKind::PowerLossWith(Policy::Dropped), seed);
        assert_eq!(
            mounted(&again, MountOptions::default()).unwrap().statistics().total_bytes,
            size,
            "{what}"
        );
        // The volume can still grow to the length of the device.
        let there = left.device(DEVICE, 0).unwrap().len();
        assert_eq!(fs.grow(None).unwrap(), there, "{what}");
        sizes.insert(size);
        states += 1;
    }
    assert!(sizes.len() == 2 && states > 500, "{sizes:?} in {states} states");
}

#[test]
fn a_mount_with_grow_extends_the_volume_to_the_device() {
    let sim = made(1);
    sim.lengthen_device(DEVICE, NEW).unwrap();
    let beyond = fsck(&sim.env(), &*sim.device(DEVICE, 0).unwrap(), false).unwrap().beyond_bytes;
    assert_eq!(beyond, NEW - OLD);
    let sizes = [
        (MountOptions::default(), OLD),
        (MountOptions { grow: true, read_only: true, ..MountOptions::default() }, OLD),
        (MountOptions { grow: true, ..MountOptions::default() }, NEW),
        (MountOptions::default(), NEW),
    ];
    for (options, size) in sizes {
        let fs = mounted(&sim, options).unwrap();
        let found = fs.statistics();
        assert_eq!((found.total_bytes, fs.space(Path::new("/")).unwrap().total), (size, size));
    }
    let fs = mounted(&sim, MountOptions::default()).unwrap();
    write(&fs, "/x", b'x', NEW - OLD + 20 * BLOCK).unwrap();
    drop(fs);
    let report = fsck(&sim.env(), &*sim.device(DEVICE, 0).unwrap(), false).unwrap();
    assert!(report.findings.is_empty() && report.beyond_bytes == 0, "{report:?}");
    // A repair keeps the new size: the last file exists after it.
    sim.damage_slot();
    let report = fsck(&sim.env(), &*sim.device(DEVICE, 0).unwrap(), true).unwrap();
    assert!(report.is_clean() && report.findings.len() == 1, "{report:?}");
    assert_eq!(names(&mounted(&sim, MountOptions::default()).unwrap()).len(), 1);
}

trait DamageSlot {
    fn damage_slot(&self);
}

impl DamageSlot for SimEnv {
    fn damage_slot(&self) {
        let mut bytes = self.read_file(DEVICE).unwrap();
        bytes[BLOCK as usize + 100] ^= 1;
        self.write_file(DEVICE, &bytes).unwrap();
    }
}

#[test]
fn invalid_volume_growth_is_refused() {
    let sim = made(1);
    let fs = mounted(&sim, MountOptions::default()).unwrap();
    let generation = lock(&fs.volume().superblock).generation;
    assert_eq!((fs.grow(None).unwrap(), fs.grow(Some(OLD)).unwrap()), (OLD, OLD), "nothing to do");
    assert_eq!(lock(&fs.volume().superblock).generation, generation, "and nothing was done");
    sim.lengthen_device(DEVICE, NEW).unwrap();
    for (len, told) in [
        (
            OLD - BLOCK,
            "the new size of 815104 bytes is below the present 819200 bytes, or no multiple of 4096 bytes: a volume cannot shrink",
        ),
        (
            OLD + 5,
            "the new size of 819205 bytes is below the present 819200 bytes, or no multiple of 4096 bytes: a volume cannot shrink",
        ),
        (
            NEW + BLOCK,
            "a volume of 1359872 bytes does not fit on a device of 1355776 bytes, or is over the limit of 17592186040320 bytes: choose a smaller size",
        ),
    ] {
        let e = fs.grow(Some(len)).unwrap_err();
        assert_eq!(
            (e.kind(), e.message(), e.file()),
            (ErrorKind::InvalidArgument, told, Some(Path::new(DEVICE)))
        );
    }
    assert_eq!(fs.grow(Some(OLD + BLOCK)).unwrap(), OLD + BLOCK, "in parts");
    assert_eq!(fs.grow(None).unwrap(), NEW);
    drop(fs);
    let reader = mounted(&sim, MountOptions { read_only: true, ..MountOptions::default() }).unwrap();
    assert_eq!(reader.grow(None).unwrap_err().kind(), ErrorKind::ReadOnly);
    drop(reader);
    // A device shorter than the volume was replaced or truncated. This is detected while the volume
    // is mounted, too.
    let fs = mounted(&sim, MountOptions::default()).unwrap();
    let cut = sim.read_file(DEVICE).unwrap()[..OLD as usize].to_vec();
    sim.write_file(DEVICE, &cut).unwrap();
    let told = "the volume has 1355776 bytes, but its device has only 819200 bytes: the device was cut off";
    let refused = [fs.grow(None).unwrap_err(), mounted(&sim, MountOptions::default()).unwrap_err()];
    for e in refused {
        assert!(e.is_corruption() && e.message() == told, "{e}");
    }
}

#[test]
fn a_failed_grow_poisons_the_volume_and_keeps_a_valid_size() {
    for nth in 0..3 {
        let sim = made(nth);
        let fs = mounted(&sim, MountOptions::default()).unwrap();
        sim.lengthen_device(DEVICE, NEW).unwrap();
        sim.inject(FaultPlan::nth(nth, FaultEffect::Eio).kinds(&[OpKind::WriteDurable]));
        assert_eq!(fs.grow(None).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(write(&fs, "/a", b'a', 9).unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(fs.grow(None).unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(fs.statistics().total_bytes, OLD);
        for seed in 0..20 {
            let left = sim.crash(CrashKind::PowerLoss, seed);
            let size = mounted(&left, MountOptions::default()).unwrap().statistics().total_bytes;
            assert!(size == OLD || size == NEW && nth > 0, "write {nth}, seed {seed}: {size} bytes");
        }
    }
}

/// One thread grows the volume while another fills it, and the thread of the volume compacts the
/// journal.
#[test]
fn files_are_usable_while_the_volume_grows() {
    for seed in 0..40 {
        let sim = made(seed);
        let machine = sim.clone();
        let ran = sim.run_threads(&Plan { steps_max: 400_000, ..Plan::new(seed) }, move |env| {
            let options = MountOptions { compact_journal_at: 3 * BLOCK, ..MountOptions::default() };
            let fs = Arc::new(mount(env, machine.device(DEVICE, 0).unwrap(), options).unwrap());
            let (writer, grower) = (fs.clone(), fs.clone());
            let fill = move || {
                let full =
                    (0..26).filter(|n| write(&writer, &format!("/f{n}"), b'f', 6 * BLOCK).is_err()).count();
                assert!(full < 26);
            };
            let grow = move || {
                for blocks in [250, 290, 331] {
                    machine.lengthen_device(DEVICE, blocks * BLOCK).unwrap();
                    assert_eq!(grower.grow(None).unwrap(), blocks * BLOCK);
                }
            };
            let spawner = env.spawner.clone().unwrap();
            let spawn = |name, body| spawner.spawn(name, Priority::Foreground, body).unwrap();
            let threads = [spawn("fill", Box::new(fill)), spawn("grow", Box::new(grow))];
            assert!(threads.into_iter().all(|thread| thread.join()));
            assert_eq!(fs.statistics().total_bytes, NEW);
            write(&fs, "/last", b'l', 9 * BLOCK).unwrap();
            fs.unmount().unwrap();
        });
        assert!(ran.is_ok(), "seed {seed}: {ran:?}");
        let report = fsck(&sim.env(), &*sim.device(DEVICE, 0).unwrap(), false).unwrap();
        assert!(report.findings.is_empty(), "seed {seed}: {:?}", report.findings);
        assert!(names(&mounted(&sim, MountOptions::default()).unwrap()).contains("last"));
    }
}
