//! Both sides on one simulated machine: the client's pauses run the server.

use super::format::{self, LEN_MAX};
use super::names::{Id, RequestFile};
use super::server::write;
use super::*;
use base::{Error, ErrorKind, Result};
use io::sim::SimEnv;
use io::{Env, FileLock};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

const STORE: &str = "/store";
const TAKE_WITHIN: Duration = Duration::from_secs(10);

/// Creates a store directory, and takes the lock of the process that has it open.
fn store(env: &Env) -> Box<dyn FileLock> {
    env.fs.create_dir_all(Path::new(STORE)).unwrap();
    write(env, Path::new(STORE), ("CURRENT.tmp", "CURRENT"), "x").unwrap();
    env.fs.lock(Path::new("/store/LOCK"), "process 1").unwrap()
}

fn ask(env: &Env, target: &str, tell: &mut dyn FnMut(CheckpointRequest)) -> Result<()> {
    request_checkpoint(env, Path::new(STORE), Path::new(target), TAKE_WITHIN, tell)
}

/// Runs the server: scans, and serves the requests that it took.
fn tend(mailbox: &Mailbox, checkpoint: &dyn Fn(&Path) -> Result<()>) {
    if mailbox.is_due() && mailbox.look() {
        mailbox.serve(checkpoint);
    }
}

fn path(id: Id, part: RequestFile) -> PathBuf {
    Path::new(STORE).join(DIR).join(id.name(part))
}

/// Writes a file of a request, and takes the lock that marks its client as alive.
fn put(env: &Env, id: Id, part: RequestFile, text: &str) -> Box<dyn FileLock> {
    env.fs.create_dir_all(&directory(Path::new(STORE))).unwrap();
    let lock = env.fs.lock(&path(id, RequestFile::Lock), "client").unwrap();
    write(env, &directory(Path::new(STORE)), ("x", &id.name(part)), text).unwrap();
    lock
}

fn answer_of(env: &Env, id: Id) -> Result<()> {
    format::outcome(&env.fs.read_all(&path(id, RequestFile::Answer), LEN_MAX).unwrap())
}

fn has_no_requests(env: &Env) -> bool {
    !env.fs.exists(&directory(Path::new(STORE))).unwrap()
}

#[test]
fn a_request_is_served_within_two_seconds_and_leaves_nothing() {
    let env = SimEnv::new(1).env();
    let _lock = store(&env);
    let mailbox = Mailbox::new(&env, Path::new(STORE));
    let (made, states) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let begun_ns = env.clock.now_ns();
    let asked = ask(&env, "/a copy\n\\of it", &mut |state| {
        states.borrow_mut().push(state);
        tend(&mailbox, &|dir| {
            made.borrow_mut().push(dir.to_owned());
            Ok(())
        });
    });
    asked.unwrap();
    assert_eq!(*made.borrow(), [Path::new("/a copy\n\\of it")]);
    assert!(env.clock.now_ns() - begun_ns < 2_000_000_000);
    assert_eq!(states.borrow().first(), Some(&CheckpointRequest::Waiting));
    assert!(has_no_requests(&env));
}

#[test]
fn the_client_receives_the_checkpoint_error() {
    let env = SimEnv::new(2).env();
    let _lock = store(&env);
    let mailbox = Mailbox::new(&env, Path::new(STORE));
    let refused = ask(&env, "/copy", &mut |_| {
        tend(&mailbox, &|dir| Err(Error::new(ErrorKind::AlreadyExists, "not\nempty").at_file(dir)));
    });
    let e = refused.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::AlreadyExists);
    assert!(e.message().ends_with("made no checkpoint: not\nempty (file /copy)"), "{e}");
    assert!(has_no_requests(&env));
}

#[test]
fn an_unserved_request_is_withdrawn() {
    let env = SimEnv::new(3).env();
    let _lock = store(&env);
    let begun_ns = env.clock.now_ns();
    let e = ask(&env, "/copy", &mut |state| assert_eq!(state, CheckpointRequest::Waiting)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Locked);
    assert!(e.message().contains("within 10 s"), "{e}");
    assert!(env.clock.now_ns() - begun_ns < 11_000_000_000);
    assert!(has_no_requests(&env));
}

#[test]
fn the_end_of_the_process_ends_the_wait() {
    let env = SimEnv::new(4).env();
    let lock = RefCell::new(Some(store(&env)));
    let mailbox = Mailbox::new(&env, Path::new(STORE));
    // The process dies after it took the request.
    let e = ask(&env, "/copy", &mut |state| match state {
        CheckpointRequest::Waiting => drop(mailbox.is_due() && mailbox.look()),
        CheckpointRequest::Taken => drop(lock.take()),
    });
    let e = e.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Closed);
    assert!(e.message().contains("the store was closed before the requested checkpoint was reported"), "{e}");
    assert!(has_no_requests(&env));
}

#[test]
fn a_reopened_store_refuses_requests_taken_before() {
    let env = SimEnv::new(5).env();
    let _lock = store(&env);
    let before = put(&env, Id(1), RequestFile::Taken, &format::request(Path::new("/one")));
    let waits = put(&env, Id(2), RequestFile::Request, &format::request(Path::new("/two")));
    let mailbox = Mailbox::new(&env, Path::new(STORE));
    assert!(!mailbox.is_due() && !mailbox.look());
    env.clock.sleep_ns(LOOK_NS);
    let made = RefCell::new(Vec::new());
    tend(&mailbox, &|dir| {
        made.borrow_mut().push(dir.to_owned());
        Ok(())
    });
    assert_eq!(*made.borrow(), [Path::new("/two")]);
    assert_eq!(answer_of(&env, Id(1)).unwrap_err().kind(), ErrorKind::Closed);
    answer_of(&env, Id(2)).unwrap();
    drop((before, waits));
    // No client waits for the answers any more.
    env.clock.sleep_ns(LOOK_NS);
    tend(&mailbox, &|_| unreachable!());
    assert!(has_no_requests(&env));
}

#[test]
fn the_request_of_a_client_that_died_is_removed() {
    let env = SimEnv::new(6).env();
    let _lock = store(&env);
    drop(put(&env, Id(7), RequestFile::Request, &format::request(Path::new("/copy"))));
    let mailbox = Mailbox::new(&env, Path::new(STORE));
    env.clock.sleep_ns(LOOK_NS);
    tend(&mailbox, &|_| unreachable!("nobody waits for it"));
    assert!(has_no_requests(&env));
}

#[test]
fn malformed_requests_are_refused_and_foreign_files_stay() {
    let env = SimEnv::new(7).env();
    let _lock = store(&env);
    let good = format::request(Path::new("/copy"));
    let long = format!("{good}{}", "x".repeat(LEN_MAX));
    let cases = [
        ("", ErrorKind::InvalidArgument),
        ("lavastore request 1\n", ErrorKind::InvalidArgument),
        ("lavastore request 1\ncheckpoint /a", ErrorKind::InvalidArgument),
        ("lavastore request 1\ncheckpoint /a\nand more\n", ErrorKind::InvalidArgument),
        ("lavastore request 1\ncheckpoint \\x2\n", ErrorKind::InvalidArgument),
        ("lavastore request 1\ncheckpoint \\x+2\n", ErrorKind::InvalidArgument),
        ("lavastore request 1\ncheckpoint /a\\x00b\n", ErrorKind::InvalidArgument),
        ("lavastore request 1\ncheckpoint here\n", ErrorKind::InvalidArgument),
        ("lavastore request 1\nremove /a\n", ErrorKind::InvalidArgument),
        ("lavastore request 2\ncheckpoint /a\n", ErrorKind::Unsupported),
        ("lavastore answer 1\ndone\n", ErrorKind::InvalidArgument),
        (&long, ErrorKind::Corruption),
    ];
    let locks: Vec<_> =
        (0..).zip(&cases).map(|(n, (text, _))| put(&env, Id(n), RequestFile::Request, text)).collect();
    write(&env, &directory(Path::new(STORE)), ("x", "1.request"), &good).unwrap();
    let mailbox = Mailbox::new(&env, Path::new(STORE));
    env.clock.sleep_ns(LOOK_NS);
    tend(&mailbox, &|_| unreachable!("none is good"));
    for (n, (text, kind)) in (0..).zip(cases) {
        assert_eq!(answer_of(&env, Id(n)).unwrap_err().kind(), kind, "{text:.60}");
    }
    drop(locks);
    env.clock.sleep_ns(LOOK_NS);
    tend(&mailbox, &|_| unreachable!());
    let left: Vec<String> =
        env.fs.list(&directory(Path::new(STORE))).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(left, ["1.request"]);
}

#[test]
fn too_many_requests_are_refused() {
    let env = SimEnv::new(8).env();
    let _lock = store(&env);
    let text = format::request(Path::new("/copy"));
    let _locks: Vec<_> = (0..20).map(|n| put(&env, Id(n), RequestFile::Request, &text)).collect();
    let mailbox = Mailbox::new(&env, Path::new(STORE));
    env.clock.sleep_ns(LOOK_NS);
    let made = RefCell::new(0);
    tend(&mailbox, &|_| {
        *made.borrow_mut() += 1;
        Ok(())
    });
    assert_eq!(made.into_inner(), 16);
    let refused = (0..20).filter(|&n| answer_of(&env, Id(n)).is_err_and(|e| e.kind() == ErrorKind::Busy));
    assert_eq!(refused.count(), 4);
}

#[test]
fn the_client_refuses_relative_targets_and_missing_stores() {
    let env = SimEnv::new(9).env();
    assert_eq!(ask(&env, "/copy", &mut |_| {}).unwrap_err().kind(), ErrorKind::NotFound);
    let _lock = store(&env);
    assert_eq!(ask(&env, "copy", &mut |_| {}).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(has_no_requests(&env));
}

#[test]
fn a_request_removed_by_hand_ends_the_wait() {
    let env = SimEnv::new(10).env();
    let _lock = store(&env);
    let e = ask(&env, "/copy", &mut |_| {
        for entry in env.fs.list(&directory(Path::new(STORE))).unwrap() {
            if entry.name.ends_with(".request") {
                env.fs.remove(&directory(Path::new(STORE)).join(entry.name)).unwrap();
            }
        }
    });
    let e = e.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Closed);
    assert!(e.message().contains("removed without an answer"), "{e}");
}

#[test]
fn a_malformed_answer_is_corruption() {
    for text in
        ["", "done\n", "lavastore answer 1\n", "lavastore answer 1\ndone", "lavastore answer 1\nfailed io\n"]
    {
        assert_eq!(format::outcome(text.as_bytes()).unwrap_err().kind(), ErrorKind::Corruption, "{text}");
    }
    // An error kind of a later release.
    let later = "lavastore answer 1\nfailed out of luck\nmessage why\n";
    assert_eq!(format::outcome(later.as_bytes()).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn a_path_of_any_bytes_is_read_back() {
    let bytes: Vec<u8> = [b'/'].into_iter().chain(1..=255).collect();
    let path = Path::new(OsStr::from_bytes(&bytes));
    let text = format::request(path);
    assert!(text.is_ascii() && text.lines().count() == 2);
    assert_eq!(format::target(text.as_bytes()).unwrap(), path);
}
