//! Checkpoints that other processes request ([`crate::mailbox`]).
//!
//! A worker that looks for work looks for requests as well, at most once a second. A checkpoint waits for flushes, which
//! the same worker may have to do. So requests are served on a thread of their own, which ends with the last of them; in
//! simulation, by the job that found them.

use super::scheduler::{Job, JobClass, Progress, guarded};
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
    /// Those of the engine.
    fn checkpoint(&self, dir: &Path) -> Result<()>;
}

/// See the module.
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

    /// Serves requests from now on. Once.
    pub fn serve_by(&self, checkpointer: Weak<dyn Checkpointer>) {
        let _ = self.checkpointer.set(checkpointer);
    }

    /// True if it is time to look for requests.
    pub fn is_due(&self) -> bool {
        self.checkpointer.get().is_some() && self.mailbox.is_due()
    }

    /// The job that serves requests, if there are any.
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
                // It has served its last request before this one was found.
                before.map(ThreadHandle::join);
            }
            Err(e) => self.mailbox.serve(&|_| Err(e.clone())),
        }
    }

    /// Waits for the end of the checkpoint under way, and refuses the others. The workers have ended.
    pub fn stop(&self) {
        let thread = lock(&self.thread).take();
        thread.map(ThreadHandle::join);
        self.mailbox.serve(&|_| Err(closed()));
    }
}

/// Begins to serve the requests that were found.
struct Serve(Arc<Requested>);

impl Job for Serve {
    fn class(&self) -> JobClass {
        JobClass::Metrics
    }

    fn step(&mut self) -> Result<Progress> {
        self.0.begin();
        Ok(Progress::Done)
    }

    /// They are refused when the store has stopped.
    fn abandon(&mut self) {}
}
