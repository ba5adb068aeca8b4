//! Common part of the command line tests: a scratch directory, and the program run in it.
#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory that is removed at the end of the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("lava-cli-{name}-{}-{nth}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn file(&self, name: &str, text: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Runs `lava` on the store `db` of this directory.
    pub fn lava(&self, args: &[&str]) -> Output {
        run(&self.path("db"), args, &self.0)
    }

    /// Returns the standard output of a command that must succeed.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.lava(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "lava {args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error of a command that must fail with `status`: exactly one line that starts
    /// with the program's name.
    pub fn fails(&self, status: i32, args: &[&str]) -> String {
        let output = self.lava(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "lava {args:?}: {stderr}");
        assert!(
            stderr.starts_with("lava: ") && stderr.ends_with('\n') && stderr.lines().count() == 1,
            "{stderr}"
        );
        stderr
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn run(db: &Path, args: &[&str], dir: &Path) -> Output {
    lava(dir).args(args).arg("--db").arg(db).output().unwrap()
}

/// Returns the program, in a directory, without a terminal or input.
pub fn lava(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lava"));
    command.env_remove("LAVA_DB").current_dir(dir).stdin(Stdio::null());
    command
}

/// Returns the files of the store with this suffix.
pub fn files(s: &Scratch, end: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(s.path("db")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.to_str().unwrap().ends_with(end)).collect()
}

/// Changes a byte of a file.
pub fn damage(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}
