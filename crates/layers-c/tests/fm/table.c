/* Both ways of registering handlers, and parameters. */
#include "fm_test.h"

static int which;

#define HANDLER(n)                                                      \
    static int handler_##n(FM_stream *stream, unsigned sender)          \
    {                                                                   \
        (void) stream, (void) sender;                                   \
        which = n;                                                      \
        return FM_CONTINUE;                                             \
    }
HANDLER(1)
HANDLER(2)
HANDLER(3)

static int run(ULONG id)
{
    which = 0;
    send_whole((FM_nodeid + 1) % FM_numnodes, id, NULL, 0);
    while (which == 0)
        FM_extract(1); /* One message, as the neighbour may be ahead. */
    return which;
}

int main(int argc, char **argv)
{
    int i;
    ULONG most = 1024;

    if (argc > 1) {
        most = atoi(argv[1]);
        CHECK(FM_register_handler(5, handler_3) == 5);
        FM_set_parameter(FM_MAX_HANDLERS, 0);           /* line */
        FM_set_parameter(FM_MAX_HANDLERS, -1);          /* line */
        FM_set_parameter(FM_MAX_HANDLERS, 65537);       /* line */
        FM_set_parameter(FM_MAX_HANDLERS, (int) most);
        CHECK((FM_handler_table[5] == handler_3) == 1);
        FM_set_parameter(FM_QUIET, 1);
        FM_set_parameter(FM_GRM_NAME, "name");
        FM_set_parameter(FM_GRM_PORT, 17997);
        FM_set_parameter(FM_CM_PORT, 21328);
        FM_set_parameter(FM_KEY_NAME, "key");
        FM_set_parameter(FM_CONFIG_FILE, "fmconfig");
        FM_set_parameter(FM_ABSOLUTE_SWITCHES);
        FM_set_parameter(FM_RELATIVE_SWITCHES);
        FM_set_parameter(FM_LCP_FILE, "lcp");
        FM_set_parameter(FM_QUIET_START);
        FM_set_parameter(FM_UNIT_NUMBER, 0);
        FM_set_parameter(0, 1);                         /* line */
        FM_set_parameter(13, 1);                        /* line */
        FM_handler_table[5] = NULL;
    }
    FM_handler_table[2] = handler_3; /* As FM 2.0's programs do: before, */
    FM_initialize();
    CHECK(FM_nodeid < FM_numnodes);
    FM_handler_table[most - 1] = handler_2; /* and after. */
    CHECK(run(2) == 3 && run(most - 1) == 2);
    CHECK(FM_register_handler(FM_ANY_ID, handler_1) == 0); /* As FM 2.1's do. */
    CHECK(FM_register_handler(FM_ANY_ID, handler_2) == 1);
    CHECK(FM_register_handler(FM_ANY_ID, handler_2) == 3);
    CHECK(FM_handler_table[0] == handler_1 && FM_handler_table[1] == handler_2);
    CHECK(run(0) == 1 && run(1) == 2);
    CHECK(FM_register_handler(1, handler_3) == 1);
    CHECK(run(1) == 3);
    CHECK(FM_register_handler(FM_ANY_ID, NULL) == FM_ANY_ID);       /* line */
    CHECK(FM_register_handler(most, handler_1) == FM_ANY_ID);       /* line */
    CHECK(FM_register_handler(most - 1, handler_1) == most - 1);
    CHECK(run(most - 1) == 1);
    for (i = 4; i < (int) most - 1 && i < 1024; i++)
        CHECK(FM_register_handler(FM_ANY_ID, handler_1) == (ULONG) i);
    if (most <= 1024)
        CHECK(FM_register_handler(FM_ANY_ID, handler_1) == FM_ANY_ID);  /* line */
    FM_finalize();
    printf("node %lu is done\n", FM_nodeid);
    return 0;
}
