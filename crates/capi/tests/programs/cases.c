/* Every function of standpipe.h, by cases: each is run by all ranks of a job, of any size, over any transport. */
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "cases.h"

/* ---- 1 Errors */

static void errors(struct job *job) {
    CHECK(sp_version() >= SP_VERSION);
    CHECK(strstr(sp_strerror(SP_ERR_PEER_LOST), "peer-lost") != NULL);
    CHECK(strstr(sp_strerror(SP_OK), "ok") != NULL);
    CHECK(strstr(sp_strerror(-9999), "unknown") != NULL && strstr(sp_strerror(5), "unknown") != NULL);
    for (int status = SP_ERR_INTERRUPTED; status <= 0; status++) CHECK(strstr(sp_strerror(status), "unknown") == NULL);

    char byte = 1;
    sp_remote nowhere = {job->size + 7, SP_HEAP, 0};
    errno = EDOM;
    FAILS(SP_ERR_NO_SUCH_PEER, sp_put(job->node, nowhere, &byte, 1));
    CHECK(errno == EDOM);
    sp_error error = {.size = sizeof error};
    CHECK(sp_last_error(&error) == SP_ERR_NO_SUCH_PEER && error.peer == nowhere.peer && error.expected == job->size);
    CHECK(strcmp(error.text, sp_error_text()) == 0 && strstr(error.text, "no peer") != NULL);
    /* A call that succeeds leaves it; an older caller's struct is filled as far as it goes. */
    GOOD(sp_progress(job->node));
    sp_error small;
    memset(&small, 0x55, sizeof small);
    small.size = offsetof(sp_error, len);
    CHECK(sp_last_error(&small) == SP_ERR_NO_SUCH_PEER && small.peer == nowhere.peer && small.len == 0x5555555555555555);
    small.size = 3;
    CHECK(sp_last_error(&small) == SP_ERR_ARGUMENT && sp_last_error(NULL) == SP_ERR_ARGUMENT);
    /* A byte in nobody's memory: the error has all values. */
    sp_remote beyond = job->theirs;
    beyond.at = UINT64_MAX - 4096;
    FAILS(SP_ERR_FAULT, sp_put(job->node, beyond, &byte, 1));
    GOOD(sp_last_error(&error) == SP_ERR_FAULT ? 0 : -1);
    CHECK(error.peer == job->right && error.memory == SP_HEAP && error.addr == beyond.at && error.len == 1);
}

/* ---- 2 Settings */

static void settings(struct job *job) {
    (void)job;
    sp_config *config;
    char text[64];
    size_t len;
    GOOD(sp_config_defaults(&config));
    GOOD(sp_config_set(config, "STANDPIPE_HEAP", "8M"));
    GOOD(sp_config_get(config, "STANDPIPE_HEAP", text, sizeof text, &len));
    CHECK(strlen(text) == len && len > 0);
    FAILS(SP_ERR_LENGTH, sp_config_get(config, "STANDPIPE_HEAP", text, 1, &len));
    CHECK(len > 0);
    FAILS(SP_ERR_NOT_FOUND, sp_config_get(config, "STANDPIPE_SPIN_US", text, sizeof text, NULL));
    FAILS(SP_ERR_SETTING, sp_config_set(config, "STANDPIPE_HEAP", "many"));
    FAILS(SP_ERR_SETTING, sp_config_set(config, "STANDPIPE_HEEP", "1M"));
    CHECK(strstr(sp_error_text(), "STANDPIPE_HEAP") != NULL);
    FAILS(SP_ERR_ARGUMENT, sp_config_set(config, NULL, "1M"));
    FAILS(SP_ERR_ARGUMENT, sp_config_set(config, "STANDPIPE_HEAP", NULL));
    sp_config_free(config);
    sp_config_free(NULL);
    GOOD(sp_config_new(&config));
    GOOD(sp_config_set(config, "STANDPIPE_HEAP", "8M"));
    sp_node *alone;
    GOOD(sp_open_as(config, SP_ALONE, &alone));
    CHECK(sp_rank(alone) == 0 && sp_size(alone) == 1);
    uint64_t bytes, resident;
    GOOD(sp_heap_size(alone, &bytes, &resident));
    CHECK(bytes <= 8 << 20 && bytes > 0);
    GOOD(sp_close(alone, SP_SECOND));
    FAILS(SP_ERR_CLOSED, sp_barrier(alone));
    FAILS(SP_ERR_CLOSED, sp_close(alone, SP_SECOND));
}

/* ---- 3 The node */

static int asked;

static int at_third(void *context) {
    CHECK(context == &asked);
    return ++asked >= 3;
}

static int never(void *context) {
    (void)context;
    return 0;
}

static sp_node *alone;
static int closed = 1;

/* Closes the node of the very call that asks this. */
static int closes(void *context) {
    (void)context;
    if (closed == 1) closed = sp_close(alone, SP_SECOND);
    return 0;
}

static int always(void *context) {
    return ++*(int *)context;
}

static void *wakes(void *node) {
    struct timespec soon = {0, 30000000};
    nanosleep(&soon, NULL);
    GOOD(sp_wake(node));
    return NULL;
}

static void node(struct job *job) {
    CHECK(job->rank < job->size && job->size >= 1);
    GOOD(sp_barrier(job->node));
    CHECK(sp_progress(job->node) >= 0);
    pthread_t thread;
    asked = 0;
    CHECK(pthread_create(&thread, NULL, wakes, job->node) == 0);
    GOOD(sp_wait_until(job->node, at_third, &asked));
    pthread_join(thread, NULL);
    sp_node *limited;
    GOOD(sp_within(job->node, 20000000, &limited));
    FAILS(SP_ERR_TIMEOUT, sp_wait_until(limited, never, NULL));
    int hooked = 0;
    GOOD(sp_on_wait(always, &hooked));
    FAILS(SP_ERR_INTERRUPTED, sp_wait_until(job->node, never, NULL));
    CHECK(hooked == 1);
    GOOD(sp_on_wait(NULL, NULL));
    sp_release(limited);
    sp_release(NULL);
    GOOD(sp_open_as(NULL, SP_ALONE, &alone));
    FAILS(SP_ERR_CLOSED, sp_wait_until(alone, closes, NULL));
    CHECK(closed == SP_OK);
    CHECK(sp_has_failed(job->node) == 0);
    GOOD(sp_quiet(job->node));
    GOOD(sp_quiet_with(job->node, job->right));
    GOOD(sp_fence(job->node));
    GOOD(sp_fence_with(job->node, job->right));
    GOOD(sp_memory_sync(job->node));
    GOOD(sp_barrier(job->node));
}

/* ---- 4 Memory */

static void memory(struct job *job) {
    sp_remote at;
    void *here;
    GOOD(sp_alloc(job->node, 1000, &at, &here));
    CHECK(at.peer == job->rank && at.memory == SP_HEAP && (uintptr_t)here % 64 == 0);
    for (int i = 0; i < 1000; i++) CHECK(((char *)here)[i] == 0);
    sp_remote again;
    GOOD(sp_name_of(job->node, (char *)here + 10, &again));
    CHECK(again.at == at.at + 10 && again.peer == job->rank);
    int local;
    FAILS(SP_ERR_ELSEWHERE, sp_name_of(job->node, &local, &again));
    GOOD(sp_free(job->node, at));
    CHECK(sp_free(job->node, at) < 0);
    sp_alloc_params params = {sizeof params, 4096, 0, 1};
    GOOD(sp_alloc_with(job->node, 100, &params, &at, &here));
    CHECK((uintptr_t)here % 4096 == 0);
    GOOD(sp_free(job->node, at));
    params.align = 3;
    CHECK(sp_alloc_with(job->node, 100, &params, &at, &here) < 0);
    FAILS(SP_ERR_NO_ROOM, sp_alloc(job->node, SIZE_MAX / 2, &at, &here));
    CHECK(sp_plus(job->theirs, 5).at == job->theirs.at + 5);
    GOOD(sp_local(job->node, job->theirs, 8, &here));
    CHECK((here != NULL) == (sp_is_near(job->node, job->right) == 1));
}

/* ---- 5 Put and get */

static unsigned char pattern(uint32_t rank, size_t i) {
    return (unsigned char)(rank * 31 + i * 7 + 1);
}

static void fill(unsigned char *bytes, size_t len, uint32_t rank) {
    for (size_t i = 0; i < len; i++) bytes[i] = pattern(rank, i);
}

static void is_from(const unsigned char *bytes, size_t len, uint32_t rank) {
    for (size_t i = 0; i < len; i++) CHECK(bytes[i] == pattern(rank, i));
}

static void copies(struct job *job) {
    static unsigned char from[BOX], into[BOX];
    static const size_t lens[] = {0, 1, 7, 8, 9, 64, 4096, 8192, 20000, BOX};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        fill(from, lens[i], job->rank);
        GOOD(sp_put(job->node, job->theirs, from, lens[i]));
        GOOD(sp_barrier(job->node));
        is_from(job->here, lens[i], job->left);
        memset(into, 0, sizeof into);
        GOOD(sp_get(job->node, job->theirs, into, lens[i]));
        is_from(into, lens[i], job->rank);
        GOOD(sp_barrier(job->node));

        /* With events, forgotten, and by private memory there: addresses of a rank mean nothing elsewhere, so ranks swap
         * them. */
        sp_event *event;
        GOOD(sp_put_nb(job->node, job->theirs, from, lens[i], &event));
        GOOD(sp_event_wait_local(event));
        CHECK(sp_event_test_local(event) == 1);
        CHECK(sp_event_peer(event) == job->right);
        GOOD(sp_event_wait(event));
        GOOD(sp_get_nb(job->node, job->theirs, into, lens[i], &event));
        while (sp_event_test(event) == 0) {}
        CHECK(sp_event_wait_for(event, 0) == 1);
        GOOD(sp_event_wait(event));
        is_from(into, lens[i], job->rank);
        GOOD(sp_put_nbi(job->node, job->theirs, from, lens[i]));
        GOOD(sp_get_nbi(job->node, job->theirs, into, lens[i]));
        GOOD(sp_quiet(job->node));
        GOOD(sp_barrier(job->node));
    }
    uint64_t value;
    GOOD(sp_put_u64(job->node, job->theirs, 0x1122334455667788));
    GOOD(sp_get_u64(job->node, job->theirs, &value));
    CHECK(value == 0x1122334455667788);
    GOOD(sp_barrier(job->node));

    /* Private memory of the right rank, by its address. */
    static unsigned char private[BOX];
    uint64_t address = (uint64_t)(uintptr_t)private, all[RANKS_MAX];
    GOOD(sp_team_all_gather(job->world, &address, all, sizeof address));
    sp_remote raw = {job->right, SP_PRIVATE, all[job->right]};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        fill(from, lens[i], job->rank);
        GOOD(sp_put(job->node, raw, from, lens[i]));
        GOOD(sp_get(job->node, raw, into, lens[i]));
        is_from(into, lens[i], job->rank);
        GOOD(sp_barrier(job->node));
        is_from(private, lens[i], job->left);
        GOOD(sp_barrier(job->node));
    }
    GOOD(sp_put_u64(job->node, raw, 77));
    GOOD(sp_get_u64(job->node, raw, &value));
    CHECK(value == 77);
    GOOD(sp_prefetch(job->node, raw, sizeof private));
    GOOD(sp_prepare(job->node, from, sizeof from));
    sp_pin *pin;
    int pinned = sp_pin_memory(job->node, from, sizeof from, &pin);
    if (pinned == SP_OK) {
        CHECK(sp_pin_is_held(pin) == 1);
        sp_unpin(pin);
    } else {
        CHECK(pinned == SP_ERR_NOT_OFFERED || pinned == SP_ERR_NO_ROOM);
    }
    sp_unpin(NULL);
    GOOD(sp_barrier(job->node));
}

static void lists(struct job *job) {
    static unsigned char from[BOX], into[BOX];
    sp_piece pieces[100];
    fill(from, sizeof from, job->rank);
    for (int i = 0; i < 100; i++) {
        pieces[i].there = sp_plus(job->theirs, (uint64_t)i * 600);
        pieces[i].here = from + i * 600;
        pieces[i].len = i % 10 == 9 ? 0 : 100;
    }
    sp_event *event;
    GOOD(sp_put_list(job->node, pieces, 100));
    GOOD(sp_put_list_nb(job->node, pieces, 100, &event));
    GOOD(sp_event_wait(event));
    for (int i = 0; i < 100; i++) pieces[i].here = into + i * 600;
    GOOD(sp_get_list(job->node, pieces, 100));
    for (int i = 0; i < 100; i++)
        for (size_t j = 0; j < pieces[i].len; j++) CHECK(into[i * 600 + j] == pattern(job->rank, (size_t)i * 600 + j));
    memset(into, 0, sizeof into);
    GOOD(sp_get_list_nb(job->node, pieces, 100, &event));
    GOOD(sp_event_wait(event));
    CHECK(into[0] == pattern(job->rank, 0) && into[98 * 600 + 99] == pattern(job->rank, 98 * 600 + 99));
    GOOD(sp_put_list(job->node, NULL, 0));
    FAILS(SP_ERR_ARGUMENT, sp_put_list(job->node, NULL, 3));

    /* A column of 8 by 8 numbers, backwards here. */
    double matrix[64], column[8], back[8] = {0};
    for (int i = 0; i < 8; i++) column[i] = i + 1;
    memset(matrix, 0, sizeof matrix);
    GOOD(sp_put(job->node, job->theirs, matrix, sizeof matrix));
    size_t counts[1] = {8};
    int64_t there[1] = {64}, here[1] = {-8};
    sp_strided strided = {sizeof strided, 8, 1, counts, there, here};
    GOOD(sp_put_strided(job->node, sp_plus(job->theirs, 16), column + 7, &strided));
    GOOD(sp_put_strided_nb(job->node, sp_plus(job->theirs, 16), column + 7, &strided, &event));
    GOOD(sp_event_wait(event));
    GOOD(sp_get(job->node, job->theirs, matrix, sizeof matrix));
    for (int i = 0; i < 8; i++) CHECK(matrix[i * 8 + 2] == 8 - i && matrix[i * 8 + 3] == 0);
    GOOD(sp_get_strided(job->node, sp_plus(job->theirs, 16), back + 7, &strided));
    CHECK(memcmp(back, column, sizeof back) == 0);
    memset(back, 0, sizeof back);
    GOOD(sp_get_strided_nb(job->node, sp_plus(job->theirs, 16), back + 7, &strided, &event));
    GOOD(sp_event_wait(event));
    CHECK(memcmp(back, column, sizeof back) == 0);
    FAILS(SP_ERR_ARGUMENT, sp_put_strided(job->node, job->theirs, column, NULL));
    strided.size = 4;
    FAILS(SP_ERR_ARGUMENT, sp_put_strided(job->node, job->theirs, column, &strided));

    uint64_t remote[2] = {100, 300};
    size_t local[4] = {0, 50, 8, 200};
    sp_indexed indexed = {sizeof indexed, 8, 2, remote, 4, 4, local};
    unsigned char some[256], other[256] = {0};
    fill(some, sizeof some, job->rank);
    GOOD(sp_put_indexed(job->node, job->theirs, some, &indexed));
    GOOD(sp_put_indexed_nb(job->node, job->theirs, some, &indexed, &event));
    GOOD(sp_event_wait(event));
    GOOD(sp_get_indexed(job->node, job->theirs, other, &indexed));
    for (int i = 0; i < 4; i++) CHECK(memcmp(other + local[i], some + local[i], 4) == 0);
    memset(other, 0, sizeof other);
    GOOD(sp_get_indexed_nb(job->node, job->theirs, other, &indexed, &event));
    GOOD(sp_event_wait(event));
    CHECK(memcmp(other + 200, some + 200, 4) == 0 && other[4] == 0);
    indexed.local_block = 5;
    FAILS(SP_ERR_LENGTH, sp_put_indexed(job->node, job->theirs, some, &indexed));
    GOOD(sp_barrier(job->node));
}

/* ---- 6 Completion */

static void queues(struct job *job) {
    enum { COUNT = 50 };
    static unsigned char from[COUNT][128], into[COUNT][128];
    sp_queue *queue;
    GOOD(sp_queue_new(job->node, COUNT, &queue));
    int fd = sp_queue_fd(queue);
    CHECK(fd >= 0 && sp_queue_len(queue) == 0);
    sp_completion done[COUNT];
    CHECK(sp_queue_take(queue, done, COUNT) == 0 && sp_queue_wait(queue, done, COUNT, SP_FOREVER) == 0);
    for (int i = 0; i < COUNT; i++) {
        fill(from[i], 128, (uint32_t)i);
        GOOD(sp_queue_put(queue, (uint64_t)i, sp_plus(job->theirs, (uint64_t)i * 128), from[i], 128));
    }
    FAILS(SP_ERR_NO_ROOM, sp_queue_put(queue, 99, job->theirs, from[0], 128));
    for (int taken = 0; taken < COUNT;) {
        int now = sp_queue_wait(queue, done, 7, SP_SECOND);
        CHECK(now > 0 && now <= 7);
        for (int i = 0; i < now; i++) CHECK(done[i].status == SP_OK && done[i].token < COUNT && done[i].peer == job->right);
        taken += now;
    }
    for (int i = 0; i < COUNT; i++)
        GOOD(sp_queue_get(queue, 1000 + (uint64_t)i, sp_plus(job->theirs, (uint64_t)i * 128), into[i], 128));
    for (int taken = 0; taken < COUNT;) {
        int now = sp_queue_take(queue, done, COUNT);
        GOOD(now);
        taken += now;
        struct pollfd ready = {fd, POLLIN, 0};
        if (now == 0) CHECK(poll(&ready, 1, 10000) == 1);
    }
    for (int i = 0; i < COUNT; i++) is_from(into[i], 128, (uint32_t)i);

    /* Events of all kinds; the old word comes as the value. */
    sp_event *event;
    GOOD(sp_put_u64(job->node, job->theirs, 40));
    GOOD(sp_fetch_nb(job->node, job->theirs, SP_U64, SP_ADD, 2, &event));
    GOOD(sp_queue_add(queue, 7, event));
    CHECK(sp_queue_wait(queue, done, 1, SP_SECOND) == 1 && done[0].token == 7 && done[0].value == 40);
    sp_piece piece = {job->theirs, into[0], 64};
    GOOD(sp_get_list_nb(job->node, &piece, 1, &event));
    GOOD(sp_queue_add(queue, 8, event));
    CHECK(sp_queue_wait(queue, done, COUNT, SP_SECOND) == 1 && done[0].token == 8);
    GOOD(sp_put_nb(job->node, job->theirs, from[0], 64, &event));
    GOOD(sp_event_wait_local(event));
    GOOD(sp_queue_add(queue, 9, event));
    CHECK(sp_queue_wait(queue, done, COUNT, SP_SECOND) == 1 && done[0].token == 9 && done[0].status == SP_OK);
    sp_collective barrier = {.size = sizeof barrier, .kind = SP_BARRIER};
    GOOD(sp_team_start(job->world, &barrier, &event));
    FAILS(SP_ERR_ARGUMENT, sp_queue_add(queue, 10, event));
    GOOD(sp_event_wait(event));
    /* Failures come out of the queue, too. */
    sp_remote beyond = {job->right, SP_HEAP, UINT64_MAX - 4096};
    GOOD(sp_queue_put(queue, 11, beyond, from[0], 8));
    CHECK(sp_queue_wait(queue, done, COUNT, SP_SECOND) == 1 && done[0].status == SP_ERR_FAULT && done[0].token == 11);
    CHECK(sp_queue_cancel(queue, 3) == 0 && sp_queue_cancel_all(queue) == 0);
    GOOD(sp_queue_put(queue, 12, job->theirs, from[0], 8));
    sp_queue_free(queue);
    sp_queue_free(NULL);
    sp_event *events[3];
    for (int i = 0; i < 3; i++) GOOD(sp_put_nb(job->node, sp_plus(job->theirs, 256u * (unsigned)i), from[i], 128, &events[i]));
    GOOD(sp_event_wait_all(events, 3));
    GOOD(sp_put_nb(job->node, job->theirs, from[0], 128, &event));
    sp_event_forget(event);
    sp_event_forget(NULL);
    GOOD(sp_put_nb(job->node, job->theirs, from[0], 128, &event));
    int cancelled = sp_event_cancel(event);
    CHECK(cancelled == SP_OK || cancelled == SP_ERR_CANCELLED);
    uint64_t value;
    GOOD(sp_put_nb(job->node, job->theirs, from[0], 128, &event));
    FAILS(SP_ERR_ARGUMENT, sp_event_wait_value(event, &value));
    GOOD(sp_quiet(job->node));
    GOOD(sp_barrier(job->node));
}

/* ---- 7 Meeting */

#define SECRET "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void meeting(struct job *job) {
    uint32_t peers[RANKS_MAX];
    size_t count;
    char text[128], name[32];
    GOOD(sp_connect(job->node, job->right));
    GOOD(sp_peers(job->node, SP_NEAR_PEERS, peers, RANKS_MAX, &count));
    CHECK(count >= 1 && count <= job->size);
    GOOD(sp_peers(job->node, SP_LOST_PEERS, peers, RANKS_MAX, &count));
    CHECK(count == 0 && sp_is_lost(job->node, job->right) == 0);
    GOOD(sp_peers(job->node, SP_ALL_PEERS, NULL, 0, &count));
    FAILS(SP_ERR_ARGUMENT, sp_peers(job->node, 17, peers, RANKS_MAX, &count));
    GOOD(sp_path_to(job->node, job->right, text, sizeof text, &count));
    CHECK(strlen(text) == count && count > 0);
    int provider = sp_provider(job->node, text, sizeof text, NULL);
    CHECK(provider == SP_OK || provider == SP_ERR_NOT_FOUND);

    snprintf(name, sizeof name, "name of %u", job->rank);
    GOOD(sp_publish(job->node, name, &job->rank, sizeof job->rank));
    snprintf(name, sizeof name, "name of %u", job->right);
    uint32_t rank = 99;
    GOOD(sp_lookup_wait(job->node, name, SP_SECOND * 10, &rank, sizeof rank, &count));
    CHECK(rank == job->right && count == sizeof rank);
    rank = 99;
    GOOD(sp_lookup(job->node, name, &rank, sizeof rank, NULL));
    CHECK(rank == job->right);
    FAILS(SP_ERR_LENGTH, sp_lookup(job->node, name, &rank, 1, &count));
    CHECK(count == sizeof rank);
    FAILS(SP_ERR_NOT_FOUND, sp_lookup(job->node, "nobody", &rank, sizeof rank, NULL));
    FAILS(SP_ERR_TIMEOUT, sp_lookup_wait(job->node, "nobody", 1000000, &rank, sizeof rank, NULL));
    GOOD(sp_barrier(job->node));
    snprintf(name, sizeof name, "name of %u", job->rank);
    GOOD(sp_withdraw(job->node, name));
    FAILS(SP_ERR_NOT_FOUND, sp_withdraw(job->node, name));

    /* Nodes that nobody launched. */
    sp_node *one, *other;
    sp_config *config[2];
    for (int i = 0; i < 2; i++) {
        GOOD(sp_config_defaults(&config[i]));
        GOOD(sp_config_set(config[i], "STANDPIPE_HEAP", "4M"));
    }
    GOOD(sp_open_as(config[0], SP_ALONE, &one));
    GOOD(sp_open_as(config[1], SP_ALONE, &other));
    char address[1024];
    size_t len;
    uint32_t peer;
    GOOD(sp_address(one, address, sizeof address, &len));
    FAILS(SP_ERR_LENGTH, sp_address(one, address, 3, &count));
    CHECK(count == len);
    GOOD(sp_address(one, address, sizeof address, &len));
    GOOD(sp_connect_to(other, address, len, &peer));
    sp_remote at;
    void *here;
    GOOD(sp_alloc(one, 64, &at, &here));
    at.peer = peer; /* the number that `other` has for it */
    GOOD(sp_put(other, at, "through", 8));
    CHECK(strcmp(here, "through") == 0);
    CHECK(sp_connect_to(other, "nonsense", 8, &peer) == SP_ERR_ADDRESS);
    GOOD(sp_close(other, SP_SECOND));
    GOOD(sp_close(one, SP_SECOND));
    sp_rendezvous *place;
    if (!getenv("STANDPIPE_RENDEZVOUS")) FAILS(SP_ERR_NOT_FOUND, sp_rendezvous_new(NULL, NULL, &place));
    CHECK(sp_rendezvous_new("no such place", "secret", &place) < 0);
    GOOD(sp_rendezvous_new("127.0.0.1:9", SECRET, &place));
    CHECK(sp_rendezvous_find(place, "name", 1000000, address, sizeof address, &len) < 0);
    CHECK(sp_rendezvous_leave(place, "name", "nonsense", 8, 1000000) == SP_ERR_ADDRESS);
    CHECK(sp_rendezvous_withdraw(place, "name", "nonsense", 8, 1000000) == SP_ERR_ADDRESS);
    sp_rendezvous_free(place);
    sp_rendezvous_free(NULL);
    GOOD(sp_barrier(job->node));
}

/* ---- 8 Signals and atomics */

static void signals(struct job *job) {
    /* Bytes at 0, counters at 4096 on. */
    sp_signal one = {sp_plus(job->theirs, 4096), 1, 0}, set = {sp_plus(job->theirs, 4104), 9, 1};
    unsigned char bytes[256];
    sp_event *event;
    uint64_t seen;
    fill(bytes, sizeof bytes, job->rank);
    GOOD(sp_put_signal(job->node, job->theirs, bytes, sizeof bytes, one));
    GOOD(sp_put_signal_nb(job->node, sp_plus(job->theirs, 256), bytes, sizeof bytes, one, &event));
    GOOD(sp_event_wait(event));
    GOOD(sp_put_signal_nbi(job->node, sp_plus(job->theirs, 512), bytes, sizeof bytes, one));
    GOOD(sp_put_signal(job->node, sp_plus(job->theirs, 768), bytes, sizeof bytes, set));
    GOOD(sp_quiet(job->node));
    sp_wait waits[2] = {
        {sp_plus(job->mine, 4096), SP_U64, SP_GE, 3, job->left, 0},
        {sp_plus(job->mine, 4104), SP_U64, SP_EQ, 9, UINT32_MAX, 0},
    };
    GOOD(sp_wait_signal(job->node, &waits[0], &seen));
    CHECK(seen == 3);
    GOOD(sp_wait_signal(job->node, &waits[1], NULL));
    for (int i = 0; i < 4; i++) is_from(job->here + 256 * i, 256, job->left);
    CHECK(sp_test_signal(job->node, &waits[0], &seen) == 1 && seen == 3);
    size_t met[2], count;
    GOOD(sp_wait_signals(job->node, waits, 2, SP_ALL, met, &count));
    CHECK(count == 2 && met[0] == 0 && met[1] == 1);
    GOOD(sp_wait_signals(job->node, waits, 2, SP_ANY, met, &count));
    CHECK(count == 1 && met[0] == 0);
    waits[0].compare = SP_GT;
    GOOD(sp_wait_signals(job->node, waits, 2, SP_SOME, met, &count));
    CHECK(count == 1 && met[0] == 1);
    waits[1].skip = 1;
    GOOD(sp_wait_signals(job->node, waits, 2, SP_NOW, met, &count));
    CHECK(count == 0);
    CHECK(sp_test_signal(job->node, &waits[0], &seen) == 0);
    sp_node *limited;
    GOOD(sp_within(job->node, 10000000, &limited));
    FAILS(SP_ERR_TIMEOUT, sp_wait_signal(limited, &waits[0], &seen));
    sp_release(limited);
    waits[0].type = SP_F64;
    FAILS(SP_ERR_ARGUMENT, sp_wait_signal(job->node, &waits[0], &seen));
    waits[0].type = SP_U32;
    FAILS(SP_ERR_ARGUMENT, sp_wait_signals(job->node, waits, 2, SP_ALL, met, &count));
    FAILS(SP_ERR_ARGUMENT, sp_wait_signals(job->node, waits, 1, 8, met, &count));
    waits[0].counter = job->theirs;
    if (job->size > 1) FAILS(SP_ERR_ELSEWHERE, sp_wait_signal(job->node, &waits[0], &seen));
    GOOD(sp_barrier(job->node));
}

static void atomics(struct job *job) {
    sp_remote word = job->theirs;
    uint64_t old;
    GOOD(sp_put_u64(job->node, word, 10));
    static const struct { int op; uint64_t value, after; } steps[] = {
        {SP_ADD, 5, 15}, {SP_AND, 7, 7}, {SP_OR, 8, 15}, {SP_XOR, 1, 14}, {SP_MIN, 9, 9}, {SP_MAX, 20, 20}, {SP_SWAP, 3, 3},
    };
    uint64_t before = 10;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        GOOD(sp_fetch(job->node, word, SP_U64, steps[i].op, steps[i].value, &old));
        CHECK(old == before);
        before = steps[i].after;
    }
    GOOD(sp_fetch(job->node, word, SP_U64, SP_LOAD, 0, &old));
    CHECK(old == 3);
    GOOD(sp_compare_swap(job->node, word, SP_U64, 4, 50, &old));
    CHECK(old == 3);
    GOOD(sp_compare_swap(job->node, word, SP_U64, 3, 50, &old));
    GOOD(sp_fetch_add_u64(job->node, word, 1, &old));
    CHECK(old == 50);
    GOOD(sp_update_nbi(job->node, word, SP_U64, SP_ADD, 1));
    GOOD(sp_quiet(job->node));
    sp_event *event;
    GOOD(sp_fetch_nb(job->node, word, SP_U64, SP_ADD, 1, &event));
    GOOD(sp_event_wait_value(event, &old));
    CHECK(old == 52);
    GOOD(sp_compare_swap_nb(job->node, word, SP_U64, 53, 1, &event));
    GOOD(sp_event_wait_value(event, &old));
    CHECK(old == 53);
    GOOD(sp_fetch_nb(job->node, word, SP_U64, SP_LOAD, 0, &event));
    GOOD(sp_event_wait_value(event, &old));
    CHECK(old == 1);

    /* Signed, of 4 bytes, and floating. */
    sp_remote narrow = sp_plus(job->theirs, 64), real = sp_plus(job->theirs, 128);
    uint32_t zero = 0;
    GOOD(sp_put(job->node, narrow, &zero, 4));
    GOOD(sp_fetch(job->node, narrow, SP_I32, SP_ADD, (uint32_t)-5, NULL));
    GOOD(sp_fetch(job->node, narrow, SP_I32, SP_MAX, (uint32_t)-3, &old));
    CHECK((int32_t)old == -5);
    GOOD(sp_fetch(job->node, narrow, SP_U32, SP_LOAD, 0, &old));
    CHECK((int32_t)(uint32_t)old == -3);
    double half = 0.5, sum;
    uint64_t bits;
    memcpy(&bits, &half, 8);
    GOOD(sp_put_u64(job->node, real, 0));
    GOOD(sp_fetch(job->node, real, SP_F64, SP_ADD, bits, NULL));
    GOOD(sp_fetch(job->node, real, SP_F64, SP_ADD, bits, &old));
    memcpy(&sum, &old, 8);
    CHECK(sum == 0.5);
    FAILS(SP_ERR_NO_SUCH_OPERATION, sp_fetch(job->node, real, SP_F64, SP_AND, 1, NULL));
    FAILS(SP_ERR_UNALIGNED, sp_fetch(job->node, sp_plus(word, 4), SP_U64, SP_ADD, 1, NULL));
    FAILS(SP_ERR_ARGUMENT, sp_fetch(job->node, word, SP_U8, SP_ADD, 1, NULL));
    FAILS(SP_ERR_ARGUMENT, sp_fetch(job->node, word, SP_U64, 12, 1, NULL));
    FAILS(SP_ERR_ARGUMENT, sp_update_nbi(job->node, word, SP_U64, SP_LOAD, 1));
    sp_remote private = {job->right, SP_PRIVATE, 4096};
    FAILS(SP_ERR_ARGUMENT, sp_fetch(job->node, private, SP_U64, SP_ADD, 1, NULL));
    GOOD(sp_barrier(job->node));
}

/* ---- 9 Messages */

static struct {
    struct job *job;
    uint64_t pongs, sums, longs, kept, late;
    sp_payload *payload;
} heard;

static void on_ping(sp_call *call, void *context) {
    CHECK(context == &heard && call->is_request && call->size == sizeof *call);
    CHECK(sp_barrier(heard.job->node) == SP_ERR_IN_HANDLER);
    uint64_t args[4] = {call->args[0] + 1};
    GOOD(sp_reply(call, sp_handler_id("test", "pong"), args));
    FAILS(SP_ERR_NO_REPLY_DUE, sp_reply(call, sp_handler_id("test", "pong"), args));
}

static void on_pong(sp_call *call, void *context) {
    (void)context;
    CHECK(!call->is_request);
    heard.pongs += call->args[0];
}

static void on_bytes(sp_call *call, void *context) {
    (void)context;
    unsigned char first[3] = {0};
    sp_node *node;
    GOOD(sp_call_node(call, &node));
    CHECK(sp_rank(node) == heard.job->rank);
    sp_release(node);
    if (call->payload_len >= 3) GOOD(sp_call_read(call, 0, first, 3));
    if (call->payload_len > 0) FAILS(SP_ERR_LENGTH, sp_call_read(call, 1, first, call->payload_len));
    const unsigned char *bytes = sp_call_payload(call);
    CHECK((bytes != NULL) == (call->payload_len > 0));
    for (size_t i = 0; i < call->payload_len; i++) CHECK(bytes[i] == pattern(call->from, i));
    if (call->args[0] == 1) {
        GOOD(sp_call_keep(call, &heard.payload));
        heard.kept++;
    }
    heard.sums += 1;
    if (call->args[0] == 2) GOOD(sp_reply_medium(call, sp_handler_id("test", "bytes"), (uint64_t[4]){0}, "", 0));
}

static void on_long(sp_call *call, void *context) {
    (void)context;
    CHECK(call->landed_len == call->args[0] && call->landed.peer == heard.job->rank);
    size_t at = call->is_request ? 1024 : 4096;
    CHECK(call->landed.memory == SP_HEAP && call->landed.at == heard.job->mine.at + at);
    is_from(heard.job->here + at, call->landed_len, call->from);
    heard.longs++;
    if (call->is_request) {
        sp_remote back = heard.job->boxes[call->from];
        unsigned char bytes[64];
        fill(bytes, sizeof bytes, heard.job->rank);
        GOOD(sp_reply_long(call, sp_handler_id("test", "long"), (uint64_t[4]){64}, sp_plus(back, 4096), bytes, 64));
    }
}

static int all_heard(void *wanted) {
    uint64_t *want = wanted;
    return heard.pongs == want[0] && heard.sums == want[1] && heard.longs == want[2];
}

static void messages(struct job *job) {
    heard.job = job;
    uint64_t ping, id;
    GOOD(sp_register(job->node, "test", "ping", on_ping, &heard, &ping));
    CHECK(ping == sp_handler_id("test", "ping") && ping != sp_handler_id("test", "pong"));
    GOOD(sp_register(job->node, "test", "pong", on_pong, NULL, NULL));
    GOOD(sp_register(job->node, "test", "bytes", on_bytes, NULL, &id));
    GOOD(sp_register(job->node, "test", "long", on_long, NULL, NULL));
    FAILS(SP_ERR_TAKEN, sp_register(job->node, "test", "long", on_long, NULL, NULL));
    FAILS(SP_ERR_NAME, sp_register(job->node, "test", "", on_long, NULL, NULL));
    FAILS(SP_ERR_ARGUMENT, sp_register(job->node, "test", "none", NULL, NULL, NULL));
    GOOD(sp_barrier(job->node));
    CHECK(sp_has_handler(job->node, job->right, ping) == 1);
    CHECK(sp_has_handler(job->node, job->right, sp_handler_id("test", "nothing")) == 0);

    uint64_t args[4] = {1}, want[3] = {0, 0, 0};
    for (int i = 0; i < 100; i++) GOOD(sp_request(job->node, job->right, ping, args));
    for (int i = 0; i < 100;) {
        int sent = sp_try_request(job->node, job->right, ping, args);
        GOOD(sent);
        i += sent;
        if (!sent) GOOD(sp_progress(job->node));
    }
    want[0] = 400;
    unsigned char bytes[1000];
    fill(bytes, sizeof bytes, job->rank);
    size_t most = sp_medium_max(job->node, job->right);
    CHECK(most >= 4096);
    for (size_t len = 0; len <= sizeof bytes; len += 250) GOOD(sp_request_medium(job->node, job->right, id, NULL, bytes, len));
    while (sp_try_request_medium(job->node, job->right, id, NULL, bytes, 10) == 0) GOOD(sp_progress(job->node));
    GOOD(sp_request_medium(job->node, job->right, id, (uint64_t[4]){1}, bytes, 777));
    GOOD(sp_request_medium(job->node, job->right, id, (uint64_t[4]){2}, bytes, 5));
    want[1] = 9;
    FAILS(SP_ERR_LENGTH, sp_request_medium(job->node, job->right, id, NULL, bytes, most + 1));
    sp_prepared *prepared;
    unsigned char *room;
    size_t len;
    GOOD(sp_prepare_medium(job->node, job->right, 100, 200, &prepared, (void **)&room, &len));
    CHECK(len >= 100 && len <= 200);
    fill(room, len, job->rank);
    GOOD(sp_prepared_send(prepared, id, NULL, len));
    GOOD(sp_prepare_medium(job->node, job->right, 100, 200, &prepared, (void **)&room, NULL));
    fill(room, 100, job->rank);
    int sent;
    while ((sent = sp_prepared_try_send(prepared, id, NULL, 100)) == 0) GOOD(sp_progress(job->node));
    CHECK(sent == 1);
    GOOD(sp_prepare_medium(job->node, job->right, 1, 1, &prepared, (void **)&room, NULL));
    sp_prepared_free(prepared);
    sp_prepared_free(NULL);
    want[1] += 2;
    uint64_t lens[4] = {1000};
    uint64_t lng = sp_handler_id("test", "long");
    sp_remote to = sp_plus(job->theirs, 1024);
    GOOD(sp_request_long(job->node, lng, lens, to, bytes, 1000));
    want[2] = 2;
    GOOD(sp_wait_until(job->node, all_heard, want));
    GOOD(sp_barrier(job->node));
    while (sp_try_request_long(job->node, lng, lens, to, bytes, 1000) == 0) GOOD(sp_progress(job->node));
    want[2] = 4;
    GOOD(sp_wait_until(job->node, all_heard, want));
    GOOD(sp_barrier(job->node));
    sp_event *event;
    GOOD(sp_request_long_nb(job->node, lng, lens, to, bytes, 1000, &event));
    GOOD(sp_event_wait(event));
    want[2] = 6;
    GOOD(sp_wait_until(job->node, all_heard, want));
    CHECK(heard.kept == 1);
    const unsigned char *kept = sp_payload_bytes(heard.payload, &len);
    CHECK(len == 777);
    is_from(kept, len, job->left);
    sp_payload_free(heard.payload);
    sp_payload_free(NULL);
    GOOD(sp_barrier(job->node));
    GOOD(sp_unregister(job->node, ping));
    FAILS(SP_ERR_NOT_FOUND, sp_unregister(job->node, ping));
    GOOD(sp_barrier(job->node));
}

/* ---- 10 Teams */

static void concatenates(void *into, const void *from, size_t bytes, void *context) {
    CHECK(context == &heard);
    uint64_t *a = into;
    const uint64_t *b = from;
    for (size_t i = 0; i < bytes / 8; i++) a[i] = a[i] * 10 + b[i] % 10;
}

static void teams(struct job *job) {
    enum { EACH = 24 };
    uint32_t size = job->size, rank = job->rank;
    CHECK(sp_team_rank(job->world) == rank && sp_team_size(job->world) == size);
    CHECK(sp_team_job_rank(job->world, size - 1) == size - 1 && sp_team_job_rank(job->world, size) == UINT32_MAX);
    GOOD(sp_team_barrier(job->world));
    unsigned char mine[EACH], all[EACH * RANKS_MAX], back[EACH * RANKS_MAX], one[EACH];
    fill(mine, EACH, rank);
    memcpy(one, mine, EACH);
    GOOD(sp_team_broadcast(job->world, one, EACH, size - 1));
    is_from(one, EACH, size - 1);
    GOOD(sp_team_gather(job->world, mine, rank == 0 ? all : NULL, EACH, 0));
    GOOD(sp_team_scatter(job->world, rank == 0 ? all : NULL, one, EACH, 0));
    is_from(one, EACH, rank);
    memset(all, 0, sizeof all);
    GOOD(sp_team_all_gather(job->world, mine, all, EACH));
    for (uint32_t i = 0; i < size; i++) is_from(all + i * EACH, EACH, i);
    GOOD(sp_team_all_to_all(job->world, all, back, EACH));
    for (uint32_t i = 0; i < size; i++) is_from(back + i * EACH, EACH, rank);
    size_t sends[RANKS_MAX], receives[RANKS_MAX];
    for (uint32_t i = 0; i < size; i++) {
        sends[i] = i + 1;
        receives[i] = rank + 1;
    }
    GOOD(sp_team_all_to_all_v(job->world, all, sends, back, receives));
    double values[3] = {rank, 1, -(double)rank}, result[3] = {0};
    GOOD(sp_team_reduce(job->world, values, rank == 0 ? result : NULL, 3, SP_F64, SP_SUM, 0));
    if (rank == 0) CHECK(result[1] == size && result[0] == -result[2]);
    GOOD(sp_team_all_reduce(job->world, values, 3, SP_F64, SP_GREATEST));
    CHECK(values[0] == size - 1 && values[2] == 0);
    FAILS(SP_ERR_NO_SUCH_OPERATION, sp_team_all_reduce(job->world, values, 3, SP_F64, SP_BITS_AND));
    FAILS(SP_ERR_ARGUMENT, sp_team_all_reduce(job->world, values, 3, 99, SP_SUM));
    FAILS(SP_ERR_ARGUMENT, sp_team_all_reduce(job->world, values, 3, SP_F64, 0));
    uint64_t digits = rank + 1, joined = 0, expected = 0;
    for (uint32_t i = 0; i < size; i++) expected = expected * 10 + i + 1;
    GOOD(sp_team_all_reduce_with(job->world, &digits, 1, 8, concatenates, &heard));
    if (size <= 2) CHECK(digits == expected);
    digits = rank + 1;
    GOOD(sp_team_reduce_with(job->world, &digits, &joined, 1, 8, concatenates, &heard, 0));
    if (size <= 2 && rank == 0) CHECK(joined == expected);
    FAILS(SP_ERR_ARGUMENT, sp_team_all_reduce_with(job->world, &digits, 1, 8, NULL, NULL));

    /* The same, started. */
    sp_event *events[3];
    int32_t ints[2] = {(int32_t)rank, 1}, least[2] = {7, 7};
    sp_collective reduce = {.size = sizeof reduce, .kind = SP_REDUCE, .from = ints, .into = least, .count = 2,
                            .type = SP_I32, .reduction = SP_LEAST};
    sp_collective gather = {.size = sizeof gather, .kind = SP_ALL_GATHER, .from = mine, .into = back, .count = EACH};
    sp_collective cast = {.size = sizeof cast, .kind = SP_BROADCAST, .into = one, .count = EACH, .root = size - 1};
    GOOD(sp_team_start(job->world, &reduce, &events[0]));
    GOOD(sp_team_start(job->world, &gather, &events[1]));
    GOOD(sp_team_start(job->world, &cast, &events[2]));
    CHECK(sp_event_peer(events[0]) == UINT32_MAX);
    GOOD(sp_event_wait_all(events, 3));
    if (rank == 0) CHECK(least[0] == 0 && least[1] == 1);
    for (uint32_t i = 0; i < size; i++) is_from(back + i * EACH, EACH, i);
    is_from(one, EACH, size - 1);
    gather.kind = 40;
    FAILS(SP_ERR_ARGUMENT, sp_team_start(job->world, &gather, &events[0]));
    gather.kind = SP_ALL_GATHER;
    gather.into = NULL;
    FAILS(SP_ERR_ARGUMENT, sp_team_start(job->world, &gather, &events[0]));

    sp_team *part, *limited, *named, *near;
    GOOD(sp_team_split(job->world, rank % 2, -(int64_t)rank, &part));
    CHECK(sp_team_size(part) == (size + 1 - rank % 2) / 2);
    GOOD(sp_team_within(part, SP_SECOND, &limited));
    GOOD(sp_team_barrier(limited));
    sp_team_free(limited);
    sp_team_free(part);
    GOOD(sp_team_split(job->world, -1, 0, &part));
    CHECK(part == NULL);
    sp_team_free(NULL);
    GOOD(sp_world_of(job->node, "a library", &named));
    GOOD(sp_team_barrier(named));
    sp_team_free(named);
    GOOD(sp_near_team(job->node, &near));
    CHECK(sp_team_size(near) >= 1);
    sp_team_free(near);
    FAILS(SP_ERR_NO_SUCH_PEER, sp_team_broadcast(job->world, one, EACH, size));
}

/* ---- 11 Grants */

static int released;

static void on_release(void *context) {
    CHECK(context == &released);
    released++;
}

static void grants(struct job *job) {
    static unsigned char lent[4096], second[4096], into[4096];
    sp_grant_params params = {sizeof params, SP_READ | SP_WRITE, NULL, 0, on_release, &released};
    sp_grant *grant;
    sp_name name, names[RANKS_MAX];
    sp_remote theirs;
    uint64_t len;
    fill(lent, sizeof lent, job->rank);
    GOOD(sp_grant_memory(job->node, lent, sizeof lent, &params, &grant));
    GOOD(sp_grant_name(grant, &name));
    GOOD(sp_team_all_gather(job->world, &name, names, sizeof name));
    GOOD(sp_granted(job->right, &names[job->right], &theirs, &len));
    CHECK(len == sizeof lent && (theirs.memory & 3) == SP_GRANTED && theirs.peer == job->right);
    GOOD(sp_get(job->node, theirs, into, sizeof into));
    is_from(into, sizeof into, job->right);
    GOOD(sp_barrier(job->node));
    GOOD(sp_put(job->node, sp_plus(theirs, 8), "12345678", 8));
    GOOD(sp_barrier(job->node));
    CHECK(memcmp(lent + 8, "12345678", 8) == 0);
    FAILS(SP_ERR_FAULT, sp_get(job->node, sp_plus(theirs, 4000), into, 200));
    /* The name stands for other memory from now on. */
    memset(second, 9, sizeof second);
    GOOD(sp_barrier(job->node));
    FAILS(SP_ERR_LENGTH, sp_grant_repoint(grant, second, 100, SP_SECOND));
    GOOD(sp_grant_repoint(grant, second, sizeof second, 10 * SP_SECOND));
    CHECK(released == 1);
    GOOD(sp_barrier(job->node));
    GOOD(sp_get(job->node, theirs, into, 100));
    CHECK(into[0] == 9 && into[99] == 9);
    GOOD(sp_barrier(job->node));
    GOOD(sp_grant_revoke(grant));
    FAILS(SP_ERR_REVOKED, sp_grant_revoke(grant));
    GOOD(sp_barrier(job->node));
    FAILS(SP_ERR_REVOKED, sp_get(job->node, theirs, into, 100));
    GOOD(sp_barrier(job->node));
    GOOD(sp_grant_wait_idle(grant, 10 * SP_SECOND));
    sp_grant_free(grant);
    sp_grant_free(NULL);

    /* For this rank alone, and to be read only. */
    uint32_t self = job->rank;
    sp_grant_params own = {sizeof own, SP_READ, &self, 1, on_release, &released};
    GOOD(sp_grant_memory(job->node, lent, sizeof lent, &own, &grant));
    GOOD(sp_grant_name(grant, &name));
    GOOD(sp_team_all_gather(job->world, &name, names, sizeof name));
    GOOD(sp_granted(job->right, &names[job->right], &theirs, NULL));
    if (job->size > 1) FAILS(SP_ERR_NOT_EXPOSED, sp_get(job->node, theirs, into, 8));
    FAILS(SP_ERR_NOT_EXPOSED, sp_put(job->node, theirs, into, 8));
    GOOD(sp_barrier(job->node));
    released = 0;
    sp_grant_free(grant);
    CHECK(released <= 1);

    void *memory[3] = {lent, lent + 100, second};
    size_t lens[3] = {50, 60, 70};
    sp_grant *many[3];
    GOOD(sp_grant_many(job->node, memory, lens, 3, NULL, many));
    for (int i = 0; i < 3; i++) {
        GOOD(sp_grant_name(many[i], &name));
        GOOD(sp_granted(job->rank, &name, &theirs, &len));
        CHECK(len == lens[i]);
        GOOD(sp_get(job->node, theirs, into, lens[i]));
        GOOD(sp_grant_wait_idle(many[i], SP_SECOND));
        sp_grant_free(many[i]);
    }
    uint32_t nobody = job->size + 9;
    own.to = &nobody;
    FAILS(SP_ERR_NO_SUCH_PEER, sp_grant_memory(job->node, lent, 8, &own, &grant));
    FAILS(SP_ERR_LENGTH, sp_grant_memory(job->node, lent, 0, NULL, &grant));
    own.release = on_release;
    released = 0;
    FAILS(SP_ERR_NO_SUCH_PEER, sp_grant_memory(job->node, lent, 8, &own, &grant));
    CHECK(released == 0);
    own.rights = 8;
    FAILS(SP_ERR_ARGUMENT, sp_grant_memory(job->node, lent, 8, &own, &grant));
    sp_exposed *exposed;
    GOOD(sp_expose(job->node, lent, sizeof lent, SP_READ, &exposed));
    sp_unexpose(exposed);
    sp_unexpose(NULL);
    FAILS(SP_ERR_ARGUMENT, sp_expose(job->node, lent, sizeof lent, 0, &exposed));
    GOOD(sp_barrier(job->node));
}

/* Atomics and signals on words of grants. */
static void granted_words(struct job *job) {
    static uint64_t words[8], counts[8];
    sp_grant_params both = {sizeof both, SP_READ | SP_WRITE, NULL, 0, NULL, NULL};
    sp_grant_params write = {sizeof write, SP_WRITE, NULL, 0, NULL, NULL};
    sp_grant *grant, *counters;
    sp_name name, names[RANKS_MAX];
    sp_remote theirs, counter;
    sp_event *event;
    uint64_t old;
    GOOD(sp_grant_memory(job->node, words, sizeof words, &both, &grant));
    GOOD(sp_grant_name(grant, &name));
    GOOD(sp_team_all_gather(job->world, &name, names, sizeof name));
    GOOD(sp_granted(job->right, &names[job->right], &theirs, NULL));
    GOOD(sp_grant_memory(job->node, counts, sizeof counts, &write, &counters));
    GOOD(sp_grant_name(counters, &name));
    GOOD(sp_team_all_gather(job->world, &name, names, sizeof name));
    GOOD(sp_granted(job->right, &names[job->right], &counter, NULL));
    GOOD(sp_fetch_add_u64(job->node, theirs, 5, &old));
    CHECK(old == 0);
    GOOD(sp_fetch_add_u64(job->node, theirs, 5, NULL));
    GOOD(sp_fetch(job->node, theirs, SP_U64, SP_SWAP, 7, &old));
    CHECK(old == 10);
    GOOD(sp_compare_swap(job->node, theirs, SP_U64, 7, 8, &old));
    CHECK(old == 7);
    GOOD(sp_update_nbi(job->node, theirs, SP_U64, SP_ADD, 1));
    GOOD(sp_quiet(job->node));
    GOOD(sp_fetch_nb(job->node, theirs, SP_U64, SP_LOAD, 0, &event));
    GOOD(sp_event_wait_value(event, &old));
    CHECK(old == 9);
    GOOD(sp_fetch(job->node, sp_plus(theirs, 8), SP_I32, SP_ADD, (uint32_t)-5, NULL));
    GOOD(sp_fetch(job->node, sp_plus(theirs, 8), SP_I32, SP_MAX, 3, &old));
    CHECK((int32_t)old == -5);
    FAILS(SP_ERR_UNALIGNED, sp_fetch(job->node, sp_plus(theirs, 4), SP_U64, SP_ADD, 1, NULL));
    FAILS(SP_ERR_FAULT, sp_fetch(job->node, sp_plus(theirs, 64), SP_U64, SP_ADD, 1, NULL));
    /* These may be written alone: nobody gets the old word. */
    FAILS(SP_ERR_NOT_EXPOSED, sp_fetch(job->node, counter, SP_U64, SP_ADD, 1, &old));
    FAILS(SP_ERR_NOT_EXPOSED, sp_fetch(job->node, counter, SP_U64, SP_LOAD, 0, &old));
    GOOD(sp_fetch(job->node, counter, SP_U64, SP_ADD, 1, NULL));
    sp_signal signal = {counter, 2, 0};
    GOOD(sp_put_signal(job->node, sp_plus(theirs, 32), "12345678", 8, signal));
    GOOD(sp_barrier(job->node));
    CHECK(words[0] == 9 && memcmp(words + 4, "12345678", 8) == 0 && counts[0] == 3);
    GOOD(sp_grant_revoke(grant));
    GOOD(sp_barrier(job->node));
    FAILS(SP_ERR_REVOKED, sp_fetch_add_u64(job->node, theirs, 5, &old));
    GOOD(sp_barrier(job->node));
    CHECK(words[0] == 9);
    GOOD(sp_grant_wait_idle(grant, 10 * SP_SECOND));
    GOOD(sp_grant_wait_idle(counters, 10 * SP_SECOND));
    sp_grant_free(grant);
    sp_grant_free(counters);
    GOOD(sp_barrier(job->node));
}

/* ---- 12 Figures */

static void figures(struct job *job) {
    uint64_t count, bytes, before, value;
    GOOD(sp_count_of(job->node, SP_OP_PUT, -1, &before, NULL));
    GOOD(sp_put(job->node, job->theirs, "12345678", 8));
    GOOD(sp_count_of(job->node, SP_OP_PUT, -1, &count, &bytes));
    CHECK(count == before + 1 && bytes >= 8);
    GOOD(sp_count_of(job->node, SP_OP_PUT, SP_MAPPED, &count, &bytes));
    FAILS(SP_ERR_ARGUMENT, sp_count_of(job->node, 99, -1, &count, &bytes));
    FAILS(SP_ERR_ARGUMENT, sp_count_of(job->node, SP_OP_PUT, 99, &count, &bytes));
    GOOD(sp_figure(job->node, "malformed", &value));
    CHECK(value == 0);
    GOOD(sp_figure(job->node, "hits", &value));
    FAILS(SP_ERR_NOT_FOUND, sp_figure(job->node, "nonsense", &value));
    GOOD(sp_latency(job->node, "put", 0.5, &value, &count));
    FAILS(SP_ERR_NOT_FOUND, sp_latency(job->node, "nonsense", 0.5, &value, &count));
    FAILS(SP_ERR_ARGUMENT, sp_latency(job->node, "put", 2, &value, &count));
    size_t len;
    char small[4];
    FAILS(SP_ERR_LENGTH, sp_metrics(job->node, small, sizeof small, &len));
    char *text = malloc(len + 4096);
    GOOD(sp_metrics(job->node, text, len + 4096, &len));
    CHECK(strlen(text) == len && strstr(text, "# EOF") != NULL);
    free(text);
    GOOD(sp_barrier(job->node));
}

static const struct {
    const char *name;
    void (*run)(struct job *job);
} CASES[] = {
    {"errors", errors}, {"settings", settings}, {"node", node}, {"memory", memory}, {"copies", copies}, {"lists", lists},
    {"queues", queues}, {"meeting", meeting}, {"signals", signals}, {"atomics", atomics}, {"messages", messages},
    {"teams", teams}, {"grants", grants}, {"granted_words", granted_words}, {"figures", figures},
};

int main(int argc, char **argv) {
    struct job job;
    GOOD(sp_open(NULL, &job.node));
    job.rank = sp_rank(job.node);
    job.size = sp_size(job.node);
    CHECK(job.size <= RANKS_MAX);
    job.right = (job.rank + 1) % job.size;
    job.left = (job.rank + job.size - 1) % job.size;
    GOOD(sp_alloc(job.node, BOX, &job.mine, (void **)&job.here));
    GOOD(sp_world(job.node, &job.world));
    GOOD(sp_team_all_gather(job.world, &job.mine, job.boxes, sizeof job.mine));
    job.theirs = job.boxes[job.right];
    int ran = 0;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        if (argc < 2 || strcmp(argv[1], CASES[i].name) == 0) {
            CASES[i].run(&job);
            /* Each begins with zeros. */
            GOOD(sp_barrier(job.node));
            memset(job.here, 0, BOX);
            GOOD(sp_barrier(job.node));
            ran++;
        }
    CHECK(ran > 0);
    sp_team_free(job.world);
    GOOD(sp_close(job.node, 10 * SP_SECOND));
    printf("%d cases\n", ran);
    return 0;
}
