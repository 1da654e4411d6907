/* A program that loads the library while it runs, uses it, and unloads it: ./loads LIBRARY [OTHER COPY]. */
#include <dlfcn.h>
#include <standpipe.h>
#include <stdio.h>
#include <string.h>

/* The functions of a library that was loaded. A pointer to a function has no conversion in ISO C. */
struct library {
    void *handle;
    int (*open_as)(sp_config *, int, sp_node **);
    int (*alloc)(sp_node *, size_t, sp_remote *, void **);
    int (*put)(sp_node *, sp_remote, const void *, size_t);
    int (*close)(sp_node *, uint64_t);
    const char *(*error_text)(void);
};

static int find(void *handle, const char *name, void *function) {
    void *symbol = dlsym(handle, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol == NULL;
}

static int load(const char *path, struct library *library) {
    void *handle = library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return find(handle, "sp_open_as", &library->open_as) || find(handle, "sp_alloc", &library->alloc) ||
           find(handle, "sp_put", &library->put) || find(handle, "sp_close", &library->close) ||
           find(handle, "sp_error_text", &library->error_text);
}

static int use(const struct library *library, sp_node **node) {
    sp_remote at;
    void *here;
    int failed = library->open_as(NULL, SP_ALONE, node) || library->alloc(*node, 64, &at, &here) ||
                 library->put(*node, at, "moved", 6) || strcmp(here, "moved") != 0;
    if (failed) fprintf(stderr, "%s\n", library->error_text());
    return failed;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    for (int round = 0; round < 20; round++) {
        struct library library;
        sp_node *node;
        if (load(argv[1], &library) || use(&library, &node)) return 3;
        if (library.close(node, 10 * SP_SECOND)) return 4;
        if (dlclose(library.handle)) return 5;
    }
    /* Two copies, each with a node of its own. */
    struct library copies[2];
    sp_node *nodes[2];
    for (int i = 0; i < 2; i++)
        if (load(argv[i + 1], &copies[i]) || use(&copies[i], &nodes[i])) return 6;
    if (copies[0].put == copies[1].put) return 7;
    for (int i = 0; i < 2; i++)
        if (copies[i].close(nodes[i], 10 * SP_SECOND) || dlclose(copies[i].handle)) return 8;
    printf("loaded and unloaded\n");
    return 0;
}
