//! Expected files of a volume: the history of names, and the possible contents.

use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) const SECTOR: usize = 512;
/// End of a call whose effect after a loss of power is arbitrary.
const NEVER: u64 = u64::MAX;

/// A file, independent of its names. Its number is in its bytes.
pub(crate) type FileId = u64;

/// All names at one moment: of files, and of directories (`None`).
pub(crate) type Names = BTreeMap<String, Option<FileId>>;

/// A call, in operation counts of the simulation: it began before operation `begin` and ended
/// before operation `end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub begin: u64,
    pub end: u64,
}

/// The names after a call that changed them.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub span: Span,
    pub names: Rc<Names>,
}

/// A fact that is durable since operation `since`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durable<T> {
    pub since: u64,
    pub what: T,
}

/// Possible contents of a file.
#[derive(Clone, Debug)]
pub(crate) enum FileContents {
    /// Appended.
    Appended {
        /// Maximum number of bytes written so far.
        len: u64,
        /// Synced lengths, with and without the file size.
        full: Vec<Durable<u64>>,
        data: Vec<Durable<u64>>,
        /// Ranges that may be holes.
        punched: Vec<(u64, u64)>,
    },
    /// Written in place: the versions of each block.
    InPlace { blocks: Vec<Vec<BlockVersion>> },
    /// A process was killed during an in-place write.
    Unknown,
}

impl FileContents {
    /// Returns the possible contents after a crash at operation `op`, without further writes:
    /// durable data stays, and another crash may take the rest.
    pub fn after_a_crash(&self, op: u64, killed: bool) -> FileContents {
        let still = |durable: &[Durable<u64>]| {
            durable.iter().filter(|d| d.since <= op).map(|d| Durable { since: 0, what: d.what }).collect()
        };
        match self {
            FileContents::Appended { len, full, data, punched } => FileContents::Appended {
                len: *len,
                full: still(full),
                data: still(data),
                punched: punched.clone(),
            },
            FileContents::InPlace { blocks }
                if killed && blocks.iter().flatten().any(|v| v.is_under_way(op)) =>
            {
                FileContents::Unknown
            }
            FileContents::Unknown => FileContents::Unknown,
            FileContents::InPlace { blocks } => {
                let keep = |v: &BlockVersion| {
                    let durable = v.durable.filter(|since| *since <= op).map(|_| 0);
                    BlockVersion {
                        span: Span { begin: 0, end: if killed && v.span.end != NEVER { 0 } else { NEVER } },
                        durable,
                        ..*v
                    }
                };
                let begun = |b: &Vec<BlockVersion>| {
                    b.iter().filter(|v| v.span.begin <= op || v.number == 0).map(keep).collect()
                };
                FileContents::InPlace { blocks: blocks.iter().map(begun).collect() }
            }
        }
    }
}

/// A version of a block. The first is zeros.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockVersion {
    pub number: u64,
    pub span: Span,
    /// Operation since which it is durable.
    pub durable: Option<u64>,
}

impl BlockVersion {
    pub fn is_under_way(&self, op: u64) -> bool {
        self.span.begin <= op && op < self.span.end && self.span.end != NEVER
    }
}

/// The expected state of a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeFiles {
    /// The names after each call that changed them, in order.
    pub moments: Vec<Moment>,
    /// Durable moments.
    pub settled: Vec<Durable<usize>>,
    pub contents: BTreeMap<FileId, FileContents>,
    pub next_id: FileId,
    /// Sizes of the volume in bytes: the first one, and one after each growth.
    pub sizes: Vec<(Span, u64)>,
}

impl VolumeFiles {
    /// Returns the state of a new volume.
    pub fn new(names: Names) -> VolumeFiles {
        let span = Span { begin: 0, end: 0 };
        VolumeFiles {
            moments: vec![Moment { span, names: Rc::new(names) }],
            settled: vec![Durable { since: 0, what: 0 }],
            contents: BTreeMap::new(),
            next_id: 1,
            sizes: Vec::new(),
        }
    }

    /// Returns the possible sizes of the volume after the death of its process at operation `op`: a
    /// superblock write may be only in the device's cache.
    pub fn sizes_after_a_kill(&self, op: u64) -> Vec<(Span, u64)> {
        let begun = self.sizes.iter().filter(|(span, _)| span.begin <= op);
        begun
            .map(|&(span, bytes)| (Span { begin: 0, end: if span.end <= op { 0 } else { NEVER } }, bytes))
            .collect()
    }

    /// Returns true if the volume may have this size after a crash at operation `op`.
    pub fn may_have(&self, bytes: u64, op: u64) -> bool {
        let least = self.sizes.iter().filter(|(span, _)| span.end <= op).map(|(_, bytes)| *bytes).max();
        let begun = self.sizes.iter().any(|(span, size)| span.begin <= op && *size == bytes);
        begun && Some(bytes) >= least
    }

    pub fn names(&self) -> &Names {
        &self.moments.last().expect("there is a first moment").names
    }

    /// Records a change of the names.
    pub fn changed(&mut self, span: Span, names: Names) {
        self.moments.push(Moment { span, names: Rc::new(names) });
    }

    /// Marks all names up to a moment as durable.
    pub fn settle(&mut self, since: u64, moment: usize) {
        self.settled.push(Durable { since, what: moment });
    }

    /// Returns the moments whose names are possible after a crash at operation `op`.
    pub fn possible(&self, op: u64) -> &[Moment] {
        let first = self.settled.iter().filter(|d| d.since <= op).map(|d| d.what).max().unwrap_or(0);
        let end = self.moments.iter().rposition(|m| m.span.begin <= op).map_or(first, |last| last);
        &self.moments[first..=end.max(first)]
    }

    /// Returns the moment at which a file was created.
    pub fn made(&self, id: FileId) -> usize {
        self.moments.iter().position(|m| m.names.values().any(|n| *n == Some(id))).unwrap_or(0)
    }
}

/// Returns a word of an appended file.
fn own_word(id: FileId, word: u64) -> u64 {
    let mut x = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 29)
}

/// Returns the bytes of a range of an appended file.
pub(crate) fn own_bytes(id: FileId, offset: u64, len: usize) -> Vec<u8> {
    let first = offset / 8;
    let mut bytes = Vec::with_capacity(len + 16);
    let mut word = first;
    while bytes.len() < len + 8 {
        bytes.extend_from_slice(&own_word(id, word).to_le_bytes());
        word += 1;
    }
    let skip = (offset % 8) as usize;
    bytes[skip..skip + len].to_vec()
}

/// Returns the bytes of a version of a sector.
pub(crate) fn version_bytes(id: FileId, block: u64, version: u64, sector: usize) -> Vec<u8> {
    match version {
        0 => vec![0; SECTOR],
        _ => own_bytes(id ^ (version << 20), block * 4096 + (sector * SECTOR) as u64, SECTOR),
    }
}
