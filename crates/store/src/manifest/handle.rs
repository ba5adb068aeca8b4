//! The manifest as one engine uses it: its commits, and its view of the state.

use super::engine::{Engine, Engines};
use super::state::{Commit, ManifestState, StateOf};
use super::{InitialState, Manifest};
use base::{Error, Result};
use io::Env;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// A manifest, for a present engine. Everything that is not the engine's own is in the [`Manifest`]
/// behind it.
pub struct Handle<E> {
    manifest: Arc<Manifest>,
    engine: PhantomData<fn() -> E>,
}

impl<E: Engine> Handle<E> {
    /// Returns a handle for an engine that the manifest was opened with.
    ///
    /// # Errors
    /// `InvalidArgument` if it was opened without the engine. `Unsupported` if the store has a
    /// newer format of the engine; its records and files are then kept like those of an absent
    /// engine.
    pub fn of(manifest: &Arc<Manifest>) -> Result<Self> {
        StateOf::<E>::of(manifest.state())?;
        Ok(Handle { manifest: manifest.clone(), engine: PhantomData })
    }

    /// Returns the manifest, to be shared with other engines.
    pub fn shared(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Creates a store with this engine alone: see [`Manifest::create`].
    ///
    /// # Errors
    /// As [`Manifest::create`].
    pub fn create(env: &Env, dir: &Path, seed: InitialState) -> Result<Self> {
        Self::of(&Arc::new(Manifest::create(env, dir, seed, &Engines::of::<E>())?))
    }

    /// Creates a store whose history begins with `state`: see [`Manifest::create_with`].
    ///
    /// # Errors
    /// As [`Manifest::create_with`].
    pub fn create_with(env: &Env, dir: &Path, state: StateOf<E>) -> Result<Self> {
        Self::of(&Arc::new(Manifest::create_with(env, dir, ManifestState::clone(&state.store))?))
    }

    /// Recovers a store with this engine alone: see [`Manifest::recover`].
    ///
    /// # Errors
    /// As [`Manifest::recover`].
    pub fn recover(env: &Env, dir: &Path, read_only: bool) -> Result<Self> {
        Self::of(&Arc::new(Manifest::recover(env, dir, read_only, &Engines::of::<E>())?))
    }

    /// Recovers the state before the first damage, for a reader: see
    /// [`Manifest::recover_up_to_damage`].
    ///
    /// # Errors
    /// As [`Manifest::recover_up_to_damage`].
    pub fn recover_up_to_damage(env: &Env, dir: &Path) -> Result<(Self, Vec<Error>)> {
        let (manifest, damage) = Manifest::recover_up_to_damage(env, dir, &Engines::of::<E>())?;
        Ok((Self::of(&Arc::new(manifest))?, damage))
    }

    /// Returns the published state.
    pub fn state(&self) -> StateOf<E> {
        StateOf::of(self.manifest.state()).expect("the engine was here when the handle was made")
    }

    /// Applies an edit, makes it durable and publishes the new state: see [`Handle::commit_with`].
    ///
    /// # Errors
    /// As [`Handle::commit_with`].
    pub fn commit(&self, edit: impl Into<Commit<E>>) -> Result<StateOf<E>> {
        self.commit_with(|_| Ok(edit), |_| ())
    }

    /// Makes one edit durable and publishes the state after it.
    ///
    /// `build` gets the state with every accepted edit (a job revalidates its inputs there) and
    /// returns the edit. An error of `build` is returned and changes nothing. `publish` gets the
    /// new state after [`Handle::state`] shows it. Both run under the manifest's lock, `publish` in
    /// the order of edit numbers; neither may commit or roll.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit contradicts the state; `NoSpace` if the disk is full;
    /// `ReadOnly`. After any other failed write, and after a failed sync, the outcome of the edit
    /// is unknown and all later calls fail with `Poisoned`. Leave the edit's files alone until the
    /// store has been reopened.
    pub fn commit_with<C: Into<Commit<E>>>(
        &self,
        build: impl FnOnce(&StateOf<E>) -> Result<C>,
        publish: impl FnOnce(&StateOf<E>),
    ) -> Result<StateOf<E>> {
        let change = |tip: &Arc<ManifestState>| {
            let tip = StateOf::<E>::of(tip.clone())?;
            let commit = build(&tip)?.into();
            let (next, payload) = tip.committed(&commit)?;
            Ok((next.store, payload))
        };
        let seen = |state: Arc<ManifestState>| StateOf::of(state).expect("the engine is here");
        self.manifest.commits().commit(change, |state| publish(&seen(state.clone()))).map(seen)
    }
}

impl<E> Clone for Handle<E> {
    fn clone(&self) -> Self {
        Handle { manifest: self.manifest.clone(), engine: PhantomData }
    }
}

impl<E> Deref for Handle<E> {
    type Target = Manifest;
    fn deref(&self) -> &Manifest {
        &self.manifest
    }
}

impl<E> fmt::Debug for Handle<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.manifest.fmt(f)
    }
}
