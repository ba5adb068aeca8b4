//! An engine's part of the manifest: what it must say of itself so that its records can be in the store's history.
//!
//! An engine has an id for good, a state that its records lead to, and pure functions between them. The store calls
//! them and knows nothing else of it. Which engines there are is said at open ([`Engines`]); the records of all others are
//! kept as they are.

use super::record::EngineId;
use super::state::{Ground, State};
use crate::names::FileKind;
use crate::volumes::Volume;
use base::{Result, SeqNo};
use std::any::Any;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

/// An engine that keeps its state in a store's manifest. A type without values: everything it has to say is a function.
pub trait Engine: Sized + Send + Sync + 'static {
    /// Its id, chosen once and never given to another engine.
    const ID: EngineId;
    /// Its name, for people; at most [`super::ENGINE_NAME_LEN_MAX`] bytes.
    const NAME: &'static str;
    /// The newest format of its records and files that it knows. A store where it has a newer one is opened without it.
    const FORMAT: u32;
    /// What its records lead to. A clone is cheap, and changing one leaves the other as it was: states share what they have
    /// in common, because each edit makes one, and nothing under the manifest's lock may walk all files.
    type State: Clone + PartialEq + Debug + Send + Sync + 'static;
    /// What one edit changes of it.
    type Edit: Default + Clone + PartialEq + Debug + Send + Sync + 'static;

    /// The state of a store that has never seen it.
    fn empty() -> Self::State;

    /// The bytes of an edit; none for one that changes nothing.
    fn encode(edit: &Self::Edit) -> Vec<u8>;

    /// Reads what [`Engine::encode`] wrote.
    ///
    /// # Errors
    /// `Unsupported` for what only a newer release can have written, `Corruption` for everything else that is wrong.
    fn decode(bytes: &[u8]) -> Result<Self::Edit>;

    /// The state after an edit. `ground` is the store as the edit finds it: file numbers are taken from it, and sequences
    /// that files hold are told to it.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit contradicts the state.
    fn apply(state: &Self::State, edit: &Self::Edit, ground: &mut Ground<'_>) -> Result<Self::State>;

    /// The edit that leads from [`Engine::empty`] to this state.
    fn snapshot(state: &Self::State) -> Self::Edit;

    /// What a history leads to that was read to its end: the state, without what is only needed to read histories of before. The store
    /// goes on with a snapshot of that.
    fn at_end(state: &Self::State) -> Self::State {
        state.clone()
    }

    /// Recomputes everything that is derived and checks every invariant from scratch.
    ///
    /// # Errors
    /// `Corruption` with the first contradiction.
    fn verify(state: &Self::State, store: &State) -> Result<()>;

    /// Nothing of it below this sequence is needed from the log.
    fn floor(state: &Self::State) -> SeqNo;

    /// A listing for people.
    fn describe(state: &Self::State) -> String;

    /// The records of an edit, a line each, for people.
    ///
    /// # Errors
    /// As [`Engine::decode`].
    fn list(bytes: &[u8]) -> Result<Vec<String>>;

    /// The files that its own records name, without those that the store lists for it ([`super::Record::AddEngineFile`]).
    /// None, except for the key-value engine, whose records are older than the store's list.
    fn files(_state: &Self::State) -> Vec<(FileKind, Volume)> {
        Vec::new()
    }

    /// True if one of [`Engine::files`] has this number.
    fn holds(_state: &Self::State, _number: u64) -> bool {
        false
    }
}

/// A state of some engine.
pub(super) type AnyState = Arc<dyn Any + Send + Sync>;

/// An engine behind a pointer. The states are always those of the engine: see [`super::state::Body`].
pub(super) trait AnyEngine: Send + Sync {
    fn id(&self) -> EngineId;
    fn name(&self) -> &'static str;
    fn format(&self) -> u32;
    fn empty(&self) -> AnyState;
    fn apply(&self, state: &AnyState, step: &[u8], ground: &mut Ground<'_>) -> Result<AnyState>;
    fn snapshot(&self, state: &AnyState) -> Vec<u8>;
    fn at_end(&self, state: &AnyState) -> AnyState;
    fn verify(&self, state: &AnyState, store: &State) -> Result<()>;
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
    fn apply(&self, state: &AnyState, step: &[u8], ground: &mut Ground<'_>) -> Result<AnyState> {
        Ok(Arc::new(E::apply(own::<E>(state), &E::decode(step)?, ground)?))
    }
    fn snapshot(&self, state: &AnyState) -> Vec<u8> {
        E::encode(&E::snapshot(own::<E>(state)))
    }
    fn at_end(&self, state: &AnyState) -> AnyState {
        Arc::new(E::at_end(own::<E>(state)))
    }
    fn verify(&self, state: &AnyState, store: &State) -> Result<()> {
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

/// The engines with which a store is opened.
#[derive(Clone, Default)]
pub struct Engines(Vec<&'static dyn AnyEngine>);

impl Engines {
    /// One engine.
    pub fn of<E: Engine>() -> Engines {
        Engines::default().with::<E>()
    }

    /// And another one.
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
