//! Parts of `examples/raft_kv` alone: invalid frames, and repeated writes.

#![allow(missing_docs, reason = "openraft's macro makes a public type")]
#![allow(dead_code, reason = "the example has more")]

#[path = "../../examples/raft_kv/frame.rs"]
mod frame;
#[path = "../../examples/raft_kv/kv.rs"]
mod kv;

use frame::{LEN_MAX, receive, send};
use kv::{Kv, Made, Put, Types, key_of};
use lavastore::testing::SimEnv;
use openraft::storage::RaftStateMachine;
use openraft::testing::log_id;
use openraft::{Entry, EntryPayload};
use openraft_lavalog::{Options, Store};
use std::io::{Error, ErrorKind};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn received(bytes: &[u8]) -> Result<(u64, String), Error> {
    block_on(receive(&mut &bytes[..]))
}

#[test]
fn messages_round_trip_and_malformed_ones_are_refused() {
    let (message, mut frame) = ((7u64, "text".to_owned()), Vec::new());
    block_on(send(&mut frame, &message)).unwrap();
    assert_eq!(received(&frame).unwrap(), message);
    for cut in 0..frame.len() {
        assert_eq!(received(&frame[..cut]).unwrap_err().kind(), ErrorKind::UnexpectedEof, "{cut}");
    }
    let mut longer = frame.clone();
    longer.push(0);
    longer[0] += 1;
    let told = received(&longer).unwrap_err();
    assert_eq!(told.to_string(), "a frame is longer than its message");
    let endless = u32::MAX.to_le_bytes();
    let told = received(&endless).unwrap_err();
    assert!(told.to_string().contains("is longer than"), "{told}");
    let told = block_on(send(&mut Vec::new(), &"x".repeat(LEN_MAX))).unwrap_err();
    assert!(told.to_string().contains("is longer than"), "{told}");
}

/// A late copy of a write does not undo later ones.
#[test]
fn a_repeated_write_is_applied_once() {
    let store = Store::open_in(&SimEnv::new(1).env(), "/node", &Options::default()).unwrap();
    let (_log, mut machine) = store.group::<Types, _>("kv", Kv).unwrap();
    let put = |number, value: &str| Put { client: 3, number, key: "a".to_owned(), value: value.into() };
    let puts = [put(1, "old"), put(1, "old"), put(2, "new"), put(1, "old")];
    let entries = (0u64..).zip(puts).map(|(index, put)| Entry::<Types> {
        log_id: log_id(1, 0, index),
        payload: EntryPayload::Normal(put),
    });
    let made = block_on(machine.apply(entries)).unwrap();
    assert_eq!(made, [Made::Now, Made::Before, Made::Now, Made::Before]);
    let found = machine.state().family().get(key_of("a")).unwrap();
    assert_eq!(found.as_deref(), Some(&b"new"[..]));
}
