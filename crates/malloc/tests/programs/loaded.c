/* A library that a program loads, and that allocates for it. */
#include <stdlib.h>
#include <string.h>

void *give(size_t size);
void take(void *block);

void *give(size_t size) {
    void *block = malloc(size);
    return block ? memset(block, 1, size) : NULL;
}

void take(void *block) { free(block); }
