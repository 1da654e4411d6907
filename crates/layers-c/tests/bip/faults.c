/* What is wrong, and ends the process with a line that says so. Each case is of node 0, with one other. */
#include "check.h"

#include <sys/resource.h>

enum { HUGE_WORDS = 1 << 28 };

static int words[LARGE];

static void before_init(void)
{
    bip_tsend(1, 1, words, 1);
}

static void before_init_recv(void)
{
    bip_recv(words, 1);
}

static void before_init_test(void)
{
    bip_rtest(1);
}

static void before_init_get(void)
{
    int len, src;
    bip_tgetmsg(1, &len, &src);
}

static void before_init_free(void)
{
    bip_tfreemsg(1);
}

static void taginit_tag(void)
{
    bip_taginit(-1, 1, 1);
}

static void taginit_none(void)
{
    bip_taginit(1, 0, 1);
}

static void taginit_many(void)
{
    CHECK(bip_taginit(1, 1048576, 1) == 0);
    bip_taginit(1, 1048577, 1);
}

static void taginit_size(void)
{
    bip_taginit(1, 1, 0);
}

static void init_twice(void)
{
    bip_init();
    bip_init();
}

static void taginit_late(void)
{
    bip_init();
    bip_taginit(1, 1, 1);
}

static void to_itself(void)
{
    bip_tsend(bip_mynode, 1, words, 1);
}

static void to_nobody(void)
{
    bip_tsend(bip_numnodes, 1, words, 1);
}

static void to_negative(void)
{
    bip_tisend(-1, 1, words, 1);
}

static void send_tag(void)
{
    bip_tsend(1, -1, words, 1);
}

static void recv_tag(void)
{
    bip_trecv(INT_MIN, words, 1);
}

static void send_length(void)
{
    bip_tsend(1, 1, words, -1);
}

static void recv_length(void)
{
    bip_tirecv(1, words, -7);
}

static void send_null(void)
{
    bip_send(1, 0, 1);
}

static void recv_null(void)
{
    bip_recv(0, 1);
}

static void source_null(void)
{
    bip_trecvx(1, words, 1, 0);
}

static void length_null(void)
{
    int src;
    bip_tgetmsg(1, 0, &src);
}

static void two_sends(void)
{
    bip_tisend(1, 1, words, LONG);
    bip_tisend(1, 1, words, 1);
}

static void two_receives(void)
{
    bip_tirecv(7, words, 1);
    bip_trecv(7, words, 1);
}

static void receive_not_asked(void)
{
    bip_tirecv(7, words, 1);
    tell(1);
    hear();
    bip_tirecv(7, words, 1);
}

static void receive_while_posted(void)
{
    int len, src;
    bip_tirecv(7, words, 1);
    bip_tngetmsg(7, &len, &src);
}

static void short_while_posted(void)
{
    bip_tirecv(7, words, 1);
    bip_tnrecv(7, words, 1);
}

static void no_send(void)
{
    bip_swait(12345);
}

static void no_send_negative(void)
{
    bip_stest(-1);
}

static void no_receive(void)
{
    bip_rwait(1 << 16 | 40);
}

static void old_receive(void)
{
    int old = bip_tirecv(7, words, 1);
    tell(1);
    hear();
    CHECK(bip_rwait(old) == 1);
    bip_tirecv(7, words, 1);
    bip_rtest(old);
}

static void send_as_receive(void)
{
    bip_rwait(bip_tisend(1, 7, words, 1));
}

static void receive_as_send(void)
{
    bip_swait(bip_tirecv(7, words, 1));
}

static void free_nothing(void)
{
    bip_tfreemsg(7);
}

static void free_twice(void)
{
    int len, src;
    tell(1);
    bip_tgetmsg(7, &len, &src);
    bip_tfreemsg(7);
    bip_tfreemsg(7);
}

static void get_twice(void)
{
    int len, src;
    tell(1);
    bip_tgetmsg(7, &len, &src);
    bip_tgetmsg(7, &len, &src);
}

static void short_too_long(void)
{
    tell(1);
    bip_trecv(7, words, 0);
}

static void queued_too_long(void)
{
    tell(1);
    hear();
    bip_trecv(7, words, 0);
}

static void long_too_long(void)
{
    tell(1);
    bip_trecv(8, words, LONG - 1);
}

static void posted_too_long(void)
{
    int id = bip_tirecv(8, words, LONG - 1);
    tell(1);
    while (bip_rtest(id) == -1)
        ;
}

static void not_there(void)
{
    tell(1);
    bip_trecv(9, words, LONG);
}

static void say_memory(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "%s\n", used.ru_maxrss < HUGE_WORDS / 1024 ? "little memory" : "much memory");
}

/* A message that is said to be huge and lies nowhere, to be read in place. */
static void huge(void)
{
    int len, src;
    atexit(say_memory);
    tell(1);
    bip_tgetmsg(9, &len, &src);
}

static const struct named before[] = {
    {"before_init", before_init},           {"before_init_recv", before_init_recv},
    {"before_init_test", before_init_test}, {"before_init_get", before_init_get},
    {"before_init_free", before_init_free}, {"taginit_tag", taginit_tag},
    {"taginit_none", taginit_none},         {"taginit_many", taginit_many},
    {"taginit_size", taginit_size},         {"init_twice", init_twice},
    {"taginit_late", taginit_late},         {0, 0},
};

static const struct named after[] = {
    {"to_itself", to_itself},
    {"to_nobody", to_nobody},
    {"to_negative", to_negative},
    {"send_tag", send_tag},
    {"recv_tag", recv_tag},
    {"send_length", send_length},
    {"recv_length", recv_length},
    {"send_null", send_null},
    {"recv_null", recv_null},
    {"source_null", source_null},
    {"length_null", length_null},
    {"two_sends", two_sends},
    {"two_receives", two_receives},
    {"receive_not_asked", receive_not_asked},
    {"receive_while_posted", receive_while_posted},
    {"short_while_posted", short_while_posted},
    {"no_send", no_send},
    {"no_send_negative", no_send_negative},
    {"no_receive", no_receive},
    {"old_receive", old_receive},
    {"send_as_receive", send_as_receive},
    {"receive_as_send", receive_as_send},
    {"free_nothing", free_nothing},
    {"free_twice", free_twice},
    {"get_twice", get_twice},
    {"short_too_long", short_too_long},
    {"queued_too_long", queued_too_long},
    {"long_too_long", long_too_long},
    {"posted_too_long", posted_too_long},
    {"not_there", not_there},
    {"huge", huge},
    {"alone", before_init_recv},
    {0, 0},
};

/* Sends node 0, once that has told it to, a short message, a long one and one that lies nowhere. */
static void serve(void)
{
    hear();
    bip_tsend(0, 7, words, 1);
    tell(0);
    bip_tisend(0, 8, words, LONG);
    for (;;)
        bip_trecv(GO, words, 1);
}

static void serve_nowhere(int len)
{
    hear();
    bip_tsend(0, 9, (int *)64, len);
}

int main(int argc, char **argv)
{
    const struct named *one;
    for (one = before; one->name; one++)
        if (argc > 1 && strcmp(one->name, argv[1]) == 0)
            return run_case(before, argc, argv);
    bip_init();
    if (bip_mynode == 0)
        run_case(after, argc, argv);
    else if (argc > 1 && strcmp(argv[1], "not_there") == 0)
        serve_nowhere(LONG);
    else if (argc > 1 && strcmp(argv[1], "huge") == 0)
        serve_nowhere(HUGE_WORDS);
    else
        serve();
    fprintf(stderr, "nothing was wrong\n");
    return 4;
}
