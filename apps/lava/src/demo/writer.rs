//! The writer process that is killed, and the writing threads of both processes.
//!
//! Each thread owns the records whose number has its remainder. It writes them version by version,
//! each version in a different order of records. After each acknowledged put the process writes 12
//! bytes to standard output: number of the record, version, latency in nanoseconds, each 32 bits,
//! little-endian. They are unbuffered, so the pipe keeps them after the kill.

use super::WRITERS;
use super::data::{DataSet, DataSource};
use super::ledger::{Ledger, VERSIONS, value};
use crate::commands::directory;
use crate::{Error, Result};
use bench::distribution::Permutation;
use bench::host::now_ns;
use clap::Args;
use lavastore::Db;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;

/// Bytes of an acknowledgement.
pub const ACK_LEN: usize = 12;

/// Arguments of the writer process.
#[derive(Args)]
pub struct WriterArgs {
    files: Vec<PathBuf>,
    #[arg(long, conflicts_with = "files")]
    generate: Option<usize>,
}

/// Main function of the writer process, which runs until it is killed.
pub fn write(db: Option<PathBuf>, args: &WriterArgs) -> Result<()> {
    let source = match args.generate {
        Some(count) => DataSource::Generated(count),
        None => DataSource::Files(args.files.clone()),
    };
    let data = DataSet::load(source)?;
    let store = super::open_store(&directory(db)?)?;
    write_all(&store, &data, &|_| 0, &|index, version, latency_ns| {
        let mut ack = [0u8; ACK_LEN];
        ack[..4].copy_from_slice(&(index as u32).to_le_bytes());
        ack[4..8].copy_from_slice(&version.to_le_bytes());
        ack[8..].copy_from_slice(&u32::try_from(latency_ns).unwrap_or(u32::MAX).to_le_bytes());
        let mut out = std::io::stdout().lock();
        out.write_all(&ack)?;
        Ok(out.flush()?)
    })
}

/// Writes the versions missing in the ledger, in this process.
pub fn overwrite(store: &Db, data: &DataSet, ledger: &mut Ledger) -> Result<()> {
    let next: Vec<u32> = (0..data.records.len()).map(|index| ledger.next_version(index)).collect();
    let ledger = Mutex::new(ledger);
    write_all(store, data, &|index| next[index], &|index, version, latency_ns| {
        ledger
            .lock()
            .map_err(|_| "another writing thread failed: run the demo again")?
            .acknowledge(index, version, latency_ns)
    })
}

/// Callback with record, version and latency of each acknowledged put.
type Acknowledge<'a> = dyn Fn(usize, u32, u64) -> Result<()> + Sync + 'a;

/// Writes every record from the version `first` to the last one, with several threads.
fn write_all(
    store: &Db,
    data: &DataSet,
    first: &(dyn Fn(usize) -> u32 + Sync),
    acknowledge: &Acknowledge<'_>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS)
            .map(|thread| scope.spawn(move || write_share(store, data, thread, first, acknowledge)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().unwrap_or_else(|_| Err(Error::from("a writing thread panicked"))))
    })
}

fn write_share(
    store: &Db,
    data: &DataSet,
    thread: usize,
    first: &dyn Fn(usize) -> u32,
    acknowledge: &Acknowledge<'_>,
) -> Result<()> {
    let count = data.records.len() as u64;
    let mut bytes = Vec::new();
    for version in 0..VERSIONS {
        let order = Permutation::new(count, u64::from(version));
        for at in 0..count {
            let index = order.apply(at) as usize;
            if index % WRITERS != thread || version < first(index) {
                continue;
            }
            let (key, stanza) = &data.records[index];
            value(stanza, version, &mut bytes);
            let start_ns = now_ns();
            store.put(key, &bytes)?;
            acknowledge(index, version, now_ns() - start_ns)?;
        }
    }
    Ok(())
}
