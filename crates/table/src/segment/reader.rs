//! Reads ranges of a value segment, in constant memory, and verifies every byte.

use super::footer::{FOOTER_LEN, SegmentFooter};
use super::header::{self, SegmentIdentity};
use super::{RUN_CHUNKS, SUM_LEN, WINDOW_CHUNKS};
use crate::verify::{CheckStep, FoundDamage, STEP_LEN};
use base::{Error, ErrorKind, Result, Uid, checksum};
use io::{FileRead, ReadFile};
use std::ops::Range;
use std::sync::Arc;

/// Consecutive chunks.
struct Chunks {
    first: u64,
    count: u64,
    /// Range of the value in the chunks.
    covers: Range<u64>,
}

/// An open segment.
#[derive(Debug)]
pub struct SegmentReader {
    file: Arc<dyn ReadFile>,
    footer: SegmentFooter,
    identity: SegmentIdentity,
    user_key: Vec<u8>,
}

fn too_short(len: u64) -> Error {
    let why =
        format!("the file has {len} bytes, fewer than the footer of a value segment ({FOOTER_LEN} bytes)");
    Error::corruption(why)
}

impl SegmentReader {
    /// Opens the segment with this file number and uid: reads and checks footer and header.
    ///
    /// # Errors
    /// `Corruption` naming file and offset, if it is damaged, cut, or another file; `Unsupported`
    /// if a newer release wrote it; those of reading.
    pub fn open(file: Arc<dyn ReadFile>, number: u64, uid: Uid) -> Result<SegmentReader> {
        let blame = |e: Error, offset: u64| e.at_offset(offset).at_file(file.path());
        let len = file.len()?;
        let Some(at) = len.checked_sub(FOOTER_LEN as u64) else {
            return Err(blame(too_short(len), 0));
        };
        let mut bytes = [0; FOOTER_LEN];
        file.read_at(&mut bytes, at).map_err(|e| blame(e, at))?;
        let footer = SegmentFooter::decode(&bytes, uid, len).map_err(|e| blame(e, at))?;
        let mut bytes = vec![0; footer.header_len as usize];
        file.read_at(&mut bytes, 0).map_err(|e| blame(e, 0))?;
        let (identity, user_key) = header::decode(&bytes, uid).map_err(|e| blame(e, 0))?;
        if identity.number != number {
            let why = format!(
                "this is value segment {}, but the file has the name of {number}: files were swapped",
                identity.number
            );
            return Err(blame(Error::corruption(why), 0));
        }
        Ok(SegmentReader { file, footer, identity, user_key })
    }

    /// Opens a segment with the file number in its own header: for repair without a manifest.
    ///
    /// # Errors
    /// As [`SegmentReader::open`].
    pub fn open_as_it_is(file: Arc<dyn ReadFile>, uid: Uid) -> Result<SegmentReader> {
        let number = SegmentReader::number_of(&*file, uid)?;
        SegmentReader::open(file, number, uid)
    }

    /// Returns the file number in the header of the segment with this uid.
    fn number_of(file: &dyn ReadFile, uid: Uid) -> Result<u64> {
        let len = file.len()?;
        let at = len.checked_sub(FOOTER_LEN as u64);
        let at = at.ok_or_else(|| too_short(len).at_file(file.path()))?;
        let mut bytes = [0; FOOTER_LEN];
        file.read_at(&mut bytes, at)?;
        let footer = SegmentFooter::decode(&bytes, uid, len).map_err(|e| e.at_file(file.path()))?;
        let mut bytes = vec![0; footer.header_len as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(header::decode(&bytes, uid).map_err(|e| e.at_file(file.path()))?.0.number)
    }

    /// Returns the origin of the segment.
    pub fn identity(&self) -> &SegmentIdentity {
        &self.identity
    }

    /// Returns the key of the value.
    pub fn user_key(&self) -> &[u8] {
        &self.user_key
    }

    /// Returns the length of the value, in bytes.
    pub fn raw_len(&self) -> u64 {
        self.footer.raw_len
    }

    /// Returns the length of the file, in bytes.
    pub fn file_len(&self) -> u64 {
        self.footer.file_len
    }

    /// Returns the checksum of the value, as references carry it.
    pub fn checksum(&self) -> u32 {
        self.footer.checksum
    }

    /// Returns the number of bytes of the value in a chunk.
    pub fn chunk_len(&self) -> usize {
        self.footer.chunk_len as usize
    }

    /// Fills `buf` with the bytes of the value from `offset` on. Reads and verifies only the chunks
    /// that the range overlaps.
    ///
    /// # Errors
    /// `InvalidArgument` if the range is not inside the value; `Corruption` naming file and offset;
    /// those of reading.
    pub fn read_range(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|&end| end <= self.footer.raw_len);
        let Some(end) = end else {
            return Err(Error::invalid(format!(
                "{} bytes from offset {offset} of the value exceed its {} bytes: read less",
                buf.len(),
                self.footer.raw_len
            ))
            .at_file(self.file.path()));
        };
        let (mut at, mut rest, mut raw) = (offset, buf, Vec::new());
        while !rest.is_empty() {
            let window = self.chunks_of(at, end, WINDOW_CHUNKS);
            self.read_chunks(&window, &mut raw)?;
            let mut skip = (at - window.covers.start) as usize;
            for chunk in raw.chunks(self.stride()) {
                let payload = &chunk[skip..chunk.len() - SUM_LEN];
                let n = rest.len().min(payload.len());
                let (now, later) = rest.split_at_mut(n);
                now.copy_from_slice(&payload[..n]);
                (at, rest, skip) = (at + n as u64, later, 0);
            }
        }
        Ok(())
    }

    /// Fills `out` from the chunk that contains `offset` and the chunks after it that begin before
    /// `end`, at most [`RUN_CHUNKS`]. Returns the range of the value in `out`. For readers that go
    /// through a value from front to back with one buffer. Both offsets must lie in the value
    /// (`end` may be its length).
    ///
    /// # Errors
    /// `Corruption` naming file and offset; the errors of reading. `out` is then empty.
    ///
    /// # Panics
    /// If `offset` is not below `end`, or `end` not in the value.
    pub fn read_run(&self, offset: u64, end: u64, out: &mut Vec<u8>) -> Result<Range<u64>> {
        self.read_payloads(&self.chunks_of(offset, end, RUN_CHUNKS), out)
    }

    /// As [`SegmentReader::read_run`], for readers that continue after the range: reads at most
    /// [`WINDOW_CHUNKS`] chunks in parallel.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn read_window(&self, offset: u64, end: u64, out: &mut Vec<u8>) -> Result<Range<u64>> {
        self.read_payloads(&self.chunks_of(offset, end, WINDOW_CHUNKS), out)
    }

    /// Returns the chunks of `offset..end`, at most `most` of them.
    fn chunks_of(&self, offset: u64, end: u64, most: usize) -> Chunks {
        assert!(offset < end && end <= self.footer.raw_len, "{offset}..{end} of {}", self.footer.raw_len);
        let chunk_len = u64::from(self.footer.chunk_len);
        let first = offset / chunk_len;
        let count = end.div_ceil(chunk_len).min(first + most as u64) - first;
        let start = first * chunk_len;
        Chunks { first, count, covers: start..self.footer.raw_len.min(start + count * chunk_len) }
    }

    /// Returns the distance between chunks in the file, in bytes.
    fn stride(&self) -> usize {
        self.footer.chunk_len as usize + SUM_LEN
    }

    /// Reads chunks with their checksums in parallel, and verifies each.
    fn read_chunks(&self, chunks: &Chunks, raw: &mut Vec<u8>) -> Result<()> {
        let (place, stride) = (self.place_of(chunks.first), self.stride());
        let len = (chunks.covers.end - chunks.covers.start) + chunks.count * SUM_LEN as u64;
        // Existing bytes are not cleared: the reads overwrite all of them.
        raw.resize(len as usize, 0);
        let read_of = |(n, buf)| FileRead { file: &self.file, offset: place + (n * stride) as u64, buf };
        let mut reads: Vec<FileRead<'_>> = raw.chunks_mut(stride).enumerate().map(read_of).collect();
        io::read_files(&mut reads).map_err(|e| e.at_offset(place).at_file(self.file.path()))?;
        let mut found = raw.chunks(stride).enumerate();
        found.try_for_each(|(n, chunk)| self.check_chunk(chunk, place + (n * stride) as u64).map(drop))
    }

    /// Reads and verifies chunks, and removes the checksums. After an error `run` is empty.
    fn read_payloads(&self, chunks: &Chunks, run: &mut Vec<u8>) -> Result<Range<u64>> {
        self.read_chunks(chunks, run).inspect_err(|_| run.clear())?;
        let (stride, len) = (self.stride(), run.len());
        let (mut from, mut to) = (0, 0);
        while from < len {
            let end = len.min(from + stride);
            let sum_at = end - SUM_LEN;
            run.copy_within(from..sum_at, to);
            to += sum_at - from;
            from = end;
        }
        run.truncate(to);
        Ok(chunks.covers.clone())
    }

    /// Verifies a chunk with its checksum; returns the unmasked checksum. Lengths of chunks do not
    /// come from the chunks themselves, but from the value length in the footer, plus [`SUM_LEN`].
    fn check_chunk(&self, chunk: &[u8], place: u64) -> Result<u32> {
        let uid = self.footer.uid;
        let (payload, sum) = chunk
            .split_last_chunk::<SUM_LEN>()
            .unwrap_or_else(|| unreachable!("a reader asks for {} bytes of a chunk", chunk.len()));
        let sum = u32::from_le_bytes(*sum);
        checksum::verify(payload, uid, place, sum)
            .map_err(|e| e.at_offset(place).at_file(self.file.path()))?;
        Ok(sum ^ checksum::mask(uid, place))
    }

    /// Returns the offset of chunk `index` in the file.
    fn place_of(&self, index: u64) -> u64 {
        u64::from(self.footer.header_len) + index * (u64::from(self.footer.chunk_len) + SUM_LEN as u64)
    }

    /// Announces to the system that the value will be read from `offset` on.
    pub fn will_need(&self, offset: u64, len: u64) {
        let index = offset / u64::from(self.footer.chunk_len);
        self.file.will_need(self.place_of(index), len);
    }

    /// Returns the whole value.
    ///
    /// # Errors
    /// `TooLarge` if it has more than `limit` bytes and must be read in ranges; the errors of
    /// [`SegmentReader::read_range`].
    pub fn read_all(&self, limit: u64) -> Result<Arc<[u8]>> {
        if self.footer.raw_len > limit {
            let why = format!(
                "a value of {} bytes is over the limit of {limit} bytes for a read at once: read it as a \
                 stream",
                self.footer.raw_len
            );
            return Err(Error::new(ErrorKind::TooLarge, why).at_file(self.file.path()));
        }
        let mut value: Arc<[u8]> = std::iter::repeat_n(0, self.footer.raw_len as usize).collect();
        let bytes = Arc::get_mut(&mut value).unwrap_or_else(|| unreachable!("nobody else has it"));
        self.read_range(0, bytes)?;
        Ok(value)
    }

    /// Reads and verifies every byte of the file. Returns their number.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading.
    pub fn verify(self: &Arc<Self>) -> Result<u64> {
        let (mut check, mut damage) = (SegmentCheck::new(self.clone())?, Vec::new());
        while damage.is_empty() && !check.step(&mut damage).done {}
        if let Some(e) = damage.into_iter().next() {
            return Err(e);
        }
        Ok(self.footer.file_len)
    }
}

/// A segment verification that runs in steps.
pub struct SegmentCheck {
    segment: Arc<SegmentReader>,
    /// Checksum of the value in the footer, read again.
    stated: u32,
    chunk: Vec<u8>,
    sums: Vec<u8>,
    next: u64,
    met: FoundDamage,
}

impl SegmentCheck {
    /// Starts a verification of the whole file.
    ///
    /// # Errors
    /// The errors of [`SegmentReader::verify`].
    pub fn new(segment: Arc<SegmentReader>) -> Result<SegmentCheck> {
        let SegmentReader { file, identity, footer, .. } = &*segment;
        let stated = SegmentReader::open(file.clone(), identity.number, footer.uid)?.footer.checksum;
        Ok(SegmentCheck {
            segment,
            stated,
            chunk: Vec::new(),
            sums: Vec::new(),
            next: 0,
            met: FoundDamage::default(),
        })
    }

    /// The segment.
    pub fn segment(&self) -> &Arc<SegmentReader> {
        &self.segment
    }

    /// Returns true if the verification has found damage.
    pub fn is_damaged(&self) -> bool {
        self.met.any
    }

    /// Continues for about half a megabyte, and adds the damage that it finds. Must not be called
    /// once it is done.
    pub fn step(&mut self, damage: &mut Vec<Error>) -> CheckStep {
        let SegmentReader { file, footer, .. } = &*self.segment;
        let chunk_len = u64::from(footer.chunk_len);
        let (mut bytes, mut parts, mut walked) = (0, 0, 0);
        while self.next < u64::from(footer.chunks) && !self.met.ended {
            let place = self.segment.place_of(self.next);
            let len = chunk_len.min(footer.raw_len - self.next * chunk_len) as usize + SUM_LEN;
            self.chunk.resize(len, 0);
            let read = file.read_at(&mut self.chunk, place);
            let read = read.map_err(|e| e.at_offset(place).at_file(file.path()));
            let sum = self.met.sound(read.and_then(|()| self.segment.check_chunk(&self.chunk, place)));
            (self.next, walked) = (self.next + 1, walked + len as u64);
            if let Some(sum) = sum {
                base::codec::put_u32(&mut self.sums, sum);
                (bytes, parts) = (bytes + len as u64, parts + 1);
            }
            if walked >= STEP_LEN {
                break;
            }
        }
        let at_end = self.next == u64::from(footer.chunks);
        if at_end && !self.met.any && checksum::checksum(&self.sums) != self.stated {
            let why = "the checksums of the chunks do not match the footer of the value segment: parts of \
                       two files were mixed";
            let e = Error::corruption(why).at_offset(u64::from(footer.header_len)).at_file(file.path());
            self.met.sound::<()>(Err(e));
        }
        damage.append(&mut self.met.damage);
        CheckStep { bytes, parts, done: at_end || self.met.ended }
    }
}
