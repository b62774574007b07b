/* SPDX-License-Identifier: Apache-2.0 */
/* What the services elsewhere share besides the course of a run. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/builtin.h"
#include "backend/remote/remote.h"
#include "backend/remote/setup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/secret.h"
#include "core/run.h"

#define PROBE_BELIEVED_US 10000000u
#define EXCERPT 240

static _Atomic(const struct cordon_settings *) given;

int cordon_backend_setup(const struct cordon_settings *settings, struct cordon_error *err)
{
    atomic_store(&given, settings);
    int r = cordon_http_client_setup(err);
    return r < 0 ? r : cordon_ssh_setup(err);
}

int cordon_backend_confined(const char *folder, struct cordon_error *err)
{
    return cordon_ssh_confined(folder, err);
}

void cordon_backend_teardown(void)
{
    cordon_http_client_shutdown();
}

bool cordon_backend_is_elsewhere(const struct cordon_backend *backend)
{
    static const struct {
        const struct cordon_backend *backend;
        enum cordon_setting url;
    } places[] = {{&cordon_backend_self_managed, CORDON_SET_SELF_MANAGED_ENDPOINT},
                  {&cordon_backend_e2b, CORDON_SET_E2B_API_URL},
                  {&cordon_backend_createos, CORDON_SET_CREATEOS_BASE_URL},
                  {&cordon_backend_tenki, CORDON_SET_TENKI_API_URL},
                  {&cordon_backend_ucloud_agent_sandbox, CORDON_SET_UCLOUD_SANDBOX_API_URL},
                  {&cordon_backend_aliyun_codeinterpreter, CORDON_SET_AGENTRUN_DATA_ENDPOINT}};
    const char *host = cordon_remote_text(CORDON_SET_SSH_HOST);
    if (backend == &cordon_backend_ssh)
        return strcmp(host, "127.0.0.1") != 0 && strcmp(host, "localhost") != 0 && strcmp(host, "::1") != 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i].backend == backend)
            return !cordon_url_is_loopback(cordon_remote_text(places[i].url));
    return false;
}

const struct cordon_settings *cordon_remote_settings(void)
{
    return atomic_load(&given);
}

const char *cordon_remote_text(enum cordon_setting id)
{
    const struct cordon_settings *settings = cordon_remote_settings();
    const char *text = settings ? cordon_settings_string(settings, CORDON_DOOR_NATIVE, id) : NULL;
    return text ? text : "";
}

int64_t cordon_remote_number(enum cordon_setting id)
{
    const struct cordon_settings *settings = cordon_remote_settings();
    return settings ? cordon_settings_int(settings, CORDON_DOOR_NATIVE, id) : 0;
}

bool cordon_remote_true(enum cordon_setting id)
{
    const struct cordon_settings *settings = cordon_remote_settings();
    return settings && cordon_settings_bool(settings, CORDON_DOOR_NATIVE, id);
}

enum cordon_isolation cordon_remote_isolation(enum cordon_setting id)
{
    enum cordon_isolation isolation = CORDON_ISOLATION_NONE; /* what is unknown grants nothing */
    (void)cordon_isolation_parse(cordon_remote_text(id), &isolation);
    return isolation;
}

enum cordon_isolation cordon_remote_virtualized(void)
{
    return CORDON_ISOLATION_HARDWARE_VIRTUALIZED;
}

const char *cordon_remote_python3(void)
{
    return "python3";
}

const char *cordon_remote_node(void)
{
    return "node";
}

void cordon_remote_capable(struct cordon_capabilities *now, enum cordon_isolation isolation)
{
    memset(now, 0, sizeof *now); /* its padding is compared, too */
    now->struct_size = sizeof *now;
    now->isolation = isolation;
    now->files = now->artifacts = true;
    now->languages = "python,javascript,bash";
}

/* One for each that was ever asked for: as many as settings had values, and as small as a version of these. */
struct set {
    struct cordon_capabilities is;
    struct set *next;
};

const struct cordon_capabilities *cordon_remote_capabilities(const struct cordon_capabilities *now)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct set *sets;
    static const struct cordon_capabilities none = {/* no memory for a new one: it grants nothing */
                                                    .struct_size = sizeof none,
                                                    .isolation = CORDON_ISOLATION_NONE,
                                                    .languages = ""};
    pthread_mutex_lock(&lock);
    struct set *set = sets;
    while (set && memcmp(&set->is, now, sizeof *now) != 0)
        set = set->next;
    if (!set && (set = malloc(sizeof *set))) {
        memcpy(&set->is, now, sizeof *now); /* with its padding */
        set->next = sets;
        sets = set;
    }
    pthread_mutex_unlock(&lock);
    return set ? &set->is : &none;
}

static pthread_mutex_t beliefs = PTHREAD_MUTEX_INITIALIZER;

uint64_t cordon_remote_with(void)
{
    const struct cordon_settings *settings = cordon_remote_settings();
    return settings ? cordon_settings_serial(settings) + 1 : 1;
}

bool cordon_remote_believed(const struct cordon_remote_belief *belief, uint64_t with)
{
    pthread_mutex_lock(&beliefs);
    bool believed = belief->with == with && belief->until_us > cordon_now_us();
    pthread_mutex_unlock(&beliefs);
    return believed;
}

void cordon_remote_believe(struct cordon_remote_belief *belief, uint64_t with, uint64_t for_us)
{
    pthread_mutex_lock(&beliefs);
    *belief = (struct cordon_remote_belief){.until_us = cordon_now_us() + for_us, .with = for_us ? with : 0};
    pthread_mutex_unlock(&beliefs);
}

int cordon_remote_probe(struct cordon_remote_belief *belief, const struct cordon_remote_service *service,
                        int (*ask)(struct cordon_error *err), struct cordon_error *err)
{
    struct cordon_error own = {0};
    uint64_t with = cordon_remote_with();
    int r = service->configured(err);
    if (r < 0 || cordon_remote_believed(belief, with))
        return r;
    r = ask(&own);
    if (r < 0 && own.kind == CORDON_ERROR_INFRASTRUCTURE)
        own.kind = CORDON_ERROR_UNAVAILABLE;
    if (r < 0 && err)
        *err = own;
    cordon_remote_believe(belief, with, r < 0 ? 0 : PROBE_BELIEVED_US);
    return r;
}

int cordon_remote_unset(const struct cordon_remote_service *service, const char *text, struct cordon_error *err)
{
    return cordon_fail(err, -ENOTCONN, CORDON_ERROR_UNAVAILABLE, "the backend %s is not set up: %s", service->name,
                       text);
}

int cordon_remote_check_url(const struct cordon_remote_service *service, enum cordon_setting id,
                            struct cordon_error *err)
{
    char text[200];
    const char *url = cordon_remote_text(id);
    if (strncmp(url, "https://", 8) == 0 || (strncmp(url, "http://", 7) == 0 && cordon_url_is_loopback(url)))
        return 0;
    (void)snprintf(text, sizeof text, "%s must begin with https:// (http:// only for this machine)",
                   cordon_settings_name(CORDON_DOOR_NATIVE, id));
    return cordon_remote_unset(service, text, err);
}

/* The sentence in an error's body: in the forms that the services and we ourselves have, else its beginning. */
static void excerpt(const struct cordon_buf *body, char to[EXCERPT])
{
    struct cordon_value root, error;
    size_t size = body->size < EXCERPT * 4u ? body->size : EXCERPT * 4u;
    cordon_autofree char *text = strndup(body->data ? body->data : "", size);
    *to = '\0';
    if (body->size && cordon_value_parse(body->data, body->size, &root, NULL) == 0 &&
        (cordon_value_text(&root, "message", to, EXCERPT) || cordon_value_text(&root, "detail", to, EXCERPT) ||
         cordon_value_text(&root, "data", to, EXCERPT) ||
         (cordon_value_member(&root, "error", &error) && cordon_value_text(&error, "message", to, EXCERPT)) ||
         (cordon_value_member(&root, "data", &error) && cordon_value_text(&error, "message", to, EXCERPT)))) {
        cordon_secret_mask(to);
        return;
    }
    if (!text)
        return;
    cordon_secret_mask(text); /* before it is cut */
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127)
            *p = ' ';
    (void)snprintf(to, EXCERPT, "%s", text); /* cut on purpose */
}

int cordon_remote_refused(const struct cordon_remote_service *service, const char *what, unsigned status,
                          const struct cordon_buf *body, struct cordon_error *err)
{
    static const struct {
        unsigned status;
        const char *why;
    } reasons[] = {{401, " (the key was not accepted)"},
                   {402, " (no credit is left)"},
                   {403, " (the key may not do that)"},
                   {404, " (not found)"},
                   {409, " (conflict)"},
                   {429, " (too many requests, try again later)"}};
    char said[EXCERPT];
    const char *why = status >= 500                   ? " (the service failed)"
                      : status >= 300 && status < 400 ? " (a redirect, which is not followed)"
                                                      : "";
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        why = reasons[i].status == status ? reasons[i].why : why;
    excerpt(body, said);
    return cordon_fail(err, -EREMOTEIO, status == 429 ? CORDON_ERROR_BUSY : CORDON_ERROR_UNAVAILABLE,
                       "%s: %s was answered with status %u%s%s%s", service->title, what, status, why, *said ? ": " : "",
                       said);
}

struct cordon_http_call cordon_remote_call(const struct cordon_run *run, const char *method, const char *url,
                                           const char *const *headers)
{
    return (struct cordon_http_call){
        .method = method, .url = url, .headers = headers, .deadline_us = run->deadline_us, .cancel_fd = run->cancel_fd};
}

void cordon_remote_write_shell(struct cordon_json *json, const char *command)
{
    cordon_json_key(json, "cmd");
    cordon_json_text(json, "/bin/sh");
    cordon_json_key(json, "args");
    cordon_json_array_begin(json);
    cordon_json_text(json, "-c");
    cordon_json_text(json, command);
    cordon_json_array_end(json);
}

int cordon_remote_stayed(int cancel_fd, struct cordon_error *err)
{
    return cordon_http_pause(0, cancel_fd, err);
}

size_t cordon_remote_base(const char *url)
{
    size_t size = strlen(url);
    while (size && url[size - 1] == '/')
        size--;
    return size;
}

void cordon_remote_add(struct cordon_remote_headers *to, const char *name, const char *value)
{
    if (to->count == CORDON_REMOTE_HEADERS || !*value)
        return;
    (void)snprintf(to->lines[to->count], sizeof *to->lines, "%s: %.340s", name, value); /* a cut key is no key there */
    to->list[to->count] = to->lines[to->count];
    to->list[++to->count] = NULL;
}

void cordon_remote_reader_close(struct cordon_remote_reader *reader)
{
    cordon_http_close(CORDON_TAKE(reader->transfer));
    cordon_buf_done(&reader->in);
    cordon_buf_done(&reader->decoded);
    reader->in_used = 0;
}

int cordon_remote_reader_next(const struct cordon_run *run, struct cordon_remote_reader *reader,
                              struct cordon_bytes *ret, struct cordon_error *err)
{
    cordon_http_extend(reader->transfer, run->deadline_us);
    return cordon_http_read(reader->transfer, ret, err);
}

void cordon_remote_write_env(struct cordon_json *json, const char *key, const char *const *env, size_t count)
{
    cordon_json_key(json, key);
    cordon_json_object_begin(json);
    for (size_t i = 0; i < count; i++) {
        const char *equals = strchrnul(env[i], '=');
        cordon_autofree char *name = strndup(env[i], (size_t)(equals - env[i]));
        json->buf->failed = json->buf->failed || !name;
        if (!name)
            return;
        cordon_json_key(json, name);
        cordon_json_text(json, *equals ? equals + 1 : "");
    }
    cordon_json_object_end(json);
}
