//! The shape of the code base, checked: layers point down, files and functions stay short, modules say what they are.
//!
//! Each check is a function of the text it judges, and has tests of its own that show it fail ([`decisions`], [`functions`], [`imports`], [`methods`], [`structs`]).

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
