#include "prelude.h"
#include <pthread.h>

/* Rank 1 is killed: its connections break, what was posted ends, and so does every wait. */

static VIP_VI_HANDLE vis[4];
static VIP_CQ_HANDLE cq;

/* Waits for what never comes, in each call that can, while the other dies. */
static void *wait_for_receive(void *unused)
{
    VIP_DESCRIPTOR *ended;

    (void) unused;
    GIVES(VipRecvWait(vis[0], VIP_INFINITE, &ended), VIP_DESCRIPTOR_ERROR);
    CHECK(ended == descriptor(0));
    GIVES(ended->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_DESC_FLUSHED_ERROR);
    return NULL;
}

static void *wait_for_queue(void *unused)
{
    VIP_VI_HANDLE of;
    VIP_BOOLEAN is_receive;

    (void) unused;
    GIVES(VipCQWait(cq, VIP_INFINITE, &of, &is_receive), VIP_SUCCESS);
    CHECK(of == vis[1] && is_receive);
    return NULL;
}

static void *wait_for_server(void *unused)
{
    VIP_VI_ATTRIBUTES remote;

    (void) unused;
    GIVES(VipConnectPeerWait(vis[2], &remote), VIP_NOT_REACHABLE);
    return NULL;
}

static void *wait_for_send(void *unused)
{
    VIP_DESCRIPTOR *ended;
    VIP_RETURN gave;

    (void) unused;
    gave = VipSendWait(vis[3], VIP_INFINITE, &ended);
    CHECK(ended == descriptor(8));
    GIVES(gave, VIP_DESCRIPTOR_ERROR);
    GIVES(ended->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_SEND | VIP_STATUS_TRANSPORT_ERROR);
    return NULL;
}

/* Whether all threads of a process stand still, as the kernel tells. */
static int is_stopped(pid_t pid)
{
    char path[64], state = 0;
    FILE *file;

    sprintf(path, "/proc/%d/stat", (int) pid);
    file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
    fclose(file);
    return state == 'T';
}

int main(void)
{
    static void *(*const waits[4])(void *) = {wait_for_receive, wait_for_queue, wait_for_server, wait_for_send};
    pthread_t threads[4];
    VIP_VI_ATTRIBUTES remote;
    uint64_t pid;
    int i;

    open_nic();
    GIVES(VipErrorCallback(nic, NULL, note_error), VIP_SUCCESS);
    GIVES(VipCreateCQ(nic, 16, &cq), VIP_SUCCESS);
    for (i = 0; i < 4; i++) {
        vis[i] = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, i == 1 ? cq : NULL);
        post_receive(vis[i], fill(i, 0, 0, 100));
        if (i != 2)
            connect_vi(vis[i], "lost");
    }
    pid = swap_words((uint64_t) getpid());
    meet();
    if (me == 1)
        for (;;)
            pause();
    GIVES(VipConnectPeerRequest(vis[2], address(0, "x"), address(1, "y"), VIP_INFINITE), VIP_SUCCESS);
    CHECK(kill((pid_t) pid, SIGSTOP) == 0);
    while (!is_stopped((pid_t) pid))
        ;
    /* This is never answered. */
    post_send(vis[3], fill(8, 0, 0, 100));
    for (i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, waits[i], NULL) == 0);
    CHECK(kill((pid_t) pid, SIGKILL) == 0);
    for (i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (i = 0; i < 4; i++)
        if (i != 2) {
            GIVES(told(vis[i], VIP_ERROR_CONN_LOST), VIP_RESOURCE_VI);
            GIVES(state_of(vis[i]), VIP_STATE_ERROR);
            end_vi(vis[i]);
        }
    GIVES(state_of(vis[2]), VIP_STATE_IDLE);
    GIVES(VipConnectRequest(vis[2], address(0, "x"), address(1, "y"), VIP_INFINITE, &remote), VIP_NOT_REACHABLE);
    GIVES(VipConnectPeerRequest(vis[2], address(0, "x"), address(1, "y"), VIP_INFINITE), VIP_NOT_REACHABLE);

    /* Who is left goes on. */
    GIVES(VipConnectPeerRequest(vis[2], address(0, "a"), address(0, "b"), VIP_INFINITE), VIP_SUCCESS);
    vis[0] = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    GIVES(VipConnectPeerRequest(vis[0], address(0, "b"), address(0, "a"), VIP_INFINITE), VIP_SUCCESS);
    GIVES(VipConnectPeerWait(vis[2], &remote), VIP_SUCCESS);
    post_send(vis[0], fill(8, 0, 0, 100));
    GIVES(sent(vis[0], descriptor(8)), VIP_STATUS_OP_SEND);
    GIVES(received(vis[2], descriptor(2)), VIP_STATUS_OP_RECEIVE);
    printf("rank %d goes on\n", me);
    return 0;
}
