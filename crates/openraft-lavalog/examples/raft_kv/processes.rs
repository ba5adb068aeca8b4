//! The processes of a cluster. Each runs this program with the arguments `node ID DIR CLUSTER`.
//!
//! A node's standard input is a pipe without data. It ends when the node is asked to end, and also
//! when this process dies for any reason. So no node is left behind.

use super::link::{Id, NODES, Place};
use super::node;
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Maximum time for a node to end on request.
const END_MAX: Duration = Duration::from_secs(60);

/// The running processes.
#[derive(Debug)]
pub struct Processes {
    place: Place,
    running: BTreeMap<Id, Child>,
}

impl Processes {
    pub fn start_all(place: &Place) -> Result<Processes> {
        let mut processes = Processes { place: place.clone(), running: BTreeMap::new() };
        NODES.into_iter().try_for_each(|id| processes.start(id))?;
        Ok(processes)
    }

    pub fn start(&mut self, id: Id) -> Result<()> {
        std::fs::create_dir_all(self.place.node(id))?;
        let child = Command::new(std::env::current_exe()?)
            .arg("node")
            .arg(id.to_string())
            .arg(&self.place.dir)
            .arg(self.place.cluster.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        self.running.insert(id, child);
        Ok(())
    }

    /// Kills a node with SIGKILL: it stops at once and closes nothing. Fails if the node has ended
    /// by itself.
    pub fn kill(&mut self, id: Id) -> Result<()> {
        let mut child = self.running.remove(&id).ok_or_else(|| format!("node {id} does not run"))?;
        if let Some(status) = child.try_wait()? {
            return Err(format!("node {id} ended by itself: {status}").into());
        }
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Asks all nodes to end. Fails if one ends otherwise, or ended before.
    pub fn end(mut self) -> Result<()> {
        self.running.values_mut().for_each(|child| drop(child.stdin.take()));
        let begun = Instant::now();
        for (id, child) in &mut self.running {
            let status = loop {
                match child.try_wait()? {
                    Some(status) => break status,
                    None if begun.elapsed() > END_MAX => return Err(format!("node {id} does not end").into()),
                    None => std::thread::sleep(Duration::from_millis(10)),
                }
            };
            if !status.success() {
                return Err(format!("node {id} ended with {status}").into());
            }
        }
        self.running.clear();
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            // The process may have ended already; errors are irrelevant here.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a process that was started with `node` and these arguments.
pub fn run_node(args: &[String]) -> Result<()> {
    let [id, dir, cluster] = args else { return Err("node takes ID DIR CLUSTER".into()) };
    let place = Place { dir: dir.into(), cluster: cluster.parse()? };
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // The pipe has no data, so this returns at its end; an error is an end, too.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    let end = async {
        let _ = end.await;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(node::run(place, id.parse()?, end))
}
