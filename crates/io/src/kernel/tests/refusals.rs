//! Refusals of the kernel are reported with an explanation, the file, and the system's error.

use super::*;
use crate::device::{BLOCK, BlockDevice};
use crate::kernel::calls::watch::{Fault, Form, Watch};
use crate::kernel::calls::{Call, THREADS};
use crate::kernel::device::{DeviceOptions, ImageRoom, create_image, open};
use crate::kernel::flush::DeviceFlusher;
use crate::kernel::handle::Handle;
use crate::{Access, AlignedBuf, SyncKind};
use base::{ErrorKind, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::Arc;

const IMAGE_LEN: u64 = 8 * BLOCK as u64;

/// An operation in an empty directory; it chooses when the faults begin.
type Try = fn(&Env, &Path, &dyn Fn() -> Watch) -> Result<()>;

fn image(dir: &Path) -> Arc<dyn BlockDevice> {
    let path = dir.join("image");
    create_image(&path, IMAGE_LEN, ImageRoom::Written).unwrap();
    let options =
        DeviceOptions { kernel: KernelOptions { engine: IoEngine::Portable }, ..Default::default() };
    open(&path, &options).unwrap()
}

fn in_place(env: &Env, dir: &Path, access: Access) -> Arc<dyn crate::InPlaceFile> {
    env.fs.create_in_place(&dir.join("a"), PAGE as u64, access).unwrap()
}

const OF_FILES: [(&str, Call, Try); 16] = [
    ("cannot create a directory", Call::MakeDir, |env, dir, begin| {
        let _watch = begin();
        env.fs.create_dir_all(&dir.join("d"))
    }),
    ("cannot read the length of a file", Call::Stat, |env, dir, begin| {
        write_file(env, &dir.join("a"), b"abc");
        let file = env.fs.open(&dir.join("a"), Access::Buffered).unwrap();
        let _watch = begin();
        file.len().map(drop)
    }),
    ("cannot look up a file", Call::Stat, |env, dir, begin| {
        let _watch = begin();
        env.fs.metadata(dir).map(drop)
    }),
    ("cannot list a directory", Call::List, |env, dir, begin| {
        let _watch = begin();
        env.fs.list(dir).map(drop)
    }),
    ("cannot rename a file to ", Call::Rename, |env, dir, begin| {
        write_file(env, &dir.join("a"), b"abc");
        let _watch = begin();
        env.fs.rename(&dir.join("a"), &dir.join("b"))
    }),
    ("cannot link a file as ", Call::Link, |env, dir, begin| {
        write_file(env, &dir.join("a"), b"abc");
        let _watch = begin();
        env.fs.link(&dir.join("a"), &dir.join("b"))
    }),
    ("cannot read a file", Call::Read, |env, dir, begin| {
        write_file(env, &dir.join("a"), b"abc");
        let file = env.fs.open(&dir.join("a"), Access::Buffered).unwrap();
        let _watch = begin();
        file.read_at(&mut [0; 3], 0)
    }),
    ("cannot write a file", Call::Write, |env, dir, begin| {
        let mut file = env.fs.create(&dir.join("a"), &small_options(Access::Buffered))?;
        let _watch = begin();
        file.append(&[1; 3 * PAGE])
    }),
    ("cannot write the cached pages of a file back", Call::WriteBack, |env, dir, begin| {
        let options = CreateOptions { sync_every: PAGE as u64, ..small_options(Access::Buffered) };
        let mut file = env.fs.create(&dir.join("a"), &options)?;
        let _watch = begin();
        file.append(&[1; 3 * PAGE])
    }),
    ("cannot set the length of a file", Call::SetLen, |env, dir, begin| {
        let mut file = env.fs.create(&dir.join("a"), &small_options(Access::Buffered))?;
        file.append(b"abc").and_then(|()| file.reserve(1 << 16)).unwrap();
        let _watch = begin();
        file.sync(SyncKind::Full)
    }),
    ("cannot sync a file", Call::FullSync, |env, dir, begin| {
        let mut file = env.fs.create(&dir.join("a"), &small_options(Access::Buffered))?;
        let _watch = begin();
        file.sync(SyncKind::Full)
    }),
    ("cannot write a file in place", Call::Write, |env, dir, begin| {
        let file = in_place(env, dir, Access::Buffered);
        let _watch = begin();
        file.write_at(&AlignedBuf::zeroed(PAGE), 0)
    }),
    ("cannot write a file durably in place", Call::DurableWrite, |env, dir, begin| {
        let file = in_place(env, dir, Access::Buffered);
        let _watch = begin();
        file.write_durable(&AlignedBuf::zeroed(PAGE), 0)
    }),
    ("cannot allocate a file", Call::Allocate, |env, dir, begin| {
        let _watch = begin();
        env.fs.create_in_place(&dir.join("a"), PAGE as u64, Access::Buffered).map(drop)
    }),
    ("cannot sync a directory", Call::FullSync, |env, dir, begin| {
        let _watch = begin();
        env.fs.sync_dir(dir)
    }),
    ("cannot remove a file", Call::Unlink, |env, dir, begin| {
        write_file(env, &dir.join("a"), b"abc");
        let _watch = begin();
        env.fs.remove(&dir.join("a"))
    }),
];

const OF_DEVICES: [(&str, Call, Try); 8] = [
    ("cannot look up a device", Call::Stat, |_, dir, begin| {
        drop(image(dir));
        let _watch = begin();
        open(&dir.join("image"), &DeviceOptions::default()).map(drop)
    }),
    ("cannot lock a device", Call::Lock, |_, dir, begin| {
        drop(image(dir));
        let _watch = begin();
        open(&dir.join("image"), &DeviceOptions::default()).map(drop)
    }),
    ("cannot map the first page of a device, which its syncs need", Call::Map, |_, dir, begin| {
        // Only raw devices are mapped in production; an image can be mapped just as well.
        drop(image(dir));
        let handle = Handle::open("", &dir.join("image"), OFlags::RDWR, Access::Buffered).unwrap();
        let _watch = begin();
        DeviceFlusher::new(&handle).map(drop)
    }),
    ("cannot write a device", Call::Write, |_, dir, begin| {
        let device = image(dir);
        let _watch = begin();
        device.write_at(AlignedBuf::zeroed(BLOCK).as_slice(), 0)
    }),
    ("cannot write a device durably", Call::DurableWrite, |_, dir, begin| {
        let device = image(dir);
        let _watch = begin();
        device.write_durable(AlignedBuf::zeroed(BLOCK).as_slice(), 0)
    }),
    ("cannot sync a device", Call::DataSync, |_, dir, begin| {
        let device = image(dir);
        let _watch = begin();
        device.sync()
    }),
    ("cannot discard blocks of a device", Call::Punch, |_, dir, begin| {
        let device = image(dir);
        let _watch = begin();
        device.discard(0, BLOCK as u64)
    }),
    ("cannot allocate an image", Call::SetLen, |_, dir, begin| {
        let _watch = begin();
        create_image(&dir.join("image"), IMAGE_LEN, ImageRoom::Sparse)
    }),
];

#[test]
fn a_failed_call_reports_its_file() {
    let env = env(IoEngine::Portable);
    for (told, call, attempt) in OF_FILES.into_iter().chain(OF_DEVICES) {
        let dir = Temp::new();
        let path = dir.0.canonicalize().unwrap();
        let fault = Fault { nth: 0, form: Form::FAILURE, sticky: true, only: Some(call) };
        let begin = || Watch::new(&path, Some(fault), false);
        let e = attempt(&env, &path, &begin).err().unwrap_or_else(|| panic!("{told}: nothing was refused"));
        assert!(e.message().starts_with(told), "{told}: {e}");
        assert_eq!(e.kind(), ErrorKind::Io, "{e}");
        assert!(e.file().is_some_and(|file| file.starts_with(&path)) && e.io_error().is_some(), "{e}");
    }
}

#[test]
fn device_size_and_reservation_failures_are_reported() {
    let env = env(IoEngine::Portable);
    let dir = Temp::new();
    let path = dir.0.canonicalize().unwrap();
    drop(image(&path));
    // The lookups before it are by name.
    let refused = (0..8).find_map(|nth| {
        let fault = Fault { nth, form: Form::FAILURE, sticky: false, only: Some(Call::Stat) };
        let _watch = Watch::new(&path, Some(fault), false);
        let e = open(&path.join("image"), &DeviceOptions::default()).err()?;
        (e.message() == "cannot read the size of a device").then_some(e)
    });
    assert_eq!(refused.map(|e| e.kind()), Some(ErrorKind::Io));

    let mut file = env.fs.create(&path.join("a"), &small_options(Access::Buffered)).unwrap();
    let form = Form::Fails(Errno::NOSPC);
    let _watch =
        Watch::new(&path, Some(Fault { nth: 0, form, sticky: true, only: Some(Call::Allocate) }), false);
    let e = file.reserve(1 << 20).unwrap_err();
    assert_eq!((e.kind(), e.message()), (ErrorKind::NoSpace, "cannot reserve space for a file"));
}

#[test]
fn after_a_failure_a_file_refuses_everything_and_says_why() {
    let env = env(IoEngine::Portable);
    let dir = Temp::new();
    let path = dir.0.canonicalize().unwrap();
    let mut file = env.fs.create(&path.join("a"), &small_options(Access::Buffered)).unwrap();
    let fault = Fault { nth: 0, form: Form::FAILURE, sticky: false, only: Some(Call::FullSync) };
    let watch = Watch::new(&path, Some(fault), false);
    assert_eq!(file.sync(SyncKind::Full).unwrap_err().kind(), ErrorKind::Io);
    drop(watch);
    let e = file.append(b"x").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Poisoned);
    assert!(e.message().contains("its contents are unknown: cannot sync a file"), "{e}");
}

/// Returns the nice value of a thread at background priority, its I/O priority and the lowest one,
/// and whether a refusal is reported.
fn in_background(env: &Env) -> (i32, (i64, i64), bool) {
    let (send, receive) = std::sync::mpsc::channel();
    let body = Box::new(move || {
        let nice = rustix::process::getpriority_process(None).unwrap();
        let (own, lowest) = crate::kernel::ffi::io_priorities();
        send.send((nice, (own, lowest))).unwrap();
    });
    let spawner = env.spawner.as_ref().unwrap();
    assert!(spawner.spawn("lava test", crate::Priority::Background, body).unwrap().join());
    let (nice, (own, lowest)) = receive.recv().unwrap();
    (nice, (own, lowest), spawner.refused_priority())
}

/// If the system refuses lower priorities, this is reported once and has no other effect: the
/// thread does its work. An interruption is no refusal, and does not lower the priority twice.
#[test]
fn a_refused_priority_is_reported_and_otherwise_ignored() {
    let _alone = PRIORITIES.lock().unwrap();
    let own = rustix::process::getpriority_process(None).unwrap();
    let usual = in_background(&env(IoEngine::Portable));
    if usual.2 {
        return println!("skipped: the system does not let priorities be changed");
    }
    assert_eq!((usual.0, usual.1.0), ((own + 10).min(19), usual.1.1));
    let root = Path::new(THREADS);
    for only in [Call::CpuPriority, Call::IoPriority] {
        for errno in [Errno::PERM, Errno::ACCESS, Errno::NOSYS, Errno::INVAL] {
            for nth in 0..2 {
                let watched = env(IoEngine::Portable);
                let fault = Fault { nth, form: Form::Fails(errno), sticky: true, only: Some(only) };
                let watch = Watch::new(root, Some(fault), false);
                let found = in_background(&watched);
                if watch.fired() == 0 {
                    assert!(nth > 0 && !found.2, "{only:?}");
                    continue;
                }
                assert!(found.2, "{only:?} {errno}");
                let (cpu, io) = if only == Call::CpuPriority { (own, usual.1) } else { (usual.0, usual.1) };
                assert_eq!(found.0, cpu, "{only:?} {errno}");
                // The other priority is still lowered.
                assert!(only == Call::IoPriority || found.1 == io);
                drop(watch);
                assert!(in_background(&watched).2, "it is not forgotten");
            }
        }
    }
    for nth in 0..3 {
        let watched = env(IoEngine::Portable);
        let fault = Fault { nth, form: Form::Fails(Errno::INTR), sticky: false, only: None };
        let watch = Watch::new(root, Some(fault), false);
        assert_eq!(in_background(&watched), usual);
        assert_eq!(watch.fired(), 1);
    }
}
