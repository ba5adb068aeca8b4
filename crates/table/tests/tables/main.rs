//! Tables, vSSTs and value segments: models, damage, the cost of reads, and files that are checked in.

extern crate lavastore_table as table;

mod common;
mod damage;
mod golden;
mod model;
mod prefixes;
mod reads;
mod resealed;
mod salvage;
mod scans;
mod sealed;
mod segments;
mod vsst;
mod vsst_arrival;
mod vsst_damage;
mod vsst_golden;
mod waits;
