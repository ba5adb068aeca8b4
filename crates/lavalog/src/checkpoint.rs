//! Checkpoint files: the state of all logs without the record index.
//!
//! A checkpoint has the names, trim points, truncations and metadata of all logs, and the sequence
//! number from which replay continues. The engine writes it before log groups leave the replayed
//! chain. The same edit names it and drops the previous one. A checkpoint is *fuzzy*: the start of
//! replay is fixed first, then logs are copied one by one while operations continue. Replaying an
//! operation that a log already reflects has no effect ([`SavedLog`] has the sequence numbers that
//! detect it).
//!
//! ```text
//! frames of logs | directory | footer
//! directory: file number, first sequence to replay, next sequence, next log id, number of frames (varints);
//!            for each frame: logs varint, length varint, checksum included
//! log: id varint, less one more than the id before in the frame (the first as it is)
//!      flags u8: 1 has a last LSN, 2 has metadata
//!      sequence of its creation varint | name bytes | trimmed below varint
//!      last LSN varint, if flagged | sequence of its metadata varint, metadata bytes, if flagged
//!      truncations varint; each: sequence varint, less that of the one before (the first as it is), LSN varint
//! ```
//!
//! Frames are cut at about 32 KiB. Ids ascend through the whole file.

use crate::disk::footer::FileKind;
use crate::disk::input::Input;
use crate::disk::output::Output;
use crate::entry::{LogId, Lsn};
use crate::limits::{LOGS_MAX, LSN_MAX, METADATA_LEN_MAX, NAME_LEN_MAX};
use base::codec::{Reader, put_bytes, put_varint};
use base::{Error, ErrorKind, MAX_SEQ, Result, SeqNo, Uid};
use io::{AppendFile, ReadFile};
use std::path::Path;
use std::sync::Arc;

/// Size at which a frame is closed, bytes.
const FRAME_LEN: usize = 32 << 10;

const HAS_LAST: u8 = 1;
const HAS_METADATA: u8 = 2;

/// The state of one log in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedLog {
    /// Number of the log, never reused.
    pub id: LogId,
    /// Sequence number of the operation that created the log.
    pub created: SeqNo,
    /// Name of the log.
    pub name: String,
    /// LSN below which records are trimmed, whenever they are appended.
    pub trimmed_below: Lsn,
    /// Highest LSN with a record, counting trimmed records.
    pub last: Option<Lsn>,
    /// Current metadata, with the sequence number of the operation that set it.
    pub metadata: Option<(SeqNo, Vec<u8>)>,
    /// Truncations that may still apply to a record, in ascending order of sequence numbers. Each
    /// removes the records above its LSN with lower sequence numbers.
    pub truncations: Vec<(SeqNo, Lsn)>,
}

/// Identity of the file, and the position from which replay continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointHead {
    /// Number of the file.
    pub number: u64,
    /// Sequence number below which the checkpoint contains all operations.
    pub replay_from: SeqNo,
    /// Upper bound of the sequence numbers in the file; at the start of writing, also of all
    /// assigned ones.
    pub next_seq: SeqNo,
    /// Upper bound of the log numbers in the file; at the start of writing, also of all assigned
    /// ones.
    pub next_log: LogId,
}

/// Writes a checkpoint. If dropped unfinished, it leaves an invalid file.
pub struct CheckpointWriter {
    output: Output,
    head: CheckpointHead,
    /// The open frame: its bytes and its number of logs.
    open: Vec<u8>,
    open_logs: u64,
    /// Number of logs and bytes of each written frame.
    frames: Vec<(u64, u64)>,
    logs: u64,
    last: Option<LogId>,
}

impl CheckpointWriter {
    /// Begins a checkpoint in an empty file. `head` is the state before the first log is copied.
    /// Its upper bounds rise with logs that are created or changed later.
    pub fn new(file: Box<dyn AppendFile>, path: &Path, uid: Uid, head: CheckpointHead) -> CheckpointWriter {
        CheckpointWriter {
            output: Output::new(file, path, uid),
            head,
            open: Vec::new(),
            open_logs: 0,
            frames: Vec::new(),
            logs: 0,
            last: None,
        }
    }

    /// Adds a log, in ascending order of numbers.
    ///
    /// # Errors
    /// `InvalidArgument` if the log is out of order or has an invalid state; I/O errors.
    pub fn add(&mut self, log: &SavedLog) -> Result<()> {
        if let Some(last) = self.last.filter(|last| *last >= log.id) {
            let why = format!(
                "log {} came to a checkpoint after log {last}, out of the order of their ids (a fault of the engine: report it)",
                log.id
            );
            return Err(self.output.blame(Error::invalid(why)));
        }
        log.check().map_err(|why| self.output.blame(Error::invalid(why)))?;
        let least = match self.open_logs {
            0 => 0,
            _ => self.last.map_or(0, |last| last + 1),
        };
        put_log(&mut self.open, log, least);
        self.last = Some(log.id);
        self.head.next_log = self.head.next_log.max(log.id.saturating_add(1));
        self.head.next_seq = self.head.next_seq.max(log.newest() + 1);
        self.open_logs += 1;
        self.logs += 1;
        if self.open.len() >= FRAME_LEN { self.close_frame() } else { Ok(()) }
    }

    fn close_frame(&mut self) -> Result<()> {
        let len = self.output.frame(&[&self.open])?;
        self.frames.push((self.open_logs, len));
        self.open.clear();
        self.open_logs = 0;
        Ok(())
    }

    /// Writes the directory and footer, and syncs the file; the caller syncs the parent directory.
    /// Returns the length of the file.
    ///
    /// # Errors
    /// I/O errors; the file is then unusable.
    pub fn finish(mut self) -> Result<u64> {
        if self.open_logs > 0 {
            self.close_frame()?;
        }
        let head = self.head;
        let mut directory = Vec::new();
        for n in [head.number, head.replay_from, head.next_seq, head.next_log, self.frames.len() as u64] {
            put_varint(&mut directory, n);
        }
        for (logs, len) in &self.frames {
            put_varint(&mut directory, *logs);
            put_varint(&mut directory, *len);
        }
        self.output.finish(FileKind::Checkpoint, &directory, self.logs)
    }
}

impl SavedLog {
    /// Returns the largest sequence number of the log's state.
    fn newest(&self) -> SeqNo {
        let truncated = self.truncations.last().map_or(0, |truncation| truncation.0);
        let set = self.metadata.as_ref().map_or(0, |metadata| metadata.0);
        self.created.max(truncated).max(set)
    }

    /// Checks the state of the log. Returns the defect.
    fn check(&self) -> std::result::Result<(), String> {
        let metadata = self.metadata.as_ref();
        let wrong = if self.name.is_empty() || self.name.len() > NAME_LEN_MAX {
            "its name is empty, or longer than 1024 bytes"
        } else if metadata.is_some_and(|(_, bytes)| bytes.len() > METADATA_LEN_MAX) {
            "its metadata is longer than 4096 bytes"
        } else if self.last.is_some_and(|last| last > LSN_MAX) {
            "its last LSN is above the largest LSN"
        } else if self.id == LogId::MAX {
            "its id is above the largest id"
        } else if !self.truncations.is_sorted_by(|a, b| a.0 < b.0) {
            "its truncated LSN ranges are out of order"
        } else if self.newest() > MAX_SEQ {
            "one of its sequence numbers is over 56 bits"
        } else {
            return Ok(());
        };
        Err(format!("log {} cannot be in a checkpoint: {wrong}", self.id))
    }
}

fn put_log(out: &mut Vec<u8>, log: &SavedLog, least: LogId) {
    put_varint(out, log.id - least);
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    out.push(flag(log.last.is_some(), HAS_LAST) | flag(log.metadata.is_some(), HAS_METADATA));
    put_varint(out, log.created);
    put_bytes(out, log.name.as_bytes());
    put_varint(out, log.trimmed_below);
    log.last.iter().for_each(|last| put_varint(out, *last));
    if let Some((seq, metadata)) = &log.metadata {
        put_varint(out, *seq);
        put_bytes(out, metadata);
    }
    put_varint(out, log.truncations.len() as u64);
    let mut before = 0;
    for &(seq, above) in &log.truncations {
        put_varint(out, seq - before);
        put_varint(out, above);
        before = seq;
    }
}

fn take_log(reader: &mut Reader<'_>, least: Option<LogId>) -> Result<SavedLog> {
    let too_high =
        || Error::corruption("the id or a sequence number of a log in the checkpoint is over 64 bits");
    let id = reader.varint()?;
    let id = least.and_then(|least| least.checked_add(id)).ok_or_else(too_high)?;
    let flags = reader.u8()?;
    if flags & !(HAS_LAST | HAS_METADATA) != 0 {
        let why = format!("log {id} has the unknown flags {flags:#x} in a checkpoint: use a newer release");
        return Err(Error::new(ErrorKind::Unsupported, why));
    }
    let created = reader.varint()?;
    let name = std::str::from_utf8(reader.bytes()?)
        .map_err(|e| {
            Error::corruption(format!("the name of log {id} in the checkpoint is not UTF-8")).caused_by(e)
        })?
        .to_owned();
    let trimmed_below = reader.varint()?;
    let last = if flags & HAS_LAST != 0 { Some(reader.varint()?) } else { None };
    let metadata =
        if flags & HAS_METADATA != 0 { Some((reader.varint()?, reader.bytes()?.to_vec())) } else { None };
    let (mut truncations, mut before) = (Vec::new(), 0u64);
    for _ in 0..reader.varint()? {
        before = before.checked_add(reader.varint()?).ok_or_else(too_high)?;
        truncations.push((before, reader.varint()?));
    }
    let log = SavedLog { id, created, name, trimmed_below, last, metadata, truncations };
    log.check().map_err(Error::corruption)?;
    Ok(log)
}

/// An open checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    input: Input,
    head: CheckpointHead,
    frames: Vec<Frame>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    offset: u64,
    len: u64,
    logs: u64,
}

impl Checkpoint {
    /// Opens the file with the given number and uid.
    ///
    /// # Errors
    /// `Corruption` or `Unsupported`, with file and offset; I/O errors.
    pub fn open(file: Arc<dyn ReadFile>, number: u64, uid: Uid) -> Result<Checkpoint> {
        let input = Input::open(file, FileKind::Checkpoint, uid)?;
        let at = input.footer().directory_offset;
        let bytes = input.directory()?;
        let (head, frames) =
            decode_directory(&bytes, at, input.footer().rows).map_err(|e| input.blame(e, at))?;
        if head.number != number {
            let why =
                format!("this is log checkpoint {}, expected was {number}: files were swapped", head.number);
            return Err(input.blame(Error::corruption(why), at));
        }
        Ok(Checkpoint { input, head, frames })
    }

    /// Returns the identity of the file and the start of replay.
    pub fn head(&self) -> &CheckpointHead {
        &self.head
    }

    /// Returns the number of logs in the file.
    pub fn logs(&self) -> u64 {
        self.input.footer().rows
    }

    /// Returns the length of the file, bytes.
    pub fn file_len(&self) -> u64 {
        self.input.footer().file_len
    }

    /// Calls `take` for each log, in ascending order of numbers.
    ///
    /// # Errors
    /// `Corruption` or `Unsupported`, with file and offset; I/O errors; errors of `take`.
    pub fn each(&self, take: &mut dyn FnMut(SavedLog) -> Result<()>) -> Result<()> {
        let mut last = None;
        for frame in &self.frames {
            let payload = self.input.frame(frame.offset, frame.len, 0)?;
            let logs = decode_frame(&payload, frame.logs, last, &self.head);
            for log in logs.map_err(|e| self.input.blame(e, frame.offset))? {
                last = Some(log.id);
                take(log)?;
            }
        }
        Ok(())
    }

    /// Reads and checks the whole file. Returns its length.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::each`].
    pub fn verify(&self) -> Result<u64> {
        self.each(&mut |_| Ok(()))?;
        Ok(self.file_len())
    }
}

/// Decodes the directory. `end` is the end of the frames, and `logs` the total number of logs.
fn decode_directory(bytes: &[u8], end: u64, logs: u64) -> Result<(CheckpointHead, Vec<Frame>)> {
    let mut reader = Reader::new(bytes);
    let head = CheckpointHead {
        number: reader.varint()?,
        replay_from: reader.varint()?,
        next_seq: reader.varint()?,
        next_log: reader.varint()?,
    };
    let bad = |why: &str| Error::corruption(format!("the directory of a log checkpoint {why}"));
    if head.replay_from > head.next_seq || head.next_seq > MAX_SEQ + 1 {
        return Err(bad("has sequence numbers over 56 bits, or out of order"));
    }
    let (mut frames, mut offset, mut sum) = (Vec::new(), 0u64, 0u64);
    for _ in 0..reader.varint()? {
        let frame = Frame { offset, logs: reader.varint()?, len: reader.varint()? };
        offset = offset.checked_add(frame.len).ok_or_else(|| bad("points to a frame outside its file"))?;
        sum = sum.checked_add(frame.logs).ok_or_else(|| bad("has a count of logs over 64 bits"))?;
        frames.push(frame);
    }
    if sum > LOGS_MAX as u64 {
        return Err(bad(&format!("has {sum} logs, over the limit of {LOGS_MAX} of this release")));
    }
    match offset == end && sum == logs && reader.is_empty() {
        true => Ok((head, frames)),
        false => Err(bad(&format!(
            "does not fit the file: its frames end at byte {offset} of {end}, with {sum} of {logs} logs"
        ))),
    }
}

/// Decodes a frame. Its logs must have numbers above `last` and below the bounds of `head`.
fn decode_frame(
    payload: &[u8],
    count: u64,
    last: Option<LogId>,
    head: &CheckpointHead,
) -> Result<Vec<SavedLog>> {
    let mut reader = Reader::new(payload);
    let (mut logs, mut least) = (Vec::new(), Some(0u64));
    for _ in 0..count {
        let log = take_log(&mut reader, least)?;
        least = log.id.checked_add(1);
        logs.push(log);
    }
    let first = logs.first().map(|log: &SavedLog| log.id);
    let follows = last.is_none_or(|last| first.is_some_and(|first| last < first));
    let is_below = logs.iter().all(|log| log.id < head.next_log && log.newest() < head.next_seq);
    match reader.is_empty() && !logs.is_empty() && follows && is_below {
        true => Ok(logs),
        false => Err(Error::corruption(
            "the logs in this part (frame) of the checkpoint are out of order, incomplete or newer than the checkpoint",
        )),
    }
}

#[cfg(test)]
mod tests;
