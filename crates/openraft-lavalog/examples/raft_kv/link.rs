//! Connections to nodes, and what is said on them.
//!
//! A node listens on a port that the kernel chooses, another one each time it is started, and writes it into the file
//! `DIR/ID/address`. A port that was free a moment ago may be somebody else's, so the first thing that is said is who is there: a
//! connection to anybody but the node that is meant is given up, also one to oneself, which TCP makes when the port that
//! nobody listens on is chosen for the near end.
//!
//! On a connection there is one request at a time, and then its reply.

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

/// The number of a node.
pub type Id = u64;

/// All nodes.
pub const NODES: [Id; 3] = [1, 2, 3];

/// What is asked of a node.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Are you this node of this cluster?
    Hello { cluster: u64, node: Id },
    /// Of Raft.
    Append(AppendEntriesRequest<Types>),
    /// Of Raft.
    Vote(VoteRequest<Id>),
    /// Of Raft.
    Snapshot(InstallSnapshotRequest<Types>),
    /// Of a client: acknowledged once it is on the disks of most nodes, and applied.
    Put(Put),
    /// Of a client: the values that the writes acknowledged before have left, or those that came later.
    Get { keys: Vec<String> },
    /// How is it?
    Status,
    /// All that is applied, as one number.
    Digest,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It is this node.
    Here {
        cluster: u64,
        node: Id,
    },
    Append(std::result::Result<AppendEntriesResponse<Id>, RaftError<Id>>),
    Vote(std::result::Result<VoteResponse<Id>, RaftError<Id>>),
    Snapshot(std::result::Result<InstallSnapshotResponse<Id>, RaftError<Id, InstallSnapshotError>>),
    /// The write is made.
    Made,
    /// The values, in the order of the keys.
    Values(Vec<Option<Vec<u8>>>),
    /// Nothing was done, or nobody knows: ask that one.
    Elsewhere(Option<Id>),
    Status(Status),
    /// The entry up to which it is, and the digest.
    Digest(u64, u64),
    /// The node could not.
    Failed(String),
}

/// How a node is.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Who leads, as it knows.
    pub leader: Option<Id>,
    /// The last entry that is applied.
    pub applied: u64,
    /// The last entry that is in its snapshot.
    pub snapshot: u64,
}

/// Where a cluster is.
#[derive(Clone, Debug)]
pub struct Place {
    /// A directory.
    pub dir: PathBuf,
    /// The number of the cluster, which no other has.
    pub cluster: u64,
}

impl Place {
    /// The directory of a node.
    pub fn node(&self, id: Id) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// Says where a node is: the file is there whole or not at all.
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

/// A connection to a node, made when it is needed and again when it broke.
#[derive(Debug)]
pub struct Link {
    place: Place,
    node: Id,
    stream: Option<TcpStream>,
}

impl Link {
    /// Not connected yet.
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

    /// Asks. The connection is given back only behind a whole reply: who gives up the wait, gives up the connection, so a late reply is
    /// never taken for that to the next request.
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
