/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/remote/ssh_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/remote/remote.h"
#include "backend/remote/setup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/secret.h"

#define FILE_MAX (1u << 20)
#define SYSTEM_HOSTS "/etc/ssh/ssh_known_hosts"
#define COPY "known_hosts"

/* What files held at the start: later they may be out of reach. */
static char *known_hosts, *private_key;
static char hosts_path[4200], loaded_path[4096];
static char hosts_fault[300], key_fault[300];

/* --- setup --- */

static char *read_text(const char *path, char fault[300])
{
    struct stat found;
    cordon_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    char *text = NULL;
    if (fd < 0 || fstat(fd, &found) < 0 || !S_ISREG(found.st_mode) || found.st_size > FILE_MAX) {
        (void)snprintf(fault, 300, "%.200s can not be read: %s", path, fd < 0 ? strerror(errno) : "it is no text file");
        return NULL;
    }
    text = calloc(1, (size_t)found.st_size + 2);
    if (text && cordon_read_full(fd, text, (size_t)found.st_size) == 0)
        return text;
    (void)snprintf(fault, 300, "%.200s can not be read", path);
    free(text);
    return NULL;
}

/* The system's file and the one that is named, as one. */
static int load_hosts(struct cordon_error *err)
{
    char none[300];
    const char *path = cordon_remote_text(CORDON_SET_SSH_KNOWN_HOSTS);
    cordon_autofree char *system = read_text(SYSTEM_HOSTS, none);
    cordon_autofree char *named = *path ? read_text(path, hosts_fault) : NULL;
    free(known_hosts);
    if (asprintf(&known_hosts, "%s\n%s\n", system ? system : "", named ? named : "") < 0) {
        known_hosts = NULL;
        return cordon_fail_errno(err, -ENOMEM, "reading the trusted host keys");
    }
    cordon_autoclose int fd = cordon_sealed_memfd("known_hosts", known_hosts, strlen(known_hosts));
    if (fd < 0)
        return cordon_fail_errno(err, fd, "keeping the trusted host keys");
    (void)snprintf(hosts_path, sizeof hosts_path, "/proc/%ld/fd/%d", (long)getpid(), fd); /* fits */
    fd = -1;                                                                              /* stays open for ever */
    return 0;
}

static bool is_key_text(const char *text)
{
    return strstr(text, "-----BEGIN");
}

/* Of the two settings the one that names a file, if any. */
static const char *key_path(void)
{
    const char *text = cordon_remote_text(CORDON_SET_SSH_PRIVATE_KEY);
    if (is_key_text(text))
        return "";
    return *text ? text : cordon_remote_text(CORDON_SET_SSH_PRIVATE_KEY_PATH);
}

static void load_key(void)
{
    (void)snprintf(loaded_path, sizeof loaded_path, "%s", key_path()); /* a longer one can't be opened */
    free(CORDON_TAKE(private_key));
    if (*loaded_path)
        private_key = read_text(loaded_path, key_fault);
}

/* Also where no host is set: the admin page may choose one while we run, and then no file is in reach. */
int cordon_ssh_setup(struct cordon_error *err)
{
    load_key();
    return load_hosts(err);
}

int cordon_ssh_confined(const char *folder, struct cordon_error *err)
{
    (void)snprintf(hosts_path, sizeof hosts_path, "%.4000s/" COPY, strcmp(folder, "/") == 0 ? "" : folder);
    (void)unlink(hosts_path); /* of the last start */
    cordon_autoclose int fd = open(hosts_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = fd < 0 ? -errno : cordon_write_full(fd, known_hosts, strlen(known_hosts));
    return r < 0 ? cordon_fail_errno(err, r, "keeping the trusted host keys") : 0;
}

/* --- waiting --- */

static int fail_link(struct cordon_ssh_link *link, const char *what, struct cordon_error *err)
{
    char text[256];
    (void)snprintf(text, sizeof text, "%s", link->session ? ssh_get_error(link->session) : "");
    cordon_secret_mask(text);
    return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "SSH: %s: %s", what,
                       *text ? text : "the connection was lost");
}

/* Until the server says something, or takes something in. */
static int await(struct cordon_ssh_link *link, const struct cordon_ssh_patience *patience, struct cordon_error *err)
{
    uint64_t now = cordon_now_us();
    uint64_t left_ms = patience->deadline_us > now ? (patience->deadline_us - now + 999) / 1000 : 0;
    bool writes = ssh_get_poll_flags(link->session) & SSH_WRITE_PENDING;
    struct pollfd fds[] = {{.fd = ssh_get_fd(link->session), .events = (short)(POLLIN | (writes ? POLLOUT : 0))},
                           {.fd = patience->cancel_fd, .events = POLLRDHUP}};
    if (!left_ms)
        return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_INFRASTRUCTURE, "SSH: no answer came in time");
    int r = poll(fds, 2, left_ms > 3600000 ? 3600000 : (int)left_ms);
    if (r < 0 && errno != EINTR)
        return cordon_fail_errno(err, -errno, "waiting for the SSH server");
    if (r > 0 && fds[1].revents)
        return cordon_fail(err, -ECANCELED, CORDON_ERROR_CANCELLED, "the run was cancelled: its client left");
    return 0;
}

/* --- connecting --- */

static int set_options(ssh_session session)
{
    int off = 0, port = (int)cordon_remote_number(CORDON_SET_SSH_PORT);
    long timeout_s = 10;
    bool good = ssh_options_set(session, SSH_OPTIONS_HOST, cordon_remote_text(CORDON_SET_SSH_HOST)) == 0 &&
                ssh_options_set(session, SSH_OPTIONS_PORT, &port) == 0 &&
                ssh_options_set(session, SSH_OPTIONS_USER, cordon_remote_text(CORDON_SET_SSH_USERNAME)) == 0 &&
                ssh_options_set(session, SSH_OPTIONS_PROCESS_CONFIG, &off) == 0 &&
                ssh_options_set(session, SSH_OPTIONS_TIMEOUT, &timeout_s) == 0 &&
                ssh_options_set(session, SSH_OPTIONS_KNOWNHOSTS, hosts_path) == 0 &&
                ssh_options_set(session, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null") == 0;
    ssh_set_blocking(session, 0);
    return good ? 0 : -EINVAL;
}

static int check_host(struct cordon_ssh_link *link, struct cordon_error *err)
{
    static const struct {
        enum ssh_known_hosts_e found;
        const char *why;
    } faults[] = {{SSH_KNOWN_HOSTS_CHANGED, "its key is another one than the known hosts have"},
                  {SSH_KNOWN_HOSTS_OTHER, "the known hosts have a key of another type for it"},
                  {SSH_KNOWN_HOSTS_UNKNOWN, "the known hosts do not have it"},
                  {SSH_KNOWN_HOSTS_NOT_FOUND, "there are no known hosts"}};
    enum ssh_known_hosts_e found = ssh_session_is_known_server(link->session);
    if (found == SSH_KNOWN_HOSTS_OK)
        return 0;
    const char *why = "the known hosts can not be read";
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        why = faults[i].found == found ? faults[i].why : why;
    return cordon_fail(err, -EPERM, CORDON_ERROR_UNAVAILABLE,
                       "SSH: the host %.100s is refused: %s (CORDON_SSH_KNOWN_HOSTS)%s%s",
                       cordon_remote_text(CORDON_SET_SSH_HOST), why, *hosts_fault ? "; " : "", hosts_fault);
}

static int take_auth(struct cordon_ssh_link *link, int got, const char *how, struct cordon_error *err)
{
    if (got == SSH_AUTH_SUCCESS)
        return 0;
    if (got == SSH_AUTH_ERROR)
        return fail_link(link, "proving who we are", err);
    return cordon_fail(err, -EACCES, CORDON_ERROR_UNAVAILABLE, "SSH: %.60s@%.100s does not accept the %s",
                       cordon_remote_text(CORDON_SET_SSH_USERNAME), cordon_remote_text(CORDON_SET_SSH_HOST), how);
}

static int auth_key(struct cordon_ssh_link *link, const char *text, const struct cordon_ssh_patience *patience,
                    struct cordon_error *err)
{
    ssh_key key = NULL;
    const char *passphrase = cordon_remote_text(CORDON_SET_SSH_PASSPHRASE);
    if (ssh_pki_import_privkey_base64(text, *passphrase ? passphrase : NULL, NULL, NULL, &key) != SSH_OK)
        return cordon_fail(
            err, -EINVAL, CORDON_ERROR_UNAVAILABLE,
            "SSH: the private key can not be read: it is none, or its passphrase is missing or another one");
    int got, r = 0;
    while ((got = ssh_userauth_publickey(link->session, NULL, key)) == SSH_AUTH_AGAIN && r == 0)
        r = await(link, patience, err);
    ssh_key_free(key);
    return r < 0 ? r : take_auth(link, got, "private key", err);
}

static int auth_password(struct cordon_ssh_link *link, const struct cordon_ssh_patience *patience,
                         struct cordon_error *err)
{
    int got, r = 0;
    while ((got = ssh_userauth_password(link->session, NULL, cordon_remote_text(CORDON_SET_SSH_PASSWORD))) ==
               SSH_AUTH_AGAIN &&
           r == 0)
        r = await(link, patience, err);
    return r < 0 ? r : take_auth(link, got, "password", err);
}

static int authenticate(struct cordon_ssh_link *link, const struct cordon_ssh_patience *patience,
                        struct cordon_error *err)
{
    const char *text = cordon_remote_text(CORDON_SET_SSH_PRIVATE_KEY), *path = key_path();
    if (is_key_text(text))
        return auth_key(link, text, patience, err);
    if (*path && strcmp(path, loaded_path) != 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_UNAVAILABLE,
                           "SSH: the private key's file %.200s is read when the daemon starts: restart it, or set "
                           "CORDON_SSH_PRIVATE_KEY to the key's text",
                           path);
    if (*path && private_key)
        return auth_key(link, private_key, patience, err);
    if (*cordon_remote_text(CORDON_SET_SSH_PASSWORD))
        return auth_password(link, patience, err);
    return cordon_fail(err, -EINVAL, CORDON_ERROR_UNAVAILABLE, "SSH: there is no private key: %s", key_fault);
}

int cordon_ssh_connect(struct cordon_ssh_link *link, const struct cordon_ssh_patience *patience,
                       struct cordon_error *err)
{
    int got, r = 0;
    link->session = ssh_new();
    if (!link->session || set_options(link->session) < 0)
        return cordon_fail_errno(err, -ENOMEM, "connecting to the SSH server");
    while ((got = ssh_connect(link->session)) == SSH_AGAIN && r == 0)
        r = await(link, patience, err);
    if (r == 0 && got != SSH_OK) {
        r = fail_link(link, "connecting", err);
        if (err)
            err->kind = CORDON_ERROR_UNAVAILABLE;
    }
    if (r == 0)
        r = check_host(link, err);
    return r < 0 ? r : authenticate(link, patience, err);
}

static void close_channel(struct cordon_ssh_link *link)
{
    if (!link->channel)
        return;
    (void)ssh_remove_channel_callbacks(link->channel, &link->callbacks); /* they were set */
    (void)ssh_channel_close(link->channel);                              /* the server may be gone */
    ssh_channel_free(CORDON_TAKE(link->channel));
}

void cordon_ssh_disconnect(struct cordon_ssh_link *link)
{
    close_channel(link);
    if (!link->session)
        return;
    ssh_disconnect(link->session);
    ssh_free(CORDON_TAKE(link->session));
}

/* --- commands --- */

static void on_status(ssh_session session, ssh_channel channel, int status, void *user)
{
    struct cordon_ssh_link *link = user;
    link->exit_known = true;
    link->exit_status = status;
}

/* Takes nothing: the data is read as any other. It only tells that there is some: reading one stream takes in what
 * comes for the other as well, and for that nothing would wake us any more. */
static int on_data(ssh_session session, ssh_channel channel, void *data, uint32_t size, int errors, void *user)
{
    struct cordon_ssh_link *link = user;
    link->fresh = true;
    return 0;
}

static void on_signal(ssh_session session, ssh_channel channel, const char *name, int core, const char *message,
                      const char *language, void *user)
{
    struct cordon_ssh_link *link = user;
    link->exit_known = true;
    link->exit_status = -1;
    link->exit_signal = SIGKILL; /* for a name that we don't have */
    for (int number = 1; number < NSIG; number++) {
        const char *own = sigabbrev_np(number);
        if (own && strcmp(own, name) == 0)
            link->exit_signal = number;
    }
}

static int open_channel(struct cordon_ssh_link *link, const struct cordon_ssh_patience *patience,
                        struct cordon_error *err)
{
    int got, r = 0;
    close_channel(link);
    link->exit_known = false;
    link->exit_status = link->exit_signal = 0;
    link->channel = ssh_channel_new(link->session);
    if (!link->channel)
        return cordon_fail_errno(err, -ENOMEM, "opening an SSH channel");
    memset(&link->callbacks, 0, sizeof link->callbacks);
    link->callbacks.userdata = link;
    link->callbacks.channel_data_function = on_data;
    link->callbacks.channel_exit_status_function = on_status;
    link->callbacks.channel_exit_signal_function = on_signal;
    ssh_callbacks_init(&link->callbacks);
    (void)ssh_set_channel_callbacks(link->channel, &link->callbacks); /* can't fail with these arguments */
    while ((got = ssh_channel_open_session(link->channel)) == SSH_AGAIN && r == 0)
        r = await(link, patience, err);
    return r < 0 ? r : got == SSH_OK ? 0 : fail_link(link, "opening a channel", err);
}

int cordon_ssh_exec(struct cordon_ssh_link *link, const char *command, const struct cordon_ssh_patience *patience,
                    struct cordon_error *err)
{
    if (!link->session)
        return cordon_fail(err, -ENOTCONN, CORDON_ERROR_UNAVAILABLE, "SSH: there is no connection");
    int got = SSH_AGAIN, r = open_channel(link, patience, err);
    while (r == 0 && (got = ssh_channel_request_exec(link->channel, command)) == SSH_AGAIN)
        r = await(link, patience, err);
    return r < 0 ? r : got == SSH_OK ? 0 : fail_link(link, "starting a command", err);
}

int cordon_ssh_write(struct cordon_ssh_link *link, const char *data, size_t size,
                     const struct cordon_ssh_patience *patience, struct cordon_error *err)
{
    for (size_t at = 0; at < size;) {
        uint32_t part = size - at < 32768 ? (uint32_t)(size - at) : 32768u;
        int n = ssh_channel_write(link->channel, data + at, part);
        if (n < 0 && n != SSH_AGAIN)
            return fail_link(link, "sending a file", err);
        at += n > 0 ? (size_t)n : 0;
        int r = n > 0 ? 0 : await(link, patience, err);
        if (r < 0)
            return r;
    }
    return 0;
}

void cordon_ssh_eof(struct cordon_ssh_link *link)
{
    if (link->channel)
        (void)ssh_channel_send_eof(link->channel); /* a lost connection is told by the next read */
}

int cordon_ssh_read(struct cordon_ssh_link *link, bool *errors, struct cordon_bytes *ret,
                    const struct cordon_ssh_patience *patience, struct cordon_error *err)
{
    for (;;) {
        link->fresh = false;
        for (int stream = 0; stream < 2; stream++) {
            int n = ssh_channel_read_nonblocking(link->channel, link->buffer, sizeof link->buffer, stream);
            if (n == SSH_ERROR)
                return fail_link(link, "reading a command's output", err);
            if (n <= 0) /* nothing now, or no more */
                continue;
            *errors = stream;
            *ret = (struct cordon_bytes){link->buffer, (size_t)n};
            return 1;
        }
        if (link->fresh)
            continue;
        if (ssh_channel_is_eof(link->channel) && !link->exit_known)
            (void)ssh_channel_get_exit_status(
                link->channel); /* takes in what comes after the streams' end: on_status */
        if (ssh_channel_is_closed(link->channel) || (ssh_channel_is_eof(link->channel) && link->exit_known))
            return link->exit_known ? 0 : fail_link(link, "a command ended without saying how", err);
        if (!ssh_is_connected(link->session))
            return fail_link(link, "waiting for a command", err);
        int r = await(link, patience, err);
        if (r < 0)
            return r;
    }
}

int cordon_ssh_run(struct cordon_ssh_link *link, const char *command, struct cordon_bytes input, const char *what,
                   const struct cordon_ssh_patience *patience, struct cordon_error *err)
{
    struct cordon_bytes data;
    char said[200] = "";
    size_t size = 0;
    bool errors;
    int r = cordon_ssh_exec(link, command, patience, err);
    if (r == 0 && input.size)
        r = cordon_ssh_write(link, input.data, input.size, patience, err);
    if (r == 0)
        cordon_ssh_eof(link);
    while (r == 0 && (r = cordon_ssh_read(link, &errors, &data, patience, err)) > 0) {
        size_t part = data.size < sizeof said - 1 - size ? data.size : sizeof said - 1 - size;
        memcpy(said + size, data.data, errors ? part : 0);
        size += errors ? part : 0;
        said[size] = '\0';
        r = 0;
    }
    if (r == 0 && (link->exit_status != 0 || link->exit_signal))
        r = cordon_fail(err, -EIO, CORDON_ERROR_UNAVAILABLE, "SSH: %s ended with status %d: %s", what,
                        link->exit_status, said);
    return r;
}
