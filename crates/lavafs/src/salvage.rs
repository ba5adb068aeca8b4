//! Going on behind damage in the journal, for a repair.
//!
//! The transactions behind a damaged one are intact: each has its number, a checksum, and the hash of the one before it. But the one
//! that would say where they are may be among what is damaged. So all blocks of the volume are searched for them, and those
//! that chain to each other are applied.
//!
//! # Which are taken
//!
//! Blocks may also hold transactions of a history that a crash has cut off, with numbers that were used again. A chain is taken
//! if the superblock says that its first transaction was durable, or one in it says so of the first transaction that is
//! missing: it was made by whoever knew the lost ones. Of several chains the one that reaches furthest counts.
//!
//! # What is lost
//!
//! The operations of the transactions that are missing, and what rests on them: a file whose creation is lost, and a size beyond
//! blocks that nobody knows. Blocks are given to a file only after the operation that freed them is durable. So where two
//! files have the same block behind the damage, the younger operation is right, and the other file was removed before.

use crate::layout::{BLOCK, Extent};
use crate::meta::Meta;
use crate::op::{Ino, Op};
use crate::replay::{Replayed, holds};
use crate::superblock::Superblock;
use crate::transaction::{self, Kind, Owner};
use base::{HashMap, Result};
use io::BlockDevice;

/// Blocks read at a time.
const SEARCH_BLOCKS: u64 = 256;

/// What a repair went over.
#[derive(Debug, Default)]
pub(crate) struct Salvaged {
    /// Runs of numbers of transactions that are lost, both ends included.
    pub lost: Vec<(u64, u64)>,
    /// How many behind them were applied.
    pub applied: u64,
    /// What could not be applied, for people.
    pub consequences: Vec<String>,
}

/// A transaction that was found somewhere.
struct Candidate {
    sequence: u64,
    chain: u64,
    durable: u64,
    hash: u64,
    ops: Vec<Op>,
}

/// Applies to `replayed`, which ends at damage, what is intact behind that.
///
/// # Errors
/// Those of the device.
pub(crate) fn salvage(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    replayed: &mut Replayed,
) -> Result<Salvaged> {
    let mut salvaged = Salvaged::default();
    let found = search(device, superblock, replayed.sequence)?;
    while let Some(chain) = next_chain(superblock, replayed.sequence, &found) {
        let first = found[chain[0]].sequence;
        if first > replayed.sequence + 1 {
            salvaged.lost.push((replayed.sequence + 1, first - 1));
        }
        let confirmed = chain.iter().map(|&at| found[at].durable).fold(superblock.reached, u64::max);
        for &at in &chain {
            let Candidate { sequence, hash, ops, .. } = &found[at];
            for op in ops {
                salvaged.take(device, replayed, op, *sequence <= confirmed)?;
            }
            (replayed.sequence, replayed.chain) = (*sequence, *hash);
            replayed.transactions += 1;
            salvaged.applied += 1;
        }
    }
    if superblock.reached > replayed.sequence {
        salvaged.lost.push((replayed.sequence + 1, superblock.reached));
    }
    Ok(salvaged)
}

/// All intact changes of the volume behind transaction `after`, by their numbers.
fn search(device: &dyn BlockDevice, superblock: &Superblock, after: u64) -> Result<Vec<Candidate>> {
    let owner = Owner { uid: superblock.uid, key: superblock.key };
    let mut found = Vec::new();
    for area in superblock.geometry().areas() {
        let (start, end) = (u64::from(area.start), u64::from(area.start) + u64::from(area.blocks));
        let mut at = start;
        while at < end {
            let blocks = SEARCH_BLOCKS.min(end - at);
            let mut window = vec![0; (blocks * BLOCK) as usize];
            device.read_at(&mut window, at * BLOCK)?;
            for (nth, block) in (at..).zip(window.chunks_exact(BLOCK as usize)) {
                let Some((header, len)) = transaction::decode_header(owner, block) else { continue };
                let whole = (len as u64).div_ceil(BLOCK);
                if header.kind != Kind::Change || header.sequence <= after || whole > end - nth {
                    continue;
                }
                let mut bytes = vec![0; (whole * BLOCK) as usize];
                device.read_at(&mut bytes, nth * BLOCK)?;
                let Ok(transaction) = transaction::decode(owner, &bytes) else { continue };
                let Ok(ops) = Op::decode_all(transaction.ops) else { continue };
                let (sequence, chain, durable) = (header.sequence, header.chain, header.durable);
                found.push(Candidate { sequence, chain, durable, hash: transaction.hash, ops });
            }
            at += blocks;
        }
    }
    found.sort_by_key(|candidate| candidate.sequence);
    Ok(found)
}

/// The places of the transactions that follow each other behind `last`, if there are any to be taken.
fn next_chain(superblock: &Superblock, last: u64, found: &[Candidate]) -> Option<Vec<usize>> {
    let mut by_link: HashMap<(u64, u64), usize> = HashMap::default();
    let mut hashes: HashMap<(u64, u64), usize> = HashMap::default();
    for (at, candidate) in found.iter().enumerate().filter(|(_, c)| c.sequence > last) {
        by_link.insert((candidate.sequence, candidate.chain), at);
        hashes.insert((candidate.sequence, candidate.hash), at);
    }
    let chain_from = |first: usize| {
        let follows = |&at: &usize| by_link.get(&(found[at].sequence + 1, found[at].hash)).copied();
        std::iter::successors(Some(first), follows).collect::<Vec<_>>()
    };
    let is_head =
        |&(_, c): &(usize, &Candidate)| c.sequence > last && !hashes.contains_key(&(c.sequence - 1, c.chain));
    let is_taken = |chain: &Vec<usize>| {
        superblock.reached >= found[chain[0]].sequence || chain.iter().any(|&at| found[at].durable > last)
    };
    let heads: Vec<usize> = found.iter().enumerate().filter(is_head).map(|(at, _)| at).collect();
    let chains: Vec<Vec<usize>> = heads.into_iter().map(chain_from).filter(is_taken).collect();
    // The first gap first; of those that begin at the same number, what reaches furthest.
    chains.into_iter().min_by_key(|chain| (found[chain[0]].sequence, usize::MAX - chain.len()))
}

impl Salvaged {
    fn take(
        &mut self,
        device: &dyn BlockDevice,
        replayed: &mut Replayed,
        op: &Op,
        is_durable: bool,
    ) -> Result<()> {
        match op {
            Op::JournalExtend { extents } | Op::JournalSwitch { extents } => {
                self.expel_owners(&mut replayed.meta, extents, None);
                let geometry = replayed.meta.geometry();
                replayed.behind.extend(extents.iter().copied().filter(|e| geometry.check(*e).is_ok()));
                return Ok(());
            }
            Op::Jump { .. } => return Ok(()),
            Op::File(file) => self.expel_owners(&mut replayed.meta, &file.extents, Some(file.ino)),
            Op::Extend { ino, extents } => self.expel_owners(&mut replayed.meta, extents, Some(*ino)),
            Op::Claim { ino, size, from, hash } if !is_durable => {
                let node = replayed.meta.nodes().get(*ino);
                let is_true = node.map_or(Ok(true), |node| holds(device, node, (*from, *size), *hash))?;
                if !is_true {
                    return Ok(());
                }
            }
            _ => {}
        }
        if replayed.meta.apply(op).is_err() {
            self.consequences.push(consequence(op));
        }
        Ok(())
    }

    /// Removes the files that have one of these blocks.
    fn expel_owners(&mut self, meta: &mut Meta, extents: &[Extent], but: Option<Ino>) {
        let meets = |a: &Extent, b: &Extent| {
            let end = |e: &Extent| u64::from(e.start) + u64::from(e.blocks);
            !a.is_hole() && !b.is_hole() && u64::from(a.start) < end(b) && u64::from(b.start) < end(a)
        };
        let owners: Vec<Ino> = meta
            .nodes()
            .iter()
            .filter(|(ino, _)| Some(*ino) != but)
            .filter(|(_, node)| {
                node.extents.as_slice().iter().any(|own| extents.iter().any(|e| meets(own, e)))
            })
            .map(|(ino, _)| ino)
            .collect();
        for ino in owners {
            let names = meta.directories().paths_of(ino).join(", ");
            self.consequences.push(format!(
                "file {ino} ({names}) was removed by a lost transaction, and its blocks are another's: it is gone"
            ));
            meta.expel(ino);
        }
    }
}

/// What it means that an operation cannot be applied.
fn consequence(op: &Op) -> String {
    match op {
        Op::Link { ino, .. } => {
            format!("{op}: the file was made by a lost transaction and is gone (file {ino})")
        }
        Op::Size { ino, .. } | Op::Claim { ino, .. } => {
            format!("{op}: file {ino} or its last blocks came with a lost transaction, and its end is gone")
        }
        _ => format!("{op}: rests on a lost transaction, and is lost as well"),
    }
}
