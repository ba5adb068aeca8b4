//! A node: a process that runs until its standard input ends, or until it is killed.

use super::frame::{receive, send};
use super::kv::{Kv, Types, key_of};
use super::link::{Id, Link, NODES, Place, Reply, Request, Status};
use lavastore::Env;
use openraft::error::{
    ClientWriteError, InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable,
};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Raft, RaftNetwork, RaftNetworkFactory, SnapshotPolicy};
use openraft_lavalog::{LogStorage, Options, RaftGroupState, StateMachine, Store};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Opens the stores of a node. Only this function depends on their kind.
fn open(place: &Place, id: Id) -> lavastore::Result<(LogStorage<Types>, StateMachine<Types, Kv>)> {
    let mut options = Options::default();
    // Short log groups, so that purged entries free space within a short run.
    options.logs.group_bytes = Some(4 << 20);
    let store = Store::open_in(&Env::kernel(), place.node(id), &options)?;
    store.group("kv", Kv)
}

/// Timeouts for a loaded machine, and snapshots frequent enough that a short run sends some.
fn config() -> Result<Arc<openraft::Config>> {
    let config = openraft::Config {
        cluster_name: "raft_kv".to_owned(),
        heartbeat_interval: 150,
        election_timeout_min: 500,
        election_timeout_max: 900,
        install_snapshot_timeout: 10_000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(1000),
        max_in_snapshot_log_to_keep: 100,
        snapshot_max_chunk_size: 1 << 20,
        ..openraft::Config::default()
    };
    Ok(Arc::new(config.validate()?))
}

/// Runs a node until `end` resolves.
pub async fn run(place: Place, id: Id, end: impl Future<Output = ()>) -> Result<()> {
    let (log, machine) = open(&place, id)?;
    let state = machine.state();
    let raft = Raft::new(id, config()?, Peers { place: place.clone() }, log, machine).await?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    place.publish(id, listener.local_addr()?.port())?;
    if id == NODES[0] && !raft.is_initialized().await? {
        raft.initialize(BTreeSet::from(NODES)).await?;
    }
    let node = Node { cluster: place.cluster, id, raft, state };
    let (mut end, mut metrics) = (std::pin::pin!(end), node.raft.metrics());
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let node = node.clone();
                // A peer that breaks the connection or sends an invalid request gets no further
                // answer.
                drop(tokio::spawn(async move { node.serve(accepted?.0).await }));
            }
            // A storage error ends Raft for good. End the process as well, so that the error is
            // visible.
            Ok(()) = metrics.changed() => metrics.borrow_and_update().running_state.clone()?,
            () = &mut end => break,
        }
    }
    node.raft.shutdown().await?;
    Ok(())
}

#[derive(Clone)]
struct Node {
    cluster: u64,
    id: Id,
    raft: Raft<Types>,
    state: RaftGroupState,
}

impl Node {
    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        loop {
            let request = receive(&mut stream).await?;
            send(&mut stream, &self.answer(request).await).await?;
        }
    }

    async fn answer(&self, request: Request) -> Reply {
        let answer = match request {
            Request::Hello { .. } => Ok(Reply::Here { cluster: self.cluster, node: self.id }),
            Request::Append(rpc) => Ok(Reply::Append(self.raft.append_entries(rpc).await)),
            Request::Vote(rpc) => Ok(Reply::Vote(self.raft.vote(rpc).await)),
            Request::Snapshot(rpc) => Ok(Reply::Snapshot(self.raft.install_snapshot(rpc).await)),
            Request::Put(put) => match self.raft.client_write(put).await {
                Ok(_) => Ok(Reply::Made),
                Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to))) => {
                    Ok(Reply::Elsewhere(to.leader_id))
                }
                Err(e) => Err(e.to_string()),
            },
            Request::Get { keys } => self.get(&keys).await,
            Request::Status => Ok(Reply::Status(self.status())),
            Request::Digest => self.digest().map_err(|e| e.to_string()),
        };
        answer.unwrap_or_else(Reply::Failed)
    }

    /// Raft's linearizable read: a majority confirms this leader, and all committed entries are
    /// applied.
    async fn get(&self, keys: &[String]) -> std::result::Result<Reply, String> {
        match self.raft.ensure_linearizable().await {
            Ok(_) => {
                let family = self.state.family();
                let get = |key: &String| Ok(family.get(key_of(key))?.map(|value| value.to_vec()));
                let found: lavastore::Result<_> = keys.iter().map(get).collect();
                found.map(Reply::Values).map_err(|e| e.to_string())
            }
            Err(e) => match e.forward_to_leader::<BasicNode>() {
                Some(to) => Ok(Reply::Elsewhere(to.leader_id)),
                // The node may have lost the leadership without knowing the new leader.
                None => Err(e.to_string()),
            },
        }
    }

    fn status(&self) -> Status {
        let metrics = self.raft.metrics().borrow().clone();
        Status {
            leader: metrics.current_leader,
            applied: metrics.last_applied.map_or(0, |id| id.index),
            snapshot: metrics.snapshot.map_or(0, |id| id.index),
        }
    }

    /// Digest of the state, with the log id that the state itself holds: the id in the metrics may
    /// be of an earlier or later state.
    fn digest(&self) -> lavastore::Result<Reply> {
        let (mut applied, mut sum) = (Vec::new(), 0u64);
        for entry in self.state.family().iter() {
            let (key, value) = entry?;
            if key.first() == Some(&0) {
                applied.extend_from_slice(&value);
                continue;
            }
            for byte in key.iter().chain(&[0]).chain(value.iter()).chain(&[1]) {
                sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        Ok(Reply::Digest(applied, sum))
    }
}

/// Connections to the other nodes, for openraft.
struct Peers {
    place: Place,
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: Id, _: &BasicNode) -> Peer {
        Peer { target, link: Link::new(&self.place, target) }
    }
}

struct Peer {
    target: Id,
    link: Link,
}

type Rpc<T, E = openraft::error::Infallible> =
    std::result::Result<T, RPCError<Id, BasicNode, RaftError<Id, E>>>;

impl Peer {
    /// Sends a request and unpacks the reply. A failed connection is `Unreachable`, so openraft
    /// backs off.
    async fn ask<T, E: std::error::Error>(
        &mut self,
        request: Request,
        wanted: impl FnOnce(Reply) -> Option<std::result::Result<T, RaftError<Id, E>>>,
    ) -> Rpc<T, E> {
        let reply =
            self.link.call(&request).await.map_err(|e| RPCError::Unreachable(Unreachable::new(&e)))?;
        match wanted(reply) {
            Some(answer) => answer.map_err(|e| RPCError::RemoteError(RemoteError::new(self.target, e))),
            None => {
                let other = std::io::Error::other("a reply to another request");
                Err(RPCError::Network(NetworkError::new(&other)))
            }
        }
    }
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Rpc<AppendEntriesResponse<Id>> {
        self.ask(Request::Append(rpc), |reply| match reply {
            Reply::Append(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Rpc<InstallSnapshotResponse<Id>, InstallSnapshotError> {
        self.ask(Request::Snapshot(rpc), |reply| match reply {
            Reply::Snapshot(answer) => Some(answer),
            _ => None,
        })
        .await
    }

    async fn vote(&mut self, rpc: VoteRequest<Id>, _: RPCOption) -> Rpc<VoteResponse<Id>> {
        self.ask(Request::Vote(rpc), |reply| match reply {
            Reply::Vote(answer) => Some(answer),
            _ => None,
        })
        .await
    }
}
