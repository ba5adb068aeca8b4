//! States of a volume after a crash.
//!
//! [`Disk::crashed`] derives a possible state after a crash from a volume with pending changes, by
//! a seed. The rules are in the documentation of [`super`]. Each [`Policy`] is a family of legal
//! outcomes. All of them keep the promises of syncs and durable writes, since these are in
//! `durable`, from which no policy takes anything.
//!
//! Cost: a pointer for every untouched file, and work only for files and directories with pending
//! changes.

use super::SECTOR;
use super::content::{Content, Page};
use super::disk::{Change, Dir, DirOp, Disk, File, Ino, Pending, set_names};
use crate::{PAGE, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kind of a simulated crash: only the process dies, or the machine loses power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// The process dies: everything handed to the file system stays, synced or not, and may still
    /// be lost by a later power loss. Write buffers and locks are gone.
    ProcessKill,
    /// The power fails; the seed picks the [`Policy`]. For tests of many seeds.
    PowerLoss,
    /// The power fails, with a given policy, for a test of one kind of disk.
    PowerLossWith(Policy),
}

/// Selects the unsynced changes that a power loss keeps, by the kind of disk. Synced data always
/// stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All changes up to one moment, none after it: a device that writes strictly in order.
    Prefix,
    /// Each write is kept whole or lost whole, independently.
    Dropped,
    /// In each file the newer writes are kept and older ones lost.
    Reordered,
    /// Each write is kept, lost or torn between two sectors of 512 bytes; lengths end inside a
    /// write.
    Torn,
    /// Each sector shows some version of its history; new sectors that were not written show the
    /// former contents of their place on the media, bytes of other files.
    Stale,
    /// As `Torn`, and writes are torn at any byte: one sector of each holds bytes of two versions.
    TornBytes,
    /// As `Torn`, and a few sectors of interrupted writes are unreadable (EIO) until they are
    /// written again.
    Unreadable,
}

impl Policy {
    /// Policies of media that write sectors of 512 bytes whole.
    pub const ALL: [Policy; 5] =
        [Policy::Prefix, Policy::Dropped, Policy::Reordered, Policy::Torn, Policy::Stale];

    fn tears(self) -> bool {
        matches!(self, Policy::Torn | Policy::Stale | Policy::TornBytes | Policy::Unreadable)
    }
}

impl Disk {
    /// Returns the volume after a crash.
    pub(super) fn crashed(&self, kind: CrashKind, rng: &mut Rng) -> Disk {
        let policy = match kind {
            CrashKind::ProcessKill => return self.clone(),
            CrashKind::PowerLoss => Policy::ALL[rng.below(Policy::ALL.len() as u64) as usize],
            CrashKind::PowerLossWith(policy) => policy,
        };
        let cut = self.moment(rng);
        let mut after = self.clone();
        for (ino, file) in &self.files {
            if !file.pending.is_empty() || file.diverged {
                let content = if policy == Policy::Prefix {
                    file.until(cut)
                } else {
                    file.survivors(policy, rng, || self.donor(&mut Rng::new(cut ^ ino)))
                };
                let mut unreadable = file.unreadable.clone();
                if policy == Policy::Unreadable {
                    file.spoil(&mut unreadable, &mut Rng::new(cut ^ ino.rotate_left(9)));
                }
                unreadable.retain(|sector| (sector + 1) * SECTOR as u64 <= content.len());
                let whole = File { live: content.clone(), durable: content, unreadable, ..File::default() };
                after.files.insert(*ino, Arc::new(whole));
            }
        }
        let kept = self.kept_names(policy, cut, rng);
        // In half of the cases any subset instead of a prefix. The halves of a rename have one
        // stamp, and so the same outcome.
        let mut aside = Rng::new(rng.clone().next_u64() ^ 0x6e61_6d65_7300);
        let any = policy != Policy::Prefix && aside.one_in(2);
        let (salt, odds) = (aside.next_u64(), aside.range(2, 8));
        let fate = |stamp: u64| Rng::new(salt ^ stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15)).below(8) < odds;
        for (ino, through) in kept {
            let dir = &self.dirs[&ino];
            let mut names = dir.durable.clone();
            let kept = |op: &&DirOp| if any { fate(op.stamp) } else { op.stamp <= through };
            for op in dir.pending.iter().filter(kept) {
                set_names(&mut names, &op.changes);
            }
            let whole = Dir { live: names.clone(), durable: names, ..Dir::default() };
            after.dirs.insert(ino, Arc::new(whole));
        }
        after
    }

    /// Chooses a moment among the pending changes. The moments before and after all of them are
    /// more likely than by chance.
    fn moment(&self, rng: &mut Rng) -> u64 {
        let files = self.files.values().filter_map(|f| f.pending.first().map(|p| p.stamp));
        let dirs = self.dirs.values().filter_map(|d| d.pending.first().map(|op| op.stamp));
        let first = files.chain(dirs).min().unwrap_or(self.stamp);
        let before = first.saturating_sub(1);
        match rng.below(8) {
            0 => before,
            1 => self.stamp,
            _ => rng.range(before, self.stamp + 1),
        }
    }

    /// Returns the stamp of the last kept change of every directory with pending changes.
    fn kept_names(&self, policy: Policy, cut: u64, rng: &mut Rng) -> BTreeMap<Ino, u64> {
        let mut kept: BTreeMap<Ino, u64> = BTreeMap::new();
        for (&ino, dir) in self.dirs.iter().filter(|(_, d)| !d.pending.is_empty() || d.diverged) {
            let count = dir.pending.len() as u64;
            let keep = match rng.below(4) {
                0 => 0,
                1 => count,
                _ => rng.below(count + 1),
            };
            let last = (keep as usize).checked_sub(1).and_then(|i| dir.pending.get(i));
            kept.insert(ino, if policy == Policy::Prefix { cut } else { last.map_or(0, |op| op.stamp) });
        }
        // A rename between two directories happens in both or in neither: shorten until that holds.
        loop {
            let mut shorter = None;
            for (&ino, &through) in &kept {
                let ops = self.dirs[&ino].pending.iter().filter(|op| op.stamp <= through);
                let halves = ops.filter_map(|op| Some((op.stamp, op.twin?)));
                let mut torn = halves.filter(|(stamp, twin)| kept.get(twin).is_some_and(|t| t < stamp));
                if let Some((stamp, _)) = torn.next() {
                    shorter = Some((ino, stamp - 1));
                    break;
                }
            }
            match shorter {
                Some((ino, through)) => kept.insert(ino, through),
                None => return kept,
            };
        }
    }

    /// Returns some page of some file, for the former contents of a newly allocated block.
    fn donor(&self, rng: &mut Rng) -> Option<Arc<Page>> {
        let nth = rng.below(self.files.len() as u64) as usize;
        let content = &self.files.values().nth(nth)?.durable;
        content.page(rng.below(content.len() / PAGE as u64 + 1)).cloned()
    }
}

impl File {
    /// Returns the content with all pending writes up to a moment.
    fn until(&self, cut: u64) -> Content {
        let mut content = self.durable.clone();
        for pending in self.pending.iter().filter(|p| p.stamp <= cut) {
            pending.land(&mut content);
        }
        content
    }

    /// Returns the content with some of the pending writes.
    fn survivors(&self, policy: Policy, rng: &mut Rng, donor: impl FnOnce() -> Option<Arc<Page>>) -> Content {
        let mut content = self.durable.clone();
        let count = self.pending.len() as u64;
        let odds = [(1, 2), (1, 8), (7, 8)][rng.below(3) as usize];
        let first_kept = rng.below(count + 1);
        if policy == Policy::Stale && rng.one_in(2) {
            self.expose(&mut content, donor());
        }
        let mut len = self.durable.len();
        for (pending, nth) in self.pending.iter().zip(0u64..) {
            let keep = match policy {
                Policy::Reordered => nth >= first_kept || rng.one_in(4),
                _ => rng.below(odds.1) < odds.0,
            };
            let torn = policy == Policy::Stale || (policy.tears() && rng.one_in(2));
            if torn && policy == Policy::TornBytes {
                pending.tear_bytes(&mut content, rng);
            } else if torn {
                pending.tear(&mut content, policy, rng);
            } else if keep {
                pending.land(&mut content);
            }
            if keep {
                len = pending.len_after;
            }
        }
        content.set_len(self.crash_len(len, policy, rng));
        content
    }

    /// Returns the length that reached the media, which may differ from that of the kept data.
    /// Usually it is that of the last kept write, sometimes that of another. In the torn policies
    /// it may be one in between or the end of the last page.
    fn crash_len(&self, kept: u64, policy: Policy, rng: &mut Rng) -> u64 {
        let mut len = kept;
        if rng.one_in(6) {
            let any = rng.below(self.pending.len() as u64 + 1) as usize;
            len = self.pending.get(any).map_or(self.durable.len(), |p| p.len_after);
        }
        let sectors = len.saturating_sub(self.durable.len()) / SECTOR as u64;
        if policy.tears() && sectors > 0 && rng.one_in(3) {
            len = (len - rng.below(sectors + 1) * SECTOR as u64).next_multiple_of(SECTOR as u64).min(len);
        }
        let grows = self.pending.last().is_some_and(|p| p.len_after > self.durable.len());
        if policy.tears() && grows && rng.one_in(5) {
            len = len.next_multiple_of(PAGE as u64);
        }
        len
    }

    /// Chooses unreadable sectors among those of interrupted writes. Sectors with durable bytes
    /// before the end of a growing file are excluded, as are sectors that the write does not
    /// change: see the documentation of [`super`].
    fn spoil(&self, unreadable: &mut BTreeSet<u64>, rng: &mut Rng) {
        let mut sectors = Vec::new();
        let grows = self.pending.iter().any(|p| p.len_after != self.durable.len());
        for piece in self.pending.iter().flat_map(|p| &p.pieces) {
            for nth in (0..8).filter(|nth| piece.mask >> nth & 1 == 1) {
                let sector = piece.page * (PAGE / SECTOR) as u64 + nth;
                let is_new = sector * SECTOR as u64 >= self.durable.len();
                if is_new || !grows && self.durable.differs(piece.page, nth as usize, piece.after.as_ref()) {
                    sectors.push(sector);
                }
            }
        }
        for _ in 0..rng.below(5).min(sectors.len() as u64) {
            unreadable.insert(sectors[rng.below(sectors.len() as u64) as usize]);
        }
    }

    /// Fills the places that pending writes would have allocated with their former contents.
    fn expose(&self, content: &mut Content, before: Option<Arc<Page>>) {
        for piece in self.pending.iter().flat_map(|p| &p.pieces) {
            if self.durable.page(piece.page).is_none() && piece.after.is_some() {
                content.set_sectors(piece.page, super::content::WHOLE_PAGE, before.as_ref());
            }
        }
    }
}

impl Pending {
    /// Applies the bytes of the write before some point to `content`, or those behind it.
    fn tear_bytes(&self, content: &mut Content, rng: &mut Rng) {
        let at = rng.below(self.pieces.len() as u64 * PAGE as u64 + 1);
        let (page, within) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let (sector, byte, from_front) = (within / SECTOR, within % SECTOR, rng.one_in(2));
        let mut nth = 0;
        let torn = self.pieces.get(page as usize).filter(|piece| piece.mask >> sector & 1 == 1);
        let before = torn.map(|piece| content.sector(piece.page, sector));
        self.land_some(content, |_| {
            let below = match nth.cmp(&page) {
                std::cmp::Ordering::Less => 0xff,
                std::cmp::Ordering::Equal => ((1u16 << sector) - 1) as u8,
                std::cmp::Ordering::Greater => 0,
            };
            let tears = if nth == page { 1u8 << sector } else { 0 };
            nth += 1;
            // The torn sector is applied whole, and gets its other bytes back below.
            if from_front { below | tears } else { !below }
        });
        if let (Some(piece), Some(mut bytes)) = (torn, before) {
            let new = content.sector(piece.page, sector);
            let kept = if from_front { 0..byte } else { byte..SECTOR };
            bytes[kept.clone()].copy_from_slice(&new[kept]);
            content.set_sector(piece.page, sector, &bytes);
        }
    }

    /// Applies some sectors of the write to `content`: those before a point, those after it, or
    /// any.
    fn tear(&self, content: &mut Content, policy: Policy, rng: &mut Rng) {
        let at = rng.below(self.pieces.len() as u64 * 8 + 1);
        let shape = if policy == Policy::Stale { 2 } else { rng.below(3) };
        let mut sector = 0;
        self.land_some(content, |_| {
            let below = (1u16 << at.saturating_sub(sector).min(8)) - 1;
            sector += 8;
            match shape {
                0 => below as u8,
                1 => !(below as u8),
                _ => rng.next_u64() as u8,
            }
        });
    }
}

impl Change {
    /// Returns the part of an interrupted change that may have happened; `None`: nothing.
    pub(super) fn interrupted(&self, disk: &Disk, kind: CrashKind, rng: &mut Rng) -> Option<Change> {
        let killed = kind == CrashKind::ProcessKill;
        match self {
            // The policy decides sector by sector.
            Change::Write { ino, offset, data, .. } if !killed => {
                Some(Change::Write { ino: *ino, offset: *offset, data: data.clone(), durable: false })
            }
            Change::Write { ino, offset, data, .. } => {
                let end = offset + data.len() as u64;
                let grows = disk.files.get(ino).is_some_and(|file| file.live.len() < end);
                let mut data = data.to_vec();
                if grows && rng.one_in(4) {
                    // Direct I/O writes whole pages and truncates the file afterwards.
                    data.resize((end.next_multiple_of(PAGE as u64) - offset) as usize, 0);
                } else {
                    let cut = rng.below(data.len() as u64 + 1);
                    // The kernel copies page by page, and checks between pages whether the process
                    // must die.
                    let at_page = (offset + cut) / PAGE as u64 * PAGE as u64;
                    let cut = if rng.one_in(2) { at_page.saturating_sub(*offset) } else { cut };
                    data.truncate(cut as usize);
                }
                Some(Change::Write { ino: *ino, offset: *offset, data: data.into(), durable: false })
            }
            Change::Preallocate { ino, len } => {
                let pages = rng.below(len / PAGE as u64 + 1);
                let len = if rng.one_in(2) { *len } else { pages * PAGE as u64 };
                Some(Change::Preallocate { ino: *ino, len })
            }
            Change::Reset { ino, .. } if rng.one_in(2) => Some(Change::Reset { ino: *ino, len: 0 }),
            Change::SyncFailed { .. } | Change::SyncDirFailed { .. } => None,
            // This includes syncs: one that never returned may have taken effect.
            _ => rng.one_in(2).then(|| self.clone()),
        }
    }
}
