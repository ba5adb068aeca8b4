//! The metadata: which names lead to which files, and where the files are.
//!
//! [`Meta::apply`] is all that changes it, at run time and in replay alike: so what a mount rebuilds is what was there.
//! It refuses an operation that contradicts the state, and then changes nothing. At run time callers have checked
//! before, and a refusal is a bug; in replay it is a damaged journal.
//!
//! Everything is in memory, at some tens of bytes a file: a file with one run of blocks needs no allocation of its own. A copy
//! is cheap, because copies share what they have in common ([`crate::chunks`]).

use crate::chunks::ChunkMap;
use crate::geometry::{Geometry, Role};
use crate::layout::{self, Extent};
use crate::op::{FileRecord, Ino, Op};
use base::{Error, Result};
use std::collections::BTreeMap;

/// Where the bytes of a file are, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extents {
    One(Extent),
    /// None, which takes no memory, or several.
    Many(Box<[Extent]>),
}

impl Extents {
    pub(crate) fn as_slice(&self) -> &[Extent] {
        match self {
            Extents::One(one) => std::slice::from_ref(one),
            Extents::Many(many) => many,
        }
    }
}

impl From<Vec<Extent>> for Extents {
    fn from(list: Vec<Extent>) -> Self {
        match list[..] {
            [one] => Extents::One(one),
            _ => Extents::Many(list.into()),
        }
    }
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub size: u64,
    pub extents: Extents,
    pub links: u32,
    /// Nothing was written behind `size`.
    pub closed: bool,
}

impl Node {
    /// Bytes that may be read: those of the whole file if it was not closed.
    pub(crate) fn readable(&self) -> u64 {
        let end = layout::blocks_of(self.extents.as_slice()) * layout::BLOCK;
        if self.closed { self.size } else { end.max(self.size) }
    }
}

pub(crate) type Names = ChunkMap<Box<str>, Ino>;

/// What an operation has set free.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    /// Blocks.
    pub extents: Vec<Extent>,
    /// The file whose last name went.
    pub gone: Option<Ino>,
}

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    geometry: Geometry,
    dirs: BTreeMap<Box<str>, Names>,
    nodes: ChunkMap<Ino, Node>,
    next_ino: Ino,
    /// Blocks of all files.
    file_blocks: u64,
    /// Bytes that a dump takes, at most.
    dump_len: u64,
}

fn contradiction(why: String) -> Error {
    Error::corruption(format!("the journal contradicts itself: {why}"))
}

/// The directory that a directory is in, and its name there. The root is in none.
pub(crate) fn parent(dir: &str) -> Option<(&str, &str)> {
    match dir.rsplit_once('/') {
        Some((above, name)) => Some((above, name)),
        None if dir.is_empty() => None,
        None => Some(("", dir)),
    }
}

fn name_cost(dir: &str, name: &str) -> u64 {
    (dir.len() + name.len() + 16) as u64
}

fn extents_cost(extents: &[Extent]) -> u64 {
    10 * extents.len() as u64
}

const FILE_COST: u64 = 32;

impl Meta {
    /// No files, on a volume of so many blocks.
    pub(crate) fn new(geometry: impl Into<Geometry>) -> Self {
        let dirs = BTreeMap::from([(Box::from(""), Names::default())]);
        let geometry = geometry.into();
        Meta { geometry, dirs, nodes: ChunkMap::default(), next_ino: 1, file_blocks: 0, dump_len: 64 }
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

    pub(crate) fn next_ino(&self) -> Ino {
        self.next_ino
    }

    pub(crate) fn file_count(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub(crate) fn file_blocks(&self) -> u64 {
        self.file_blocks
    }

    /// Bytes of operations that describe all this, at most.
    pub(crate) fn dump_len(&self) -> u64 {
        self.dump_len
    }

    pub(crate) fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.nodes.iter().map(|(&ino, node)| (ino, node))
    }

    pub(crate) fn has_dir(&self, dir: &str) -> bool {
        self.dirs.contains_key(dir)
    }

    pub(crate) fn look_up(&self, dir: &str, name: &str) -> Option<Ino> {
        self.dirs.get(dir)?.get(name).copied()
    }

    /// All paths of a file.
    pub(crate) fn names_of(&self, ino: Ino) -> Vec<String> {
        let mut paths = Vec::new();
        for (dir, names) in &self.dirs {
            let links = names.iter().filter(|(_, named)| **named == ino);
            paths.extend(links.map(|(name, _)| format!("/{}", joined(dir, name))));
        }
        paths
    }

    /// The files of a directory, sorted: a copy, which is soon made.
    pub(crate) fn names(&self, dir: &str) -> Option<Names> {
        self.dirs.get(dir).cloned()
    }

    /// All directories, sorted.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = &str> {
        self.dirs.keys().map(|dir| &**dir)
    }

    /// The directories below one, itself left out.
    fn below<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = &'a str> {
        self.dirs().filter(move |d| is_below(d, dir))
    }

    /// True if there is nothing in a directory.
    pub(crate) fn is_empty_dir(&self, dir: &str) -> bool {
        self.dirs.get(dir).is_some_and(Names::is_empty) && self.below(dir).next().is_none()
    }

    /// Performs an operation.
    ///
    /// # Errors
    /// `Corruption` if it contradicts the state, which is then unchanged.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<Freed> {
        match op {
            Op::MakeDir { dir } => self.make_dir(dir),
            Op::RemoveDir { dir } => self.remove_dir(dir),
            Op::RenameDir { from, to } => self.rename_dir(from, to),
            Op::File(file) => self.add_file(file),
            Op::Link { dir, name, ino } => self.link(dir, name, *ino),
            Op::Unlink { dir, name } => self.unlink(dir, name),
            Op::Rename { from_dir, from, to_dir, to } => self.rename((from_dir, from), (to_dir, to)),
            Op::Extend { ino, extents } => self.extend(*ino, extents),
            Op::Size { ino, size, closed } => self.set_size(*ino, *size, *closed),
            Op::Claim { ino, size, .. } => self.set_size(*ino, *size, false),
            Op::Trim { ino, blocks } => self.trim(*ino, *blocks),
            Op::Punch { ino, block, blocks } => self.punch(*ino, *block, *blocks),
            Op::NextIno { ino } => {
                self.use_ino(ino.saturating_sub(1))?;
                Ok(Freed::default())
            }
            Op::JournalExtend { .. } | Op::JournalSwitch { .. } | Op::Jump { .. } => Ok(Freed::default()),
        }
    }

    fn use_ino(&mut self, ino: Ino) -> Result<()> {
        if ino >= u64::MAX / 2 {
            return Err(contradiction(format!("no volume reaches the file number {ino}")));
        }
        self.next_ino = self.next_ino.max(ino + 1);
        Ok(())
    }

    fn make_dir(&mut self, dir: &str) -> Result<Freed> {
        let Some((above, name)) = parent(dir) else {
            return Err(contradiction("the root is made".into()));
        };
        if !self.has_dir(above) || self.has_dir(dir) || self.look_up(above, name).is_some() {
            return Err(contradiction(format!("the directory /{dir} cannot be made")));
        }
        self.dirs.insert(dir.into(), Names::default());
        self.dump_len += name_cost(dir, "");
        Ok(Freed::default())
    }

    fn remove_dir(&mut self, dir: &str) -> Result<Freed> {
        if dir.is_empty() || !self.is_empty_dir(dir) {
            return Err(contradiction(format!("the directory /{dir} cannot be removed")));
        }
        self.dirs.remove(dir);
        self.dump_len -= name_cost(dir, "");
        Ok(Freed::default())
    }

    fn rename_dir(&mut self, from: &str, to: &str) -> Result<Freed> {
        let free = !self.has_dir(to)
            && parent(to)
                .is_some_and(|(above, name)| self.has_dir(above) && self.look_up(above, name).is_none());
        if from.is_empty() || !self.has_dir(from) || !free || is_below(to, from) {
            return Err(contradiction(format!("the directory /{from} cannot become /{to}")));
        }
        let moved: Vec<Box<str>> =
            self.below(from).map(Box::from).chain(std::iter::once(Box::from(from))).collect();
        for old in moved {
            let new = format!("{to}{}", old.get(from.len()..).unwrap_or_default());
            if let Some(names) = self.dirs.remove(&old) {
                let costs =
                    |dir: &str| names.keys().map(|n| name_cost(dir, n)).sum::<u64>() + name_cost(dir, "");
                self.dump_len = (self.dump_len + costs(&new)).saturating_sub(costs(&old));
                self.dirs.insert(new.into(), names);
            }
        }
        Ok(Freed::default())
    }

    fn check_extents(&self, extents: &[Extent]) -> Result<()> {
        let blocks = layout::allocated_of(extents);
        if self.file_blocks + blocks > self.volume_blocks() {
            return Err(contradiction("files have more blocks than the volume".into()));
        }
        extents.iter().try_for_each(|e| match e.is_hole() {
            true if e.blocks > 0 => Ok(()),
            true => Err(contradiction("an empty hole".into())),
            false => self.geometry.check(*e),
        })
    }

    fn add_file(&mut self, file: &FileRecord) -> Result<Freed> {
        self.check_extents(&file.extents)?;
        let room = layout::blocks_of(&file.extents).saturating_mul(layout::BLOCK);
        if self.nodes.contains_key(&file.ino) || file.size > room {
            return Err(contradiction(format!("the file {} cannot be made", file.ino)));
        }
        self.use_ino(file.ino)?;
        self.file_blocks += layout::allocated_of(&file.extents);
        self.dump_len += FILE_COST + extents_cost(&file.extents);
        let node =
            Node { size: file.size, extents: file.extents.clone().into(), links: 0, closed: file.closed };
        self.nodes.insert(file.ino, node);
        Ok(Freed::default())
    }

    fn link(&mut self, dir: &str, name: &str, ino: Ino) -> Result<Freed> {
        let is_dir = self.has_dir(&joined(dir, name));
        let (Some(names), Some(node)) = (self.dirs.get_mut(dir), self.nodes.get_mut(&ino)) else {
            return Err(contradiction(format!("the file {ino} cannot be named /{dir}/{name}")));
        };
        if is_dir || names.contains_key(name) || node.links == u32::MAX {
            return Err(contradiction(format!("the name /{dir}/{name} is taken")));
        }
        names.insert(name.into(), ino);
        node.links += 1;
        self.dump_len += name_cost(dir, name);
        Ok(Freed::default())
    }

    fn unlink(&mut self, dir: &str, name: &str) -> Result<Freed> {
        let ino = self.dirs.get_mut(dir).and_then(|names| names.remove(name));
        let Some(ino) = ino else {
            return Err(contradiction(format!("there is no name /{dir}/{name}")));
        };
        self.dump_len -= name_cost(dir, name);
        Ok(self.drop_link(ino))
    }

    fn drop_link(&mut self, ino: Ino) -> Freed {
        let Some(node) = self.nodes.get_mut(&ino) else { return Freed::default() };
        node.links -= 1;
        if node.links > 0 {
            return Freed::default();
        }
        self.remove_node(ino)
    }

    fn remove_node(&mut self, ino: Ino) -> Freed {
        let Some(node) = self.nodes.remove(&ino) else { return Freed::default() };
        let extents: Vec<Extent> = node.extents.as_slice().iter().copied().filter(|e| !e.is_hole()).collect();
        self.file_blocks -= layout::allocated_of(&extents);
        self.dump_len -= FILE_COST + extents_cost(node.extents.as_slice());
        Freed { extents, gone: Some(ino) }
    }

    fn rename(&mut self, from: (&str, &str), to: (&str, &str)) -> Result<Freed> {
        let impossible = || contradiction(format!("/{}/{} cannot become /{}/{}", from.0, from.1, to.0, to.1));
        let ino = self.look_up(from.0, from.1).ok_or_else(impossible)?;
        if !self.has_dir(to.0) || self.has_dir(&joined(to.0, to.1)) {
            return Err(impossible());
        }
        let replaced = self.look_up(to.0, to.1);
        if replaced == Some(ino) {
            // Two names of one file: as the system has it, both stay.
            return Ok(Freed::default());
        }
        if let Some(names) = self.dirs.get_mut(from.0) {
            names.remove(from.1);
        }
        if let Some(names) = self.dirs.get_mut(to.0) {
            names.insert(to.1.into(), ino);
        }
        self.dump_len -= name_cost(from.0, from.1);
        match replaced {
            Some(old) => Ok(self.drop_link(old)),
            None => {
                self.dump_len += name_cost(to.0, to.1);
                Ok(Freed::default())
            }
        }
    }

    fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or_else(|| contradiction(format!("there is no file {ino}")))
    }

    fn replace_extents(&mut self, ino: Ino, list: Vec<Extent>) -> Result<()> {
        let is = (layout::allocated_of(&list), extents_cost(&list));
        let old = std::mem::replace(&mut self.node_mut(ino)?.extents, list.into());
        let was = (layout::allocated_of(old.as_slice()), extents_cost(old.as_slice()));
        self.file_blocks = self.file_blocks + is.0 - was.0;
        self.dump_len = self.dump_len + is.1 - was.1;
        Ok(())
    }

    fn extend(&mut self, ino: Ino, extents: &[Extent]) -> Result<Freed> {
        self.check_extents(extents)?;
        let mut list = self.node_mut(ino)?.extents.as_slice().to_vec();
        extents.iter().for_each(|&e| layout::push(&mut list, e));
        self.replace_extents(ino, list)?;
        Ok(Freed::default())
    }

    fn set_size(&mut self, ino: Ino, size: u64, closed: bool) -> Result<Freed> {
        let node = self.node_mut(ino)?;
        let room = layout::blocks_of(node.extents.as_slice()).saturating_mul(layout::BLOCK);
        if size > room {
            return Err(contradiction(format!("the file {ino} has {size} bytes in blocks of {room}")));
        }
        (node.size, node.closed) = (size, closed);
        Ok(Freed::default())
    }

    fn trim(&mut self, ino: Ino, blocks: u64) -> Result<Freed> {
        let node = self.node_mut(ino)?;
        if layout::blocks_for(node.size) > blocks {
            return Err(contradiction(format!("the file {ino} is trimmed below its size")));
        }
        let (kept, freed) = layout::split_at(node.extents.as_slice(), blocks);
        self.replace_extents(ino, kept)?;
        Ok(Freed { extents: freed.into_iter().filter(|e| !e.is_hole()).collect(), gone: None })
    }

    fn punch(&mut self, ino: Ino, block: u64, blocks: u32) -> Result<Freed> {
        let node = self.node_mut(ino)?;
        let all = layout::blocks_of(node.extents.as_slice());
        if blocks == 0 || block.checked_add(u64::from(blocks)).is_none_or(|end| end > all) {
            return Err(contradiction(format!("a hole outside the file {ino}")));
        }
        let (mut list, rest) = layout::split_at(node.extents.as_slice(), block);
        let (freed, after) = layout::split_at(&rest, u64::from(blocks));
        layout::push(&mut list, Extent::hole(blocks));
        after.into_iter().for_each(|e| layout::push(&mut list, e));
        self.replace_extents(ino, list)?;
        Ok(Freed { extents: freed.into_iter().filter(|e| !e.is_hole()).collect(), gone: None })
    }

    /// Takes a file away with all its names: the last resort of a repair.
    pub(crate) fn expel(&mut self, ino: Ino) -> Freed {
        for (dir, names) in &mut self.dirs {
            let its: Vec<Box<str>> =
                names.iter().filter(|(_, named)| **named == ino).map(|(name, _)| name.clone()).collect();
            for name in its {
                names.remove(&name);
                self.dump_len -= name_cost(dir, &name);
            }
        }
        self.remove_node(ino)
    }

    /// The operations that make all this from nothing, in an order that depends on it alone.
    pub(crate) fn dump(&self, mut emit: impl FnMut(&Op)) {
        emit(&Op::NextIno { ino: self.next_ino });
        self.dirs().filter(|dir| !dir.is_empty()).for_each(|dir| emit(&Op::MakeDir { dir: dir.to_owned() }));
        for (&ino, node) in self.nodes.iter() {
            let extents = node.extents.as_slice().to_vec();
            emit(&Op::File(FileRecord { ino, size: node.size, closed: node.closed, extents }));
        }
        for (dir, names) in &self.dirs {
            for (name, &ino) in names.iter() {
                emit(&Op::Link { dir: dir.to_string(), name: name.to_string(), ino });
            }
        }
    }
}

impl PartialEq for Meta {
    fn eq(&self, other: &Meta) -> bool {
        let same = self.dirs == other.dirs && self.nodes == other.nodes && self.next_ino == other.next_ino;
        same && self.file_blocks == other.file_blocks && self.dump_len == other.dump_len
    }
}

fn is_below(dir: &str, above: &str) -> bool {
    match dir.strip_prefix(above) {
        Some(rest) => rest.starts_with('/') || (above.is_empty() && !rest.is_empty()),
        None => false,
    }
}

/// The path of a name in a directory.
pub(crate) fn joined(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

#[cfg(test)]
mod tests;
