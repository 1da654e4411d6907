/* Two processes that nobody launched: one waits for calls and writes its address to a file, the other one reads that,
 * connects, and puts to memory that the first one has granted, at a pointer of malloc.
 *
 * ./unlaunched serve /tmp/address &
 * ./unlaunched call /tmp/address
 */
#include <standpipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 20 };

static void check(int status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "unlaunched: %s: %s\n", what, sp_error_text());
        exit(1);
    }
}

/* What the server leaves for callers. */
struct card {
    sp_name memory; /* the grant's name */
    size_t len;     /* bytes of the address that follows */
    char address[1024];
};

static uint64_t ended;

static void on_done(sp_call *call, void *context) {
    (void)context;
    ended = call->args[0];
}

static int has_ended(void *context) {
    (void)context;
    return ended > 0;
}

static void serve(sp_node *node, const char *path) {
    char *memory = calloc(1, BYTES), *fresh = malloc(strlen(path) + 5);
    sp_grant_params params = {sizeof params, SP_READ | SP_WRITE, NULL, 0, NULL, NULL};
    sp_grant *grant;
    struct card card = {{{0, 0}}, 0, {0}};
    check(sp_register(node, "", "done", on_done, NULL, NULL), "sp_register");
    check(sp_grant_memory(node, memory, BYTES, &params, &grant), "sp_grant_memory");
    check(sp_grant_name(grant, &card.memory), "sp_grant_name");
    check(sp_address(node, card.address, sizeof card.address, &card.len), "sp_address");

    /* The address holds a secret: only this user may read the file. It appears whole. */
    sprintf(fresh, "%s.new", path);
    FILE *file = fopen(fresh, "wx");
    if (!file || fwrite(&card, sizeof card, 1, file) != 1 || fclose(file) || rename(fresh, path)) {
        perror(path);
        exit(1);
    }
    check(sp_wait_until(node, has_ended, NULL), "sp_wait_until");
    check(sp_grant_wait_idle(grant, SP_SECOND), "sp_grant_wait_idle");
    size_t right = 0;
    for (size_t i = 0; i < BYTES; i++) right += memory[i] == 42;
    printf("unlaunched: %zu of %d bytes came\n", right, BYTES);
    sp_grant_free(grant);
    free(memory);
    free(fresh);
    if (right != BYTES) exit(1);
}

static void call(sp_node *node, const char *path) {
    struct card card;
    FILE *file = fopen(path, "r");
    if (!file || fread(&card, sizeof card, 1, file) != 1) {
        perror(path);
        exit(1);
    }
    fclose(file);
    uint32_t server;
    sp_remote there;
    uint64_t len;
    check(sp_connect_to(node, card.address, card.len, &server), "sp_connect_to");
    check(sp_granted(server, &card.memory, &there, &len), "sp_granted");

    char *bytes = malloc(len);
    memset(bytes, 42, len);
    check(sp_put(node, there, bytes, len), "sp_put");
    uint64_t args[4] = {1};
    check(sp_request(node, server, sp_handler_id("", "done"), args), "sp_request");
    check(sp_quiet(node), "sp_quiet");
    free(bytes);
}

int main(int argc, char **argv) {
    if (argc != 3 || (strcmp(argv[1], "serve") && strcmp(argv[1], "call"))) {
        fprintf(stderr, "usage: %s serve|call FILE\n", argv[0]);
        return 2;
    }
    sp_node *node;
    check(sp_open_as(NULL, SP_ALONE, &node), "sp_open_as");
    if (!strcmp(argv[1], "serve")) serve(node, argv[2]);
    else call(node, argv[2]);
    check(sp_close(node, 10 * SP_SECOND), "sp_close");
    return 0;
}
