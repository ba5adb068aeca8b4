//! A store on two disks.

use crate::{Env, Result};
use std::path::{Path, PathBuf};

/// Where a store is that has its log on a disk of its own.
///
/// The *speed* place has the log, the *capacity* place everything else. Both are directories; where both are of the machine's own file
/// system [`Options::speed`](crate::Options::speed) says the same in fewer words, and this is for what has no options of its own, and for
/// volumes of LavaFS. A store that has no speed disk yet gets it when it is opened in [`Volumes::env`], and gives it back by
/// [`Volumes::give_back`]. From then to then it is opened with that disk and with no other: one that is missing, empty, another store's or of
/// another time is refused.
///
/// ```
/// use lavastore::{Db, Options, Volumes, testing::SimEnv};
/// let machine = SimEnv::new(1).env();
/// let volumes = Volumes::in_envs((&machine, "/store".as_ref()), (&machine, "/fast".as_ref()));
/// let db = Db::open_in(&volumes.env(), "/store", &Options::default())?;
/// db.put("key", "value")?;
/// db.close()?;
/// assert!(Db::open_in(&machine, "/store", &Options::default()).is_err(), "its log is on the other disk");
/// volumes.give_back()?;
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
    /// Two directories of the machine.
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

    /// A directory of one environment, and one of another, or of the same.
    ///
    /// ```
    /// # use lavastore::{Volumes, testing::SimEnv};
    /// let machine = SimEnv::new(1).env();
    /// let volumes = Volumes::in_envs((&machine, "/store".as_ref()), (&machine, "/fast".as_ref()));
    /// ```
    pub fn in_envs(capacity: (&Env, &Path), speed: (&Env, &Path)) -> Volumes {
        let ((env, dir), (speed_env, speed_dir)) = (capacity, speed);
        Volumes { env: lavakv::speed::joined(env, dir, speed_env, speed_dir), dir: dir.to_owned() }
    }

    /// The environment for everything that is done with the store: opening, reading, repair. The store's path in it is that of the capacity
    /// place; other paths are what they are without.
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

    /// The store gives its speed disk back: its log moves to the capacity place, which must have room for it. The store is closed. Cut off
    /// anywhere, it has its log in one of the two places, and may be called again. Older releases can read the store when it has been
    /// opened and closed once more.
    ///
    /// ```
    /// # use lavastore::{ErrorKind, Volumes, testing::SimEnv};
    /// # let machine = SimEnv::new(1).env();
    /// # let volumes = Volumes::in_envs((&machine, "/store".as_ref()), (&machine, "/fast".as_ref()));
    /// assert_eq!(volumes.give_back().unwrap_err().kind(), ErrorKind::NotFound, "there is no store");
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no store, or the speed place is missing or empty; `Locked` if it is open; `InvalidArgument` if the disk is not
    /// the store's, or of an earlier time; `Corruption` if the log is damaged; `NoSpace`. Nothing has changed then.
    pub fn give_back(&self) -> Result<()> {
        lavakv::speed::give_back(&self.env, &self.dir)
    }
}
