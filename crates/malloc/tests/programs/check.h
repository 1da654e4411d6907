/* What the programs of these tests have in common. */
#include <stdio.h>
#include <stdlib.h>

#define CHECK(holds)                                                                                      \
    do {                                                                                                  \
        if (!(holds)) {                                                                                   \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds);                           \
            _Exit(1);                                                                                     \
        }                                                                                                 \
    } while (0)
