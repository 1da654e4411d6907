/* What the cases share. */
#include <bip.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                        \
    do {                                                                                                   \
        if (!(what)) {                                                                                     \
            fprintf(stderr, "node %d, line %d: %s\n", bip_mynode, __LINE__, #what);                        \
            exit(3);                                                                                       \
        }                                                                                                  \
    } while (0)

enum { GO = 90, LONG = BIPSMALLSIZE + 1, LARGE = 100000 };

struct named {
    const char *name;
    void (*run)(void);
};

/* Tells another node to go on, and waits to be told. */
static inline void tell(int node)
{
    bip_tsend(node, GO, 0, 0);
}

static inline void hear(void)
{
    CHECK(bip_trecv(GO, 0, 0) == 0);
}

static inline void fill(int *words, int len, int from)
{
    int i;
    for (i = 0; i < len; i++)
        words[i] = from + i;
}

static inline int is_filled(const int *words, int len, int from)
{
    int i;
    for (i = 0; i < len; i++)
        if (words[i] != from + i)
            return 0;
    return 1;
}

/* Runs the case that the program is told. */
static inline int run_case(const struct named *cases, int argc, char **argv)
{
    for (; cases->name; cases++)
        if (argc > 1 && strcmp(cases->name, argv[1]) == 0) {
            cases->run();
            return 0;
        }
    fprintf(stderr, "no such case\n");
    return 2;
}
