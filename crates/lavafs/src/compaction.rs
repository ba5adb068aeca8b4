//! Journal compaction: dumps the metadata and frees the old journal, without blocking other
//! threads.
//!
//! ```text
//!  superblock -> [old dump] jump -> [ t1 t2 ... t99 switch ] -> [ t101 t102 ...       one lock, a moment
//!                                                  |
//!                [new dump of the state after t100 = the switch] jump -> [ t101 ...    in the background
//!  superblock -> [new dump] jump -> [ t101 t102 ... ]                                  both slots
//! ```
//!
//! 1. *Switch.* Under the journal lock, the last transaction of the old journal takes the pending
//!    operations and ends with a switch to new blocks. The core lock is held from before these
//!    operations are taken until the metadata is copied. The copy is cheap; its encoding runs after
//!    both locks are released. So the dump holds exactly the effects of all transactions up to the
//!    switch. No pending operation can be replayed twice, and none is missing.
//! 2. *Dump.* The copy is written to its own blocks and ends with a jump to the transaction after
//!    the switch. Meanwhile commits continue after the switch. The old journal also leads to them,
//!    so that a crash does not lose them. The dump does not delay them: the compaction thread
//!    writes a portion, then leaves the device to other threads for longer than that write took
//!    ([`crate::upkeep`]).
//! 3. *Superblock.* The device is synced, and both slots are changed to refer to the dump. Before
//!    the first slot is written, a crash recovers from the old journal, afterwards from the new
//!    one. Both lead to the same transactions.
//! 4. *Free.* The old blocks are freed only now.
//!
//! The jump is part of the dump, and the switch is part of the old journal. Only the compaction
//! writes them. The committers write neither of them, so no committer can write or omit one by
//! mistake.

use crate::core::{Core, DUMP_PART_LEN};
use crate::journal::Switched;
use crate::layout::{self, BLOCK, Extent};
use crate::op::Op;
use crate::superblock::{self, DUMP_EXTENTS_MAX, Superblock};
use crate::transaction::{self, Header, Kind, Owner};
use crate::volume::{Volume, count};
use base::Result;
use base::sync::lock;
use io::AlignedBuf;

/// Size of one dump write, in bytes. A concurrent append waits for at most one such write.
const DUMP_WRITE_LEN: usize = 64 << 10;

/// Number of dump operations encoded between two pauses.
const OPS_BETWEEN_RESTS: u64 = 1000;

/// Progress of the compaction.
#[derive(Debug, Default)]
pub(crate) struct Compaction(Phase);

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    Dumping(Dump),
    Replacing(Dump),
}

/// Dump in progress.
#[derive(Debug)]
struct Dump {
    switched: Switched,
    extents: Vec<Extent>,
    /// Extents that the superblock names.
    named: Vec<Extent>,
    /// All parts, padded to blocks.
    image: AlignedBuf,
    written: usize,
}

/// Encoded dump.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// All parts, each padded to whole blocks.
    pub image: AlignedBuf,
    /// Blocks for the image, in order.
    pub extents: Vec<Extent>,
    /// The subset of `extents` that the superblock must name.
    pub named: Vec<Extent>,
    /// Unused blocks.
    pub rest: Vec<Extent>,
}

/// Encodes a dump for the blocks in `room`, which must hold at least [`crate::core::dump_blocks`]
/// blocks. With twice as many blocks, the dump is written twice, byte for byte, one copy after the
/// other. Readers then take a damaged part from the second copy. If the extents are too many for
/// the superblock, an additional first part and each further part name the blocks of the next part.
pub(crate) fn encode_dump(
    owner: Owner,
    (sequence, salt): (u64, u64),
    mut parts: Vec<Vec<u8>>,
    jump: &Op,
    room: &[Extent],
) -> Result<Encoded> {
    let mut last = Vec::new();
    jump.encode(&mut last);
    parts.push(last);
    let blocks = |parts: &[Vec<u8>]| parts.iter().map(|p| transaction::blocks_of(p.len())).sum::<u64>();
    let (twice, behind) = layout::split_at(room, 2 * blocks(&parts));
    let has_copy = twice.len() <= DUMP_EXTENTS_MAX && layout::blocks_of(&twice) == 2 * blocks(&parts);
    let (mut extents, mut rest) = match has_copy {
        true => (twice, behind),
        false => layout::split_at(room, blocks(&parts)),
    };
    let mut named = extents.clone();
    if extents.len() > DUMP_EXTENTS_MAX {
        parts.insert(0, Vec::new());
        (extents, rest) = (Vec::new(), room.to_vec());
        named = Vec::new();
        for part in parts.iter_mut().rev() {
            if !named.is_empty() {
                Op::JournalExtend { extents: named.clone() }.encode(part);
            }
            (named, rest) = layout::split_at(&rest, transaction::blocks_of(part.len()));
            extents.splice(0..0, named.iter().copied());
        }
    }
    if layout::blocks_of(&extents) < blocks(&parts) || named.len() > DUMP_EXTENTS_MAX {
        let wanted = blocks(&parts) * BLOCK;
        return Err(crate::core::no_space(format!(
            "the volume has no {wanted} free bytes for a copy (dump) of its metadata; remove files, or use a larger device"
        )));
    }
    let len = (blocks(&parts) * BLOCK) as usize;
    let mut image = AlignedBuf::zeroed(if has_copy { 2 * len } else { len });
    let (mut at, mut chain) = (0, 0);
    for (part, ops) in (0u32..).zip(&parts) {
        let header = Header { kind: Kind::Dump, sequence, chain, durable: 0, salt, part };
        let (bytes, hash) = transaction::encode(owner, &header, ops);
        image.as_mut_slice()[at..][..bytes.len()].copy_from_slice(&bytes);
        at += (transaction::blocks_of(ops.len()) * BLOCK) as usize;
        chain = hash;
    }
    if has_copy {
        image.as_mut_slice().copy_within(..len, len);
    }
    Ok(Encoded { image, extents, named, rest })
}

/// Encodes the metadata as the parts of a dump. Calls `between` regularly, because the encoding of
/// thousands of files occupies a processor for a while.
pub(crate) fn dump_parts(meta: &crate::meta::Meta, mut between: impl FnMut()) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut count = 0u64;
    meta.dump(|op| {
        count += 1;
        if count.is_multiple_of(OPS_BETWEEN_RESTS) {
            between();
        }
        if parts.last().is_none_or(|part| part.len() >= DUMP_PART_LEN) {
            parts.push(Vec::new());
        }
        if let Some(part) = parts.last_mut() {
            op.encode(part);
        }
    });
    parts
}

impl Compaction {
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.0, Phase::Idle)
    }

    /// Runs one step. An idle compaction begins. If the volume lacks space, the compaction is
    /// postponed; at most the journal switch has happened.
    ///
    /// # Errors
    /// The errors of the device, which have poisoned the volume.
    pub(crate) fn step(&mut self, volume: &Volume) -> Result<()> {
        volume.durability.check_sound()?;
        self.0 = match std::mem::take(&mut self.0) {
            Phase::Idle => match begin(volume) {
                Ok(dump) => Phase::Dumping(dump),
                Err(e) if crate::core::is_no_space(&e) => return Ok(()),
                Err(e) => return volume.durability.poisoned_by(Err(e)),
            },
            Phase::Dumping(mut dump) => match volume.durability.poisoned_by(dump.write_some(volume))? {
                true => Phase::Replacing(dump),
                false => Phase::Dumping(dump),
            },
            Phase::Replacing(dump) => {
                volume.durability.poisoned_by(dump.replace(volume))?;
                Phase::Idle
            }
        };
        Ok(())
    }
}

/// Switches the journal and copies the metadata.
fn begin(volume: &Volume) -> Result<Dump> {
    let owner = Owner { uid: volume.identity.uid, key: volume.identity.key };
    let salt = volume.env.entropy.next_u64();
    let mut meta = None;
    // Allocate the blocks first: the journal switch cannot be undone.
    let mut room = {
        let mut core = lock(&volume.core);
        let blocks = crate::core::dump_blocks(core.meta.dump_len()) + 2;
        // A volume filled by an older release may have space for only one copy.
        let copies = crate::core::dump_copies_blocks(core.meta.dump_len()) + 2;
        core.allocate_journal(copies).or_else(|_| core.allocate_journal(blocks))?
    };
    let switched = {
        let mut journal = lock(&volume.journal);
        journal.switch(&volume.device, &volume.core, |core: &Core| meta = Some(core.meta.clone()))
    };
    let switched = match switched {
        Ok(switched) => switched,
        Err(e) => {
            lock(&volume.core).release(&room)?;
            return Err(e);
        }
    };
    let mut since_ns = volume.env.clock.now_ns();
    let parts = dump_parts(&meta.expect("a switch copies the metadata"), || {
        volume.upkeep.rest(&volume.env, since_ns);
        since_ns = volume.env.clock.now_ns();
    });
    let needed = crate::core::dump_blocks(parts.iter().map(|p| p.len() as u64).sum()) + 2;
    let more = needed.saturating_sub(layout::blocks_of(&room));
    let grown = match more {
        0 => Ok(()),
        // The metadata grew between the two holds of the lock.
        more => lock(&volume.core).allocate_journal(more).map(|extents| room.extend(extents)),
    };
    // The encoding blocks no other thread.
    let numbers = (switched.sequence, salt);
    match grown.and_then(|()| encode_dump(owner, numbers, parts, &switched.jump, &room)) {
        Ok(Encoded { image, extents, named, rest }) => {
            lock(&volume.core).release(&rest)?;
            Ok(Dump { switched, extents, named, image, written: 0 })
        }
        Err(e) => {
            lock(&volume.core).release(&room)?;
            Err(e)
        }
    }
}

impl Dump {
    /// Writes the next portion of the dump. Returns true after the last one.
    fn write_some(&mut self, volume: &Volume) -> Result<bool> {
        let len = DUMP_WRITE_LEN.min(self.image.len() - self.written);
        let pieces = layout::pieces(&self.extents, self.written as u64, len as u64);
        for (now, offset) in layout::cut(&pieces, &self.image.as_slice()[self.written..]) {
            volume.device.write_at(now, offset.expect("a dump has no holes"))?;
        }
        self.written += len;
        count(&volume.counters.dump_bytes, len as u64);
        Ok(self.written == self.image.len())
    }

    /// Changes the superblock to refer to the dump, and frees the old blocks.
    fn replace(self, volume: &Volume) -> Result<()> {
        // Sync the devices of the dump and those with unsynced parts of the old journal.
        let on = lock(&volume.journal).unsynced().and(volume.device.roles_of(&self.extents));
        volume.device.sync_of(on)?;
        let mut superblock = lock(&volume.superblock);
        let sequence = self.switched.sequence;
        let next = Superblock {
            generation: superblock.generation + 1,
            reached: superblock.reached.max(sequence),
            ..superblock.leading_to(sequence, &self.named, &self.extents)
        };
        superblock::write(&*volume.device, &next)?;
        *superblock = next;
        let mut journal = lock(&volume.journal);
        journal.note_durable(sequence);
        journal.dumped(&self.extents, self.switched.behind.len());
        lock(&volume.core).release(&self.switched.behind)?;
        count(&volume.counters.compactions, 1);
        Ok(())
    }
}
