//! Child processes of a test.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Timeout after which a child counts as hanging.
const LONGEST: Duration = Duration::from_secs(30);

/// A child process.
pub struct Child {
    pid: libc::pid_t,
    said: PipeReader,
}

/// Forks a child that runs `body` and exits, without unwinding into the test harness.
pub fn fork(body: impl FnOnce(&mut PipeWriter) -> Result<(), String>) -> Child {
    let (said, mut says) = std::io::pipe().expect("a pipe");
    // SAFETY: the child uses nothing of the vanished threads. The glibc allocator supports fork,
    // and these tests check that the store does.
    match unsafe { libc::fork() } {
        0 => {
            drop(said);
            let ran = catch_unwind(AssertUnwindSafe(|| body(&mut says)));
            let outcome = ran.unwrap_or_else(|panic| Err(format!("the child panicked: {}", words(&*panic))));
            if let Err(why) = &outcome {
                let _ = says.write_all(why.as_bytes());
            }
            // SAFETY: ends the process without running the exit handlers of the parent.
            unsafe { libc::_exit(i32::from(outcome.is_err())) }
        }
        pid => {
            assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
            Child { pid, said }
        }
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words.or_else(|| panic.downcast_ref::<&str>().map(|&words| words.to_owned())).unwrap_or_default()
}

impl Child {
    /// Waits for the end of the child. Returns its output if it succeeded.
    pub fn end(mut self) -> Result<String, String> {
        let begun = Instant::now();
        let mut status = 0;
        loop {
            // SAFETY: a child of this process, and a valid place for its status.
            match unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) } {
                0 if begun.elapsed() > LONGEST => {
                    self.kill();
                    return Err("the child hangs".to_owned());
                }
                0 => std::thread::sleep(Duration::from_millis(1)),
                _ => break,
            }
        }
        let mut said = String::new();
        self.said.read_to_string(&mut said).map_err(|e| e.to_string())?;
        match libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
            true => Ok(said),
            false => Err(format!("the child ended with status {status:#x}: {said}")),
        }
    }

    /// Process id.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Reads the first line of the child's output.
    pub fn line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while self.said.read(&mut byte).is_ok_and(|n| n == 1) && byte != *b"\n" {
            line.extend(byte);
        }
        String::from_utf8(line).expect("a line of text")
    }

    /// Kills the child.
    pub fn kill(&self) {
        kill(self.pid);
    }
}

/// Kills a process, and reaps it if it is a child.
pub fn kill(pid: libc::pid_t) {
    // SAFETY: a process of this test that has not been waited for.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}
