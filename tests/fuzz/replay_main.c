/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A main for fuzz targets without libFuzzer: any compiler, part of the unit tests. Each file of the folders in argv
 * goes through the target as it is, then cut short and with single bytes changed, in an order that is the same each
 * time. Inputs are copied to a heap block of exactly their size, so that sanitizers and valgrind see a read beyond the
 * end.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#define INPUT_MAX 65536u
#define CHANGES_EACH 400u
#define SECONDS_MAX 20

static uint64_t runs;
static uint32_t dice = 1;

static uint32_t roll(uint32_t below)
{
    dice ^= dice << 13;
    dice ^= dice >> 17;
    dice ^= dice << 5;
    return below ? dice % below : 0;
}

static void feed(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    (void)LLVMFuzzerTestOneInput(copy, size); /* always 0; what goes wrong aborts */
    free(copy);
    runs++;
}

static void change_and_feed(const uint8_t *data, size_t size)
{
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '\n'};
    uint8_t *changed = malloc(size);
    if (!changed)
        abort();
    for (unsigned i = 0; i < CHANGES_EACH; i++) {
        memcpy(changed, data, size);
        for (uint32_t n = 1 + roll(3); n > 0; n--) {
            uint8_t *at = changed + roll((uint32_t)size);
            *at = roll(2) ? edges[roll(sizeof edges)] : (uint8_t)(*at ^ (1u << roll(8)));
        }
        feed(changed, roll(4) ? size : 1 + roll((uint32_t)size));
    }
    free(changed);
}

static void feed_cut(const uint8_t *data, size_t size)
{
    size_t step = size / 256 + 1;
    for (size_t cut = 0; cut < size; cut += step)
        feed(data, cut);
}

static ssize_t load(const char *path, uint8_t *data)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t size = 0;
    for (;;) {
        ssize_t n = read(fd, data + size, INPUT_MAX - (size_t)size);
        if (n <= 0)
            break;
        size += n;
    }
    (void)close(fd); /* only read */
    return size;
}

static int replay_folder(const char *folder, time_t until)
{
    static uint8_t data[INPUT_MAX];
    char path[4096];
    DIR *dir = opendir(folder);
    if (!dir)
        return errno == ENOENT ? 0 : -errno;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name); /* a cut path fails to open */
        ssize_t size = load(path, data);
        if (size < 0) {
            (void)fprintf(stderr, "%s: %s\n", path, strerror((int)-size));
            (void)closedir(dir);
            return (int)size;
        }
        feed(data, (size_t)size);
        if (size > 0 && time(NULL) < until) {
            feed_cut(data, (size_t)size);
            change_and_feed(data, (size_t)size);
        }
    }
    (void)closedir(dir);
    return 0;
}

int main(int argc, char **argv)
{
    time_t until = time(NULL) + SECONDS_MAX;
    feed((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        if (replay_folder(argv[i], until) < 0)
            return 1;
    }
    (void)printf("%llu inputs\n", (unsigned long long)runs);
    return 0;
}
