//! `fs mount`: a read-only mount of a volume.
//!
//! The volume is opened for reading, which excludes writers, so nothing changes while it is
//! mounted. The tree is built once, and the kernel may cache it indefinitely. An unclosed file has
//! the size known to the volume's journal.

use crate::commands::place::open_volume;
use crate::{Result, output};
use fuser::{
    FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen,
    ReplyStatfs, Request,
};
use io::{Access, FileSystem, ReadFile};
use lavastore::lavafs::LavaFs;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Cache lifetime for the kernel.
const TTL: Duration = Duration::from_secs(3600);
const BLOCK_LEN: u32 = 4096;
/// Error numbers of the kernel.
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;

/// A file or a directory. Its inode number is its index in the tree plus one, so the root has the
/// kernel's number 1.
struct Node {
    path: PathBuf,
    parent: u64,
    len: u64,
    allocated: u64,
    links: u64,
    /// Names and inode numbers of a directory, sorted.
    entries: Option<BTreeMap<String, u64>>,
}

struct MountedVolume {
    volume: LavaFs,
    nodes: Vec<Node>,
    open: BTreeMap<u64, Arc<dyn ReadFile>>,
    next_handle: u64,
    owner: (u32, u32),
}

/// Mounts a volume in a directory until it is unmounted.
pub fn mount(image: &Path, dir: &Path) -> Result<()> {
    let owner = owner_of(dir)?;
    let mut view = MountedVolume {
        volume: open_volume(image, true)?,
        nodes: Vec::new(),
        open: BTreeMap::new(),
        next_handle: 1,
        owner,
    };
    view.add_dir(PathBuf::from("/"), 1)?;
    let options =
        [MountOption::RO, MountOption::FSName("lavafs".to_owned()), MountOption::DefaultPermissions];
    output::report(false, &serde_json::Value::Null, || {
        format!("{} is mounted on {} until umount\n", image.display(), dir.display())
    })?;
    fuser::mount2(view, dir, &options)
        .map_err(|e| format!("cannot mount {} on {}: {e}", image.display(), dir.display()).into())
}

#[allow(clippy::disallowed_methods, reason = "looks at a directory of the machine, not of a store")]
fn owner_of(dir: &Path) -> Result<(u32, u32)> {
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok((found.uid(), found.gid())),
        Ok(_) => Err(format!("{} is not a directory: name another one", dir.display()).into()),
        Err(e) => Err(format!("cannot read {}: {e}", dir.display()).into()),
    }
}

impl MountedVolume {
    /// Adds a directory and its contents.
    fn add_dir(&mut self, path: PathBuf, parent: u64) -> Result<u64> {
        let number = self.nodes.len() as u64 + 1;
        let empty = Some(BTreeMap::new());
        self.nodes.push(Node { path: path.clone(), parent, len: 0, allocated: 0, links: 2, entries: empty });
        let mut entries = BTreeMap::new();
        for name in self.volume.directories(&path)? {
            let inside = self.add_dir(path.join(&name), number)?;
            entries.insert(name, inside);
        }
        for entry in self.volume.list(&path)? {
            let file = path.join(&entry.name);
            let links = self.volume.metadata(&file)?.links;
            let (len, allocated) = (entry.len, entry.allocated);
            self.nodes.push(Node { path: file, parent: number, len, allocated, links, entries: None });
            entries.insert(entry.name, self.nodes.len() as u64);
        }
        if let Some(node) = self.nodes.get_mut(number as usize - 1) {
            node.entries = Some(entries);
        }
        Ok(number)
    }

    fn node(&self, number: u64) -> Option<&Node> {
        self.nodes.get((number as usize).checked_sub(1)?)
    }

    fn attributes(&self, number: u64) -> Option<FileAttr> {
        let node = self.node(number)?;
        let is_dir = node.entries.is_some();
        Some(FileAttr {
            ino: number,
            size: node.len,
            blocks: node.allocated / 512,
            // Files on a volume have no times.
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_dir { FileType::Directory } else { FileType::RegularFile },
            perm: if is_dir { 0o555 } else { 0o444 },
            nlink: u32::try_from(node.links).unwrap_or(u32::MAX),
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK_LEN,
            flags: 0,
        })
    }
}

impl Filesystem for MountedVolume {
    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        let Some(entries) = self.node(parent).and_then(|node| node.entries.as_ref()) else {
            return reply.error(ENOTDIR);
        };
        let number = name.to_str().and_then(|name| entries.get(name));
        match number.and_then(|number| self.attributes(*number)) {
            Some(attributes) => reply.entry(&TTL, &attributes, 0),
            None => reply.error(ENOENT),
        }
    }

    fn getattr(&mut self, _: &Request<'_>, number: u64, _handle: Option<u64>, reply: ReplyAttr) {
        match self.attributes(number) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(ENOENT),
        }
    }

    fn open(&mut self, _: &Request<'_>, number: u64, _flags: i32, reply: ReplyOpen) {
        let Some(node) = self.node(number) else { return reply.error(ENOENT) };
        if node.entries.is_some() {
            return reply.error(EISDIR);
        }
        match self.volume.open(&node.path, Access::Direct) {
            Ok(file) => {
                let handle = self.next_handle;
                self.next_handle += 1;
                self.open.insert(handle, file);
                reply.opened(handle, 0);
            }
            Err(_) => reply.error(EIO),
        }
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        number: u64,
        handle: u64,
        offset: i64,
        size: u32,
        _flags: i32,
        _lock_owner: Option<u64>,
        reply: ReplyData,
    ) {
        let (Some(node), Some(file)) = (self.node(number), self.open.get(&handle)) else {
            return reply.error(EIO);
        };
        let offset = u64::try_from(offset).unwrap_or(u64::MAX).min(node.len);
        let mut bytes = vec![0; (node.len - offset).min(u64::from(size)) as usize];
        match file.read_at(&mut bytes, offset) {
            Ok(()) => reply.data(&bytes),
            Err(_) => reply.error(EIO),
        }
    }

    fn release(
        &mut self,
        _: &Request<'_>,
        _number: u64,
        handle: u64,
        _flags: i32,
        _lock_owner: Option<u64>,
        _flush: bool,
        reply: fuser::ReplyEmpty,
    ) {
        self.open.remove(&handle);
        reply.ok();
    }

    fn readdir(
        &mut self,
        _: &Request<'_>,
        number: u64,
        _handle: u64,
        offset: i64,
        mut reply: ReplyDirectory,
    ) {
        let Some((node, entries)) = self.node(number).and_then(|node| Some((node, node.entries.as_ref()?)))
        else {
            return reply.error(ENOTDIR);
        };
        let own = [(".", number), ("..", node.parent)];
        let all = own.into_iter().chain(entries.iter().map(|(name, number)| (name.as_str(), *number)));
        for (at, (name, number)) in (1..).zip(all).skip(usize::try_from(offset).unwrap_or(0)) {
            let is_dir = self.node(number).is_some_and(|node| node.entries.is_some());
            let kind = if is_dir { FileType::Directory } else { FileType::RegularFile };
            if reply.add(number, at, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&mut self, _: &Request<'_>, _number: u64, reply: ReplyStatfs) {
        let s = self.volume.statistics();
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_LEN);
        let (total, free, available) = (s.total_bytes, s.free_bytes, s.available_bytes);
        reply.statfs(blocks(total), blocks(free), blocks(available), s.files, 0, BLOCK_LEN, 255, BLOCK_LEN);
    }
}
