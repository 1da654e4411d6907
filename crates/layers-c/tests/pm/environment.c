#include "prelude.h"
#include <sys/wait.h>

int main(int argc, char **argv)
{
    pmDevice *device;
    char token[PM_MTU];
    int status;
    pid_t child;

    CHECK(score_num_node == 0 && score_pmnet == NULL);
    score_initialize(argc, argv);
    CHECK(score_num_pmnet == 1 && score_pmnet[0] != NULL);
    CHECK(score_num_node == atoi(argv[1]) && score_self_node >= 0 && score_self_node < score_num_node);
    CHECK(score_num_host == 1 && score_self_host == 0);
    CHECK(score_num_proc == score_num_node && score_self_proc == score_self_node);
    pmc = score_pmnet[0];
    GIVES(pmOpenDevice(PM_ETHERNET, 0, NULL, &device), PM_SUCCESS);
    GIVES(pmOpenContext(device, 0, &meeting), PM_SUCCESS);
    score_initialize(argc, argv);
    CHECK(score_pmnet[0] == pmc);
    GIVES(pmOpenDevice(PM_COMPOSITE, 0, NULL, &device), ENODEV);
    /* A child ends without harm to its parent. */
    fflush(NULL);
    child = fork();
    if (child == 0)
        exit(0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    meet();
    put_message(pmc, me, "still here", 11);
    CHECK(take_message(pmc, token) == 11);
    meet();
    return 0;
}
