/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may use POST /run: who shows the token (Authorization: Bearer, or X-Sandbox-Token where there is no Bearer), or a
 * run key in the same places, or sits at the machine. Without a token all others are refused, unless the operator
 * opened the door to everybody.
 *
 * Two limits, each by address. One for calls that are refused here, so that nobody can try tokens for long: once it is
 * used up, an address is refused unheard, whatever it shows. (RAGFlow's own counts every call, which throttles a whole
 * RAGFlow, one address, to 30 runs a minute.) And one for runs.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/metrics.h"
#include "door/executor_manager.h"
#include "door/rate_limit.h"

#define DOOR CORDON_DOOR_EXECUTOR_MANAGER

static struct cordon_rate_limit *failures, *runs; /* made before the first request */

enum entry { ENTRY_GOOD, ENTRY_OPEN, ENTRY_FLOOD, ENTRY_UNKNOWN, ENTRY_UNCONFIGURED };

static const struct refusal {
    int status;
    const char *detail;
} refusals[] = {
    [ENTRY_FLOOD] = {429, NULL},
    [ENTRY_UNKNOWN] = {401, "Missing or invalid sandbox executor API token"},
    [ENTRY_UNCONFIGURED] =
        {503,
         "Sandbox executor authentication is not configured; refusing unauthenticated /run. Set "
         "SANDBOX_EXECUTOR_MANAGER_API_TOKEN=<a long random text> in the environment of this service and of RAGFlow "
         "(or let RAGFlow send a key that `cordon key create --scope run` made as its API token)."},
};

static int make_limit(const struct cordon_settings *settings, enum cordon_setting id, struct cordon_rate_limit **ret,
                      struct cordon_error *err)
{
    struct cordon_rate rate = {1, 1000000};
    (void)cordon_rate_parse(cordon_settings_string(settings, DOOR, id), &rate); /* checked when it was loaded */
    *ret = cordon_rate_limit_new(&rate);
    return *ret ? 0 : cordon_fail_errno(err, -ENOMEM, "setting up the limit %s", cordon_settings_name(DOOR, id));
}

static void log_posture(const struct cordon_settings *settings)
{
    if (*cordon_settings_string(settings, DOOR, CORDON_SET_EXECUTOR_TOKEN))
        cordon_log(CORDON_LOG_INFO, "/run: takes the token, or a run key", NULL);
    else if (cordon_settings_bool(settings, DOOR, CORDON_SET_EXECUTOR_OPEN))
        cordon_log(CORDON_LOG_WARN, "/run IS OPEN: whoever reaches the port can run code", "setting",
                   cordon_settings_name(DOOR, CORDON_SET_EXECUTOR_OPEN), NULL);
    else
        cordon_log(CORDON_LOG_INFO, "/run: takes run keys only, since no token is set; all else is answered with 503",
                   "setting", cordon_settings_name(DOOR, CORDON_SET_EXECUTOR_TOKEN), NULL);
}

int cordon_executor_manager_setup(const struct cordon_settings *settings, struct cordon_error *err)
{
    int r = make_limit(settings, CORDON_SET_EXECUTOR_FAILURES, &failures, err);
    if (r == 0)
        r = make_limit(settings, CORDON_SET_EXECUTOR_RATE, &runs, err);
    if (r == 0)
        log_posture(settings);
    return r;
}

void cordon_executor_manager_done(void)
{
    cordon_rate_limit_free(failures);
    cordon_rate_limit_free(runs);
    failures = runs = NULL;
}

/* What the caller shows, without the blanks around it. */
static const char *find_secret(const struct cordon_http_request *request, size_t *ret_size)
{
    const char *text = cordon_http_header(request, "Authorization");
    if (text && strncasecmp(text, "Bearer ", 7) == 0)
        text += 7;
    else
        text = cordon_http_header(request, "X-Sandbox-Token");
    if (!text)
        text = "";
    text += strspn(text, " \t");
    *ret_size = strlen(text);
    while (*ret_size && (text[*ret_size - 1] == ' ' || text[*ret_size - 1] == '\t'))
        --*ret_size;
    return text;
}

/* Takes as long for every text of the same length. */
static bool same_secret(const char *a, size_t size, const char *b)
{
    volatile unsigned char differs = 0;
    if (strlen(b) != size)
        return false;
    for (size_t i = 0; i < size; i++)
        differs = (unsigned char)(differs | (a[i] ^ b[i]));
    return !differs;
}

static enum entry judge(const struct cordon_http_request *request, bool *ret_first)
{
    const struct cordon_doors *doors = request->context;
    const char *token = cordon_settings_string(doors->settings, DOOR, CORDON_SET_EXECUTOR_TOKEN);
    struct cordon_key_info info;
    struct cordon_error err;
    size_t size;
    *ret_first = false;
    if (cordon_door_is_own_user(request))
        return ENTRY_GOOD;
    if (!*token && cordon_settings_bool(doors->settings, DOOR, CORDON_SET_EXECUTOR_OPEN))
        return ENTRY_OPEN;
    if (cordon_rate_limit_full(failures, request->client, cordon_now_us(), ret_first))
        return ENTRY_FLOOD;
    const char *secret = find_secret(request, &size);
    if (*token && same_secret(secret, size, token))
        return ENTRY_GOOD;
    if (size && cordon_key_check(doors->store, secret, size, &info, &err) == 0)
        return ENTRY_GOOD;
    return *token ? ENTRY_UNKNOWN : ENTRY_UNCONFIGURED;
}

int cordon_em_admit(struct cordon_http_request *request, struct cordon_error *err)
{
    bool first;
    enum entry entry = judge(request, &first);
    request->keyless = entry == ENTRY_OPEN;
    request->stranger = entry != ENTRY_GOOD && entry != ENTRY_OPEN;
    if (first)
        cordon_log(CORDON_LOG_WARN, "/run: an address shows wrong tokens and is not heard for now", "client",
                   request->client, "setting", cordon_settings_name(DOOR, CORDON_SET_EXECUTOR_FAILURES), NULL);
    return 0;
}

const char *cordon_em_refusal(struct cordon_http_request *request, int *ret_status)
{
    bool first;
    *ret_status = 0;
    if (!request->stranger)
        return NULL;
    enum entry entry = judge(request, &first);
    if (entry == ENTRY_GOOD ||
        entry == ENTRY_OPEN) /* the header can't have changed, but a key may have been made meanwhile: it comes again */
        entry = ENTRY_UNKNOWN;
    /* Another call may have used up the rest. */
    if (entry != ENTRY_FLOOD && !cordon_rate_limit_take(failures, request->client, cordon_now_us(), NULL))
        entry = ENTRY_FLOOD;
    cordon_metrics_add(CORDON_METRIC_KEYS_REFUSED, 1);
    cordon_metrics_error(entry == ENTRY_FLOOD ? CORDON_ERROR_QUOTA : CORDON_ERROR_UNAUTHENTICATED);
    *ret_status = refusals[entry].status;
    return refusals[entry].detail;
}

bool cordon_em_may_run(struct cordon_http_request *request)
{
    bool first;
    if (cordon_door_is_own_user(request) || cordon_rate_limit_take(runs, request->client, cordon_now_us(), &first))
        return true;
    if (first)
        cordon_log(CORDON_LOG_WARN, "/run: an address starts more runs than it may", "client", request->client,
                   "setting", cordon_settings_name(DOOR, CORDON_SET_EXECUTOR_RATE), NULL);
    cordon_metrics_error(CORDON_ERROR_QUOTA);
    return false;
}
