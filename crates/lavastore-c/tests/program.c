/* Uses every function of lavastore.h: program DIR. Exits with 0 if all behave as the header says. */
#include "lavastore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);         \
            exit(1);                                                           \
        }                                                                      \
    } while (0)
#define OK(call)                                                               \
    do {                                                                       \
        lava_error *error_ = NULL, **error = &error_;                          \
        lava_status status_ = (call);                                          \
        if (status_ != LAVA_OK) {                                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,      \
                    lava_error_message(error_));                               \
            exit(1);                                                           \
        }                                                                      \
    } while (0)
/* Checks that a call failed with this status and error. */
#define REFUSED(status, call)                                                  \
    do {                                                                       \
        lava_error *error_ = NULL, **error = &error_;                          \
        lava_status status_ = (call);                                          \
        if (status_ != (status) || lava_error_status(error_) != (status) ||    \
            strlen(lava_error_message(error_)) == 0) {                         \
            fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call,  \
                    status_, lava_error_message(error_));                      \
            exit(1);                                                           \
        }                                                                      \
        lava_error_free(error_);                                               \
    } while (0)

static const lava_slice NONE = {NULL, 0};

static lava_slice text(const char *s) {
    lava_slice out = {s, strlen(s)};
    return out;
}

static bool is(lava_slice found, const char *wanted) {
    return found.data != NULL && found.len == strlen(wanted) && memcmp(found.data, wanted, found.len) == 0;
}

/* Checks the value of a key; NULL: the key is missing. */
static bool has(lava_db *db, const lava_family *family, const lava_snapshot *snapshot, const char *key, const char *wanted) {
    lava_value *value = NULL;
    OK(lava_get(db, family, snapshot, text(key), &value, error));
    bool right = wanted == NULL ? value == NULL : is(lava_value_bytes(value), wanted);
    lava_value_free(value);
    return right;
}

static lava_options *options(void) {
    lava_options *options = lava_options_new();
    lava_options_create_if_missing(options, true);
    lava_options_cache_bytes(options, 4 << 20);
    lava_options_memtable_bytes(options, 1 << 20);
    lava_options_background_threads(options, 2);
    lava_options_space_limit_percent(options, 90);
    lava_options_space_limit_bytes(options, 1ull << 30);
    lava_options_stall_budget_us(options, 10000);
    lava_options_io_budget(options, 0);
    lava_options_rest(options, true);
    lava_options_min_blob_bytes(options, 1 << 10);
    lava_options_merge_operator(options, "counter");
    lava_options_merge_operator(options, NULL);
    lava_options_merge_operator(options, "append:2c");
    lava_options_prefix_bytes(options, 4);
    lava_options_prefix_bytes(options, 0);
    lava_options_prefix_delimiter(options, '/');
    lava_options_policy_vlsm(options, true);
    lava_options_policy_vlsm(options, false);
    lava_options_metrics_file(options, NULL);
    return options;
}

static void writes_and_reads(lava_db *db, lava_family *moons) {
    OK(lava_put(db, NULL, text("mars"), text("red"), LAVA_WRITE_DURABLE, error));
    OK(lava_put(db, moons, text("phobos"), text("11 km"), LAVA_WRITE_BUFFERED | LAVA_WRITE_NO_WAIT, error));
    OK(lava_put(db, NULL, text("empty"), NONE, LAVA_WRITE_DEFAULT, error));
    CHECK(has(db, NULL, NULL, "mars", "red") && has(db, moons, NULL, "phobos", "11 km"));
    CHECK(has(db, NULL, NULL, "empty", "") && has(db, moons, NULL, "mars", NULL));

    lava_snapshot *before = NULL;
    OK(lava_snapshot_new(db, &before, error));
    lava_batch *batch = lava_batch_new();
    OK(lava_batch_put(batch, NULL, text("earth"), text("blue"), error));
    OK(lava_batch_put(batch, moons, text("deimos"), text("6 km"), error));
    OK(lava_batch_delete(batch, NULL, text("mars"), error));
    OK(lava_batch_delete(batch, moons, text("nothing"), error));
    OK(lava_batch_delete_range(batch, NULL, text("ea"), text("ead"), error));
    OK(lava_batch_delete_range(batch, moons, text("x"), text("y"), error));
    OK(lava_write(db, batch, LAVA_WRITE_VOLATILE, error));
    CHECK(has(db, NULL, NULL, "mars", NULL) && has(db, moons, NULL, "deimos", "6 km"));
    CHECK(has(db, NULL, before, "mars", "red") && has(db, moons, before, "deimos", NULL));
    lava_batch_clear(batch);
    OK(lava_write(db, batch, LAVA_WRITE_DEFAULT, error));
    lava_batch_free(batch);
    lava_snapshot_free(before);

    OK(lava_delete(db, NULL, text("earth"), LAVA_WRITE_DEFAULT, error));
    OK(lava_delete_range(db, moons, text("d"), text("e"), LAVA_WRITE_DEFAULT, error));
    CHECK(has(db, NULL, NULL, "earth", NULL) && has(db, moons, NULL, "deimos", NULL));
    OK(lava_sync(db, error));
    OK(lava_flush(db, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_put(db, NULL, NONE, text("1"), LAVA_WRITE_DEFAULT, error));
    CHECK(has(db, NULL, NULL, "", NULL));
    OK(lava_upgrade(db, 0, error));
    OK(lava_put(db, NULL, NONE, text("1"), LAVA_WRITE_DEFAULT, error));
    CHECK(has(db, NULL, NULL, "", "1"));
    OK(lava_delete(db, NULL, NONE, LAVA_WRITE_DEFAULT, error));
    CHECK(has(db, NULL, NULL, "", NULL));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_upgrade(db, 1, error));

    lava_family *names = NULL;
    lava_options *merging = options();
    OK(lava_family_create(db, "names", merging, &names, error));
    lava_family *again = NULL;
    REFUSED(LAVA_ALREADY_EXISTS, lava_family_create(db, "names", NULL, &again, error));
    lava_options_free(merging);
    OK(lava_merge(db, names, text("names"), text("phobos"), LAVA_WRITE_BUFFERED, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_merge(db, moons, text("names"), text("phobos"), LAVA_WRITE_BUFFERED, error));
    lava_batch *operands = lava_batch_new();
    OK(lava_batch_merge(operands, names, text("names"), text("deimos"), error));
    OK(lava_batch_merge(operands, NULL, text("names"), text("moon"), error));
    OK(lava_write(db, operands, LAVA_WRITE_DEFAULT, error));
    lava_batch_free(operands);
    CHECK(has(db, names, NULL, "names", "phobos,deimos"));
    lava_family_free(names);
    CHECK(has(db, NULL, NULL, "names", "moon"));
    OK(lava_delete(db, NULL, text("names"), LAVA_WRITE_DEFAULT, error));

    lava_family *open_ends = NULL;
    OK(lava_family_open(db, "open ends", &open_ends, error));
    const char *keys[] = {"a", "b", "c", "\xff\xff"};
    for (size_t i = 0; i < 4; i++)
        OK(lava_put(db, open_ends, text(keys[i]), text("1"), LAVA_WRITE_DEFAULT, error));
    OK(lava_delete_range(db, open_ends, NONE, text("b"), LAVA_WRITE_DEFAULT, error));
    CHECK(has(db, open_ends, NULL, "a", NULL) && has(db, open_ends, NULL, "b", "1"));
    lava_batch *rest = lava_batch_new();
    OK(lava_batch_delete_range(rest, open_ends, text("c"), NONE, error));
    OK(lava_write(db, rest, LAVA_WRITE_DEFAULT, error));
    lava_batch_free(rest);
    bool there = false;
    OK(lava_contains_key(db, open_ends, NULL, text("b"), &there, error));
    CHECK(there);
    OK(lava_contains_key(db, open_ends, NULL, text("\xff\xff"), &there, error));
    CHECK(!there && has(db, open_ends, NULL, "c", NULL));
    lava_family_free(open_ends);

    lava_value *metrics = NULL;
    OK(lava_metrics(db, &metrics, error));
    CHECK(lava_value_bytes(metrics).len > 100);
    lava_value_free(metrics);
}

static void goes_through_keys(lava_db *db) {
    lava_family *days = NULL;
    OK(lava_family_open(db, "days", &days, error));
    for (int day = 1; day <= 9; day++) {
        char key[8];
        snprintf(key, sizeof key, "0%d", day);
        OK(lava_put(db, days, text(key), text(key + 1), LAVA_WRITE_DEFAULT, error));
    }
    lava_iter *iter = NULL;
    OK(lava_iter_new(db, days, NULL, text("02"), text("08"), &iter, error));
    CHECK(!lava_iter_valid(iter));
    lava_slice found = NONE;
    REFUSED(LAVA_INVALID_ARGUMENT, lava_iter_key(iter, &found, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_iter_value(iter, &found, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_iter_next(iter, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_iter_prev(iter, error));
    int count = 0;
    OK(lava_iter_first(iter, error));
    while (lava_iter_valid(iter)) {
        count++;
        OK(lava_iter_next(iter, error));
    }
    CHECK(count == 6);
    OK(lava_iter_last(iter, error));
    OK(lava_iter_key(iter, &found, error));
    CHECK(is(found, "07"));
    OK(lava_iter_value(iter, &found, error));
    CHECK(is(found, "7"));
    OK(lava_iter_prev(iter, error));
    OK(lava_iter_key(iter, &found, error));
    CHECK(is(found, "06"));
    OK(lava_iter_seek(iter, text("04x"), error));
    OK(lava_iter_key(iter, &found, error));
    CHECK(is(found, "05"));
    OK(lava_iter_seek_for_prev(iter, text("04x"), error));
    OK(lava_iter_key(iter, &found, error));
    CHECK(is(found, "04"));
    lava_iter_free(iter);
    OK(lava_family_drop(db, days, error));
    lava_family_free(days);
}

static void requests_in_flight(lava_db *db, lava_family *moons) {
    lava_queue *queue = NULL;
    OK(lava_queue_new(db, 64, LAVA_WRITE_DURABLE, &queue, error));
    lava_completion over;
    CHECK(!lava_poll(queue, &over) && !lava_wait(queue, UINT64_MAX, &over));
    lava_batch *batch = lava_batch_new();
    OK(lava_batch_put(batch, NULL, text("venus"), text("white"), error));
    OK(lava_submit_put(queue, NULL, text("mars"), text("rust"), 1, error));
    OK(lava_submit_put(queue, moons, text("deimos"), text("6 km"), 2, error));
    OK(lava_submit_delete(queue, NULL, text("empty"), 3, error));
    OK(lava_submit_write(queue, batch, 4, error));
    lava_batch_free(batch);
    uint64_t tokens = 0;
    while (lava_queue_len(queue) > 0) {
        CHECK(lava_wait(queue, UINT64_MAX, &over) && over.status == LAVA_OK && over.answer == LAVA_ANSWER_DONE);
        tokens += over.token;
        lava_completion_free(&over);
    }
    CHECK(tokens == 1 + 2 + 3 + 4);
    OK(lava_submit_flush(queue, 5, error));
    CHECK(lava_wait(queue, UINT64_MAX, &over) && over.token == 5);
    lava_completion_free(&over);

    lava_slice keys[] = {text("mars"), text("pluto"), text("venus")};
    OK(lava_submit_get(queue, moons, text("deimos"), 6, error));
    OK(lava_submit_get(queue, NULL, text("pluto"), 7, error));
    OK(lava_submit_multi_get(queue, NULL, keys, 3, 8, error));
    OK(lava_submit_scan(queue, NULL, text("n"), NONE, 10, 9, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_submit_multi_get(queue, NULL, NULL, 3, 10, error));
    for (int i = 0; i < 4; i++) {
        CHECK(lava_wait(queue, 60000000, &over) && over.status == LAVA_OK);
        switch (over.token) {
        case 6: CHECK(over.answer == LAVA_ANSWER_VALUE && is(lava_value_bytes(over.value), "6 km")); break;
        case 7: CHECK(over.answer == LAVA_ANSWER_VALUE && over.value == NULL); break;
        case 8:
            CHECK(over.answer == LAVA_ANSWER_ENTRIES && lava_entries_len(over.entries) == 3);
            CHECK(is(lava_entries_value(over.entries, 0), "rust") && lava_entries_value(over.entries, 1).data == NULL);
            CHECK(is(lava_entries_value(over.entries, 2), "white") && lava_entries_key(over.entries, 0).len == 0);
            break;
        case 9:
            CHECK(over.answer == LAVA_ANSWER_ENTRIES && lava_entries_len(over.entries) == 1);
            CHECK(is(lava_entries_key(over.entries, 0), "venus") && lava_entries_key(over.entries, 1).data == NULL);
            break;
        default: CHECK(false);
        }
        if (over.token == 9) {
            /* The caller owns a value taken out of a completion. */
            lava_entries *own = over.entries;
            over.entries = NULL;
            lava_completion_free(&over);
            lava_entries_free(own);
        }
        lava_completion_free(&over);
    }

    /* A request beyond the depth is refused, and does not come out. */
    lava_queue *narrow = NULL;
    OK(lava_queue_new(db, 1, LAVA_WRITE_DURABLE, &narrow, error));
    lava_error *error = NULL;
    int taken = 0, refused = 0;
    for (int i = 0; i < 1000; i++) {
        lava_status status = lava_submit_put(narrow, NULL, text("mars"), text("red"), i, &error);
        taken += status == LAVA_OK;
        refused += status == LAVA_BUSY;
        lava_error_free(error);
        error = NULL;
    }
    CHECK(taken + refused == 1000 && taken > 0 && lava_queue_len(narrow) == (size_t)taken);
    /* Requests in flight are still executed. */
    lava_queue_free(narrow);
    lava_queue_free(queue);
    CHECK(has(db, NULL, NULL, "mars", "red"));
}

/* Writes after a failed one are attempted unless the queue stops at failures. */
static void failures_in_a_queue(lava_db *db) {
    uint32_t hows[] = {LAVA_WRITE_DURABLE, LAVA_WRITE_DURABLE | LAVA_QUEUE_STOP_AT_FAILURE};
    for (int stops = 0; stops < 2; stops++) {
        lava_family *comets = NULL;
        lava_queue *queue = NULL;
        lava_completion over;
        lava_batch *batch = lava_batch_new();
        OK(lava_family_open(db, "comets", &comets, error));
        OK(lava_batch_put(batch, comets, text("halley"), text("1986"), error));
        OK(lava_family_drop(db, comets, error));
        OK(lava_queue_new(db, 8, hows[stops], &queue, error));
        OK(lava_submit_put(queue, NULL, text("halley"), text("before"), 1, error));
        CHECK(lava_wait(queue, UINT64_MAX, &over) && over.token == 1 && over.status == LAVA_OK);
        lava_completion_free(&over);
        REFUSED(LAVA_NOT_FOUND, lava_submit_write(queue, batch, 2, error));
        if (stops) {
            REFUSED(LAVA_BUSY, lava_submit_put(queue, NULL, text("halley"), text("behind"), 3, error));
            lava_queue_resume(queue);
        }
        OK(lava_submit_put(queue, NULL, text("encke"), text("resumed"), 4, error));
        CHECK(lava_wait(queue, UINT64_MAX, &over) && over.token == 4 && over.status == LAVA_OK);
        lava_completion_free(&over);
        CHECK(has(db, NULL, NULL, "halley", "before") && has(db, NULL, NULL, "encke", "resumed"));
        lava_batch_free(batch);
        lava_queue_free(queue);
        lava_family_free(comets);
    }
    lava_queue_resume(NULL);
}

static void misuse(lava_db *db, const char *dir) {
    lava_db *other = NULL;
    lava_value *value = NULL;
    lava_family *family = NULL;
    lava_slice nowhere = {NULL, 5}, endless = {"k", (size_t)-1};
    REFUSED(LAVA_INVALID_ARGUMENT, lava_open(NULL, NULL, &other, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_open(dir, NULL, NULL, error));
    REFUSED(LAVA_LOCKED, lava_open(dir, NULL, &other, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_put(NULL, NULL, text("k"), NONE, 0, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_put(db, NULL, nowhere, NONE, 0, error));
    REFUSED(LAVA_TOO_LARGE, lava_put(db, NULL, endless, NONE, 0, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_put(db, NULL, text("k"), NONE, 7, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_get(db, NULL, NULL, text("k"), NULL, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_family_open(db, "\xff", &family, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_family_open(db, NULL, &family, error));
    CHECK(other == NULL && value == NULL && family == NULL);
    CHECK(lava_put(NULL, NULL, text("k"), NONE, 0, NULL) == LAVA_INVALID_ARGUMENT);
    CHECK(!lava_poll(NULL, NULL) && !lava_iter_valid(NULL) && lava_value_bytes(NULL).data == NULL);
    lava_db_free(NULL), lava_value_free(NULL), lava_error_free(NULL), lava_completion_free(NULL);
    CHECK(lava_error_status(NULL) == LAVA_OK && lava_error_file(NULL) == NULL);
}

/* While a writer is open: the space limit changes, and a reader catches up. */
static void changes_while_open(lava_db *db, const char *dir) {
    OK(lava_put(db, NULL, text("limit"), text("before"), LAVA_WRITE_DURABLE, error));
    lava_db *reader = NULL, *now = NULL;
    OK(lava_open_read_only(dir, NULL, &reader, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_set_space_limit_percent(db, 101, error));
    REFUSED(LAVA_INVALID_ARGUMENT, lava_set_space_limit_bytes(db, 1, error));
    REFUSED(LAVA_READ_ONLY, lava_set_space_limit_bytes(reader, 1ull << 30, error));
    /* Below the size of the store: only deletes are admitted. */
    OK(lava_flush(db, error));
    OK(lava_set_space_limit_bytes(db, 2ull << 20, error));
    char long_value[4096];
    memset(long_value, 'x', sizeof long_value);
    lava_slice value = {long_value, sizeof long_value};
    lava_status status = LAVA_OK;
    for (int i = 0; i < 2000 && status == LAVA_OK; i++) {
        char key[32];
        snprintf(key, sizeof key, "filler-%d", i);
        status = lava_put(db, NULL, text(key), value, 0, NULL);
    }
    CHECK(status == LAVA_NO_SPACE);
    OK(lava_delete(db, NULL, text("filler-0"), 0, error));
    OK(lava_set_space_limit_percent(db, 90, error));
    OK(lava_set_space_limit_bytes(db, 0, error));
    OK(lava_put(db, NULL, text("limit"), text("after"), LAVA_WRITE_DURABLE, error));
    OK(lava_catch_up(reader, &now, error));
    CHECK(has(reader, NULL, NULL, "limit", "before") && has(now, NULL, NULL, "limit", "after"));
    lava_db *none = NULL;
    REFUSED(LAVA_INVALID_ARGUMENT, lava_catch_up(db, &none, error));
    CHECK(none == NULL);
    lava_db_free(now);
    OK(lava_close(reader, error));
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && lava_abi() == LAVA_ABI);
    char dir[4096], copy[4096], missing[4096];
    snprintf(dir, sizeof dir, "%s/store", argv[1]);
    snprintf(copy, sizeof copy, "%s/copy", argv[1]);
    snprintf(missing, sizeof missing, "%s/missing", argv[1]);
    lava_db *db = NULL;
    lava_error *error = NULL;
    CHECK(lava_open_read_only(missing, NULL, &db, &error) != LAVA_OK && db == NULL);
    CHECK(lava_error_file(error) != NULL && strstr(lava_error_file(error), "missing") != NULL);
    lava_error_free(error);

    lava_options *own = options();
    OK(lava_open(dir, own, &db, error));
    lava_family *moons = NULL;
    OK(lava_family_open(db, "moons", &moons, error));
    writes_and_reads(db, moons);
    goes_through_keys(db);
    requests_in_flight(db, moons);
    failures_in_a_queue(db);
    misuse(db, dir);
    changes_while_open(db, dir);
    OK(lava_checkpoint(db, copy, error));
    char late[4200];
    snprintf(late, sizeof late, "%s-late", copy);
    REFUSED(LAVA_CANCELLED, lava_checkpoint_within(db, late, 0, error));
    OK(lava_checkpoint_within(db, late, 60000, error));
    /* The store closes while a family and a snapshot exist; their calls then fail. */
    lava_snapshot *before = NULL;
    OK(lava_snapshot_new(db, &before, error));
    OK(lava_close(db, error));
    OK(lava_open(dir, own, &db, error));
    lava_family_free(moons);
    lava_snapshot_free(before);
    OK(lava_close(db, error));

    OK(lava_open(copy, own, &db, error));
    CHECK(has(db, NULL, NULL, "mars", "red"));
    lava_db_free(db);
    OK(lava_open_read_only(dir, NULL, &db, error));
    CHECK(has(db, NULL, NULL, "venus", "white"));
    REFUSED(LAVA_READ_ONLY, lava_put(db, NULL, text("k"), NONE, 0, error));
    OK(lava_close(db, error));
    lava_options_free(own);
    puts("all is as the header says");
    return 0;
}
