//! Checks of the code structure: layers, lengths of files and functions, module comments.
//!
//! Each check is a function of the text it judges, and has tests that show it fail ([`decisions`],
//! [`functions`], [`imports`], [`methods`], [`structs`]).

#![allow(clippy::disallowed_methods, reason = "reads the sources, not a store")]

mod compare;
mod decisions;
mod errors;
mod facade;
mod functions;
mod imports;
mod kernel;
mod layers;
mod methods;
mod publish;
mod scripts;
mod sources;
mod structs;
mod threads;
