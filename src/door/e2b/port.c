/* SPDX-License-Identifier: Apache-2.0 */
/* What listens in a sandbox, reached from outside: any request to PORT-ID.domain, or with these in its header fields.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "door/door.h"
#include "door/e2b/doors.h"
#include "door/e2b/visit.h"
#include "http/pass.h"

/* maskRequestHost, with the port in it. False: it does not fit, or would not be a header's value. */
static bool fill_mask(const char *mask, uint16_t port, char to[512])
{
    static const char variable[] = "${PORT}";
    const char *at = strstr(mask, variable);
    for (const char *p = mask; *p; p++)
        if ((unsigned char)*p <= ' ')
            return false;
    int size = at ? snprintf(to, 512, "%.*s%u%s", (int)(at - mask), mask, port, at + sizeof variable - 1)
                  : snprintf(to, 512, "%s", mask);
    return size > 0 && size < 512;
}

static int connect_port(const struct cordon_http_request *request, const struct cordon_e2b_visit *visit, int *ret,
                        struct cordon_error *err)
{
    int r = cordon_guests_port(visit->guest->tenant, visit->guest->id, visit->port, request->fd, ret, err);
    if (r == -ECONNREFUSED)
        return cordon_fail(err, r, CORDON_ERROR_GONE, "The sandbox is running but port %u is not open", visit->port);
    return r;
}

static void free_pass(void *pass)
{
    cordon_http_pass_free(pass);
}

static int begin(struct cordon_http_request *request, struct cordon_error *err)
{
    static const char *const left_out[] = {"E2B-Traffic-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port", NULL};
    const struct cordon_e2b_visit *visit = request->admitted;
    const struct cordon_doors *doors = request->context;
    struct cordon_http_pass_options options = {
        .left_out = left_out,
        .patience_s = (unsigned)cordon_settings_int(doors->settings, CORDON_DOOR_E2B, CORDON_SET_E2B_PORT_SILENCE_S)};
    struct cordon_http_pass *pass;
    char host[512];
    int fd;
    if (*visit->box.mask_host && fill_mask(visit->box.mask_host, visit->port, host))
        options.host = host;
    int r = connect_port(request, visit, &fd, err);
    if (r == 0)
        r = cordon_http_pass_begin(request, fd, &options, &pass, err);
    if (r < 0)
        return r;
    request->finish = free_pass;
    request->finish_context = pass;
    return 0;
}

static int piece(struct cordon_http_request *request, const char *data, size_t size, struct cordon_error *err)
{
    return cordon_http_pass_piece(request->finish_context, data, size, err);
}

static int handle(struct cordon_http_request *request, struct cordon_error *err)
{
    return cordon_http_pass_reply(request, request->finish_context, err);
}

static bool claims(const struct cordon_http_request *request)
{
    struct cordon_e2b_address address;
    return cordon_e2b_visit_address(request, &address);
}

static int admit(struct cordon_http_request *request, struct cordon_error *err)
{
    return cordon_e2b_visit_enter(request, CORDON_E2B_TRAFFIC, err);
}

static const struct cordon_http_route routes[] = {
    {"*", "*", handle, CORDON_HTTP_OWN, CORDON_HTTP_BODY_INTAKE, NULL, NULL, NULL, NULL},
};
static const struct cordon_http_intake intake = {.begin = begin, .piece = piece};

const struct cordon_http_door cordon_door_e2b_port = {
    .name = "e2b-port",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .claims = claims,
    .admit = admit,
    .dismiss = cordon_e2b_visit_dismiss,
    .intake = &intake,
    .reply_error = cordon_e2b_visit_reply_error,
};
