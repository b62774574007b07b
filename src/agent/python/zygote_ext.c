/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python module `_cordon_zygote`: serve() answers the warden's jobs (agent/zygote_wire.h) until it returns in a
 * fork that is an interpreter inside a guest, with nothing left of the zygote but its memory.
 *
 * The new process holds capabilities in the guest's user namespace from its birth until cordon_code_become, and runs
 * nothing but this file meanwhile. It puts its descriptors where agent/launch.h says, closes all others, and becomes
 * the code. Only then Python runs again in it. A step that fails there is told on its standard error; the warden sees
 * the ready pipe close without a byte in it, and the agent status 125.
 *
 * Built against the limited API of Python 3.9, so that one file serves every later Python.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/launch.h"
#include "agent/python/join.h"
#include "agent/python/pack.h"
#include "agent/python/seed.h"
#include "agent/zygote_wire.h"
#include "base/fd.h"
#include "isolate/code.h"
#include "proto/frame.h"

#define FILTER_FD 5 /* in the child, until the filter is loaded */
/* What a message brings is above, so that placing it overwrites nothing that is still needed. */
#define RESERVED_FDS 8
#define CHILD_FAILED 125

struct work {
    struct cordon_zygote_job job;
    int fds[CORDON_FDS_MAX];
    size_t nfds;
};

static int reply(int control, uint32_t seq, int status, const char *stage)
{
    struct cordon_zygote_reply reply = {.version = CORDON_ZYGOTE_VERSION, .seq = seq, .status = status};
    if (status < 0)
        (void)snprintf(reply.stage, sizeof reply.stage, "%s", stage); /* a stage that is cut is still a name */
    ssize_t n = cordon_send_fds(control, &reply, sizeof reply, NULL, 0, 0);
    return n < 0 ? (int)n : 0;
}

static const char *check(const struct work *work, ssize_t size)
{
    if (size != (ssize_t)sizeof work->job)
        return "job: size";
    if (work->job.version != CORDON_ZYGOTE_VERSION)
        return "job: version";
    if (work->job.cgroups > CORDON_AGENT_CGROUPS_MAX || work->nfds != CORDON_ZYGOTE_FIXED + work->job.cgroups)
        return "job: descriptors";
    return NULL;
}

static void close_all(struct work *work)
{
    for (size_t i = 0; i < work->nfds; i++)
        cordon_close(&work->fds[i]);
    work->nfds = 0;
}

/* Everything below runs in the new process. */

__attribute__((noreturn)) static void child_die(const char *stage, int status)
{
    char text[160];
    int n = snprintf(text, sizeof text, "cordon: the interpreter could not enter its guest: %s: %s\n", stage,
                     strerror(-status));
    if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(CHILD_FAILED + 1); /* nobody listens; any status but 0 says that it failed */
    _exit(CHILD_FAILED);
}

static void child_place_fds(const int *fds)
{
    static const struct {
        enum cordon_zygote_fd from;
        int to, flags;
    } places[] = {
        {CORDON_ZYGOTE_STDIN, STDIN_FILENO, 0},
        {CORDON_ZYGOTE_STDOUT, STDOUT_FILENO, 0},
        {CORDON_ZYGOTE_STDERR, STDERR_FILENO, 0},
        {CORDON_ZYGOTE_DRIVER, CORDON_DRIVER_FD, O_CLOEXEC},
        {CORDON_ZYGOTE_READY, CORDON_DRIVER_READY_FD, O_CLOEXEC},
        {CORDON_ZYGOTE_FILTER, FILTER_FD, O_CLOEXEC},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (dup3(fds[places[i].from], places[i].to, places[i].flags) < 0)
            child_die("descriptors", -errno);
    if (close_range(FILTER_FD + 1, ~0u, 0) < 0)
        child_die("close descriptors", -errno);
}

static void child_send_listener(int listener)
{
    char header[CORDON_FRAME_HEADER];
    cordon_frame_header(header, CORDON_DRIVER_LISTENER, 0, 0);
    ssize_t n = cordon_send_fds(CORDON_DRIVER_FD, header, sizeof header, &listener, 1, 0);
    if (n < 0)
        child_die("send the listener", (int)n);
    (void)close(listener); /* the agent has it now */
}

/* What the interpreter set when it started, and becoming the code resets. */
static const int interpreter_signals[] = {SIGINT, SIGPIPE, SIGXFSZ};
#define SIGNALS (sizeof interpreter_signals / sizeof *interpreter_signals)

static void child_become(const struct work *work, const char *workdir)
{
    struct cordon_code_profile profile = {.uid = work->job.code_uid,
                                          .gid = work->job.code_gid,
                                          .open_files = work->job.open_files,
                                          .processes = work->job.processes,
                                          .filter_fd = FILTER_FD,
                                          .workdir = workdir};
    struct sigaction kept[SIGNALS];
    const char *stage = "become the code";
    int listener = -1;
    for (size_t i = 0; i < SIGNALS; i++)
        (void)sigaction(interpreter_signals[i], NULL, &kept[i]); /* can not fail for these */
    child_place_fds(work->fds);
    int r = cordon_code_become(&profile, &listener, &stage);
    if (r < 0)
        child_die(stage, r);
    (void)close(FILTER_FD); /* only read from */
    if (listener >= 0)
        child_send_listener(listener);
    for (size_t i = 0; i < SIGNALS; i++)
        (void)sigaction(interpreter_signals[i], &kept[i], NULL);
}

/* And below in the zygote. */

/* 1: this is a new interpreter; 0: the job was answered; negative errno: the warden is gone. */
static int job_do(int control, struct work *work, const char *workdir)
{
    struct cordon_join join = {.fds = work->fds, .cgroups = work->job.cgroups};
    PyOS_BeforeFork();
    int r = cordon_join_fork(&join);
    if (r == 1) {
        child_become(work, workdir);
        PyOS_AfterFork_Child();
        return 1;
    }
    PyOS_AfterFork_Parent();
    close_all(work);
    return reply(control, work->job.seq, r, join.stage);
}

static int job_next(int control, const char *workdir)
{
    struct work work;
    work.nfds = CORDON_FDS_MAX;
    ssize_t size = cordon_recv_fds(control, &work.job, sizeof work.job, work.fds, &work.nfds, 0);
    if (size == 0)
        return -EPIPE;
    if (size < 0 && size != -EMSGSIZE)
        return (int)size;
    const char *wrong = check(&work, size);
    if (!wrong)
        return job_do(control, &work, workdir);
    close_all(&work);
    return reply(control, size == (ssize_t)sizeof work.job ? work.job.seq : 0, -EPROTO, wrong);
}

static int prepare(int control)
{
    sigset_t all;
    (void)sigfillset(&all);
    if (sigprocmask(SIG_SETMASK, &all, NULL) < 0 || signal(SIGCHLD, SIG_IGN) == SIG_ERR)
        return -errno;
    /* An inner clone that is killed with its guest may lose its outer one first. It then comes to us, who reap by
     * ignoring: else to whoever is above the daemon, and as long as that leaves the zombie, the guest can not end. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return -errno;
    int fd;
    do
        fd = fcntl(control, F_DUPFD_CLOEXEC, 0); /* they stay open: the numbers are taken */
    while (fd >= 0 && fd < RESERVED_FDS);
    if (fd < 0)
        return -errno;
    (void)close(fd);
    return cordon_join_open();
}

static PyObject *zygote_serve(PyObject *self, PyObject *args)
{
    int control;
    const char *workdir;
    if (!PyArg_ParseTuple(args, "is:serve", &control, &workdir))
        return NULL;
    int r = prepare(control);
    if (r == 0)
        r = reply(control, 0, 0, NULL);
    while (r == 0)
        r = job_next(control, workdir);
    if (r > 0 || r == -EPIPE || r == -ECONNRESET)
        return PyBool_FromLong(r > 0);
    errno = -r;
    return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *zygote_pack(PyObject *self, PyObject *args)
{
    static void (*const steps[])(void) = {cordon_pack_begin, cordon_pack_cold, cordon_pack_end};
    unsigned step;
    if (!PyArg_ParseTuple(args, "I:pack", &step))
        return NULL;
    if (step >= sizeof steps / sizeof *steps) {
        PyErr_SetString(PyExc_ValueError, "no such step");
        return NULL;
    }
    steps[step]();
    return Py_BuildValue("");
}

static PyObject *zygote_keep_generator(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    const char *key;
    Py_ssize_t size;
    int position;
    if (!PyArg_ParseTuple(args, "Oy#i:keep_generator", &capsule, &key, &size, &position))
        return NULL;
    void *generator = PyCapsule_GetPointer(capsule, "BitGenerator");
    if (!generator)
        return NULL;
    return PyBool_FromLong(cordon_seed_keep(generator, key, (size_t)size, position));
}

static PyObject *zygote_renew_generator(PyObject *self, PyObject *args)
{
    if (cordon_seed_renew())
        return Py_BuildValue("");
    PyErr_SetString(PyExc_OSError, "no new state for the kept generator");
    return NULL;
}

static PyMethodDef methods[] = {
    {"keep_generator", zygote_keep_generator, METH_VARARGS,
     "keep_generator(capsule, key, position): numpy's, for renew_generator; False where its layout is another one."},
    {"renew_generator", zygote_renew_generator, METH_NOARGS, "renew_generator(): gives what was kept a new state."},
    {"pack", zygote_pack, METH_VARARGS, "pack(step): lays out memory; 0 begin, 1 cold, 2 end (see pack.h)."},
    {"serve", zygote_serve, METH_VARARGS,
     "serve(control_fd, workdir): True in a new interpreter inside a guest, False when the warden is gone."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_cordon_zygote", .m_size = -1,
                                    .m_methods = methods};

PyMODINIT_FUNC PyInit__cordon_zygote(void);
PyMODINIT_FUNC PyInit__cordon_zygote(void)
{
    PyObject *made = PyModule_Create(&module);
#ifdef CORDON_WEAKEN_RESEED
    const int reseed = 0;
#else
    const int reseed = 1;
#endif
    if (made && PyModule_AddIntConstant(made, "RESEED", reseed) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
