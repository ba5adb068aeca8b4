//! Journal writer.
//!
//! One lock covers a commit, from taking the pending operations until the device has them.
//! Therefore transaction numbers, their places and the operation order agree. A commit that waited
//! for another one often finds its operations already written.
//!
//! **Space.** After the last transaction, [`SPARE_BLOCKS`] blocks always remain for a transaction
//! that extends the journal. A commit that would leave fewer first writes such a transaction. The
//! new blocks come from a reserve that files cannot use ([`crate::core`]).
//!
//! **Durability.** A transaction may be written without a sync, for example when memory is short or
//! a log is switched. The next durable commit then syncs the device instead of only writing its own
//! blocks durably.
//!
//! Claims confirm file bytes that are not durable yet (see [`crate::append`]). A transaction with
//! claims is made durable by a device sync before the next transaction is written. The next
//! transaction records this, so only the last transaction of a journal can hold a false claim.

use crate::core::Core;
use crate::devices::VolumeDevices;
use crate::geometry::Roles;
use crate::layout::{self, BLOCK, Extent};
use crate::op::Op;
use crate::replay::Replayed;
use crate::transaction::{self, Header, Kind, Owner};
use base::Result;
use base::sync::{Mutex, lock, rank};
use io::{AlignedBuf, Rng};

/// Number of blocks kept for the transaction that extends the journal.
pub(crate) const SPARE_BLOCKS: u64 = 1;
/// Maximum number of extents in such a transaction, so that it fits.
pub(crate) const GROWTH_RUNS_MAX: usize = 256;

/// State of the journal writer.
#[derive(Debug)]
pub(crate) struct Journal {
    owner: Owner,
    /// Extents in use.
    runs: Vec<Extent>,
    room: u64,
    /// Next free block within `runs`.
    at: u64,
    /// All earlier extents since the last dump, and those of the dump.
    behind: Vec<Extent>,
    /// Last written transaction and its hash.
    sequence: u64,
    chain: u64,
    /// Last transaction known to be durable.
    durable: u64,
    /// Devices with unsynced transactions.
    unsynced: Roles,
    /// Number of transaction blocks since the dump.
    since_dump: u64,
    salt: Rng,
    buf: AlignedBuf,
    /// Numbers of written transactions and blocks, for statistics.
    pub written: (u64, u64),
}

/// Required durability of a transaction write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransactionDurability {
    /// Written to the device, not durable.
    Device,
    /// Durable, with all earlier transactions.
    Alone,
    /// Durable, together with all other writes to these devices.
    With(Roles),
}

/// Result of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    /// Position up to which all operations are written.
    pub position: u64,
    /// True if these operations are durable: durability was requested, or they contained a claim.
    pub durable: bool,
}

/// Start of a dump: the dumped transaction, and the place where the journal continues.
#[derive(Debug)]
pub(crate) struct Switched {
    pub sequence: u64,
    pub jump: Op,
    /// Blocks that become unused once the superblock refers to the dump.
    pub behind: Vec<Extent>,
}

impl Journal {
    /// Continues at the end of the replayed journal. `synced` means that all of it is durable.
    pub(crate) fn new(owner: Owner, replayed: &Replayed, synced: bool, salt: Rng) -> Self {
        Journal {
            owner,
            room: layout::blocks_of(&replayed.runs),
            runs: replayed.runs.clone(),
            at: replayed.at,
            behind: replayed.behind.clone(),
            sequence: replayed.sequence,
            chain: replayed.chain,
            durable: if synced { replayed.sequence } else { 0 },
            unsynced: Roles::default(),
            since_dump: replayed.since_dump,
            salt,
            buf: AlignedBuf::zeroed(BLOCK as usize),
            written: (0, 0),
        }
    }

    /// Returns the last transaction known to be durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Returns the devices with unsynced transactions.
    pub(crate) fn unsynced(&self) -> Roles {
        self.unsynced
    }

    /// Returns the last written transaction.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the number of blocks written since the dump.
    pub(crate) fn since_dump(&self) -> u64 {
        self.since_dump
    }

    /// Returns the number of blocks of the journal, including the dump.
    pub(crate) fn blocks(&self) -> u64 {
        self.room + layout::blocks_of(&self.behind)
    }

    /// Writes one transaction after the last one.
    fn write(&mut self, device: &VolumeDevices, ops: &[u8], reach: TransactionDurability) -> Result<()> {
        let durable = reach != TransactionDurability::Device;
        let header = Header {
            kind: Kind::Change,
            sequence: self.sequence + 1,
            chain: self.chain,
            durable: self.durable,
            salt: self.salt.next_u64(),
            part: 0,
        };
        let (bytes, hash) = transaction::encode(self.owner, &header, ops);
        let blocks = transaction::blocks_of(ops.len());
        let len = (blocks * BLOCK) as usize;
        self.buf.resize(len);
        let buf = self.buf.as_mut_slice();
        buf[..bytes.len()].copy_from_slice(&bytes);
        buf[bytes.len()..].fill(0);
        let pieces = layout::pieces(&self.runs, self.at * BLOCK, len as u64);
        let alone =
            reach == TransactionDurability::Alone && self.durable == self.sequence && pieces.len() == 1;
        let found: u64 = pieces.iter().map(|p| p.len).sum();
        assert_eq!(found, len as u64, "the journal has room for what is written");
        for (now, offset) in layout::cut(&pieces, self.buf.as_slice()) {
            let offset = offset.expect("the journal has no holes");
            match alone {
                true => device.write_durable(now, offset)?,
                false => device.write_at(now, offset)?,
            }
        }
        if !alone {
            self.unsynced = self.unsynced.and(device.roles_of(&self.runs));
        }
        if let TransactionDurability::With(others) = reach {
            self.unsynced = self.unsynced.and(others);
        }
        (self.sequence, self.chain) = (header.sequence, hash);
        if durable {
            self.sync(device)?;
        }
        self.at += blocks;
        self.since_dump += blocks;
        self.written = (self.written.0 + 1, self.written.1 + blocks);
        Ok(())
    }

    /// Makes all transactions durable, and the bytes covered by their claims.
    fn sync(&mut self, device: &VolumeDevices) -> Result<()> {
        if !self.unsynced.is_empty() {
            device.sync_of(self.unsynced)?;
        }
        self.unsynced = Roles::default();
        self.durable = self.sequence;
        Ok(())
    }

    /// Ensures space for `blocks` blocks and the spare ones. Leaves the core unchanged if that is
    /// impossible.
    fn make_room(
        &mut self,
        device: &VolumeDevices,
        core: &Mutex<Core, rank::FsCore>,
        blocks: u64,
    ) -> Result<()> {
        if self.room - self.at >= blocks + SPARE_BLOCKS {
            return Ok(());
        }
        let extents = {
            let mut core = lock(core);
            let growth = u64::from(core.journal_blocks).max(blocks + SPARE_BLOCKS);
            take_few_runs(&mut core, growth)?
        };
        let mut ops = Vec::new();
        Op::JournalExtend { extents: extents.clone() }.encode(&mut ops);
        self.write(device, &ops, TransactionDurability::Device)?;
        self.room += layout::blocks_of(&extents);
        self.runs.extend(extents);
        Ok(())
    }

    /// Writes all pending operations, and makes them durable if `durable`.
    ///
    /// # Errors
    /// `NoSpace` if the journal cannot grow; nothing has changed then. Any other error leaves the
    /// journal in an unknown state.
    pub(crate) fn commit(
        &mut self,
        device: &VolumeDevices,
        core: &Mutex<Core, rank::FsCore>,
        durable: bool,
    ) -> Result<Committed> {
        loop {
            let wanted = transaction::blocks_of(lock(core).pending.len());
            self.make_room(device, core, wanted)?;
            let (ops, claims, position) = {
                let mut core = lock(core);
                // More operations may have been queued meanwhile.
                if transaction::blocks_of(core.pending.len()) + SPARE_BLOCKS > self.room - self.at {
                    continue;
                }
                (std::mem::take(&mut core.pending), std::mem::take(&mut core.claims), core.position)
            };
            if !ops.is_empty() {
                let reach = match durable {
                    _ if !claims.is_empty() => TransactionDurability::With(claims),
                    true => TransactionDurability::Alone,
                    false => TransactionDurability::Device,
                };
                self.write(device, &ops, reach)?;
            } else if durable && self.durable < self.sequence {
                self.sync(device)?;
            }
            return Ok(Committed { position, durable: durable || !claims.is_empty() });
        }
    }

    /// Writes all pending operations as the last transaction in the current blocks, and continues
    /// in new blocks. Calls `dump` when the core holds exactly the written state.
    pub(crate) fn switch(
        &mut self,
        device: &VolumeDevices,
        shared: &Mutex<Core, rank::FsCore>,
        dump: impl FnOnce(&Core),
    ) -> Result<Switched> {
        let (mut ops, extents) = loop {
            let wanted = transaction::blocks_of(lock(shared).pending.len() + BLOCK as usize);
            self.make_room(device, shared, wanted)?;
            let mut core = lock(shared);
            if transaction::blocks_of(core.pending.len() + BLOCK as usize) > self.room - self.at {
                continue;
            }
            if !core.claims.is_empty() {
                // A transaction with a switch must not contain claims, so commit the claims first.
                // Writers of further claims wait for the journal lock, so this repeats rarely.
                drop(core);
                self.commit(device, shared, true)?;
                continue;
            }
            let growth = u64::from(core.journal_blocks);
            let extents = take_few_runs(&mut core, growth)?;
            let ops = std::mem::take(&mut core.pending);
            dump(&core);
            break (ops, extents);
        };
        Op::JournalSwitch { extents: extents.clone() }.encode(&mut ops);
        self.write(device, &ops, TransactionDurability::Device)?;
        let mut behind = std::mem::take(&mut self.behind);
        behind.append(&mut self.runs);
        self.behind = behind.clone();
        (self.runs, self.at) = (extents.clone(), 0);
        self.room = layout::blocks_of(&extents);
        self.since_dump = 0;
        let jump = Op::Jump { sequence: self.sequence + 1, chain: self.chain, extents };
        Ok(Switched { sequence: self.sequence, jump, behind })
    }

    /// Records that the superblock refers to the dump. The dump replaces the first `replaced`
    /// extents of `behind`.
    pub(crate) fn dumped(&mut self, dump: &[Extent], replaced: usize) {
        self.behind.drain(..replaced);
        self.behind.extend_from_slice(dump);
    }

    /// Records that the transactions up to `sequence` are durable.
    pub(crate) fn note_durable(&mut self, sequence: u64) {
        self.durable = self.durable.max(sequence);
        if self.durable == self.sequence {
            self.unsynced = Roles::default();
        }
    }
}

/// Allocates journal blocks in so few extents that one operation can name them.
fn take_few_runs(core: &mut Core, blocks: u64) -> Result<Vec<Extent>> {
    let extents = core.allocate_journal(blocks)?;
    if extents.len() > GROWTH_RUNS_MAX {
        core.release(&extents)?;
        return Err(crate::core::no_space(format!(
            "the journal of the volume needs {blocks} blocks of {BLOCK} bytes, but the free ones are in over \
             {GROWTH_RUNS_MAX} separate places; remove files"
        )));
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Meta;
    use crate::space::FreeSpace;

    /// One operation names all new blocks of the journal, so they must form few extents.
    #[test]
    fn a_journal_does_not_grow_into_blocks_that_are_too_scattered() {
        let mut core = Core::new(Meta::new(10_000), FreeSpace::default(), (8, 2, 4), None);
        let blocks = GROWTH_RUNS_MAX as u64 + 1;
        let scattered: Vec<Extent> = (0..blocks as u32).map(|n| Extent::new(100 + 2 * n, 1)).collect();
        core.release(&scattered).unwrap();
        let e = take_few_runs(&mut core, blocks).unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::NoSpace);
        let told = format!(
            "the journal of the volume needs {blocks} blocks of {BLOCK} bytes, but the free ones are in over \
             {GROWTH_RUNS_MAX} separate places; remove files"
        );
        assert_eq!((e.message(), core.free.blocks()), (&*told, blocks), "they are free again");
        assert_eq!(take_few_runs(&mut core, blocks - 1).unwrap().len(), GROWTH_RUNS_MAX);
    }

    /// A dump makes the transactions up to its own one durable. Later ones still need a sync.
    #[test]
    fn a_transaction_behind_a_durable_one_still_needs_a_sync() {
        let owner = Owner { uid: base::Uid::from_words(1, 1), key: base::Uid::from_words(2, 2) };
        let replayed = Replayed {
            meta: Meta::new(100),
            behind: Vec::new(),
            runs: Vec::new(),
            at: 0,
            sequence: 7,
            chain: 0,
            since_dump: 0,
            transactions: 7,
            unconfirmed: Vec::new(),
        };
        let mut journal = Journal::new(owner, &replayed, false, Rng::new(1));
        journal.unsynced = Roles::ALL;
        journal.note_durable(6);
        assert_eq!((journal.durable(), journal.unsynced().is_empty()), (6, false));
        journal.note_durable(7);
        assert_eq!((journal.durable(), journal.unsynced().is_empty()), (7, true));
    }
}
