//! Every test of files runs against both engines, in a directory of its own. Where the kernel
//! refuses io_uring, or a file system or privilege is missing, a line reports this and that part is
//! skipped.

mod append;
mod device;
mod files;
mod names;
#[cfg(feature = "faults")]
mod refusals;
mod system;

use super::{IoEngine, KernelOptions, probe_io_uring};
use crate::{AppendFile, CreateOptions, Env, PAGE, Rng};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Held by tests of thread priorities: a watch of these calls sees those of the whole process.
static PRIORITIES: std::sync::Mutex<()> = std::sync::Mutex::new(());

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A directory that is removed at the end.
pub(super) struct Temp(pub(super) PathBuf);

impl Temp {
    pub(super) fn new() -> Temp {
        let name = format!("lavastore-io-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Temp(path)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A small tmpfs that is unmounted at the end.
struct SmallVolume(Temp);

impl SmallVolume {
    fn mount(len_bytes: usize) -> Option<SmallVolume> {
        let dir = Temp::new();
        let size = format!("size={len_bytes}");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&dir.0).output();
        if done.is_ok_and(|out| out.status.success()) {
            return Some(SmallVolume(dir));
        }
        println!("skipped: a small volume cannot be mounted here");
        None
    }
}

impl Drop for SmallVolume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0.0).output();
    }
}

fn env(engine: IoEngine) -> Env {
    Env::kernel_with(KernelOptions { engine })
}

fn each_env(test: impl Fn(&Env)) {
    test(&env(IoEngine::Portable));
    match probe_io_uring() {
        Ok(()) => test(&env(IoEngine::IoUring)),
        Err(e) => println!("skipped for io_uring: {e}"),
    }
}

fn each_engine(test: impl Fn(&Env, &Path)) {
    each_env(|env| {
        let dir = Temp::new();
        test(env, &dir.0);
    });
}

fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// The smallest buffer, so that small tests cross its end often.
fn small_options(access: crate::Access) -> CreateOptions {
    CreateOptions { access, write_buffer_len: PAGE, ..CreateOptions::default() }
}

fn write_file(env: &Env, path: &Path, bytes: &[u8]) {
    let mut file: Box<dyn AppendFile> = env.fs.create(path, &CreateOptions::default()).unwrap();
    file.append(bytes).unwrap();
    file.flush().unwrap();
}
