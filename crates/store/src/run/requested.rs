//! Checkpoints that other processes request ([`crate::mailbox`]).
//!
//! Workers that check for work also check for requests, at most once a second. A checkpoint waits
//! for flushes, which the same worker may have to run. So a separate thread serves requests, and
//! ends with the last of them. In simulation the job that found them serves them.

use super::scheduler::{Job, JobClass, Progress};
use super::workers::guarded;
use crate::context::{Context, closed};
use crate::mailbox::Mailbox;
use base::Result;
use base::sync::{Mutex, OnceLock, lock, rank};
use io::{Priority, ThreadHandle};
use std::path::Path;
use std::sync::{Arc, Weak};

/// An engine that makes checkpoints.
pub trait Checkpointer: Send + Sync {
    /// Makes a checkpoint of the whole store in a directory.
    ///
    /// # Errors
    /// Errors of the engine.
    fn checkpoint(&self, dir: &Path) -> Result<()>;
}

/// Requested checkpoints: see the module.
pub(super) struct Requested {
    context: Arc<Context>,
    mailbox: Mailbox,
    /// Unset: requests are not served.
    checkpointer: OnceLock<Weak<dyn Checkpointer>>,
    /// The thread that served last.
    thread: Mutex<Option<Box<dyn ThreadHandle>>, rank::Workers>,
}

impl Requested {
    pub fn new(context: &Arc<Context>) -> Requested {
        Requested {
            context: context.clone(),
            mailbox: Mailbox::new(&context.env, &context.dir),
            checkpointer: OnceLock::new(),
            thread: Mutex::new(None),
        }
    }

    /// Sets the engine that serves requests. Once.
    pub fn serve_by(&self, checkpointer: Weak<dyn Checkpointer>) {
        let _ = self.checkpointer.set(checkpointer);
    }

    /// Returns true if a check for requests is due.
    pub fn is_due(&self) -> bool {
        self.checkpointer.get().is_some() && self.mailbox.is_due()
    }

    /// Returns the job that serves requests, if there are any.
    pub fn next(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        let over = self.context.signals.is_stopping() || !self.is_due();
        (!over && self.mailbox.look()).then(|| Box::new(Serve(self.clone())) as Box<dyn Job>)
    }

    fn serve(&self) {
        self.mailbox.serve(&|dir| {
            let checkpointer = self.checkpointer.get().and_then(Weak::upgrade).ok_or_else(closed)?;
            let made = guarded(|| checkpointer.checkpoint(dir));
            made.inspect_err(|e| {
                if e.kind() == base::ErrorKind::Poisoned {
                    self.context.health.poison(e);
                }
            })
        });
    }

    fn begin(self: &Arc<Self>) {
        let Some(spawner) = &self.context.env.spawner else { return self.serve() };
        let own = self.clone();
        let spawned = spawner.spawn("lava-requests", Priority::Background, Box::new(move || own.serve()));
        match spawned {
            Ok(thread) => {
                let before = lock(&self.thread).replace(thread);
                // That thread had served its last request before these were found.
                before.map(ThreadHandle::join);
            }
            Err(e) => self.mailbox.serve(&|_| Err(e.clone())),
        }
    }

    /// Waits for the checkpoint in progress, and refuses the other requests. The workers have
    /// ended.
    pub fn stop(&self) {
        let thread = lock(&self.thread).take();
        thread.map(ThreadHandle::join);
        self.mailbox.serve(&|_| Err(closed()));
    }
}

/// A job that starts to serve the requests that were found.
struct Serve(Arc<Requested>);

impl Job for Serve {
    fn class(&self) -> JobClass {
        JobClass::Metrics
    }

    fn step(&mut self) -> Result<Progress> {
        self.0.begin();
        Ok(Progress::Done)
    }

    /// The store refuses them when it has stopped.
    fn abandon(&mut self) {}
}
