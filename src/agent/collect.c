/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker that collects artifacts, when nothing of the program runs any more: regular files below artifacts/ and
 * below the working directory, at most DEPTH directories deep. Of the latter those are nobody's artifacts that are
 * hidden, lie in a hidden directory or one that only tools fill, were put by the host, or are the program's own text as
 * the driver wrote it. A flat collection looks into no folder but artifacts/. No link is followed. Everything that was
 * found and is not returned is told with its reason, up to a bound; beyond it they are counted. Sorted by name, so that
 * a limit always keeps the same ones.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/files.h"
#include "base/fd.h"

#define ENTRIES 4608 /* of which the settings let 4,096 be returned */
#define DIRECTORIES 1024
#define DEPTH 8
#define DROPPED_TOLD 64
#define PATH_BYTES 2304 /* DEPTH components */
#define MODULE_TAIL 96  /* what driver.js adds to a module until Node has read it, at most */

struct entry {
    char *name;        /* below its root */
    bool in_artifacts; /* root is artifacts/, else the working directory */
};

struct collecting {
    int fd; /* to the agent */
    uint16_t exec;
    int workdir, artifacts;
    const struct cordon_exec_limits *limits;
    const struct cordon_agent_put *puts;
    size_t put_count;
    const struct cordon_agent_wish *wish;
    struct entry entries[ENTRIES];
    size_t count, directories;
    uint64_t uncounted; /* entries that there was no room for */
    uint64_t dropped, returned, bytes;
    bool host_left;
};

static struct collecting collecting; /* .bss: only pages that are used exist */

static void send_frame(struct collecting *c, uint8_t type, const void *payload, uint32_t length)
{
    if (!c->host_left && cordon_files_send(c->fd, type, c->exec, payload, length) < 0)
        c->host_left = true;
}

static void send_dropped(struct collecting *c, const char *name, const char *reason, uint64_t size, uint32_t count)
{
    char shown[256];
    size_t n = 0;
    bool bad = cordon_files_bad_name(name, strlen(name)) != NULL;
    for (; name[n] && n < sizeof shown - 1; n++) /* a name that can't be shown is shown as far as it can be */
        shown[n] = bad && (name[n] < 0x20 || name[n] > 0x7e) ? '?' : name[n];
    struct cordon_buf buf = CORDON_BUF_INIT(1024);
    (void)cordon_field_put(&buf, CORDON_FIELD_PATH, shown, (uint32_t)n); /* failures stick in buf.failed */
    (void)cordon_field_put(&buf, CORDON_FIELD_REASON, reason, (uint32_t)strlen(reason));
    (void)cordon_field_put_u64(&buf, CORDON_FIELD_SIZE, size);
    if (count > 1)
        (void)cordon_field_put_u32(&buf, CORDON_FIELD_COUNT, count);
    if (!buf.failed)
        send_frame(c, CORDON_FRAME_ARTIFACT_DROPPED, buf.data, (uint32_t)buf.size);
    cordon_buf_done(&buf);
}

static void drop(struct collecting *c, const char *name, const char *reason, uint64_t size)
{
    if (c->dropped++ < DROPPED_TOLD)
        send_dropped(c, name, reason, size, 1);
}

static void add(struct collecting *c, const char *name, bool in_artifacts)
{
    char *copy = c->count < ENTRIES ? strdup(name) : NULL;
    if (copy)
        c->entries[c->count++] = (struct entry){.name = copy, .in_artifacts = in_artifacts};
    else
        c->uncounted++;
}

static void gather(struct collecting *c, int dir_taken, const char *prefix, int depth, bool in_artifacts);

static void gather_directory(struct collecting *c, int parent, const char *name, const char *path, int depth,
                             bool in_artifacts)
{
    if (depth >= DEPTH || c->directories >= DIRECTORIES) {
        drop(c, path, depth >= DEPTH ? "it lies more than 8 directories deep" : "there are more than 1024 directories",
             0);
        return;
    }
    int dir = cordon_files_open_path(parent, name, O_RDONLY | O_DIRECTORY);
    if (dir < 0)
        drop(c, path, strerror(-dir), 0);
    else
        gather(c, dir, path, depth + 1, in_artifacts);
}

/* Names of the working directory that are nobody's artifacts; the folder artifacts/ is gathered by itself. */
static bool is_left_out(const char *name, bool directory, int depth)
{
    if (*name == '.')
        return true;
    return directory && (strcmp(name, "__pycache__") == 0 || strcmp(name, "node_modules") == 0 ||
                         (depth == 1 && strcmp(name, "artifacts") == 0));
}

/* The suffix is what follows the last dot, in any case of its letters. */
static bool has_suffix(const struct cordon_field *suffixes, const char *name)
{
    const char *dot = strrchr(name, '.');
    size_t size = dot ? strlen(dot + 1) : 0;
    for (size_t at = 0, n; size && at < suffixes->length; at += n + 1) {
        const char *comma = memchr(suffixes->data + at, ',', suffixes->length - at);
        n = comma ? (size_t)(comma - suffixes->data) - at : suffixes->length - at;
        if (n == size && strncasecmp(dot + 1, suffixes->data + at, n) == 0)
            return true;
    }
    return false;
}

/* Flat: what the working directory has besides regular files must not stand before one of the same name. */
static bool is_meant(const struct collecting *c, const char *name, const struct stat *st, bool in_artifacts)
{
    if (c->wish->suffixes.data && !has_suffix(&c->wish->suffixes, name))
        return false;
    return in_artifacts || !c->wish->flat || S_ISREG(st->st_mode);
}

static void gather_one(struct collecting *c, int dir, const char *prefix, const char *name, int depth,
                       bool in_artifacts)
{
    char path[PATH_BYTES];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "/" : "", name);
    if (n < 0 || (size_t)n >= sizeof path || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (!in_artifacts && is_left_out(name, S_ISDIR(st.st_mode), depth))
        return;
    if (!S_ISDIR(st.st_mode) && is_meant(c, name, &st, in_artifacts))
        add(c, path, in_artifacts);
    else if (S_ISDIR(st.st_mode) && !c->wish->flat)
        gather_directory(c, dir, name, path, depth, in_artifacts);
}

static void gather(struct collecting *c, int dir_taken, const char *prefix, int depth, bool in_artifacts)
{
    DIR *dir = fdopendir(dir_taken);
    if (!dir) {
        (void)close(dir_taken);
        return;
    }
    c->directories++;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            gather_one(c, dirfd(dir), prefix, entry->d_name, depth, in_artifacts);
    }
    (void)closedir(dir); /* only read from */
}

/* Of two of one name the first is the one that is returned. */
static int by_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = strcmp(x->name, y->name), artifacts_first = (int)y->in_artifacts - (int)x->in_artifacts;
    return order ? order : collecting.wish->flat ? -artifacts_first : artifacts_first;
}

static bool was_put(const struct collecting *c, const struct stat *st)
{
    for (size_t i = 0; i < c->put_count; i++) {
        const struct cordon_agent_put *put = &c->puts[i];
        if (put->inode == st->st_ino && put->size == (uint64_t)st->st_size && put->ctime_s == st->st_ctim.tv_sec &&
            put->ctime_ns == st->st_ctim.tv_nsec)
            return true;
    }
    return false;
}

static bool starts_with_code(const struct collecting *c, int file)
{
    char data[16384];
    size_t at = 0;
    while (at < c->wish->code.length) {
        size_t want = c->wish->code.length - at < sizeof data ? c->wish->code.length - at : sizeof data;
        ssize_t n = pread(file, data, want, (off_t)at);
        if (n <= 0 || memcmp(data, c->wish->code.data + at, (size_t)n) != 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

/* Is it the program as the driver wrote it? Empty where a driver got no job. */
static bool is_program(const struct collecting *c, const struct entry *entry)
{
    static const char *const names[] = {"main.py", "main.js", "main.mjs"};
    struct stat st;
    size_t i = 0;
    while (i < sizeof names / sizeof *names && strcmp(entry->name, names[i]) != 0)
        i++;
    if (entry->in_artifacts || i == sizeof names / sizeof *names)
        return false;
    cordon_autoclose int file = cordon_files_open_path(c->workdir, entry->name, O_RDONLY);
    if (file < 0 || fstat(file, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    uint64_t more = (uint64_t)st.st_size - c->wish->code.length;
    return more <= (strcmp(entry->name, "main.mjs") == 0 ? MODULE_TAIL : 0) && starts_with_code(c, file);
}

/* Why a file is not returned, judged by what can be known before it is read; NULL: it may be. */
static const char *objection(const struct collecting *c, const struct entry *entry, const struct stat *st,
                             char text[96])
{
    const struct cordon_exec_limits *limits = c->limits;
    const char *bad = cordon_files_bad_name(entry->name, strlen(entry->name));
    if (S_ISLNK(st->st_mode))
        return "it is a symbolic link";
    if (!S_ISREG(st->st_mode))
        return "it is no regular file";
    if (bad)
        return bad;
    if ((uint64_t)st->st_size > limits->artifact_bytes)
        (void)snprintf(text, 96, "it is larger than %" PRIu64 " bytes", limits->artifact_bytes);
    else if (c->returned >= limits->artifacts)
        (void)snprintf(text, 96, "there are more than %u files", limits->artifacts);
    else if (c->bytes + (uint64_t)st->st_size > limits->artifacts_bytes)
        (void)snprintf(text, 96, "all files together are larger than %" PRIu64 " bytes", limits->artifacts_bytes);
    else
        return NULL;
    return text;
}

/* Sends the content; what turns out longer than its size said, or can't be read, is dropped after all. */
static void send_content(struct collecting *c, const struct entry *entry, int file, uint64_t size)
{
    static char data[CORDON_FRAME_DATA_MAX];
    uint64_t sent = 0;
    while (!c->host_left) {
        ssize_t n = read(file, data, sizeof data);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || sent + (uint64_t)n > size) {
            drop(c, entry->name, n < 0 ? strerror(errno) : "it grew while it was read", size);
            return;
        }
        if (n == 0)
            break;
        sent += (uint64_t)n;
        send_frame(c, CORDON_FRAME_ARTIFACT_DATA, data, (uint32_t)n);
    }
    c->bytes += sent;
    c->returned++;
    send_frame(c, CORDON_FRAME_ARTIFACT_CLOSE, NULL, 0);
}

static void send_open(struct collecting *c, const struct entry *entry, uint64_t size)
{
    struct cordon_buf buf = CORDON_BUF_INIT(1024);
    (void)cordon_field_put(&buf, CORDON_FIELD_PATH, entry->name, (uint32_t)strlen(entry->name)); /* sticks in failed */
    (void)cordon_field_put_u64(&buf, CORDON_FIELD_SIZE, size);
    if (buf.failed)
        c->host_left = true; /* without memory there is no going on; the early end says so */
    else
        send_frame(c, CORDON_FRAME_ARTIFACT_OPEN, buf.data, (uint32_t)buf.size);
    cordon_buf_done(&buf);
}

#ifdef CORDON_WEAKEN_ARTIFACT_LINKS
#define LOOK 0
#else
#define LOOK AT_SYMLINK_NOFOLLOW
#endif

static void collect_one(struct collecting *c, const struct entry *entry)
{
    char text[96];
    struct stat st;
    int root = entry->in_artifacts ? c->artifacts : c->workdir;
    if (fstatat(root, entry->name, &st, LOOK) < 0) {
        drop(c, entry->name, strerror(errno), 0);
        return;
    }
    if (was_put(c, &st) || is_program(c, entry))
        return;
    const char *why = objection(c, entry, &st, text);
    if (why) {
        drop(c, entry->name, why, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
        return;
    }
    cordon_autoclose int file = cordon_files_open_path(root, entry->name, O_RDONLY);
    if (file < 0 || fstat(file, &st) < 0) {
        drop(c, entry->name, strerror(file < 0 ? -file : errno), 0);
        return;
    }
    why = objection(c, entry, &st, text); /* of what was really opened */
    if (why) {
        drop(c, entry->name, why, 0);
        return;
    }
    send_open(c, entry, (uint64_t)st.st_size);
    send_content(c, entry, file, (uint64_t)st.st_size);
}

static void collect_all(struct collecting *c)
{
    qsort(c->entries, c->count, sizeof *c->entries, by_name);
    for (size_t i = 0; i < c->count && !c->host_left; i++) {
        const struct entry *entry = &c->entries[i];
        if (i && entry->in_artifacts == c->wish->flat && strcmp(entry->name, entry[-1].name) == 0)
            drop(c, entry->name,
                 c->wish->flat ? "a file in the working directory has the same name"
                               : "a file in artifacts/ has the same name",
                 0);
        else
            collect_one(c, entry);
    }
    uint64_t untold = c->uncounted + (c->dropped > DROPPED_TOLD ? c->dropped - DROPPED_TOLD : 0);
    char name[48];
    (void)snprintf(name, sizeof name, "(%" PRIu64 " more)", untold);
    if (untold)
        send_dropped(c, name, "too many files were dropped to tell of each", 0,
                     untold < UINT32_MAX ? (uint32_t)untold : UINT32_MAX);
    send_frame(c, CORDON_FRAME_COLLECTED, NULL, 0);
}

int cordon_agent_collect_files(int fd, uint16_t exec, const char *workdir, const struct cordon_exec_limits *limits,
                               const struct cordon_agent_put *puts, size_t put_count,
                               const struct cordon_agent_wish *wish)
{
    struct collecting *c = &collecting;
    c->fd = fd;
    c->exec = exec;
    c->limits = limits;
    c->puts = puts;
    c->put_count = put_count;
    c->wish = wish;
    c->workdir = open(workdir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->workdir < 0) {
        drop(c, "(all)", "the working directory can not be read", 0);
        collect_all(c);
        return 0;
    }
    c->artifacts = cordon_files_open_path(c->workdir, "artifacts", O_RDONLY | O_DIRECTORY);
    if (c->artifacts >= 0)
        gather(c, fcntl(c->artifacts, F_DUPFD_CLOEXEC, 0), "", 1, true);
    gather(c, fcntl(c->workdir, F_DUPFD_CLOEXEC, 0), "", 1, false);
    collect_all(c);
    return c->host_left;
}
