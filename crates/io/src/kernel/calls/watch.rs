//! Test form of the table: calls fail as planned, and are logged.
//!
//! A [`Watch`] sees all calls of the process about paths below one directory, from its creation to
//! its drop. Several may be active, on different directories. (Calls about the calling thread are
//! below [`super::THREADS`].) A watch numbers the calls, makes some of them fail ([`Fault`]), and
//! logs an [`Event`] for each. No watch sees calls without a path (the set-up of a ring).
//!
//! A file is identified by device and inode, so two descriptors of one file, or a renamed file,
//! count as one. This needs a lookup in `/proc` for each call; without a watch a call costs one
//! more load.

use super::{Bytes, Call, Of};
use base::sync::leaf::{Mutex, lock};
use base::sync::rank;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::{Errno, Result};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Half of a transfer; whole pages if the transfer consists of pages.
    Short,
    /// The call fails with this error, and has no effect.
    Fails(Errno),
}

impl Form {
    /// All forms.
    pub const ALL: [Form; 8] = [
        Form::Short,
        Form::Fails(Errno::INTR),
        Form::Fails(Errno::AGAIN),
        Form::Fails(Errno::IO),
        Form::Fails(Errno::NOSPC),
        Form::Fails(Errno::DQUOT),
        Form::Fails(Errno::MFILE),
        Form::Fails(Errno::NFILE),
    ];

    /// Failure of the device.
    pub const FAILURE: Form = Form::Fails(Errno::IO);

    /// Returns true if the code above the table must hide the failure.
    pub fn is_transient(self) -> bool {
        matches!(self, Form::Short | Form::Fails(Errno::INTR | Errno::AGAIN))
    }

    /// Returns true if the kernel may return this result for such a call.
    fn fits(self, call: Call, len: usize) -> bool {
        use Call::*;
        let transfer = matches!(call, Read | Write | DurableWrite | RingRead | RingWrite);
        match self {
            Form::Short => transfer && shortened(len) < len,
            Form::Fails(Errno::AGAIN) => transfer || call == RingSubmit,
            Form::Fails(Errno::NOSPC | Errno::DQUOT) => {
                matches!(call, Open | Write | DurableWrite | RingWrite | Allocate | Rename | Link | MakeDir)
            }
            Form::Fails(Errno::MFILE | Errno::NFILE) => matches!(call, Open | RingSetup),
            // Calls that a signal may interrupt.
            Form::Fails(Errno::INTR) => {
                let waits =
                    matches!(call, Open | DataSync | FullSync | SetLen | Allocate | Punch | Lock | Space);
                transfer || waits || matches!(call, RingSubmit | CpuPriority | IoPriority)
            }
            Form::Fails(_) => !matches!(call, Flags | RingSubmit | RingSetup),
        }
    }
}

/// Shortens to whole pages or blocks: other lengths could not be resumed with direct access.
fn shortened(len: usize) -> usize {
    match [crate::PAGE, crate::BLOCK_LEN_MIN].into_iter().find(|unit| len.is_multiple_of(*unit)) {
        Some(unit) if len < 2 * unit => len,
        Some(unit) => len / unit / 2 * unit,
        None => len.div_ceil(2),
    }
}

/// Planned failure of calls.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Number of the call, from 0, among those that the form fits.
    pub nth: u64,
    /// The failure.
    pub form: Form,
    /// All later calls fail as well.
    pub sticky: bool,
    /// Only calls of this kind count.
    pub only: Option<Call>,
}

/// Device and inode.
pub type FileId = (u64, u64);

/// A logged call.
#[derive(Clone, Debug)]
pub struct Event {
    /// Kind of the call.
    pub call: Call,
    /// The file: for an open, the opened file; for a rename or a link, the file with the new name.
    pub file: Option<FileId>,
    /// Its path, or the old one.
    pub path: PathBuf,
    /// The new path of a rename or a link.
    pub to: PathBuf,
    /// Offset of a transfer; the new length; for an open 1 if it truncates the file.
    pub offset: u64,
    /// The data to write, including bytes that the kernel did not take.
    pub data: Vec<u8>,
    /// Begin and end, in numbers that increase.
    pub span: (u64, u64),
    /// Bytes of a transfer, else 0; or the error.
    pub result: std::result::Result<usize, Errno>,
}

struct WatchState {
    root: PathBuf,
    fault: Option<Fault>,
    /// Calls that the form fits.
    seen: u64,
    fired: u64,
    events: Option<Vec<Event>>,
    clock: u64,
}

/// Watches the calls below a directory until it is dropped.
pub struct Watch(SharedWatch);

type SharedWatch = Arc<Mutex<WatchState, rank::KernelWatch>>;

static WATCHES: Mutex<Vec<SharedWatch>, rank::KernelWatches> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Watch {
    /// Begins to watch the calls below `root`, which is an absolute path without symbolic links.
    /// `log`: logs them.
    pub fn new(root: &Path, fault: Option<Fault>, log: bool) -> Watch {
        let events = log.then(Vec::new);
        let state = WatchState { root: root.to_owned(), fault, seen: 0, fired: 0, events, clock: 0 };
        let state = Arc::new(Mutex::new(state));
        lock(&WATCHES).push(state.clone());
        COUNT.fetch_add(1, Ordering::SeqCst);
        Watch(state)
    }

    /// Returns the calls so far that the fault's form fits; without a fault all.
    pub fn calls(&self) -> u64 {
        lock(&self.0).seen
    }

    /// Returns how many of them failed.
    pub fn fired(&self) -> u64 {
        lock(&self.0).fired
    }

    /// Ends the fault.
    pub fn clear_fault(&self) {
        lock(&self.0).fault = None;
    }

    /// Returns the calls logged since the last time.
    pub fn take_events(&self) -> Vec<Event> {
        lock(&self.0).events.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&WATCHES).retain(|state| !Arc::ptr_eq(state, &self.0));
        COUNT.fetch_sub(1, Ordering::SeqCst);
    }
}

fn path_of(fd: BorrowedFd<'_>) -> PathBuf {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let target = rustix::fs::readlink(link, Vec::new()).map(|name| name.into_bytes()).unwrap_or_default();
    let target = target.strip_suffix(b" (deleted)").map(<[u8]>::to_vec).unwrap_or(target);
    PathBuf::from(std::ffi::OsString::from_vec(target))
}

#[allow(clippy::unnecessary_cast, reason = "the width of these fields depends on the architecture")]
fn id_of(stat: rustix::fs::Stat) -> FileId {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// Returns the watch of a call, and the paths of the call.
fn find(of: Of<'_>) -> Option<(SharedWatch, PathBuf, PathBuf)> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let (path, to) = match of {
        Of::Fd(fd) => (path_of(fd), PathBuf::new()),
        Of::Path(path) => (path.to_owned(), PathBuf::new()),
        Of::Paths(from, to) => (from.to_owned(), to.to_owned()),
        Of::Nothing => return None,
    };
    let watches = lock(&WATCHES);
    let found = watches.iter().find(|state| path.starts_with(&lock(state).root));
    found.cloned().map(|state| (state, path, to))
}

impl WatchState {
    /// Counts a call. Returns its failure, if any, and its start.
    fn begin(&mut self, call: Call, len: usize) -> (Option<Form>, u64) {
        self.clock += 1;
        let fits =
            self.fault.is_none_or(|f| f.form.fits(call, len) && f.only.is_none_or(|only| only == call));
        if !fits {
            return (None, self.clock);
        }
        self.seen += 1;
        let nth = self.seen - 1;
        let struck = self.fault.filter(|f| nth == f.nth || (f.sticky && nth > f.nth));
        self.fired += u64::from(struck.is_some());
        (struck.map(|f| f.form), self.clock)
    }

    fn end(&mut self, event: impl FnOnce(u64) -> Event) {
        self.clock += 1;
        let now = self.clock;
        if let Some(events) = &mut self.events {
            events.push(event(now));
        }
    }
}

pub(super) fn judged<T>(call: Call, of: Of<'_>, number: u64, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some((state, path, to)) = find(of) else { return run() };
    let (form, begun) = lock(&state).begin(call, 0);
    let file = match of {
        Of::Fd(fd) => rustix::fs::fstat(fd).ok().map(id_of),
        // Before the call, since the name may be gone afterwards.
        _ => rustix::fs::lstat(&path).ok().map(id_of),
    };
    let result = match form {
        Some(Form::Fails(errno)) => Err(errno),
        _ => run(),
    };
    let told = result.as_ref().map(|_| 0).map_err(|e| *e);
    lock(&state).end(|now| Event {
        call,
        file,
        path,
        to,
        offset: number,
        data: Vec::new(),
        span: (begun, now),
        result: told,
    });
    result
}

pub(super) fn judged_open(
    path: &Path,
    flags: OFlags,
    run: impl FnOnce() -> Result<OwnedFd>,
) -> Result<OwnedFd> {
    let Some((state, path, to)) = find(Of::Path(path)) else { return run() };
    let (form, begun) = lock(&state).begin(Call::Open, 0);
    let result = match form {
        Some(Form::Fails(errno)) => Err(errno),
        _ => run(),
    };
    let file = result.as_ref().ok().and_then(|fd| rustix::fs::fstat(fd).ok()).map(id_of);
    let told = result.as_ref().map(|_| 0).map_err(|e| *e);
    let cuts = u64::from(flags.contains(OFlags::TRUNC));
    lock(&state).end(|now| Event {
        call: Call::Open,
        file,
        path,
        to,
        offset: cuts,
        data: Vec::new(),
        span: (begun, now),
        result: told,
    });
    result
}

pub(super) fn transferred(
    call: Call,
    fd: BorrowedFd<'_>,
    offset: u64,
    bytes: Bytes<'_>,
    run: impl FnOnce(usize) -> Result<usize>,
) -> Result<usize> {
    let Some((state, path, to)) = find(Of::Fd(fd)) else { return run(bytes.len) };
    let (form, begun) = lock(&state).begin(call, bytes.len);
    let result = match form {
        Some(Form::Fails(errno)) => Err(errno),
        Some(Form::Short) => run(shortened(bytes.len)),
        None => run(bytes.len),
    };
    let file = rustix::fs::fstat(fd).ok().map(id_of);
    let data = bytes.data.to_vec();
    lock(&state).end(|now| Event { call, file, path, to, offset, data, span: (begun, now), result });
    result
}
