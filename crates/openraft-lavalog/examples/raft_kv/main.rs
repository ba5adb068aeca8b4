//! A replicated key-value store: three processes, which are killed repeatedly under load.
//!
//! ```text
//! cargo run --release -p openraft-lavalog --example raft_kv -- \
//!     [--seconds 20] [--writers 8] [--kills 6] [--seed 1] [--dir DIR]
//! ```
//!
//! openraft decides, `openraft-lavalog` stores, and this program does the rest: the replicated
//! state ([`kv`]), TCP messages between nodes and clients ([`frame`], [`link`]), a node ([`node`]),
//! its clients ([`client`]), and the [`demo`]. The demonstration fails if an acknowledged write is
//! lost. `DIR` must not exist and is removed at the end. The default is a temporary directory.
//!
//! The cluster runs on one machine, so a node's address is a file beside its store. A real cluster
//! also needs addresses in Raft's membership, concurrent requests on a connection, and
//! authentication.

#![allow(clippy::disallowed_methods, reason = "a program on the machine: processes, sockets, clocks")]
#![allow(missing_docs, reason = "a program, not a library; openraft's macro makes a public type")]

pub mod client;
pub mod demo;
pub mod frame;
pub mod kv;
pub mod link;
pub mod node;
pub mod processes;

use demo::Plan;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub fn default_dir() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("raft-kv-{}", std::process::id()))
}

fn parse(args: &[String]) -> Result<Plan> {
    let mut plan = Plan { seconds: 20.0, writers: 8, kills: 6, dir: default_dir(), seed: 1 };
    for option in args.chunks(2) {
        let [name, value] = option else { return Err(format!("{}: of what value?", option[0]).into()) };
        match name.as_str() {
            "--seconds" => plan.seconds = value.parse()?,
            "--writers" => plan.writers = value.parse()?,
            "--kills" => plan.kills = value.parse()?,
            "--dir" => plan.dir = value.into(),
            "--seed" => plan.seed = value.parse()?,
            _ => return Err(format!("there is no option {name}").into()),
        }
    }
    if !(plan.seconds > 0.0 && plan.seconds < 1e6) || plan.writers == 0 {
        return Err("--seconds must be above 0 seconds, --writers at least 1 thread".into());
    }
    Ok(plan)
}

/// Runs the demonstration in a new runtime.
pub fn demonstrate(plan: &Plan) -> Result<demo::Seen> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(demo::run(plan))
}

pub fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = args.split_first()
        && first == "node"
    {
        return processes::run_node(rest);
    }
    print!("{}", demonstrate(&parse(&args)?)?.text());
    Ok(())
}
