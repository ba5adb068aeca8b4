//! The commands, and the ways they open the store.

pub mod bench;
pub mod checkpoint;
pub mod create;
pub mod engines;
pub mod export;
pub mod families;
pub mod fs;
pub mod gc;
pub mod help;
pub mod import;
pub mod inspect;
pub mod keys;
pub mod log;
pub mod log_repair;
pub mod metrics_page;
pub mod place;
pub mod repair;
pub mod space;
pub mod speed;
pub mod upgrade;
pub mod watch;

use crate::output::usage;
use crate::status::{self, Status};
use crate::{Result, nearest};
use clap::Args;
use lavastore::{Compression, Db, ErrorKind, Family, FamilyOptions, LogStore, Options, PolicyChoice};
use place::StoreLocation;
use std::path::PathBuf;

/// Returns the directory (or volume) named by the user.
pub fn directory(db: Option<PathBuf>) -> Result<PathBuf> {
    match db {
        Some(dir) => Ok(dir),
        None => usage("no store is named: pass --db DIR, or set LAVA_DB"),
    }
}

/// Opens the store for reading, even while another process writes it.
pub fn open_to_read(db: Option<PathBuf>) -> Result<Db> {
    let place = StoreLocation::to_read(&directory(db)?)?;
    Ok(Db::open_read_only_in(&place.env, place.dir, &Options::default())?)
}

/// The keys and logs of a store for a command that reports on both, opened for reading separately.
pub struct Halves {
    /// The keys; `None` in a store with only logs.
    pub keys: Option<Db>,
    dir: PathBuf,
    has_logs: bool,
}

impl Halves {
    /// Opens the keys for reading.
    pub fn open(db: Option<PathBuf>) -> Result<Halves> {
        let dir = directory(db)?;
        let place = StoreLocation::to_read(&dir)?;
        let has_logs = has_logs(&place)?;
        let keys = match Db::open_read_only_in(&place.env, &place.dir, &Options::default()) {
            // A store with only logs.
            Err(e) if has_logs && e.kind() == ErrorKind::NotFound => None,
            keys => Some(keys?),
        };
        Ok(Halves { keys, dir, has_logs })
    }

    /// Runs `look` on the logs; `None` if there are none. The second result reports damage like
    /// [`read_whole`].
    pub fn logs<T>(
        &self,
        look: impl Fn(&LogStore) -> lavastore::Result<T>,
    ) -> Result<Option<(T, Result<()>)>> {
        if !self.has_logs {
            return Ok(None);
        }
        let (seen, whole) = log::looked(&self.dir, |store| Ok(look(store)?))?;
        Ok(Some((seen?, whole)))
    }

    /// Same as [`read_whole`], for the keys.
    pub fn keys_whole(&self) -> Result<()> {
        self.keys.as_ref().map_or(Ok(()), read_whole)
    }
}

/// Fails if the manifest or log is damaged; call it after all output. A store opened for reading
/// shows only the state before the damage, and the user must not take that for all data.
pub fn read_whole(store: &Db) -> Result<()> {
    is_whole(&store.damage())
}

/// The same check for the damage of keys or logs.
pub fn is_whole(damage: &[lavastore::Error]) -> Result<()> {
    match damage.first() {
        None => Ok(()),
        Some(damage) => {
            let what = format!("the output shows only the data before the damage: {damage:#}");
            Err(status::failure(Status::Damage, what))
        }
    }
}

/// Opens an existing store for writing.
pub fn open_to_write(db: Option<PathBuf>) -> Result<Db> {
    open_with(directory(db)?, Options { create_if_missing: false, ..Options::default() })
}

/// Opens the store for writing and keeps the options of its families. A plain open would replace
/// those of the default family.
pub fn open_with(dir: PathBuf, options: Options) -> Result<Db> {
    open_in(StoreLocation::to_write(&dir)?, options)
}

/// Same as [`open_with`], in a place. Opens the logs too if there are any, since a flush moves
/// their keys into tables.
pub fn open_in(place: StoreLocation, options: Options) -> Result<Db> {
    let has_logs = has_logs(&place)?;
    let options = with_own_family(&place, options)?;
    Ok(match has_logs {
        true => Db::open_with_logs_in(&place.env, place.dir, &options, &log::options(false))?,
        false => Db::open_in(&place.env, place.dir, &options)?,
    })
}

fn has_logs(place: &StoreLocation) -> Result<bool> {
    match Db::has_logs_in(&place.env, &place.dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        has_logs => Ok(has_logs?),
    }
}

/// Opens only the keys of a store, to remove its logs.
pub fn open_without_logs(dir: PathBuf, options: Options) -> Result<Db> {
    let place = StoreLocation::to_write(&dir)?;
    let options = with_own_family(&place, options)?;
    Ok(Db::open_in(&place.env, place.dir, &options)?)
}

/// Replaces the family options by those of the existing default family, if the store exists.
fn with_own_family(place: &StoreLocation, options: Options) -> Result<Options> {
    let own = match Db::stored_family_options_in(&place.env, &place.dir) {
        Ok(families) => families.into_iter().find(|(name, _)| name == "default").map(|(_, own)| own),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(e.into()),
    };
    Ok(Options { family: own.unwrap_or(options.family), ..options })
}

/// Options of new data in a column family.
#[derive(Args)]
pub struct FamilyArgs {
    /// Values of at least this many bytes are stored separately from keys, so that compactions do
    /// not rewrite them. A plain number, 32 to 16777216; 0: none. The family keeps the option, for
    /// new data [default: as the family has it; 512 if new]
    #[arg(long, value_name = "BYTES")]
    min_blob_size: Option<usize>,
    /// Compression: none, lz4 or zstd. It saves space and costs processor time. The family keeps
    /// the option, for new data [default: as the family has it; none if new]
    #[arg(long, value_name = "CODEC", value_parser = codec)]
    compression: Option<Compression>,
    /// Compaction policy: leveled or vlsm (narrow compactions, for shorter waits of writers). The
    /// family keeps the option [default: as the family has it; leveled if new]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    policy: Option<PolicyChoice>,
}

fn policy(name: &str) -> Result<PolicyChoice, String> {
    PolicyChoice::named(name).ok_or_else(|| {
        format!("a compaction policy is leveled or vlsm{}", nearest::tip(name, ["leveled", "vlsm"]))
    })
}

fn codec(name: &str) -> Result<Compression, String> {
    let all = [Compression::None, Compression::Lz4, Compression::Zstd];
    let tip = || nearest::tip(name, all.map(|c| c.name()));
    all.into_iter().find(|c| c.name() == name).ok_or_else(|| format!("a codec is none, lz4 or zstd{}", tip()))
}

impl FamilyArgs {
    /// Applies the given options to the family.
    pub fn apply(&self, family: &Family) -> Result<()> {
        let own = family.options();
        let options = FamilyOptions {
            min_blob_size: self.min_blob_size.unwrap_or(own.min_blob_size),
            compression: self.compression.unwrap_or(own.compression),
            policy: self.policy.clone().unwrap_or(own.policy),
            ..own
        };
        Ok(family.set_options(&options)?)
    }
}

/// Returns the column family with this name, or the default one.
pub fn family(store: &Db, name: Option<&str>) -> Result<Family> {
    match name {
        None => Ok(store.default_family().clone()),
        Some(name) => store.open_family(name).map_err(|_| {
            let names = store.family_names();
            let tip = nearest::tip(name, names.iter().map(String::as_str));
            let what = format!("there is no column family {name}; there are: {}{tip}", names.join(", "));
            status::failure(Status::NotFound, what)
        }),
    }
}
