//! What everything else is given: options, events, statistics, health.
//!
//! * `options`, `ablation`: what a user asks for, checked.
//! * `event`, `stats`: what is told and counted.

pub(crate) mod ablation;
pub(crate) mod event;
pub(crate) mod health;
pub(crate) mod options;
pub(crate) mod stats;
