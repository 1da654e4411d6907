/* A PMIx of the tests' own, whose texts go through files of FAKE_PMIX. It gives long texts back as PMIx
 * 5.0.11 does, and the process does not end well if a value that it gave was not given back. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STRING = 3, UINT32 = 14, COMPRESSED = 42, LONGEST = 4096 };

typedef struct { char nspace[256]; uint32_t rank; } proc_t;
typedef struct {
    uint16_t type;
    union { char *string; uint32_t uint32; struct { char *bytes; size_t size; } bo; uint64_t room[3]; } data;
} value_t;

static uint32_t own, round_;
static int given;

static void path(char *to, const char *kind, const char *name, uint32_t number) {
    snprintf(to, 1024, "%s/%s-%s-%u", getenv("FAKE_PMIX"), kind, name, number);
}

static void leave(const char *at, const char *text) {
    char hidden[1100];
    snprintf(hidden, sizeof hidden, "%s.new", at);
    FILE *file = fopen(hidden, "w");
    fputs(text, file);
    fclose(file);
    rename(hidden, at);
}

int PMIx_Init(proc_t *proc, void *infos, size_t count) {
    (void)infos, (void)count;
    own = (uint32_t)atoi(getenv("PMIX_RANK"));
    snprintf(proc->nspace, sizeof proc->nspace, "%s", getenv("PMIX_NAMESPACE"));
    proc->rank = own;
    return 0;
}

int PMIx_Finalize(void *infos, size_t count) {
    (void)infos, (void)count;
    char at[1024];
    if (getenv("FAKE_PMIX_LEAVE_MS") != NULL) {
        path(at, "leaves", "job", own);
        leave(at, "");
        usleep(1000 * (useconds_t)atoi(getenv("FAKE_PMIX_LEAVE_MS")));
    }
    path(at, "left", "job", own);
    leave(at, "");
    if (given != 0) {
        fprintf(stderr, "%d values were not given back\n", given);
        _exit(99);
    }
    return 0;
}

int PMIx_Put(uint8_t scope, const char *key, const value_t *value) {
    char at[1024];
    (void)scope;
    path(at, "text", key, own);
    leave(at, value->data.string);
    return 0;
}

int PMIx_Commit(void) { return 0; }

int PMIx_Fence(void *procs, size_t count, void *infos, size_t info_count) {
    char at[1024], round_name[16];
    (void)procs, (void)count, (void)infos, (void)info_count;
    snprintf(round_name, sizeof round_name, "%u", round_++);
    path(at, "fence", round_name, own);
    leave(at, "");
    for (int rank = 0, tries = 0; rank < atoi(getenv("FAKE_PMIX_SIZE")); tries++) {
        path(at, "fence", round_name, (uint32_t)rank);
        if (access(at, F_OK) == 0)
            rank++;
        else if (tries > 60000)
            return -24;
        else
            usleep(1000);
    }
    return 0;
}

int PMIx_Get(const proc_t *proc, const char *key, void *infos, size_t count, value_t **value) {
    (void)infos, (void)count;
    value_t *made = calloc(1, sizeof *made);
    if (strcmp(key, "pmix.job.size") == 0) {
        made->type = UINT32;
        made->data.uint32 = (uint32_t)atoi(getenv("FAKE_PMIX_SIZE"));
    } else {
        char at[1024], *text = calloc(1, 1 << 20);
        path(at, "text", key, proc->rank);
        FILE *file = fopen(at, "r");
        if (file == NULL) {
            free(text), free(made);
            return -46;
        }
        size_t len = fread(text, 1, (1 << 20) - 1, file);
        fclose(file);
        made->type = len > LONGEST ? COMPRESSED : STRING;
        made->data.bo.bytes = text;
        if (len > LONGEST)
            made->data.bo.size = len;
    }
    given++;
    *value = made;
    return 0;
}

void PMIx_Value_destruct(value_t *value) {
    if (value->type != UINT32)
        free(value->data.string);
    given--;
}

const char *PMIx_Error_string(int status) { return status == -46 ? "NOT-FOUND" : "SOME-ERROR"; }
