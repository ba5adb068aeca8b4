//! Runs the example and checks its claim: an engine of less than 300 lines alone on a store.

extern crate lavastore_store as store;

mod absence;
mod crashes;
#[path = "../../examples/toy_log/engine.rs"]
mod engine;
mod model;
mod removal;
#[path = "../../examples/toy_log/story.rs"]
mod story;

#[test]
fn the_toy_log_appends_recovers_trims_and_group_commits() {
    let mut told = Vec::new();
    story::tell(&mut |line| told.push(line.to_owned()));
    assert_eq!(told.len(), 4, "{told:#?}");
}

#[test]
fn the_toy_log_has_fewer_than_300_lines() {
    assert!(include_str!("../../examples/toy_log/engine.rs").lines().count() < 300);
}
