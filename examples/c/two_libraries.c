/* Two libraries in one process that know nothing of each other: a counter and a log. Each opens the process's node, and
 * has its own handlers, its own quiet and its own end; the job sees one rank.
 *
 * standpipe run -n 2 -- ./two_libraries
 */
#include <standpipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "two_libraries: %s: %s\n", what, sp_error_text());
        exit(1);
    }
}

/* ---- The first library: counts what peers tell it to. */

static struct {
    sp_node *node;
    uint64_t count;
} counter;

static void counter_on_add(sp_call *call, void *context) {
    (void)context;
    counter.count += call->args[0];
}

static void counter_open(void) {
    check(sp_open_as(NULL, SP_SHARED, &counter.node), "sp_open_as");
    check(sp_register(counter.node, "counter", "add", counter_on_add, NULL, NULL), "sp_register");
}

static void counter_add(uint32_t peer, uint64_t much) {
    uint64_t args[4] = {much};
    check(sp_request(counter.node, peer, sp_handler_id("counter", "add"), args), "sp_request");
}

/* ---- The second: keeps lines that peers send. Its handler has the same name, in another namespace. */

static struct {
    sp_node *node;
    char last[256];
    int lines;
} logged;

static void logged_on_add(sp_call *call, void *context) {
    (void)context;
    size_t len = call->payload_len < sizeof logged.last - 1 ? call->payload_len : sizeof logged.last - 1;
    if (sp_call_read(call, 0, logged.last, len) < 0) return;
    logged.last[len] = 0;
    logged.lines++;
}

static void logged_open(void) {
    check(sp_open_as(NULL, SP_SHARED, &logged.node), "sp_open_as");
    check(sp_register(logged.node, "log", "add", logged_on_add, NULL, NULL), "sp_register");
}

static void logged_add(uint32_t peer, const char *line) {
    check(sp_request_medium(logged.node, peer, sp_handler_id("log", "add"), NULL, line, strlen(line)), "sp_request_medium");
}

/* ---- The program. */

static int all_came(void *context) {
    (void)context;
    return counter.count >= 3 && logged.lines >= 1;
}

int main(void) {
    counter_open();
    logged_open();
    uint32_t rank = sp_rank(counter.node), peer = (rank + 1) % sp_size(counter.node);
    char line[64];
    check(sp_barrier(counter.node), "sp_barrier"); /* all have their handlers */
    counter_add(peer, 1);
    counter_add(peer, 2);
    snprintf(line, sizeof line, "greetings from %u", rank);
    logged_add(peer, line);
    check(sp_wait_until(counter.node, all_came, NULL), "sp_wait_until");
    printf("two_libraries: rank %u counted %llu and logged \"%s\"\n", rank, (unsigned long long)counter.count, logged.last);
    check(sp_barrier(counter.node), "sp_barrier");

    /* The node goes on for the second one when the first closes. */
    check(sp_close(counter.node, 10 * SP_SECOND), "sp_close");
    check(sp_quiet(logged.node), "sp_quiet");
    check(sp_close(logged.node, 10 * SP_SECOND), "sp_close");
    return 0;
}
