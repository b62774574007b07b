/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process in which a plugin lives. It loads the library, checks the interface before it calls anything of it, says
 * hello with the capabilities, and then does what comes on its first socket: each run and each probe on a socket and a
 * thread of its own.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "plugin/plugin.h"
#include "plugin/wire.h"

#define SOCKET 3
#define REQUEST_MAX (1u << 30)
#define STACK_BYTES (1u << 20)

static const struct cordon_backend *backend;

struct task {
    int fd;
    bool probe;
};

static int send_buf(int fd, struct cordon_buf *buf)
{
    int r = buf->failed ? -ENOMEM : 0;
    for (size_t at = 0; r == 0 && at < buf->size;) {
        ssize_t n = send(fd, buf->data + at, buf->size - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            r = -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    cordon_buf_done(buf);
    return r;
}

static int send_error(int fd, const struct cordon_error *err)
{
    struct cordon_buf buf = CORDON_BUF_INIT(65536);
    struct cordon_error known = *err;
    if (known.kind == CORDON_ERROR_NONE || known.kind >= CORDON_ERROR__COUNT)
        (void)cordon_fail(&known, -EIO, CORDON_ERROR_INFRASTRUCTURE,
                          "the plugin failed without saying why"); /* fills it */
    cordon_wire_put_error(&buf, &known);
    return send_buf(fd, &buf);
}

static int send_word(int fd, enum cordon_wire_type word)
{
    struct cordon_buf buf = CORDON_BUF_INIT(64);
    cordon_wire_end(&buf, cordon_wire_begin(&buf, word));
    return send_buf(fd, &buf);
}

/* The whole request; the gateway says nothing more after it. */
static int receive(int fd, struct cordon_buf *in, struct cordon_wire_frame *frame)
{
    size_t used;
    int r;
    while ((r = cordon_wire_next(in, REQUEST_MAX, frame, &used)) == 0) {
        char *room = cordon_buf_reserve(in, 65536);
        ssize_t n = room ? recv(fd, room, 65536, 0) : -1;
        if (n <= 0)
            return n < 0 && errno == EINTR ? 0 : -EPIPE;
        in->size += (size_t)n;
    }
    return r < 0 ? r : frame->type == CORDON_WIRE_REQUEST ? 0 : -EBADMSG;
}

static int send_event(int fd, const struct cordon_event *event)
{
    struct cordon_buf buf = CORDON_BUF_INIT(event->data.size + CORDON_WIRE_SPARE);
    cordon_wire_put_event(&buf, event);
    return send_buf(fd, &buf);
}

static void do_run(int fd)
{
    struct cordon_buf in = CORDON_BUF_INIT(REQUEST_MAX + CORDON_WIRE_HEADER);
    struct cordon_wire_frame frame;
    struct cordon_wire_request request;
    struct cordon_error err = {0};
    struct cordon_run *run = NULL;
    struct cordon_event event;
    if (receive(fd, &in, &frame) < 0 || cordon_wire_get_request(&frame, &request) < 0) {
        cordon_buf_done(&in);
        return;
    }
    request.request.cancel_fd = fd; /* the gateway shuts its side down */
    int r = send_word(fd, CORDON_WIRE_TAKEN);
    if (r == 0) {
        r = backend->run_open(&request.request, &run, &err);
        r = r < 0 ? send_error(fd, &err) : send_word(fd, CORDON_WIRE_OPENED);
    }
    while (run && r == 0 && backend->run_next(run, &event) > 0) {
        r = send_event(fd, &event);
        if (event.type == CORDON_EVENT_OUTCOME)
            break;
    }
    if (run)
        backend->run_close(run);
    cordon_wire_request_done(&request);
    cordon_buf_done(&in);
}

static void do_probe(int fd)
{
    struct cordon_error err = {0};
    int r = backend->probe ? backend->probe(&err) : 0;
    (void)(r < 0 ? send_error(fd, &err) : send_word(fd, CORDON_WIRE_OPENED)); /* nobody else to tell */
}

static void *work(void *context)
{
    struct task *task = context;
    if (task->probe)
        do_probe(task->fd);
    else
        do_run(task->fd);
    cordon_close(&task->fd);
    free(task);
    return NULL;
}

/* Without a word the gateway would take the end for this process's. */
static void refuse_task(int fd)
{
    struct cordon_error err = {0};
    (void)cordon_fail(&err, -EAGAIN, CORDON_ERROR_UNAVAILABLE,
                      "the plugin's process can not start another thread (memory, or limits of its user)"); /* fills */
    (void)send_error(fd, &err); /* nobody else to tell */
    cordon_close(&fd);
}

static void start_task(int fd, bool probe)
{
    pthread_attr_t attributes;
    pthread_t thread;
    struct task *task = malloc(sizeof *task);
    if (!task || pthread_attr_init(&attributes) != 0) {
        free(task);
        refuse_task(fd);
        return;
    }
    *task = (struct task){fd, probe};
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED); /* can't fail with these */
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (pthread_create(&thread, &attributes, work, task) != 0) {
        free(task);
        refuse_task(fd);
    }
    (void)pthread_attr_destroy(&attributes);
}

/* What the library gave, seen with suspicion. */
static int check_backend(const char *name, const struct cordon_backend *given, struct cordon_error *err)
{
    if (!given)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "its factory gave nothing");
    if (given->abi_version != CORDON_ABI_VERSION)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "it speaks version %u of the interface, this program %u",
                           given->abi_version, CORDON_ABI_VERSION);
    if (given->struct_size < offsetof(struct cordon_backend, reset_after_fork))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "its struct cordon_backend is too short");
    if (!given->name || strcasecmp(given->name, name) != 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "it calls itself \"%.60s\", its manifest \"%s\"",
                           given->name ? given->name : "", name);
    if (!given->capabilities || !given->run_open || !given->run_next || !given->run_close)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "it lacks capabilities, run_open, run_next or run_close");
    return 0;
}

static int load(const char *name, const char *library, struct cordon_error *err)
{
    union {
        void *symbol;
        const struct cordon_backend *(*call)(void);
    } factory;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_INVALID, "%.400s", dlerror());
    factory.symbol = dlsym(handle, CORDON_PLUGIN_FACTORY);
    if (!factory.symbol)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_INVALID, "it exports no " CORDON_PLUGIN_FACTORY);
    const struct cordon_backend *given = factory.call();
    int r = check_backend(name, given, err);
    backend = r < 0 ? NULL : given;
    return r;
}

static int say_hello(void)
{
    struct cordon_buf buf = CORDON_BUF_INIT(65536);
    struct cordon_capabilities known = {0};
    const struct cordon_capabilities *own = backend->capabilities();
    if (own)
        memcpy(&known, own, own->struct_size < sizeof known ? own->struct_size : sizeof known);
    cordon_wire_put_hello(&buf, &known);
    return send_buf(SOCKET, &buf);
}

int cordon_plugin_host_main(int argc, char **argv)
{
    struct cordon_error err = {0};
    if (argc != 3)
        return 125;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || fcntl(SOCKET, F_SETFD, FD_CLOEXEC) < 0)
        return 125; /* programs that a plugin starts get no socket of ours, and do not outlive us on it */
    (void)signal(SIGPIPE, SIG_IGN); /* can't fail */
    if (load(argv[1], argv[2], &err) < 0) {
        (void)send_error(SOCKET, &err); /* nobody else to tell */
        return 1;
    }
    if (say_hello() < 0)
        return 1;
    for (;;) {
        char call;
        int fd = -1;
        size_t count = 1;
        ssize_t n = cordon_recv_fds(SOCKET, &call, 1, &fd, &count, 0);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            break;
        if (count == 1)
            start_task(fd, call == CORDON_PLUGIN_PROBE);
    }
    if (backend->shutdown)
        backend->shutdown();
    return 0;
}
