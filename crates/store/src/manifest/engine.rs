//! The interface of an engine to the manifest, for its records in the store's history.
//!
//! An engine has a permanent id, a state, and pure functions that apply its records to the state.
//! The store calls these functions and knows nothing else about the engine. Each open names its
//! engines ([`Engines`]). The records of all others are kept unchanged.

use super::record::EngineId;
use super::state::{ManifestState, StateBuilder};
use crate::names::FileKind;
use crate::volumes::Volume;
use base::{Result, SeqNo};
use std::any::Any;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

/// An engine that keeps its state in a store's manifest. The type has no values: all items are
/// associated.
pub trait Engine: Sized + Send + Sync + 'static {
    /// Permanent id, never given to another engine.
    const ID: EngineId;
    /// Name for people; at most [`super::ENGINE_NAME_LEN_MAX`] bytes.
    const NAME: &'static str;
    /// The newest format of its records and files that the engine knows. If the store has a newer
    /// one, the engine is absent.
    const FORMAT: u32;
    /// The engine's state. A clone is cheap, and a change of one clone leaves the others unchanged.
    /// States must share their common parts, because each edit makes a new one, and no code under
    /// the manifest's lock may walk all files.
    type State: Clone + PartialEq + Debug + Send + Sync + 'static;
    /// The engine's part of one edit.
    type Edit: Default + Clone + PartialEq + Debug + Send + Sync + 'static;

    /// Returns the state in a new store.
    fn empty() -> Self::State;

    /// Encodes an edit; empty for an edit without changes.
    fn encode(edit: &Self::Edit) -> Vec<u8>;

    /// Decodes the bytes of [`Engine::encode`].
    ///
    /// # Errors
    /// `Unsupported` for fields that only a newer release can have written, `Corruption` for all
    /// other errors.
    fn decode(bytes: &[u8]) -> Result<Self::Edit>;

    /// Returns the state after an edit. `ground` is the store before the edit: the engine takes
    /// file numbers from it, and reports the sequences in its files to it.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit contradicts the state.
    fn apply(state: &Self::State, edit: &Self::Edit, ground: &mut StateBuilder<'_>) -> Result<Self::State>;

    /// Returns the edit that leads from [`Engine::empty`] to this state.
    fn snapshot(state: &Self::State) -> Self::Edit;

    /// Returns the state at the end of a replay, without the parts that only the replay of an old
    /// history needs. The store continues with a snapshot of it.
    fn at_end(state: &Self::State) -> Self::State {
        state.clone()
    }

    /// Recomputes everything that is derived and checks every invariant from scratch.
    ///
    /// # Errors
    /// `Corruption` with the first contradiction.
    fn verify(state: &Self::State, store: &ManifestState) -> Result<()>;

    /// Returns the sequence below which the engine needs nothing from the log.
    fn floor(state: &Self::State) -> SeqNo;

    /// Returns a listing for people.
    fn describe(state: &Self::State) -> String;

    /// Returns the records of an edit for people, one on each line.
    ///
    /// # Errors
    /// As [`Engine::decode`].
    fn list(bytes: &[u8]) -> Result<Vec<String>>;

    /// Returns the files that the engine's own records name, without those that the store lists for
    /// it ([`super::Record::AddEngineFile`]). Only the key-value engine has any: its records are
    /// older than the store's list.
    fn files(_state: &Self::State) -> Vec<(FileKind, Volume)> {
        Vec::new()
    }

    /// Returns true if one of [`Engine::files`] has this number.
    fn holds(_state: &Self::State, _number: u64) -> bool {
        false
    }
}

/// The state of some engine.
pub(super) type AnyState = Arc<dyn Any + Send + Sync>;

/// An engine behind a pointer. All its states belong to it: see [`super::state::Body`].
pub(super) trait AnyEngine: Send + Sync {
    fn id(&self) -> EngineId;
    fn name(&self) -> &'static str;
    fn format(&self) -> u32;
    fn empty(&self) -> AnyState;
    fn apply(&self, state: &AnyState, step: &[u8], ground: &mut StateBuilder<'_>) -> Result<AnyState>;
    fn snapshot(&self, state: &AnyState) -> Vec<u8>;
    fn at_end(&self, state: &AnyState) -> AnyState;
    fn verify(&self, state: &AnyState, store: &ManifestState) -> Result<()>;
    fn floor(&self, state: &AnyState) -> SeqNo;
    fn describe(&self, state: &AnyState) -> String;
    fn list(&self, step: &[u8]) -> Result<Vec<String>>;
    fn files(&self, state: &AnyState) -> Vec<(FileKind, Volume)>;
    fn holds(&self, state: &AnyState, number: u64) -> bool;
    fn equal(&self, a: &AnyState, b: &AnyState) -> bool;
}

pub(super) struct Erased<E>(PhantomData<fn() -> E>);

impl<E: Engine> Erased<E> {
    pub(super) const THE: &'static dyn AnyEngine = &Erased::<E>(PhantomData);
}

fn own<E: Engine>(state: &AnyState) -> &E::State {
    state.downcast_ref().expect("a part holds a state of its own engine")
}

impl<E: Engine> AnyEngine for Erased<E> {
    fn id(&self) -> EngineId {
        E::ID
    }
    fn name(&self) -> &'static str {
        E::NAME
    }
    fn format(&self) -> u32 {
        E::FORMAT
    }
    fn empty(&self) -> AnyState {
        Arc::new(E::empty())
    }
    fn apply(&self, state: &AnyState, step: &[u8], ground: &mut StateBuilder<'_>) -> Result<AnyState> {
        Ok(Arc::new(E::apply(own::<E>(state), &E::decode(step)?, ground)?))
    }
    fn snapshot(&self, state: &AnyState) -> Vec<u8> {
        E::encode(&E::snapshot(own::<E>(state)))
    }
    fn at_end(&self, state: &AnyState) -> AnyState {
        Arc::new(E::at_end(own::<E>(state)))
    }
    fn verify(&self, state: &AnyState, store: &ManifestState) -> Result<()> {
        E::verify(own::<E>(state), store)
    }
    fn floor(&self, state: &AnyState) -> SeqNo {
        E::floor(own::<E>(state))
    }
    fn describe(&self, state: &AnyState) -> String {
        E::describe(own::<E>(state))
    }
    fn list(&self, step: &[u8]) -> Result<Vec<String>> {
        E::list(step)
    }
    fn files(&self, state: &AnyState) -> Vec<(FileKind, Volume)> {
        E::files(own::<E>(state))
    }
    fn holds(&self, state: &AnyState, number: u64) -> bool {
        E::holds(own::<E>(state), number)
    }
    fn equal(&self, a: &AnyState, b: &AnyState) -> bool {
        own::<E>(a) == own::<E>(b)
    }
}

/// The engines that a store is opened with.
#[derive(Clone, Default)]
pub struct Engines(Vec<&'static dyn AnyEngine>);

impl Engines {
    /// Returns a set of one engine.
    pub fn of<E: Engine>() -> Engines {
        Engines::default().with::<E>()
    }

    /// Adds an engine.
    pub fn with<E: Engine>(mut self) -> Engines {
        if self.find(E::ID).is_none() {
            self.0.push(Erased::<E>::THE);
        }
        self
    }

    pub(super) fn find(&self, id: EngineId) -> Option<&'static dyn AnyEngine> {
        self.0.iter().find(|engine| engine.id() == id).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'static dyn AnyEngine> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<&'static dyn AnyEngine> for Engines {
    fn from_iter<T: IntoIterator<Item = &'static dyn AnyEngine>>(engines: T) -> Self {
        Engines(engines.into_iter().collect())
    }
}

impl Debug for Engines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|engine| engine.name())).finish()
    }
}
