//! Atomics under a schedule: there is a scheduling point before every operation.

use super::schedule::{Act, point};

pub use std::sync::atomic::{Ordering, fence};

/// The operations that all atomics have.
macro_rules! atomic {
    ($name:ident, $value:ty) => {
        #[doc = concat!("As [`std::sync::atomic::", stringify!($name), "`].")]
        #[derive(Debug, Default)]
        pub struct $name(std::sync::atomic::$name);

        impl From<$value> for $name {
            fn from(value: $value) -> Self {
                $name::new(value)
            }
        }

        #[allow(missing_docs, reason = "as in the standard library")]
        impl $name {
            pub const fn new(value: $value) -> Self {
                $name(std::sync::atomic::$name::new(value))
            }
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
            #[track_caller]
            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                point(Act::Load);
                self.0.load(order)
            }
            #[track_caller]
            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                point(Act::Store);
                self.0.store(value, order);
            }
            #[track_caller]
            #[inline]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point(Act::Store);
                self.0.swap(value, order)
            }
            #[track_caller]
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point(Act::Store);
                self.0.compare_exchange(current, new, success, failure)
            }
            #[track_caller]
            #[inline]
            pub fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                point(Act::Store);
                self.0.fetch_update(set_order, fetch_order, change)
            }
        }
    };
}

/// The operations that change an atomic and return its former value.
macro_rules! fetches {
    ($name:ident, $value:ty, $($operation:ident),*) => {
        #[allow(missing_docs, reason = "as in the standard library")]
        impl $name {
            $(
                #[track_caller]
                #[inline]
                pub fn $operation(&self, value: $value, order: Ordering) -> $value {
                    point(Act::Store);
                    self.0.$operation(value, order)
                }
            )*
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU16, u16);
atomic!(AtomicU64, u64);
atomic!(AtomicUsize, usize);
fetches!(AtomicBool, bool, fetch_or, fetch_and);
fetches!(AtomicU16, u16, fetch_add, fetch_sub, fetch_max, fetch_min);
fetches!(AtomicU64, u64, fetch_add, fetch_sub, fetch_max, fetch_min);
fetches!(AtomicUsize, usize, fetch_add, fetch_sub, fetch_max, fetch_min);
