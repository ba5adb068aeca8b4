//! Metadata: the mapping of names to files, and of files to blocks.
//!
//! Only [`Meta::apply`] changes the metadata, at run time and during replay. So a mount rebuilds
//! exactly the earlier state. It rejects an operation that contradicts the state, and then changes
//! nothing. At run time the callers have checked the operation, so a rejection is a bug. During
//! replay it means a damaged journal.
//!
//! Two parts own the state. [`Directories`] has the names, and [`Nodes`] the files. Each keeps its
//! share of the dump length. `Meta` keeps the geometry, and performs the operations that concern
//! both parts, or a part and the geometry.
//!
//! All metadata is in memory, at some tens of bytes per file: a file with one extent needs no
//! allocation of its own. A copy is cheap, because copies share unchanged chunks
//! ([`crate::chunks`]).

mod directories;
mod nodes;

pub(crate) use directories::{Directories, joined, parent};
pub(crate) use nodes::{Node, Nodes};

use crate::geometry::{Geometry, Role};
use crate::layout::{self, Extent};
use crate::op::{FileRecord, Ino, Op};
use base::{Error, Result};

/// Blocks and files freed by an operation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    /// Freed blocks.
    pub extents: Vec<Extent>,
    /// File whose last name was removed.
    pub gone: Option<Ino>,
}

/// The metadata; see the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    geometry: Geometry,
    directories: Directories,
    nodes: Nodes,
}

/// Dump length of a volume without files and directories, in bytes.
const EMPTY_DUMP_LEN: u64 = 64;

/// Returns the error of an operation that contradicts the state.
pub(crate) fn contradiction(why: String) -> Error {
    Error::corruption(format!(
        "an operation in the journal of the volume contradicts the earlier ones: {why}"
    ))
}

impl Meta {
    /// Creates the metadata of an empty volume.
    pub(crate) fn new(geometry: impl Into<Geometry>) -> Self {
        Meta { geometry: geometry.into(), directories: Directories::new(), nodes: Nodes::new() }
    }

    /// Returns the number of blocks of each device.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn volume_blocks(&self) -> u64 {
        self.geometry.blocks()
    }

    /// Sets the number of blocks of a device.
    pub(crate) fn grow(&mut self, role: Role, blocks: u64) {
        self.geometry = self.geometry.grown(role, blocks);
    }

    pub(crate) fn directories(&self) -> &Directories {
        &self.directories
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Returns an upper bound on the dump length, in bytes.
    pub(crate) fn dump_len(&self) -> u64 {
        EMPTY_DUMP_LEN + self.directories.dump_len() + self.nodes.dump_len()
    }

    /// Applies an operation.
    ///
    /// # Errors
    /// `Corruption` if it contradicts the state, which is then unchanged.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<Freed> {
        let changed = match op {
            Op::MakeDir { dir } => self.directories.make(dir),
            Op::RemoveDir { dir } => self.directories.remove(dir),
            Op::RenameDir { from, to } => self.directories.rename(from, to),
            Op::File(file) => self.add_file(file),
            Op::Link { dir, name, ino } => self.link(dir, name, *ino),
            Op::Unlink { dir, name } => return self.unlink(dir, name),
            Op::Rename { from_dir, from, to_dir, to } => return self.rename((from_dir, from), (to_dir, to)),
            Op::Extend { ino, extents } => self.extend(*ino, extents),
            Op::Size { ino, size, closed } => self.nodes.set_size(*ino, *size, *closed),
            Op::Claim { ino, size, .. } => self.nodes.set_size(*ino, *size, false),
            Op::Trim { ino, blocks } => return self.nodes.trim(*ino, *blocks),
            Op::Punch { ino, block, blocks } => return self.nodes.punch(*ino, *block, *blocks),
            Op::NextIno { ino } => self.nodes.use_ino(ino.saturating_sub(1)),
            Op::JournalExtend { .. } | Op::JournalSwitch { .. } | Op::Jump { .. } => Ok(()),
        };
        changed.map(|()| Freed::default())
    }

    fn check_extents(&self, extents: &[Extent]) -> Result<()> {
        let blocks = layout::allocated_of(extents);
        if self.nodes.blocks() + blocks > self.volume_blocks() {
            let (files, all) = (self.nodes.blocks() + blocks, self.volume_blocks());
            return Err(contradiction(format!("files would have {files} blocks, but the volume has {all}")));
        }
        extents.iter().try_for_each(|e| match e.is_hole() {
            true if e.blocks > 0 => Ok(()),
            true => Err(contradiction("a file has a hole of 0 blocks".into())),
            false => self.geometry.check(*e),
        })
    }

    fn add_file(&mut self, file: &FileRecord) -> Result<()> {
        self.check_extents(&file.extents)?;
        self.nodes.add(file)
    }

    fn extend(&mut self, ino: Ino, extents: &[Extent]) -> Result<()> {
        self.check_extents(extents)?;
        self.nodes.extend(ino, extents)
    }

    fn link(&mut self, dir: &str, name: &str, ino: Ino) -> Result<()> {
        let links = self.nodes.links_mut(ino).filter(|links| **links < u32::MAX);
        let links = links.ok_or_else(|| directories::no_link(dir, name, ino))?;
        self.directories.link(dir, name, ino)?;
        *links += 1;
        Ok(())
    }

    fn unlink(&mut self, dir: &str, name: &str) -> Result<Freed> {
        let ino = self.directories.unlink(dir, name)?;
        Ok(self.nodes.unlink(ino))
    }

    fn rename(&mut self, from: (&str, &str), to: (&str, &str)) -> Result<Freed> {
        let replaced = self.directories.rename_file(from, to)?;
        Ok(replaced.map_or_else(Freed::default, |ino| self.nodes.unlink(ino)))
    }

    /// Removes a file with all its names: the last resort of a repair.
    pub(crate) fn expel(&mut self, ino: Ino) -> Freed {
        self.directories.unlink_all(ino);
        self.nodes.remove(ino)
    }

    /// Emits the operations that rebuild this state from an empty one. The state alone determines
    /// their order.
    pub(crate) fn dump(&self, mut emit: impl FnMut(&Op)) {
        emit(&Op::NextIno { ino: self.nodes.next_ino() });
        self.directories.dump_dirs(&mut emit);
        self.nodes.dump(&mut emit);
        self.directories.dump_links(&mut emit);
    }
}

/// The comparison ignores the geometry.
impl PartialEq for Meta {
    fn eq(&self, other: &Meta) -> bool {
        self.directories == other.directories && self.nodes == other.nodes
    }
}

#[cfg(test)]
mod tests;
