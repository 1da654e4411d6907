/* Garbage for every argument that is no pointer, of every function that takes one: each call returns a status, or what the
 * header promises, and the node goes on. Pointers are good ones. Arguments: seed, rounds. */
#include "cases.h"

static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* A number as faults like it: small, at a limit, just past one, or any. */
static uint64_t garbage(void) {
    static const uint64_t LIMITS[] = {0, 1, 2, 3, 7, 8, 255, 256, 4096, 65535, 65536, 1u << 20, INT32_MAX, UINT32_MAX};
    uint64_t limit = LIMITS[next() % (sizeof LIMITS / sizeof *LIMITS)];
    switch (next() % 6) {
    case 0: return limit;
    case 1: return limit + 1;
    case 2: return 0 - limit;
    case 3: return (uint64_t)1 << (next() % 64);
    case 4: return next() % 100;
    default: return next();
    }
}

/* Any place but one in this process's private memory, which a put would change under it. */
static sp_remote place(sp_remote box) {
    sp_remote at = {(uint32_t)garbage(), (uint32_t)garbage(), garbage()};
    if (next() % 2) at = sp_plus(box, garbage());
    if (next() % 4 == 0) at.peer = 0;
    if (at.memory == SP_PRIVATE) at.at |= (uint64_t)1 << 63;
    return at;
}

static unsigned char bytes[1 << 16];
static int called;

static void on_call(sp_call *call, void *context) {
    (void)context;
    unsigned char some[64];
    sp_call_read(call, garbage(), some, garbage() % sizeof some);
    sp_reply(call, next() % 2 ? sp_handler_id("", "call") : garbage(), NULL);
    called++;
}

static int always(void *context) {
    (void)context;
    return 1;
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 10) * 2654435761u + 1 : 1;
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 20000;
    sp_config *config;
    GOOD(sp_config_new(&config));
    GOOD(sp_config_set(config, "STANDPIPE_HEAP", "64M"));
    GOOD(sp_config_set(config, "STANDPIPE_TIMEOUT_MS", "50"));
    sp_node *node;
    GOOD(sp_open(config, &node));
    sp_remote box;
    void *here;
    GOOD(sp_alloc(node, sizeof bytes, &box, &here));
    sp_team *world;
    GOOD(sp_world(node, &world));
    sp_queue *queue;
    GOOD(sp_queue_new(node, 100, &queue));
    GOOD(sp_register(node, "", "call", on_call, NULL, NULL));

    for (unsigned round = 0; round < rounds; round++) {
        sp_remote at = place(box);
        size_t len = garbage() % sizeof bytes;
        uint64_t value = 0, id = next() % 2 ? sp_handler_id("", "call") : garbage();
        uint64_t args[4] = {garbage(), garbage(), garbage(), garbage()};
        int a = (int)garbage(), b = (int)garbage();
        sp_event *event = NULL;
        void *where;
        size_t count;
        uint32_t peers[4];
        char text[64];
        switch (next() % 46) {
        case 0: sp_put(node, at, bytes, len); break;
        case 1: sp_get(node, at, bytes, len); break;
        case 2: if (sp_put_nb(node, at, bytes, len, &event) == 0) sp_event_wait(event); break;
        case 3: if (sp_get_nb(node, at, bytes, len, &event) == 0) sp_event_cancel(event); break;
        case 4: sp_put_nbi(node, at, bytes, len); break;
        case 5: sp_get_nbi(node, at, bytes, len); sp_quiet(node); break;
        case 6: sp_put_u64(node, at, value); break;
        case 7: sp_get_u64(node, at, &value); break;
        case 8: sp_fetch_add_u64(node, at, garbage(), &value); break;
        case 9: sp_fetch(node, at, a, b, garbage(), &value); break;
        case 10: sp_compare_swap(node, at, a, garbage(), garbage(), &value); break;
        case 11: sp_update_nbi(node, at, a, b, garbage()); break;
        case 12: if (sp_fetch_nb(node, at, a % 16, b % 16, garbage(), &event) == 0) sp_event_wait_value(event, &value); break;
        case 13: if (sp_compare_swap_nb(node, at, a % 16, 1, 2, &event) == 0) sp_event_forget(event); break;
        case 14: {
            sp_piece pieces[3] = {{at, bytes, len}, {place(box), bytes, 8}, {place(box), bytes, 0}};
            sp_put_list(node, pieces, garbage() % 4);
            sp_get_list(node, pieces, garbage() % 4);
            if (sp_get_list_nb(node, pieces, garbage() % 4, &event) == 0) sp_event_wait_for(event, garbage() % 1000), sp_event_wait(event);
            break;
        }
        case 15: {
            size_t counts[2] = {garbage() % 8, garbage() % 8};
            int64_t there[2] = {(int64_t)garbage(), (int64_t)garbage()}, own[2] = {(int64_t)(garbage() % 64), (int64_t)(garbage() % 512)};
            sp_strided shape = {sizeof shape, garbage() % 16, garbage() % 3, counts, there, own};
            sp_put_strided(node, at, bytes, &shape);
            if (sp_put_strided_nb(node, at, bytes, &shape, &event) == 0) sp_event_wait(event);
            break;
        }
        case 16: {
            uint64_t there[2] = {garbage(), garbage()};
            size_t own[2] = {garbage() % 100, garbage() % 100};
            sp_indexed shape = {sizeof shape, garbage() % 16, garbage() % 3, there, garbage() % 16, garbage() % 3, own};
            sp_get_indexed(node, at, bytes, &shape);
            break;
        }
        case 17: sp_quiet_with(node, (uint32_t)garbage()); break;
        case 18: sp_fence_with(node, (uint32_t)garbage()); break;
        case 19: sp_connect(node, (uint32_t)garbage()); break;
        case 20: CHECK(sp_is_near(node, (uint32_t)garbage()) >= 0 && sp_is_lost(node, (uint32_t)garbage()) >= 0); break;
        case 21: sp_peers(node, a, peers, garbage() % 5, &count); break;
        case 22: sp_path_to(node, (uint32_t)garbage(), text, garbage() % sizeof text, &count); break;
        case 23: if (sp_alloc(node, garbage(), &at, &where) == 0) sp_free(node, at); break;
        case 24: {
            sp_alloc_params params = {next() % 4 ? sizeof params : garbage(), garbage(), 0, b};
            if (sp_alloc_with(node, garbage() % 65536, &params, &at, &where) == 0) sp_free(node, at);
            break;
        }
        case 25: if (at.at != box.at) sp_free(node, at); break;
        case 26: sp_local(node, at, garbage(), &where); break;
        case 27: sp_prefetch(node, at, garbage()); break;
        case 28: sp_request(node, (uint32_t)garbage(), id, args); break;
        case 29: sp_try_request(node, (uint32_t)(garbage() % 3), id, args); break;
        case 30: sp_request_medium(node, (uint32_t)(garbage() % 2), id, args, bytes, len); break;
        case 31: sp_request_long(node, id, args, at, bytes, len % 1000); break;
        case 32: sp_try_request_long(node, id, args, at, bytes, len % 1000); break;
        case 33: if (sp_request_long_nb(node, id, args, at, bytes, len % 1000, &event) == 0) sp_event_wait(event); break;
        case 34: {
            sp_prepared *prepared;
            if (sp_prepare_medium(node, (uint32_t)garbage(), garbage(), garbage(), &prepared, &where, &count) == 0)
                sp_prepared_send(prepared, id, args, garbage());
            break;
        }
        case 35: {
            sp_wait waits[2] = {{at, a % 16, b % 8, garbage(), (uint32_t)garbage(), 0}, {at, a % 16, b % 8, garbage(), UINT32_MAX, a}};
            size_t met[2];
            sp_test_signal(node, &waits[0], &value);
            sp_wait_signals(node, waits, garbage() % 3, SP_NOW, met, &count);
            break;
        }
        case 36: {
            sp_signal signal = {place(box), garbage(), a};
            sp_put_signal(node, at, bytes, len % 500, signal);
            sp_put_signal_nbi(node, at, bytes, len % 500, signal);
            break;
        }
        case 37: {
            sp_queue_put(queue, garbage(), at, bytes, len);
            sp_completion done[4];
            CHECK(sp_queue_take(queue, done, garbage() % 5) >= 0);
            CHECK(sp_queue_wait(queue, done, 4, garbage() % 1000) >= 0 && sp_queue_cancel(queue, garbage()) >= 0);
            break;
        }
        case 38: sp_team_broadcast(world, bytes, len, (uint32_t)garbage()); break;
        case 39: sp_team_reduce(world, bytes, bytes + 32768, garbage() % 1000, a % 80, b % 12, (uint32_t)(garbage() % 2)); break;
        case 40: sp_team_all_reduce(world, bytes, garbage() % 1000, a % 80, b % 12); break;
        case 41: {
            sp_collective any = {next() % 8 ? sizeof any : garbage(), (int32_t)(garbage() % 10), (uint32_t)(garbage() % 2), bytes,
                                 bytes, garbage() % 100, NULL, NULL, a % 80, b % 12, garbage() % 9, NULL, NULL};
            if (any.kind != SP_ALL_TO_ALL_V && sp_team_start(world, &any, &event) == 0) sp_event_wait(event);
            break;
        }
        case 42: {
            uint32_t to = (uint32_t)garbage();
            sp_grant_params params = {next() % 4 ? sizeof params : garbage(), a % 5, next() % 2 ? &to : NULL, 1, NULL, NULL};
            sp_grant *grant;
            if (sp_grant_memory(node, bytes, len, &params, &grant) == 0) {
                sp_name name = {{garbage(), garbage()}};
                sp_granted((uint32_t)garbage(), &name, &at, &value);
                sp_get(node, at, here, 8);
                sp_grant_repoint(grant, bytes, garbage() % 100, garbage() % 1000);
                sp_grant_wait_idle(grant, garbage() % 1000000);
                sp_grant_free(grant);
            }
            break;
        }
        case 43: sp_count_of(node, a, b, &value, &value); sp_latency(node, "put", (double)garbage() / 3, &value, &value); break;
        case 44: sp_wait_until(node, always, NULL); sp_progress(node); CHECK(sp_strerror(a) != NULL); break;
        default: {
            sp_node *limited;
            GOOD(sp_within(node, garbage() % 1000000, &limited));
            sp_put(limited, at, bytes, len);
            sp_release(limited);
            sp_team *part = NULL;
            if (round % 100 == 0 && sp_team_split(world, (int64_t)garbage(), (int64_t)garbage(), &part) == 0) sp_team_free(part);
            sp_handler_id("garbage", "name");
            sp_has_handler(node, (uint32_t)garbage(), garbage());
            sp_medium_max(node, (uint32_t)garbage());
        }
        }
    }
    sp_quiet(node);
    GOOD(sp_put_u64(node, box, 77));
    CHECK(*(uint64_t *)here == 77 && called > 0);
    sp_queue_free(queue);
    sp_team_free(world);
    int closed = sp_close(node, 10 * SP_SECOND);
    CHECK(closed == SP_OK || closed == SP_ERR_FAULT || closed == SP_ERR_FAILED || closed == SP_ERR_NO_SUCH_HANDLER);
    printf("garbage: %u rounds, %d handled\n", rounds, called);
    return 0;
}
