//! A store open with some of its engines, and the data of the closed ones.

use super::engine::{Replayed, Toy, ToyLog};
use crate::check::{Check, Doing};
use crate::machine::DIR;
use crate::tally;
use io::{Access, Rng};
use lavastore::{Db, Env, Options, multi_engine};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use store::Store;
use store::commit::{Aging, LogTerms};
use store::manifest::{Engine, EngineId, Engines, Manifest, Payload, Record};
use store::names::{self, FileKind};

/// The open engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenEngines {
    Both,
    Kv,
    Toy,
}

impl OpenEngines {
    pub fn draw(rng: &mut Rng) -> OpenEngines {
        [OpenEngines::Both, OpenEngines::Both, OpenEngines::Kv, OpenEngines::Toy][rng.below(4) as usize]
    }

    pub fn has_kv(self) -> bool {
        self != OpenEngines::Toy
    }

    pub fn has_toy(self) -> bool {
        self != OpenEngines::Kv
    }

    /// Returns whether one of the two engines is open.
    fn has(self, engine: EngineId) -> bool {
        if engine == Toy::ID { self.has_toy() } else { self.has_kv() }
    }
}

/// An open store.
pub(super) struct Session {
    pub who: OpenEngines,
    pub db: Option<Db>,
    pub toy: Option<ToyLog>,
    /// Set without LavaKV.
    pub store: Option<Store>,
    pub manifest: Arc<Manifest>,
}

pub(super) fn open(env: &Env, dir: &str, who: OpenEngines, options: &Options) -> lavastore::Result<Session> {
    let mut replayed = Replayed::default();
    let mut take = |tenant, number, bytes: &[u8]| replayed.take(tenant, number, bytes);
    if who == OpenEngines::Toy {
        let group_bytes = options.expert.log_group_bytes;
        let loggers = options.expert.loggers;
        let terms = LogTerms {
            access: Access::Direct,
            group_bytes,
            free_groups_max: 2,
            loggers,
            retained_open_max: 2,
            aging: Aging::default(),
        };
        let store = Store::open(env, dir.as_ref(), terms, &Engines::of::<Toy>(), &mut take)?;
        let toy = ToyLog::over(store.manifest(), store.log(), replayed)?;
        let manifest = store.manifest().clone();
        return Ok(Session { who, db: None, toy: Some(toy), store: Some(store), manifest });
    }
    let engines = if who == OpenEngines::Both { Engines::of::<Toy>() } else { Engines::default() };
    let (db, (manifest, log)) =
        multi_engine::open(env.clone(), dir.as_ref(), options.clone(), engines, &mut take)?;
    let toy = match who {
        OpenEngines::Both => Some(ToyLog::over(&manifest, &log, replayed)?),
        _ => None,
    };
    Ok(Session { who, db: Some(Db::over(db)), toy, store: None, manifest })
}

impl Session {
    /// Closes the store.
    pub fn close(self) -> lavastore::Result<()> {
        let Session { db, toy, store, manifest, .. } = self;
        drop((toy, manifest));
        if let Some(db) = db {
            tally::add(&db);
            db.close()?;
        }
        store.map_or(Ok(()), |store| store.close())
    }
}

/// Limit above the length of any file here.
const FILE_LEN_MAX: usize = 64 << 20;

/// Reads a file.
pub(super) fn read(env: &Env, dir: &str, name: &str) -> Check<Vec<u8>> {
    let path = io::fs::join(Path::new(dir), name);
    env.fs.read_all(&path, FILE_LEN_MAX).doing(|| name.to_owned())
}

/// Returns the data of closed engines: the bytes of their files, listed or not, and their manifest
/// entries.
pub(super) fn belongings(env: &Env, who: OpenEngines) -> Check<BTreeMap<String, Vec<u8>>> {
    let mut all = BTreeMap::new();
    let dir = Path::new(DIR);
    if !store::directory::has_store(env, dir).doing(|| "look".into())? {
        return Ok(all);
    }
    for entry in env.fs.list(dir).doing(|| "list".into())? {
        let theirs = match names::parse(&entry.name) {
            Some(FileKind::Tail(_)) => !who.has_kv(),
            Some(FileKind::Engine { .. }) => !who.has_toy(),
            kind => kind.is_some_and(|kind| kind.data().is_some()) && !who.has_kv(),
        };
        if theirs {
            // After a loss of power an unlisted file may be unreadable.
            let bytes = read(env, DIR, &entry.name).unwrap_or_else(String::into_bytes);
            all.insert(entry.name, bytes);
        }
    }
    let manifest = Manifest::recover(env, dir, true, &Engines::default()).doing(|| "manifest".into())?;
    let snapshot = manifest.state().snapshot();
    let payload = Payload::decode(&snapshot).doing(|| "snapshot".into())?;
    let steps = payload.all_steps().filter(|(engine, _)| !who.has(*engine));
    for (nth, (engine, step)) in steps.enumerate() {
        all.insert(format!("step {nth} of engine {engine}"), step.to_vec());
    }
    for record in &payload.records {
        let owner = match record {
            Record::AddEngine { engine, .. }
            | Record::EngineFloor { engine, .. }
            | Record::AddEngineFile { engine, .. } => *engine,
            _ => continue,
        };
        if !who.has(owner) {
            all.insert(format!("record {record}"), Vec::new());
        }
    }
    Ok(all)
}
