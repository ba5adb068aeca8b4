//! Block devices of the machine: a raw device, or an image file that stands for one.
//!
//! Both are opened with direct access. Image files on file systems without it go through the page
//! cache, which only affects the speed. A raw device is claimed from the kernel, which refuses a
//! mounted or otherwise used one. Both are also locked against other processes of LavaStore.
//!
//! An image is written once when it is created, unless it is sparse: a data sync of a block that
//! was never written is a transaction of the file system below. For the same reason only a sparse
//! image releases discarded blocks.
//!
//! A durable write to a raw device is a write and a flush. A write with `RWF_DSYNC` would be one
//! call. But on a raw device the kernel then sends a forced write *and* a flush. A device without
//! forced writes (loop devices and many virtual ones) is flushed twice: 1.3 times the latency.
//! Image files do not have this problem, and keep the flag.
//!
//! Scratch data, which survive the process but not a power loss, go through the page cache, by a
//! separate descriptor. Direct reads first write back dirty pages of their range, and direct writes
//! drop them, so both ways may be used for a range at different times. The flush leaves such pages
//! alone (`super::flush`).

mod queue;

use super::calls;
use super::flush::DeviceFlusher;
use super::handle::{Handle, fail, retry};
use super::lock;
use super::pool::BufPool;
use super::read::{Engine, KernelReadFile};
use super::uring::RingPool;
use super::{IoEngine, KernelOptions};
use crate::device::{BlockDevice, Completions, DeviceQueue, check_blocks, check_range, check_write, whole};
use crate::{Access, BLOCK, FileLock, PartialWrite, ReadFile, ReadRequest, SyncKind};
use base::sync::atomic::{AtomicU64, Ordering};
use base::{Error, ErrorKind, Result};
use rustix::fs::{FallocateFlags, FileType, OFlags, SeekFrom};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// Options of an open.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceOptions {
    /// Engine of the I/O.
    pub kernel: KernelOptions,
    /// Opens it beside other readers, and refuses writes.
    pub read_only: bool,
}

/// Kind of the file that a device path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A block device.
    Raw,
    /// A plain file that stands for a device.
    Image,
}

#[derive(Debug)]
struct KernelDevice {
    file: KernelReadFile,
    /// Grows by a measurement.
    len: AtomicU64,
    read_only: bool,
    /// Present for a writable raw device.
    flusher: Option<DeviceFlusher>,
    /// Handle through the page cache, if the other one is direct.
    cached: Option<Handle>,
    _lock: Box<dyn FileLock>,
}

/// Opens a device or an image.
///
/// # Errors
/// `Locked` if another process of LavaStore has it open, or the kernel itself (mounted, swap);
/// `InvalidArgument` if the path is neither; those of the system.
pub fn open(path: &Path, options: &DeviceOptions) -> Result<Arc<dyn BlockDevice>> {
    Ok(open_kernel(path, options)?)
}

fn open_kernel(path: &Path, options: &DeviceOptions) -> Result<Arc<KernelDevice>> {
    let kind = kind(path)?;
    let lock = lock::lock_contents(path, options.read_only)?;
    let mut flags = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if kind == DeviceKind::Raw && !options.read_only {
        // Without CREATE, EXCL claims the device.
        flags |= OFlags::EXCL;
    }
    let handle =
        Handle::open("cannot open a device", path, flags, Access::Direct).map_err(|e| match kind {
            DeviceKind::Raw if busy(path, flags) => {
                let why = "the device is mounted, or in use by the system: unmount it";
                Error::new(ErrorKind::Locked, why).at_file(path)
            }
            _ => e,
        })?;
    let end = end_of(&handle)?;
    let flusher = match kind {
        DeviceKind::Raw if !options.read_only && end >= BLOCK as u64 => Some(DeviceFlusher::new(&handle)?),
        _ => None,
    };
    let cached = (!options.read_only && handle.is_direct())
        .then(|| Handle::open("cannot open a device", path, OFlags::RDWR, Access::Buffered))
        .transpose()?;
    let rings = match options.kernel.engine {
        IoEngine::Portable => None,
        IoEngine::Auto | IoEngine::IoUring => RingPool::probe().ok(),
    };
    let engine = Arc::new(Engine { pool: BufPool::default(), rings });
    Ok(Arc::new(KernelDevice {
        file: KernelReadFile::of(handle, engine),
        len: AtomicU64::new(whole(end)),
        read_only: options.read_only,
        flusher,
        cached,
        _lock: lock,
    }))
}

/// Returns the end of a device or an image, bytes.
fn end_of(handle: &Handle) -> Result<u64> {
    calls::seek(&handle.fd, SeekFrom::End(0)).map_err(|e| handle.fail("cannot read the size of a device", e))
}

/// Returns whether a path is a device or an image; fails if it is neither.
pub fn kind(path: &Path) -> Result<DeviceKind> {
    let stat = calls::stat(path).map_err(|e| fail("cannot look up a device", path, e))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => Ok(DeviceKind::Raw),
        FileType::RegularFile => Ok(DeviceKind::Image),
        _ => {
            let why = "the path is neither a block device nor a plain file: name one of these";
            Err(Error::invalid(why).at_file(path))
        }
    }
}

fn busy(path: &Path, flags: OFlags) -> bool {
    let opened = calls::open(path, flags | OFlags::CLOEXEC, rustix::fs::Mode::empty());
    matches!(opened, Err(Errno::BUSY))
}

/// Space allocation of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRoom {
    /// Written once from front to back. Syncs of the image never change the metadata of its file
    /// system.
    Written,
    /// Blocks are reserved, and not written: created at once. Writes succeed even if the file
    /// system is full (a copy-on-write one guarantees less). A sync after the first write to a
    /// block costs an entry in the file system's journal.
    Reserved,
    /// Blocks are allocated by writes. A full file system then fails a write of the volume in the
    /// image, which stops until it is mounted again.
    Sparse,
}

/// Makes an image file of `len` bytes.
///
/// # Errors
/// `AlreadyExists`; `NoSpace` leaves no file behind.
pub fn create_image(path: &Path, len: u64, room: ImageRoom) -> Result<()> {
    if len == 0 || !len.is_multiple_of(BLOCK as u64) {
        let why =
            format!("the length of an image must be a positive multiple of {BLOCK} bytes, not {len} bytes");
        return Err(Error::invalid(why).at_file(path));
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
    let handle = Handle::open("cannot create an image", path, flags, Access::Direct)?;
    let made = match room {
        ImageRoom::Sparse => retry(|| calls::ftruncate(&handle.fd, len)),
        ImageRoom::Reserved | ImageRoom::Written => handle.allocate(len).and_then(|()| {
            // Where blocks cannot be reserved, they are written.
            let reserved = calls::fstat(&handle.fd)?.st_blocks as u64 * 512 >= len;
            if room == ImageRoom::Reserved && reserved { Ok(()) } else { handle.write_zeros(0..len) }
        }),
    };
    let made = made.and_then(|()| handle.sync(SyncKind::Full));
    let made = made.map_err(|e| handle.fail("cannot allocate an image", e));
    // Without a durable name the volume is lost, even if its contents were synced.
    let named = made.and_then(|()| super::fs::sync_dir(path.parent().unwrap_or(Path::new(""))));
    named.inspect_err(|_| {
        // The first error is the one to report.
        let _ = calls::unlink(path);
    })
}

/// Extends an image that is not open to `len` bytes; the new part is allocated as `room` says.
/// After an interruption at any point the image has its old length or a greater one, which a volume
/// in it does not notice.
///
/// # Errors
/// `InvalidArgument` if it is already longer, or no image; `Locked`; `NoSpace`, and the length is
/// unchanged.
pub fn extend_image(path: &Path, len: u64, room: ImageRoom) -> Result<()> {
    if kind(path)? == DeviceKind::Raw {
        return Err(Error::invalid("a block device cannot grow: its length is fixed").at_file(path));
    }
    let _lock = lock::lock_contents(path, false)?;
    let handle = Handle::open("cannot open an image", path, OFlags::RDWR, Access::Direct)?;
    let old = handle.len()?;
    if !len.is_multiple_of(BLOCK as u64) || len < old {
        let why = format!(
            "an image of {old} bytes can only grow, to a multiple of {BLOCK} bytes, not to {len} \
             bytes"
        );
        return Err(Error::invalid(why).at_file(path));
    }
    let more = match room {
        ImageRoom::Sparse => handle.set_len(len),
        ImageRoom::Reserved => handle.allocate(len).and_then(|()| handle.set_len(len)),
        ImageRoom::Written => handle.allocate(len).and_then(|()| handle.write_zeros(whole(old)..len)),
    };
    let more = more.and_then(|()| handle.sync(SyncKind::Full));
    more.map_err(|e| {
        // The first error is the one to report. If this fails the image stays longer, which does
        // not affect a volume.
        let _ = handle.set_len(old);
        handle.fail("cannot extend an image", e)
    })
}

impl KernelDevice {
    fn handle(&self) -> &Handle {
        self.file.handle()
    }

    /// Returns the flusher, unless written data may be in the page cache.
    fn flusher(&self) -> Option<&DeviceFlusher> {
        self.flusher.as_ref().filter(|_| self.handle().is_direct())
    }

    fn writable(&self) -> Result<()> {
        self.handle().check_process()?;
        match self.read_only {
            false => Ok(()),
            true => {
                let why = "the device was opened read-only: open it for writing";
                Err(Error::new(ErrorKind::ReadOnly, why).at_file(&self.handle().path))
            }
        }
    }
}

impl BlockDevice for KernelDevice {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn measure(&self) -> Result<u64> {
        let len = whole(end_of(self.handle())?);
        self.len.fetch_max(len, Ordering::AcqRel);
        Ok(len)
    }

    fn queue(self: Arc<Self>, completions: Completions) -> Result<Box<dyn DeviceQueue>> {
        Ok(Box::new(queue::KernelQueue::new(self, completions)))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(buf, offset)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        self.file.read_batch(requests)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        check_write(data, offset, self.len());
        self.writable()?;
        self.handle()
            .write_all_at(data, offset)
            .map_err(|e| self.handle().fail("cannot write a device", e).at_offset(offset))
    }

    fn write_durable(&self, data: &[u8], offset: u64) -> Result<()> {
        check_write(data, offset, self.len());
        self.writable()?;
        let written = match self.flusher() {
            Some(flusher) => {
                self.handle().write_all_at(data, offset).and_then(|()| retry(|| flusher.flush()))
            }
            None => self.handle().write_durable_at(data, offset),
        };
        written.map_err(|e| self.handle().fail("cannot write a device durably", e).at_offset(offset))
    }

    fn sync(&self) -> Result<()> {
        self.writable()?;
        let synced = match self.flusher() {
            Some(flusher) => retry(|| flusher.flush()),
            None => self.handle().sync(SyncKind::Data),
        };
        synced.map_err(|e| self.handle().fail("cannot sync a device", e))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_blocks(offset, len, self.len());
        self.writable()?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry(|| calls::fallocate(&self.handle().fd, flags, offset, len)).map_err(|e| {
            let error = self.handle().fail("cannot discard blocks of a device", e).at_offset(offset);
            match e {
                Errno::OPNOTSUPP | Errno::NOSYS => error.with_kind(ErrorKind::Unsupported),
                _ => error,
            }
        })
    }

    fn write_scratch(&self, data: &[u8], offset: u64) -> std::result::Result<(), PartialWrite> {
        check_range(data, offset, self.len());
        self.writable().map_err(|error| PartialWrite { stored_bytes: 0, error })?;
        self.cached.as_ref().unwrap_or_else(|| self.handle()).write_counted(data, offset)
    }

    fn path(&self) -> &Path {
        &self.handle().path
    }
}

impl DeviceKind {
    /// Returns the name of the kind for messages.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Raw => "device",
            DeviceKind::Image => "image",
        }
    }
}
