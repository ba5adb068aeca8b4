//! Salvage of the transactions after damage in the journal, for a repair.
//!
//! The transactions after a damaged one are intact: each has its number, a checksum, and the hash
//! of its predecessor. But the transaction that announces their blocks may be damaged. Therefore
//! the salvage searches all blocks of the volume for transactions and applies those that chain to
//! each other.
//!
//! # Accepted transactions
//!
//! Blocks may also hold transactions of an abandoned history, cut off by a crash, whose numbers
//! were reused. A chain is accepted in two cases. The superblock records that its first transaction
//! was durable, or one of its transactions records this of the first missing transaction. In the
//! second case the writer of the chain knew the lost transactions. Of several chains with the same
//! start, the longest one is taken.
//!
//! # Losses
//!
//! The operations of the missing transactions are lost, and so are operations that depend on them:
//! changes of a file whose creation is lost, and a size beyond the known blocks. A file gets blocks
//! only after the operation that freed them is durable. If two files own the same block after the
//! damage, the younger operation is therefore right, and the other file had been removed.

use crate::layout::{BLOCK, Extent};
use crate::meta::Meta;
use crate::op::{Ino, Op};
use crate::replay::{Replayed, holds};
use crate::superblock::Superblock;
use crate::transaction::{self, Kind, Owner};
use base::{HashMap, Result};
use io::BlockDevice;

/// Search window, in blocks.
const SEARCH_BLOCKS: u64 = 256;

/// Result of a salvage.
#[derive(Debug, Default)]
pub(crate) struct Salvaged {
    /// Ranges of lost transaction numbers, both ends included.
    pub lost: Vec<(u64, u64)>,
    /// Number of transactions applied after the damage.
    pub applied: u64,
    /// Descriptions of operations that could not be applied.
    pub consequences: Vec<String>,
}

/// Transaction found in the search.
struct Candidate {
    sequence: u64,
    chain: u64,
    durable: u64,
    hash: u64,
    ops: Vec<Op>,
}

/// Applies the intact transactions after the damage at which `replayed` ends.
///
/// # Errors
/// The errors of the device.
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

/// Returns all intact transactions of the volume after transaction `after`, by number.
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

/// Returns the indexes of the next accepted chain after `last`, if any.
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
    // Close the first gap first. Of the chains with the same start, take the longest.
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

    /// Removes the files that own one of these blocks.
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
                "file {ino} ({names}) was removed by a lost transaction, and another file has its blocks: the file is gone"
            ));
            meta.expel(ino);
        }
    }
}

/// Describes the consequence of an operation that cannot be applied.
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
