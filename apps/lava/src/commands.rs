//! The commands, and how they open the store.

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
use place::Place;
use std::path::PathBuf;

/// The directory (or volume) that the user named.
pub fn directory(db: Option<PathBuf>) -> Result<PathBuf> {
    match db {
        Some(dir) => Ok(dir),
        None => usage("name the store with --db DIR"),
    }
}

/// Opens the store for reading, also beside a process that writes it.
pub fn open_to_read(db: Option<PathBuf>) -> Result<Db> {
    let place = Place::to_read(&directory(db)?)?;
    Ok(Db::open_read_only_in(&place.env, place.dir, &Options::default())?)
}

/// The two halves of a store that a command reports on, each read for itself, also beside a process that writes it.
pub struct Halves {
    /// The keys; none in a store of logs alone.
    pub keys: Option<Db>,
    dir: PathBuf,
    has_logs: bool,
}

impl Halves {
    /// Opens the keys for reading.
    pub fn open(db: Option<PathBuf>) -> Result<Halves> {
        let dir = directory(db)?;
        let place = Place::to_read(&dir)?;
        let has_logs = has_logs(&place)?;
        let keys = match Db::open_read_only_in(&place.env, &place.dir, &Options::default()) {
            // A store of logs alone.
            Err(e) if has_logs && e.kind() == ErrorKind::NotFound => None,
            keys => Some(keys?),
        };
        Ok(Halves { keys, dir, has_logs })
    }

    /// What there is to say of the logs; `None`: there are none. Beside it whether that is all, as [`read_whole`] says it of keys.
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

    /// As [`read_whole`], of the keys.
    pub fn keys_whole(&self) -> Result<()> {
        self.keys.as_ref().map_or(Ok(()), read_whole)
    }
}

/// To be called when everything was printed: where manifest or log are damaged, a store opened for reading shows what is before
/// the damage. Whoever asked must not take that for the whole.
pub fn read_whole(store: &Db) -> Result<()> {
    is_whole(&store.damage())
}

/// The same, by the damage of keys or logs.
pub fn is_whole(damage: &[lavastore::Error]) -> Result<()> {
    match damage.first() {
        None => Ok(()),
        Some(damage) => {
            let what = format!("this is only what is before the damage: {damage}");
            Err(status::failure(Status::Damage, what))
        }
    }
}

/// Opens a store that is there for writing.
pub fn open_to_write(db: Option<PathBuf>) -> Result<Db> {
    open_with(directory(db)?, Options { create_if_missing: false, ..Options::default() })
}

/// Opens the store for writing. The options of its families stay what they are: an open replaces those of the default
/// family, and a command that sets one key has no business doing so.
pub fn open_with(dir: PathBuf, options: Options) -> Result<Db> {
    open_in(Place::to_write(&dir)?, options)
}

/// The same in a place. What its logs hold for keys comes into tables with them, so they are opened too, if it has any.
pub fn open_in(place: Place, options: Options) -> Result<Db> {
    let has_logs = has_logs(&place)?;
    let options = with_own_family(&place, options)?;
    Ok(match has_logs {
        true => Db::open_with_logs_in(&place.env, place.dir, &options, &log::options(false))?,
        false => Db::open_in(&place.env, place.dir, &options)?,
    })
}

fn has_logs(place: &Place) -> Result<bool> {
    match Db::has_logs_in(&place.env, &place.dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        has_logs => Ok(has_logs?),
    }
}

/// Opens the keys of a store alone, for who takes its logs away.
pub fn open_without_logs(dir: PathBuf, options: Options) -> Result<Db> {
    let place = Place::to_write(&dir)?;
    let options = with_own_family(&place, options)?;
    Ok(Db::open_in(&place.env, place.dir, &options)?)
}

/// With the options that the default family has, if the store exists.
fn with_own_family(place: &Place, options: Options) -> Result<Options> {
    let own = match Db::stored_family_options_in(&place.env, &place.dir) {
        Ok(families) => families.into_iter().find(|(name, _)| name == "default").map(|(_, own)| own),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(e.into()),
    };
    Ok(Options { family: own.unwrap_or(options.family), ..options })
}

/// How new data of a column family is stored, from now on.
#[derive(Args)]
pub struct FamilyArgs {
    /// Keep values of at least so many bytes apart from the keys (0: none) [default: as the family has it; 512 if new]
    #[arg(long, value_name = "BYTES")]
    min_blob_size: Option<usize>,
    /// Compress with none, lz4 or zstd [default: as the family has it; none if new]
    #[arg(long, value_name = "CODEC", value_parser = codec)]
    compression: Option<Compression>,
    /// What decides which tables are compacted: leveled or vlsm [default: as the family has it; leveled if new]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    policy: Option<PolicyChoice>,
}

fn policy(name: &str) -> Result<PolicyChoice, String> {
    PolicyChoice::named(name)
        .ok_or_else(|| format!("it is leveled or vlsm{}", nearest::tip(name, ["leveled", "vlsm"])))
}

fn codec(name: &str) -> Result<Compression, String> {
    let all = [Compression::None, Compression::Lz4, Compression::Zstd];
    let tip = || nearest::tip(name, all.map(|c| c.name()));
    all.into_iter().find(|c| c.name() == name).ok_or_else(|| format!("it is none, lz4 or zstd{}", tip()))
}

impl FamilyArgs {
    /// Changes the options of the family as far as the user said.
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

/// The column family with this name; the default one without a name.
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
