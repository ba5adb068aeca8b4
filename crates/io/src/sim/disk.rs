//! What a simulated volume holds: for every file and directory what the processes see, what is
//! surely on stable media, and the list of changes in between.
//!
//! A [`Disk`] is plain data that changes only through [`Disk::apply`], and `apply` depends on
//! nothing but the disk and the [`Change`]. Replaying a recorded list of changes therefore gives
//! the same disk, which is what crash states are made from. All parts are shared until changed, so
//! that copying a disk costs one pointer a file.
//!
//! Invariants: of a file or directory without pending changes that is not `diverged`, `live` equals
//! `durable`. A [`Pending`] holds the pages as they were right after its write, so that a sector
//! that reaches the media carries every earlier change of the same sector, as a page cache would
//! have it.

use super::SECTOR;
use super::content::{Content, Page, WHOLE_PAGE, mix, pages_of, sectors_of};
use crate::{PAGE, Rng};
use base::hash::key_hash;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The number of a file or directory.
pub(super) type Ino = u64;
/// The directory everything lives in.
pub(super) const ROOT: Ino = 1;
/// A file with more pending writes than this, and than twice its pages, has the older ones merged
/// page by page (shared mappings, which are never synced, come here). The merge forgets versions in
/// the middle of a sector's history, not the oldest nor the newest.
const PENDING_MAX: usize = 512;

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    File(Ino),
    Dir(Ino),
}

/// One page of a pending write.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) page: u64,
    /// Which sectors the write touched.
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
    /// Sectors that cannot be read until they are written, by their numbers.
    pub(super) unreadable: BTreeSet<u64>,
}

/// Names set (`Some`) and removed (`None`).
pub(super) type NameChange = (Arc<str>, Option<Target>);

/// A change of a directory that no sync has covered yet: all its names change, or none.
#[derive(Clone)]
pub(super) struct DirOp {
    pub(super) stamp: u64,
    pub(super) changes: Vec<NameChange>,
    /// The other directory of a rename between two, whose half has the same stamp. Both halves
    /// happen, or none.
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
    /// Bytes; `durable`: on stable media when it returns.
    Write { ino: Ino, offset: u64, data: Arc<[u8]>, durable: bool },
    /// Truncates to nothing, then lengthens to allocated zeros.
    Reset { ino: Ino, len: u64 },
    /// Frees whole pages.
    Punch { ino: Ino, offset: u64, len: u64 },
    /// All earlier writes of the file become durable.
    Sync { ino: Ino },
    /// The same, but it fails: each sector of each earlier write is durable or lost for ever.
    SyncFailed { ino: Ino, seed: u64 },
    /// Sets a name.
    Link { dir: Ino, name: Arc<str>, target: Target },
    /// Moves a name, replacing another.
    Rename { from_dir: Ino, from: Arc<str>, to_dir: Ino, to: Arc<str>, target: Target },
    /// Removes a name.
    Remove { dir: Ino, name: Arc<str> },
    /// The names of the directory become durable.
    SyncDir { dir: Ino },
    /// The same, but it fails: a prefix of the changes is durable, the others are lost for ever.
    SyncDirFailed { dir: Ino, seed: u64 },
    /// Damage: the file holds these bytes now, also on the media.
    Replace { ino: Ino, content: Content },
    /// Damage: the name is gone, also on the media.
    Erase { dir: Ino, name: Arc<str> },
}

impl Change {
    /// The file whose bytes it changes, or makes durable.
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
    /// An empty volume.
    pub(super) fn new() -> Self {
        let dirs = BTreeMap::from([(ROOT, Arc::default())]);
        Disk { files: BTreeMap::new(), dirs, stamp: 0 }
    }

    /// The file of a number, which must exist.
    pub(super) fn file(&self, ino: Ino) -> &File {
        self.files.get(&ino).expect("an open file keeps its contents")
    }

    /// Performs a change. Changes of files that nothing names any more (see [`Disk::sweep`]) do
    /// nothing.
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

    /// Makes the pending changes of a directory durable, and with them whatever renames tie to
    /// them.
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

    /// A failed sync of a directory. Renames between directories are lost as a whole.
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

    /// Forgets files and directories that no name, no pending change and no open handle can reach
    /// any more.
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

    /// Number of names of a file.
    pub(super) fn links(&self, ino: Ino) -> u64 {
        let names = self.dirs.values().flat_map(|dir| dir.live.values());
        names.filter(|&&target| target == Target::File(ino)).count() as u64
    }

    /// Pages in use by files that have a name or are open.
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

    /// Pages of the files that have names in a directory, or those reserved for a file, if that is
    /// more; none if the directory is not there.
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

    /// A hash of all names and contents: those that processes see, or those on stable media.
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
                    // The length is durable with it: a write from before, of a shorter file, does
                    // not take that back when it lands.
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

    /// The first sector of a range that cannot be read.
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
        // One write a page: pages reach the media independently of each other.
        if let Some(whole) = whole {
            let alone = |piece| Arc::new(Pending { pieces: vec![piece], ..whole.clone() });
            self.pending.extend(merged.into_values().map(alone));
        }
        self.pending.extend(newer);
    }

    /// Takes sectors that a durable write replaced out of the earlier pending writes: they can no
    /// longer land.
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

    /// What a kernel does after a failed write-back: the pages count as clean, whether or not the
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
    /// The whole write reaches `content`.
    pub(super) fn land(&self, content: &mut Content) {
        self.land_some(content, |mask| mask);
    }

    /// Of each page, the sectors that `choose` picks reach `content`, and so does the length.
    pub(super) fn land_some(&self, content: &mut Content, mut choose: impl FnMut(u8) -> u8) {
        for piece in &self.pieces {
            content.set_sectors(piece.page, choose(piece.mask) & piece.mask, piece.after.as_ref());
        }
        content.set_len(self.len_after);
    }
}
