/* Several threads send and extract. */
#include "fm_test.h"
#include <pthread.h>

#define THREADS 4
#define MESSAGES 80
#define LONG 20000

static int h_long, h_part, h_quit;
static volatile int done, in_handler, began, is_sent;
static volatile pthread_t first_thread;

static int long_handler(FM_stream *stream, unsigned sender)
{
    unsigned char bytes[LONG];
    pthread_t mine = pthread_self();
    int i;

    for (i = 0; i < LONG; i += 1000) {
        FM_receive(bytes + i, stream, 1000);
        CHECK(pthread_equal(mine, pthread_self()));
    }
    /* Handlers run one at a time, so this needs no lock. */
    CHECK(in_handler == 0);
    in_handler = 1;
    for (i = 0; i < LONG; i++)
        CHECK(bytes[i] == pattern(sender, i));
    done = done + 1;
    in_handler = 0;
    return FM_CONTINUE;
}

static void *works(void *number)
{
    unsigned char *bytes = patterned(LONG);
    int i;

    for (i = 0; i < MESSAGES; i++)
        send_whole((FM_nodeid + 1 + (i + (long) number) % 2) % FM_numnodes, h_long, bytes, LONG);
    while (done < THREADS * MESSAGES)
        FM_extract(~0);
    return NULL;
}

static int part_handler(FM_stream *stream, unsigned sender)
{
    unsigned char bytes[2 * PACKET];

    (void) sender;
    first_thread = pthread_self();
    began = began + 1;
    FM_receive(bytes, stream, 2 * PACKET);
    CHECK(pthread_equal(first_thread, pthread_self()));
    done = done + 1;
    return FM_CONTINUE;
}

static int quit_handler(FM_stream *stream, unsigned sender)
{
    unsigned char bytes[2 * PACKET];

    (void) sender;
    began = began + 1;
    FM_receive(bytes, stream, 2 * PACKET);
    done = done + 1;
    return FM_QUIT;
}

/* Begins two handlers. Each ends the call that goes on with it, and does not take the other one along. */
static void *begins_two(void *unused)
{
    double end;

    while (began < 2)
        FM_extract(~0);
    while (is_sent == 0)
        usleep(1000);
    FM_extract(~0);
    CHECK(done == 1);
    for (end = now() + 10; done == 1 && now() < end;)
        FM_extract(~0);
    CHECK(done == 2);
    return unused;
}

static void quits(void)
{
    pthread_t thread;
    FM_stream *stream;

    if (FM_nodeid != 0) {
        stream = begin(0, 2 * PACKET, h_quit);
        FM_send_piece(stream, patterned(2 * PACKET), PACKET);
        let_come(0.4);
        FM_send_piece(stream, patterned(2 * PACKET), PACKET);
        FM_end_message(stream);
        return;
    }
    pthread_create(&thread, NULL, begins_two, NULL);
    while (began < 2)
        let_come(0.01);
    let_come(0.8);
    FM_extract(~0);
    CHECK(done == 0);
    is_sent = 1;
    pthread_join(thread, NULL);
}

/* Extracts until the handler has begun; goes on once another thread has extracted the rest, unless it ends. */
static void *begins(void *ends)
{
    while (began == 0)
        FM_extract(~0);
    if (ends != NULL)
        return NULL;
    while (is_sent == 0)
        usleep(1000);
    while (done == 0)
        FM_extract(~0);
    return NULL;
}

static void two(void *ends)
{
    pthread_t thread;
    FM_stream *stream;

    if (FM_nodeid == 1) {
        stream = begin(0, 2 * PACKET, h_part);
        FM_send_piece(stream, patterned(2 * PACKET), PACKET);
        let_come(0.3);
        FM_send_piece(stream, patterned(2 * PACKET), PACKET);
        FM_end_message(stream);
        return;
    }
    pthread_create(&thread, NULL, begins, ends);
    if (ends != NULL)
        pthread_join(thread, NULL);
    let_come(0.6);
    CHECK(began == 1);
    FM_extract(~0);
    CHECK(done == 0);
    is_sent = 1;
    if (ends == NULL)
        pthread_join(thread, NULL);
    CHECK(done == (ends == NULL));
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    long i;

    (void) argc;
    FM_initialize();
    h_long = FM_register_handler(FM_ANY_ID, long_handler);
    h_part = FM_register_handler(FM_ANY_ID, part_handler);
    h_quit = FM_register_handler(FM_ANY_ID, quit_handler);
    if (strcmp(argv[1], "all") == 0) {
        for (i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, works, (void *) i) == 0);
        for (i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    } else if (strcmp(argv[1], "two") == 0)
        two(NULL);
    else if (strcmp(argv[1], "ends") == 0)
        two(argv);
    else if (strcmp(argv[1], "quits") == 0)
        quits();
    else
        return 8;
    FM_finalize();
    printf("node %lu is done\n", FM_nodeid);
    return 0;
}
