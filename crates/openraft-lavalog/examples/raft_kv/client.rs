//! Clients of the cluster: one that finds the leader, and one that writes and remembers the
//! acknowledged writes.

use super::kv::Put;
use super::link::{Id, Link, NODES, Place, Reply, Request, Status};
use io::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Timeout for a reply of one node.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Maximum time without an answering leader while most nodes run.
const PATIENCE: Duration = Duration::from_secs(120);
/// Number of keys per read request.
const KEYS_READ: usize = 64;

/// A client that sends requests to the leader.
#[derive(Debug)]
pub struct Client {
    links: BTreeMap<Id, Link>,
    leader: Id,
}

impl Client {
    /// Creates a client that does not know the leader yet.
    pub fn new(place: &Place) -> Client {
        let links = NODES.map(|id| (id, Link::new(place, id)));
        Client { links: BTreeMap::from(links), leader: NODES[0] }
    }

    /// Returns the node that answered last.
    pub fn leader(&self) -> Id {
        self.leader
    }

    pub async fn ask_node(&mut self, id: Id, request: &Request) -> Result<Reply> {
        let link = self.links.get_mut(&id).ok_or_else(|| format!("there is no node {id}"))?;
        match timeout(ANSWER_MAX, link.call(request)).await {
            Ok(answered) => Ok(answered?),
            Err(_) => Err(format!("node {id} did not answer in time").into()),
        }
    }

    /// Sends a request to the leader, and repeats it until one answers. A repeated request may have
    /// been executed before.
    pub async fn ask(&mut self, request: &Request) -> Result<Reply> {
        let begun = Instant::now();
        loop {
            let told = match self.ask_node(self.leader, request).await {
                Ok(Reply::Elsewhere(Some(leader)))
                    if leader != self.leader && self.links.contains_key(&leader) =>
                {
                    self.leader = leader;
                    "another one leads".to_owned()
                }
                Ok(Reply::Elsewhere(_)) => self.try_next("it does not lead".to_owned()),
                Ok(Reply::Failed(why)) => self.try_next(why),
                Ok(reply) => return Ok(reply),
                Err(e) => self.try_next(e.to_string()),
            };
            if begun.elapsed() > PATIENCE {
                return Err(format!("no leader answered in {} s: {told}", PATIENCE.as_secs()).into());
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    fn try_next(&mut self, why: String) -> String {
        self.leader = self.leader % NODES.len() as Id + 1;
        why
    }

    /// Reads the values of keys at one moment after the call.
    pub async fn get(&mut self, keys: Vec<String>) -> Result<Vec<Option<Vec<u8>>>> {
        let count = keys.len();
        match self.ask(&Request::Get { keys }).await? {
            Reply::Values(values) if values.len() == count => Ok(values),
            other => Err(format!("a reply to another request: {other:?}").into()),
        }
    }

    pub async fn status(&mut self, id: Id) -> Result<Status> {
        match self.ask_node(id, &Request::Status).await? {
            Reply::Status(status) => Ok(status),
            other => Err(format!("a reply to another request: {other:?}").into()),
        }
    }
}

/// Time of an acknowledgement and latency of the call, nanoseconds.
pub type Timed = (u64, u64);

/// A client that writes under load. No other client writes its keys, so it knows the expected
/// values.
#[derive(Debug)]
pub struct Writer {
    client: Client,
    id: u64,
    rng: Rng,
    begun: Instant,
    /// Number of the last write.
    number: u64,
    /// Number of the last acknowledged write of each key.
    pub acknowledged: BTreeMap<String, u64>,
    /// Timed writes.
    pub writes: Vec<Timed>,
    /// Timed reads during the load.
    pub reads: Vec<Timed>,
}

impl Writer {
    pub fn new(place: &Place, id: u64, seed: u64, begun: Instant) -> Writer {
        Writer {
            client: Client::new(place),
            id,
            rng: Rng::new(seed ^ id << 32),
            begun,
            number: 0,
            acknowledged: BTreeMap::new(),
            writes: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// Writes until `stop` is set; every eighth operation is a read. Returns after the
    /// acknowledgement of the last write.
    pub async fn run(mut self, stop: Arc<AtomicBool>) -> Result<Writer> {
        while !stop.load(Ordering::Acquire) {
            let asked = Instant::now();
            let is_read = self.rng.one_in(8) && !self.acknowledged.is_empty();
            if is_read {
                let key = self.one_of_its_keys();
                self.check([key].into()).await?;
            } else {
                self.write().await?;
            }
            let timed = (self.begun.elapsed().as_nanos() as u64, asked.elapsed().as_nanos() as u64);
            if is_read { self.reads.push(timed) } else { self.writes.push(timed) }
        }
        Ok(self)
    }

    fn one_of_its_keys(&mut self) -> String {
        let nth = self.rng.below(self.acknowledged.len() as u64) as usize;
        self.acknowledged.keys().nth(nth).cloned().unwrap_or_default()
    }

    /// Writes to a new key or, one time in four, to an existing one.
    pub async fn write(&mut self) -> Result<()> {
        self.number += 1;
        let key = match self.rng.one_in(4) && !self.acknowledged.is_empty() {
            true => self.one_of_its_keys(),
            false => format!("{}/{}", self.id, self.number),
        };
        let value = self.value(self.number);
        let put = Put { client: self.id, number: self.number, key: key.clone(), value };
        match self.client.ask(&Request::Put(put)).await? {
            Reply::Made => self.acknowledged.insert(key, self.number),
            other => return Err(format!("a reply to another request: {other:?}").into()),
        };
        Ok(())
    }

    /// Returns the value of a write.
    fn value(&self, number: u64) -> Vec<u8> {
        let mut rng = Rng::new(self.id << 40 ^ number);
        let mut value = vec![0; rng.range(20, 1000) as usize];
        rng.fill(&mut value);
        value
    }

    /// Reads keys and compares their values.
    async fn check(&mut self, keys: Vec<String>) -> Result<()> {
        let found = self.client.get(keys.clone()).await?;
        for (key, found) in keys.iter().zip(found) {
            let expected = self.acknowledged.get(key).map(|number| self.value(*number));
            if found != expected {
                let found = if found.is_some() { "has another value" } else { "is not there" };
                return Err(format!("a write is lost: key {key} {found}").into());
            }
        }
        Ok(())
    }

    /// Reads all acknowledged keys and compares their values. Returns the number of keys.
    pub async fn check_all(mut self) -> Result<u64> {
        let keys: Vec<String> = self.acknowledged.keys().cloned().collect();
        for some in keys.chunks(KEYS_READ) {
            self.check(some.to_vec()).await?;
        }
        Ok(keys.len() as u64)
    }
}
