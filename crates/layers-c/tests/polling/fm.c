/* Calls of FM that a program polls. */
#include "yields.h"
#include "fm.h"

static volatile int told;

static int tell(FM_stream *stream, unsigned sender)
{
    (void) stream, (void) sender;
    told++;
    return FM_CONTINUE;
}

int main(void)
{
    FM_initialize();
    FM_register_handler(0, tell);
    GIVES_AWAY(FM_extract(~0));
    GIVES_AWAY(FM_extract(1));
    GIVES_AWAY(FM_extract(0));
    printf("node %lu is done\n", FM_nodeid);
    FM_finalize();
    return 0;
}
