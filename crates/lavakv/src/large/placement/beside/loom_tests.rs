//! Every interleaving of writers that append and sync: nobody sleeps for ever, nobody is told that bytes are durable which the
//! device does not have, and a failure is told to all whose bytes it took.

use super::*;
use base::sync::model::atomic::{AtomicU64, Ordering};
use base::sync::model::check;
use base::sync::model::loom::thread;
use base::{Error, ErrorKind};
use std::sync::Arc;

/// What the device has, and the sync that fails.
#[derive(Debug, Default)]
struct Device {
    durable_bytes: AtomicU64,
    /// Syncs that run; never two.
    running: AtomicU64,
    syncs: AtomicU64,
    /// The sync with this number loses its bytes. 0: none.
    fails: u64,
}

/// Bytes that were handed over, and how many of them the file takes for durable.
#[derive(Debug)]
struct File {
    written_bytes: u64,
    synced_bytes: u64,
    /// Where the sync that runs goes.
    to_bytes: u64,
    failed: bool,
}

fn lost() -> Error {
    Error::new(ErrorKind::Io, "the device lost bytes")
}

impl Syncs for File {
    type Run = u64;
    fn written_bytes(&self) -> u64 {
        self.written_bytes
    }
    fn is_durable(&self, bytes: u64) -> Result<bool> {
        if self.failed { Err(lost()) } else { Ok(self.synced_bytes >= bytes) }
    }
    fn begin(&mut self) -> Result<u64> {
        self.to_bytes = self.written_bytes;
        Ok(self.to_bytes)
    }
    fn end(&mut self, ran: Result<()>) -> Result<()> {
        self.failed |= ran.is_err();
        self.synced_bytes = self.to_bytes;
        ran
    }
}

struct Shared {
    file: Beside<File>,
    device: Device,
}

impl Shared {
    fn new(fails: u64) -> Arc<Shared> {
        let file = File { written_bytes: 0, synced_bytes: 0, to_bytes: 0, failed: false };
        Arc::new(Shared { file: Beside::new(file), device: Device { fails, ..Device::default() } })
    }

    /// Appends a byte and makes it durable.
    fn write(&self) -> Result<()> {
        let end = {
            let mut file = self.file.lock();
            file.written_bytes += 1;
            file.written_bytes
        };
        let synced = self.file.sync(|to_bytes| self.run(to_bytes));
        if synced.is_ok() {
            assert!(self.device.durable_bytes.load(Ordering::Acquire) >= end, "acknowledged and not durable");
        }
        synced
    }

    fn run(&self, to_bytes: u64) -> Result<()> {
        let device = &self.device;
        assert_eq!(device.running.fetch_add(1, Ordering::AcqRel), 0, "two syncs of one file at once");
        let number = device.syncs.fetch_add(1, Ordering::AcqRel) + 1;
        let ran = if number == device.fails { Err(lost()) } else { Ok(()) };
        if ran.is_ok() {
            device.durable_bytes.store(to_bytes, Ordering::Release);
        }
        device.running.fetch_sub(1, Ordering::AcqRel);
        ran
    }
}

fn spawn(
    shared: &Arc<Shared>,
    body: impl FnOnce(&Shared) -> Result<()> + 'static,
) -> thread::JoinHandle<Result<()>> {
    let shared = shared.clone();
    thread::spawn(move || body(&shared))
}

#[test]
fn loom_what_is_acknowledged_is_durable_and_nobody_sleeps_for_ever() {
    check(3, || {
        let shared = Shared::new(0);
        let others = [spawn(&shared, Shared::write), spawn(&shared, Shared::write)];
        shared.write().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap().unwrap());
        assert!(shared.device.syncs.load(Ordering::Acquire) <= 3);
    });
}

/// A writer appends while a sync runs, without waiting for it.
#[test]
fn loom_who_does_not_sync_does_not_wait() {
    check(3, || {
        let shared = Shared::new(0);
        let other = spawn(&shared, |shared| {
            shared.file.sync(|to_bytes| {
                // As long as this runs nobody ends it: an append that waited would be a deadlock.
                let appends = shared.file.lock().written_bytes;
                shared.file.lock().written_bytes = appends + 1;
                shared.run(to_bytes)
            })
        });
        shared.write().unwrap();
        other.join().unwrap().unwrap();
    });
}

/// The first sync fails: none of the writers that wait is told that its bytes are durable, now or later.
#[test]
fn loom_a_failure_is_told_to_all() {
    check(3, || {
        let shared = Shared::new(1);
        let others = [spawn(&shared, Shared::write), spawn(&shared, Shared::write)];
        assert!(shared.write().is_err());
        others.into_iter().for_each(|other| assert!(other.join().unwrap().is_err()));
    });
}

/// Whoever finishes the file finds no sync under way.
#[test]
fn loom_a_settled_file_is_not_being_synced() {
    check(3, || {
        let shared = Shared::new(0);
        let other = spawn(&shared, Shared::write);
        {
            let _file = shared.file.settled();
            assert_eq!(shared.device.running.load(Ordering::Acquire), 0);
        }
        other.join().unwrap().unwrap();
    });
}
