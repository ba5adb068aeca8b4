//! Asynchronous requests for one thread.

use crate::batch::LavaBatch;
use crate::completions::Completion;
use crate::error::LavaError;
use crate::ffi::{Slice, call, free, give, handle, handle_mut, place, quiet};
use crate::iter::range_of;
use crate::store::{LavaDb, LavaFamily};
use crate::write::options_of;
use lavastore::{AnyRequest, RequestOptions, RequestQueue, Requests, Result};
use std::ptr::null;
use std::time::Duration;

/// A `lava_queue`.
#[derive(Debug)]
pub struct LavaQueue {
    requests: Requests,
    queue: RequestQueue,
}

/// `LAVA_QUEUE_STOP_AT_FAILURE`.
const STOP_AT_FAILURE: u32 = 32;

/// Submits a request for a family with a token.
///
/// # Safety
/// The caller must follow the rules of the header.
unsafe fn submit<R: Into<AnyRequest>>(
    queue: *mut LavaQueue,
    family: *const LavaFamily,
    token: u64,
    error: *mut *mut LavaError,
    request: impl FnOnce(&Requests) -> Result<R>,
) -> u32 {
    let submit = || {
        // SAFETY: guaranteed by the caller.
        let (queue, family) = unsafe { (handle_mut(queue)?, family.as_ref()) };
        let request = match family {
            Some(family) => request(&queue.requests.family(&family.0))?,
            None => request(&queue.requests)?,
        };
        queue.queue.submit(request, token);
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { call(error, submit) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_queue_new(
    db: *mut LavaDb,
    depth: u32,
    how: u32,
    queue: *mut *mut LavaQueue,
    error: *mut *mut LavaError,
) -> u32 {
    let make = || {
        // SAFETY: the caller follows the rules of the header.
        let (db, queue) = unsafe { (handle(db)?, place(queue)?) };
        let mut options = RequestOptions {
            write: options_of(how & !STOP_AT_FAILURE)?,
            stop_at_first_failure: how & STOP_AT_FAILURE != 0,
            ..RequestOptions::default()
        };
        if depth > 0 {
            options.depth = depth as usize;
        }
        let requests = db.0.requests(&options)?;
        let own = requests.queue();
        *queue = give(LavaQueue { requests, queue: own });
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, make) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_queue_free(queue: *mut LavaQueue) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { free(queue) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_queue_resume(queue: *const LavaQueue) {
    // SAFETY: the caller follows the rules of the header.
    if let Some(queue) = unsafe { queue.as_ref() } {
        queue.requests.resume();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_submit_put(
    queue: *mut LavaQueue,
    family: *const LavaFamily,
    key: Slice,
    value: Slice,
    token: u64,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { submit(queue, family, token, error, |requests| requests.put(key.bytes()?, value.bytes()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_submit_delete(
    queue: *mut LavaQueue,
    family: *const LavaFamily,
    key: Slice,
    token: u64,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { submit(queue, family, token, error, |requests| requests.delete(key.bytes()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_submit_write(
    queue: *mut LavaQueue,
    batch: *const LavaBatch,
    token: u64,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { submit(queue, null(), token, error, |requests| requests.write(handle(batch)?.0.clone())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_submit_get(
    queue: *mut LavaQueue,
    family: *const LavaFamily,
    key: Slice,
    token: u64,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { submit(queue, family, token, error, |requests| requests.get(key.bytes()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_submit_multi_get(
    queue: *mut LavaQueue,
    family: *const LavaFamily,
    keys: *const Slice,
    count: usize,
    token: u64,
    error: *mut *mut LavaError,
) -> u32 {
    let copied = || -> Result<Vec<Vec<u8>>> {
        let mut own = Vec::new();
        for i in 0..count {
            // SAFETY: by the rules of the header there are `count` slices if `keys` is not NULL.
            let key = unsafe { handle(if keys.is_null() { keys } else { keys.add(i) })?.bytes()? };
            own.push(key.to_vec());
        }
        Ok(own)
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { submit(queue, family, token, error, |requests| requests.multi_get(copied()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_submit_scan(
    queue: *mut LavaQueue,
    family: *const LavaFamily,
    start: Slice,
    end: Slice,
    limit: usize,
    token: u64,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { submit(queue, family, token, error, |requests| requests.scan(range_of(start, end)?, limit)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_submit_flush(
    queue: *mut LavaQueue,
    token: u64,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { submit(queue, null(), token, error, Requests::flush) }
}

/// Hands out a finished request.
///
/// # Safety
/// The caller must follow the rules of the header.
unsafe fn take(
    queue: *mut LavaQueue,
    completion: *mut Completion,
    next: impl FnOnce(&mut RequestQueue) -> Option<(u64, Result<lavastore::Outcome>)>,
) -> bool {
    // SAFETY: guaranteed by the caller.
    let (queue, room) = unsafe { (queue.as_mut(), completion.as_mut()) };
    // Without a place for the completion, nothing is taken from the queue.
    let (Some(queue), Some(room)) = (queue, room) else { return false };
    let over = quiet(None, || next(&mut queue.queue));
    let is_over = over.is_some();
    if let Some((token, outcome)) = over {
        *room = Completion::new(token, outcome);
    }
    is_over
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_poll(queue: *mut LavaQueue, completion: *mut Completion) -> bool {
    // SAFETY: the caller follows the rules of the header.
    unsafe { take(queue, completion, RequestQueue::poll) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_wait(
    queue: *mut LavaQueue,
    timeout_us: u64,
    completion: *mut Completion,
) -> bool {
    let longest = (timeout_us < u64::MAX).then(|| Duration::from_micros(timeout_us));
    // SAFETY: the caller follows the rules of the header.
    unsafe { take(queue, completion, |queue| queue.wait(longest)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_queue_len(queue: *const LavaQueue) -> usize {
    // SAFETY: the caller follows the rules of the header.
    unsafe { queue.as_ref() }.map_or(0, |queue| queue.queue.len())
}
