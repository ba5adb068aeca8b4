//! LavaLog as the secondary engine ([`store::secondary_engine`]) of a store that another engine
//! opens and drives.
//!
//! On a store shared with LavaKV, the logs use LavaKV's lock, manifest, threads, space limit and
//! health. Their records go to the record lane. Opening LavaKV opens the logs, and closing LavaKV
//! makes all their writes durable. In between, the logs are a [`LogStore`] like any other.

use crate::copy::CoreCopies;
use crate::core::StoreOwner;
use crate::jobs::Background;
use crate::log_store::LogStore;
use crate::manifest::LavaLog;
use crate::open::Restored;
use crate::options::Options;
use base::{Error, Result};
use std::sync::Arc;
use store::commit::{LogTerms, LoggedBatch};
use store::context::Context;
use store::manifest::{Engines, Manifest};
use store::secondary_engine::{
    GuestTimes, RequestFlush, SecondaryEngine, SecondaryEngineStore, ServingEngine,
};

/// A store of logs for another engine to open.
#[derive(Debug)]
pub struct SecondaryLogs {
    options: Options,
    restored: Option<Restored>,
    opened: Option<LogStore>,
}

impl SecondaryLogs {
    /// Prepares a store of logs with these options. The number of threads and `create_if_missing`
    /// have no effect.
    ///
    /// # Errors
    /// `InvalidArgument` for an option out of its range. Also for a space limit, an I/O budget or a
    /// fast tier, which only the host engine can set.
    pub fn new(options: &Options) -> Result<SecondaryLogs> {
        options.check()?;
        if options.space_limit.is_some() {
            let why = "logs in a store with keys have no space limit of their own: set that of the store (`Options::space_limit`)";
            return Err(Error::invalid(why));
        }
        if options.io_budget != 0 {
            let why = "logs in a store with keys have no I/O budget of their own: set that of the store (`Options::io_budget`)";
            return Err(Error::invalid(why));
        }
        if options.fast_tier.is_some() {
            let why = "logs in a store with keys have no fast tier of their own: set that of the store (`Options::fast_tier`)";
            return Err(Error::invalid(why));
        }
        Ok(SecondaryLogs { options: options.clone(), restored: None, opened: None })
    }

    /// Returns the opened store, once the host engine has opened it.
    pub(crate) fn opened(&self) -> Option<&LogStore> {
        self.opened.as_ref()
    }

    /// Chooses the default group size for the host engine's space limit, unless the options give a
    /// size.
    #[must_use]
    pub fn below(self, limit: Option<u64>) -> SecondaryLogs {
        SecondaryLogs { options: self.options.below(limit), ..self }
    }

    /// Returns the opened store.
    ///
    /// # Errors
    /// `InvalidArgument` if no host engine has opened it.
    pub fn store(self) -> Result<LogStore> {
        self.opened.ok_or_else(not_opened)
    }
}

fn not_opened() -> Error {
    Error::invalid("the log engine has no store yet: open the key store with it first")
}

impl SecondaryEngine for SecondaryLogs {
    fn join(&self, engines: Engines) -> Engines {
        engines.with::<LavaLog>()
    }

    fn terms(&self) -> LogTerms {
        self.options.lane_terms()
    }

    fn restore(&mut self, context: &Arc<Context>, manifest: &Arc<Manifest>) -> Result<()> {
        self.restored = Some(Restored::of(context, manifest)?);
        Ok(())
    }

    fn replay<'b>(&mut self, batch: &LoggedBatch<'b>) -> Result<Option<&'b [u8]>> {
        self.restored.as_mut().ok_or_else(not_opened)?.replay(batch)
    }

    fn begin(&mut self, ground: SecondaryEngineStore, relieve: RequestFlush) -> Result<ServingEngine> {
        let restored = self.restored.take().ok_or_else(not_opened)?;
        let roof = StoreOwner::Host(relieve);
        let options = self.options.within(&*ground.files.context().env.fs, 2);
        let core = restored.begin(&options, ground, roof)?;
        self.opened = Some(LogStore::on(core.clone()));
        let copies = Arc::new(CoreCopies::of(&core));
        // Weak: the host engine owns this closure, and the core refers to the host's parts.
        let timed = Arc::downgrade(&core);
        let times: GuestTimes =
            Arc::new(move || timed.upgrade().map_or_else(Vec::new, |core| core.operations()));
        Ok(ServingEngine { work: Arc::new(Background(core)), copies, times })
    }
}
