//! Progress of a command without a record count, on standard error if that is a terminal.

use bench::report::human_bytes;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Interval between two updates.
const TICK: Duration = Duration::from_millis(500);

/// Runs `work` and meanwhile shows `text` for the elapsed time, on one line that is removed at the
/// end.
pub fn shown<T>(text: impl Fn(Duration) -> String + Send, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut passed = Duration::ZERO;
            loop {
                let _ = write!(std::io::stderr(), "\r{}\x1b[K", text(passed));
                if is_done.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                passed += TICK;
            }
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        });
        let result = work();
        drop(done);
        result
    })
}

/// Returns the text for the bytes read by this process since this call, of about `total` (0:
/// unknown).
pub fn of_reading(what: &'static str, total: u64) -> impl Fn(Duration) -> String + Send {
    let before = bytes_read();
    move |passed| reading_text(what, bytes_read().saturating_sub(before), total, passed)
}

fn reading_text(what: &str, read: u64, total: u64, passed: Duration) -> String {
    let rate = human_bytes((read as f64 / passed.as_secs_f64().max(0.001)) as u64);
    // The count may exceed the total if data is read again.
    let of = if total > read { format!(" of about {}", human_bytes(total)) } else { String::new() };
    format!("{what}: read {}{of} at {rate}/s, {} s", human_bytes(read), passed.as_secs())
}

/// Bytes returned by read calls of this process.
fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("rchar:")?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_progress_shows_rate_and_remaining_time() {
        let text = |read, total| reading_text("verify", read, total, Duration::from_secs(2));
        assert_eq!(text(4 << 20, 16 << 20), "verify: read 4.00 MiB of about 16.00 MiB at 2.00 MiB/s, 2 s");
        assert_eq!(text(4 << 20, 0), "verify: read 4.00 MiB at 2.00 MiB/s, 2 s");
        assert_eq!(text(4 << 20, 1), "verify: read 4.00 MiB at 2.00 MiB/s, 2 s");
    }

    #[test]
    fn process_read_bytes_are_counted() {
        let before = bytes_read();
        assert!(!std::fs::read_to_string("/proc/self/status").unwrap().is_empty());
        assert!(bytes_read() > before);
    }
}
