/* What the test programs share. A check that fails says where, with the library's last error, and ends the process. */
#ifndef CASES_H
#define CASES_H

#include <errno.h>
#include <standpipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                      \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, sp_error_text());  \
            fflush(stderr);                                                                                   \
            _Exit(1);                                                                                         \
        }                                                                                                     \
    } while (0)

/* The call returns SP_OK, or a count. */
#define GOOD(call)                                                                                               \
    do {                                                                                                         \
        int status_ = (call);                                                                                    \
        if (status_ < 0) {                                                                                       \
            fprintf(stderr, "%s:%d: %s is %d: %s\n", __FILE__, __LINE__, #call, status_, sp_error_text());       \
            fflush(stderr);                                                                                      \
            _Exit(1);                                                                                            \
        }                                                                                                        \
    } while (0)

/* The call returns this status, and its error says so. */
#define FAILS(wanted, call)                                                                                      \
    do {                                                                                                         \
        int status_ = (int)(call);                                                                               \
        sp_error error_ = {.size = sizeof error_};                                                               \
        if (status_ != (wanted) || sp_last_error(&error_) != (wanted) || error_.status != (wanted) ||            \
            error_.text[0] == 0) {                                                                               \
            fprintf(stderr, "%s:%d: %s is %d, not %d: %s\n", __FILE__, __LINE__, #call, status_, (int)(wanted),  \
                    sp_error_text());                                                                            \
            fflush(stderr);                                                                                      \
            _Exit(1);                                                                                            \
        }                                                                                                        \
    } while (0)

/* The job of a case: its node, and where every rank's box of 64 KiB lies. */
enum { BOX = 65536, RANKS_MAX = 8 };

struct job {
    sp_node *node;
    sp_team *world;
    uint32_t rank, size, right, left;
    unsigned char *here;
    sp_remote boxes[RANKS_MAX];
    sp_remote mine, theirs; /* one's own box, and the right one's */
};

#endif
