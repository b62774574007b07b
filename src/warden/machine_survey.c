/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What machines need of this host, looked at by a child: accelerator and network device (by root's privileges), then,
 * without privilege, QEMU and the image, whose manifest it reads and whose files it compares with their digests. Their
 * open descriptors come back with one fixed-size struct, so that what was compared is what runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

#include "base/fd.h"
#include "base/log.h"
#include "core/value.h"
#include "isolate/nic.h"
#include "vmm/accel.h"
#include "warden/machine.h"

#define MANIFEST "manifest.json"
#define MANIFEST_MAX (1u << 20)
#define FORMAT 1
#define SURVEY_US 60000000u
#define FILES 3
#define TSC_NS 20000000
#define NOT_MEASURED (-ENODATA) /* the network, where machines can't run anyway */

/* --- the child --- */

struct work {
    struct cordon_machine_survey *ret;
    struct cordon_value manifest;
    int folder, files[FILES];
};

static int broken(struct work *work, int status, const char *fmt, ...) CORDON_PRINTF(3, 4);
static int broken(struct work *work, int status, const char *fmt, ...)
{
    va_list ap;
    work->ret->status = status;
    va_start(ap, fmt);
    (void)vsnprintf(work->ret->why, sizeof work->ret->why, fmt, ap); /* cut at its size */
    va_end(ap);
    return status;
}

static int find_accel(struct work *work, const struct cordon_warden_config *config)
{
    struct cordon_accel accel;
    struct cordon_error err;
    if (config->force_emulation && config->allow_emulation)
        return 0;
    if (config->force_emulation)
        return broken(work, -ENODEV,
                      "CORDON_VM_FORCE_EMULATION is true, and software emulation takes "
                      "CORDON_ALLOW_SOFTWARE_EMULATION=true");
    if (cordon_accel_probe(&accel, &err) < 0)
        return broken(work, err.code, "%.400s", err.message);
    work->ret->hardware = accel.usable;
    if (accel.usable || config->allow_emulation)
        return 0;
    return broken(work, -ENODEV,
                  "there is no hardware virtualization: %.200s%s%.120s (software emulation takes "
                  "CORDON_ALLOW_SOFTWARE_EMULATION=true)",
                  accel.reason, accel.fix[0] ? "; " : "", accel.fix);
}

/* Also a host without it runs machines: those without network. */
static void find_network(struct work *work)
{
    const char *stage;
    work->ret->network = cordon_nic_probe(CORDON_NIC_PROBE_MS, &stage);
    (void)snprintf(work->ret->network_stage, sizeof work->ret->network_stage, "%s", stage); /* fits */
}

static int find_qemu(struct work *work, const char *path)
{
    if (access(path, X_OK) == 0)
        return 0;
    return broken(work, -errno,
                  "QEMU can't be executed at %.200s (CORDON_VM_QEMU): %s; on Debian: apt-get install "
                  "--no-install-recommends qemu-system-x86",
                  path, strerror(errno));
}

static int read_manifest(struct work *work, char **text)
{
    struct stat st;
    cordon_autoclose int fd = openat(work->folder, MANIFEST, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return broken(work, -errno, "the image has no " MANIFEST " that can be read: %s", strerror(errno));
    if (st.st_size <= 0 || st.st_size > (off_t)MANIFEST_MAX)
        return broken(work, -EFBIG, "the image's " MANIFEST " has %lld bytes", (long long)st.st_size);
    size_t size = (size_t)st.st_size;
    *text = malloc(size);
    int r = *text ? cordon_read_full(fd, *text, size) : -ENOMEM;
    if (r == 0)
        r = cordon_value_parse(*text, size, &work->manifest, NULL);
    return r < 0 ? broken(work, r, "the image's " MANIFEST " is no JSON: make the image anew (cordon image build)") : 0;
}

static int digest_of(int fd, char hex[65])
{
    static unsigned char piece[65536];
    unsigned char digest[32];
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    ssize_t n = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 ? 1 : -1;
    for (off_t at = 0; n > 0; at += n) {
        n = pread(fd, piece, sizeof piece, at);
        if (n > 0 && EVP_DigestUpdate(context, piece, (size_t)n) != 1)
            n = -1;
    }
    if (n == 0 && EVP_DigestFinal_ex(context, digest, NULL) != 1)
        n = -1;
    EVP_MD_CTX_free(context);
    for (size_t i = 0; n == 0 && i < sizeof digest; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]); /* fits */
    return n < 0 ? -EIO : 0;
}

static int open_file(struct work *work, size_t i, const char *part)
{
    struct cordon_value row;
    char name[64], wanted[65], found[65];
    if (!cordon_value_member(&work->manifest, part, &row) || !cordon_value_text(&row, "file", name, sizeof name) ||
        !cordon_value_text(&row, "sha256", wanted, sizeof wanted) || strchr(name, '/') || name[0] == '.')
        return broken(work, -EBADMSG, "the image's " MANIFEST " names no %s", part);
    work->files[i] = openat(work->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (work->files[i] < 0)
        return broken(work, -errno, "the image's %s can't be read: %s", name, strerror(errno));
    if (digest_of(work->files[i], found) < 0 || strcmp(found, wanted) != 0)
        return broken(work, -EBADMSG,
                      "the image's %s is not what its " MANIFEST " says (sha256): make the image anew "
                      "(cordon image build)",
                      name);
    return 0;
}

/* The kernel's own words go to a command line: those of its parameters, and nothing else. */
static bool is_word_list(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_=.,- ";
    return text[strspn(text, allowed)] == '\0';
}

/* Under emulation a kernel that is found by ACPI has no other way to know how fast its clock ticks; by the MHz, since
 * the last digits are noise. */
static void add_clock(struct cordon_machine_survey *ret)
{
#ifdef __x86_64__
    struct timespec from, to;
    (void)clock_gettime(CLOCK_MONOTONIC_RAW, &from); /* can't fail */
    uint64_t ticks = __rdtsc(), ns;
    do {
        (void)clock_gettime(CLOCK_MONOTONIC_RAW, &to);
        ns = (uint64_t)(to.tv_sec - from.tv_sec) * 1000000000u + (uint64_t)to.tv_nsec - (uint64_t)from.tv_nsec;
    } while (ns < TSC_NS);
    ticks = __rdtsc() - ticks;
    uint64_t mhz = (ticks * 1000 + ns / 2) / ns;
    size_t have = strlen(ret->append);
    (void)snprintf(ret->append + have, sizeof ret->append - have, " tsc_early_khz=%" PRIu64, mhz * 1000);
#else
    (void)ret;
#endif
}

static int read_boot(struct work *work)
{
    struct cordon_machine_survey *ret = work->ret;
    struct cordon_value boot, acpi;
    char append[96] = "";
    ret->acpi = cordon_value_member(&work->manifest, "boot", &boot) && cordon_value_member(&boot, "acpi", &acpi) &&
                cordon_value_true(&acpi);
    if (boot.kind == CORDON_VALUE_OBJECT)
        (void)cordon_value_text(&boot, "append", append, sizeof append);
    if (!is_word_list(append))
        return broken(work, -EBADMSG, "the image's " MANIFEST " has a kernel command line with odd characters");
    (void)snprintf(ret->append, sizeof ret->append, "%s", append);
    if (ret->acpi && !ret->hardware)
        add_clock(ret);
    return 0;
}

static void read_languages(struct work *work)
{
    static const struct {
        const char *name;
        uint32_t kinds;
    } languages[] = {
        {"python", 1u << CORDON_GUEST_PYTHON | 1u << CORDON_GUEST_PYTHON_DATA | 1u << CORDON_GUEST_PYTHON_FRESH},
        {"javascript", 1u << CORDON_GUEST_JAVASCRIPT},
        {"bash", 1u << CORDON_GUEST_BASH}};
    struct cordon_value list, item, key;
    work->ret->languages = 1u << CORDON_GUEST_KEPT;
    if (!cordon_value_member(&work->manifest, "languages", &list) || list.kind != CORDON_VALUE_ARRAY)
        return;
    struct cordon_value_walk walk = cordon_value_walk(&list);
    while (cordon_value_next(&walk, &key, &item))
        for (size_t i = 0; i < sizeof languages / sizeof *languages; i++)
            if (cordon_value_equals(&item, languages[i].name))
                work->ret->languages |= languages[i].kinds;
}

static int read_image(struct work *work)
{
    static const char *const parts[FILES] = {"kernel", "initrd", "root"};
    struct cordon_value format;
    char *text = NULL; /* the manifest is slices of it; this process ends soon */
    int64_t number = 0;
    int r = read_manifest(work, &text);
    if (r < 0)
        return r;
    if (!cordon_value_member(&work->manifest, "format", &format) || !cordon_value_integer(&format, &number) ||
        number != FORMAT)
        return broken(work, -EBADMSG, "the image is of another version: make it anew (cordon image build)");
    for (size_t i = 0; r == 0 && i < FILES; i++)
        r = open_file(work, i, parts[i]);
    if (r == 0)
        r = read_boot(work);
    if (r == 0)
        read_languages(work);
    return r;
}

_Noreturn void cordon_machine_survey_main(const struct cordon_warden *warden, int folder, int sock)
{
    static struct cordon_machine_survey found = {.network = NOT_MEASURED};
    struct work work = {.ret = &found, .folder = folder, .files = {-1, -1, -1}};
    int r = find_accel(&work, &warden->config);
    if (r == 0)
        find_network(&work);
    if (r == 0 && (r = cordon_process_drop(&warden->config)) < 0)
        r = broken(&work, r, "the survey of machines can't drop its privileges: %s", strerror(-r));
    if (r == 0)
        r = find_qemu(&work, warden->config.qemu);
    if (r == 0)
        r = read_image(&work);
    (void)cordon_send_fds(sock, &found, sizeof found, work.files, r < 0 ? 0 : FILES, 0); /* its end says as much */
    _exit(r < 0);
}

/* --- the warden --- */

static void answer_askers(struct cordon_machines *machines)
{
    for (size_t i = 0; i < machines->asker_count; i++) {
        cordon_peer_refuse(machines->askers[i], machines->found.status, machines->found.why);
        cordon_close(&machines->askers[i]);
    }
    machines->asker_count = 0;
}

/* What was not measured is not declared. */
static void set_network(struct cordon_machines *machines, enum cordon_log_level level)
{
    const struct cordon_machine_survey *found = &machines->found;
    machines->warden->abilities &= ~(uint32_t)CORDON_ABLE_MACHINE_NETWORK;
    if (found->network == 0)
        machines->warden->abilities |= CORDON_ABLE_MACHINE_NETWORK;
    else if (found->network != NOT_MEASURED)
        cordon_log(machines->warden->config.oneshot ? CORDON_LOG_DEBUG : level, "machines can have no network device",
                   "tried", found->network_stage, "error", strerror(-found->network), NULL);
}

static void settle(struct cordon_machines *machines)
{
    const struct cordon_machine_survey *found = &machines->found;
    machines->surveys++;
    /* At its start nobody has asked for one yet, and most hosts have no image; who asks is told in the answer. */
    bool asked = machines->surveys > 1;
    if (found->status < 0)
        cordon_log(asked ? CORDON_LOG_WARN : CORDON_LOG_DEBUG, "backend exec-sandbox can not run", "why", found->why,
                   NULL);
    else
        cordon_log(machines->warden->config.oneshot ? CORDON_LOG_DEBUG : CORDON_LOG_INFO,
                   "backend exec-sandbox can run", "accelerator", found->hardware ? "kvm" : "tcg", NULL);
    set_network(machines, asked ? CORDON_LOG_WARN : found->status < 0 ? CORDON_LOG_DEBUG : CORDON_LOG_INFO);
    cordon_machines_stale(machines, found->status);
    answer_askers(machines);
}

static void forget_files(struct cordon_machines *machines)
{
    cordon_close(&machines->kernel);
    cordon_close(&machines->initrd);
    cordon_close(&machines->trusting);
    cordon_close(&machines->root);
}

static void fail(struct cordon_machines *machines, int status, const char *why)
{
    machines->found = (struct cordon_machine_survey){.status = status, .network = NOT_MEASURED};
    (void)snprintf(machines->found.why, sizeof machines->found.why, "%s", why);
    forget_files(machines);
    settle(machines);
}

/* Negative errno: of what machines are to trust. */
static int take_files(struct cordon_machines *machines, int files[FILES])
{
    const struct cordon_warden_config *config = &machines->warden->config;
    forget_files(machines);
    machines->kernel = CORDON_TAKE_FD(files[0]);
    machines->initrd = CORDON_TAKE_FD(files[1]);
    machines->root = CORDON_TAKE_FD(files[2]);
    if (machines->initrd < 0 || !config->authority.size)
        return 0;
    int trusting = cordon_machine_add_trust(config, machines->initrd);
    if (trusting < 0)
        return trusting;
    machines->trusting = trusting;
    return 0;
}

static void fail_trust(struct cordon_machines *machines, int status)
{
    char why[200];
    (void)snprintf(why, sizeof why, "add what machines are to trust (CORDON_EGRESS_CA) to the image's initramfs: %s",
                   strerror(-status)); /* fits */
    fail(machines, status, why);
}

static void on_report(struct cordon_source *source, uint32_t events)
{
    struct cordon_machines *machines = CORDON_OWNER(struct cordon_machines, report, source);
    struct cordon_machine_survey found;
    int files[FILES] = {-1, -1, -1};
    size_t count = FILES;
    (void)events;
    ssize_t n = cordon_recv_fds(source->fd, &found, sizeof found, files, &count, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    cordon_timer_cancel(&machines->warden->loop, &machines->late);
    cordon_source_close(&machines->warden->loop, source);
    if (n != (ssize_t)sizeof found || (found.status == 0 && count != FILES)) {
        fail(machines, -ECHILD, "the survey of what machines need ended without a result");
    } else {
        found.why[sizeof found.why - 1] = found.append[sizeof found.append - 1] =
            found.network_stage[sizeof found.network_stage - 1] = '\0';
        machines->found = found;
        int r = take_files(machines, files);
        if (r == 0)
            settle(machines);
        else
            fail_trust(machines, r);
    }
    for (size_t i = 0; n >= 0 && i < count; i++)
        cordon_close(&files[i]);
}

static void on_surveyor(struct cordon_child *child, int status)
{
    struct cordon_machines *machines = CORDON_OWNER(struct cordon_machines, surveyor, child);
    (void)status;
    cordon_source_close(&machines->warden->loop, &child->source); /* its report, or the end of it, tells all */
}

static void on_late(struct cordon_timer *timer)
{
    cordon_child_kill(&CORDON_OWNER(struct cordon_machines, late, timer)->surveyor); /* which ends its report */
}

static void describe(const char *path, char *to, size_t size)
{
    struct stat st;
    size_t have = strlen(to);
    if (stat(path, &st) < 0)
        st = (struct stat){0};
    (void)snprintf(to + have, size - have, "%llu.%llu.%lld.%lld.%ld ", (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
                   st.st_mtim.tv_nsec); /* two of them fit */
}

static void begin(struct cordon_machines *machines)
{
    struct cordon_warden *warden = machines->warden;
    int pair[2];
    cordon_autoclose int folder = open(warden->config.image, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || faccessat(folder, MANIFEST, F_OK, 0) < 0) {
        char why[400];
        (void)snprintf(why, sizeof why,
                       "there is no image for virtual machines in %.200s (CORDON_VM_IMAGE): make one by `cordon image "
                       "build`",
                       warden->config.image);
        fail(machines, -ENOENT, why);
        return;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        fail(machines, -errno, "no socket for the survey of what machines need");
        return;
    }
    const int keep[] = {pair[1], folder};
    pid_t pid = cordon_process_fork(keep, sizeof keep / sizeof *keep);
    if (pid == 0)
        cordon_machine_survey_main(warden, folder, pair[1]);
    (void)close(pair[1]); /* the child's */
    machines->surveyor.on_exit = on_surveyor;
    machines->report.on_event = on_report;
    int r = pid < 0 ? pid : cordon_child_watch(&warden->loop, &machines->surveyor, pid);
    if (r == 0)
        r = cordon_source_watch(&warden->loop, &machines->report, pair[0], EPOLLIN);
    else
        (void)close(pair[0]);
    if (r < 0) {
        fail(machines, r, "the survey of what machines need could not be started");
        return;
    }
    machines->late.on_due = on_late;
    cordon_timer_arm(&warden->loop, &machines->late, SURVEY_US);
}

bool cordon_machines_surveyed(const struct cordon_machines *machines)
{
    return machines->surveys && !machines->report.watched;
}

void cordon_machines_look(struct cordon_machines *machines)
{
    const struct cordon_warden_config *config = &machines->warden->config;
    char now[sizeof machines->seen] = "", manifest[sizeof config->image + sizeof MANIFEST + 1];
    if (machines->report.watched || machines->surveyor.source.watched)
        return;
    (void)snprintf(manifest, sizeof manifest, "%s/" MANIFEST, config->image); /* fits */
    describe(manifest, now, sizeof now);
    describe(config->qemu, now, sizeof now);
    if (machines->surveys && strcmp(now, machines->seen) == 0)
        return;
    memcpy(machines->seen, now, sizeof now);
    begin(machines);
}

void cordon_machines_ask(struct cordon_machines *machines, int lease_take)
{
    cordon_autoclose int lease = lease_take;
    cordon_machines_look(machines);
    if (!cordon_machines_surveyed(machines) && machines->asker_count < CORDON_MACHINE_ASKERS_MAX)
        machines->askers[machines->asker_count++] = CORDON_TAKE_FD(lease);
    else
        cordon_peer_refuse(lease, machines->found.status, machines->found.why); /* maybe 0, which is no refusal */
}

uint32_t cordon_machines_accel(const struct cordon_machines *machines)
{
    if (machines->found.hardware)
        return CORDON_MACHINE_KVM;
    return machines->warden->config.allow_emulation ? CORDON_MACHINE_TCG : CORDON_MACHINE_NONE;
}

void cordon_machines_init(struct cordon_warden *warden)
{
    static struct cordon_machines machines = {.kernel = -1, .initrd = -1, .root = -1, .trusting = -1};
    machines.warden = warden;
    machines.surveyor.source.fd = machines.report.fd = -1;
    machines.program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    warden->machines = &machines;
    if (warden->local_status == 0)
        cordon_machines_look(&machines);
}

void cordon_machines_done(struct cordon_warden *warden)
{
    struct cordon_machines *machines = warden->machines;
    cordon_timer_cancel(&warden->loop, &machines->late);
    cordon_child_kill(&machines->surveyor);
    cordon_source_close(&warden->loop, &machines->surveyor.source);
    cordon_source_close(&warden->loop, &machines->report);
    answer_askers(machines);
    forget_files(machines);
    cordon_close(&machines->program);
    while (machines->templates) {
        struct cordon_machine_template *template = machines->templates;
        machines->templates = template->next;
        cordon_timer_cancel(&warden->loop, &template->rest);
        cordon_close(&template->ram);
        cordon_close(&template->devices);
        free(template);
    }
}
