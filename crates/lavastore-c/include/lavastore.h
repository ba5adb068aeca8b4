/*
 * LavaStore for C: an embeddable, ordered, durable key-value store.
 *
 *     cargo build --release -p lavastore-c
 *     cc -I crates/lavastore-c/include program.c target/release/liblavastore_c.a -lpthread -lm -ldl
 *
 * Rules for every function:
 *
 * - A function that may fail returns a lava_status and takes a `lava_error **` last, which may be
 *   NULL. LAVA_OK is success. With any other status `*error` is an error that the caller frees with
 *   lava_error_free, and no result is written.
 * - The caller frees each handle once, with the function of its name; freeing NULL does nothing.
 *   Handles may be freed in any order: each keeps open what it needs. lava_close closes a store,
 *   and so does freeing its last handle.
 * - Bytes go in as a lava_slice, and are copied if they are needed after the call. A returned slice
 *   belongs to its handle and is valid until the handle is freed (for an iterator: until it moves).
 * - Several threads may share a handle, except lava_iter, lava_batch, lava_options and lava_queue:
 *   use those in one thread at a time.
 * - After fork() a child can free the handles of its parent, which then does nothing, or end, or
 *   exec. Every other call with such a handle returns LAVA_FORKED and changes nothing. The child
 *   may open its own stores. vfork() and posix_spawn() are not affected.
 * - NULL in place of a handle is an error (LAVA_INVALID_ARGUMENT), except where a comment says "or
 *   NULL". A freed handle is not detected.
 */
#ifndef LAVASTORE_H
#define LAVASTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. It must equal lava_abi() of the linked library. */
#define LAVA_ABI 1
uint32_t lava_abi(void);

/* Result of a call. Numbers do not change; new ones may be added. */
typedef enum lava_status {
    LAVA_OK = 0,
    LAVA_CORRUPTION = 1,       /* Data on the disk is damaged. */
    LAVA_IO = 2,               /* An operation of the system failed. */
    LAVA_NO_SPACE = 3,         /* The disk is full or the space limit is reached. Deletes still work. */
    LAVA_INVALID_ARGUMENT = 4, /* An argument or an option is invalid. */
    LAVA_TOO_LARGE = 5,        /* A key, a value or a batch exceeds its size limit. */
    LAVA_NOT_FOUND = 6,        /* The named object does not exist. A missing key is no error. */
    LAVA_ALREADY_EXISTS = 7,   /* The object to create exists. */
    LAVA_TRIMMED = 8,          /* The record was trimmed from its log. */
    LAVA_LOCKED = 9,           /* Another process has the store open. */
    LAVA_UNSUPPORTED = 10,     /* This build cannot do it, or a newer version wrote the files. */
    LAVA_READ_ONLY = 11,       /* The store is open for reading. */
    LAVA_BUSY = 12,            /* The call would wait, or too many requests are in flight. Try again. */
    LAVA_CLOSED = 13,          /* The store is closed. */
    LAVA_POISONED = 14,        /* After an earlier failure the store is read-only until reopened. */
    LAVA_USER_CALLBACK = 15,   /* A callback of the program failed. */
    LAVA_FORKED = 16,          /* The handle was made before fork(), by a parent process. */
    LAVA_CANCELLED = 17,       /* The time limit of the call expired. */
    LAVA_CONFLICT = 18,        /* Another write changed a key that the call has read. */
    LAVA_BUG = 100,            /* A bug of the library. Close the store; its files are as after a crash. */
} lava_status;

typedef struct lava_db lava_db;
typedef struct lava_options lava_options;
typedef struct lava_family lava_family;
typedef struct lava_snapshot lava_snapshot;
typedef struct lava_batch lava_batch;
typedef struct lava_iter lava_iter;
typedef struct lava_value lava_value;
typedef struct lava_entries lava_entries;
typedef struct lava_queue lava_queue;
typedef struct lava_error lava_error;

/* Bytes. `data` may be NULL where `len` is 0. */
typedef struct lava_slice {
    const void *data;
    size_t len;
} lava_slice;

/* ---- Errors ---- */

/* Description with the file, offset, cause and remedy if known. NUL-terminated. */
const char *lava_error_message(const lava_error *error);
lava_status lava_error_status(const lava_error *error);
/* The file that is damaged or caused the error, or NULL. */
const char *lava_error_file(const lava_error *error);
void lava_error_free(lava_error *error);

/* ---- Options ---- */

/* Default options. */
lava_options *lava_options_new(void);
void lava_options_free(lava_options *options);
void lava_options_create_if_missing(lava_options *options, bool create);
void lava_options_cache_bytes(lava_options *options, uint64_t bytes);
void lava_options_memtable_bytes(lava_options *options, uint64_t bytes);
void lava_options_background_threads(lava_options *options, uint32_t threads);
/* Maximum size of the files of the store in bytes. 0: no limit but the volume. */
void lava_options_space_limit_bytes(lava_options *options, uint64_t bytes);
/* The same in percent of the volume, 1 to 100; it follows the size of the volume. 0: no limit. */
void lava_options_space_limit_percent(lava_options *options, uint8_t percent);
/* Longest wait of a call for the engine, as long as the device keeps up, in microseconds. */
void lava_options_stall_budget_us(lava_options *options, uint64_t us);
/* Budget of background reads and writes in bytes per second. 0: no budget. */
void lava_options_io_budget(lava_options *options, uint64_t bytes_per_s);
/* Removes deleted data from the disk while there are no writes, without a call. Default: true. */
void lava_options_rest(lava_options *options, bool rest);
/* Values of at least this many bytes are stored separately from their keys. */
void lava_options_min_blob_bytes(lava_options *options, uint64_t bytes);
/*
 * Options of families apply to the family `default` and to those that lava_family_create makes.
 * Merge operator: "counter", "max", "set_union", or "append:" with the delimiter in
 * hexadecimal digits. NULL: none. A family keeps the operator once it has one.
 */
void lava_options_merge_operator(lava_options *options, const char *name);
/*
 * Scans within one key prefix pass over tables without such a key. The prefix is this many first
 * bytes (0: none), or all bytes up to the delimiter.
 */
void lava_options_prefix_bytes(lava_options *options, uint8_t bytes);
void lava_options_prefix_delimiter(lava_options *options, uint8_t delimiter);
/* vLSM: short compaction chains, for bounded latencies and the least space. */
void lava_options_policy_vlsm(lava_options *options, bool vlsm);
/* File for periodic metrics in the Prometheus text format. NULL: no file. */
void lava_options_metrics_file(lava_options *options, const char *path);

/* ---- A store ---- */

/* `options` or NULL for the defaults. */
lava_status lava_open(const char *path, const lava_options *options, lava_db **db, lava_error **error);
lava_status lava_open_read_only(const char *path, const lava_options *options, lava_db **db, lava_error **error);
/*
 * Opens the present state of the store of the reader `db` (lava_open_read_only). `db` stays as it
 * is. Free both.
 */
lava_status lava_catch_up(lava_db *db, lava_db **now, lava_error **error);
/*
 * Changes the space limit while the store is open. 0: no limit. Above a lowered limit the store
 * admits only deletes until background work has shrunk it; other writes get LAVA_NO_SPACE.
 */
lava_status lava_set_space_limit_bytes(lava_db *db, uint64_t bytes, lava_error **error);
lava_status lava_set_space_limit_percent(lava_db *db, uint8_t percent, lava_error **error);
/*
 * Closes the store even while other handles exist, makes buffered writes durable, and reports
 * errors. Frees `db` whatever the result. Calls of other threads end. Later calls with a family, a
 * snapshot, an iterator or a queue of the store return LAVA_CLOSED; each of these must still be
 * freed. The directory may be opened again on return.
 */
lava_status lava_close(lava_db *db, lava_error **error);
/* Frees the handle; closes the store only if it is the last one. */
void lava_db_free(lava_db *db);

/*
 * Column families. A NULL `lava_family *` means the family `default`. Opening creates a missing
 * family.
 */
lava_status lava_family_open(lava_db *db, const char *name, lava_family **family, lava_error **error);
/* Creates a family with the options of families in `options` (NULL: the defaults). */
lava_status lava_family_create(lava_db *db, const char *name, const lava_options *options, lava_family **family, lava_error **error);
lava_status lava_family_drop(lava_db *db, lava_family *family, lava_error **error);
void lava_family_free(lava_family *family);

/* ---- Writes ---- */

/* Durability of a write, one of: */
#define LAVA_WRITE_DEFAULT 0u  /* as in the options of the store: buffered */
#define LAVA_WRITE_DURABLE 1u  /* survives a loss of power when the call returns */
#define LAVA_WRITE_BUFFERED 2u /* survives the death of the process, and a loss of power after a sync */
#define LAVA_WRITE_VOLATILE 3u /* in memory until it is flushed */
/* optionally combined with: */
#define LAVA_WRITE_NO_WAIT 16u /* returns LAVA_BUSY instead of waiting */

lava_status lava_put(lava_db *db, const lava_family *family, lava_slice key, lava_slice value, uint32_t how, lava_error **error);
/* Adds an operand to a key of a family with a merge operator. */
lava_status lava_merge(lava_db *db, const lava_family *family, lava_slice key, lava_slice operand, uint32_t how, lava_error **error);
lava_status lava_delete(lava_db *db, const lava_family *family, lava_slice key, uint32_t how, lava_error **error);
/* Deletes the keys from `start` on and below `end` (`data` NULL: no bound). */
lava_status lava_delete_range(lava_db *db, const lava_family *family, lava_slice start, lava_slice end, uint32_t how, lava_error **error);

/* An atomic batch of changes. */
lava_batch *lava_batch_new(void);
void lava_batch_free(lava_batch *batch);
lava_status lava_batch_put(lava_batch *batch, const lava_family *family, lava_slice key, lava_slice value, lava_error **error);
lava_status lava_batch_merge(lava_batch *batch, const lava_family *family, lava_slice key, lava_slice operand, lava_error **error);
lava_status lava_batch_delete(lava_batch *batch, const lava_family *family, lava_slice key, lava_error **error);
/* Same as lava_delete_range. */
lava_status lava_batch_delete_range(lava_batch *batch, const lava_family *family, lava_slice start, lava_slice end, lava_error **error);
/* The batch is unchanged afterwards, and may be cleared and reused. */
lava_status lava_write(lava_db *db, const lava_batch *batch, uint32_t how, lava_error **error);
void lava_batch_clear(lava_batch *batch);

/* Makes all buffered writes durable. */
lava_status lava_sync(lava_db *db, lava_error **error);
/* Flushes all memtables to tables. */
lava_status lava_flush(lava_db *db, lava_error **error);
/*
 * Raises the format of the store; 0: to the newest. Earlier releases that do not know it then
 * refuse the store.
 */
lava_status lava_upgrade(lava_db *db, uint32_t format, lava_error **error);
/* Makes a consistent copy of the store in a new directory, sharing files with this one. */
lava_status lava_checkpoint(lava_db *db, const char *path, lava_error **error);
/*
 * The same with a time limit. LAVA_CANCELLED: the limit expired, and no part of the copy is left.
 */
lava_status lava_checkpoint_within(lava_db *db, const char *path, uint64_t milliseconds, lava_error **error);

/* ---- Reads ---- */

/* A consistent view of all families. `lava_snapshot *` or NULL: the present state. */
lava_status lava_snapshot_new(lava_db *db, lava_snapshot **snapshot, lava_error **error);
void lava_snapshot_free(lava_snapshot *snapshot);

/* `*value` is NULL if the key is missing. */
lava_status lava_get(lava_db *db, const lava_family *family, const lava_snapshot *snapshot, lava_slice key, lava_value **value, lava_error **error);
/* Returns whether the key exists. A separated value is not read. */
lava_status lava_contains_key(lava_db *db, const lava_family *family, const lava_snapshot *snapshot, lava_slice key, bool *there, lava_error **error);
lava_slice lava_value_bytes(const lava_value *value);
void lava_value_free(lava_value *value);

/*
 * An iterator over the keys from `start` on and below `end` (`data` NULL: no bound). It has no
 * position at first.
 */
lava_status lava_iter_new(lava_db *db, const lava_family *family, const lava_snapshot *snapshot, lava_slice start, lava_slice end, lava_iter **iter, lava_error **error);
void lava_iter_free(lava_iter *iter);
bool lava_iter_valid(const lava_iter *iter);
lava_status lava_iter_first(lava_iter *iter, lava_error **error);
lava_status lava_iter_last(lava_iter *iter, lava_error **error);
/* Moves to the first key at or after `key`; to the last key at or before it. */
lava_status lava_iter_seek(lava_iter *iter, lava_slice key, lava_error **error);
lava_status lava_iter_seek_for_prev(lava_iter *iter, lava_slice key, lava_error **error);
/* Only while the iterator is valid. */
lava_status lava_iter_next(lava_iter *iter, lava_error **error);
lava_status lava_iter_prev(lava_iter *iter, lava_error **error);
lava_status lava_iter_key(const lava_iter *iter, lava_slice *key, lava_error **error);
lava_status lava_iter_value(const lava_iter *iter, lava_slice *value, lava_error **error);

/* ---- Asynchronous requests ---- */

/*
 * One thread keeps thousands of requests in flight. Each is submitted with a token of the caller
 * and comes out with its result, in order of completion. Writes are applied in order of submission.
 * Freeing the queue does not cancel submitted requests. At most `depth` requests are in flight; the
 * next one is refused at once with LAVA_BUSY, and does not come out.
 */
typedef enum lava_answer {
    LAVA_ANSWER_DONE = 0,    /* a write has its durability, a flush has ended */
    LAVA_ANSWER_VALUE = 1,   /* `value`, NULL if the key is missing */
    LAVA_ANSWER_ENTRIES = 2, /* `entries`: keys and values of a scan, or values of many keys */
} lava_answer;

/* Freed with lava_completion_free. */
typedef struct lava_completion {
    uint64_t token;
    lava_status status; /* if not LAVA_OK, `error` is set and there is no answer */
    lava_answer answer;
    lava_value *value;
    lava_entries *entries;
    lava_error *error;
} lava_completion;

/*
 * Flag in `how` of lava_queue_new: the first failed write stops the queue. Later writes come out as
 * LAVA_BUSY and are not written.
 */
#define LAVA_QUEUE_STOP_AT_FAILURE 32u

/* `how`: durability of the writes, optionally with LAVA_QUEUE_STOP_AT_FAILURE. `depth` 0: 1024. */
lava_status lava_queue_new(lava_db *db, uint32_t depth, uint32_t how, lava_queue **queue, lava_error **error);
void lava_queue_free(lava_queue *queue);
/* Attempts writes again after a failure, in a queue that stops at failures. */
void lava_queue_resume(const lava_queue *queue);
lava_status lava_submit_put(lava_queue *queue, const lava_family *family, lava_slice key, lava_slice value, uint64_t token, lava_error **error);
lava_status lava_submit_delete(lava_queue *queue, const lava_family *family, lava_slice key, uint64_t token, lava_error **error);
lava_status lava_submit_write(lava_queue *queue, const lava_batch *batch, uint64_t token, lava_error **error);
lava_status lava_submit_get(lava_queue *queue, const lava_family *family, lava_slice key, uint64_t token, lava_error **error);
/*
 * Entry `i` of the result has an empty key and the value of key `i`, with `data` NULL if the key is
 * missing.
 */
lava_status lava_submit_multi_get(lava_queue *queue, const lava_family *family, const lava_slice *keys, size_t count, uint64_t token, lava_error **error);
/*
 * Reads the first `limit` keys from `start` on and below `end` (`data` NULL: no bound) with their
 * values, as of one moment.
 */
lava_status lava_submit_scan(lava_queue *queue, const lava_family *family, lava_slice start, lava_slice end, size_t limit, uint64_t token, lava_error **error);
lava_status lava_submit_flush(lava_queue *queue, uint64_t token, lava_error **error);
/* True: a request has completed, and `*completion` has its result. */
bool lava_poll(lava_queue *queue, lava_completion *completion);
/* The same with a timeout (UINT64_MAX: none). False: the timeout expired, or the queue is empty. */
bool lava_wait(lava_queue *queue, uint64_t timeout_us, lava_completion *completion);
/* Number of requests that have not come out. */
size_t lava_queue_len(const lava_queue *queue);
void lava_completion_free(lava_completion *completion);

size_t lava_entries_len(const lava_entries *entries);
/* Empty slices if there is no entry `i`. */
lava_slice lava_entries_key(const lava_entries *entries, size_t i);
lava_slice lava_entries_value(const lava_entries *entries, size_t i);
void lava_entries_free(lava_entries *entries);

/* ---- Metrics ---- */

/* All metrics in the Prometheus text format. */
lava_status lava_metrics(lava_db *db, lava_value **text, lava_error **error);

#ifdef __cplusplus
}
#endif

#endif
