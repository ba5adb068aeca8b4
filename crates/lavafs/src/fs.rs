//! The file system interface: names and file creation.

use crate::append::LavaAppendFile;
use crate::core::{Core, OpenFileState};
use crate::geometry::Role;
use crate::inplace::{self, LavaInPlaceFile, LavaLock, LavaScratchFile};
use crate::layout::{self, BLOCK, Extent, blocks_for};
use crate::meta::joined;
use crate::op::{FileRecord, Ino, Op};
use crate::pages::PageCacheStatistics;
use crate::path::{dir_of, file_of};
use crate::read::LavaReadFile;
use crate::stats::{DeviceStatistics, Statistics};
use crate::volume::Volume;
use base::process::Process;
use base::sync::lock;
use base::{Error, ErrorKind, Result, Uid};
use io::{
    Access, AlignedBuf, AppendFile, CreateOptions, DirEntry, Env, FileLock, FileSystem, FsSpace, InPlaceFile,
    Metadata, Placement, ReadFile, ScratchFile,
};
use std::path::Path;
use std::sync::Arc;

/// Maximum length of the holder line in a lock file, in bytes.
const HOLDER_LEN_MAX: usize = 1000;
/// Number of files whose lengths a listing reads under one hold of the lock: 0.3 ms, out of 30 ms
/// for a hundred thousand files.
const LIST_AT_ONCE: usize = 1000;

/// Serves the files of a mounted volume; most programs only turn it into an environment for a store
/// ([`LavaFs::into_env`]).
///
/// Dropping it makes all pending changes durable, if possible, and records a clean unmount;
/// [`LavaFs::unmount`] reports errors of that.
#[derive(Debug)]
pub struct LavaFs {
    volume: Arc<Volume>,
    /// Process that mounted the volume. A forked child would find the locks in an arbitrary state
    /// left by threads of its parent.
    process: Process,
}

fn not_found(path: &Path) -> Error {
    Error::not_found("the volume has no such file or directory: check the path").at_file(path)
}

fn exists(path: &Path) -> Error {
    Error::new(ErrorKind::AlreadyExists, "the name exists already; choose another one").at_file(path)
}

fn wrong(why: &str, path: &Path) -> Error {
    Error::new(ErrorKind::Io, why).at_file(path)
}

/// New file that gets a name.
struct NewFile<'a> {
    dir: &'a str,
    name: &'a str,
    size: u64,
    closed: bool,
    extents: Vec<Extent>,
}

impl LavaFs {
    pub(crate) fn new(volume: Volume) -> Self {
        LavaFs { volume: Arc::new(volume), process: Process::here() }
    }

    #[cfg(test)]
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Returns an environment whose file system is this volume, to open a store on it
    /// (`Db::open_in`). The volume stays mounted while the environment or a clone lives. Paths
    /// begin at the root of the volume.
    pub fn into_env(self) -> Env {
        let below = self.volume.env.clone();
        Env { fs: Arc::new(self), ..below }
    }

    /// Returns the counters and the contents of the volume, for monitoring. Reads memory only.
    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.volume)
    }

    /// Returns bytes that mask the records of a file, so that old contents of its blocks, from
    /// another file, are never read as its records. Outsiders cannot guess the stamp, and no two
    /// files ever have the same one. The writer of the file must keep the stamp secret: records
    /// forged with it would pass as records of the file.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn stamp(&self, path: &Path) -> Result<Uid> {
        let core = lock(&self.volume.core);
        let ino = find(&core, path)?;
        let word = |salt: u8| {
            let mut bytes = self.volume.identity.key.0.to_vec();
            bytes.extend_from_slice(&ino.to_le_bytes());
            bytes.push(salt);
            base::hash::key_hash(&bytes)
        };
        Ok(Uid::from_words(word(1), word(2)))
    }

    /// Returns the sorted names of the subdirectories of a directory.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn directories(&self, dir: &Path) -> Result<Vec<String>> {
        let core = lock(&self.volume.core);
        let whole = dir_of(dir)?;
        if !core.meta.directories().has(&whole) {
            return Err(not_found(dir));
        }
        let inside = core
            .meta
            .directories()
            .paths()
            .filter_map(|d| crate::meta::parent(d))
            .filter(|(above, _)| *above == whole);
        Ok(inside.map(|(_, name)| name.to_owned()).collect())
    }

    /// Returns the extents of a file.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn extents(&self, path: &Path) -> Result<Vec<Extent>> {
        Ok(self.live(path)?.extents().to_vec())
    }

    /// Compacts the journal now, even if no compaction is due.
    ///
    /// # Errors
    /// The errors of the device, which have poisoned the volume.
    pub fn compact_journal(&self) -> Result<()> {
        self.volume.upkeep.compact(&self.volume)
    }

    /// Grows the volume after its device (of two: the speed device) has become longer. Takes all
    /// new space, or as much as gives the volume `len` bytes. File operations continue meanwhile.
    /// Returns the new size of the volume in bytes, which is the old one if nothing changed. A
    /// crash leaves the old size or the new one.
    ///
    /// ```
    /// # use io::{CreateOptions, FileSystem, sim::SimEnv};
    /// # use lavastore_lavafs::{FormatOptions, MountOptions, format, mount};
    /// let machine = SimEnv::new(1);
    /// let device = machine.device("/disk", 64 << 20)?;
    /// format(&machine.env(), &*device, &FormatOptions::default())?;
    /// let fs = mount(&machine.env(), device, MountOptions::default())?;
    /// machine.lengthen_device("/disk", 96 << 20)?;
    /// assert_eq!(fs.statistics().total_bytes, 64 << 20);
    /// assert_eq!(fs.grow(None)?, 96 << 20);
    /// assert_eq!(fs.statistics().total_bytes, 96 << 20);
    /// # Ok::<(), base::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if `len` exceeds the device or is less than the size of the volume;
    /// `Corruption` if the device has become shorter than the volume; `ReadOnly`; the errors of the
    /// device, which have poisoned the volume.
    pub fn grow(&self, len: Option<u64>) -> Result<u64> {
        self.grow_device(Role::Fast, len)
    }

    /// Same as [`LavaFs::grow`] for one device of a two-device volume. Returns the size of the
    /// volume on that device, in bytes.
    ///
    /// # Errors
    /// The errors of [`LavaFs::grow`]; `InvalidArgument` if the device does not exist.
    pub fn grow_device(&self, role: Role, len: Option<u64>) -> Result<u64> {
        crate::grow::grow(&self.volume, role, len)
    }

    /// Grows the volume by all new space of its devices.
    pub(crate) fn grow_all(&self) -> Result<()> {
        self.volume.device.roles().try_for_each(|role| self.grow_device(role, None).map(|_| ()))
    }

    /// Returns the statistics of the devices: of the only one, or of the speed device and then the
    /// capacity device.
    pub fn devices(&self) -> Vec<DeviceStatistics> {
        DeviceStatistics::of(&self.volume)
    }

    /// Makes all changes durable and records a clean unmount. A drop does the same, but cannot
    /// report errors.
    ///
    /// # Errors
    /// The errors of the device, and `Poisoned` after an earlier one.
    pub fn unmount(&self) -> Result<()> {
        self.volume.unmount()
    }

    /// Returns the statistics of the page cache, to judge its size; `None` if the volume was
    /// mounted without one.
    pub fn page_cache(&self) -> Option<PageCacheStatistics> {
        self.volume.pages.as_ref().map(|pages| pages.statistics())
    }

    fn add_file(&self, core: &mut Core, new: NewFile<'_>) -> Result<(Ino, u64)> {
        let NewFile { dir, name, size, closed, extents } = new;
        let ino = core.meta.nodes().next_ino();
        self.volume.queue(core, &Op::File(FileRecord { ino, size, closed, extents }))?;
        let link = Op::Link { dir: dir.to_owned(), name: name.to_owned(), ino };
        Ok((ino, self.volume.queue(core, &link)?))
    }

    fn live(&self, path: &Path) -> Result<Arc<OpenFileState>> {
        let mut core = lock(&self.volume.core);
        let ino = find(&core, path)?;
        core.open(ino)
    }

    /// Creates a file whose blocks hold durable zeros; without `zero`, only the first block does.
    /// With `replace`, the file replaces an existing one of the same name.
    fn create_fixed(&self, path: &Path, len: u64, replace: bool, zero: bool) -> Result<Arc<OpenFileState>> {
        let (dir, name) = file_of(path)?;
        self.volume.check_writable(path)?;
        let vacant = |core: &Core| match (check_vacant(core, path), replace) {
            (Err(e), true) if e.kind() == ErrorKind::AlreadyExists => find(core, path).map(|_| ()),
            (vacancy, _) => vacancy,
        };
        vacant(&lock(&self.volume.core))?;
        self.volume.check_room().map_err(|e| e.at_file(path))?;
        let extents = match len {
            0 => Vec::new(),
            _ => {
                let role = self.volume.role_of(path, Placement::ByName);
                self.volume.allocate(blocks_for(len), None, role).map_err(|e| e.at_file(path))?
            }
        };
        // The first page never holds data of another file: it shows whether the file was written
        // under its name.
        let (first, _) = layout::split_at(&extents, 1);
        let zeroed = inplace::write_zeros(&self.volume, if zero { &extents } else { &first })
            .map_err(|e| e.at_file(path));
        let mut core = lock(&self.volume.core);
        let made = zeroed.and_then(|()| vacant(&core)).and_then(|()| {
            if core.meta.directories().look_up(&dir, &name).is_some() {
                let old = Op::Unlink { dir: dir.clone(), name: name.clone() };
                self.volume.queue(&mut core, &old)?;
            }
            let new = NewFile { dir: &dir, name: &name, size: len, closed: true, extents: extents.clone() };
            self.add_file(&mut core, new)
        });
        let (ino, position) = match made {
            Ok(made) => made,
            Err(e) => {
                core.release(&extents)?;
                return Err(e);
            }
        };
        let live = core.open(ino)?;
        drop(core);
        self.volume.commit(position).map_err(|e| e.at_file(path))?;
        Ok(live)
    }

    /// Returns an existing scratch file that can be reused: it must have the right length and no
    /// holes. Its blocks are zeroed.
    fn reuse_zeroed(&self, path: &Path, len: u64) -> Result<Option<Arc<OpenFileState>>> {
        self.volume.check_writable(path)?;
        let live = {
            let mut core = lock(&self.volume.core);
            let ino = match find(&core, path) {
                Ok(ino) => ino,
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(e),
            };
            let fits = core.meta.nodes().get(ino).is_some_and(|n| {
                n.closed && n.size == len && layout::allocated_of(n.extents.as_slice()) == blocks_for(len)
            });
            if !fits {
                return Ok(None);
            }
            core.open(ino)?
        };
        let zeroed = inplace::write_zeros(&self.volume, &live.extents());
        self.volume.forget_pages(&live, 0, len);
        zeroed.map_err(|e| e.at_file(path))?;
        Ok(Some(live))
    }

    /// Writes the holder line into a lock file. The line is informational.
    fn write_holder(&self, live: &OpenFileState, holder: &str) -> Result<()> {
        let mut line: String = holder.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        while line.len() > HOLDER_LEN_MAX {
            line.pop();
        }
        line.push('\n');
        if live.extents().is_empty() {
            self.volume.grow(live, (0, 1), true, Role::Fast)?;
        }
        let mut block = AlignedBuf::zeroed(BLOCK as usize);
        block.as_mut_slice()[..line.len()].copy_from_slice(line.as_bytes());
        if let Some(extent) = live.extents().first().filter(|e| !e.is_hole()) {
            let written = self.volume.device.write_durable(block.as_slice(), extent.offset());
            self.volume.forget_pages(live, 0, BLOCK);
            self.volume.durability.poisoned_by(written)?;
            let mut core = lock(&self.volume.core);
            let op = Op::Size { ino: live.ino, size: line.len() as u64, closed: true };
            self.volume.queue(&mut core, &op)?;
            live.set_size(line.len() as u64);
        }
        Ok(())
    }
}

impl Drop for LavaFs {
    fn drop(&mut self) {
        if !self.process.is_here() {
            return;
        }
        // A caller that needs the errors calls `unmount` first. The durability of the remaining
        // changes was never acknowledged.
        let _ = self.volume.unmount();
    }
}

fn check_pages(path: &Path, len: u64) -> Result<()> {
    if len.is_multiple_of(BLOCK) {
        return Ok(());
    }
    let why = format!("a file written in place has {len} bytes, but needs a multiple of {BLOCK} bytes");
    Err(Error::invalid(why).at_file(path))
}

/// Returns the file with this path.
fn find(core: &Core, path: &Path) -> Result<Ino> {
    let (dir, name) = file_of(path)?;
    match core.meta.directories().look_up(&dir, &name) {
        Some(ino) => Ok(ino),
        None if core.meta.directories().has(&joined(&dir, &name)) => {
            Err(wrong("the path is a directory, not a file: name a file", path))
        }
        None => Err(not_found(path)),
    }
}

/// Rejects a path at which nothing can be created.
fn check_vacant(core: &Core, path: &Path) -> Result<()> {
    let (dir, name) = file_of(path)?;
    if !core.meta.directories().has(&dir) {
        return Err(not_found(path));
    }
    let taken = core.meta.directories().look_up(&dir, &name).is_some()
        || core.meta.directories().has(&joined(&dir, &name));
    if taken { Err(exists(path)) } else { Ok(()) }
}

/// Takes the lock of a file if it is free.
fn hold_lock(core: &mut Core, ino: Ino, path: &Path, holder: &str) -> Result<()> {
    if let Some(present) = core.locks.get(&ino) {
        let why = format!("the lock of the file is held by {present}; close that first, or open a copy");
        return Err(Error::new(ErrorKind::Locked, why).at_file(path));
    }
    core.locks.insert(ino, holder.to_owned());
    Ok(())
}

impl FileSystem for LavaFs {
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        self.process.check()?;
        let (dir, name) = file_of(path)?;
        self.volume.check_writable(path)?;
        check_vacant(&lock(&self.volume.core), path)?;
        self.volume.check_room().map_err(|e| e.at_file(path))?;
        let (live, position) = {
            let mut core = lock(&self.volume.core);
            check_vacant(&core, path)?;
            let new = NewFile { dir: &dir, name: &name, size: 0, closed: false, extents: Vec::new() };
            let (ino, position) = self.add_file(&mut core, new)?;
            (core.open(ino)?, position)
        };
        self.volume.relieve()?;
        Ok(Box::new(LavaAppendFile::new(self.volume.clone(), live, path.to_owned(), position, options)))
    }

    fn open(&self, path: &Path, _access: Access) -> Result<Arc<dyn ReadFile>> {
        self.process.check()?;
        let live = self.live(path)?;
        Ok(Arc::new(LavaReadFile { volume: self.volume.clone(), live, path: path.to_owned() }))
    }

    fn create_in_place(&self, path: &Path, len: u64, _access: Access) -> Result<Arc<dyn InPlaceFile>> {
        self.process.check()?;
        check_pages(path, len)?;
        let live = self.create_fixed(path, len, false, true)?;
        Ok(Arc::new(LavaInPlaceFile::new(self.volume.clone(), live, path.to_owned(), len)))
    }

    fn create_in_place_unzeroed(
        &self,
        path: &Path,
        len: u64,
        _access: Access,
    ) -> Result<Arc<dyn InPlaceFile>> {
        self.process.check()?;
        check_pages(path, len)?;
        let live = self.create_fixed(path, len, false, false)?;
        Ok(Arc::new(LavaInPlaceFile::new(self.volume.clone(), live, path.to_owned(), len)))
    }

    fn open_in_place(&self, path: &Path, _access: Access) -> Result<Arc<dyn InPlaceFile>> {
        self.process.check()?;
        let live = self.live(path)?;
        let len = live.size();
        let len = len - len % BLOCK;
        Ok(Arc::new(LavaInPlaceFile::new(self.volume.clone(), live, path.to_owned(), len)))
    }

    fn create_scratch(&self, path: &Path, len: usize) -> Result<Arc<dyn ScratchFile>> {
        self.process.check()?;
        if len == 0 || len > isize::MAX as usize {
            return Err(Error::invalid(format!(
                "a scratch file cannot have {len} bytes: its length must be 1 to {} bytes",
                isize::MAX
            ))
            .at_file(path));
        }
        let live = match self.reuse_zeroed(path, len as u64)? {
            Some(live) => live,
            None => self.create_fixed(path, len as u64, true, true)?,
        };
        Ok(Arc::new(LavaScratchFile::new(self.volume.clone(), live, path.to_owned(), len)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.process.check()?;
        self.volume.check_writable(to)?;
        let ((from_dir, from_name), (to_dir, to_name)) = (file_of(from)?, file_of(to)?);
        let mut core = lock(&self.volume.core);
        let (source, target) = (joined(&from_dir, &from_name), joined(&to_dir, &to_name));
        if core.meta.directories().has(&source) {
            check_vacant(&core, to)?;
            if source == target || target.starts_with(&format!("{source}/")) {
                return Err(wrong(
                    "the target is the renamed directory itself, or in it: nothing was renamed; choose another target",
                    to,
                ));
            }
            self.volume.queue(&mut core, &Op::RenameDir { from: source, to: target })?;
            return Ok(());
        }
        find(&core, from)?;
        match check_vacant(&core, to) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => drop(find(&core, to)?),
            vacant => vacant?,
        }
        self.volume.queue(&mut core, &Op::Rename { from_dir, from: from_name, to_dir, to: to_name })?;
        drop(core);
        self.volume.relieve()
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.process.check()?;
        self.volume.check_writable(path)?;
        let (dir, name) = file_of(path)?;
        {
            let mut core = lock(&self.volume.core);
            find(&core, path)?;
            self.volume.queue(&mut core, &Op::Unlink { dir, name })?;
        }
        self.volume.relieve()
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.process.check()?;
        self.volume.check_writable(to)?;
        self.volume.check_room().map_err(|e| e.at_file(to))?;
        let (dir, name) = file_of(to)?;
        {
            let mut core = lock(&self.volume.core);
            let ino = find(&core, from)?;
            check_vacant(&core, to)?;
            self.volume.queue(&mut core, &Op::Link { dir, name, ino })?;
        }
        self.volume.relieve()
    }

    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> Result<()> {
        self.process.check()?;
        self.volume.check_writable(path)?;
        let mut core = lock(&self.volume.core);
        while !core.claims.is_empty() {
            // A pending claim covers bytes that must stay in place until the claim is durable.
            drop(core);
            self.volume.commit_all().map_err(|e| e.at_file(path))?;
            core = lock(&self.volume.core);
        }
        let ino = find(&core, path)?;
        let extents = core.meta.nodes().get(ino).map(|n| n.extents.as_slice().to_vec()).unwrap_or_default();
        let first = offset.div_ceil(BLOCK);
        let end = (offset.saturating_add(len) / BLOCK).min(layout::blocks_of(&extents));
        if first >= end {
            return Ok(());
        }
        let (_, rest) = layout::split_at(&extents, first);
        let (inside, _) = layout::split_at(&rest, end - first);
        if layout::allocated_of(&inside) > 0 {
            let blocks = u32::try_from(end - first).unwrap_or(u32::MAX);
            self.volume.queue(&mut core, &Op::Punch { ino, block: first, blocks })?;
        }
        drop(core);
        self.volume.relieve()
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.process.check()?;
        let whole = dir_of(dir)?;
        let names = lock(&self.volume.core).meta.directories().names(&whole).ok_or_else(|| not_found(dir))?;
        let (mut names, mut all) = (names.iter().peekable(), Vec::with_capacity(names.len()));
        while names.peek().is_some() {
            let core = lock(&self.volume.core);
            let part = names.by_ref().take(LIST_AT_ONCE);
            all.extend(part.filter_map(|(name, &ino)| entry_of(&core, name, ino)));
        }
        Ok(all)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.process.check()?;
        let core = lock(&self.volume.core);
        if core.meta.directories().has(&dir_of(path)?) {
            return Ok(Metadata { len: 0, allocated: 0, links: 1, is_dir: true, identity: None });
        }
        let ino = find(&core, path)?;
        let links = core.meta.nodes().get(ino).map_or(0, |n| u64::from(n.links));
        Ok(Metadata {
            len: core.size_of(ino),
            allocated: allocated(&core, ino),
            links,
            is_dir: false,
            identity: None,
        })
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.process.check()?;
        let whole = dir_of(dir)?;
        if lock(&self.volume.core).meta.directories().has(&whole) {
            return Ok(());
        }
        self.volume.check_writable(dir)?;
        self.volume.check_room().map_err(|e| e.at_file(dir))?;
        let mut core = lock(&self.volume.core);
        let ends = whole.match_indices('/').map(|(at, _)| at).chain(std::iter::once(whole.len()));
        for above in ends.filter_map(|end| whole.get(..end)) {
            if core.meta.directories().has(above) {
                continue;
            }
            if crate::meta::parent(above)
                .is_some_and(|(dir, name)| core.meta.directories().look_up(dir, name).is_some())
            {
                return Err(exists(dir));
            }
            self.volume.queue(&mut core, &Op::MakeDir { dir: above.to_owned() })?;
        }
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.process.check()?;
        self.volume.check_writable(dir)?;
        let name = dir_of(dir)?;
        let mut core = lock(&self.volume.core);
        if !core.meta.directories().has(&name) {
            return Err(not_found(dir));
        }
        if name.is_empty() || !core.meta.directories().is_empty(&name) {
            return Err(wrong(
                "the directory is not empty, or is the root: nothing was removed; remove its files and directories first",
                dir,
            ));
        }
        self.volume.queue(&mut core, &Op::RemoveDir { dir: name })?;
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.process.check()?;
        if !lock(&self.volume.core).meta.directories().has(&dir_of(dir)?) {
            return Err(not_found(dir));
        }
        self.volume.check_writable(dir)?;
        self.volume.commit_all().map_err(|e| e.at_file(dir))
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>> {
        self.process.check()?;
        self.volume.check_writable(path)?;
        let (dir, name) = file_of(path)?;
        let live = {
            let mut core = lock(&self.volume.core);
            let ino = match find(&core, path) {
                Ok(ino) => ino,
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    check_vacant(&core, path)?;
                    let new = NewFile { dir: &dir, name: &name, size: 0, closed: true, extents: Vec::new() };
                    self.add_file(&mut core, new)?.0
                }
                Err(e) => return Err(e),
            };
            hold_lock(&mut core, ino, path, holder)?;
            core.open(ino)?
        };
        let held = LavaLock { volume: self.volume.clone(), ino: live.ino };
        match self.write_holder(&live, holder) {
            // The holder line only enriches a message: a full volume must not prevent opening a
            // store.
            Err(e) if e.kind() == ErrorKind::NoSpace => Ok(Box::new(held)),
            Err(e) => Err(e.at_file(path)),
            Ok(()) => Ok(Box::new(held)),
        }
    }

    fn lock_to_read(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.process.check()?;
        let mut core = lock(&self.volume.core);
        let ino = find(&core, path)?;
        hold_lock(&mut core, ino, path, "a reader")?;
        Ok(Box::new(LavaLock { volume: self.volume.clone(), ino }))
    }

    fn space(&self, dir: &Path) -> Result<FsSpace> {
        self.process.check()?;
        let core = lock(&self.volume.core);
        if !core.meta.directories().has(&dir_of(dir)?) {
            return Err(not_found(dir));
        }
        let total = core.meta.volume_blocks() * BLOCK;
        let free = core.free.blocks() + core.freeing_blocks();
        Ok(FsSpace { total, available: free.saturating_sub(core.reserve()) * BLOCK })
    }

    fn scan_extent_tail(&self, path: &Path) -> Result<u64> {
        self.process.check()?;
        Ok(self.live(path)?.view().readable)
    }
}

/// Returns the directory entry, or `None` if the file is gone.
fn entry_of(core: &Core, name: &str, ino: Ino) -> Option<DirEntry> {
    core.meta.nodes().get(ino)?;
    Some(DirEntry { name: name.to_owned(), len: core.size_of(ino), allocated: allocated(core, ino) })
}

fn allocated(core: &Core, ino: Ino) -> u64 {
    core.meta.nodes().get(ino).map_or(0, |n| layout::allocated_of(n.extents.as_slice()) * BLOCK)
}

#[cfg(test)]
mod tests;
