//! Several engines in one manifest: what each of them sees when others are there, and when it or they are not.

#![allow(missing_docs, reason = "tests")]

mod crashes;
mod golden;
mod ledger;
mod machine;
mod newer;
