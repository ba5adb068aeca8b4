//! The store's own manifest records: log groups, counters, and the engines with data in the store.
//!
//! An edit is encoded as a sequence of `tag varint, body bytes`. This module has the tags of the
//! store's own records. The tags of the key-value engine (1 to 11, 19, 20, 33, 34), which is older
//! than the other engines, lie between them and are passed on unchanged. The records of every other
//! engine are the body of one tag, opaque to the store. An unknown tag, or a body with extra bytes,
//! was written by a newer release: `Unsupported`, because a recorded change must not be skipped. A
//! tag never changes its meaning.

use crate::field::{flags, newer, number, sequence, small};
use crate::names::FileKind;
use crate::numbers::NUMBER_MAX;
use crate::volumes::{FastTier, Volume};
use base::codec::{Reader, put_bytes, put_varint};
use base::{Error, Result, SeqNo, Uid};
use std::borrow::Cow;
use std::fmt;
use wal::{Lane, LogBegin};

/// The id of an engine. The key-value engine is 0; every other engine chooses a permanent number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineId(pub u32);

impl EngineId {
    /// The engine whose records have tags of their own: LavaKV.
    pub const NATIVE: EngineId = EngineId(0);

    /// Returns the engine that owns a file; `None`: the store itself, or no owner.
    pub fn owner(file: FileKind) -> Option<EngineId> {
        match file {
            FileKind::Engine { engine, .. } => Some(EngineId(engine)),
            FileKind::Tail(_) => Some(EngineId::NATIVE),
            data => data.data().map(|_| EngineId::NATIVE),
        }
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Maximum length of an engine's name, bytes.
pub const ENGINE_NAME_LEN_MAX: usize = 64;

/// Maximum number of engines in a store.
pub(super) const ENGINES_MAX: usize = 64;

/// The largest engine id: a batch in the log has one byte for its tenant.
pub(super) const ENGINE_ID_MAX: u32 = u8::MAX as u32;

/// A file of an engine, as the store lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFile {
    /// File number.
    pub number: u64,
    /// The engine's own kind of file, which is part of its name.
    pub kind: u8,
    /// The volume that holds it.
    pub volume: Volume,
}

/// A log group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogGroupMeta {
    /// Log group number: the position of the group in the log. Never reused.
    pub ltn: u64,
    /// File number. A file may be recycled under another group number.
    pub file: u64,
    /// Length of the file, bytes.
    pub len: u64,
    /// The volume that holds the file.
    pub volume: Volume,
    /// The page number at which recovery ended the group: no page from there on counts.
    pub sealed_end: Option<u64>,
    /// Recovery found the group behind the torn tail: none of its pages counts.
    pub discarded: bool,
    /// Random identity, new each time that a file becomes a group, and part of the mask of its
    /// pages. Numbers do not distinguish a group from that of a copy of the store, whose blocks it
    /// may use. `None`: an older release listed it.
    pub uid: Option<Uid>,
    /// The lane of the group.
    pub lane: Lane,
    /// The group is retained as storage, and no longer replayed: the number of valid bytes, from
    /// its start. Never in the first lane.
    pub retained_bytes: Option<u64>,
    /// The file of a retained group has another name, in a copy of the store or in the source of
    /// this copy. It is removed when the group is freed, and never reused.
    pub shared: bool,
    /// The store that wrote its pages, if this one was copied from it: their checksums hold under
    /// that identity.
    pub store: Option<Uid>,
    /// The beginning of the log. The pages before it in this group are flushed to tables, and may
    /// never have been written. Only in the first lane, and only in the oldest group.
    pub begin: Option<LogBegin>,
}

/// One change of the store's own records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A log group exists and may hold records.
    AddLogGroup {
        /// The group.
        group: LogGroupMeta,
    },
    /// Recovery ended a group at a page: no page from there on counts.
    SealLogGroup {
        /// The group.
        ltn: u64,
        /// The first page that does not count.
        end_lpn: u64,
    },
    /// Recovery found the whole group behind the torn tail.
    DiscardLogGroup {
        /// The group.
        ltn: u64,
    },
    /// A log group becomes storage: it is not replayed, and an open does not read it.
    RetainLogGroup {
        /// The group.
        ltn: u64,
        /// Bytes of valid pages, from the start of the file.
        bytes: u64,
    },
    /// The file of a retained log group is about to get a second name.
    ShareLogGroup {
        /// The group.
        ltn: u64,
    },
    /// The log of the first lane begins in the middle of a group. The pages before are flushed to
    /// tables, and may never have been written.
    BeginLogGroup {
        /// The oldest group.
        ltn: u64,
        /// The beginning.
        begin: LogBegin,
    },
    /// A log group is removed, or its file recycled under another group number. Takes effect before
    /// the additions of the same edit.
    RemoveLogGroup {
        /// The group.
        ltn: u64,
    },
    /// The next file number is at least this.
    NextFileNumber(u64),
    /// The last sequence in use is at least this.
    LastSeq(SeqNo),
    /// The next log group number is at least this.
    NextLtn(u64),
    /// An engine has data in this store, in this format. Repeated when its format changes.
    AddEngine {
        /// The engine; not the key-value engine, which needs no such record.
        engine: EngineId,
        /// Its name, for people.
        name: String,
        /// The newest format of its records and files.
        format: u32,
    },
    /// The engine needs nothing below `seq` from the log. Written for an open without the engine.
    EngineFloor {
        /// The engine.
        engine: EngineId,
        /// The first sequence that may still be in the log only.
        seq: SeqNo,
    },
    /// An engine has a file.
    AddEngineFile {
        /// The engine.
        engine: EngineId,
        /// The file.
        file: EngineFile,
    },
    /// A file of an engine is removed. Takes effect before the additions of the same edit.
    RemoveEngineFile {
        /// The engine.
        engine: EngineId,
        /// The file.
        number: u64,
    },
    /// The log was closed without the engine and holds batches of it that it has not replayed, or
    /// the engine has made up for that. The engine's files may lack data since a crash, although
    /// the log was closed since.
    EngineMissed {
        /// The engine.
        engine: EngineId,
        /// False: the engine has been here since.
        missed: bool,
    },
    /// An engine has left the store, with its files and all its records. Its batches in the log are
    /// no longer needed. It may be added anew once no group is left that may hold any of them.
    RemoveEngine {
        /// The engine: not the key-value engine.
        engine: EngineId,
        /// Groups with this number and above have no batches of it.
        below_ltn: u64,
    },
    /// The space ceiling of the store's last process: its space limit, or more while the store was
    /// still shrinking to a lowered limit. The next process compares its own limit with it.
    SpaceCeiling {
        /// Bytes; 0: unlimited.
        bytes: u64,
    },
    /// The location of the whole log: on a fast tier, or in the store directory. Repeated by each
    /// session.
    FastTier {
        /// The fast tier. `None`: the store directory.
        disk: Option<FastTier>,
    },
}

pub(super) mod tag {
    /// The tags of the key-value engine.
    pub(super) const NATIVE: [std::ops::RangeInclusive<u64>; 3] = [1..=11, 19..=20, 33..=34];
    pub(super) const ADD_LOG_GROUP: u64 = 12;
    pub(super) const SEAL_LOG_GROUP: u64 = 13;
    pub(super) const DISCARD_LOG_GROUP: u64 = 14;
    pub(super) const REMOVE_LOG_GROUP: u64 = 15;
    pub(super) const NEXT_FILE_NUMBER: u64 = 16;
    pub(super) const LAST_SEQ: u64 = 17;
    pub(super) const NEXT_LTN: u64 = 18;
    /// A step of an engine: its id, and its opaque bytes.
    pub(super) const ENGINE_STEP: u64 = 21;
    pub(super) const ADD_ENGINE: u64 = 22;
    pub(super) const ENGINE_FLOOR: u64 = 23;
    pub(super) const ADD_ENGINE_FILE: u64 = 24;
    pub(super) const REMOVE_ENGINE_FILE: u64 = 25;
    pub(super) const ENGINE_MISSED: u64 = 26;
    pub(super) const REMOVE_ENGINE: u64 = 27;
    /// A log group of another lane than the first.
    pub(super) const ADD_LANE_GROUP: u64 = 28;
    pub(super) const RETAIN_LOG_GROUP: u64 = 29;
    pub(super) const SHARE_LOG_GROUP: u64 = 30;
    pub(super) const SPACE_CEILING: u64 = 31;
    pub(super) const SPEED_DISK: u64 = 32;
    pub(super) const BEGIN_LOG_GROUP: u64 = 35;
}

impl LogGroupMeta {
    fn encode_into(&self, out: &mut Vec<u8>) {
        put_varint(out, self.ltn);
        put_varint(out, self.file);
        put_varint(out, self.len);
        out.push(self.volume.0);
        let flags = [
            self.sealed_end.is_some(),
            self.discarded,
            self.uid.is_some(),
            self.retained_bytes.is_some(),
            self.shared,
            self.store.is_some(),
            self.begin.is_some(),
        ];
        out.push(flags.iter().enumerate().fold(0, |bits, (i, &set)| bits | u8::from(set) << i));
        if let Some(end) = self.sealed_end {
            put_varint(out, end);
        }
        if let Some(uid) = self.uid {
            out.extend_from_slice(&uid.0);
        }
        if let Some(bytes) = self.retained_bytes {
            put_varint(out, bytes);
        }
        if let Some(store) = self.store {
            out.extend_from_slice(&store.0);
        }
        if let Some(begin) = self.begin {
            put_begin(out, begin);
        }
    }

    fn decode_of_lane(r: &mut Reader<'_>) -> Result<Self> {
        match Lane(r.u8()?) {
            Lane::FIRST => Err(Error::corruption(
                "the manifest has a log group of the first lane in a record for other lanes",
            )),
            lane if lane.is_known() => Self::decode(r, lane),
            Lane(lane) => Err(newer(format!("a log group of lane {lane}"))),
        }
    }

    fn decode(r: &mut Reader<'_>, lane: Lane) -> Result<Self> {
        let (ltn, file) = (number(r)?, number(r)?);
        let (len, volume) = (r.varint()?, Volume(r.u8()?));
        let flags = flags(r, if lane.retains() { 0b11_1111 } else { 0b100_0111 })?;
        let sealed_end = if flags & 1 != 0 { Some(number(r)?) } else { None };
        let uid = if flags & 4 != 0 { Some(Uid(r.array()?)) } else { None };
        let retained_bytes = if flags & 8 != 0 { Some(number(r)?) } else { None };
        let store = if flags & 32 != 0 { Some(Uid(r.array()?)) } else { None };
        let begin = if flags & 64 != 0 { Some(begin(r)?) } else { None };
        let (discarded, shared) = (flags & 2 != 0, flags & 16 != 0);
        if (shared || store.is_some()) && retained_bytes.is_none() {
            return Err(Error::corruption(format!(
                "the manifest has a log group, {ltn}, that is shared with another store but not retained"
            )));
        }
        Ok(LogGroupMeta {
            ltn,
            file,
            len,
            volume,
            sealed_end,
            discarded,
            uid,
            lane,
            retained_bytes,
            shared,
            store,
            begin,
        })
    }
}

fn put_begin(out: &mut Vec<u8>, begin: LogBegin) {
    [begin.first_lpn, begin.lpn, u64::from(begin.used)].into_iter().for_each(|n| put_varint(out, n));
}

fn begin(r: &mut Reader<'_>) -> Result<LogBegin> {
    let (first_lpn, lpn) = (number(r)?, number(r)?);
    let used = u16::try_from(r.varint()?).ok().filter(|_| first_lpn <= lpn);
    let used = used.ok_or_else(|| {
        Error::corruption(format!(
            "the manifest has a log group that begins where it cannot: at page {lpn}, before its first \
             page {first_lpn}, or at an offset over 65535 bytes"
        ))
    })?;
    Ok(LogBegin { first_lpn, lpn, used })
}

impl Record {
    /// Appends the record.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let tag = self.encode_body(&mut body);
        put_varint(out, tag);
        put_bytes(out, &body);
    }

    fn encode_body(&self, out: &mut Vec<u8>) -> u64 {
        match self {
            Record::AddLogGroup { group } if group.lane == Lane::FIRST => {
                group.encode_into(out);
                tag::ADD_LOG_GROUP
            }
            Record::AddLogGroup { group } => {
                out.push(group.lane.0);
                group.encode_into(out);
                tag::ADD_LANE_GROUP
            }
            Record::BeginLogGroup { ltn, begin } => {
                put_varint(out, *ltn);
                put_begin(out, *begin);
                tag::BEGIN_LOG_GROUP
            }
            Record::RetainLogGroup { ltn, bytes } => put_all(out, tag::RETAIN_LOG_GROUP, [*ltn, *bytes]),
            Record::ShareLogGroup { ltn } => put_all(out, tag::SHARE_LOG_GROUP, [*ltn]),
            Record::SealLogGroup { ltn, end_lpn } => put_all(out, tag::SEAL_LOG_GROUP, [*ltn, *end_lpn]),
            Record::DiscardLogGroup { ltn } => put_all(out, tag::DISCARD_LOG_GROUP, [*ltn]),
            Record::RemoveLogGroup { ltn } => put_all(out, tag::REMOVE_LOG_GROUP, [*ltn]),
            Record::NextFileNumber(n) => put_all(out, tag::NEXT_FILE_NUMBER, [*n]),
            Record::LastSeq(n) => put_all(out, tag::LAST_SEQ, [*n]),
            Record::NextLtn(n) => put_all(out, tag::NEXT_LTN, [*n]),
            Record::AddEngine { engine, name, format } => {
                put_varint(out, u64::from(engine.0));
                put_bytes(out, name.as_bytes());
                put_varint(out, u64::from(*format));
                tag::ADD_ENGINE
            }
            Record::EngineFloor { engine, seq } => {
                put_all(out, tag::ENGINE_FLOOR, [u64::from(engine.0), *seq])
            }
            Record::AddEngineFile { engine, file } => {
                put_all(out, 0, [u64::from(engine.0), file.number]);
                out.extend_from_slice(&[file.kind, file.volume.0]);
                tag::ADD_ENGINE_FILE
            }
            Record::RemoveEngineFile { engine, number } => {
                put_all(out, tag::REMOVE_ENGINE_FILE, [u64::from(engine.0), *number])
            }
            Record::EngineMissed { engine, missed } => {
                put_all(out, tag::ENGINE_MISSED, [u64::from(engine.0), u64::from(*missed)])
            }
            Record::RemoveEngine { engine, below_ltn } => {
                put_all(out, tag::REMOVE_ENGINE, [u64::from(engine.0), *below_ltn])
            }
            Record::SpaceCeiling { bytes } => put_all(out, tag::SPACE_CEILING, [*bytes]),
            Record::FastTier { disk } => {
                out.push(u8::from(disk.is_some()));
                disk.iter().for_each(|disk| disk.encode_into(out));
                tag::SPEED_DISK
            }
        }
    }

    /// Decodes the record of this tag; `None` if the tag is not one of the store's own.
    ///
    /// # Errors
    /// `Unsupported` for fields that only a newer release can have written, `Corruption` for all
    /// other errors.
    pub fn decode(tag: u64, body: &[u8]) -> Result<Option<Record>> {
        let r = &mut Reader::new(body);
        let record = match tag {
            tag::ADD_LOG_GROUP => Record::AddLogGroup { group: LogGroupMeta::decode(r, Lane::FIRST)? },
            tag::ADD_LANE_GROUP => Record::AddLogGroup { group: LogGroupMeta::decode_of_lane(r)? },
            tag::BEGIN_LOG_GROUP => Record::BeginLogGroup { ltn: number(r)?, begin: begin(r)? },
            tag::RETAIN_LOG_GROUP => Record::RetainLogGroup { ltn: number(r)?, bytes: number(r)? },
            tag::SHARE_LOG_GROUP => Record::ShareLogGroup { ltn: number(r)? },
            tag::SEAL_LOG_GROUP => Record::SealLogGroup { ltn: number(r)?, end_lpn: number(r)? },
            tag::DISCARD_LOG_GROUP => Record::DiscardLogGroup { ltn: number(r)? },
            tag::REMOVE_LOG_GROUP => Record::RemoveLogGroup { ltn: number(r)? },
            tag::NEXT_FILE_NUMBER => Record::NextFileNumber(number(r)?),
            tag::LAST_SEQ => Record::LastSeq(sequence(r)?),
            tag::NEXT_LTN => Record::NextLtn(number(r)?),
            tag::ADD_ENGINE => {
                Record::AddEngine { engine: engine(r)?, name: engine_name(r)?, format: small(r)? }
            }
            tag::ENGINE_FLOOR => Record::EngineFloor { engine: engine(r)?, seq: sequence(r)? },
            tag::ADD_ENGINE_FILE => {
                let (engine, number) = (engine(r)?, number(r)?);
                let file = EngineFile { number, kind: r.u8()?, volume: Volume(r.u8()?) };
                Record::AddEngineFile { engine, file }
            }
            tag::ENGINE_MISSED => Record::EngineMissed { engine: engine(r)?, missed: flags(r, 0b1)? != 0 },
            tag::REMOVE_ENGINE => Record::RemoveEngine { engine: engine(r)?, below_ltn: number(r)? },
            tag::REMOVE_ENGINE_FILE => Record::RemoveEngineFile { engine: engine(r)?, number: number(r)? },
            tag::SPACE_CEILING => Record::SpaceCeiling { bytes: r.varint()? },
            tag::SPEED_DISK => {
                let disk = if flags(r, 0b1)? != 0 { Some(FastTier::decode(r)?) } else { None };
                Record::FastTier { disk }
            }
            _ => return Ok(None),
        };
        match r.is_empty() {
            true => Ok(Some(record)),
            false => Err(newer(format!("a manifest record of kind {tag} with additional fields"))),
        }
    }
}

fn put_all<const N: usize>(out: &mut Vec<u8>, tag: u64, numbers: [u64; N]) -> u64 {
    numbers.into_iter().for_each(|n| put_varint(out, n));
    tag
}

fn engine(r: &mut Reader<'_>) -> Result<EngineId> {
    small(r).map(EngineId)
}

fn engine_name(r: &mut Reader<'_>) -> Result<String> {
    let len = r.length(ENGINE_NAME_LEN_MAX)?;
    let name = std::str::from_utf8(r.take(len)?);
    Ok(name
        .map_err(|e| Error::corruption("the name of an engine in the manifest is not UTF-8").caused_by(e))?
        .to_owned())
}

/// An edit as stored in a manifest: the store's records, and the undecoded step of each engine.
#[derive(Debug, Default)]
pub struct Payload<'a> {
    /// The store's own records.
    pub records: Vec<Record>,
    /// The records with the key-value engine's tags, in order: one step, before its other steps.
    pub native: Cow<'a, [u8]>,
    /// The steps of engines, in order.
    pub steps: Vec<(EngineId, &'a [u8])>,
}

impl<'a> Payload<'a> {
    /// Splits an edit into its parts.
    ///
    /// # Errors
    /// `Unsupported` for fields that only a newer release can have written, `Corruption` for all
    /// other errors.
    pub fn decode(bytes: &'a [u8]) -> Result<Payload<'a>> {
        let mut payload = Payload::default();
        // Adjacent native records, as in a snapshot, are not copied.
        let mut run = 0..0;
        let mut r = Reader::new(bytes);
        while !r.is_empty() {
            let start = bytes.len() - r.rest().len();
            let (tag, body) = (r.varint()?, r.bytes()?);
            let end = bytes.len() - r.rest().len();
            if tag::NATIVE.iter().any(|own| own.contains(&tag)) {
                if run.end == start && !run.is_empty() {
                    run.end = end;
                } else {
                    payload.put_native(bytes.get(run).unwrap_or_default());
                    run = start..end;
                }
            } else if tag == tag::ENGINE_STEP {
                let mut r = Reader::new(body);
                payload.steps.push((engine(&mut r)?, r.rest()));
            } else {
                let record = Record::decode(tag, body)?;
                payload
                    .records
                    .push(record.ok_or_else(|| newer(format!("a manifest record of kind {tag}")))?);
            }
        }
        payload.put_native(bytes.get(run).unwrap_or_default());
        Ok(payload)
    }

    fn put_native(&mut self, run: &'a [u8]) {
        match self.native.is_empty() {
            true => self.native = Cow::Borrowed(run),
            false => self.native.to_mut().extend_from_slice(run),
        }
    }

    /// Returns every step, the native engine's own tags first.
    pub fn all_steps(&self) -> impl Iterator<Item = (EngineId, &[u8])> + '_ {
        let native = Some((EngineId::NATIVE, &*self.native)).filter(|(_, bytes)| !bytes.is_empty());
        native.into_iter().chain(self.steps.iter().copied())
    }
}

/// Appends a step of an engine whose records have no tags of their own.
pub(super) fn put_step(out: &mut Vec<u8>, engine: EngineId, step: &[u8]) {
    let mut body = Vec::with_capacity(step.len() + 5);
    put_varint(&mut body, u64::from(engine.0));
    body.extend_from_slice(step);
    put_varint(out, tag::ENGINE_STEP);
    put_bytes(out, &body);
}

/// Returns true if a file may have this number.
pub(super) fn is_file_number(number: u64) -> bool {
    (1..=NUMBER_MAX).contains(&number)
}

fn write_begin(f: &mut fmt::Formatter<'_>, LogBegin { first_lpn, lpn, used }: LogBegin) -> fmt::Result {
    write!(f, "at page {lpn}, {used} B in the one before, the first is {first_lpn}")
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Record::AddLogGroup { group: g } => {
                write!(f, "add log group {} file {} {} B location {}", g.ltn, g.file, g.len, g.volume)?;
                if g.lane != Lane::FIRST {
                    write!(f, " lane {}", g.lane.0)?;
                }
                g.sealed_end.map_or(Ok(()), |end| write!(f, " sealed at page {end}"))?;
                f.write_str(if g.discarded { " discarded" } else { "" })?;
                g.uid.map_or(Ok(()), |uid| write!(f, " uid {uid:?}"))?;
                g.retained_bytes.map_or(Ok(()), |bytes| write!(f, " retained with {bytes} bytes"))?;
                f.write_str(if g.shared { " shared" } else { "" })?;
                g.store.map_or(Ok(()), |store| write!(f, " written by store {store:?}"))?;
                g.begin.map_or(Ok(()), |begin| {
                    f.write_str(" begins ")?;
                    write_begin(f, begin)
                })
            }
            Record::BeginLogGroup { ltn, begin } => {
                write!(f, "log group {ltn} begins ")?;
                write_begin(f, *begin)
            }
            Record::RetainLogGroup { ltn, bytes } => write!(f, "retain log group {ltn} with {bytes} bytes"),
            Record::ShareLogGroup { ltn } => write!(f, "share log group {ltn}"),
            Record::SealLogGroup { ltn, end_lpn } => write!(f, "seal log group {ltn} at page {end_lpn}"),
            Record::DiscardLogGroup { ltn } => write!(f, "discard log group {ltn}"),
            Record::RemoveLogGroup { ltn } => write!(f, "remove log group {ltn}"),
            Record::NextFileNumber(n) => write!(f, "next file number {n}"),
            Record::LastSeq(n) => write!(f, "last seq {n}"),
            Record::NextLtn(n) => write!(f, "next log group {n}"),
            Record::AddEngine { engine, name, format } => {
                write!(f, "engine {engine} \"{}\" format {format}", name.escape_debug())
            }
            Record::EngineFloor { engine, seq } => write!(f, "log floor engine {engine} seq {seq}"),
            Record::AddEngineFile { engine, file } => {
                write!(
                    f,
                    "add engine {engine} file {} kind {} location {}",
                    file.number, file.kind, file.volume
                )
            }
            Record::RemoveEngineFile { engine, number } => write!(f, "remove engine {engine} file {number}"),
            Record::RemoveEngine { engine, below_ltn } => {
                write!(f, "remove engine {engine}, which has nothing in log group {below_ltn} and above")
            }
            Record::EngineMissed { engine, missed: true } => {
                write!(f, "engine {engine} missed the end of the log")
            }
            Record::EngineMissed { engine, missed: false } => {
                write!(f, "engine {engine} saw the end of the log")
            }
            Record::SpaceCeiling { bytes: 0 } => f.write_str("files may occupy what there is"),
            Record::SpaceCeiling { bytes } => write!(f, "files may occupy {bytes} B"),
            Record::FastTier { disk: None } => f.write_str("the log is in the store's directory"),
            Record::FastTier { disk: Some(FastTier { disk, epoch, session, place }) } => {
                let place = place.escape_debug();
                write!(f, "the log is on disk {disk:?} session {epoch} {session:?} at \"{place}\"")
            }
        }
    }
}
