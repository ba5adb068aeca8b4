//! A short run of `examples/page_server`, which compares every page that it reads, and a check that
//! it detects a wrong page.
#![allow(clippy::disallowed_methods, reason = "the example is a program of its own")]

#[path = "../../examples/page_server/main.rs"]
mod page_server;

use page_server::server::PAGE_BYTES;
use page_server::{Model, redo, run};

#[test]
fn pages_match_their_lsn_under_load_and_after_reopen() {
    let dir = std::env::temp_dir().join(format!("lavastore-page-server-test-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let outcome = run(&dir, 1.0);
    std::fs::remove_dir_all(&dir).unwrap();
    outcome.unwrap();
}

#[test]
fn a_page_with_a_wrong_lsn_is_detected() {
    let model = Model::default();
    model.draw(0, 1);
    let record = redo(0, 1);
    let mut page = vec![0; PAGE_BYTES];
    assert!(model.check(record.page, 0, &page).is_ok());
    assert!(model.check(record.page, 1, &page).is_err());
    record.apply(&mut page);
    assert!(model.check(record.page, 1, &page).is_ok());
    assert!(model.check(record.page, 0, &page).is_err());
}
