//! Whole stores by the public interface: what the facade adds, keys and logs in one store, golden stores, requests, and examples.

mod asynchronous;
mod facade;
mod golden_placed;
mod golden_store;
mod keys_and_logs;
mod ledger_example;
mod logs;
mod page_server_example;
mod poison;
mod queue_example;
mod scale;
mod sessions_example;
mod transactions;
mod upgraded;
