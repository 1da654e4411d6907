/* Wait counters, throw-away semaphores and variables of am.h. */
#include "check.h"

static unsigned long far_counter;
static long there;
static char text[20], came[20];

static void count_down(vnn_t from, long counter) { CHECK(am_reply_1(from, r_cntr_decr, counter) == 0); }
static void count_up(vnn_t from, long counter) { CHECK(am_reply_1(from, r_cntr_incr, counter) == 0); }
static void signals(vnn_t from, long semaphore) { CHECK(am_reply_1(from, r_ta_sema_signal, semaphore) == 0); }

/* -- counters: on the stack of who waits; by the macros, the functions, and handlers of each kind. */

static void counters(void)
{
    int round, proc, procs = am_procs(), right = (am_my_proc() + 1) % procs;
    WAITCNTR(waits);

    CHECK(!CNTR_IS_ZERO(waits));
    for (round = 0; round < 50; round++)
        for (proc = 0; proc < procs; proc++) {
            CNTR_INCR(waits);
            CHECK(am_request_1(proc, count_down, (long)waits) == 0);
        }
    cntr_wait_for_zero(waits);
    CHECK(cntr_is_zero(waits) == 0);
    for (proc = 0; proc < procs; proc++)
        CHECK(am_request_1(proc, count_up, (long)waits) == 0);
    am_wait_for(CNTR_IS_ZERO(waits) == (unsigned long)procs);
    CNTR_DECR_BY(waits, procs - 1);
    cntr_decr(waits);
    cntr_incr_by(waits, 7);
    cntr_decr_by(waits, 5);
    CNTR_INCR_BY(waits, 1);
    CNTR_DECR(waits);
    cntr_incr(waits);
    CHECK(cntr_is_zero(waits) == 3);
    /* A store's handler has the sender's counter counted down, and a get's counts here. */
    CHECK(am_store(right, text, came, 20, r_cntr_decr_reply_mem, waits) == 0);
    CHECK(am_get(right, text, came, 20, r_cntr_decr_mem, waits) == 0);
    CHECK(am_store(right, text, came, 20, r_cntr_decr_reply_mem, waits) == 0);
    CNTR_WAIT_FOR_ZERO(waits);
    CHECK(am_store(right, text, came, 20, r_cntr_incr_reply_mem, waits) == 0);
    CHECK(am_get(right, text, came, 20, r_cntr_incr_mem, waits) == 0);
    am_wait_for(*waits == 2);
    cntr_incr(NULL);
    cntr_wait_for_zero(NULL);
    ta_sema_signal(NULL);
    CHECK(cntr_is_zero(NULL) == 0 && am_request_1(right, r_cntr_decr, 0) == 0);
    /* The receiver's own, by its address. */
    meet();
    CHECK(am_store(right, text, came, 20, r_cntr_incr_mem, &far_counter) == 0);
    am_wait_for(far_counter == 1);
    meet();
    CHECK(am_request_1(right, r_cntr_decr, (long)&far_counter) == 0);
    am_wait_for(far_counter == 0);
    meet();
}

/* -- semaphores */

static void semaphores(void)
{
    int round, proc, procs = am_procs(), right = (am_my_proc() + 1) % procs;

    for (round = 0; round < 20; round++)
        for (proc = 0; proc < procs; proc++) {
            TA_SEMAPHORE(gate);
            CHECK(am_request_1(proc, signals, (long)gate) == 0);
            ta_sema_wait(gate);
        }
    {
        TA_SEMAPHORE(stored);
        TA_SEMAPHORE(got);
        TA_SEMAPHORE(own);
        CHECK(am_store(right, text, came, 20, r_ta_sema_signal_reply_mem, stored) == 0);
        CHECK(am_get(right, text, came, 20, r_ta_sema_signal_mem, got) == 0);
        TA_SEMA_WAIT(stored);
        TA_SEMA_WAIT(got);
        ta_sema_signal(own);
        TA_SEMA_WAIT(own);
        TA_SEMA_SIGNAL(got);
        ta_sema_wait(got);
    }
    meet();
}

/* -- variables */

static void heard(vnn_t from) { CHECK(from >= 0 && from < AM_PROCS); there++; }

static void variables(void)
{
    handler_t any = (handler_t)heard;

    CHECK(AM_MY_PROC == am_my_proc() && AM_PROCS == am_procs());
    CHECK(AM_MY_CLUSTER_SIZE == 1 && am_my_cluster_size() == 1);
    CHECK(am_request_0((AM_MY_PROC + 1) % AM_PROCS, (handler_0_t)any) == 0);
    am_wait_for(there == 1);
    meet();
}

int main(int argc, char **argv)
{
    const char *what = scenario(argc, argv);

    CHECK(AM_MY_PROC == -1 && AM_PROCS == 0);
    am_enable(wanted(argc, argv), argc, argv);
    if (strcmp(what, "counters") == 0) counters();
    else if (strcmp(what, "semaphores") == 0) semaphores();
    else variables();
    printf("%s: %d is well\n", what, am_my_proc());
    am_disable();
    return 0;
}
