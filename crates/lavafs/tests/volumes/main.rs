//! Volumes: a model, damage, two devices, golden files, and the mistakes of other file systems.

mod damage;
mod golden;
mod model;
mod traps;
mod two_devices;
mod unzeroed;
