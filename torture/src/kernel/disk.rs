//! The durable state of a directory, derived from the system calls and the guarantees of POSIX.
//!
//! A byte is durable only after a successful data sync of its file that began after the write, or
//! after a durable write. A name is durable only after such a sync of its directory. Data covered
//! by a failed sync is never durable, whatever later syncs return. So [`Disk::lay_down`] creates
//! the worst state after a loss of power. A store that opens from it with all acknowledged writes
//! has made the required syncs in the right order.

use io::kernel::calls::Call;
use io::kernel::calls::watch::{Event, FileId};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
enum FileChange {
    Write(u64, Vec<u8>),
    Len(u64),
}

fn apply(content: &mut Vec<u8>, change: &FileChange) {
    match change {
        FileChange::Len(len) => content.resize(*len as usize, 0),
        FileChange::Write(offset, data) => {
            let (start, end) = (*offset as usize, *offset as usize + data.len());
            if content.len() < end {
                content.resize(end, 0);
            }
            content[start..end].copy_from_slice(data);
        }
    }
}

#[derive(Debug, Default)]
struct File {
    len: u64,
    durable: Vec<u8>,
    /// Changes since the last successful sync.
    dirty: Vec<FileChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(u64),
    Dir,
}

#[derive(Debug, Default)]
struct Dir {
    live: BTreeMap<OsString, Node>,
    durable: BTreeMap<OsString, Node>,
    /// Names as of a failed sync.
    lost: BTreeMap<OsString, Option<Node>>,
}

/// A directory.
pub(crate) struct Disk {
    root: PathBuf,
    /// Inodes are reused, so each file has a separate number.
    files: Vec<File>,
    numbers: BTreeMap<FileId, u64>,
    dirs: BTreeMap<PathBuf, Dir>,
    pub syncs: u64,
    pub syncs_failed: u64,
}

fn name(path: &Path) -> OsString {
    path.file_name().unwrap_or_default().to_owned()
}

impl Disk {
    /// Returns an empty directory.
    pub fn new(root: &Path) -> Disk {
        let dirs = BTreeMap::from([(root.to_owned(), Dir::default())]);
        Disk {
            root: root.to_owned(),
            files: Vec::new(),
            numbers: BTreeMap::new(),
            dirs,
            syncs: 0,
            syncs_failed: 0,
        }
    }

    /// Processes the next calls.
    pub fn take(&mut self, events: &[Event]) {
        for event in events {
            match event.result {
                Ok(n) => self.done(event, n),
                Err(errno) if matches!(errno.raw_os_error(), again::EINTR | again::EAGAIN) => {}
                Err(_) => self.failed(event),
            }
        }
    }

    fn dir(&mut self, path: &Path) -> Option<&mut Dir> {
        self.dirs.get_mut(path.parent()?)
    }

    fn file(&mut self, event: &Event) -> Option<&mut File> {
        let number = *self.numbers.get(&event.file?)?;
        self.files.get_mut(number as usize)
    }

    fn change(&mut self, event: &Event, change: FileChange, durable: bool) {
        let Some(file) = self.file(event) else { return };
        match &change {
            FileChange::Len(len) => file.len = *len,
            FileChange::Write(offset, data) => file.len = file.len.max(offset + data.len() as u64),
        }
        if durable {
            apply(&mut file.durable, &change);
        }
        // Recorded even for a durable write, so that an older write at the same offset cannot
        // reappear over it.
        file.dirty.push(change);
    }

    fn done(&mut self, event: &Event, n: usize) {
        let written = || FileChange::Write(event.offset, event.data[..n.min(event.data.len())].to_vec());
        match event.call {
            Call::Open => self.opened(event),
            Call::Write | Call::RingWrite => self.change(event, written(), false),
            Call::DurableWrite => self.change(event, written(), true),
            Call::SetLen => self.change(event, FileChange::Len(event.offset), false),
            Call::Allocate if self.file(event).is_some_and(|file| file.len < event.offset) => {
                self.change(event, FileChange::Len(event.offset), false);
            }
            Call::DataSync | Call::FullSync => {
                self.syncs += 1;
                self.synced(event);
            }
            Call::Rename => {
                if let Some(node) = self.dir(&event.path).and_then(|dir| dir.live.remove(&name(&event.path)))
                    && let Some(dir) = self.dir(&event.to)
                {
                    dir.live.insert(name(&event.to), node);
                }
            }
            Call::Link => {
                let node = self.dir(&event.path).and_then(|dir| dir.live.get(&name(&event.path)).copied());
                if let (Some(node), Some(dir)) = (node, self.dir(&event.to)) {
                    dir.live.insert(name(&event.to), node);
                }
            }
            Call::Unlink | Call::RemoveDir => {
                if let Some(dir) = self.dir(&event.path) {
                    dir.live.remove(&name(&event.path));
                    // Recreating the name changes the directory again, so the next sync writes it.
                    dir.lost.remove(&name(&event.path));
                }
            }
            Call::MakeDir => {
                if let Some(dir) = self.dir(&event.path) {
                    dir.live.insert(name(&event.path), Node::Dir);
                    self.dirs.insert(event.path.clone(), Dir::default());
                }
            }
            _ => {}
        }
    }

    fn opened(&mut self, event: &Event) {
        let (Some(id), false) = (event.file, self.dirs.contains_key(&event.path)) else { return };
        let number = self.files.len() as u64;
        let Some(dir) = self.dir(&event.path) else { return };
        match dir.live.entry(name(&event.path)) {
            Entry::Vacant(new) => {
                new.insert(Node::File(number));
                self.files.push(File::default());
                self.numbers.insert(id, number);
            }
            Entry::Occupied(_) if event.offset == 1 => self.change(event, FileChange::Len(0), false),
            Entry::Occupied(_) => {}
        }
    }

    fn synced(&mut self, event: &Event) {
        if let Some(dir) = self.dirs.get_mut(&event.path) {
            let mut durable = dir.live.clone();
            for (name, lost) in &dir.lost {
                if dir.live.get(name) != lost.as_ref() {
                    continue;
                }
                match dir.durable.get(name) {
                    Some(node) => durable.insert(name.clone(), *node),
                    None => durable.remove(name),
                };
            }
            dir.durable = durable;
            return;
        }
        if let Some(file) = self.file(event) {
            for change in std::mem::take(&mut file.dirty) {
                apply(&mut file.durable, &change);
            }
        }
    }

    fn failed(&mut self, event: &Event) {
        if !matches!(event.call, Call::DataSync | Call::FullSync | Call::DurableWrite) {
            return;
        }
        self.syncs_failed += 1;
        if let Some(dir) = self.dirs.get_mut(&event.path) {
            let names: BTreeSet<OsString> = dir.live.keys().chain(dir.durable.keys()).cloned().collect();
            let differs = names.into_iter().filter(|name| dir.live.get(name) != dir.durable.get(name));
            dir.lost
                .extend(differs.map(|name| (name.clone(), dir.live.get(&name).copied())).collect::<Vec<_>>());
        } else if event.call != Call::DurableWrite
            && let Some(file) = self.file(event)
        {
            file.dirty.clear();
        }
    }

    /// Creates another directory from the durable state.
    pub fn lay_down(&self, to: &Path) -> std::io::Result<()> {
        let _ = std::fs::remove_dir_all(to);
        self.lay_down_dir(&self.root, to)
    }

    #[allow(clippy::disallowed_methods, reason = "makes files as a crash would leave them")]
    fn lay_down_dir(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(to)?;
        let Some(dir) = self.dirs.get(from) else { return Ok(()) };
        for (name, node) in &dir.durable {
            match node {
                Node::Dir => self.lay_down_dir(&from.join(name), &to.join(name))?,
                Node::File(number) => std::fs::write(to.join(name), &self.files[*number as usize].durable)?,
            }
        }
        Ok(())
    }
}

/// Error numbers of calls that are simply repeated.
mod again {
    pub const EINTR: i32 = 4;
    pub const EAGAIN: i32 = 11;
}
