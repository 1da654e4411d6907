/* Requests and replies of up to three words allocate nothing: this program counts what its main thread does. */
#include <stddef.h>
#include "check.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);

static __thread long allocations;

void *malloc(size_t size) { allocations++; return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { allocations++; return __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { allocations++; return __libc_realloc(block, size); }

static volatile long back;

static void back_0(vnn_t from) { (void)from; back++; }
static void back_1(vnn_t from, long a) { (void)from; (void)a; back++; }
static void back_2(vnn_t from, long a, long b) { (void)from; (void)a; (void)b; back++; }
static void back_3(vnn_t from, long a, long b, long c) { (void)from; (void)a; (void)b; (void)c; back++; }
static void there_0(vnn_t from) { am_reply_0(from, back_0); }
static void there_1(vnn_t from, long a) { am_reply_1(from, back_1, a); }
static void there_2(vnn_t from, long a, long b) { am_reply_2(from, back_2, a, b); }
static void there_3(vnn_t from, long a, long b, long c) { am_reply_3(from, back_3, a, b, c); }
static void doubled(vnn_t from, long a, long b, double d) { (void)from; (void)a; (void)b; (void)d; back++; }
static void double_there(vnn_t from, long a, long b, double d) { am_reply_df(from, doubled, a, b, d); }

static void round_of(int count)
{
    int i, right = (am_my_proc() + 1) % am_procs();

    back = 0;
    for (i = 0; i < count; i++) {
        am_request_0(right, there_0);
        am_request_1(right, there_1, 1);
        am_request_2(right, there_2, 1, 2);
        am_request_3(right, there_3, 1, 2, 3);
        am_request_df(right, double_there, 1, 2, 3.0);
    }
    while (back < 5 * count)
        am_poll();
}

int main(int argc, char **argv)
{
    long before;

    am_enable(wanted(argc, argv), argc, argv);
    free(malloc(1));
    CHECK(allocations > 0);
    meet();
    round_of(500);
    meet();
    before = allocations;
    round_of(1000);
    CHECK(allocations == before);
    meet();
    printf("%s: %d is well\n", scenario(argc, argv), am_my_proc());
    am_disable();
    return 0;
}
