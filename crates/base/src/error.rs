//! The one error type of the engine.
//!
//! An [`Error`] has a small [`ErrorKind`] to match on (never match on message text) and a message
//! with the failure. It names the file and offset if there are any, its cause, and the remedy
//! ([`Error::remedy`]). It is cheap to clone, because a failed background job reports the same error
//! to every later caller.

pub mod made;
mod remedy;

pub use remedy::REMEDY_OF_A_LOST_END;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result type of every fallible call of the store; match on [`Error::kind`] of its error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Class of failure of an [`Error`]: match on it to decide the next step of the program.
///
/// Each variant states its cause, the effect of the failed call, and the remedy. Later releases may
/// add kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Stored bytes are damaged: a checksum, a structure or a cross-reference is wrong, or a file
    /// is missing. All undamaged data stays readable. Restore a checkpoint, or repair the store,
    /// and examine the device.
    Corruption,
    /// The operating system refused an operation: the device failed, or a permission or descriptor
    /// is missing. Repeat a read at once. After a failed write close and reopen the store: the next
    /// open decides whether the write exists, whole or not at all.
    Io,
    /// The volume, or the space limit of the store, is full. The call had no effect; reads and
    /// deletes still work. Delete data, drop old snapshots and iterators, or raise the limit:
    /// writes then resume by themselves.
    NoSpace,
    /// An option, key, value or range that the store does not accept; the message names it and its
    /// range. The call had no effect. Fix the call.
    InvalidArgument,
    /// A key, value, record, name or batch is beyond the size limits. The call had no effect. Split
    /// the data.
    TooLarge,
    /// A file, store, column family or log does not exist, or was dropped. (An absent key is no
    /// error.) Check the name, or create it.
    NotFound,
    /// A store, column family, log or record of this name exists already. Open it, or choose
    /// another name.
    AlreadyExists,
    /// The record of a log is below the point up to which the log was trimmed; a trim is for good.
    /// Continue at the first record of the log.
    Trimmed,
    /// Another process or handle holds the store, or a part that needs exclusive access; the
    /// message names it. Close that one, share its handle, or open the store for reading.
    Locked,
    /// A newer release wrote the store, or this build or combination of options cannot do the call.
    /// Use that release, or the way that the message names.
    Unsupported,
    /// The store was opened for reading, or its file system is mounted so. Open the store for
    /// writing.
    ReadOnly,
    /// A bounded queue, budget or wait is exhausted for now, or the writer of a store moved the
    /// data of a read-only handle. The call had no effect: repeat it later, or open the read-only
    /// store again.
    Busy,
    /// The store was closed before or during the call. A blocking write had no effect; the outcome
    /// of an asynchronous one is unknown. Open the store again, and keep it open for as long as
    /// handles are in use.
    Closed,
    /// An earlier write or sync failed at the device. A write of keys had no effect; a write of a
    /// log may exist, since the failed sync may have been its own. Every later write fails; reads
    /// go on. Close and reopen the store: each acknowledged durable write is there.
    Poisoned,
    /// A callback of the program panicked. The store continues: fix the callback.
    UserCallback,
    /// A parent process made the handle, before `fork`. Open the store in the child after the last
    /// `fork`.
    Forked,
    /// Another write changed a key that the transaction, or the call, has read. Nothing was written:
    /// begin again with the present values.
    Conflict,
    /// The caller cancelled the call, or its deadline has passed. Unfinished files are removed, and
    /// completed parts stay. Repeat the call to continue.
    Cancelled,
}

impl ErrorKind {
    const ALL: [ErrorKind; 18] = [
        ErrorKind::Corruption,
        ErrorKind::Io,
        ErrorKind::NoSpace,
        ErrorKind::InvalidArgument,
        ErrorKind::TooLarge,
        ErrorKind::NotFound,
        ErrorKind::AlreadyExists,
        ErrorKind::Trimmed,
        ErrorKind::Locked,
        ErrorKind::Unsupported,
        ErrorKind::ReadOnly,
        ErrorKind::Busy,
        ErrorKind::Closed,
        ErrorKind::Poisoned,
        ErrorKind::UserCallback,
        ErrorKind::Forked,
        ErrorKind::Conflict,
        ErrorKind::Cancelled,
    ];

    /// Returns the kind with this name ([`ErrorKind::name`]), to read a kind back from JSON or a
    /// log. `None` for another text, such as a kind of a later release.
    pub fn named(name: &str) -> Option<ErrorKind> {
        ErrorKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns a stable lower-case name, to print a kind or to store it in JSON;
    /// [`ErrorKind::named`] is the reverse.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Corruption => "corruption",
            ErrorKind::Io => "i/o error",
            ErrorKind::NoSpace => "no space",
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::TooLarge => "too large",
            ErrorKind::NotFound => "not found",
            ErrorKind::AlreadyExists => "already exists",
            ErrorKind::Trimmed => "trimmed",
            ErrorKind::Locked => "locked",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::ReadOnly => "read-only",
            ErrorKind::Busy => "busy",
            ErrorKind::Closed => "closed",
            ErrorKind::Poisoned => "poisoned",
            ErrorKind::UserCallback => "user callback",
            ErrorKind::Forked => "forked",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Cancelled => "cancelled",
        }
    }
}

/// An error of the store: a kind to match on, a message with the remedy, and the place and the
/// cause.
///
/// Match on [`Error::kind`], and never on message text. `{}` prints failure, place and cause on one
/// line, for lists of damage. `{:#}` adds the remedy, for logs and users. An error is cheap to
/// clone: a failed background job reports the same error to every later caller.
///
/// ```
/// use lavastore_base::{Error, ErrorKind};
/// let e = Error::corruption("block checksum does not match").at_file("000007.ksst").at_offset(4096);
/// assert_eq!(e.kind(), ErrorKind::Corruption);
/// assert_eq!(e.to_string(), "corruption: block checksum does not match (file 000007.ksst, offset 4096)");
/// assert!(format!("{e:#}").ends_with("; restore a checkpoint or backup, or run `lava repair`"));
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    file: Option<PathBuf>,
    offset: Option<u64>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// Remedy of this error, in place of the one of its kind.
    remedy: Option<&'static str>,
}

impl Error {
    /// Returns an error of `kind`, for code that implements an interface of the store; `message`
    /// has the failure and, if possible, the remedy. [`Error::corruption`], [`Error::invalid`] and
    /// [`Error::not_found`] are shorter for these kinds; [`Error::from_io`] takes an error of the
    /// system.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        made::note(&kind, &message);
        Error(Arc::new(Inner { kind, message, file: None, offset: None, source: None, remedy: None }))
    }

    /// Not a failure: a move of a cursor that waits for an asynchronous read, and is continued
    /// afterwards ([`crate::InternalIterator::resume`]). A caller that drives such cursors detects
    /// it with [`Error::is_waiting`]; no other caller receives it.
    pub fn waiting() -> Self {
        let (kind, message, source) =
            (ErrorKind::Busy, "waits for a read".to_owned(), Some(Arc::new(Waiting) as _));
        Error(Arc::new(Inner { kind, message, file: None, offset: None, source, remedy: None }))
    }

    /// Returns true only for [`Error::waiting`].
    pub fn is_waiting(&self) -> bool {
        self.cause().is_some_and(|cause| cause.is::<Waiting>())
    }

    /// Returns an error of kind `Corruption` for damaged stored bytes; [`Error::at_file`] and
    /// [`Error::at_offset`] add the place.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn corruption(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption, message)
    }

    /// Returns an error of kind `InvalidArgument` for an invalid argument of the caller.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// Returns an error of kind `NotFound` for something that does not exist.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Returns an operating-system error during `action`; the kind follows from the system's error
    /// code (`NotFound`, `AlreadyExists`, `NoSpace`, `ReadOnly`, else `Io`).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn from_io(action: &str, file: impl AsRef<Path>, source: std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let kind = match source.kind() {
            K::NotFound => ErrorKind::NotFound,
            K::AlreadyExists => ErrorKind::AlreadyExists,
            K::StorageFull | K::QuotaExceeded => ErrorKind::NoSpace,
            K::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            _ => ErrorKind::Io,
        };
        Self::new(kind, action).at_file(file).caused_by(source)
    }

    /// Sets the file of the error, unless an inner call has set it. [`Error::file`] returns it.
    pub fn at_file(self, file: impl AsRef<Path>) -> Self {
        self.edit(|e| {
            e.file.get_or_insert_with(|| file.as_ref().to_owned());
        })
    }

    /// Sets the offset of the error in its file, bytes, unless an inner call has set it.
    pub fn at_offset(self, offset: u64) -> Self {
        self.edit(|e| {
            e.offset.get_or_insert(offset);
        })
    }

    /// Attaches the cause of the error, in place of an earlier one. `{}` prints it behind the
    /// message.
    pub fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.edit(|e| e.source = Some(Arc::new(source)))
    }

    /// Puts `context`, the failed activity, before the message.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn context(self, context: impl fmt::Display) -> Self {
        let context = context.to_string();
        made::note(&"context", &context);
        self.edit(|e| e.message = format!("{context}: {}", e.message))
    }

    /// Returns the same error, message and place, under another kind (for example `Poisoned`,
    /// caused by the first failure).
    pub fn with_kind(self, kind: ErrorKind) -> Self {
        self.edit(|e| e.kind = kind)
    }

    /// Returns the class of the failure: match on it to decide the next step. [`ErrorKind`] has the
    /// step for each, and the effect of the failed call. Messages may change: never match on them.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message for people: the failure and the remedy, without file, offset and cause.
    /// Its text may change in any release: never match on it.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the file that the error concerns, to find damage or a wrong path; `None` if it
    /// concerns no file. [`Error::offset`] is the place in it.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// Returns the byte offset in [`Error::file`], to find damage; `None` if the error has no
    /// place, or concerns the whole file.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// Returns the cause of the error. [`fmt::Display`] includes the cause, so
    /// [`std::error::Error::source`] continues behind it: printing a chain of sources prints each
    /// once.
    pub fn cause(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.source.as_deref()
    }

    /// Returns the underlying error of the operating system, for its error code; `None` if the
    /// failure has another cause. Match on [`Error::kind`] first, which is the same on every
    /// system.
    pub fn io_error(&self) -> Option<&std::io::Error> {
        let cause = self.cause()?;
        cause.downcast_ref().or_else(|| cause.downcast_ref::<Error>()?.io_error())
    }

    /// Returns true if stored bytes are damaged, to separate damage from failures that a retry may
    /// end: restore a checkpoint, or repair the store.
    pub fn is_corruption(&self) -> bool {
        self.kind() == ErrorKind::Corruption
    }

    /// Returns true for transient refusals of the system, which may be gone at a retry: no free
    /// descriptor or memory, an interruption. False for a failed device and a full volume.
    pub fn is_passing(&self) -> bool {
        use std::io::ErrorKind as K;
        let is_of = |e: &std::io::Error| matches!(e.kind(), K::Interrupted | K::WouldBlock | K::OutOfMemory);
        self.lacks_descriptor() || system_error(self).is_some_and(is_of)
    }

    /// Returns true if the process, or the machine, has no free descriptor: raise `ulimit -n`, or
    /// lower `open_files_max`.
    pub fn lacks_descriptor(&self) -> bool {
        let code = system_error(self).and_then(std::io::Error::raw_os_error);
        code.is_some_and(|code| NO_DESCRIPTORS.contains(&code))
    }

    /// Returns true if there was no space or no descriptor. A call that is atomic, such as a sync
    /// of a directory or an append to the log, has then had no effect, and may be repeated.
    pub fn is_refusal(&self) -> bool {
        self.kind() == ErrorKind::NoSpace || self.lacks_descriptor()
    }

    fn edit(mut self, f: impl FnOnce(&mut Inner)) -> Self {
        f(Arc::make_mut(&mut self.0));
        self
    }
}

/// Returns the cause, if it is an error of the operating system.
fn system_error(error: &Error) -> Option<&std::io::Error> {
    error.cause()?.downcast_ref()
}

/// `ENFILE` and `EMFILE` of Linux, which the standard library has no names for.
const NO_DESCRIPTORS: [i32; 2] = [23, 24];

/// Marker of [`Error::waiting`].
#[derive(Debug)]
struct Waiting;

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is not there yet")
    }
}

impl std::error::Error for Waiting {}

impl fmt::Display for Error {
    /// Writes kind, message, place and cause; with `{:#}` the remedy as well.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.name(), self.0.message)?;
        match (&self.0.file, self.0.offset) {
            (Some(file), Some(offset)) => write!(f, " (file {}, offset {offset})", file.display())?,
            (Some(file), None) => write!(f, " (file {})", file.display())?,
            (None, Some(offset)) => write!(f, " (offset {offset})")?,
            (None, None) => {}
        }
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        match self.remedy().filter(|_| f.alternate()) {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().and_then(std::error::Error::source)
    }
}
