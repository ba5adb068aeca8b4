//! State of a simulated volume: for every file and directory the live contents, the durable
//! contents on stable media, and the list of changes in between.
//!
//! A [`Disk`] is plain data that changes only through [`Disk::apply`], which depends only on the
//! disk and the [`Change`]. So a replay of the recorded changes gives the same disk, from which
//! crash states are made. All parts are shared until changed, so a copy of a disk costs one pointer
//! per file.
//!
//! Invariants: of a file or directory without pending changes that is not `diverged`, `live` equals
//! `durable`. A [`Pending`] holds the pages as they were right after its write. So a sector that
//! reaches the media carries every earlier change of the same sector, as with a page cache.

use super::SECTOR;
use super::content::{Content, Page, WHOLE_PAGE, mix, pages_of, sectors_of};
use crate::{PAGE, Rng};
use base::hash::key_hash;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The number of a file or directory.
pub(super) type Ino = u64;
/// The root directory.
pub(super) const ROOT: Ino = 1;
/// A file with more pending writes than this, and than twice its pages, has the older ones merged
/// page by page (scratch files, which are never synced, reach this). The merge drops versions in
/// the middle of a sector's history, not the oldest nor the newest.
const PENDING_MAX: usize = 512;

/// Target of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    File(Ino),
    Dir(Ino),
}

/// One page of a pending write.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) page: u64,
    /// The sectors that the write touched.
    pub(super) mask: u8,
    /// The page after the write; `None`: a hole.
    pub(super) after: Option<Arc<Page>>,
}

/// A write that no sync has covered yet.
#[derive(Clone)]
pub(super) struct Pending {
    pub(super) stamp: u64,
    pub(super) pieces: Vec<Piece>,
    /// Length of the file after the write.
    pub(super) len_after: u64,
}

/// A file.
#[derive(Clone, Default)]
pub(super) struct File {
    pub(super) live: Content,
    pub(super) durable: Content,
    pub(super) pending: Vec<Arc<Pending>>,
    /// A failed sync dropped writes: `live` may show bytes that will never be durable.
    pub(super) diverged: bool,
    /// Numbers of sectors that are unreadable until they are written.
    pub(super) unreadable: BTreeSet<u64>,
}

/// Names to set (`Some`) and to remove (`None`).
pub(super) type NameChange = (Arc<str>, Option<Target>);

/// A change of a directory that no sync has covered yet: all its names change, or none.
#[derive(Clone)]
pub(super) struct DirOp {
    pub(super) stamp: u64,
    pub(super) changes: Vec<NameChange>,
    /// The other directory of a rename between two, whose half has the same stamp. Either both
    /// halves happen, or none.
    pub(super) twin: Option<Ino>,
}

/// The names of a directory.
pub(super) type Names = BTreeMap<Arc<str>, Target>;

/// A directory.
#[derive(Clone, Default)]
pub(super) struct Dir {
    pub(super) live: Names,
    pub(super) durable: Names,
    pub(super) pending: Vec<DirOp>,
    /// As in [`File`].
    pub(super) diverged: bool,
}

/// One atomic step of a volume's history.
#[derive(Clone)]
pub(super) enum Change {
    /// A new empty file and its name.
    MakeFile { dir: Ino, name: Arc<str>, ino: Ino },
    /// A new directory and its name.
    MakeDir { dir: Ino, name: Arc<str>, ino: Ino },
    /// Gives a new file durable zeros.
    Preallocate { ino: Ino, len: u64 },
    /// Writes bytes; `durable`: on stable media on return.
    Write { ino: Ino, offset: u64, data: Arc<[u8]>, durable: bool },
    /// Truncates to nothing, then lengthens to allocated zeros.
    Reset { ino: Ino, len: u64 },
    /// Frees whole pages.
    Punch { ino: Ino, offset: u64, len: u64 },
    /// All earlier writes of the file become durable.
    Sync { ino: Ino },
    /// The same, but it fails: each sector of each earlier write is durable or lost forever.
    SyncFailed { ino: Ino, seed: u64 },
    /// Sets a name.
    Link { dir: Ino, name: Arc<str>, target: Target },
    /// Moves a name, replacing another.
    Rename { from_dir: Ino, from: Arc<str>, to_dir: Ino, to: Arc<str>, target: Target },
    /// Removes a name.
    Remove { dir: Ino, name: Arc<str> },
    /// The names of the directory become durable.
    SyncDir { dir: Ino },
    /// The same, but it fails: a prefix of the changes is durable, the others are lost forever.
    SyncDirFailed { dir: Ino, seed: u64 },
    /// Damage: the file has this content now, also on the media.
    Replace { ino: Ino, content: Content },
    /// Damage: the name is gone, also on the media.
    Erase { dir: Ino, name: Arc<str> },
}

impl Change {
    /// Returns the file whose bytes it changes, or makes durable.
    pub(super) fn file(&self) -> Option<Ino> {
        match self {
            Change::Preallocate { ino, .. }
            | Change::Write { ino, .. }
            | Change::Reset { ino, .. }
            | Change::Punch { ino, .. }
            | Change::Sync { ino }
            | Change::SyncFailed { ino, .. }
            | Change::Replace { ino, .. } => Some(*ino),
            _ => None,
        }
    }
}

/// A volume.
#[derive(Clone)]
pub(super) struct Disk {
    pub(super) files: BTreeMap<Ino, Arc<File>>,
    pub(super) dirs: BTreeMap<Ino, Arc<Dir>>,
    /// Counts changes; orders pending ones.
    pub(super) stamp: u64,
}

impl Disk {
    /// Returns an empty volume.
    pub(super) fn new() -> Self {
        let dirs = BTreeMap::from([(ROOT, Arc::default())]);
        Disk { files: BTreeMap::new(), dirs, stamp: 0 }
    }

    /// Returns the file of a number, which must exist.
    pub(super) fn file(&self, ino: Ino) -> &File {
        self.files.get(&ino).expect("an open file keeps its contents")
    }

    /// Performs a change. Changes of files without a name (see [`Disk::sweep`]) do nothing.
    pub(super) fn apply(&mut self, change: &Change) {
        self.stamp += 1;
        let stamp = self.stamp;
        match change {
            Change::MakeFile { dir, name, ino } => {
                self.files.insert(*ino, Arc::default());
                self.set_names(*dir, vec![(name.clone(), Some(Target::File(*ino)))], None);
            }
            Change::MakeDir { dir, name, ino } => {
                self.dirs.insert(*ino, Arc::default());
                self.set_names(*dir, vec![(name.clone(), Some(Target::Dir(*ino)))], None);
            }
            Change::Link { dir, name, target } => {
                self.set_names(*dir, vec![(name.clone(), Some(*target))], None);
            }
            Change::Remove { dir, name } => self.set_names(*dir, vec![(name.clone(), None)], None),
            Change::Rename { from_dir, from, to_dir, to, target } => {
                let (gone, set) = ((from.clone(), None), (to.clone(), Some(*target)));
                if from_dir == to_dir {
                    self.set_names(*from_dir, vec![gone, set], None);
                } else {
                    self.set_names(*from_dir, vec![gone], Some(*to_dir));
                    self.set_names(*to_dir, vec![set], Some(*from_dir));
                }
            }
            Change::SyncDir { dir } => self.commit_names(*dir),
            Change::SyncDirFailed { dir, seed } => self.fail_names(*dir, *seed),
            Change::Erase { dir, name } => {
                let dir = self.dir_mut(*dir);
                dir.live.remove(name);
                dir.durable.remove(name);
                for op in &mut dir.pending {
                    op.changes.retain(|(changed, _)| changed != name);
                }
            }
            Change::Preallocate { ino, .. }
            | Change::Write { ino, .. }
            | Change::Reset { ino, .. }
            | Change::Punch { ino, .. }
            | Change::Sync { ino }
            | Change::SyncFailed { ino, .. }
            | Change::Replace { ino, .. } => {
                if let Some(file) = self.files.get_mut(ino) {
                    Arc::make_mut(file).apply(change, stamp);
                }
            }
        }
    }

    fn dir_mut(&mut self, ino: Ino) -> &mut Dir {
        Arc::make_mut(self.dirs.get_mut(&ino).expect("a directory in use exists"))
    }

    fn set_names(&mut self, dir: Ino, changes: Vec<NameChange>, twin: Option<Ino>) {
        let stamp = self.stamp;
        let dir = self.dir_mut(dir);
        set_names(&mut dir.live, &changes);
        dir.pending.push(DirOp { stamp, changes, twin });
    }

    /// Makes the pending changes of a directory durable, and with them all changes tied to them by
    /// renames.
    fn commit_names(&mut self, dir: Ino) {
        let mut todo = vec![(dir, u64::MAX)];
        while let Some((ino, through)) = todo.pop() {
            let Some(dir) = self.dirs.get_mut(&ino) else { continue };
            let dir = Arc::make_mut(dir);
            let end = dir.pending.partition_point(|op| op.stamp <= through);
            for op in dir.pending.drain(..end) {
                set_names(&mut dir.durable, &op.changes);
                todo.extend(op.twin.map(|twin| (twin, op.stamp)));
            }
        }
    }

    /// Fails a sync of a directory. Renames between directories are lost as a whole.
    fn fail_names(&mut self, ino: Ino, seed: u64) {
        let mut rng = Rng::new(seed);
        let dir = self.dir_mut(ino);
        let tied = dir.pending.iter().position(|op| op.twin.is_some()).unwrap_or(dir.pending.len());
        let keep = rng.below(tied as u64 + 1) as usize;
        let mut lost = dir.pending.split_off(keep);
        for op in dir.pending.drain(..) {
            set_names(&mut dir.durable, &op.changes);
        }
        dir.diverged |= !lost.is_empty();
        for op in lost.drain(..) {
            if let Some(twin) = op.twin.and_then(|twin| self.dirs.get_mut(&twin)) {
                let twin = Arc::make_mut(twin);
                twin.pending.retain(|half| half.stamp != op.stamp);
                twin.diverged = true;
            }
        }
    }

    /// Drops files and directories that no name, no pending change and no open handle can reach any
    /// more.
    pub(super) fn sweep(&mut self, is_open: impl Fn(Ino) -> bool) {
        let mut reached: Vec<Ino> = vec![ROOT];
        for dir in self.dirs.values() {
            let pending = dir.pending.iter().flat_map(|op| op.changes.iter().filter_map(|(_, t)| t.as_ref()));
            reached.extend(dir.live.values().chain(dir.durable.values()).chain(pending).map(|t| match t {
                Target::File(ino) | Target::Dir(ino) => *ino,
            }));
        }
        reached.sort_unstable();
        self.files.retain(|ino, _| reached.binary_search(ino).is_ok() || is_open(*ino));
        self.dirs.retain(|ino, _| reached.binary_search(ino).is_ok());
    }

    /// Returns the number of names of a file.
    pub(super) fn links(&self, ino: Ino) -> u64 {
        let names = self.dirs.values().flat_map(|dir| dir.live.values());
        names.filter(|&&target| target == Target::File(ino)).count() as u64
    }

    /// Returns the pages in use by files that have a name or are open.
    pub(super) fn used_pages(&self, is_open: impl Fn(Ino) -> bool) -> u64 {
        let mut named: Vec<Ino> = Vec::new();
        for dir in self.dirs.values() {
            named.extend(dir.live.values().filter_map(|t| match t {
                Target::File(ino) => Some(*ino),
                Target::Dir(_) => None,
            }));
        }
        named.sort_unstable();
        let used = |ino: &Ino| named.binary_search(ino).is_ok() || is_open(*ino);
        self.files.iter().filter(|(ino, _)| used(ino)).map(|(_, f)| f.live.allocated_pages()).sum()
    }

    /// Returns the pages of the files in a directory, counting the reserved pages of a file if
    /// these are more; 0 if the directory does not exist.
    pub(super) fn dir_pages(&self, path: &Path, reserved: impl Fn(Ino) -> u64) -> u64 {
        let Ok(Some(Target::Dir(ino))) = self.look_up(path) else { return 0 };
        let files = self.dirs.get(&ino).into_iter().flat_map(|dir| dir.live.values());
        let pages = files.map(|target| match target {
            Target::File(ino) => {
                self.files.get(ino).map_or(0, |file| file.live.allocated_pages()).max(reserved(*ino))
            }
            Target::Dir(_) => 0,
        });
        pages.sum()
    }

    /// Visits every reachable file with its path, sorted by name within each directory, directories
    /// in place.
    pub(super) fn walk(&self, durable: bool, visit: &mut dyn FnMut(&str, Target)) {
        self.walk_dir(ROOT, durable, "", visit);
    }

    fn walk_dir(&self, ino: Ino, durable: bool, path: &str, visit: &mut dyn FnMut(&str, Target)) {
        let Some(dir) = self.dirs.get(&ino) else { return };
        for (name, &target) in if durable { &dir.durable } else { &dir.live } {
            let path = format!("{path}/{name}");
            visit(&path, target);
            if let Target::Dir(ino) = target {
                self.walk_dir(ino, durable, &path, visit);
            }
        }
    }

    /// Returns a hash of all names and contents: live or on stable media.
    pub(super) fn hash(&self, durable: bool) -> u64 {
        self.hash_dir(ROOT, durable)
    }

    fn hash_dir(&self, ino: Ino, durable: bool) -> u64 {
        let Some(dir) = self.dirs.get(&ino) else { return 0 };
        let names = if durable { &dir.durable } else { &dir.live };
        names.iter().fold(3, |h, (name, target)| {
            let inner = match *target {
                Target::Dir(ino) => self.hash_dir(ino, durable),
                Target::File(ino) => match self.files.get(&ino) {
                    Some(file) if durable => file.durable.hash(),
                    Some(file) => file.live.hash(),
                    None => 0,
                },
            };
            mix(mix(h, key_hash(name.as_bytes())), inner)
        })
    }
}

/// Applies changes of names.
pub(super) fn set_names(names: &mut Names, changes: &[NameChange]) {
    for (name, target) in changes {
        match target {
            Some(target) => names.insert(name.clone(), *target),
            None => names.remove(name),
        };
    }
}

impl File {
    fn apply(&mut self, change: &Change, stamp: u64) {
        match change {
            Change::Preallocate { len, .. } => {
                self.live = Content::zeroed(*len);
                self.durable = self.live.clone();
                self.pending.clear();
                self.unreadable.clear();
            }
            Change::Write { offset, data, durable, .. } => {
                let (start, end) = (*offset, *offset + data.len() as u64);
                self.unreadable.retain(|n| n * (SECTOR as u64) < start || (n + 1) * SECTOR as u64 > end);
                self.live.write(*offset, data);
                let written = self.written(stamp, *offset, data.len());
                if *durable {
                    self.supersede(&written.pieces);
                    written.land(&mut self.durable);
                    // The length is durable with the write: an earlier write of a shorter file does
                    // not revert it when it reaches the media.
                    for pending in self.pending.iter_mut().filter(|p| p.len_after != written.len_after) {
                        Arc::make_mut(pending).len_after = written.len_after;
                    }
                } else {
                    self.push(written);
                }
            }
            Change::Reset { len, .. } => {
                let pages = self.live.len().div_ceil(PAGE as u64).max(len.div_ceil(PAGE as u64));
                self.unreadable.clear();
                self.live = Content::zeroed(*len);
                self.push(self.whole_pages(stamp, 0..pages));
            }
            Change::Punch { offset, len, .. } => {
                let freed = self.live.punch(*offset, *len);
                self.push(self.whole_pages(stamp, freed));
            }
            Change::Sync { .. } => self.sync(),
            Change::SyncFailed { seed, .. } => self.fail_sync(&mut Rng::new(*seed)),
            Change::Replace { content, .. } => {
                *self = File { live: content.clone(), durable: content.clone(), ..File::default() };
            }
            _ => unreachable!("not a change of one file"),
        }
    }

    /// Returns the first unreadable sector of a range.
    pub(super) fn unreadable_in(&self, offset: u64, len: u64) -> Option<u64> {
        let end = offset.saturating_add(len).div_ceil(SECTOR as u64);
        self.unreadable
            .range(offset / SECTOR as u64..end.max(offset / SECTOR as u64))
            .next()
            .copied()
            .filter(|_| len > 0)
    }

    fn written(&self, stamp: u64, offset: u64, len: usize) -> Pending {
        let piece = |(page, within, range): (u64, usize, std::ops::Range<usize>)| Piece {
            page,
            mask: sectors_of(within, range.len()),
            after: self.live.page(page).cloned(),
        };
        Pending { stamp, pieces: pages_of(offset, len).map(piece).collect(), len_after: self.live.len() }
    }

    fn whole_pages(&self, stamp: u64, pages: std::ops::Range<u64>) -> Pending {
        let piece = |page| Piece { page, mask: WHOLE_PAGE, after: self.live.page(page).cloned() };
        Pending { stamp, pieces: pages.map(piece).collect(), len_after: self.live.len() }
    }

    fn push(&mut self, pending: Pending) {
        self.pending.push(Arc::new(pending));
        let pages = self.live.len() as usize / PAGE;
        if self.pending.len() > PENDING_MAX.max(2 * pages) {
            self.merge_older_half();
        }
    }

    fn merge_older_half(&mut self) {
        let newer = self.pending.split_off(self.pending.len() / 2);
        let mut merged: BTreeMap<u64, Piece> = BTreeMap::new();
        let mut whole: Option<Pending> = None;
        for older in self.pending.drain(..) {
            for piece in &older.pieces {
                let mask = merged.get(&piece.page).map_or(0, |before| before.mask) | piece.mask;
                merged.insert(piece.page, Piece { mask, ..piece.clone() });
            }
            whole = Some(Pending { stamp: older.stamp, pieces: Vec::new(), len_after: older.len_after });
        }
        // One write per page: pages reach the media independently of each other.
        if let Some(whole) = whole {
            let alone = |piece| Arc::new(Pending { pieces: vec![piece], ..whole.clone() });
            self.pending.extend(merged.into_values().map(alone));
        }
        self.pending.extend(newer);
    }

    /// Removes sectors that a durable write replaced from the earlier pending writes, which can no
    /// longer reach the media.
    fn supersede(&mut self, by: &[Piece]) {
        let overlap = |piece: &Piece| {
            by.iter().filter(|b| b.page == piece.page).fold(0, |mask, b| mask | (b.mask & piece.mask))
        };
        self.pending.retain_mut(|pending| {
            if pending.pieces.iter().all(|piece| overlap(piece) == 0) {
                return true;
            }
            let pending = Arc::make_mut(pending);
            pending.pieces.iter_mut().for_each(|piece| piece.mask &= !overlap(piece));
            pending.pieces.retain(|piece| piece.mask != 0);
            !pending.pieces.is_empty()
        });
    }

    fn sync(&mut self) {
        if self.diverged {
            for pending in std::mem::take(&mut self.pending) {
                pending.land(&mut self.durable);
            }
        } else {
            self.pending.clear();
            self.durable = self.live.clone();
        }
    }

    /// Models a kernel after a failed write-back: the pages count as clean, whether or not the
    /// media took them, and may be dropped from memory at any time.
    fn fail_sync(&mut self, rng: &mut Rng) {
        if self.pending.is_empty() {
            return;
        }
        let len = self.live.len();
        for pending in std::mem::take(&mut self.pending) {
            if rng.one_in(2) {
                let torn = rng.one_in(3);
                pending.land_some(
                    &mut self.durable,
                    |mask| if torn { mask & rng.next_u64() as u8 } else { mask },
                );
            }
        }
        self.diverged = true;
        if rng.one_in(2) {
            self.live = self.durable.clone();
            self.live.set_len(len);
        }
    }
}

impl Pending {
    /// Applies the whole write to `content`.
    pub(super) fn land(&self, content: &mut Content) {
        self.land_some(content, |mask| mask);
    }

    /// Applies the sectors of each page that `choose` picks, and the length, to `content`.
    pub(super) fn land_some(&self, content: &mut Content, mut choose: impl FnMut(u8) -> u8) {
        for piece in &self.pieces {
            content.set_sectors(piece.page, choose(piece.mask) & piece.mask, piece.after.as_ref());
        }
        content.set_len(self.len_after);
    }
}
