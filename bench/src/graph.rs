//! `bench graph`: a social graph with the mix of operations of LinkBench.
//!
//! | key | value |
//! |---|---|
//! | `n` node | the node's data |
//! | `l` node, other node | a link: 1 byte visibility, 8 bytes time, data |
//! | `c` node | the number of visible links of the node, 8 bytes |
//!
//! Nodes are `u64`, big-endian. The number of links of a node follows a power law with a mean of
//! about four. Operations choose nodes by a Zipf distribution. An addition or a deletion of a link
//! reads the link and writes link and number in one batch; a lock of the client keeps those of one
//! node apart, for every engine alike. As in LinkBench a deleted link stays as a hidden one. At the
//! end the numbers of some nodes must be those of their visible links.
//!
//! Armstrong, Ponnekanti, Borthakur, Callaghan: "LinkBench: a Database Benchmark Based on the
//! Facebook Social Graph" (SIGMOD 2013), table 4.

use crate::args::{BenchArgs, Distribution};
use crate::distribution::{Permutation, Picker};
use crate::engine::{Batch, Engine, EngineSettings, Opener};
use crate::host::{self, now_ns};
use crate::keys::mix;
use crate::record::{self, Recorder};
use crate::report::{Latency, human_us};
use crate::run::LOAD_BATCH;
use crate::{Error, Result};
use io::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// Default duration of a run in seconds.
const SECONDS: f64 = 10.0;
/// Default number of nodes.
const NODES: u64 = 300_000;
/// Default length of a node's data in bytes.
const NODE_LEN: usize = 128;
/// Length of a link: visibility, time and eight bytes of data.
const LINK_LEN: usize = 17;
/// Mean number of links of a node is about twice this.
const DEGREE_HALF: f64 = 2.15;
/// Most links that a list returns, as in LinkBench.
const LIST_MAX: u64 = 10_000;
/// Links that a multi-get reads.
const MULTI_GET: u64 = 4;
/// Number of locks of the client.
const LOCKS: usize = 256;
/// Number of nodes that the check at the end visits.
const CHECKED: u64 = 2_000;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    GetNode,
    AddNode,
    UpdateNode,
    DeleteNode,
    CountLinks,
    MultiGetLinks,
    ListLinks,
    AddLink,
    DeleteLink,
    UpdateLink,
}

/// Operations with their shares in hundredths of a percent.
const MIX: [(Operation, u64); 10] = [
    (Operation::GetNode, 1294),
    (Operation::AddNode, 257),
    (Operation::UpdateNode, 736),
    (Operation::DeleteNode, 101),
    (Operation::CountLinks, 488),
    (Operation::MultiGetLinks, 53),
    (Operation::ListLinks, 5072),
    (Operation::AddLink, 899),
    (Operation::DeleteLink, 299),
    (Operation::UpdateLink, 801),
];

fn draw(rng: &mut Rng) -> Operation {
    let mut left = rng.below(MIX.iter().map(|(_, share)| share).sum());
    for (operation, share) in MIX {
        if left < share {
            return operation;
        }
        left -= share;
    }
    Operation::ListLinks
}

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GraphReport {
    /// Engine and version.
    pub engine: String,
    /// Number of client threads.
    pub threads: u64,
    /// Number of nodes of the load.
    pub nodes: u64,
    /// Number of links of the load.
    pub links: u64,
    /// Number of operations.
    pub operations: u64,
    /// Operations per second.
    pub operations_per_s: f64,
    /// Number of links that lists returned.
    pub listed: u64,
    /// Time of an operation.
    pub latency: Latency,
    /// Time of a list of links, half of all operations.
    pub list_latency: Latency,
    /// Description of the machine.
    pub machine: String,
    /// Options of the run.
    pub options: BenchArgs,
    /// Settings of the engine.
    pub engine_settings: BTreeMap<String, String>,
}

fn node_key(node: u64) -> [u8; 9] {
    key_of(b'n', node)
}

fn count_key(node: u64) -> [u8; 9] {
    key_of(b'c', node)
}

/// The prefix of the links of a node.
fn links_of(node: u64) -> [u8; 9] {
    key_of(b'l', node)
}

fn key_of(kind: u8, node: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&node.to_be_bytes());
    key
}

fn link_key(from: u64, to: u64) -> [u8; 17] {
    let mut key = [0; 17];
    key[..9].copy_from_slice(&links_of(from));
    key[9..].copy_from_slice(&to.to_be_bytes());
    key
}

fn link(visible: bool, rng: &mut Rng) -> [u8; LINK_LEN] {
    let mut link = [u8::from(visible); LINK_LEN];
    link[1..9].copy_from_slice(&now_ns().to_be_bytes());
    rng.fill(&mut link[9..]);
    link
}

fn is_visible(link: &[u8]) -> bool {
    link.first() == Some(&1)
}

/// The shape of the graph at the load.
#[derive(Clone, Debug)]
struct Graph {
    nodes: u64,
    node_len: usize,
    ranks: Permutation,
}

impl Graph {
    fn new(args: &BenchArgs) -> Graph {
        let nodes = args.num.unwrap_or(NODES).max(8);
        let node_len = args.value_size.map_or(NODE_LEN, |len| len as usize);
        Graph { nodes, node_len, ranks: Permutation::new(nodes, args.seed) }
    }

    /// Returns the number of links of a node: a power law over a random rank.
    fn degree(&self, node: u64) -> u64 {
        let share = self.nodes as f64 / (self.ranks.apply(node) + 1) as f64;
        ((DEGREE_HALF * share.sqrt()) as u64).min(self.nodes / 2)
    }

    /// Returns the other end of the link with this number: distinct for each number.
    fn other(&self, node: u64, nth: u64) -> u64 {
        (node + 1 + nth * 2) % self.nodes
    }
}

/// Makes a run in `dir`.
///
/// # Errors
/// Errors of the engine; a wrong number of links.
pub fn run(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<GraphReport> {
    args.check()?;
    let engine = opener.open(dir, &EngineSettings::of(args)?)?;
    let (graph, locks) = (Graph::new(args), Locks::new());
    let links = load(engine.as_ref(), &graph, args.seed)?;
    let begun_ns = now_ns();
    let end_ns = begun_ns + (args.seconds.unwrap_or(SECONDS) * 1e9) as u64;
    let clients: Result<Vec<Client>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads())
            .map(|thread| {
                let client = Client::new(engine.as_ref(), (&graph, &locks), args, thread, begun_ns);
                scope.spawn(move || client.run_until(end_ns))
            })
            .collect();
        let panicked = || Error::from("a client thread panicked: report it");
        threads.into_iter().map(|thread| thread.join().map_err(|_| panicked())?).collect()
    });
    let clients = clients?;
    let seconds = (now_ns() - begun_ns) as f64 / 1e9;
    check_counts(engine.as_ref(), &graph, args.seed)?;
    let operations = clients.iter().map(|client| client.operations).sum();
    let listed = clients.iter().map(|client| client.listed).sum();
    let (all, lists): (Vec<Recorder>, Vec<Recorder>) =
        clients.into_iter().map(|client| (client.record, client.lists)).unzip();
    let engine_settings = engine.settings().into_iter().collect();
    engine.close()?;
    Ok(GraphReport {
        engine: opener.name(),
        threads: args.threads(),
        nodes: graph.nodes,
        links,
        operations,
        operations_per_s: operations as f64 / seconds,
        listed,
        latency: Latency::of(&record::merge(&all).latency_ns),
        list_latency: Latency::of(&record::merge(&lists).latency_ns),
        machine: host::machine(),
        options: args.clone(),
        engine_settings,
    })
}

/// Writes all nodes with their links. Returns the number of links.
fn load(engine: &dyn Engine, graph: &Graph, seed: u64) -> Result<u64> {
    let (mut rng, mut batch, mut links) = (Rng::new(mix(seed)), Batch::default(), 0);
    let mut data = vec![0; graph.node_len];
    for node in 0..graph.nodes {
        let degree = graph.degree(node);
        rng.fill(&mut data);
        batch.put(&node_key(node), &data);
        batch.put(&count_key(node), &degree.to_le_bytes());
        for nth in 0..degree {
            batch.put(&link_key(node, graph.other(node, nth)), &link(true, &mut rng));
        }
        links += degree;
        if batch.len() as u64 >= LOAD_BATCH || node + 1 == graph.nodes {
            engine.write(&batch, false)?;
            batch.clear();
        }
    }
    Ok(links)
}

/// Compares the stored numbers of links of some nodes with their visible links.
fn check_counts(engine: &dyn Engine, graph: &Graph, seed: u64) -> Result<()> {
    let (mut rng, mut value) = (Rng::new(mix(seed ^ 1)), Vec::new());
    for _ in 0..CHECKED.min(graph.nodes) {
        let (node, mut visible) = (rng.below(graph.nodes), 0);
        engine
            .scan_prefix(&links_of(node), u64::MAX, &mut |_, link| visible += u64::from(is_visible(link)))?;
        let stored = if engine.get(&count_key(node), &mut value)? { count(&value)? } else { 0 };
        if stored != visible {
            let why = format!(
                "wrong answer: node {node} has {visible} visible links, and {stored} are counted: report it"
            );
            return Err(why.into());
        }
    }
    Ok(())
}

fn count(value: &[u8]) -> Result<u64> {
    let bytes = value.first_chunk().ok_or("wrong answer: a number of links is too short: report it")?;
    Ok(u64::from_le_bytes(*bytes))
}

/// Locks of the client that keep changes of one node's links apart.
struct Locks(Vec<Mutex<()>>);

impl Locks {
    fn new() -> Locks {
        Locks((0..LOCKS).map(|_| Mutex::new(())).collect())
    }

    fn of(&self, node: u64) -> Result<MutexGuard<'_, ()>> {
        let lock = &self.0[mix(node) as usize % LOCKS];
        lock.lock().map_err(|_| Error::from("a client thread panicked: report it"))
    }
}

/// A client thread.
struct Client<'a> {
    engine: &'a dyn Engine,
    graph: &'a Graph,
    locks: &'a Locks,
    picker: Picker,
    rng: Rng,
    /// The next node that this thread adds, and the distance to the one after it.
    added: (u64, u64),
    value: Vec<u8>,
    record: Recorder,
    lists: Recorder,
    operations: u64,
    listed: u64,
}

impl<'a> Client<'a> {
    fn new(
        engine: &'a dyn Engine,
        (graph, locks): (&'a Graph, &'a Locks),
        args: &BenchArgs,
        thread: u64,
        begun_ns: u64,
    ) -> Client<'a> {
        Client {
            engine,
            graph,
            locks,
            picker: Picker::new(Distribution::Zipf, graph.nodes, args.seed),
            rng: Rng::new(mix(args.seed ^ mix(thread + 1))),
            added: (graph.nodes + thread, args.threads()),
            value: Vec::new(),
            record: Recorder::new(begun_ns),
            lists: Recorder::new(begun_ns),
            operations: 0,
            listed: 0,
        }
    }

    fn run_until(mut self, end_ns: u64) -> Result<Client<'a>> {
        self.engine.thread_begin();
        let mut now = now_ns();
        while now < end_ns {
            let (begun_ns, operation) = (now, draw(&mut self.rng));
            self.make(operation)?;
            now = now_ns();
            self.record.complete(begun_ns, now, 1, 0);
            if operation == Operation::ListLinks {
                self.lists.complete(begun_ns, now, 1, 0);
            }
            self.operations += 1;
        }
        self.engine.thread_end();
        Ok(self)
    }

    fn make(&mut self, operation: Operation) -> Result<()> {
        let node = self.picker.next(&mut self.rng);
        match operation {
            Operation::GetNode => self.engine.get(&node_key(node), &mut self.value).map(drop),
            Operation::AddNode => {
                let next = self.added.0;
                self.added.0 += self.added.1;
                self.put_node(next)
            }
            Operation::UpdateNode => self.put_node(node),
            Operation::DeleteNode => self.engine.delete(&node_key(node)),
            Operation::CountLinks => self.engine.get(&count_key(node), &mut self.value).map(drop),
            Operation::MultiGetLinks => {
                let others = (0..MULTI_GET).map(|_| self.other(node));
                let keys: Vec<Vec<u8>> = others.map(|other| link_key(node, other).to_vec()).collect();
                self.engine.multi_get(&keys, &mut |_, _| {})
            }
            Operation::ListLinks => {
                self.listed += self.engine.scan_prefix(&links_of(node), LIST_MAX, &mut |_, _| {})?;
                Ok(())
            }
            Operation::AddLink => self.change_link(node, true),
            Operation::DeleteLink => self.change_link(node, false),
            Operation::UpdateLink => self.update_link(node),
        }
    }

    /// Returns the other end of a link that the node may have.
    fn other(&self, node: u64) -> u64 {
        let (degree, mut rng) = (self.graph.degree(node), self.rng.clone());
        // A few more than it has, so that additions find new ones.
        self.graph.other(node, rng.below(degree + degree / 4 + 2))
    }

    fn put_node(&mut self, node: u64) -> Result<()> {
        let mut data = vec![0; self.graph.node_len];
        self.rng.fill(&mut data);
        self.engine.put(&node_key(node), &data)
    }

    /// Adds or hides a link, and changes the number of links if it was not so before.
    fn change_link(&mut self, node: u64, visible: bool) -> Result<()> {
        let other = self.other(node);
        let key = link_key(node, other);
        let _lock = self.locks.of(node)?;
        let was_visible = self.engine.get(&key, &mut self.value)? && is_visible(&self.value);
        if !was_visible && !visible {
            return Ok(());
        }
        let mut batch = Batch::default();
        batch.put(&key, &link(visible, &mut self.rng));
        if was_visible != visible {
            let found = self.engine.get(&count_key(node), &mut self.value)?;
            let before = if found { count(&self.value)? } else { 0 };
            let after = if visible { before + 1 } else { before.saturating_sub(1) };
            batch.put(&count_key(node), &after.to_le_bytes());
        }
        self.engine.write(&batch, true)
    }

    /// Changes the data of a link, if it is visible.
    fn update_link(&mut self, node: u64) -> Result<()> {
        let other = self.other(node);
        let key = link_key(node, other);
        let _lock = self.locks.of(node)?;
        match self.engine.get(&key, &mut self.value)? && is_visible(&self.value) {
            true => self.engine.put(&key, &link(true, &mut self.rng)),
            false => Ok(()),
        }
    }
}

impl GraphReport {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let mut out = format!(
            "{}, graph of {} nodes and {} links, threads: {}\n",
            self.engine, self.nodes, self.links, self.threads
        );
        let lists = self.list_latency.count.max(1);
        let _ = writeln!(
            out,
            "operations     {:10.0} /s  ({} in all, {:.1} links per list)",
            self.operations_per_s,
            self.operations,
            self.listed as f64 / lists as f64
        );
        for (name, latency) in [("latency", &self.latency), ("list of links", &self.list_latency)] {
            let _ = writeln!(
                out,
                "{name:<14} {} (99 %: {}, longest {})",
                human_us(latency.p50_us),
                human_us(latency.p99_us),
                human_us(latency.max_us)
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::WorkDir;
    use crate::lava::Lava;

    #[test]
    fn shares_are_those_of_the_paper() {
        assert_eq!(MIX.iter().map(|(_, share)| share).sum::<u64>(), 10_000);
        let (mut rng, mut lists) = (Rng::new(1), 0);
        (0..10_000).for_each(|_| lists += u32::from(draw(&mut rng) == Operation::ListLinks));
        assert!((4_900..5_250).contains(&lists), "{lists}");
    }

    #[test]
    fn a_small_run_keeps_the_numbers_of_links() {
        let dir = std::env::temp_dir().join(format!("bench-graph-test-{}", std::process::id()));
        let dir = WorkDir::fresh(&dir).unwrap();
        let args = crate::args::tests::args("graph --num 500 --threads 3 --seconds 0.2");
        let report = run(&args, &Lava, dir.path()).unwrap();
        assert!(report.operations > 0 && report.listed > 0, "{}", report.text());
        assert!(report.links > 500 && report.text().contains("threads: 3"), "{}", report.text());
    }
}
