//! The kernel environment.
