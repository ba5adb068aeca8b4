//! What is known of the files of a volume: which names led to which file when, and what may be in them.

use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) const SECTOR: usize = 512;
/// The end of a call of which a loss of power may have left anything.
const NEVER: u64 = u64::MAX;

/// A file, whatever its names. Its number is in its bytes.
pub(crate) type FileId = u64;

/// All names at one moment: of files, and of directories (`None`).
pub(crate) type Names = BTreeMap<String, Option<FileId>>;

/// A call, by the numbers of the simulation: begun before operation `begin`, over before operation `end`.
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

/// Something that has been durable since operation `since`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durable<T> {
    pub since: u64,
    pub what: T,
}

/// What may be in a file.
#[derive(Clone, Debug)]
pub(crate) enum Contents {
    /// Written from front to back.
    Appended {
        /// Bytes handed over so far, at most.
        len: u64,
        /// Lengths that were synced, with the size, and without it.
        full: Vec<Durable<u64>>,
        data: Vec<Durable<u64>>,
        /// Ranges that may be holes.
        punched: Vec<(u64, u64)>,
    },
    /// Written in place: the versions of each block.
    InPlace { blocks: Vec<Vec<Version>> },
    /// A process was killed while it wrote in place.
    Unknown,
}

impl Contents {
    /// What may be in it when the machine has died at operation `op` and nothing is written any more: what was durable
    /// stays so, and another crash may take the rest.
    pub fn after_a_crash(&self, op: u64, killed: bool) -> Contents {
        let still = |durable: &[Durable<u64>]| {
            durable.iter().filter(|d| d.since <= op).map(|d| Durable { since: 0, what: d.what }).collect()
        };
        match self {
            Contents::Appended { len, full, data, punched } => Contents::Appended {
                len: *len,
                full: still(full),
                data: still(data),
                punched: punched.clone(),
            },
            Contents::InPlace { blocks } if killed && blocks.iter().flatten().any(|v| v.is_under_way(op)) => {
                Contents::Unknown
            }
            Contents::Unknown => Contents::Unknown,
            Contents::InPlace { blocks } => {
                let keep = |v: &Version| {
                    let durable = v.durable.filter(|since| *since <= op).map(|_| 0);
                    Version {
                        span: Span { begin: 0, end: if killed && v.span.end != NEVER { 0 } else { NEVER } },
                        durable,
                        ..*v
                    }
                };
                let begun = |b: &Vec<Version>| {
                    b.iter().filter(|v| v.span.begin <= op || v.number == 0).map(keep).collect()
                };
                Contents::InPlace { blocks: blocks.iter().map(begun).collect() }
            }
        }
    }
}

/// A version of a block. The first is zeros.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub number: u64,
    pub span: Span,
    /// The operation from which on it is durable.
    pub durable: Option<u64>,
}

impl Version {
    pub fn is_under_way(&self, op: u64) -> bool {
        self.span.begin <= op && op < self.span.end && self.span.end != NEVER
    }
}

/// What is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// The names after each call that changed them, in order.
    pub moments: Vec<Moment>,
    /// Moments that were durable.
    pub settled: Vec<Durable<usize>>,
    pub contents: BTreeMap<FileId, Contents>,
    pub next_id: FileId,
    /// Bytes that the volume has: at first, and after each call that made it grow.
    pub sizes: Vec<(Span, u64)>,
}

impl Files {
    /// A volume just made.
    pub fn new(names: Names) -> Files {
        let span = Span { begin: 0, end: 0 };
        Files {
            moments: vec![Moment { span, names: Rc::new(names) }],
            settled: vec![Durable { since: 0, what: 0 }],
            contents: BTreeMap::new(),
            next_id: 1,
            sizes: Vec::new(),
        }
    }

    /// The sizes that the volume may have when its process has died at operation `op`: a superblock that was being written may be in the cache
    /// of the device only.
    pub fn sizes_after_a_kill(&self, op: u64) -> Vec<(Span, u64)> {
        let begun = self.sizes.iter().filter(|(span, _)| span.begin <= op);
        begun
            .map(|&(span, bytes)| (Span { begin: 0, end: if span.end <= op { 0 } else { NEVER } }, bytes))
            .collect()
    }

    /// True if a crash at operation `op` may leave a volume of so many bytes.
    pub fn may_have(&self, bytes: u64, op: u64) -> bool {
        let least = self.sizes.iter().filter(|(span, _)| span.end <= op).map(|(_, bytes)| *bytes).max();
        let begun = self.sizes.iter().any(|(span, size)| span.begin <= op && *size == bytes);
        begun && Some(bytes) >= least
    }

    pub fn names(&self) -> &Names {
        &self.moments.last().expect("there is a first moment").names
    }

    /// A call has changed the names.
    pub fn changed(&mut self, span: Span, names: Names) {
        self.moments.push(Moment { span, names: Rc::new(names) });
    }

    /// All names up to a moment are durable.
    pub fn settle(&mut self, since: u64, moment: usize) {
        self.settled.push(Durable { since, what: moment });
    }

    /// The moments whose names a crash at operation `op` may leave.
    pub fn possible(&self, op: u64) -> &[Moment] {
        let first = self.settled.iter().filter(|d| d.since <= op).map(|d| d.what).max().unwrap_or(0);
        let end = self.moments.iter().rposition(|m| m.span.begin <= op).map_or(first, |last| last);
        &self.moments[first..=end.max(first)]
    }

    /// The moment at which a file was made.
    pub fn made(&self, id: FileId) -> usize {
        self.moments.iter().position(|m| m.names.values().any(|n| *n == Some(id))).unwrap_or(0)
    }
}

/// The byte at `offset` of an appended file.
fn own_word(id: FileId, word: u64) -> u64 {
    let mut x = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 29)
}

/// The bytes that an appended file has at a range.
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

/// The bytes of a version of a sector.
pub(crate) fn version_bytes(id: FileId, block: u64, version: u64, sector: usize) -> Vec<u8> {
    match version {
        0 => vec![0; SECTOR],
        _ => own_bytes(id ^ (version << 20), block * 4096 + (sector * SECTOR) as u64, SECTOR),
    }
}
