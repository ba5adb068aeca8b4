//! Clock, threads, randomness, engines, counters.

use super::*;
use crate::kernel::{calls, ffi, page_cache, system, usage};
use crate::{Access, AlignedBuf, Priority};
use base::ErrorKind;
use std::sync::mpsc;

#[test]
fn the_clock_moves_forward() {
    let env = Env::kernel();
    let start = env.clock.now_ns();
    env.clock.sleep_ns(2_000_000);
    assert!(env.clock.now_ns() >= start + 2_000_000);
    assert!(env.clock.unix_seconds() > 1_600_000_000);
}

/// The slack of a thread is the user's: a short sleep is on time, and restores it.
#[test]
fn a_short_sleep_gives_back_the_slack_of_the_thread() {
    let env = Env::kernel();
    let set = |ns| rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(ns)).unwrap();
    for (own, ns) in [(77_000, 30_000), (1, 30_000), (66_000, 1_500_000)] {
        set(own);
        let (start, before) = (env.clock.now_ns(), calls::timer_slack_ns());
        env.clock.sleep_ns(ns);
        assert!(env.clock.now_ns() >= start + ns);
        assert_eq!((before, calls::timer_slack_ns()), (own, own));
    }
    // During the sleep the kernel has no slack.
    let seen = system::on_time(calls::timer_slack_ns);
    assert_eq!((seen, calls::timer_slack_ns()), (1, 66_000));
}

#[test]
fn randomness_does_not_repeat() {
    let env = Env::kernel();
    assert_ne!(env.entropy.next_u64(), env.entropy.next_u64());
    assert_ne!(env.new_uid(), env.new_uid());
    assert!(!env.is_simulated());
}

fn nice_of_this_thread() -> i32 {
    rustix::process::getpriority_process(None).unwrap()
}

#[test]
fn threads_run_at_their_priority_and_report_panics() {
    let _alone = PRIORITIES.lock().unwrap();
    let env = Env::kernel();
    let spawner = env.spawner.as_ref().unwrap();
    let nice = |priority| {
        let (send, receive) = mpsc::channel();
        let body = Box::new(move || {
            let name = std::thread::current().name().map(str::to_owned);
            send.send((nice_of_this_thread(), name)).unwrap();
        });
        assert!(spawner.spawn("lava\0test", priority, body).unwrap().join());
        receive.recv().unwrap()
    };
    let own = nice_of_this_thread();
    assert_eq!(nice(Priority::Foreground), (own, Some("lava test".to_owned())));
    assert_eq!(nice(Priority::Background).0, (own + 10).min(19));
    assert_eq!(nice_of_this_thread(), own, "only the new thread is lowered");
    let panics = spawner.spawn("panics", Priority::Foreground, Box::new(|| panic!("on purpose"))).unwrap();
    assert!(!panics.join());
}

#[test]
fn background_threads_have_the_lowest_io_priority() {
    let _alone = PRIORITIES.lock().unwrap();
    let env = Env::kernel();
    let spawner = env.spawner.as_ref().unwrap();
    let of = |priority| {
        let (send, receive) = mpsc::channel();
        let body = Box::new(move || send.send(ffi::io_priorities()).unwrap());
        assert!(spawner.spawn("lava test", priority, body).unwrap().join());
        receive.recv().unwrap()
    };
    let (foreground, lowest) = of(Priority::Foreground);
    assert_ne!(foreground, lowest);
    match of(Priority::Background).0 {
        own if own == lowest => {}
        own if own == foreground => println!("skipped: the system does not let I/O priorities be changed"),
        own => panic!("{own:#x}"),
    }
}

#[test]
fn the_requested_io_engine_is_used() {
    assert!(format!("{:?}", env(IoEngine::Portable)).contains("portable"));
    let expected = if probe_io_uring().is_ok() { "io_uring" } else { "portable" };
    for engine in [IoEngine::Auto, IoEngine::IoUring] {
        assert!(format!("{:?}", env(engine)).contains(expected));
    }
}

#[test]
fn io_counters_advance() {
    let env = Env::kernel();
    let dir = Temp::new();
    let device_before = usage::device(&dir.0);
    let before = match usage::process() {
        Ok(usage) => usage,
        Err(e) => return println!("skipped: {e}"),
    };
    let file = env.fs.create_in_place(&dir.0.join("a"), 1 << 20, Access::Direct).unwrap();
    file.write_durable(&AlignedBuf::zeroed(1 << 20), 0).unwrap();
    let after = usage::process().unwrap();
    assert!(after.cpu_ns > before.cpu_ns && after.rss_peak_bytes >= after.rss_bytes && after.rss_bytes > 0);
    match (device_before, usage::device(&dir.0)) {
        (Ok(from), Ok(to)) => {
            assert!(after.write_bytes >= before.write_bytes + (2 << 20));
            assert!(to.writes > from.writes && to.write_bytes >= from.write_bytes + (2 << 20));
        }
        (_, Err(e)) => {
            assert_eq!(e.kind(), ErrorKind::Unsupported);
            println!("skipped for the device: {e}");
        }
        (Err(e), _) => panic!("{e}"),
    }
    let missing = usage::device(&dir.0.join("no")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a file that somebody else has written")]
fn a_file_evicted_from_the_page_cache_is_read_from_the_device() {
    let env = Env::kernel();
    let dir = Temp::new();
    let path = dir.0.join("a");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    page_cache::forget(&path).unwrap();
    let before = usage::process();
    let mut found = vec![0; 1 << 20];
    env.fs.open(&path, Access::Buffered).unwrap().read_at(&mut found, 0).unwrap();
    assert!(found.iter().all(|byte| *byte == 7));
    match (before, usage::process(), usage::device(&dir.0)) {
        (Ok(from), Ok(to), Ok(_)) => assert!(to.read_bytes >= from.read_bytes + (1 << 20)),
        _ => println!("skipped: no counters here"),
    }
    assert_eq!(page_cache::forget(&dir.0.join("no")).unwrap_err().kind(), ErrorKind::NotFound);
}

/// Run by [`a_thread_that_cannot_start_is_an_error`] in a process in which every thread asks for
/// more memory than exists.
#[test]
#[ignore = "needs a process in which no thread can start"]
fn thread_spawn_fails_without_memory() {
    let spawner = Env::kernel().spawner.unwrap();
    let e = spawner.spawn("lava test", Priority::Foreground, Box::new(|| ())).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Io);
    assert!(e.message().contains("thread lava test") && e.io_error().is_some(), "{e}");
}

#[test]
fn a_thread_that_cannot_start_is_an_error() {
    let name = "kernel::tests::system::thread_spawn_fails_without_memory";
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", name, "--test-threads=1"])
        .env("RUST_MIN_STACK", (1_u64 << 60).to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
}
