//! Connections to nodes, and the messages on them.
//!
//! A node listens on a port chosen by the kernel, a new one at each start, and writes it to the
//! file `DIR/ID/address`. Another process may have taken the port since, so each connection begins
//! with a check of the peer's identity. A connection to any other peer is dropped. This includes a
//! TCP self-connection, which occurs when the kernel chooses the unused port for the local end.
//!
//! A connection carries one request at a time, followed by its reply.

use super::frame::{receive, send};
use super::kv::{Put, Types};
use openraft::error::{InstallSnapshotError, RaftError};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use tokio::net::TcpStream;

/// Number of a node.
pub type Id = u64;

pub const NODES: [Id; 3] = [1, 2, 3];

/// A request to a node.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Asks whether the peer is this node of this cluster.
    Hello { cluster: u64, node: Id },
    /// From Raft.
    Append(AppendEntriesRequest<Types>),
    /// From Raft.
    Vote(VoteRequest<Id>),
    /// From Raft.
    Snapshot(InstallSnapshotRequest<Types>),
    /// From a client: acknowledged when a majority has it on disk, and it is applied.
    Put(Put),
    /// From a client: reads the values of all previously acknowledged writes, or later ones.
    Get { keys: Vec<String> },
    /// Asks for the status of the node.
    Status,
    /// Asks for a checksum of the applied state.
    Digest,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The peer is this node.
    Here {
        cluster: u64,
        node: Id,
    },
    Append(std::result::Result<AppendEntriesResponse<Id>, RaftError<Id>>),
    Vote(std::result::Result<VoteResponse<Id>, RaftError<Id>>),
    Snapshot(std::result::Result<InstallSnapshotResponse<Id>, RaftError<Id, InstallSnapshotError>>),
    /// The write was executed.
    Made,
    /// The values, in the order of the keys.
    Values(Vec<Option<Vec<u8>>>),
    /// The node does not lead, and the outcome is unknown. With the leader, if known.
    Elsewhere(Option<Id>),
    Status(Status),
    /// The applied entry, and the checksum of the state.
    Digest(Vec<u8>, u64),
    /// The node failed to execute the request.
    Failed(String),
}

/// Status of a node.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Leader known to the node.
    pub leader: Option<Id>,
    /// Last applied entry.
    pub applied: u64,
    /// Last entry in the node's snapshot.
    pub snapshot: u64,
}

/// Location and identity of a cluster.
#[derive(Clone, Debug)]
pub struct Place {
    /// Directory of the cluster.
    pub dir: PathBuf,
    /// Unique number of the cluster.
    pub cluster: u64,
}

impl Place {
    pub fn node(&self, id: Id) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// Publishes the port of a node, atomically.
    pub fn publish(&self, id: Id, port: u16) -> Result<()> {
        let path = self.node(id).join("address");
        let written = path.with_extension("new");
        std::fs::write(&written, port.to_string())?;
        std::fs::rename(&written, &path)
    }

    fn port(&self, id: Id) -> Result<u16> {
        let found = std::fs::read_to_string(self.node(id).join("address"))?;
        found.parse().map_err(|_| Error::new(ErrorKind::InvalidData, "an address is no port"))
    }
}

/// A connection to a node, opened on demand and reopened after a failure.
#[derive(Debug)]
pub struct Link {
    place: Place,
    node: Id,
    stream: Option<TcpStream>,
}

impl Link {
    /// Creates a link without a connection.
    pub fn new(place: &Place, node: Id) -> Link {
        Link { place: place.clone(), node, stream: None }
    }

    async fn connect(&self) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.place.port(self.node)?)).await?;
        stream.set_nodelay(true)?;
        let (cluster, node) = (self.place.cluster, self.node);
        send(&mut stream, &Request::Hello { cluster, node }).await?;
        match receive(&mut stream).await? {
            Reply::Here { cluster: c, node: n } if (c, n) == (cluster, node) => Ok(stream),
            _ => Err(Error::new(ErrorKind::AddrNotAvailable, format!("node {node} is not there"))),
        }
    }

    /// Sends a request and receives its reply. The connection is kept only after a complete reply.
    /// A caller that stops waiting drops it, so a late reply is never taken for that of the next
    /// request.
    pub async fn call(&mut self, request: &Request) -> Result<Reply> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect().await?,
        };
        send(&mut stream, request).await?;
        let reply = receive(&mut stream).await?;
        self.stream = Some(stream);
        Ok(reply)
    }
}
