//! Several engines in one manifest, each of them present or absent.

#![allow(missing_docs, reason = "tests")]

mod crashes;
mod golden;
mod ledger;
mod machine;
mod newer;
