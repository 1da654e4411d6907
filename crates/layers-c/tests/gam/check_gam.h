/* The checks of programs in Berkeley's spelling: each names its line. */
#include <stdio.h>
#include <stdlib.h>

#define CHECK(holds)                                                                              \
    do {                                                                                          \
        if (!(holds)) {                                                                           \
            fprintf(stderr, "%s:%d: process %d: not so: %s\n", __FILE__, __LINE__, gam_my_proc(), \
                    #holds);                                                                      \
            exit(3);                                                                              \
        }                                                                                         \
    } while (0)
