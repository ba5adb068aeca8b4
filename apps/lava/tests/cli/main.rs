//! The command line from outside: each command, its exit statuses, its sentences and its manners.

mod commands;
#[path = "../common/mod.rs"]
mod common;
mod descriptors;
mod engines;
mod every_command;
mod examples;
mod fs;
mod help;
mod live_checkpoint;
mod log;
mod log_repair;
mod manners;
mod metrics;
mod mistakes;
mod repair;
mod speed;
mod statuses;
mod transfer;
mod upgrade;
