/* What BIP's manual says, each in a case that the tests run as a job. */
#include "check.h"
#include <time.h>

static int global_buffer[LARGE], other_buffer[LARGE];

static void variables(void)
{
    CHECK(bip_mynode == -1 && bip_numnodes == 0);
    bip_init();
    CHECK(bip_mynode >= 0 && bip_mynode < bip_numnodes);
    printf("node %d of %d\n", bip_mynode, bip_numnodes);
}

/* Every length at a limit, by every way to send and to receive, from and to global, heap and stack memory. */
static void lengths(void)
{
    static const int lengths[] = {0, 1, 2, 15, 16, 17, BIPSMALLSIZE - 1, BIPSMALLSIZE, LONG, LARGE};
    int on_stack[LONG], *on_heap = malloc(LARGE * sizeof(int));
    int way, i, src, id;

    bip_init();
    for (way = 0; way < 6; way++)
        for (i = 0; i < 10; i++) {
            int len = lengths[i], got = -2;
            int *buffer = len <= LONG && way % 2 ? on_stack : way % 3 ? on_heap : global_buffer;
            if (bip_mynode == 0) {
                fill(buffer, len, way + 3);
                if (way < 3)
                    CHECK(bip_tsend(1, 5, buffer, len) == len);
                else {
                    id = bip_tisend(1, 5, buffer, len);
                    CHECK(id > 0);
                    if (way == 3)
                        while (!bip_stest(id))
                            ;
                    bip_swait(id);
                }
                /* Whatever happens to the buffer now, the message is as it was. */
                memset(buffer, 0, len * sizeof(int));
                continue;
            }
            memset(buffer, 0x55, len * sizeof(int));
            src = -2;
            switch (way) {
            case 0: got = bip_trecv(5, buffer, len); break;
            case 1: got = bip_trecvx(5, buffer, len, &src); break;
            case 2: got = bip_rwait(bip_tirecv(5, buffer, len)); break;
            case 3: got = bip_rwaitx(bip_tirecv(5, buffer, LONG > len ? LONG : len), &src); break;
            case 4:
                for (id = bip_tirecv(5, buffer, len); (got = bip_rtest(id)) == -1;)
                    ;
                break;
            case 5:
                for (id = bip_tirecv(5, buffer, len); (got = bip_rtestx(id, &src)) == -1;)
                    CHECK(src == -2);
                break;
            }
            CHECK(got == len && is_filled(buffer, len, way + 3));
            CHECK(src == (way % 2 ? 0 : -2));
        }
    free(on_heap);
}

/* Short and long messages of one node with one tag come in the order sent. */
static void order(void)
{
    int i, src, next[16] = {0};

    bip_init();
    for (i = 0; i < 300; i++) {
        int len = i % 7 == 3 ? LONG + i : i % 5 == 1 ? BIPSMALLSIZE : 1 + i % 30;
        if (bip_mynode > 0) {
            global_buffer[0] = i;
            bip_tsend(0, 4, global_buffer, len);
        }
    }
    if (bip_mynode == 0)
        for (i = 0; i < 300 * (bip_numnodes - 1); i++) {
            int len = bip_trecvx(4, global_buffer, LARGE, &src), n;
            CHECK(src > 0 && src < bip_numnodes);
            n = next[src]++;
            CHECK(global_buffer[0] == n);
            CHECK(len == (n % 7 == 3 ? LONG + n : n % 5 == 1 ? BIPSMALLSIZE : 1 + n % 30));
        }
}

/* A short message needs no receive to be sent; a long one is not over before one is posted. */
static void rendezvous(void)
{
    int id, i;

    bip_init();
    if (bip_mynode == 0) {
        fill(global_buffer, LONG, 1);
        id = bip_tisend(1, 1, global_buffer, BIPSMALLSIZE);
        CHECK(bip_stest(id) == 1);
        id = bip_tisend(1, 2, global_buffer, LONG);
        for (i = 0; i < 1000; i++)
            CHECK(bip_stest(id) == 0);
        hear();
        CHECK(bip_stest(id) == 0);
        bip_swait(id);
        CHECK(bip_stest(id) == 1);
        bip_swait(id);
    } else {
        usleep(100000);
        CHECK(bip_trecv(1, other_buffer, BIPSMALLSIZE) == BIPSMALLSIZE);
        tell(0);
        usleep(100000);
        CHECK(bip_trecv(2, other_buffer, LONG) == LONG && is_filled(other_buffer, LONG, 1));
    }
}

/* Receives for many tags wait at once, and each gets its own, whatever the order. */
static void tags(void)
{
    static const int tags[] = {0, 1, 255, 256, 1000, 65535, 65536, INT_MAX};
    int ids[8], words[8], i, src;
    static int long_words[8][LONG];

    bip_init();
    if (bip_mynode == 0) {
        hear();
        for (i = 7; i >= 0; i--) {
            words[0] = tags[i];
            bip_tsend(1, tags[i], words, 1);
        }
        for (i = 7; i >= 0; i--) {
            fill(global_buffer, LONG, i);
            bip_tsend(1, tags[i], global_buffer, LONG);
        }
        return;
    }
    for (i = 0; i < 8; i++)
        ids[i] = bip_tirecv(tags[i], &words[i], 1);
    for (i = 0; i < 8; i++)
        CHECK(bip_rtest(ids[i]) == -1);
    tell(0);
    for (i = 0; i < 8; i++)
        CHECK(bip_rwaitx(ids[i], &src) == 1 && words[i] == tags[i] && src == 0);
    for (i = 0; i < 8; i++)
        ids[i] = bip_tirecv(tags[i], long_words[i], LONG);
    for (i = 0; i < 8; i++) {
        CHECK(bip_rwait(ids[i]) == LONG && is_filled(long_words[i], LONG, i));
        CHECK(bip_rwait(ids[i]) == LONG); /* asked again, it says the same */
    }
}

/* The calls without a tag are those with tag 0. */
static void untagged(void)
{
    int word = 7, src = -1;

    bip_init();
    if (bip_mynode == 0) {
        bip_send(1, &word, 1);
        bip_swait(bip_isend(1, &word, 1));
        bip_tsend(1, 0, &word, 1);
        bip_tsend(1, 0, &word, 1);
        CHECK(bip_recv(&word, 1) == 0);
    } else {
        CHECK(bip_trecv(0, &word, 1) == 1 && word == 7);
        CHECK(bip_recvx(&word, 1, &src) == 1 && word == 7 && src == 0);
        CHECK(bip_rwait(bip_irecv(&word, 1)) == 1);
        CHECK(bip_recv(&word, 1) == 1);
        bip_send(0, 0, 0);
    }
}

/* Messages that find no buffer are kept, and so are those for tags that nobody declared. */
static void overflow(void)
{
    int i, words[9];

    CHECK(bip_taginit(3, 2, 1) == 0);
    CHECK(bip_taginit(3, 3, 1) == 0);
    bip_init();
    for (i = 0; i < 1000; i++) {
        if (bip_mynode == 0) {
            fill(words, 9, i);
            bip_tsend(1, i % 2 ? 3 : 4, words, 9);
        }
    }
    if (bip_mynode == 0) {
        tell(1);
        return;
    }
    hear();
    for (i = 0; i < 1000; i += 2)
        CHECK(bip_trecv(4, words, 9) == 9 && is_filled(words, 9, i));
    for (i = 1; i < 1000; i += 2)
        CHECK(bip_trecv(3, words, 9) == 9 && is_filled(words, 9, i));
}

/* A program may have as many messages wait as it declared, and 1024 beside. */
static void declared(void)
{
    int i, word;

    bip_taginit(9, 3000, 1);
    bip_init();
    if (bip_mynode == 0) {
        for (i = 0; i < 4023; i++)
            bip_tsend(1, 9, &i, 1);
        tell(1);
        return;
    }
    hear();
    for (i = 0; i < 4023; i++)
        CHECK(bip_trecv(9, &word, 1) == 1 && word == i);
}

/* Beyond that a send is held back until earlier messages were received; nothing is lost. */
static void held_back(void)
{
    int i, id, word, never;

    bip_init();
    if (bip_mynode == 0) {
        for (i = 0; i < 1024; i++)
            bip_tsend(1, 9, &i, 1);
        word = 1024;
        id = bip_tisend(1, 9, &word, 1);
        for (i = 0; i < 1000; i++)
            CHECK(bip_stest(id) == 0);
        bip_swait(id);
        for (i = 1025; i < 20000; i++)
            bip_tsend(1, 9, &i, 1);
        return;
    }
    /* Messages come in as long as it calls anything. */
    never = bip_tirecv(GO, &word, 1);
    for (i = 0; i < 10000; i++) {
        CHECK(bip_rtest(never) == -1);
        usleep(i % 20 ? 0 : 1000);
    }
    for (i = 0; i < 20000; i++)
        CHECK(bip_trecv(9, &word, 1) == 1 && word == i);
}

/* Messages are read where they lie, one of a tag at a time. */
static void in_place(void)
{
    int *message, *second, words, src, i;

    bip_init();
    if (bip_mynode == 0) {
        for (i = 0; i < 100; i++) {
            int len = i % 10 == 9 ? LONG : i % 10 == 8 ? 0 : i * 20;
            fill(global_buffer, len, i);
            bip_tsend(1, 6, global_buffer, len);
        }
        hear();
        bip_tsend(1, 7, global_buffer, 1);
        fill(global_buffer, LARGE, 7);
        bip_tsend(1, 8, global_buffer, LARGE);
        return;
    }
    for (i = 0; i < 100; i++) {
        int len = i % 10 == 9 ? LONG : i % 10 == 8 ? 0 : i * 20;
        words = src = -1;
        message = i % 2 ? bip_tgetmsg(6, &words, &src) : 0;
        while (!message)
            message = bip_tngetmsg(6, &words, &src);
        CHECK(words == len && src == 0 && (unsigned long)message % sizeof(int) == 0);
        CHECK(is_filled(message, len, i));
        bip_tfreemsg(6);
    }
    words = src = -1;
    CHECK(bip_tngetmsg(6, &words, &src) == 0 && words == -1 && src == -1);
    tell(0);
    message = bip_tgetmsg(7, &words, &src);
    second = bip_tgetmsg(8, &words, &src); /* of another tag */
    CHECK(words == LARGE && is_filled(second, LARGE, 7) && message != second);
    bip_tfreemsg(7);
    bip_tfreemsg(8);
}

/* The receive that does not wait takes short messages, and never a long one. */
static void short_only(void)
{
    int i, src = -1, got;

    bip_init();
    if (bip_mynode == 0) {
        hear();
        fill(global_buffer, LONG, 5);
        bip_tsend(1, 2, global_buffer, 0);
        bip_tsend(1, 2, global_buffer, BIPSMALLSIZE);
        tell(1);
        i = bip_tisend(1, 2, global_buffer, LONG);
        bip_swait(i);
        bip_tsend(1, 2, global_buffer, 3);
        return;
    }
    CHECK(bip_tnrecv(2, other_buffer, LONG) == -1);
    CHECK(bip_tnrecvx(2, other_buffer, LONG, &src) == -1 && src == -1);
    tell(0);
    while ((got = bip_tnrecvx(2, other_buffer, LONG, &src)) == -1)
        ;
    CHECK(got == 0 && src == 0);
    hear();
    CHECK(bip_tnrecv(2, other_buffer, LONG) == BIPSMALLSIZE && is_filled(other_buffer, BIPSMALLSIZE, 5));
    usleep(100000);
    for (i = 0; i < 100; i++)
        CHECK(bip_tnrecv(2, other_buffer, LONG) == -1);
    CHECK(bip_trecv(2, other_buffer, LONG) == LONG && is_filled(other_buffer, LONG, 5));
    while ((got = bip_tnrecv(2, other_buffer, LONG)) == -1)
        ;
    CHECK(got == 3);
}

/* Two nodes send each other long messages at once; a receive goes on in whatever call is made. */
static void exchange(void)
{
    int other, round, sent, received;

    bip_init();
    other = 1 - bip_mynode;
    for (round = 0; round < 20; round++) {
        fill(global_buffer, LARGE, bip_mynode + round);
        received = bip_tirecv(1, other_buffer, LARGE);
        sent = bip_tisend(other, 1, global_buffer, LARGE);
        bip_swait(sent);
        CHECK(bip_rwait(received) == LARGE && is_filled(other_buffer, LARGE, other + round));
    }
}

/* Everybody sends everybody long messages. */
/* Each round has a tag of its own: with one tag for all, a long message of a later round may be received in the place
 * of this one's, and then two nodes wait for each other's sends to end, which is what BIP promises them. */
static void all_to_all(void)
{
    int i, src, id, seen = 0;

    bip_init();
    for (i = 1; i < bip_numnodes; i++) {
        int to = (bip_mynode + i) % bip_numnodes;
        fill(global_buffer, LONG, bip_mynode * 100 + to);
        id = bip_tisend(to, 11 + i, global_buffer, LONG);
        CHECK(bip_trecvx(11 + i, other_buffer, LONG, &src) == LONG);
        CHECK(is_filled(other_buffer, LONG, src * 100 + bip_mynode));
        seen |= 1 << src;
        bip_swait(id);
    }
    CHECK(seen == (1 << bip_numnodes) - 1 - (1 << bip_mynode));
}

/* What was sent is received, also if its sender has returned from main since; nobody waits for a third node. */
static void leaving(void)
{
    int word = 5, i;

    bip_init();
    if (bip_mynode == bip_numnodes - 1) {
        usleep(200000);
        for (i = 1; i < bip_numnodes; i++)
            CHECK(bip_trecv(1, &word, 1) == 1 && word == 5);
        printf("all received\n");
    } else {
        bip_tsend(bip_numnodes - 1, 1, &word, 1);
    }
}

/* A child made by fork takes no part, however it ends. */
static void forked(void)
{
    int word = 1, status;

    bip_init();
    if (fork() == 0)
        exit(0);
    wait(&status);
    CHECK(status == 0);
    if (bip_mynode == 0)
        bip_tsend(1, 1, &word, 1);
    else
        CHECK(bip_trecv(1, &word, 1) == 1);
}

/* Messages come in while the program calls something, and at no other time. */
static void polling(void)
{
    volatile int word = 0;
    int id;

    bip_init();
    if (bip_mynode == 0) {
        int value = 7;
        hear();
        bip_tsend(1, 1, &value, 1);
        return;
    }
    id = bip_tirecv(1, (int *)&word, 1);
    tell(0);
    usleep(200000);
    CHECK(word == 0);
    while (bip_rtest(id) == -1)
        CHECK(word == 0);
    CHECK(word == 7);
}

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

/* Sends or receives 200 messages of the tag that it is given, polling under the lock as threads' programs do. */
static void *in_turns(void *of)
{
    int tag = *(int *)of, i, id, length, word;

    for (i = 0; i < 200; i++) {
        if (bip_mynode == 0) {
            pthread_mutex_lock(&turn);
            bip_tsend(1, tag, &i, 1);
            pthread_mutex_unlock(&turn);
            continue;
        }
        pthread_mutex_lock(&turn);
        id = bip_tirecv(tag, &word, 1);
        pthread_mutex_unlock(&turn);
        do {
            pthread_mutex_lock(&turn);
            length = bip_rtest(id);
            pthread_mutex_unlock(&turn);
        } while (length == -1);
        CHECK(length == 1 && word == i);
    }
    return 0;
}

/* Threads may call, one at a time. */
static void threads(void)
{
    pthread_t all[3];
    int tags[3] = {1, 2, 3}, i;

    bip_init();
    for (i = 0; i < 3; i++)
        CHECK(pthread_create(&all[i], 0, in_turns, &tags[i]) == 0);
    for (i = 0; i < 3; i++)
        CHECK(pthread_join(all[i], 0) == 0);
}

/* Messages far longer than any buffer of the layer's. */
static void large(void)
{
    int words = 8 << 20, *buffer = malloc(words * sizeof(int));

    bip_init();
    CHECK(buffer);
    if (bip_mynode == 0) {
        fill(buffer, words, 3);
        bip_tsend(1, 1, buffer, words);
    } else {
        CHECK(bip_trecv(1, buffer, words) == words && is_filled(buffer, words, 3));
    }
    free(buffer);
}

/* What node 1 has posted and not waited for is withdrawn when it returns from main: nothing is written there. */
static void is_untouched(void)
{
    int i;
    for (i = 0; i < LARGE; i++)
        if (bip_mynode == 1 && other_buffer[i] != 0) {
            fprintf(stderr, "written after main: word %d\n", i);
            _exit(3);
        }
}

static void withdrawn(void)
{
    static int words[3];
    int tag;

    atexit(is_untouched); /* before bip_init: it runs after the layer's end */
    bip_init();
    if (bip_mynode == 1) {
        for (tag = 1; tag <= 3; tag++)
            bip_tirecv(tag, other_buffer, LARGE);
        for (tag = 0; tag < bip_numnodes; tag++)
            if (tag != 1)
                tell(tag);
        return;
    }
    hear();
    usleep(200000);
    fill(global_buffer, LARGE, 5);
    words[0] = 5;
    bip_tsend(1, 1, words, 1);
    bip_tsend(1, 2, global_buffer, BIPSMALLSIZE);
    bip_tisend(1, 3, global_buffer, LARGE);
}

/* A long message that bip_tngetmsg found, and did not give yet, stays the next one of its tag for all calls. */
static void passed_over(void)
{
    int i, n, *message, id = 0, word, words, src, nulls = 0;

    bip_init();
    for (i = 0; i < 20; i++) {
        if (bip_mynode == 0) {
            fill(global_buffer, LARGE, i);
            bip_tsend(1, 6, global_buffer, LARGE);
            bip_tsend(1, 6, &i, 1);
            continue;
        }
        usleep(3000);
        message = bip_tngetmsg(6, &words, &src);
        nulls += !message;
        if (id)
            CHECK(bip_rwait(id) == 1);
        if (message) {
            CHECK(words == LARGE && src == 0 && is_filled(message, LARGE, i));
            bip_tfreemsg(6);
        } else {
            for (n = 0; n < i % 4 * 100; n++)
                CHECK(bip_tnrecv(6, other_buffer, LARGE) == -1);
            if (id && i % 3 == 0)
                CHECK(bip_rtest(id) == 1);
            if (i % 3 == 1) {
                message = bip_tgetmsg(6, &words, &src);
                CHECK(words == LARGE && src == 0 && is_filled(message, LARGE, i));
                bip_tfreemsg(6);
            } else {
                CHECK(bip_trecv(6, other_buffer, LARGE) == LARGE && is_filled(other_buffer, LARGE, i));
            }
        }
        id = bip_tirecv(6, &word, 1);
        CHECK(bip_rwait(id) == 1 && word == i);
    }
    if (bip_mynode == 1)
        printf("passed over %d times\n", nulls);
}

/* Calls that do not wait say that nothing is there, also when nobody is left who could send. */
static void drained(void)
{
    int i, id, words, src;

    bip_init();
    if (bip_mynode == 0) {
        usleep(bip_numnodes > 1 ? 300000 : 0);
        id = bip_tirecv(2, other_buffer, 1);
        for (i = 0; i < 1000; i++) {
            CHECK(bip_tnrecv(1, other_buffer, 1) == -1);
            CHECK(bip_tnrecvx(1, other_buffer, 1, &src) == -1);
            CHECK(bip_tngetmsg(1, &words, &src) == 0);
            CHECK(bip_rtest(id) == -1);
        }
    }
}

/* The last node waits for a message when all others have ended. */
static void last(void)
{
    bip_init();
    if (bip_mynode == bip_numnodes - 1)
        bip_trecv(1, other_buffer, 1);
}

/* Node 0 looks after nothing, and its lane is full: node 1 hears nevertheless that its message was received. */
static void full_lane(void)
{
    int id = 0, i, received[2];
    struct timespec begun, ended;

    bip_init();
    fill(global_buffer, LONG, bip_mynode);
    if (bip_mynode == 0) {
        id = bip_tisend(2, 1, global_buffer, LONG);
        usleep(2000000);
        bip_swait(id);
        for (i = 0; bip_trecv(9, other_buffer, 1) == 0; i++)
            ;
    } else if (bip_mynode == 1) {
        hear();
        clock_gettime(CLOCK_MONOTONIC, &begun);
        bip_tsend(2, 2, global_buffer, LONG);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        CHECK(ended.tv_sec - begun.tv_sec + (ended.tv_nsec - begun.tv_nsec) / 1e9 < 1);
    } else {
        usleep(200000);
        tell(1);
        for (i = 0; i < 1024 && (id == 0 || bip_stest(id)); i++)
            id = bip_tisend(0, 9, 0, 0);
        printf("%d messages fill the lane\n", i);
        received[0] = bip_tirecv(1, other_buffer, LONG);
        CHECK(bip_rwait(received[0]) == LONG && is_filled(other_buffer, LONG, 0));
        received[1] = bip_tirecv(2, other_buffer, LONG);
        CHECK(bip_rwait(received[1]) == LONG && is_filled(other_buffer, LONG, 1));
        bip_swait(id);
        bip_tsend(0, 9, global_buffer, 1);
    }
}

static const struct named cases[] = {
    {"full_lane", full_lane},
    {"withdrawn", withdrawn}, {"passed_over", passed_over}, {"drained", drained}, {"last", last},
    {"polling", polling},
    {"threads", threads},
    {"large", large},
    {"variables", variables}, {"lengths", lengths},     {"order", order},         {"rendezvous", rendezvous},
    {"tags", tags},           {"untagged", untagged},   {"overflow", overflow},   {"declared", declared},
    {"held_back", held_back}, {"in_place", in_place},   {"short_only", short_only}, {"exchange", exchange},
    {"all_to_all", all_to_all}, {"leaving", leaving},   {"forked", forked},       {0, 0},
};

int main(int argc, char **argv)
{
    return run_case(cases, argc, argv);
}
