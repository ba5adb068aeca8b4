//! Journal replay: from the superblock to the last durable state.
//!
//! The superblock refers to a *dump*: parts that rebuild the metadata as of the transaction
//! `checkpoint`. The last operation of the dump is a jump to the transactions after it. These
//! follow each other block by block through the extents announced by earlier transactions
//! (`JournalExtend`, `JournalSwitch`).
//!
//! # End of the journal
//!
//! The journal ends at the first place without a valid next transaction: its number, its chain and
//! its checksum must be correct.
//!
//! The next transaction may be torn by a crash, or may never have been written; or it was durable
//! and is damaged now. It was durable if the superblock records this (`reached`), or any later
//! transaction of this volume in the journal blocks does (`durable`). In this case the replay
//! reports corruption. Otherwise its durability was never acknowledged, and the journal continues
//! in its place.
//!
//! A transaction may hold *claims*: sizes of files whose last bytes were written to the device with
//! it. The next transaction was written only after these bytes became durable. Without evidence of
//! durability, the replay reads the claimed bytes. A false claim means that the sync of the
//! transaction never returned, so the transaction counts as torn.
//!
//! After a transaction is durable, its claimed bytes may change in two cases only. A later
//! transaction became durable, or the transaction itself frees the blocks. In the second case the
//! replay does not check them.

use crate::layout::{self, BLOCK, Extent, Piece};
use crate::meta::{Meta, Node};
use crate::op::{CLAIM_LEN_MAX, Op};
use crate::superblock::Superblock;
use crate::transaction::{self, Header, Kind, Owner};
use base::hash::key_hash;
use base::{Error, Result};
use io::BlockDevice;

/// Read-ahead size, in blocks.
const AHEAD_BLOCKS: u64 = 64;

/// Transaction or dump part, as passed to the observer of a replay.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Device offset, in bytes.
    pub offset: u64,
    /// Header.
    pub header: &'a Header,
    /// Operations.
    pub ops: &'a [Op],
}

/// Result of a replay.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub meta: Meta,
    /// Blocks of the dump and of all earlier extents than those in use.
    pub behind: Vec<Extent>,
    /// Extents in use, and the block in them for the next transaction.
    pub runs: Vec<Extent>,
    pub at: u64,
    /// Last transaction and its hash.
    pub sequence: u64,
    pub chain: u64,
    /// Number of transaction blocks since the dump.
    pub since_dump: u64,
    /// Number of transactions since the dump.
    pub transactions: u64,
    /// Transactions without evidence of durability, and the bytes that they claim: transaction
    /// number, offset and length of each piece.
    pub unconfirmed: Vec<(u64, u64, u64)>,
}

/// Reader of the journal blocks in write order.
struct Stream<'d> {
    device: &'d dyn BlockDevice,
    runs: Vec<Extent>,
    len: u64,
    /// Bytes read ahead, from block `start` on.
    ahead: Vec<u8>,
    start: u64,
}

impl<'d> Stream<'d> {
    fn new(device: &'d dyn BlockDevice, runs: Vec<Extent>) -> Self {
        let len = layout::blocks_of(&runs);
        Stream { device, runs, len, ahead: Vec::new(), start: 0 }
    }

    fn extend(&mut self, runs: &[Extent]) {
        self.runs.extend_from_slice(runs);
        self.len += layout::blocks_of(runs);
    }

    /// Returns the device offset of a block, in bytes.
    fn offset(&self, at: u64) -> u64 {
        let piece = layout::pieces(&self.runs, at * BLOCK, 1).into_iter().next();
        piece.and_then(|p| p.offset).unwrap_or(0)
    }

    /// Loads up to `blocks` blocks from block `at` on, as far as they exist.
    fn load(&mut self, at: u64, blocks: u64) -> Result<&[u8]> {
        let end = at.saturating_add(blocks).min(self.len);
        let loaded = self.start + self.ahead.len() as u64 / BLOCK;
        if at < self.start || end > loaded {
            let wanted = end.max(at + AHEAD_BLOCKS.min(self.len.saturating_sub(at))) - at;
            self.ahead = vec![0; (wanted * BLOCK) as usize];
            self.start = at;
            read(self.device, &self.runs, at * BLOCK, &mut self.ahead)?;
        }
        let from = ((at - self.start) * BLOCK) as usize;
        let to = ((end.max(at) - self.start) * BLOCK) as usize;
        Ok(self.ahead.get(from..to).unwrap_or_default())
    }

    /// Returns the bytes of the transaction whose header is at block `at`, or an empty slice
    /// without a valid header.
    fn candidate(&mut self, owner: Owner, at: u64) -> Result<&[u8]> {
        if at >= self.len {
            return Ok(&[]);
        }
        match transaction::decode_header(owner, self.load(at, 1)?) {
            Some((_, len)) => self.load(at, (len as u64).div_ceil(BLOCK)),
            None => Ok(&[]),
        }
    }
}

fn owner(superblock: &Superblock) -> Owner {
    Owner { uid: superblock.uid, key: superblock.key }
}

fn check_runs(superblock: &Superblock, runs: &[Extent]) -> Result<()> {
    if runs.is_empty() {
        return Err(Error::corruption(
            "a link to the next blocks of the journal or of its dump names no blocks",
        ));
    }
    let geometry = superblock.geometry();
    runs.iter().try_for_each(|&e| geometry.check(e))
}

/// Replays the journal. Calls `see` for every transaction and every dump part.
///
/// # Errors
/// `Corruption` with the offset if durable data is damaged; the errors of the device.
pub(crate) fn replay(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    see: &mut dyn FnMut(&Seen<'_>),
) -> Result<Replayed> {
    match replay_as_far_as_possible(device, superblock, see)? {
        (replayed, None) => Ok(replayed),
        (_, Some(damage)) => Err(damage),
    }
}

/// Same as [`replay`], but damage after the dump ends the replay. Returns the state before the
/// damage, and the damage.
///
/// # Errors
/// `Corruption` if the dump is damaged; the errors of the device.
pub(crate) fn replay_as_far_as_possible(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    see: &mut dyn FnMut(&Seen<'_>),
) -> Result<(Replayed, Option<Error>)> {
    let (meta, jump) = read_dump(device, superblock, see)?;
    let mut replayed = Replayed {
        meta,
        behind: jump.dump,
        runs: jump.extents.clone(),
        at: 0,
        sequence: superblock.checkpoint,
        chain: jump.chain,
        since_dump: 0,
        transactions: 0,
        unconfirmed: Vec::new(),
    };
    let mut stream = Stream::new(device, jump.extents);
    let damage = loop {
        match replayed.next(superblock, &mut stream, see) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(e) if e.is_corruption() => break Some(e),
            Err(e) => return Err(e),
        }
    };
    let damage = match damage {
        Some(e) => Some(e),
        // A journal writer always leaves space for the transaction that extends the journal.
        None if replayed.at >= stream.len => {
            let why = format!(
                "the journal has no blocks behind its last transaction, number {}, although every transaction leaves some for the next one",
                replayed.sequence
            );
            Some(Error::corruption(why).at_file(device.path()))
        }
        None => replayed.missing(superblock, &mut stream)?,
    };
    replayed.runs = stream.runs;
    Ok((replayed, damage))
}

/// A part of a dump.
struct DumpPart {
    header: Header,
    hash: u64,
    blocks: u64,
    ops: Vec<Op>,
}

/// Reads the dump part at block `at` of its extents. `place` is its number and the hash of the
/// previous part.
fn read_part(
    stream: &mut Stream<'_>,
    superblock: &Superblock,
    at: u64,
    place: (u32, u64),
) -> Result<DumpPart> {
    let bytes = stream.candidate(owner(superblock), at)?;
    let found = transaction::decode(owner(superblock), bytes)?;
    let (header, hash, blocks) = (found.header, found.hash, found.blocks);
    let is_the_part = header.kind == Kind::Dump && header.sequence == superblock.checkpoint;
    if !is_the_part || (header.part, header.chain) != place {
        return Err(Error::corruption(format!(
            "part {} of transaction {} is in the place of part {} of the dump of transaction {}, or does not continue the part before it",
            header.part, header.sequence, place.0, superblock.checkpoint
        )));
    }
    Ok(DumpPart { header, hash, blocks, ops: Op::decode_all(found.ops)? })
}

/// Returns the offsets of damaged parts in a dump with two copies, in bytes. Returns nothing for a
/// dump with one copy: it is unreadable if a part is damaged.
///
/// # Errors
/// The errors of the device.
pub(crate) fn damaged_dump_parts(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Vec<u64>> {
    let mut stream = Stream::new(device, superblock.dump.clone());
    let (mut at, mut place, mut damaged, half) = (0, (0u32, 0u64), Vec::new(), stream.len / 2);
    let mut copies = 0;
    while at < half {
        let first = read_part(&mut stream, superblock, at, place);
        let second = read_part(&mut stream, superblock, at + half, place);
        copies += u64::from(second.is_ok());
        for (read, at) in [(&first, at), (&second, at + half)] {
            match read {
                Err(e) if !e.is_corruption() => return Err(e.clone()),
                Err(_) => damaged.push(stream.offset(at)),
                Ok(_) => {}
            }
        }
        let Ok(part) = first.or(second) else { break };
        at += part.blocks;
        place = (place.0 + 1, part.hash);
    }
    Ok(if copies == 0 { Vec::new() } else { damaged })
}

struct Jump {
    chain: u64,
    extents: Vec<Extent>,
    /// All blocks of the dump.
    dump: Vec<Extent>,
}

fn read_dump(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    see: &mut dyn FnMut(&Seen<'_>),
) -> Result<(Meta, Jump)> {
    let mut meta = Meta::new(superblock.geometry());
    let mut stream = Stream::new(device, superblock.dump.clone());
    let (mut at, mut chain, mut part) = (0, 0, 0u32);
    loop {
        let offset = stream.offset(at);
        let remedy = "nothing was changed; `--repair` cannot restore a dump that is damaged in both copies: restore a copy of the device, or run `lava fs mkfs --force` and restore a backup";
        let located = |e: Error| e.at_file(device.path()).at_offset(offset).with_remedy(remedy);
        let damaged =
            |e: Error| located(e.context("the full copy (dump) of the volume's metadata is damaged"));
        // A dump with two copies has the second one in the second half of its blocks.
        let copy = at + stream.len / 2;
        let read = read_part(&mut stream, superblock, at, (part, chain));
        let read = read.or_else(|e| read_part(&mut stream, superblock, copy, (part, chain)).map_err(|_| e));
        let DumpPart { header: h, hash, blocks, ops } = match read {
            Err(e) if e.is_corruption() => return Err(damaged(e)),
            read => read?,
        };
        see(&Seen { offset, header: &h, ops: &ops });
        let (last, rest) = match ops.split_last() {
            Some((last, rest)) => (last, rest),
            None => return Err(damaged(Error::corruption("a part of the dump has no operations"))),
        };
        rest.iter().try_for_each(|op| meta.apply(op).map(|_| ())).map_err(located)?;
        if let Op::Jump { sequence, chain, extents } = last {
            if *sequence != superblock.checkpoint + 1 {
                return Err(damaged(Error::corruption(format!(
                    "the dump leads to transaction {sequence} of the journal instead of transaction {}",
                    superblock.checkpoint + 1
                ))));
            }
            check_runs(superblock, extents).map_err(located)?;
            return Ok((meta, Jump { chain: *chain, extents: extents.clone(), dump: stream.runs }));
        }
        match last {
            Op::JournalExtend { extents } => {
                check_runs(superblock, extents).map_err(located)?;
                stream.extend(extents);
            }
            op => drop(meta.apply(op).map_err(located)?),
        }
        (at, chain, part) = (at + blocks, hash, part.saturating_add(1));
    }
}

impl Replayed {
    /// Returns the blocks of the journal.
    pub fn journal(&self) -> Vec<Extent> {
        self.behind.iter().chain(&self.runs).copied().collect()
    }

    /// Returns the error if the missing next transaction was durable.
    fn missing(&self, superblock: &Superblock, stream: &mut Stream<'_>) -> Result<Option<Error>> {
        let lost = self.sequence + 1;
        let by = confirmed(superblock, stream, self.at, lost)?;
        let path = stream.device.path();
        Ok(by.map(|by| {
            let why = format!(
                "transaction {lost} of the journal is damaged or missing, although it was durable according to {by}"
            );
            Error::corruption(why).at_file(path).at_offset(stream.offset(self.at))
        }))
    }

    /// Removes the transactions that this header confirms as durable. Adds the transaction itself
    /// if nothing confirms its durability.
    fn note_confirmed(&mut self, superblock: &Superblock, stream: &Stream<'_>, h: &Header, blocks: u64) {
        let confirmed = h.durable.max(superblock.reached);
        self.unconfirmed.retain(|(sequence, ..)| *sequence > confirmed);
        if h.sequence > confirmed {
            let pieces = layout::pieces(&stream.runs, self.at * BLOCK, blocks * BLOCK);
            self.note_unconfirmed(h.sequence, pieces);
        }
    }

    fn note_unconfirmed(&mut self, sequence: u64, pieces: Vec<Piece>) {
        self.unconfirmed.extend(pieces.into_iter().filter_map(|p| Some((sequence, p.offset?, p.len))));
    }

    /// Adds the bytes of true claims to the data without evidence of durability.
    fn note_claims(&mut self, superblock: &Superblock, sequence: u64, ops: &[Op]) {
        if sequence <= superblock.reached {
            return;
        }
        for op in ops {
            if let Op::Claim { ino, size, from, .. } = op
                && let Some(node) = self.meta.nodes().get(*ino)
            {
                // Whole blocks, up to the last block of the file.
                let begin = from / BLOCK * BLOCK;
                let len = size.div_ceil(BLOCK).saturating_mul(BLOCK) - begin;
                let pieces = layout::pieces(node.extents.as_slice(), begin, len);
                self.note_unconfirmed(sequence, pieces);
            }
        }
    }

    /// Returns true if the claims in `ops` hold. Claimed bytes that the files no longer have after
    /// `ops` are not checked.
    fn claims_hold(&self, device: &dyn BlockDevice, ops: &[Op]) -> Result<bool> {
        let mut meta = self.meta.clone();
        if !ops.iter().all(|op| meta.apply(op).is_ok()) {
            // The operations contradict the state. Applying them reports the details.
            return Ok(true);
        }
        for op in ops {
            if let Op::Claim { ino, size, from, hash } = op
                && let Some(node) = meta.nodes().get(*ino)
                && !holds(device, node, (*from, *size), *hash)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads and applies the next transaction. Returns false if there is none.
    fn next(
        &mut self,
        superblock: &Superblock,
        stream: &mut Stream<'_>,
        see: &mut dyn FnMut(&Seen<'_>),
    ) -> Result<bool> {
        let offset = stream.offset(self.at);
        let path = stream.device.path().to_owned();
        let bytes = stream.candidate(owner(superblock), self.at)?;
        let Ok(found) = transaction::decode(owner(superblock), bytes) else { return Ok(false) };
        let (h, hash, blocks) = (found.header, found.hash, found.blocks);
        if h.kind != Kind::Change || h.sequence != self.sequence + 1 || h.chain != self.chain {
            return Ok(false);
        }
        // From here on the transaction is valid. An error means that the journal contradicts
        // itself.
        let located = |e: Error| e.at_file(&path).at_offset(offset);
        let ops = Op::decode_all(found.ops).map_err(located)?;
        if ops.iter().any(|op| matches!(op, Op::Claim { .. }))
            && confirmed(superblock, stream, self.at + blocks, h.sequence)?.is_none()
            && !self.claims_hold(stream.device, &ops)?
        {
            return Ok(false);
        }
        see(&Seen { offset, header: &h, ops: &ops });
        self.note_confirmed(superblock, stream, &h, blocks);
        (self.sequence, self.chain) = (h.sequence, hash);
        self.since_dump += blocks;
        self.transactions += 1;
        self.at += blocks;
        for (n, op) in ops.iter().enumerate() {
            match op {
                Op::JournalExtend { extents } => {
                    check_runs(superblock, extents).map_err(located)?;
                    stream.extend(extents);
                }
                Op::JournalSwitch { extents } => {
                    check_runs(superblock, extents).map_err(located)?;
                    if n + 1 != ops.len() {
                        return Err(located(Error::corruption(
                            "a transaction of the journal has operations behind its switch to other blocks, which must be the last",
                        )));
                    }
                    self.behind.append(&mut stream.runs);
                    *stream = Stream::new(stream.device, extents.clone());
                    self.at = 0;
                }
                Op::Jump { .. } => {
                    return Err(located(Error::corruption(
                        "a transaction of the journal has an operation (jump) that only a metadata dump may have",
                    )));
                }
                op => drop(self.meta.apply(op).map_err(located)?),
            }
        }
        self.note_claims(superblock, h.sequence, &ops);
        Ok(true)
    }
}

/// Returns true if a byte range of a file has this hash.
pub(crate) fn holds(
    device: &dyn BlockDevice,
    node: &Node,
    (from, to): (u64, u64),
    hash: u64,
) -> Result<bool> {
    let mut bytes = vec![0; usize::try_from(to.saturating_sub(from).min(CLAIM_LEN_MAX)).unwrap_or(0)];
    read(device, node.extents.as_slice(), from, &mut bytes)?;
    Ok(key_hash(&bytes) == hash)
}

/// Reads the bytes at `offset` of these blocks. Holes and the range beyond the blocks leave `buf`
/// unchanged.
fn read(device: &dyn BlockDevice, extents: &[Extent], offset: u64, buf: &mut [u8]) -> Result<()> {
    let pieces = layout::pieces(extents, offset, buf.len() as u64);
    layout::cut_mut(&pieces, buf)
        .filter_map(|(now, at)| Some((now, at?)))
        .try_for_each(|(now, at)| device.read_at(now, at))
}

/// Returns the evidence that transaction `lost`, which is missing at block `at`, was durable.
fn confirmed(superblock: &Superblock, stream: &mut Stream<'_>, at: u64, lost: u64) -> Result<Option<String>> {
    if superblock.reached >= lost {
        return Ok(Some("the superblock".to_owned()));
    }
    for block in at..stream.len {
        if let Some((h, _)) = transaction::decode_header(owner(superblock), stream.load(block, 1)?)
            && h.kind == Kind::Change
            && h.sequence >= lost
            && h.durable >= lost
        {
            return Ok(Some(format!("transaction {}", h.sequence)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
