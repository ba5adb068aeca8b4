//! Read-only stores.

use super::Db;
use crate::context::options::Options;
use base::{Error, Result};
use io::Env;
use std::path::Path;

impl Db {
    /// Opens a store for reading, beside the writing process if there is one. The reader shows
    /// every write that was acknowledged before the call, but for volatile ones in the writer's
    /// memory. It takes no lock and changes nothing. A damaged log or manifest is read up to its
    /// damage, and [`Db::damage`] names it.
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Self::open_read_only_in(Env::kernel(), path, options)
    }

    /// Opens a store for reading like [`Db::open_read_only`], in an environment.
    pub fn open_read_only_in(env: Env, path: impl AsRef<Path>, options: Options) -> Result<Db> {
        let (engine, reading) = crate::read_only::open(env, path.as_ref(), options)?;
        Self::new(engine, Some(reading))
    }

    /// Opens the present state of a store that is open for reading. The log is replayed from the
    /// end of the earlier replay, and files that are open need not be opened again. The earlier
    /// `Db`, its snapshots and its iterators keep their state; both share memtables and cache. A
    /// handle of a family belongs to one of the two: see [`Db::column_family`].
    ///
    /// # Errors
    /// `InvalidArgument`: the store was not opened for reading; and those of
    /// [`Db::open_read_only`].
    pub fn catch_up(&self) -> Result<Db> {
        let engine = self.here()?;
        let Some(reading) = &self.handle.reading else {
            let why = "catch_up: the store was not opened read-only and already shows every write";
            return Err(Error::invalid(why).at_file(&engine.context.dir));
        };
        let (engine, reading) = crate::read_only::catch_up(engine, reading)?;
        Self::new(engine, Some(reading))
    }
}
