/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fork pays for each page: a little for copying and later dropping its table entry, much for the first write to it.
 * To a fork of an interpreter that is most of its cost, and not how much is written counts, but on how many pages. So
 * the zygote's memory is laid out in three parts:
 *
 *   hot    the driver and what it uses, loaded first. Every run writes to it (Python counts references). Before it is
 *          loaded all holes that the start of the interpreter left are filled, so that it lies side by side.
 *   cold   modules that a program may import. On huge pages: one table entry stands for 512.
 *   fresh  what a fork allocates. Loading modules leaves thousands of holes, and allocators fill holes before they take
 *          a fresh page: a few hundred small objects would dirty as many pages. So they are filled again.
 *
 * The program's text is copied to huge pages too: a fork finds it mapped, instead of faulting in piece after piece.
 *
 * The fillers are never freed; they are small, what was free. Each step may fail (no huge pages, another libc): then
 * forks are slower and nothing else. Measured: docs/protocol/driver.md.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include "agent/python/pack.h"

#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define HUGE_BYTES ((uintptr_t)2 << 20)
#define SPACE_BYTES ((uintptr_t)256 << 20) /* of addresses, for Python's arenas */
#define CLASS_STEP 16u                     /* of Python's allocator for small objects */
#define CLASS_MOST 512u
#define FILLERS_MOST 200000u   /* of one size; far more than there are holes */
#define CHUNK_MOST (96u << 10) /* below the size from which malloc asks the kernel */
#define CHUNK_LEAST 528u       /* smaller ones are asked of Python's allocator, but by C libraries too: */
#define CHUNK_SMALLEST 24u     /* malloc's own smallest; its sizes are CLASS_STEP apart */

/* PyObjectArenaAllocator: public, but not of the limited API; the same since Python 3.4. */
struct arena_allocator {
    void *ctx;
    void *(*alloc)(void *ctx, size_t size);
    void (*free)(void *ctx, void *arena, size_t size);
};

static uintptr_t space, space_used;     /* arenas come from here, upwards */
static uintptr_t cold_space, cold_heap; /* where the cold part of each begins; 0: not begun */

static uintptr_t huge_up(uintptr_t at)
{
    return (at + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
}

/* --- Python's arenas --- */

static void *arena_alloc(void *ctx, size_t size)
{
    (void)ctx;
    void *arena = (void *)space_used;
    if (size <= space + SPACE_BYTES - space_used && mprotect(arena, size, PROT_READ | PROT_WRITE) == 0) {
        space_used += size;
        return arena;
    }
    arena = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return arena == MAP_FAILED ? NULL : arena;
}

static void arena_free(void *ctx, void *arena, size_t size)
{
    (void)ctx;
    if ((uintptr_t)arena - space < SPACE_BYTES)
        (void)madvise(arena, size, MADV_DONTNEED); /* its addresses are not used again: there are enough */
    else
        (void)munmap(arena, size); /* also right for arenas of the allocator before this one */
}

static void open_space(void)
{
    struct arena_allocator allocator = {NULL, arena_alloc, arena_free};
    void (*set)(struct arena_allocator *);
    void *found = dlsym(RTLD_DEFAULT, "PyObject_SetArenaAllocator");
    char *base = mmap(NULL, SPACE_BYTES + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!found || base == MAP_FAILED)
        return;
    memcpy(&set, &found, sizeof set);
    space = space_used = huge_up((uintptr_t)base);
    (void)madvise((void *)space, SPACE_BYTES, MADV_NOHUGEPAGE);
    set(&allocator);
}

/* --- holes --- */

/* Takes all holes of one size: until a block comes from the arena that begins there, which is new and has none. */
static void fill_class(size_t size, uintptr_t arena)
{
    for (unsigned i = 0; i < FILLERS_MOST; i++) {
        void *block = PyObject_Malloc(size);
        if (!block)
            return;
        if ((uintptr_t)block - arena < space_used - arena) {
            PyObject_Free(block);
            return;
        }
    }
}

/* Takes all free chunks of malloc's heap that lie below. */
static void fill_chunks(size_t size, uintptr_t below)
{
    void *chunk;
    while ((chunk = malloc(size)) && (uintptr_t)chunk < below)
        continue;
    free(chunk);
}

static void fill_heap(uintptr_t below)
{
    size_t size = CHUNK_MOST;
    for (; size >= CHUNK_LEAST; size -= size / 4)
        fill_chunks(size, below);
    for (size = CHUNK_LEAST - CLASS_STEP / 2; size >= CHUNK_SMALLEST; size -= CLASS_STEP)
        fill_chunks(size, below);
}

/* Gives back the pages between two addresses that were in use: nothing on them is ever read again. */
static void drop_pages(uintptr_t begin, uintptr_t end)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    begin = (begin + page - 1) & ~(page - 1);
    end &= ~(page - 1);
    if (end > begin)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* Takes what is left of the arenas, so that a new one is begun. What lies between neighbouring fillers is theirs or the
 * head of a pool that is full of them, and never looked at again. */
static void fill_arenas(void)
{
    uintptr_t arena = space_used, first = 0, last = 0;
    for (unsigned i = 0; i < FILLERS_MOST && space_used == arena; i++) {
        uintptr_t block = (uintptr_t)PyObject_Malloc(CLASS_MOST);
        if (!block || block - last > 2 * CLASS_MOST) {
            drop_pages(first, last);
            first = block;
        }
        last = block;
    }
    for (size_t size = CLASS_STEP; size <= CLASS_MOST; size += CLASS_STEP)
        fill_class(size, arena);
}

/* Moves the end of the heap to a huge page's: what malloc cuts from its top next begins there. */
static uintptr_t align_heap(void)
{
    uintptr_t end = (uintptr_t)sbrk(0), aligned = huge_up(end);
    return sbrk((intptr_t)(aligned - end)) == (void *)-1 ? 0 : aligned;
}

/* --- text --- */

struct text {
    uintptr_t begin, end; /* of the main program's segments that are never written to, without gaps */
};

static int find_text(struct dl_phdr_info *info, size_t size, void *data)
{
    struct text *text = data;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD)
            continue;
        uintptr_t begin = (info->dlpi_addr + segment->p_vaddr) & ~(page - 1);
        if ((segment->p_flags & PF_W) || (text->end && begin != text->end))
            break;
        if (!text->end)
            text->begin = begin;
        text->end = (info->dlpi_addr + segment->p_vaddr + segment->p_memsz + page - 1) & ~(page - 1);
    }
    return 1; /* the main program comes first */
}

static void copy_text(void)
{
    struct text text = {0, 0};
    (void)dl_iterate_phdr(find_text, &text);
    uintptr_t begin = huge_up(text.begin), size = text.end > begin ? (text.end - begin) & ~(HUGE_BYTES - 1) : 0;
    if (!size)
        return;
    void *base = mmap(NULL, size + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return;
    void *copy = (void *)huge_up((uintptr_t)base);
    (void)madvise(copy, size, MADV_HUGEPAGE);
    memcpy(copy, (const void *)begin, size);
    (void)madvise(copy, size, MADV_COLLAPSE);
    if (mprotect(copy, size, PROT_READ | PROT_EXEC) < 0 ||
        mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, begin) == MAP_FAILED)
        (void)munmap(base, size + HUGE_BYTES); /* as it was */
}

/* --- the three parts --- */

void cordon_pack_begin(void)
{
    fill_heap((uintptr_t)sbrk(0) - mallinfo2().keepcost);
    open_space();
    if (space)
        fill_arenas();
}

void cordon_pack_cold(void)
{
    cold_heap = align_heap();
    if (!space)
        return;
    cold_space = space_used = huge_up(space_used);
    (void)madvise((void *)cold_space, space + SPACE_BYTES - cold_space, MADV_HUGEPAGE);
    fill_arenas();
}

void cordon_pack_end(void)
{
    uintptr_t heap_end = align_heap();
    if (cold_heap && heap_end > cold_heap) {
        fill_heap(heap_end);
        (void)madvise((void *)cold_heap, heap_end - cold_heap, MADV_COLLAPSE);
    }
    if (cold_space) {
        uintptr_t end = huge_up(space_used);
        (void)mprotect((void *)space_used, end - space_used, PROT_READ | PROT_WRITE);
        (void)madvise((void *)end, space + SPACE_BYTES - end, MADV_NOHUGEPAGE);
        space_used = end;
        fill_arenas();
        (void)madvise((void *)cold_space, end - cold_space, MADV_COLLAPSE);
    }
    copy_text();
}
