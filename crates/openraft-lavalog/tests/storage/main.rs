//! The storage of Raft groups: openraft's own tests, damage, schedules of threads, and parts of the example.

mod damage;
mod raft_kv_parts;
mod schedules;
mod suite;
