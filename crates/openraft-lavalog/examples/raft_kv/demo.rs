//! The demonstration: load, kills, and a final check.
//!
//! Writers write to keys of their own and remember the acknowledged writes. Meanwhile nodes are
//! killed with SIGKILL: every second time the leader, otherwise the other nodes in turn. A killed
//! node is restarted after a moment; a killed leader only after another node leads. The next kill
//! waits until the node has caught up, since a cluster of three tolerates one missing node. At the
//! end every key is read through Raft and must have the value of its last acknowledged write. The
//! three nodes must have the same state.
//!
//! SIGKILL leaves the page cache intact; `tests/storage/suite.rs` simulates power failures.

use super::client::{Client, Timed, Writer};
use super::link::{Id, NODES, Place, Reply, Request};
use super::processes::Processes;
use io::Rng;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::sleep;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Maximum time for a node to catch up.
const CATCH_UP_MAX: Duration = Duration::from_secs(120);

/// Parameters of the demonstration.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Minimum duration of the load in seconds; the load continues until the last killed node has
    /// caught up.
    pub seconds: f64,
    pub writers: u64,
    pub kills: u64,
    /// Directory of the cluster. It must not exist, and is removed at the end.
    pub dir: PathBuf,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Results of the demonstration.
#[derive(Debug)]
pub struct Seen {
    writes: Vec<Timed>,
    reads: Vec<Timed>,
    seconds: f64,
    pub kills: u64,
    pub leader_kills: u64,
    /// Number of keys read back.
    pub keys: u64,
    /// Last entry applied by all nodes.
    applied: u64,
    /// Last entry in each node's snapshot.
    snapshots: Vec<u64>,
}

/// Runs the demonstration. Fails if a write is lost, a node ends by itself, or the cluster makes no
/// progress.
pub async fn run(plan: &Plan) -> Result<Seen> {
    std::fs::create_dir(&plan.dir)?;
    let place = Place {
        dir: plan.dir.clone(),
        cluster: Rng::new(plan.seed ^ u64::from(std::process::id())).next_u64(),
    };
    let seen = run_at(plan, &place).await;
    // All nodes have ended or were killed.
    std::fs::remove_dir_all(&plan.dir)?;
    seen
}

async fn run_at(plan: &Plan, place: &Place) -> Result<Seen> {
    let mut processes = Processes::start_all(place)?;
    let mut client = Client::new(place);
    // An answer implies that there is a leader.
    client.get(Vec::new()).await?;
    let (begun, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (1..=plan.writers)
        .map(|id| tokio::spawn(Writer::new(place, id, plan.seed, begun).run(stop.clone())))
        .collect();
    let leader_kills = kill_again_and_again(plan, &mut processes, &mut client, begun).await;
    stop.store(true, Ordering::Release);
    let seconds = begun.elapsed().as_secs_f64();
    let mut stopped = Vec::new();
    for writer in writers {
        stopped.push(writer.await??);
    }
    let (leader_kills, mut keys) = (leader_kills?, 0);
    let writes = stopped.iter().flat_map(|writer| writer.writes.clone()).collect();
    let reads = stopped.iter().flat_map(|writer| writer.reads.clone()).collect();
    let checks: Vec<_> = stopped.into_iter().map(|writer| tokio::spawn(writer.check_all())).collect();
    for check in checks {
        keys += check.await??;
    }
    let applied = same_state(&mut client).await?;
    let mut snapshots = Vec::new();
    for id in NODES {
        snapshots.push(client.status(id).await?.snapshot);
    }
    processes.end()?;
    Ok(Seen { writes, reads, seconds, kills: plan.kills, leader_kills, keys, applied, snapshots })
}

/// Kills and restarts nodes as planned. Returns the number of kills of the leader.
async fn kill_again_and_again(
    plan: &Plan,
    processes: &mut Processes,
    client: &mut Client,
    begun: Instant,
) -> Result<u64> {
    let (mut rng, mut leader_kills, mut turn) = (Rng::new(plan.seed), 0, 0);
    let until = |part: f64| {
        let at = begun + Duration::from_secs_f64(plan.seconds * part);
        at.saturating_duration_since(Instant::now())
    };
    for nth in 0..plan.kills {
        sleep(until((nth as f64 + 0.5) / (plan.kills as f64 + 0.5))).await;
        let leads = leader(client).await?;
        let id = match nth % 2 {
            0 => leads,
            _ => {
                turn += 1;
                (leads + turn % 2) % NODES.len() as Id + 1
            }
        };
        let at = begun.elapsed().as_secs_f64();
        processes.kill(id)?;
        if id == leads {
            leader_kills += 1;
            // Restarted too soon, the node would remain leader; the demonstration must show another
            // one.
            let next = leader(client).await?;
            println!("{at:6.1} s  node {id} killed, which led; node {next} leads now");
        }
        sleep(Duration::from_millis(rng.range(100, 800))).await;
        let started = begun.elapsed().as_secs_f64();
        processes.start(id)?;
        caught_up(client, id).await?;
        let took = begun.elapsed().as_secs_f64() - started;
        println!("{at:6.1} s  node {id} killed; started at {started:.1} s, has caught up after {took:.1} s");
    }
    sleep(until(1.0)).await;
    Ok(leader_kills)
}

/// Returns the leader. Only the leader answers reads, so the function sends one.
async fn leader(client: &mut Client) -> Result<Id> {
    client.get(Vec::new()).await?;
    Ok(client.leader())
}

/// Waits until a node has applied the leader's current entries.
async fn caught_up(client: &mut Client, id: Id) -> Result<()> {
    let (begun, leader) = (Instant::now(), leader(client).await?);
    let to = client.status(leader).await.map_or(0, |status| status.applied);
    loop {
        match client.status(id).await {
            Ok(status) if status.applied >= to => return Ok(()),
            // The node has not caught up yet.
            Ok(_) | Err(_) if begun.elapsed() < CATCH_UP_MAX => sleep(Duration::from_millis(10)).await,
            other => return Err(format!("node {id} does not reach entry {to}: {other:?}").into()),
        }
    }
}

/// Waits until all nodes have applied the same entry, and compares their states. Returns the entry.
async fn same_state(client: &mut Client) -> Result<u64> {
    let begun = Instant::now();
    loop {
        let mut digests = Vec::new();
        for id in NODES {
            if let Ok(Reply::Digest(applied, sum)) = client.ask_node(id, &Request::Digest).await {
                digests.push((applied, sum));
            }
        }
        match &digests[..] {
            [a, b, c] if a.0 == b.0 && b.0 == c.0 => {
                let at = client.status(NODES[0]).await?.applied;
                let is_same = a == b && b == c;
                return is_same.then_some(at).ok_or_else(|| format!("nodes differ at entry {at}").into());
            }
            _ if begun.elapsed() < CATCH_UP_MAX => sleep(Duration::from_millis(20)).await,
            _ => return Err(format!("the nodes do not come to the same entry: {digests:?}").into()),
        }
    }
}

/// Formats median, 99th percentile and maximum of the latencies.
fn latency(timed: &[Timed]) -> String {
    let mut ns: Vec<u64> = timed.iter().map(|(_, took)| *took).collect();
    ns.sort_unstable();
    let ms = |part: f64| {
        let at = ((ns.len() as f64 * part) as usize).min(ns.len().saturating_sub(1));
        ns.get(at).map_or(0.0, |ns| *ns as f64 / 1e6)
    };
    format!("P50 {:.1} ms, P99 {:.1} ms, longest {:.0} ms", ms(0.5), ms(0.99), ms(1.0))
}

impl Seen {
    /// Returns the number of acknowledged writes.
    pub fn writes(&self) -> u64 {
        self.writes.len() as u64
    }

    /// Formats the results.
    pub fn text(&self) -> String {
        let mut at: Vec<u64> = self.writes.iter().map(|(at, _)| *at).collect();
        at.sort_unstable();
        let pause = at.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        format!(
            "kills           {}, {} of them of the leader\n\
             writes          {} acknowledged, {:.0}/s; {}\n\
             reads           {} during the load; {}\n\
             longest pause   {:.1} s without an acknowledgement\n\
             snapshots       up to entries {:?}\n\
             read back       {} keys, the last acknowledged write of each; none is lost\n\
             nodes           have the same state, of entry {}\n",
            self.kills,
            self.leader_kills,
            self.writes(),
            self.writes() as f64 / self.seconds,
            latency(&self.writes),
            self.reads.len(),
            latency(&self.reads),
            pause as f64 / 1e9,
            self.snapshots,
            self.keys,
            self.applied,
        )
    }
}
