//! Rolls: a new manifest file in the place of the one before, in the same format or in a newer one.

use super::{Failure, Inner, Manifest, State, beyond_waiting};
use crate::format::StoreFormat;
use base::sync::{MutexGuard, lock, rank};
use base::{Error, Result};
use std::sync::Arc;

impl Manifest {
    /// Begins a new manifest file with a snapshot of the state, and removes the old ones. Commits wait meanwhile.
    ///
    /// # Errors
    /// If the new file could not be written, the old one goes on being used; if it is unknown which of them a reopen
    /// would find, the manifest is poisoned.
    pub fn roll(&self) -> Result<()> {
        let _turn = rank::turn::<rank::ManifestTurn>();
        let inner = self.when_quiet()?;
        let state = inner.durable.clone();
        self.roll_to(inner, state)
    }

    /// The format of the store.
    pub fn format(&self) -> StoreFormat {
        lock(&self.published).format
    }

    /// Raises the format of the store, by a new manifest file: a crash leaves the store in the one format or in the other.
    /// Releases that do not know the format refuse the store from then on. Does nothing if the store has the format already.
    ///
    /// # Errors
    /// `InvalidArgument` if the store has a newer format; otherwise as [`Manifest::roll`].
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        let _turn = rank::turn::<rank::ManifestTurn>();
        let inner = self.when_quiet()?;
        match inner.durable.format {
            known if known == format => Ok(()),
            known if known > format => {
                let why = format!("the store has format {known} already, and formats are only raised");
                Err(Error::invalid(why).at_file(&self.dir.path))
            }
            _ => {
                let state = in_format(&inner.durable, format);
                self.roll_to(inner, state)
            }
        }
    }

    /// Begins a new manifest file with `state`: what is durable, in its format or in a newer one.
    fn roll_to(&self, mut inner: MutexGuard<'_, Inner>, state: Arc<State>) -> Result<()> {
        inner.leading = true;
        let old = inner.writer.take();
        drop(inner);
        let outcome = self.begin_file(&state);
        let mut inner = lock(&self.inner);
        inner.leading = false;
        self.turn.notify_all();
        match outcome {
            Ok(writer) => {
                inner.writer = Some(writer);
                inner.confirmed = state.edit_number;
                if inner.durable.format != state.format {
                    self.publish_format(&mut inner, state.format);
                }
                Ok(())
            }
            Err(Failure::RolledBack(_, e)) => {
                inner.writer = old;
                Err(e)
            }
            Err(Failure::Unknown(e)) => {
                let e = beyond_waiting(e);
                inner.poison = Some(e.clone());
                Err(e)
            }
        }
    }

    /// Edits that were accepted while the file was written lead to states in the old format. Who waits to publish one raises it
    /// then.
    fn publish_format(&self, inner: &mut Inner, format: StoreFormat) {
        let raise = |state: &mut Arc<State>| *state = in_format(state, format);
        raise(&mut inner.tip);
        raise(&mut inner.durable);
        inner.queue.iter_mut().for_each(|pending| raise(&mut pending.state));
        raise(&mut lock(&self.published));
    }
}

/// A state in a format that is perhaps another one.
pub(super) fn in_format(state: &Arc<State>, format: StoreFormat) -> Arc<State> {
    match state.format == format {
        true => state.clone(),
        false => Arc::new(state.in_format(format)),
    }
}
