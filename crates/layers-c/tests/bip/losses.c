/* Node 1 goes while the others wait for something: each wait ends. */
#include "check.h"

static int words[LARGE];

static void in_recv(void)
{
    bip_trecv(1, words, 1);
}

static void in_rwait(void)
{
    bip_rwait(bip_tirecv(1, words, 1));
}

static void in_rtest(void)
{
    int id = bip_tirecv(1, words, 1);
    while (bip_rtest(id) == -1)
        ;
}

static void in_getmsg(void)
{
    int len, src;
    bip_tgetmsg(1, &len, &src);
}

static void in_ngetmsg(void)
{
    int len, src;
    while (!bip_tngetmsg(1, &len, &src))
        ;
}

static void in_nrecv(void)
{
    while (bip_tnrecv(1, words, 1) == -1)
        ;
}

static void in_swait(void)
{
    bip_swait(bip_tisend(1, 1, words, LARGE));
}

static void in_stest(void)
{
    int id = bip_tisend(1, 1, words, LARGE);
    while (!bip_stest(id))
        ;
}

static void in_short_sends(void)
{
    for (;;)
        bip_tsend(1, 1, words, 1);
}

/* What node 1 has sent before it goes is received. */
static void after_a_message(void)
{
    CHECK(bip_trecv(2, words, 1) == 1);
    bip_trecv(2, words, 1);
}

static const struct named cases[] = {
    {"in_recv", in_recv},       {"in_rwait", in_rwait},     {"in_rtest", in_rtest},
    {"in_getmsg", in_getmsg},   {"in_ngetmsg", in_ngetmsg}, {"in_nrecv", in_nrecv},
    {"in_swait", in_swait},     {"in_stest", in_stest},     {"in_short_sends", in_short_sends},
    {"after_a_message", after_a_message}, {0, 0},
};

int main(int argc, char **argv)
{
    int i;

    CHECK(argc == 3);
    if (strcmp(argv[2], "never") == 0 && strcmp(getenv("STANDPIPE_RANK"), "1") == 0)
        return 5;
    bip_init();
    if (bip_mynode == 1) {
        for (i = 0; i < bip_numnodes; i++)
            if (i != 1)
                bip_tsend(i, 2, words, 1);
        usleep(200000);
        if (strcmp(argv[2], "killed") == 0)
            raise(SIGKILL);
        if (strcmp(argv[2], "ends") == 0)
            return 0;
        return 5; /* a process that fails leaves at once */
    }
    run_case(cases, argc, argv);
    fprintf(stderr, "the wait went well\n");
    return 4;
}
