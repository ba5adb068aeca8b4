//! Request path: the parts of the engine that requests use, and the reactor that runs requests
//! beside their callers.

use super::operations::{LogPosition, Sync};
use super::request::of_durable;
use crate::context::Context;
use crate::tree::Tree;
use crate::work::jobs::Jobs;
use crate::write::WritePath;
use base::Result;
use base::completion::Completer;
use requests::Reactor;
use std::sync::Arc;

/// The engine as seen by requests: see the module.
pub(crate) struct RequestPath {
    jobs: Arc<Jobs>,
    reactor: Arc<Reactor>,
}

impl RequestPath {
    pub fn new(jobs: &Arc<Jobs>) -> Arc<RequestPath> {
        let context = &jobs.context;
        let reactor = Reactor::new(context.store(), context.options.expert.async_threads);
        Arc::new(RequestPath { jobs: jobs.clone(), reactor })
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.jobs.context
    }

    pub fn tree(&self) -> &Arc<Tree> {
        &self.jobs.tree
    }

    pub fn writes(&self) -> &Arc<WritePath> {
        &self.jobs.writes
    }

    pub fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    pub fn reactor(&self) -> &Arc<Reactor> {
        &self.reactor
    }

    /// Resolves `done` once the log is durable up to a write.
    pub fn make_durable(&self, logged: LogPosition, done: Completer<()>) {
        let (lane, position) = logged;
        match self.writes().log.of(lane) {
            Some(log) => {
                let context = self.context().clone();
                let told = move |outcome: Result<()>| done.resolve(of_durable(&context, outcome));
                log.tell_durable(position, Completer::calling(told));
            }
            None => drop(self.reactor.push(Sync { writes: self.writes().clone(), logged, done })),
        }
    }
}
