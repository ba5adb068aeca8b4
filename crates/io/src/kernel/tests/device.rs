use super::*;
use crate::AlignedBuf;
use crate::device::{BLOCK, BlockDevice, DeviceWrite};
use crate::kernel::device::{DeviceKind, DeviceOptions, ImageRoom, create_image, extend_image, kind, open};
use crate::kernel::usage;
use crate::{Access, ReadRequest};
use base::ErrorKind;
use std::sync::Arc;

const LEN: u64 = 64 * BLOCK as u64;
const ROOMS: [ImageRoom; 3] = [ImageRoom::Written, ImageRoom::Reserved, ImageRoom::Sparse];

fn each_device(test: impl Fn(&Path, &dyn Fn() -> Arc<dyn BlockDevice>)) {
    for engine in [IoEngine::Portable, IoEngine::Auto] {
        for room in ROOMS {
            let dir = Temp::new();
            let path = dir.0.join("image");
            create_image(&path, LEN, room).unwrap();
            let options = DeviceOptions { kernel: KernelOptions { engine }, ..Default::default() };
            test(&path, &|| open(&path, &options).unwrap());
        }
    }
}

fn blocks(count: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(count * BLOCK);
    buf.as_mut_slice().fill(byte);
    buf
}

#[test]
fn device_writes_are_read_back_at_any_offset() {
    each_device(|_, open| {
        let device = open();
        assert_eq!(device.len(), LEN);
        let two = blocks(2, 2);
        device.write_at(two.as_slice(), BLOCK as u64).unwrap();
        let writes = [
            DeviceWrite { offset: 5 * BLOCK as u64, data: &two.as_slice()[..BLOCK] },
            DeviceWrite { offset: 8 * BLOCK as u64, data: &two.as_slice()[BLOCK..] },
        ];
        device.write_batch(&writes).unwrap();
        device.sync().unwrap();
        device.write_durable(blocks(1, 7).as_slice(), 63 * BLOCK as u64).unwrap();
        drop(device);
        let device = open();
        let (mut a, mut b, mut c) = ([9; 3], [9; 5000], [9; 1]);
        let mut requests = [
            ReadRequest { offset: BLOCK as u64 - 1, buf: &mut a },
            ReadRequest { offset: 4 * BLOCK as u64 + 7, buf: &mut b },
            ReadRequest { offset: LEN - 1, buf: &mut c },
        ];
        device.read_batch(&mut requests).unwrap();
        assert_eq!((a, c), ([0, 2, 2], [7]));
        assert!(b[..BLOCK - 7].iter().all(|&x| x == 0) && b[BLOCK - 7..].iter().all(|&x| x == 2));
        let past = device.read_at(&mut [0; 2], LEN - 1).unwrap_err();
        assert_eq!((past.kind(), past.file()), (ErrorKind::Corruption, Some(device.path())));
    });
}

#[test]
fn a_device_is_opened_once_for_writing_and_keeps_its_contents() {
    each_device(|path, open_again| {
        let device = open_again();
        device.write_durable(blocks(1, 5).as_slice(), 0).unwrap();
        let read_only = DeviceOptions { read_only: true, ..Default::default() };
        for options in [DeviceOptions::default(), read_only] {
            assert_eq!(open(path, &options).unwrap_err().kind(), ErrorKind::Locked);
        }
        drop(device);
        let (a, b) = (open(path, &read_only).unwrap(), open(path, &read_only).unwrap());
        assert_eq!(open(path, &DeviceOptions::default()).unwrap_err().kind(), ErrorKind::Locked);
        let block = blocks(1, 6);
        for refused in [a.write_at(block.as_slice(), 0), b.write_durable(block.as_slice(), 0), b.sync()] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnly);
        }
        drop((a, b));
        let mut byte = [0];
        open_again().read_at(&mut byte, 0).unwrap();
        assert_eq!(byte, [5], "the lock left the contents alone");
    });
}

#[test]
fn direct_io_sees_and_overwrites_buffered_writes() {
    each_device(|_, open| {
        let device = open();
        let at = 4 * BLOCK as u64;
        device.write_durable(blocks(2, 0).as_slice(), at).unwrap();
        device.write_scratch(b"ab", at + BLOCK as u64 - 1).unwrap();
        let mut found = [0; 4];
        device.read_at(&mut found, at + BLOCK as u64 - 2).unwrap();
        assert_eq!(&found, b"\0ab\0");
        device.write_at(blocks(2, 1).as_slice(), at).unwrap();
        device.sync().unwrap();
        device.read_at(&mut found, at + BLOCK as u64 - 2).unwrap();
        assert_eq!(found, [1; 4], "no page of the cache comes back");
    });
}

#[test]
fn discarded_blocks_are_given_back_by_a_sparse_image() {
    each_device(|path, open| {
        let device = open();
        device.write_at(blocks(64, 3).as_slice(), 0).unwrap();
        device.sync().unwrap();
        match device.discard(BLOCK as u64, 32 * BLOCK as u64) {
            Ok(()) => {
                let left = env(IoEngine::Portable).fs.metadata(path).unwrap().allocated;
                assert!(left <= LEN / 2 + BLOCK as u64, "{left} bytes are still allocated");
            }
            Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported),
        }
        let mut byte = [0];
        device.read_at(&mut byte, 40 * BLOCK as u64).unwrap();
        assert_eq!(byte, [3]);
    });
}

#[test]
fn only_devices_and_plain_files_are_devices() {
    let dir = Temp::new();
    assert_eq!(kind(&dir.0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(open(&dir.0.join("none"), &DeviceOptions::default()).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(
        create_image(&dir.0.join("odd"), 100, ImageRoom::Sparse).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    let path = dir.0.join("image");
    create_image(&path, LEN, ImageRoom::Sparse).unwrap();
    assert_eq!(kind(&path).unwrap(), DeviceKind::Image);
    assert_eq!(create_image(&path, LEN, ImageRoom::Sparse).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let plain = env(IoEngine::Portable).fs.open(&path, Access::Buffered).unwrap();
    assert_eq!(plain.len().unwrap(), LEN);
}

#[test]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "somebody else makes the image longer"
)]
fn extending_an_image_keeps_its_contents() {
    for room in ROOMS {
        let dir = Temp::new();
        let path = dir.0.join("image");
        create_image(&path, LEN, room).unwrap();
        let device = open(&path, &DeviceOptions::default()).unwrap();
        device.write_durable(blocks(64, 3).as_slice(), 0).unwrap();
        assert_eq!(extend_image(&path, 2 * LEN, room).unwrap_err().kind(), ErrorKind::Locked);
        drop(device);
        for wrong in [LEN - BLOCK as u64, 2 * LEN + 1] {
            let e = extend_image(&path, wrong, room).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidArgument);
            assert!(e.message().starts_with("an image of 262144 bytes can only grow"), "{e}");
        }
        extend_image(&path, 2 * LEN, room).unwrap();
        extend_image(&path, 2 * LEN, room).unwrap();
        let fs = env(IoEngine::Portable).fs;
        let allocated = fs.metadata(&path).unwrap().allocated;
        assert_eq!(allocated >= 2 * LEN, room != ImageRoom::Sparse, "{allocated} bytes, {room:?}");
        let device = open(&path, &DeviceOptions::default()).unwrap();
        assert_eq!(device.len(), 2 * LEN);
        let mut found = vec![9; 2 * LEN as usize];
        device.read_at(&mut found, 0).unwrap();
        let (old, new) = found.split_at(LEN as usize);
        assert!(old.iter().all(|&b| b == 3) && new.iter().all(|&b| b == 0));
        // Another writer extends the image while it is open.
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(3 * LEN + 7).unwrap();
        assert_eq!((device.len(), device.measure().unwrap(), device.len()), (2 * LEN, 3 * LEN, 3 * LEN));
        device.write_durable(blocks(1, 4).as_slice(), 3 * LEN - BLOCK as u64).unwrap();
    }
    assert_eq!(
        extend_image(Path::new("/none"), LEN, ImageRoom::Sparse).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

/// No user may write this file; its lock needs only read permission.
#[test]
fn an_unwritable_image_is_reported() {
    let e = extend_image(Path::new("/sys/devices/system/cpu/online"), LEN, ImageRoom::Sparse).unwrap_err();
    assert!(e.message().starts_with("cannot open an image"), "{e}");
}

#[test]
fn an_image_without_space_to_grow_is_unchanged() {
    let Some(volume) = SmallVolume::mount(1 << 20) else { return };
    let path = volume.0.0.join("image");
    for room in [ImageRoom::Written, ImageRoom::Reserved] {
        create_image(&path, LEN, room).unwrap();
        assert_eq!(extend_image(&path, 4 << 20, room).unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(open(&path, &DeviceOptions::default()).unwrap().len(), LEN);
        env(IoEngine::Portable).fs.remove(&path).unwrap();
    }
}

#[test]
fn an_image_that_does_not_fit_leaves_no_file() {
    let Some(volume) = SmallVolume::mount(1 << 20) else { return };
    let path = volume.0.0.join("image");
    for room in [ImageRoom::Written, ImageRoom::Reserved] {
        assert_eq!(create_image(&path, 4 << 20, room).unwrap_err().kind(), ErrorKind::NoSpace);
        assert!(!path.exists());
    }
}

/// Other files fill the file system of an image: a preallocated image is not affected, a sparse one
/// reports `NoSpace`.
#[test]
fn a_reserved_image_is_written_on_a_full_file_system() {
    let Some(volume) = SmallVolume::mount(4 << 20) else { return };
    let path = |room| volume.0.0.join(format!("{room:?}"));
    ROOMS.into_iter().for_each(|room| create_image(&path(room), LEN, room).unwrap());
    assert_eq!(
        create_image(&volume.0.0.join("other"), 8 << 20, ImageRoom::Written).unwrap_err().kind(),
        ErrorKind::NoSpace
    );
    // The file was removed again, so its space is taken in small pieces.
    (0..64).for_each(|i| drop(create_image(&volume.0.0.join(format!("{i}")), LEN, ImageRoom::Written)));
    for room in ROOMS {
        let device = open(&path(room), &DeviceOptions::default()).unwrap();
        let written = device.write_durable(blocks(64, 7).as_slice(), 0).map_err(|e| e.kind());
        let expected = if room == ImageRoom::Sparse { Err(ErrorKind::NoSpace) } else { Ok(()) };
        assert_eq!(written, expected, "{room:?}");
    }
}

/// A loop device over a file, where the machine allows it.
struct Loop(String);

impl Loop {
    fn over(image: &Path) -> Option<Loop> {
        let done = Command::new("losetup").args(["--find", "--show"]).arg(image).output();
        match done {
            Ok(out) if out.status.success() => {
                Some(Loop(String::from_utf8(out.stdout).unwrap().trim().into()))
            }
            _ => {
                println!("skipped: no loop device can be had here");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).output();
    }
}

#[test]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "somebody else makes the device longer"
)]
fn a_raw_device_is_claimed_and_counted() {
    let dir = Temp::new();
    let image = dir.0.join("image");
    create_image(&image, 1 << 20, ImageRoom::Written).unwrap();
    let Some(raw) = Loop::over(&image) else { return };
    let path = Path::new(&raw.0);
    assert_eq!(kind(path).unwrap(), DeviceKind::Raw);
    let before = usage::device(path).unwrap();
    let device = open(path, &DeviceOptions::default()).unwrap();
    assert_eq!(device.len(), 1 << 20);
    device.write_durable(blocks(16, 4).as_slice(), 0).unwrap();
    let after = usage::device(path).unwrap();
    assert_eq!(after.write_bytes - before.write_bytes, 16 * BLOCK as u64);
    assert_eq!(open(path, &DeviceOptions::default()).unwrap_err().kind(), ErrorKind::Locked);
    match device.discard(0, 8 * BLOCK as u64) {
        Ok(()) => {}
        Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported),
    }
    // The growth is visible while the device is open.
    let refused = extend_image(path, 2 << 20, ImageRoom::Sparse).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert_eq!(refused.message(), "a block device cannot grow: its length is fixed");
    std::fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(2 << 20).unwrap();
    assert!(Command::new("losetup").args(["-c", &raw.0]).status().unwrap().success());
    assert_eq!((device.len(), device.measure().unwrap(), device.len()), (1 << 20, 2 << 20, 2 << 20));
    device.write_durable(blocks(1, 5).as_slice(), (2 << 20) - BLOCK as u64).unwrap();
}
