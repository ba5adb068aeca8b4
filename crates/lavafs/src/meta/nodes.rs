//! Nodes: the files by number, each with its size, its blocks and its link count.
//!
//! File numbers ascend and are never reused, so an operation cannot affect a younger file. The
//! structure tracks the block count of all files, and the length of its operations in a dump. It
//! does not know the devices: [`super::Meta`] checks extents.

use super::{Freed, contradiction};
use crate::chunks::ChunkMap;
use crate::layout::{self, Extent};
use crate::op::{FileRecord, Ino, Op};
use base::Result;

/// Extents of a file, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extents {
    One(Extent),
    /// No extent, without an allocation, or several.
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

/// Metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub size: u64,
    pub extents: Extents,
    pub links: u32,
    /// True if nothing was written after `size`.
    pub closed: bool,
}

impl Node {
    /// Returns the number of readable bytes: up to the end of its blocks if the file was not
    /// closed.
    pub(crate) fn readable(&self) -> u64 {
        let end = layout::blocks_of(self.extents.as_slice()) * layout::BLOCK;
        if self.closed { self.size } else { end.max(self.size) }
    }
}

/// All files; see the module documentation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Nodes {
    by_ino: ChunkMap<Ino, Node>,
    next_ino: Ino,
    /// Number of blocks of all files.
    blocks: u64,
    /// Upper bound on the dump length of the files, in bytes.
    dump_len: u64,
}

fn extents_cost(extents: &[Extent]) -> u64 {
    10 * extents.len() as u64
}

const FILE_COST: u64 = 32;

impl Nodes {
    /// Creates an empty set of files.
    pub(super) fn new() -> Self {
        Nodes { by_ino: ChunkMap::default(), next_ino: 1, blocks: 0, dump_len: 0 }
    }

    /// Returns an upper bound on the dump length of the files, in bytes.
    pub(super) fn dump_len(&self) -> u64 {
        self.dump_len
    }

    /// Returns the number of the next file.
    pub(crate) fn next_ino(&self) -> Ino {
        self.next_ino
    }

    /// Returns the number of files.
    pub(crate) fn count(&self) -> u64 {
        self.by_ino.len() as u64
    }

    /// Returns the number of blocks of all files.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(crate) fn get(&self, ino: Ino) -> Option<&Node> {
        self.by_ino.get(&ino)
    }

    /// Returns all files, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.by_ino.iter().map(|(&ino, node)| (ino, node))
    }

    fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        self.by_ino.get_mut(&ino).ok_or_else(|| {
            contradiction(format!("it changes the file with the number (inode) {ino}, which does not exist"))
        })
    }

    /// Marks a number and all smaller ones as used.
    pub(super) fn use_ino(&mut self, ino: Ino) -> Result<()> {
        if ino >= u64::MAX / 2 {
            return Err(contradiction(format!(
                "the file number (inode) {ino} is over its limit of {}",
                u64::MAX / 2 - 1
            )));
        }
        self.next_ino = self.next_ino.max(ino + 1);
        Ok(())
    }

    /// Adds a file without names.
    pub(super) fn add(&mut self, file: &FileRecord) -> Result<()> {
        let room = layout::blocks_of(&file.extents).saturating_mul(layout::BLOCK);
        if self.by_ino.contains_key(&file.ino) || file.size > room {
            let (ino, size) = (file.ino, file.size);
            let why = format!(
                "it creates file {ino}, which exists already, or has {size} bytes in blocks of {room} bytes"
            );
            return Err(contradiction(why));
        }
        self.use_ino(file.ino)?;
        self.blocks += layout::allocated_of(&file.extents);
        self.dump_len += FILE_COST + extents_cost(&file.extents);
        let node =
            Node { size: file.size, extents: file.extents.clone().into(), links: 0, closed: file.closed };
        self.by_ino.insert(file.ino, node);
        Ok(())
    }

    /// Returns the link count of a file.
    pub(super) fn links_mut(&mut self, ino: Ino) -> Option<&mut u32> {
        self.by_ino.get_mut(&ino).map(|node| &mut node.links)
    }

    /// Removes one link of a file. Removing the last link removes the file.
    pub(super) fn unlink(&mut self, ino: Ino) -> Freed {
        let Some(links) = self.links_mut(ino) else { return Freed::default() };
        *links -= 1;
        if *links > 0 {
            return Freed::default();
        }
        self.remove(ino)
    }

    /// Removes a file with its blocks, whatever its link count.
    pub(super) fn remove(&mut self, ino: Ino) -> Freed {
        let Some(node) = self.by_ino.remove(&ino) else { return Freed::default() };
        let extents: Vec<Extent> = node.extents.as_slice().iter().copied().filter(|e| !e.is_hole()).collect();
        self.blocks -= layout::allocated_of(&extents);
        self.dump_len -= FILE_COST + extents_cost(node.extents.as_slice());
        Freed { extents, gone: Some(ino) }
    }

    fn replace_extents(&mut self, ino: Ino, list: Vec<Extent>) -> Result<()> {
        let is = (layout::allocated_of(&list), extents_cost(&list));
        let old = std::mem::replace(&mut self.node_mut(ino)?.extents, list.into());
        let was = (layout::allocated_of(old.as_slice()), extents_cost(old.as_slice()));
        self.blocks = self.blocks + is.0 - was.0;
        self.dump_len = self.dump_len + is.1 - was.1;
        Ok(())
    }

    /// Appends blocks to a file.
    pub(super) fn extend(&mut self, ino: Ino, extents: &[Extent]) -> Result<()> {
        let mut list = self.node_mut(ino)?.extents.as_slice().to_vec();
        extents.iter().for_each(|&e| layout::push(&mut list, e));
        self.replace_extents(ino, list)
    }

    pub(super) fn set_size(&mut self, ino: Ino, size: u64, closed: bool) -> Result<()> {
        let node = self.node_mut(ino)?;
        let room = layout::blocks_of(node.extents.as_slice()).saturating_mul(layout::BLOCK);
        if size > room {
            return Err(contradiction(format!(
                "it gives file {ino} the size {size} bytes, but its blocks hold {room} bytes"
            )));
        }
        (node.size, node.closed) = (size, closed);
        Ok(())
    }

    /// Removes all blocks of a file after the first `blocks`.
    pub(super) fn trim(&mut self, ino: Ino, blocks: u64) -> Result<Freed> {
        let node = self.node_mut(ino)?;
        if layout::blocks_for(node.size) > blocks {
            let size = node.size;
            return Err(contradiction(format!("it trims file {ino} of {size} bytes to {blocks} blocks")));
        }
        let (kept, freed) = layout::split_at(node.extents.as_slice(), blocks);
        self.replace_extents(ino, kept)?;
        Ok(Freed { extents: freed.into_iter().filter(|e| !e.is_hole()).collect(), gone: None })
    }

    /// Punches a hole into a file.
    pub(super) fn punch(&mut self, ino: Ino, block: u64, blocks: u32) -> Result<Freed> {
        let node = self.node_mut(ino)?;
        let all = layout::blocks_of(node.extents.as_slice());
        if blocks == 0 || block.checked_add(u64::from(blocks)).is_none_or(|end| end > all) {
            let why =
                format!("it frees {blocks} blocks from block {block} of file {ino}, which has {all} blocks");
            return Err(contradiction(why));
        }
        let (mut list, rest) = layout::split_at(node.extents.as_slice(), block);
        let (freed, after) = layout::split_at(&rest, u64::from(blocks));
        layout::push(&mut list, Extent::hole(blocks));
        after.into_iter().for_each(|e| layout::push(&mut list, e));
        self.replace_extents(ino, list)?;
        Ok(Freed { extents: freed.into_iter().filter(|e| !e.is_hole()).collect(), gone: None })
    }

    /// Emits the operations that make the files.
    pub(super) fn dump(&self, emit: &mut impl FnMut(&Op)) {
        for (ino, node) in self.iter() {
            let extents = node.extents.as_slice().to_vec();
            emit(&Op::File(FileRecord { ino, size: node.size, closed: node.closed, extents }));
        }
    }
}
