/* Calls of PM that a program polls. */
#include "yields.h"
#include <errno.h>
#include <score.h>

int main(int argc, char **argv)
{
    caddr_t buffer;
    char path[64];
    size_t len;
    int sent = 0, error;

    score_initialize(argc, argv);
    GIVES_AWAY(pmReceive(score_pmnet[0], &buffer, &len));
    /* What comes ends the other one's loop: nobody sends before a file says that it has ended. */
    snprintf(path, sizeof(path), "/tmp/pm-polls-%d", (int) getppid());
    if (score_self_node == 0) {
        while (unlink(path) != 0)
            usleep(1000);
    } else {
        FILE *file = fopen(path, "w");
        if (file == NULL || fclose(file) != 0)
            return 4;
    }
    if (score_self_node == 0) {
        /* The other one takes none of these before it has slept. */
        while ((error = pmGetSendBuffer(score_pmnet[0], 1, &buffer, 8000)) == 0) {
            pmSend(score_pmnet[0]);
            sent++;
        }
        GIVES_AWAY(pmGetSendBuffer(score_pmnet[0], 1, &buffer, 8000));
        GIVES_AWAY(pmIsSendDone(score_pmnet[0]));
        printf("%d sent, then %d\n", sent, error);
    } else {
        sleep(1);
    }
    printf("node %d is done\n", score_self_node);
    return 0;
}
