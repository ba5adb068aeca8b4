//! The metadata: which names lead to which files, and where the files are.
//!
//! [`Meta::apply`] is all that changes it, at run time and in replay alike: so what a mount rebuilds is what was there.
//! It refuses an operation that contradicts the state, and then changes nothing. At run time callers have checked
//! before, and a refusal is a bug; in replay it is a damaged journal.
//!
//! Two parts own the state. [`Directories`] has the names, and [`Nodes`] the files behind them; each keeps its part of the length of
//! a dump. `Meta` keeps the geometry, and performs the operations that concern both parts, or a part and the geometry.
//!
//! Everything is in memory, at some tens of bytes a file: a file with one run of blocks needs no allocation of its own. A copy
//! is cheap, because copies share what they have in common ([`crate::chunks`]).

mod directories;
mod nodes;

pub(crate) use directories::{Directories, joined, parent};
pub(crate) use nodes::{Node, Nodes};

use crate::geometry::{Geometry, Role};
use crate::layout::{self, Extent};
use crate::op::{FileRecord, Ino, Op};
use base::{Error, Result};

/// What an operation has set free.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    /// Blocks.
    pub extents: Vec<Extent>,
    /// The file whose last name went.
    pub gone: Option<Ino>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    geometry: Geometry,
    directories: Directories,
    nodes: Nodes,
}

/// Bytes of a dump of a volume without files and directories.
const EMPTY_DUMP_LEN: u64 = 64;

/// The refusal of an operation that contradicts the state.
pub(crate) fn contradiction(why: String) -> Error {
    Error::corruption(format!("the journal contradicts itself: {why}"))
}

impl Meta {
    /// No files, on a volume of so many blocks.
    pub(crate) fn new(geometry: impl Into<Geometry>) -> Self {
        Meta { geometry: geometry.into(), directories: Directories::new(), nodes: Nodes::new() }
    }

    /// How many blocks the devices have.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn volume_blocks(&self) -> u64 {
        self.geometry.blocks()
    }

    /// A device has so many blocks from now on.
    pub(crate) fn grow(&mut self, role: Role, blocks: u64) {
        self.geometry = self.geometry.grown(role, blocks);
    }

    pub(crate) fn directories(&self) -> &Directories {
        &self.directories
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Bytes of operations that describe all this, at most.
    pub(crate) fn dump_len(&self) -> u64 {
        EMPTY_DUMP_LEN + self.directories.dump_len() + self.nodes.dump_len()
    }

    /// Performs an operation.
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
            return Err(contradiction("files have more blocks than the volume".into()));
        }
        extents.iter().try_for_each(|e| match e.is_hole() {
            true if e.blocks > 0 => Ok(()),
            true => Err(contradiction("an empty hole".into())),
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

    /// Takes a file away with all its names: the last resort of a repair.
    pub(crate) fn expel(&mut self, ino: Ino) -> Freed {
        self.directories.unlink_all(ino);
        self.nodes.remove(ino)
    }

    /// The operations that make all this from nothing, in an order that depends on it alone.
    pub(crate) fn dump(&self, mut emit: impl FnMut(&Op)) {
        emit(&Op::NextIno { ino: self.nodes.next_ino() });
        self.directories.dump_dirs(&mut emit);
        self.nodes.dump(&mut emit);
        self.directories.dump_links(&mut emit);
    }
}

/// The geometry is not compared.
impl PartialEq for Meta {
    fn eq(&self, other: &Meta) -> bool {
        self.directories == other.directories && self.nodes == other.nodes
    }
}

#[cfg(test)]
mod tests;
