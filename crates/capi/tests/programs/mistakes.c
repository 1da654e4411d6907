/* What a new user does wrong, each once: prints the name, the status and what the library says. */
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

static sp_node *node;
static sp_remote box;
static unsigned char *here;

static int null_node(void) { return sp_barrier(NULL); }
static int other_handle(void) {
    sp_queue *queue;
    GOOD(sp_queue_new(node, 1, &queue));
    int status = sp_barrier((sp_node *)(void *)queue);
    sp_queue_free(queue);
    return status;
}
static int no_handle(void) {
    uint64_t nonsense[4] = {1, 2, 3, 4};
    return sp_barrier((sp_node *)(void *)nonsense);
}
static int closed_node(void) {
    sp_node *other;
    GOOD(sp_open_as(NULL, SP_ALONE, &other));
    GOOD(sp_close(other, SP_SECOND));
    return sp_put(other, box, "x", 1);
}
static int no_such_peer(void) {
    sp_remote to = {7, SP_HEAP, 0};
    return sp_put(node, to, "x", 1);
}
static int beyond_the_heap(void) {
    sp_remote to = {0, SP_HEAP, 1ull << 60};
    return sp_put(node, to, "x", 1);
}
static int wild_address(void) {
    sp_remote to = {0, SP_PRIVATE, 64};
    return sp_put(node, to, "x", 1);
}
static int null_local(void) { return sp_put(node, box, NULL, 8); }
static int no_size(void) {
    sp_strided shape = {0};
    return sp_put_strided(node, box, here, &shape);
}
static int no_event(void) { return sp_put_nb(node, box, here, 8, NULL); }
static int unaligned(void) { return sp_fetch_add_u64(node, sp_plus(box, 3), 1, NULL); }
static int float_bits(void) { return sp_fetch(node, box, SP_F64, SP_OR, 1, NULL); }
static int no_type(void) { return sp_fetch(node, box, 0, SP_ADD, 1, NULL); }
static int bad_setting(void) {
    sp_config *config;
    GOOD(sp_config_defaults(&config));
    int status = sp_config_set(config, "STANDPIPE_HEEP", "1G");
    sp_config_free(config);
    return status;
}
static int bad_value(void) {
    sp_config *config;
    GOOD(sp_config_defaults(&config));
    int status = sp_config_set(config, "STANDPIPE_PROGRESS", "sometimes");
    sp_config_free(config);
    return status;
}
static int heap_full(void) { return sp_alloc(node, (size_t)1 << 60, NULL, NULL); }
static int freed_twice(void) {
    sp_remote at;
    GOOD(sp_alloc(node, 8, &at, NULL));
    GOOD(sp_free(node, at));
    return sp_free(node, at);
}
static int no_name(void) {
    int value;
    return sp_lookup(node, "nobody", &value, sizeof value, NULL);
}
static int small_room(void) {
    char value;
    GOOD(sp_publish(node, "eight", "12345678", 8));
    return sp_lookup(node, "eight", &value, 1, NULL);
}
static int status_in_handler;
static void waits(sp_call *call, void *context) {
    (void)call;
    (void)context;
    status_in_handler = sp_barrier(node);
}
static int waits_in_handler(void) {
    uint64_t id;
    GOOD(sp_register(node, "", "waits", waits, NULL, &id));
    GOOD(sp_request(node, 0, id, NULL));
    while (!status_in_handler) GOOD(sp_progress(node));
    return status_in_handler;
}
static int no_handler(void) { return sp_request(node, 0, sp_handler_id("", "nobody's"), NULL); }
static int handler_twice(void) { return sp_register(node, "", "waits", waits, NULL, NULL); }
static int handler_twice_early(void) {
    sp_config *config;
    char value[8];
    GOOD(sp_config_new(&config));
    GOOD(sp_config_set(config, "STANDPIPE_HEAP", "8M"));
    GOOD(sp_config_handler(config, "early", waits, NULL));
    int status = sp_config_handler(config, "early", waits, NULL);
    /* What it had, it has. */
    CHECK(sp_config_get(config, "STANDPIPE_HEAP", value, sizeof value, NULL) == 0);
    sp_config_free(config);
    return status;
}
static int closes_in_handler;
static void closes(sp_call *call, void *context) {
    (void)call;
    (void)context;
    closes_in_handler = sp_close(node, 0);
}
static int close_in_handler(void) {
    uint64_t id;
    GOOD(sp_register(node, "", "closes", closes, NULL, &id));
    GOOD(sp_request(node, 0, id, NULL));
    while (!closes_in_handler) GOOD(sp_progress(node));
    CHECK(sp_rank(node) == 0);
    return closes_in_handler;
}
static int released_node(void) {
    sp_release(node);
    sp_error error = {0};
    error.size = sizeof error;
    int status = sp_last_error(&error);
    CHECK(sp_rank(node) == 0);
    return status;
}
static int no_audience(void) {
    sp_grant_params params = {0};
    sp_grant *grant;
    params.size = sizeof params;
    params.to_count = 3;
    return sp_grant_memory(node, here, 8, &params, &grant);
}
static int empty_queue(void) {
    sp_queue *queue;
    return sp_queue_new(node, 0, &queue);
}
static int long_payload(void) {
    static char bytes[1 << 20];
    return sp_request_medium(node, 0, sp_handler_id("", "waits"), NULL, bytes, sizeof bytes);
}
static int full_queue(void) {
    sp_queue *queue;
    GOOD(sp_queue_new(node, 1, &queue));
    GOOD(sp_queue_put(queue, 1, box, here, 8));
    int status = sp_queue_put(queue, 2, box, here, 8);
    sp_queue_free(queue);
    return status;
}
static int revoked_grant(void) {
    sp_grant *grant;
    sp_name name;
    sp_remote at;
    GOOD(sp_grant_memory(node, here, 8, NULL, &grant));
    GOOD(sp_grant_name(grant, &name));
    sp_grant_free(grant);
    GOOD(sp_granted(0, &name, &at, NULL));
    uint64_t value;
    return sp_get(node, at, &value, 8);
}
static int write_to_read_only(void) {
    sp_grant *grant;
    sp_name name;
    sp_remote at;
    GOOD(sp_grant_memory(node, here, 8, NULL, &grant));
    GOOD(sp_grant_name(grant, &name));
    GOOD(sp_granted(0, &name, &at, NULL));
    int status = sp_put(node, at, "12345678", 8);
    sp_grant_free(grant);
    return status;
}
static int not_an_address(void) {
    uint32_t peer;
    return sp_connect_to(node, "localhost:7000", 14, &peer);
}

static int released;
static void is_released(void *context) {
    (void)context;
    released++;
}

static const struct {
    const char *name;
    int (*does)(void);
} MISTAKES[] = {
    {"null-node", null_node}, {"other-handle", other_handle}, {"no-handle", no_handle}, {"closed-node", closed_node},
    {"no-such-peer", no_such_peer}, {"beyond-the-heap", beyond_the_heap}, {"wild-address", wild_address},
    {"null-local", null_local}, {"no-size", no_size}, {"no-event", no_event},
    {"unaligned", unaligned}, {"float-bits", float_bits}, {"no-type", no_type}, {"bad-setting", bad_setting},
    {"bad-value", bad_value}, {"heap-full", heap_full}, {"freed-twice", freed_twice}, {"no-name", no_name},
    {"small-room", small_room}, {"waits-in-handler", waits_in_handler}, {"no-handler", no_handler},
    {"handler-twice", handler_twice}, {"handler-twice-early", handler_twice_early},
    {"close-in-handler", close_in_handler}, {"released-node", released_node}, {"no-audience", no_audience},
    {"empty-queue", empty_queue}, {"long-payload", long_payload}, {"full-queue", full_queue},
    {"revoked-grant", revoked_grant}, {"write-to-read-only", write_to_read_only}, {"not-an-address", not_an_address},
};

int main(void) {
    GOOD(sp_open(NULL, &node));
    GOOD(sp_alloc(node, 4096, &box, (void **)&here));
    for (size_t i = 0; i < sizeof MISTAKES / sizeof *MISTAKES; i++) {
        int status = MISTAKES[i].does();
        CHECK(status < 0);
        printf("%s | %d | %s\n", MISTAKES[i].name, status, sp_error_text());
    }
    sp_grant *grant;
    sp_grant_params params = {0};
    params.size = sizeof params;
    params.release = is_released;
    GOOD(sp_grant_memory(node, here, 8, &params, &grant));
    /* A child made by fork has no node. */
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int status = sp_put(node, box, here, 8);
        printf("forked | %d | %s\n", status, sp_error_text());
        fflush(stdout);
        /* Nor is it told of its parent's memory. */
        CHECK(sp_grant_revoke(grant) == SP_ERR_FORKED && sp_grant_wait_idle(grant, 0) == SP_ERR_FORKED);
        sp_grant_free(grant);
        CHECK(released == 0);
        _exit(status == SP_ERR_FORKED && sp_close(node, SP_SECOND) == SP_ERR_FORKED ? 0 : 1);
    }
    int ended;
    CHECK(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    GOOD(sp_grant_wait_idle(grant, SP_SECOND));
    CHECK(released == 1);
    sp_grant_free(grant);
    GOOD(sp_close(node, SP_SECOND));
    return 0;
}
