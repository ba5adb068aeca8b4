//! Names of the files of a request: a number of 16 hexadecimal digits, and the part.

use std::fmt;

/// The number of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub u64);

/// A file of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestFile {
    /// Locked while the client waits.
    Lock,
    /// A request in writing.
    RequestTemp,
    /// A request that no server has taken.
    Request,
    /// A request that a server has taken.
    Taken,
    /// An answer in writing.
    AnswerTemp,
    /// The answer.
    Answer,
}

impl RequestFile {
    /// All parts in the order of their removal: the lock is last.
    pub const ALL: [RequestFile; 6] = [
        RequestFile::RequestTemp,
        RequestFile::Request,
        RequestFile::Taken,
        RequestFile::AnswerTemp,
        RequestFile::Answer,
        RequestFile::Lock,
    ];

    fn extension(self) -> &'static str {
        match self {
            RequestFile::Lock => "lock",
            RequestFile::RequestTemp => "request-tmp",
            RequestFile::Request => "request",
            RequestFile::Taken => "taken",
            RequestFile::AnswerTemp => "answer-tmp",
            RequestFile::Answer => "answer",
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Id {
    /// Returns the name of a file.
    pub fn name(self, part: RequestFile) -> String {
        format!("{self}.{}", part.extension())
    }
}

/// Returns the request and part of a name; `None` for any other name.
pub fn parse(name: &str) -> Option<(Id, RequestFile)> {
    let (digits, extension) = name.split_once('.')?;
    let id = Id(u64::from_str_radix(digits, 16).ok()?);
    let part = RequestFile::ALL.into_iter().find(|part| part.extension() == extension)?;
    (id.name(part) == name).then_some((id, part))
}
