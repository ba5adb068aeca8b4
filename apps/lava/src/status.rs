//! Exit statuses, their meanings, and their mapping from errors.
//!
//! A script that runs `lava get` must distinguish a missing key from an unreadable one. The numbers
//! are stable: they do not change, and a new one may only split status 1. `lava help exit-codes`
//! and the man page show the table.

use crate::Error;
use lavastore::ErrorKind;
use std::fmt;

/// Exit status of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Done = 0,
    Failed = 1,
    Usage = 2,
    NotWhole = 3,
    KeyNotFound = 4,
    Damage = 5,
    NoSpace = 6,
    InUse = 7,
    NotFound = 8,
    Exists = 9,
}

/// All statuses with their meanings.
pub const ALL: [(Status, &str); 10] = [
    (Status::Done, "done"),
    (Status::Failed, "another error: a system call failed, or a record of an import is malformed"),
    (Status::Usage, "usage: an option, key, value or path is invalid; nothing was changed"),
    (
        Status::NotWhole,
        "incomplete: export --skip-damaged or import --skip-malformed left out records, or repair cannot confirm that all data is saved",
    ),
    (Status::KeyNotFound, "the key or record does not exist (get, log read)"),
    (Status::Damage, "damage: a command, verify or fsck found damaged data, or repair lost some"),
    (Status::NoSpace, "no space: the volume is full, or the store is at its limit"),
    (Status::InUse, "locked: another process has the store or the volume open"),
    (Status::NotFound, "the store, volume, file, column family or log does not exist"),
    (Status::Exists, "the target exists already"),
];

/// Formats the table as text.
pub fn table() -> String {
    let line = |(status, meaning): &(Status, &str)| format!("  {}  {meaning}\n", *status as u8);
    format!("Exit statuses:\n{}", ALL.iter().map(line).collect::<String>())
}

/// An error with its exit status.
#[derive(Debug)]
pub struct Failure {
    status: Status,
    message: String,
    source: Option<Error>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

/// Returns an error with this status.
pub fn failure(status: Status, message: impl Into<String>) -> Error {
    Box::new(Failure { status, message: message.into(), source: None })
}

/// Prefixes the error with the failed action; keeps its status.
pub fn about(what: impl fmt::Display, error: impl Into<Error>) -> Error {
    with_message(error, |error| format!("{what}: {error}"))
}

/// Replaces the message of the error; keeps its status.
pub fn with_message(error: impl Into<Error>, message: impl FnOnce(&Error) -> String) -> Error {
    let error = error.into();
    Box::new(Failure { status: of(error.as_ref()), message: message(&error), source: Some(error) })
}

/// Returns the exit status of an error.
pub fn of(error: &(dyn std::error::Error + 'static)) -> Status {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.status;
    }
    if error.is::<crate::output::Usage>() {
        return Status::Usage;
    }
    if let Some(error) = error.downcast_ref::<lavastore::Error>() {
        return of_kind(error.kind());
    }
    match error.downcast_ref::<std::io::Error>() {
        Some(error) => match error.get_ref() {
            // The stream of a value wraps the engine's own error.
            Some(inner) => match of(inner) {
                Status::Failed => of_system(error.kind()),
                status => status,
            },
            None => of_system(error.kind()),
        },
        None => Status::Failed,
    }
}

/// Returns the remedy of the engine's error in this chain, if there is one.
pub fn remedy<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    if let Some(error) = error.downcast_ref::<lavastore::Error>() {
        return error.remedy();
    }
    // The stream of a value wraps the engine's own error.
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    remedy(inner.map(|inner| inner as _).or_else(|| error.source())?)
}

fn of_kind(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::Corruption => Status::Damage,
        ErrorKind::NoSpace => Status::NoSpace,
        ErrorKind::InvalidArgument | ErrorKind::TooLarge => Status::Usage,
        ErrorKind::NotFound => Status::NotFound,
        ErrorKind::AlreadyExists => Status::Exists,
        ErrorKind::Locked => Status::InUse,
        _ => Status::Failed,
    }
}

fn of_system(kind: std::io::ErrorKind) -> Status {
    use std::io::ErrorKind as K;
    match kind {
        K::NotFound => Status::NotFound,
        K::AlreadyExists => Status::Exists,
        K::StorageFull | K::QuotaExceeded => Status::NoSpace,
        _ => Status::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_status_once_in_order() {
        let numbers: Vec<u8> = ALL.iter().map(|(status, _)| *status as u8).collect();
        assert_eq!(numbers, (0..10).collect::<Vec<u8>>());
        assert_eq!(table().lines().count(), 1 + ALL.len());
    }

    #[test]
    fn an_error_keeps_its_status_however_it_is_wrapped() {
        let damage = lavastore::Error::corruption("x");
        let wrapped = about("file", std::io::Error::other(damage));
        assert_eq!(
            (of(wrapped.as_ref()), wrapped.to_string().as_str()),
            (Status::Damage, "file: corruption: x")
        );
        assert_eq!(remedy(wrapped.as_ref()), Some("restore a checkpoint or backup, or run `lava repair`"));
        let twice = about("again", failure(Status::KeyNotFound, "k"));
        assert_eq!(of(twice.as_ref()), Status::KeyNotFound);
        assert_eq!(
            of(about("a", std::io::Error::from(std::io::ErrorKind::NotFound)).as_ref()),
            Status::NotFound
        );
        assert_eq!(of(Error::from("plain").as_ref()), Status::Failed);
    }
}
