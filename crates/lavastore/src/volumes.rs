//! Stores on two disks.

use crate::{Env, Result};
use std::path::{Path, PathBuf};

/// Opens, repairs or detaches a store whose log is on a second disk, the fast tier, where
/// [`Options::fast_tier`](crate::Options::fast_tier) does not suffice: for calls without options,
/// such as a repair, and for volumes of LavaFS.
///
/// The *speed* place has the log, and the tables and value files that
/// [`ExpertOptions`](crate::ExpertOptions) place there; the *capacity* place has everything else. A
/// store without a fast tier gets one when it is opened in [`Volumes::env`], and returns it by
/// [`Volumes::detach_fast_tier`]. In between, the store opens only with that fast tier. A tier that
/// is missing or empty, belongs to another store, or is an older copy is refused.
///
/// ```
/// use lavastore::{Db, Options, Volumes, testing::SimEnv};
/// let machine = SimEnv::new(1).env();
/// let volumes = Volumes::in_envs((&machine, "/store".as_ref()), (&machine, "/fast".as_ref()));
/// let db = Db::open_in(&volumes.env(), "/store", &Options::default())?;
/// db.put("key", "value")?;
/// db.close()?;
/// assert!(Db::open_in(&machine, "/store", &Options::default()).is_err(), "its log is on the other disk");
/// volumes.detach_fast_tier()?;
/// let db = Db::open_in(&machine, "/store", &Options::default())?;
/// assert!(db.get("key")?.is_some());
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Volumes {
    env: Env,
    dir: PathBuf,
}

impl Volumes {
    /// Names the two directories of a store in the machine's file system, for a repair or a detach;
    /// to open such a store [`Options::fast_tier`](crate::Options::fast_tier) suffices. Then call
    /// [`Volumes::env`] or [`Volumes::detach_fast_tier`]. The call touches no file and cannot fail;
    /// the next call on the store reports a wrong path.
    ///
    /// ```no_run
    /// use lavastore::{Db, RepairOptions, Volumes};
    /// let damaged = Volumes::new("/data/store", "/fast/store");
    /// let options = RepairOptions::default();
    /// Db::repair_in(&damaged.env(), "/data/store", &lavastore::Env::kernel(), "/data/repaired", &options)?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn new(capacity: impl AsRef<Path>, speed: impl AsRef<Path>) -> Volumes {
        let env = Env::kernel();
        Volumes::in_envs((&env, capacity.as_ref()), (&env, speed.as_ref()))
    }

    /// Names two directories of one or two environments, for a disk with LavaFS or a simulated
    /// machine; [`Volumes::new`] is for two directories of the machine. The call touches no file
    /// and cannot fail: a wrong place is the error of the next call on the store.
    ///
    /// ```
    /// # use lavastore::{Volumes, testing::SimEnv};
    /// let machine = SimEnv::new(1).env();
    /// let volumes = Volumes::in_envs((&machine, "/store".as_ref()), (&machine, "/fast".as_ref()));
    /// ```
    pub fn in_envs(capacity: (&Env, &Path), speed: (&Env, &Path)) -> Volumes {
        let ((env, dir), (speed_env, speed_dir)) = (capacity, speed);
        Volumes { env: lavakv::fast_tier::joined(env, dir, speed_env, speed_dir), dir: dir.to_owned() }
    }

    /// Returns the environment for all calls on the store: open, read and repair.
    ///
    /// In it, the store has the path of its capacity place; other paths are unchanged. To open a
    /// store in two plain directories, [`Options::fast_tier`](crate::Options::fast_tier) suffices.
    /// The call touches no file, and the result is cheap to clone.
    ///
    /// ```
    /// # use lavastore::{Db, Options, Volumes, testing::SimEnv};
    /// # let machine = SimEnv::new(1).env();
    /// # let volumes = Volumes::in_envs((&machine, "/store".as_ref()), (&machine, "/fast".as_ref()));
    /// let db = Db::open_in(&volumes.env(), "/store", &Options::default())?;
    /// db.checkpoint("/copy")?;
    /// let copy = Db::open_in(&machine, "/copy", &Options::default())?;
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn env(&self) -> Env {
        self.env.clone()
    }

    /// Detaches the fast tier, to remove the disk: log, tables and value files move from it to the
    /// capacity place, by a copy that blocks the caller. On return the store is durable there, and
    /// opens without the disk.
    ///
    /// The store must be closed, and the capacity place must have room for these files. After an
    /// interruption the log is in one of the two places: repeat the call. Without a fast tier the
    /// call only removes leftovers of an interrupted one. Older releases can read the store after
    /// one more open and close.
    ///
    /// ```
    /// # use lavastore::{ErrorKind, Volumes, testing::SimEnv};
    /// # let machine = SimEnv::new(1).env();
    /// # let volumes = Volumes::in_envs((&machine, "/store".as_ref()), (&machine, "/fast".as_ref()));
    /// assert_eq!(volumes.detach_fast_tier().unwrap_err().kind(), ErrorKind::NotFound, "there is no store");
    /// ```
    ///
    /// # Errors
    /// Nothing has changed after an error.
    /// * `NotFound`: there is no store, or the speed place is missing or empty. Check the paths.
    /// * `Locked`: the store is open. Close it.
    /// * `InvalidArgument`: the disk belongs to another store or is an older copy.
    /// * `Corruption`: the log is damaged. Use [`Db::repair_in`](crate::Db::repair_in).
    /// * `NoSpace`: make room in the capacity place and repeat.
    pub fn detach_fast_tier(&self) -> Result<()> {
        lavakv::fast_tier::detach_fast_tier(&self.env, &self.dir)
    }
}
