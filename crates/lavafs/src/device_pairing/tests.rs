use super::*;
use crate::{
    FormatOptions, LavaFs, MountOptions, dump_journal, dump_journal_on, format, format_on, mount_on,
};
use crate::{fsck, fsck_on, mount};
use io::sim::{CrashKind, Policy, SimEnv};
use io::{CreateOptions, FileSystem, SyncKind};
use std::path::Path;

const BLOCK: u64 = 4096;
const LEN: u64 = 200 * BLOCK;
const DEVICES: [&str; 2] = ["/fast", "/large"];

fn devices(sim: &SimEnv, names: [&str; 2]) -> Devices {
    let [speed, capacity] = names.map(|name| sim.device(name, LEN).unwrap());
    Devices::two(speed, capacity)
}

/// Makes a volume of two devices.
fn made(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    format_on(&sim.env(), &devices(&sim, DEVICES), &FormatOptions::small()).unwrap();
    sim
}

fn mounted(sim: &SimEnv, names: [&str; 2]) -> Result<LavaFs> {
    mount_on(&sim.env(), devices(sim, names), MountOptions::default())
}

/// Mounts, writes a file on each device, and unmounts.
fn session(sim: &SimEnv, name: &str) {
    let fs = mounted(sim, DEVICES).unwrap();
    for path in [format!("/{name}.log"), format!("/{name}")] {
        let mut file = fs.create(Path::new(&path), &CreateOptions::default()).unwrap();
        file.append(name.as_bytes()).unwrap();
        file.sync(SyncKind::Full).unwrap();
    }
    fs.unmount().unwrap();
}

/// Returns a copy of the machine with the contents of one device replaced.
fn put_back(sim: &SimEnv, name: &str, bytes: &[u8]) -> SimEnv {
    let other = SimEnv::new(99);
    for device in DEVICES {
        let bytes = if device == name { bytes.to_vec() } else { sim.read_file(device).unwrap() };
        other.write_file(device, &bytes).unwrap();
    }
    other
}

fn refused(result: Result<LavaFs>, kind: ErrorKind, told: &str) {
    let e = result.unwrap_err();
    assert!(e.kind() == kind && e.to_string().contains(told), "{told}: {e}");
}

#[test]
fn the_order_in_which_devices_are_named_does_not_matter() {
    let sim = made(1);
    session(&sim, "a");
    let fs = mounted(&sim, ["/large", "/fast"]).unwrap();
    assert_eq!(fs.read_all(Path::new("/a.log"), 9).unwrap(), b"a");
    let roles: Vec<Role> = fs.devices().iter().map(|d| d.role).collect();
    assert_eq!(roles, Role::ALL);
    assert!(fs.extents(Path::new("/a.log")).unwrap()[0].start < crate::geometry::SECOND);
    assert!(fs.extents(Path::new("/a")).unwrap()[0].start > crate::geometry::SECOND);
}

#[test]
fn one_device_of_two_is_refused_and_the_missing_named() {
    let sim = made(1);
    session(&sim, "a");
    let before = DEVICES.map(|name| sim.read_file(name).unwrap());
    for (name, told) in [
        (
            "/fast",
            "the device is the speed device of a volume of two devices: name its capacity device as well",
        ),
        (
            "/large",
            "the device is the capacity device of a volume of two devices: name its speed device as well",
        ),
    ] {
        let device = || sim.device(name, 0).unwrap();
        refused(mount(&sim.env(), device(), MountOptions::default()), ErrorKind::InvalidArgument, told);
        let e = fsck(&sim.env(), &*device(), true).unwrap_err();
        assert!(e.kind() == ErrorKind::InvalidArgument && e.to_string().contains(told), "{e}");
        let e = dump_journal(&*device(), &mut |_| {}).unwrap_err();
        assert!(e.kind() == ErrorKind::InvalidArgument && e.to_string().contains(told), "{e}");
        let twice = mounted(&sim, [name, name]);
        refused(twice, ErrorKind::InvalidArgument, "both devices are a");
    }
    assert_eq!(DEVICES.map(|name| sim.read_file(name).unwrap()), before, "nothing was written");
}

#[test]
fn devices_that_do_not_belong_together_are_refused() {
    let (sim, other) = (made(1), made(2));
    sim.write_file("/strange", &other.read_file("/large").unwrap()).unwrap();
    let told =
        "the capacity device belongs to another volume than /fast: name two devices formatted together";
    refused(mounted(&sim, ["/fast", "/strange"]), ErrorKind::InvalidArgument, told);
    let told = "both devices are a capacity device: name the speed device of the volume as the second one";
    refused(mounted(&sim, ["/strange", "/large"]), ErrorKind::InvalidArgument, told);
    let told = "the speed device of the volume is expected here, because /large is its capacity device";
    refused(mounted(&sim, ["/large", "/empty"]), ErrorKind::NotFound, told);
    refused(
        mounted(&sim, ["/empty", "/empty-too"]),
        ErrorKind::NotFound,
        "the device has no LavaFS: name another device, or format this one (`lava fs mkfs`), which erases it",
    );
    format(&sim.env(), &*sim.device("/one", LEN).unwrap(), &FormatOptions::small()).unwrap();
    let told = "the device has a volume of this one device only: name it alone";
    refused(mounted(&sim, ["/one", "/large"]), ErrorKind::InvalidArgument, told);
    // Neither existing device is overwritten.
    for names in [["/new", "/large"], ["/one", "/new"]] {
        let e = format_on(&sim.env(), &devices(&sim, names), &FormatOptions::small()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::AlreadyExists);
        assert!(sim.read_file("/new").unwrap().iter().all(|&b| b == 0), "nothing was written");
    }
    session(&sim, "still");
}

#[test]
fn a_stale_device_is_refused() {
    let sim = made(1);
    session(&sim, "a");
    let old = DEVICES.map(|name| sim.read_file(name).unwrap());
    for (rounds, times) in [(1, "1 time "), (2, "3 times ")] {
        (0..rounds).for_each(|n| session(&sim, &format!("b{rounds}{n}")));
        for (name, bytes) in DEVICES.iter().zip(&old) {
            let mixed = put_back(&sim, name, bytes);
            let role = if *name == "/fast" { "speed" } else { "capacity" };
            let told = format!("the device is an older copy of the {role} device");
            refused(mounted(&mixed, DEVICES), ErrorKind::InvalidArgument, &told);
            refused(mounted(&mixed, DEVICES), ErrorKind::InvalidArgument, times);
            assert!(fsck_on(&mixed.env(), &devices(&mixed, DEVICES), true).is_err());
        }
    }
    // Two devices that diverged from one moment on, with equal mount counts.
    let apart = SimEnv::new(5);
    DEVICES.iter().zip(&old).for_each(|(name, bytes)| apart.write_file(name, bytes).unwrap());
    (0..3).for_each(|n| session(&apart, &format!("c{n}")));
    let mixed = put_back(&sim, "/large", &apart.read_file("/large").unwrap());
    refused(mounted(&mixed, DEVICES), ErrorKind::InvalidArgument, "were mounted apart from each other");
    // Both outdated devices together are a volume.
    let both = SimEnv::new(6);
    DEVICES.iter().zip(&old).for_each(|(name, bytes)| both.write_file(name, bytes).unwrap());
    session(&both, "d");
}

/// A crash at any operation of a mount, and of the next one, leaves two devices that belong
/// together.
#[test]
fn a_crash_during_mount_leaves_matching_devices() {
    let kinds = Policy::ALL.map(CrashKind::PowerLossWith).into_iter().chain([CrashKind::ProcessKill]);
    let first = made(3).fork(4);
    drop(mounted(&first, DEVICES).unwrap());
    let record = first.record();
    let (moments, mut states) = (record.mutations(), 0);
    for (kind, &op) in kinds.flat_map(|kind| moments.iter().map(move |op| (kind, op))) {
        for sim in [record.crash_at(op, kind, op), record.crash_before(op, kind, op)] {
            let again = sim.fork(op);
            drop(mounted(&again, DEVICES).unwrap());
            let record = again.record();
            for op in record.mutations() {
                let sim = record.crash_at(op, kind, op);
                session(&sim, "after");
                let report = fsck_on(&sim.env(), &devices(&sim, DEVICES), false).unwrap();
                assert!(report.findings.is_empty(), "{kind:?} at {op}: {:?}", report.findings);
                states += 1;
            }
        }
    }
    assert!(states > 500, "{states}");
}

#[test]
fn a_damaged_capacity_device_slot_is_rewritten() {
    let sim = made(1);
    session(&sim, "a");
    let sound = sim.read_file("/large").unwrap();
    for slot in [1, 16] {
        let mut bytes = sound.clone();
        bytes[slot * BLOCK as usize + 100] ^= 1;
        let damaged = put_back(&sim, "/large", &bytes);
        let on = || devices(&damaged, DEVICES);
        let report = fsck_on(&damaged.env(), &on(), false).unwrap();
        let told = "of the superblock of the capacity device";
        assert!(report.findings.len() == 1 && report.findings[0].what.contains(told), "{report:?}");
        assert!(fsck_on(&damaged.env(), &on(), true).unwrap().is_clean());
        assert!(fsck_on(&damaged.env(), &on(), false).unwrap().findings.is_empty());
        assert!(damaged.read_file("/large").unwrap() == sound, "as it was");
        session(&put_back(&sim, "/large", &bytes), "a mount does it as well");
    }
    let mut bytes = sound;
    [1, 16].iter().for_each(|slot| bytes[slot * BLOCK as usize + 100] ^= 1);
    let e = mounted(&put_back(&sim, "/large", &bytes), DEVICES).unwrap_err();
    assert!(e.is_corruption() && e.to_string().contains("/large"), "{e}");
    let mut text = String::new();
    dump_journal_on(&devices(&sim, DEVICES), &mut |line| text += &format!("{line}\n")).unwrap();
    assert!(
        text.contains("slot 1 of the capacity device: volume") && text.contains("200 and 200 blocks"),
        "{text}"
    );
}

/// Releases without two-device volumes reject the devices.
#[test]
fn older_releases_refuse_both_devices() {
    let sim = made(1);
    for name in DEVICES {
        let bytes = sim.read_file(name).unwrap();
        for slot in [1, 16] {
            let version = bytes[slot * BLOCK as usize + 8..][..4].try_into().unwrap();
            assert_eq!(u32::from_le_bytes(version), 3, "they read versions up to 2");
        }
    }
}

/// A slot of the capacity device that a crash left damaged is rewritten before the other one.
#[test]
fn a_crash_while_healing_a_slot_keeps_the_other_slot() {
    let sound = made(1);
    session(&sound, "a");
    for slot in [1, 16] {
        let mut bytes = sound.read_file("/large").unwrap();
        bytes[slot * BLOCK as usize + 100] ^= 1;
        let sim = put_back(&sound, "/large", &bytes).fork(7);
        drop(mounted(&sim, DEVICES).unwrap());
        let record = sim.record();
        for (op, seed) in record.mutations().into_iter().flat_map(|op| (0..20).map(move |seed| (op, seed))) {
            let left = record.crash_at(op, CrashKind::PowerLossWith(Policy::Torn), seed);
            session(&left, "after");
        }
    }
}
