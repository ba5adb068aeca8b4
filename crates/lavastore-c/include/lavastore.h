/*
 * LavaStore for C: an embeddable, ordered, durable key-value store.
 *
 *     cargo build --release -p lavastore-c
 *     cc -I crates/lavastore-c/include program.c target/release/liblavastore_c.a -lpthread -lm -ldl
 *
 * Rules that hold for every function:
 *
 * - What may fail returns a lava_status and takes a `lava_error **` last, which may be NULL. LAVA_OK means that it is done. After anything else
 *   `*error` is an error that the caller frees with lava_error_free, and no result was written.
 * - What was handed out is freed by the function of its name, once; to free NULL does nothing. Handles may be freed in any order: each keeps open
 *   what it needs. A store is closed by lava_close, or when its last handle is freed.
 * - Bytes go in as a lava_slice, and are copied where they are needed beyond the call. Bytes that come out as one belong to the handle
 *   that they came from, and are there until it is freed (those of an iterator until it moves).
 * - Handles may be used by several threads at once, but for lava_iter, lava_batch, lava_options and lava_queue: those by one at a time.
 * - After fork() a child can only free the handles of its parent, which then does nothing, or end, or exec. Every other call with one returns
 *   LAVA_FORKED and changes nothing. The child may open stores of its own. vfork() and posix_spawn() are not affected.
 * - NULL where a handle must be is an error (LAVA_INVALID_ARGUMENT), but where it says "or NULL". A handle that was freed is not recognized.
 */
#ifndef LAVASTORE_H
#define LAVASTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. lava_abi() is that of the library that is linked: they must be the same. */
#define LAVA_ABI 1
uint32_t lava_abi(void);

/* What a call came to. Numbers do not change; new ones may come. */
typedef enum lava_status {
    LAVA_OK = 0,
    LAVA_CORRUPTION = 1,       /* Bytes on the disk are not what was written. */
    LAVA_IO = 2,               /* The system refused or failed. */
    LAVA_NO_SPACE = 3,         /* The disk is full, or the limit is reached. Deletes pass. */
    LAVA_INVALID_ARGUMENT = 4, /* The call or an option makes no sense. */
    LAVA_TOO_LARGE = 5,        /* A key, a value or a batch is longer than may be. */
    LAVA_NOT_FOUND = 6,        /* What was named does not exist. A key that is absent is no error. */
    LAVA_ALREADY_EXISTS = 7,   /* What was to be made is there. */
    LAVA_TRIMMED = 8,          /* What was asked for was removed from a log. */
    LAVA_LOCKED = 9,           /* Another process has the store open. */
    LAVA_UNSUPPORTED = 10,     /* This build cannot do it, or a newer version wrote the files. */
    LAVA_READ_ONLY = 11,       /* The store was opened for reading. */
    LAVA_BUSY = 12,            /* It would have to wait, or as much is in flight as may be. Nothing happened: try again. */
    LAVA_CLOSED = 13,          /* The store is closed. */
    LAVA_POISONED = 14,        /* An earlier failure leaves the store read-only until it is opened again. */
    LAVA_USER_CALLBACK = 15,   /* A function of the caller failed. */
    LAVA_FORKED = 16,          /* The handle was made before fork(), by a parent process. */
    LAVA_CANCELLED = 17,       /* The time of the call was over before its end. */
    LAVA_BUG = 100,            /* A bug of the library. The store should be closed; its files are as after a crash. */
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

/* What went wrong in words, with file, offset, cause and what to do, where that is known. Ends with a 0 byte. */
const char *lava_error_message(const lava_error *error);
lava_status lava_error_status(const lava_error *error);
/* The file that is damaged or could not be used, or NULL. */
const char *lava_error_file(const lava_error *error);
void lava_error_free(lava_error *error);

/* ---- Options ---- */

/* Those of a store that nobody said anything about. */
lava_options *lava_options_new(void);
void lava_options_free(lava_options *options);
void lava_options_create_if_missing(lava_options *options, bool create);
void lava_options_cache_bytes(lava_options *options, uint64_t bytes);
void lava_options_memtable_bytes(lava_options *options, uint64_t bytes);
void lava_options_background_threads(lava_options *options, uint32_t threads);
/* The files of the store never occupy more. 0: as much as there is. */
void lava_options_space_limit_bytes(lava_options *options, uint64_t bytes);
/* The same in percent of the volume, 1 to 100. It follows a volume that grows. 0: as much as there is. */
void lava_options_space_limit_percent(lava_options *options, uint8_t percent);
/* No call waits longer than this for the engine, as long as the device can keep up. */
void lava_options_stall_budget_us(lava_options *options, uint64_t us);
/* Background reads and writes, bytes a second. 0: no budget. */
void lava_options_io_budget(lava_options *options, uint64_t bytes_per_s);
/* Deleted data leaves the disk while nobody writes, without a call. Default: true. */
void lava_options_rest(lava_options *options, bool rest);
/* Values from so many bytes on are kept apart from their keys. */
void lava_options_min_blob_bytes(lava_options *options, uint64_t bytes);
/* Short chains of compactions, for bounded latencies and least space. */
void lava_options_policy_vlsm(lava_options *options, bool vlsm);
/* Metrics are written into this file now and then, as Prometheus reads them. NULL: no file. */
void lava_options_metrics_file(lava_options *options, const char *path);

/* ---- A store ---- */

/* `options` or NULL: those of lava_options_new. */
lava_status lava_open(const char *path, const lava_options *options, lava_db **db, lava_error **error);
lava_status lava_open_read_only(const char *path, const lava_options *options, lava_db **db, lava_error **error);
/* The present state of the store of a reader (lava_open_read_only), beside `db`, which stays as it is. Free both. */
lava_status lava_catch_up(lava_db *db, lava_db **now, lava_error **error);
/*
 * Changes the limit while the store is open. 0: no limit. Above a lower limit the store admits deletes only, until its background work has
 * brought it below; other writes get LAVA_NO_SPACE.
 */
lava_status lava_set_space_limit_bytes(lava_db *db, uint64_t bytes, lava_error **error);
lava_status lava_set_space_limit_percent(lava_db *db, uint8_t percent, lava_error **error);
/*
 * Closes the store, whatever other handles of it there are, makes durable what was buffered, and tells what of that failed. Frees `db`
 * whatever it returns. Calls of other threads end; later calls with a family, a snapshot, an iterator or a queue of the store return
 * LAVA_CLOSED. Each of these is still to be freed. The directory may be opened again on return.
 */
lava_status lava_close(lava_db *db, lava_error **error);
/* Frees the handle, and does not close the store if there are others. */
void lava_db_free(lava_db *db);

/* Key spaces of their own. Where `lava_family *` is NULL, it is the family `default`. The family is made if it is not there. */
lava_status lava_family_open(lava_db *db, const char *name, lava_family **family, lava_error **error);
lava_status lava_family_drop(lava_db *db, lava_family *family, lava_error **error);
void lava_family_free(lava_family *family);

/* ---- Writes ---- */

/* How a write is made. One of: */
#define LAVA_WRITE_DEFAULT 0u  /* as the options of the store say: buffered */
#define LAVA_WRITE_DURABLE 1u  /* survives a loss of power when the call returns */
#define LAVA_WRITE_BUFFERED 2u /* survives the death of the process; power when it is synced */
#define LAVA_WRITE_VOLATILE 3u /* in memory until it is flushed */
/* and, or'ed to it: */
#define LAVA_WRITE_NO_WAIT 16u /* LAVA_BUSY in place of a wait */

lava_status lava_put(lava_db *db, const lava_family *family, lava_slice key, lava_slice value, uint32_t how, lava_error **error);
lava_status lava_delete(lava_db *db, const lava_family *family, lava_slice key, uint32_t how, lava_error **error);
/* All keys from `start` on and below `end`. */
/* The keys from `start` on and below `end` (`data` NULL: no bound). */
lava_status lava_delete_range(lava_db *db, const lava_family *family, lava_slice start, lava_slice end, uint32_t how, lava_error **error);

/* Changes that happen together, or not at all. */
lava_batch *lava_batch_new(void);
void lava_batch_free(lava_batch *batch);
lava_status lava_batch_put(lava_batch *batch, const lava_family *family, lava_slice key, lava_slice value, lava_error **error);
lava_status lava_batch_delete(lava_batch *batch, const lava_family *family, lava_slice key, lava_error **error);
/* As lava_delete_range. */
lava_status lava_batch_delete_range(lava_batch *batch, const lava_family *family, lava_slice start, lava_slice end, lava_error **error);
/* The batch is as it was afterwards, and may be cleared and used again. */
lava_status lava_write(lava_db *db, const lava_batch *batch, uint32_t how, lava_error **error);
void lava_batch_clear(lava_batch *batch);

/* Makes everything durable that was buffered. */
lava_status lava_sync(lava_db *db, lava_error **error);
/* Writes what is in memory to tables. */
lava_status lava_flush(lava_db *db, lava_error **error);
/* Raises the format of the store, 0: to the newest. Earlier releases that do not know the format refuse the store from then on. */
lava_status lava_upgrade(lava_db *db, uint32_t format, lava_error **error);
/* A second store in a directory of its own, which shares files with this one. */
lava_status lava_checkpoint(lava_db *db, const char *path, lava_error **error);
/* The same, if it takes no longer than so many milliseconds. LAVA_CANCELLED: it would; nothing is left of it. */
lava_status lava_checkpoint_within(lava_db *db, const char *path, uint64_t milliseconds, lava_error **error);

/* ---- Reads ---- */

/* All families at one moment. `lava_snapshot *` or NULL: now. */
lava_status lava_snapshot_new(lava_db *db, lava_snapshot **snapshot, lava_error **error);
void lava_snapshot_free(lava_snapshot *snapshot);

/* `*value` is NULL if the key is not there. */
lava_status lava_get(lava_db *db, const lava_family *family, const lava_snapshot *snapshot, lava_slice key, lava_value **value, lava_error **error);
/* Whether the key is there. A value that lies apart from its key is not read. */
lava_status lava_contains_key(lava_db *db, const lava_family *family, const lava_snapshot *snapshot, lava_slice key, bool *there, lava_error **error);
lava_slice lava_value_bytes(const lava_value *value);
void lava_value_free(lava_value *value);

/* Goes through the keys from `start` on and below `end` (`data` NULL: no bound). Stands nowhere at first. */
lava_status lava_iter_new(lava_db *db, const lava_family *family, const lava_snapshot *snapshot, lava_slice start, lava_slice end, lava_iter **iter, lava_error **error);
void lava_iter_free(lava_iter *iter);
bool lava_iter_valid(const lava_iter *iter);
lava_status lava_iter_first(lava_iter *iter, lava_error **error);
lava_status lava_iter_last(lava_iter *iter, lava_error **error);
/* To the first key at or behind it; to the last at or before it. */
lava_status lava_iter_seek(lava_iter *iter, lava_slice key, lava_error **error);
lava_status lava_iter_seek_for_prev(lava_iter *iter, lava_slice key, lava_error **error);
/* Only where it is valid. */
lava_status lava_iter_next(lava_iter *iter, lava_error **error);
lava_status lava_iter_prev(lava_iter *iter, lava_error **error);
lava_status lava_iter_key(const lava_iter *iter, lava_slice *key, lava_error **error);
lava_status lava_iter_value(const lava_iter *iter, lava_slice *value, lava_error **error);

/* ---- Requests in flight ---- */

/*
 * One thread keeps thousands of requests in flight: each goes in with a token of the caller's, and comes out with its answer, in the order in which they are
 * over. Writes are applied in the order in which they were submitted. Nothing that was submitted is cancelled when the queue is freed. As many
 * may be in flight as `depth` says; one more is refused at once with LAVA_BUSY, and does not come out.
 */
typedef enum lava_answer {
    LAVA_ANSWER_DONE = 0,    /* a write is what was promised, a flush is over */
    LAVA_ANSWER_VALUE = 1,   /* `value`, NULL if the key is not there */
    LAVA_ANSWER_ENTRIES = 2, /* `entries`: the keys and values of a scan, or the values of many keys */
} lava_answer;

/* Freed with lava_completion_free. */
typedef struct lava_completion {
    uint64_t token;
    lava_status status; /* with `error`, if it is not LAVA_OK; then there is no answer */
    lava_answer answer;
    lava_value *value;
    lava_entries *entries;
    lava_error *error;
} lava_completion;

/* For `how` of lava_queue_new: the first write that fails stops the queue. Later writes come out as LAVA_BUSY, and nothing of them is written. */
#define LAVA_QUEUE_STOP_AT_FAILURE 32u

/* `how` is that of writes, with LAVA_QUEUE_STOP_AT_FAILURE or without. `depth` 0: 1024. */
lava_status lava_queue_new(lava_db *db, uint32_t depth, uint32_t how, lava_queue **queue, lava_error **error);
void lava_queue_free(lava_queue *queue);
/* Attempts writes again after one of them failed, in a queue that stops at failures. */
void lava_queue_resume(const lava_queue *queue);
lava_status lava_submit_put(lava_queue *queue, const lava_family *family, lava_slice key, lava_slice value, uint64_t token, lava_error **error);
lava_status lava_submit_delete(lava_queue *queue, const lava_family *family, lava_slice key, uint64_t token, lava_error **error);
lava_status lava_submit_write(lava_queue *queue, const lava_batch *batch, uint64_t token, lava_error **error);
lava_status lava_submit_get(lava_queue *queue, const lava_family *family, lava_slice key, uint64_t token, lava_error **error);
/* All reads at once. Entry `i` has the value of key `i`, and an empty key; its value has `data` NULL if the key is not there. */
lava_status lava_submit_multi_get(lava_queue *queue, const lava_family *family, const lava_slice *keys, size_t count, uint64_t token, lava_error **error);
/* The first `limit` keys from `start` on and below `end` (`data` NULL: no bound) with their values, as of one moment. */
lava_status lava_submit_scan(lava_queue *queue, const lava_family *family, lava_slice start, lava_slice end, size_t limit, uint64_t token, lava_error **error);
lava_status lava_submit_flush(lava_queue *queue, uint64_t token, lava_error **error);
/* True: something is over, and is in `*completion`. */
bool lava_poll(lava_queue *queue, lava_completion *completion);
/* The same, but waits at most so long (UINT64_MAX: as long as it takes). False: the time is over, or nothing is in the queue. */
bool lava_wait(lava_queue *queue, uint64_t timeout_us, lava_completion *completion);
/* How many have not come out. */
size_t lava_queue_len(const lava_queue *queue);
void lava_completion_free(lava_completion *completion);

size_t lava_entries_len(const lava_entries *entries);
/* Empty slices where there is no entry `i`. */
lava_slice lava_entries_key(const lava_entries *entries, size_t i);
lava_slice lava_entries_value(const lava_entries *entries, size_t i);
void lava_entries_free(lava_entries *entries);

/* ---- What it does ---- */

/* All metrics as Prometheus reads them. */
lava_status lava_metrics(lava_db *db, lava_value **text, lava_error **error);

#ifdef __cplusplus
}
#endif

#endif
