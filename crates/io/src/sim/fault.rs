//! Faults: the operation that fails, and the kind of failure.
//!
//! A [`FaultPlan`] counts the operations that match it from the moment it is injected, and acts on
//! the k-th. Several plans may be active; each counts for itself, and the first that strikes
//! decides.

use crate::Rng;
use base::{Error, ErrorKind};
use std::path::Path;

/// Names an operation of the simulated file system, to restrict a [`FaultPlan`] or to count
/// operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OpKind {
    /// `FileSystem::create`
    Create,
    /// `FileSystem::open`
    Open,
    /// `FileSystem::create_in_place`
    CreateInPlace,
    /// `FileSystem::open_in_place`
    OpenInPlace,
    /// `FileSystem::create_scratch`
    CreateScratch,
    /// An `AppendFile` writes its buffer to the file system.
    Append,
    /// `AppendFile::reserve`
    Reserve,
    /// `AppendFile::sync`
    Sync,
    /// `InPlaceFile::write_at`
    WriteAt,
    /// `InPlaceFile::write_durable`
    WriteDurable,
    /// `InPlaceFile::sync_data`
    SyncData,
    /// `ScratchFile::write`, `BlockDevice::write_scratch`
    ScratchWrite,
    /// `read_at` and `read_batch` of any file
    Read,
    /// `FileSystem::rename`
    Rename,
    /// `FileSystem::remove`
    Remove,
    /// `FileSystem::link`
    Link,
    /// `FileSystem::punch_hole`
    PunchHole,
    /// `FileSystem::list`
    List,
    /// `FileSystem::metadata` and lengths
    Metadata,
    /// `FileSystem::create_dir_all`, once for each directory made
    CreateDir,
    /// `FileSystem::remove_dir`
    RemoveDir,
    /// `FileSystem::sync_dir`
    SyncDir,
    /// `FileSystem::lock`
    Lock,
    /// `FileSystem::space`
    Space,
    /// `SimEnv::lengthen_device`
    Lengthen,
    /// Damage done by the campaign; never fails.
    Damage,
}

impl OpKind {
    /// Number of kinds.
    pub(super) const COUNT: usize = OpKind::Damage as usize + 1;
    /// Kinds that make data or names durable.
    pub const SYNCS: [OpKind; 4] = [OpKind::Sync, OpKind::WriteDurable, OpKind::SyncData, OpKind::SyncDir];
    /// Kinds that write bytes to a file.
    pub const WRITES: [OpKind; 3] = [OpKind::Append, OpKind::WriteAt, OpKind::WriteDurable];

    /// Returns true if a read-only medium refuses the operation.
    pub(super) fn mutates(self) -> bool {
        use OpKind::*;
        !matches!(self, Open | Read | List | Metadata | Space | Damage)
    }

    /// Returns true if the operation may fail with this effect.
    fn can_fail(self, effect: FaultEffect) -> bool {
        match effect {
            FaultEffect::NoDescriptor => self.takes_descriptor(),
            _ => self != OpKind::Damage,
        }
    }

    /// Returns true if the operation opens a file or a directory.
    fn takes_descriptor(self) -> bool {
        use OpKind::*;
        let creates = matches!(self, Create | CreateInPlace | CreateScratch);
        creates || matches!(self, Open | OpenInPlace | PunchHole | List | SyncDir | Lock)
    }
}

/// Selects how an operation of the simulated disk fails: with an error, silently, or in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// EIO. A part of a write may have reached the file (by seed); a failed sync keeps or loses
    /// each unsynced write.
    Eio,
    /// ENOSPC. As above.
    NoSpace,
    /// ENOSPC before any effect, also of a sync: the operation may be repeated.
    NoRoom,
    /// EMFILE of an operation that opens something, before it has any effect. No other operation
    /// matches.
    NoDescriptor,
    /// A part of a write reaches the file, at least one byte and not all (if it has two), and then
    /// the write fails with EIO. Other operations: EIO.
    Short,
    /// A write reports success, but nothing reached the file. A sync likewise makes nothing
    /// durable. Other operations succeed.
    Lost,
    /// A write reports success, but its bytes went to another place of the same file. Other
    /// operations succeed.
    Misdirected,
    /// A read returns one flipped bit. Other operations succeed.
    FlippedRead,
    /// The file system lacks the operation (EXDEV, EMLINK, EOPNOTSUPP): no effect.
    Unsupported,
}

/// Makes chosen operations of a simulated machine fail, to test a program on a failing disk;
/// [`crate::sim::SimEnv::inject`] activates it.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    nth: u64,
    effect: FaultEffect,
    kinds: Vec<OpKind>,
    path: String,
    sticky: bool,
    /// Duration, from the first struck operation, in which later ones are struck as well.
    lasts_ns: u64,
    until_ns: Option<u64>,
}

impl FaultPlan {
    /// Strikes the `nth` matching operation from now on, counted from 0. All operations match
    /// unless [`FaultPlan::kinds`] or [`FaultPlan::path`] narrows them. Only one operation is
    /// struck, unless [`FaultPlan::sticky`] or [`FaultPlan::lasting_ns`] says otherwise.
    pub fn nth(nth: u64, effect: FaultEffect) -> Self {
        FaultPlan {
            nth,
            effect,
            kinds: Vec::new(),
            path: String::new(),
            sticky: false,
            lasts_ns: 0,
            until_ns: None,
        }
    }

    /// Restricts the plan to these kinds of operations. Without a call all kinds match; a second
    /// call replaces the first. Operations of other kinds do not count for `nth`.
    pub fn kinds(mut self, kinds: &[OpKind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }

    /// Restricts the plan to operations on paths that contain this text, for example `.log` or a
    /// file name; a second call replaces the first. Other operations do not count for `nth`.
    /// Without a call all paths match.
    pub fn path(mut self, part: &str) -> Self {
        self.path = part.to_owned();
        self
    }

    /// Strikes every later matching operation as well, for a disk that stays broken until
    /// [`crate::sim::SimEnv::clear_faults`]. For a disk that recovers by itself use
    /// [`FaultPlan::lasting_ns`].
    pub fn sticky(mut self) -> Self {
        self.sticky = true;
        self
    }

    /// Strikes every later matching operation as well, for this long from the first one: for a disk
    /// that recovers. Simulated nanoseconds; 0 means no end, as [`FaultPlan::sticky`].
    pub fn lasting_ns(mut self, ns: u64) -> Self {
        (self.sticky, self.lasts_ns) = (true, ns);
        self
    }

    /// Counts the operation; returns its effect if it is struck.
    pub(super) fn strikes(&mut self, kind: OpKind, path: &str, now_ns: u64) -> Option<FaultEffect> {
        let matches = kind.can_fail(self.effect)
            && (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.path.is_empty() || path.contains(&self.path));
        if !matches {
            return None;
        }
        let left = self.nth.checked_sub(1);
        let mut struck = self.nth == 0;
        self.nth = match left {
            Some(left) => left,
            None if self.sticky => 0,
            None => u64::MAX,
        };
        if struck && self.lasts_ns > 0 {
            struck = now_ns < *self.until_ns.get_or_insert(now_ns.saturating_add(self.lasts_ns));
        }
        struck.then_some(self.effect)
    }
}

/// Outcome of an operation.
#[derive(Debug)]
pub(super) enum Verdict {
    Go,
    /// Fails; a part of a write has reached the file.
    Fail(Error),
    /// Fails without any effect.
    Refused(Error),
    /// As `Fail`, and the part is neither empty nor all.
    Short(Error),
    Lost,
    Misdirected,
    FlippedRead,
}

impl Verdict {
    /// For operations that happen whole or not at all.
    pub(super) fn all_or_nothing(self) -> base::Result<()> {
        match self {
            Verdict::Fail(e) | Verdict::Refused(e) | Verdict::Short(e) => Err(e),
            _ => Ok(()),
        }
    }

    pub(super) fn of(effect: FaultEffect, kind: OpKind, path: &str) -> Self {
        let error = |errno| os_error(errno, &format!("{kind:?} failed by plan"), path);
        match effect {
            FaultEffect::Eio => Verdict::Fail(error(EIO)),
            FaultEffect::NoSpace => Verdict::Fail(error(ENOSPC)),
            FaultEffect::NoRoom => Verdict::Refused(error(ENOSPC)),
            FaultEffect::NoDescriptor => Verdict::Refused(error(EMFILE)),
            FaultEffect::Short => Verdict::Short(error(EIO)),
            FaultEffect::Lost => Verdict::Lost,
            FaultEffect::Misdirected => Verdict::Misdirected,
            FaultEffect::FlippedRead => Verdict::FlippedRead,
            FaultEffect::Unsupported => {
                let why = format!("{kind:?} is not possible here, by plan");
                Verdict::Refused(Error::new(ErrorKind::Unsupported, why).at_file(path))
            }
        }
    }

    /// Returns how many of the `len` bytes of a failing write reach the file.
    pub(super) fn written(&self, len: u64, rng: &mut Rng) -> u64 {
        match self {
            Verdict::Short(_) if len > 1 => rng.range(1, len),
            Verdict::Short(_) | Verdict::Refused(_) => 0,
            _ => match rng.below(4) {
                0 => 0,
                1 => len,
                _ => rng.below(len + 1),
            },
        }
    }
}

pub(super) const ENOENT: i32 = 2;
pub(super) const EIO: i32 = 5;
pub(super) const EEXIST: i32 = 17;
pub(super) const ENOTDIR: i32 = 20;
pub(super) const EISDIR: i32 = 21;
pub(super) const EMFILE: i32 = 24;
pub(super) const ENOSPC: i32 = 28;
pub(super) const EROFS: i32 = 30;
pub(super) const ENOTEMPTY: i32 = 39;

/// Returns an error of the operating system.
pub(super) fn os_error(errno: i32, action: &str, path: impl AsRef<Path>) -> Error {
    Error::from_io(action, path, std::io::Error::from_raw_os_error(errno))
}
