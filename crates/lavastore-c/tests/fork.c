/* A store and forked children: fork DIR. Exits with 0 if all behave as the header says. */
#define _GNU_SOURCE
#include "lavastore.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);         \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)
/* Checks the status and the message that a child gets. */
#define REFUSED(call)                                                          \
    do {                                                                       \
        lava_error *error_ = NULL, **error = &error_;                          \
        CHECK((call) == LAVA_FORKED && lava_error_status(error_) == LAVA_FORKED); \
        CHECK(strstr(lava_error_message(error_), "fork()") != NULL);           \
        lava_error_free(error_);                                               \
    } while (0)
#define OK(call)                                                               \
    do {                                                                       \
        lava_error *error_ = NULL, **error = &error_;                          \
        lava_status status_ = (call);                                          \
        if (status_ != LAVA_OK)                                                \
            fprintf(stderr, "%s\n", lava_error_message(error_));               \
        CHECK(status_ == LAVA_OK);                                             \
    } while (0)

static const lava_slice NONE = {NULL, 0};

static lava_slice text(const char *s) {
    lava_slice out = {s, strlen(s)};
    return out;
}

typedef struct handles {
    lava_db *db;
    lava_family *family;
    lava_snapshot *snapshot;
    lava_iter *iter;
    lava_queue *queue;
    lava_value *value;
} handles;

static void child(handles *h) {
    lava_value *value = NULL;
    lava_family *family = NULL;
    lava_snapshot *snapshot = NULL;
    lava_iter *iter = NULL;
    lava_queue *queue = NULL;
    REFUSED(lava_put(h->db, NULL, text("key"), text("child"), LAVA_WRITE_DURABLE, error));
    REFUSED(lava_put(h->db, h->family, text("key"), text("child"), LAVA_WRITE_DEFAULT, error));
    REFUSED(lava_delete(h->db, NULL, text("key"), LAVA_WRITE_DEFAULT, error));
    REFUSED(lava_delete_range(h->db, NULL, text("a"), text("z"), LAVA_WRITE_DEFAULT, error));
    REFUSED(lava_get(h->db, NULL, h->snapshot, text("key"), &value, error));
    REFUSED(lava_sync(h->db, error));
    REFUSED(lava_flush(h->db, error));
    REFUSED(lava_metrics(h->db, &value, error));
    REFUSED(lava_family_open(h->db, "other", &family, error));
    REFUSED(lava_iter_first(h->iter, error));
    REFUSED(lava_submit_put(h->queue, NULL, text("key"), text("child"), 1, error));
    REFUSED(lava_submit_get(h->queue, NULL, text("key"), 2, error));
    REFUSED(lava_queue_new(h->db, 8, LAVA_WRITE_DEFAULT, &queue, error));
    lava_completion over;
    CHECK(lava_wait(h->queue, UINT64_MAX, &over) && over.token == 7);
    CHECK(over.status == LAVA_FORKED || over.status == LAVA_OK);
    lava_completion_free(&over);
    CHECK(!lava_poll(h->queue, &over) && lava_queue_len(h->queue) == 0);
    OK(lava_snapshot_new(h->db, &snapshot, error));
    REFUSED(lava_get(h->db, NULL, snapshot, text("key"), &value, error));
    lava_snapshot_free(snapshot);
    (void)iter;
    lava_queue_free(h->queue);
    lava_value_free(h->value);
    lava_iter_free(h->iter);
    lava_snapshot_free(h->snapshot);
    lava_family_free(h->family);
    REFUSED(lava_close(h->db, error));
    _exit(0);
}

static void ends_well(pid_t pid) {
    int status = 0;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    handles h = {0};
    OK(lava_open(argv[1], NULL, &h.db, error));
    OK(lava_family_open(h.db, "moons", &h.family, error));
    OK(lava_put(h.db, NULL, text("key"), text("parent"), LAVA_WRITE_DURABLE, error));
    OK(lava_snapshot_new(h.db, &h.snapshot, error));
    OK(lava_iter_new(h.db, NULL, NULL, NONE, NONE, &h.iter, error));
    OK(lava_iter_first(h.iter, error));
    OK(lava_get(h.db, NULL, NULL, text("key"), &h.value, error));
    OK(lava_queue_new(h.db, 0, LAVA_WRITE_DURABLE, &h.queue, error));
    OK(lava_submit_put(h.queue, NULL, text("later"), text("parent"), 7, error));

    alarm(60);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(30);
        child(&h);
    }
    ends_well(pid);
    /* Such children share the memory of the parent until exec: the parent must see no change. */
    char *arguments[] = {"true", NULL};
    CHECK(posix_spawnp(&pid, "true", NULL, NULL, arguments, environ) == 0);
    ends_well(pid);
    pid = vfork();
    if (pid == 0) {
        execvp("true", arguments);
        _exit(1);
    }
    ends_well(pid);

    OK(lava_put(h.db, NULL, text("after"), text("parent"), LAVA_WRITE_DURABLE, error));
    lava_completion over;
    CHECK(lava_wait(h.queue, UINT64_MAX, &over) && over.token == 7 && over.status == LAVA_OK);
    lava_completion_free(&over);
    lava_queue_free(h.queue);
    lava_value_free(h.value);
    lava_iter_free(h.iter);
    lava_snapshot_free(h.snapshot);
    lava_family_free(h.family);
    OK(lava_close(h.db, error));
    OK(lava_open(argv[1], NULL, &h.db, error));
    const char *keys[] = {"key", "later", "after"};
    for (size_t i = 0; i < 3; i++) {
        lava_value *value = NULL;
        OK(lava_get(h.db, NULL, NULL, text(keys[i]), &value, error));
        lava_slice found = lava_value_bytes(value);
        CHECK(found.len == 6 && memcmp(found.data, "parent", 6) == 0);
        lava_value_free(value);
    }
    OK(lava_close(h.db, error));
    puts("all is as the header says");
    return 0;
}
