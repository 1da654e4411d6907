/* What the C library promises of its allocator, and where blocks lie. Without arguments it runs everything. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

static uintptr_t heap_start, heap_end;

/* Finds the heap as a node does: the second and third word of what the symbol gives. */
static void find_heap(void) {
    const uintptr_t *(*find)(void) = (const uintptr_t *(*)(void))dlsym(RTLD_DEFAULT, "standpipe_malloc_heap_v1");
    CHECK(find);
    const uintptr_t *heap = find();
    CHECK(heap && heap[0] >= 3 * sizeof *heap);
    heap_start = heap[1];
    heap_end = heap_start + heap[2];
}

static int in_heap(const void *block) {
    return (uintptr_t)block >= heap_start && (uintptr_t)block < heap_end;
}

/* Has all bytes of a block be what tells it from others. */
static void fill(void *block, size_t size) {
    memset(block, (int)(size % 251), size);
}

static void check_filled(const void *block, size_t size) {
    const unsigned char *bytes = block;
    for (size_t i = 0; i < size; i += 1 + size / 1000) CHECK(bytes[i] == size % 251);
}

static void sizes(void) {
    for (size_t size = 0; size <= (size_t)1 << 28; size = size * 3 / 2 + 1) {
        void *block = malloc(size), *zeroed = calloc(size, 1);
        CHECK(block && zeroed && in_heap(block) && in_heap(zeroed));
        CHECK(size < 16 || (uintptr_t)block % 16 == 0);
        CHECK(malloc_usable_size(block) >= size && malloc_usable_size(zeroed) >= size);
        for (size_t i = 0; i < size; i += 1 + size / 1000) CHECK(((char *)zeroed)[i] == 0);
        fill(block, size);
        check_filled(block, size);
        free(zeroed);
        free(block);
    }
    CHECK(malloc_usable_size(NULL) == 0);
    free(NULL);
}

static void refused(void) {
    /* Sizes that compilers know to be too large, and say so of. */
    volatile size_t most = SIZE_MAX, half = SIZE_MAX / 2 + 2;
    char *block = malloc(100);
    strcpy(block, "stays");
    errno = 0;
    CHECK(!malloc(most) && errno == ENOMEM);
    errno = 0;
    CHECK(!calloc(half, 2) && errno == ENOMEM);
    errno = 0;
    CHECK(!realloc(block, most) && errno == ENOMEM && !strcmp(block, "stays"));
    errno = 0;
    CHECK(!reallocarray(block, half, 2) && errno == ENOMEM && !strcmp(block, "stays"));
    errno = 0;
    CHECK(!pvalloc(most) && errno == ENOMEM);
    errno = 0;
    CHECK(!memalign(most, 1) && errno == EINVAL);
    errno = 0;
    CHECK(!aligned_alloc(half / 2, most) && errno == ENOMEM);
    errno = 7;
    void *place = block;
    CHECK(posix_memalign(&place, 24, 8) == EINVAL && posix_memalign(&place, 4, 8) == EINVAL);
    CHECK(posix_memalign(&place, 64, most) == ENOMEM && posix_memalign(&place, 0, 8) == EINVAL);
    CHECK(errno == 7 && place == block);
    free(block);
    CHECK(errno == 7);
    /* As the GNU C library does. */
    CHECK(!realloc(malloc(10), 0));
}

static void alignments(void) {
    for (size_t align = 1; align <= (size_t)1 << 26; align *= 2) {
        size_t sizes[] = {0, 1, align - 1, align, align + 1, 3 * align};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *blocks[3] = {memalign(align, sizes[i]), aligned_alloc(align, sizes[i]), NULL};
            if (align >= sizeof(void *)) CHECK(!posix_memalign(&blocks[2], align, sizes[i]));
            for (int at = 0; at < 3; at++) {
                if (at == 2 && align < sizeof(void *)) continue;
                CHECK(blocks[at] && (uintptr_t)blocks[at] % align == 0);
                CHECK(malloc_usable_size(blocks[at]) >= sizes[i]);
                /* docs/MALLOC.md: beyond 64 KiB the system gives them. */
                CHECK(align > 65536 || in_heap(blocks[at]));
                fill(blocks[at], sizes[i]);
                blocks[at] = realloc(blocks[at], sizes[i] + 100);
                check_filled(blocks[at], sizes[i]);
                free(blocks[at]);
            }
        }
    }
    void *odd = memalign(48, 10), *page = valloc(10), *pages = pvalloc(4097);
    CHECK(odd && (uintptr_t)odd % 64 == 0);
    CHECK((uintptr_t)page % 4096 == 0 && (uintptr_t)pages % 4096 == 0 && malloc_usable_size(pages) >= 8192);
    free(odd);
    free(page);
    free(pages);
}

static void growth(void) {
    size_t size = 1;
    unsigned char *block = malloc(size);
    block[0] = 1;
    while (size < (size_t)1 << 26) {
        size_t larger = size + size / 3 + 1;
        block = reallocarray(block, larger, 1);
        CHECK(block && in_heap(block));
        for (size_t i = 0; i < size; i += 1 + size / 500) CHECK(block[i] == (unsigned char)(i * 7 + 1));
        for (size_t i = 0; i < larger; i++) block[i] = (unsigned char)(i * 7 + 1);
        size = larger;
    }
    block = realloc(block, 10);
    CHECK(block[9] == 64);
    free(block);
}

enum { BLOCKS = 20000 };

static void *frees(void *blocks) {
    void **list = blocks;
    for (int i = 0; i < BLOCKS; i++) {
        check_filled(list[i], (size_t)(i % 3000));
        free(list[i]);
    }
    return blocks;
}

/* Blocks of one thread's, freed by another, several times over: they are used again. */
static void others(void) {
    for (int round = 0; round < 5; round++) {
        void **list = calloc(BLOCKS, sizeof *list);
        for (int i = 0; i < BLOCKS; i++) {
            list[i] = malloc((size_t)(i % 3000));
            fill(list[i], (size_t)(i % 3000));
        }
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, frees, list) && !pthread_join(thread, NULL));
        free(list);
    }
}

/* What the C library allocates by itself, and a library that is loaded later. */
static void librarys(const char *library) {
    char *copy = strdup("copied"), *printed = NULL, *line = NULL;
    size_t room = 0;
    CHECK(asprintf(&printed, "%s and %d", copy, 7) > 0 && in_heap(copy) && in_heap(printed));
    FILE *file = tmpfile();
    CHECK(file && fputs(printed, file) >= 0);
    rewind(file);
    CHECK(getline(&line, &room, file) == 12 && in_heap(line) && !strcmp(line, "copied and 7"));
    fclose(file);
    free(copy);
    free(printed);
    free(line);
    for (int round = 0; round < 3; round++) {
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        CHECK(handle);
        void *(*give)(size_t) = (void *(*)(size_t))dlsym(handle, "give");
        void (*take)(void *) = (void (*)(void *))dlsym(handle, "take");
        void *block = give(5000);
        CHECK(in_heap(block));
        free(block);
        block = malloc(5000);
        take(block);
        CHECK(!dlclose(handle));
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    find_heap();
    sizes();
    refused();
    alignments();
    growth();
    others();
    librarys(argv[1]);
    puts("all is as it should be");
    return 0;
}
