/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes as the control plane tells them. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

#include "core/run.h"
#include "door/e2b/control.h"
#include "door/json_time.h"

static void moment(struct cordon_json *json, const char *key, int64_t us)
{
    cordon_json_key(json, key);
    cordon_json_time(json, us);
}

static unsigned port_of(const struct cordon_http_request *request)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(request->fd, (struct sockaddr *)&address, &size) < 0)
        return 0;
    if (address.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)(const void *)&address)->sin_port);
    if (address.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)(const void *)&address)->sin6_port);
    return 0;
}

/* So that getHost(3000) names something that reaches this daemon. */
static void tell_domain(const struct cordon_http_request *request, struct cordon_json *json)
{
    const struct cordon_doors *doors = request->context;
    const char *set = cordon_settings_string(doors->settings, CORDON_DOOR_E2B, CORDON_SET_E2B_DOMAIN);
    char local[32];
    unsigned port = port_of(request);
    if (port)
        (void)snprintf(local, sizeof local, "localhost:%u", port); /* fits */
    else
        (void)snprintf(local, sizeof local, "localhost");
    cordon_json_pair_text(json, "domain", *set ? set : local);
}

static void tell_names(const struct cordon_guest_info *guest, const struct cordon_e2b_box *box,
                       struct cordon_json *json)
{
    cordon_json_pair_text(json, "sandboxID", guest->id);
    cordon_json_pair_text(json, "templateID", box->template_id);
    cordon_json_pair_text(json, "alias", box->template_id);
    cordon_json_pair_text(json, "clientID", "cordon");
    cordon_json_pair_text(json, "envdVersion", CORDON_E2B_ENVD_VERSION);
}

void cordon_e2b_tell_sandbox(const struct cordon_http_request *request, const struct cordon_guest_info *guest,
                             const struct cordon_e2b_box *box, struct cordon_json *json)
{
    cordon_json_object_begin(json);
    tell_names(guest, box, json);
    if (*box->access_token)
        cordon_json_pair_text(json, "envdAccessToken", box->access_token);
    cordon_json_pair_text(json, "trafficAccessToken", *box->traffic_token ? box->traffic_token : NULL);
    tell_domain(request, json);
    cordon_json_object_end(json);
}

static void tell_metadata(const struct cordon_guest_info *guest, struct cordon_json *json)
{
    cordon_json_key(json, "metadata");
    cordon_json_object_begin(json);
    for (size_t i = 0; i < guest->metadata_count; i++)
        cordon_json_pair_text(json, guest->metadata[i].key, guest->metadata[i].value);
    cordon_json_object_end(json);
}

/* One without an end of its own gets a far one: the field can't be left out. */
static int64_t end_of(const struct cordon_guest_info *guest)
{
    return guest->ends_us ? guest->ends_us : guest->started_us + (int64_t)CORDON_E2B_TTL_MAX_S * 1000000;
}

static void tell_common(const struct cordon_guest_info *guest, const struct cordon_e2b_box *box,
                        struct cordon_json *json)
{
    uint32_t percent = guest->limits.cpu_percent;
    tell_names(guest, box, json);
    moment(json, "startedAt", guest->started_us);
    moment(json, "endAt", end_of(guest));
    cordon_json_pair_text(json, "state", guest->condition == CORDON_GUEST_IS_PAUSED ? "paused" : "running");
    cordon_json_pair_uint(json, "cpuCount", percent ? (percent + 99) / 100 : 1);
    cordon_json_pair_uint(json, "memoryMB", guest->limits.memory_bytes >> 20);
    cordon_json_pair_uint(json, "diskSizeMB", guest->limits.disk_bytes >> 20);
    tell_metadata(guest, json);
}

void cordon_e2b_tell_listed(const struct cordon_guest_info *guest, const struct cordon_e2b_box *box,
                            struct cordon_json *json)
{
    cordon_json_object_begin(json);
    tell_common(guest, box, json);
    cordon_json_object_end(json);
}

static void tell_list(struct cordon_json *json, const char *key, const char *const *items, size_t count)
{
    cordon_json_key(json, key);
    cordon_json_array_begin(json);
    for (size_t i = 0; i < count; i++)
        cordon_json_text(json, items[i]);
    cordon_json_array_end(json);
}

void cordon_e2b_tell_detail(const struct cordon_http_request *request, const struct cordon_guest_info *guest,
                            const struct cordon_e2b_box *box, struct cordon_json *json)
{
    cordon_json_object_begin(json);
    tell_common(guest, box, json);
    if (*box->access_token)
        cordon_json_pair_text(json, "envdAccessToken", box->access_token);
    tell_domain(request, json);
    cordon_json_key(json, "allowInternetAccess");
    cordon_json_bool(json, guest->network);
    if (box->network.data) {
        cordon_json_key(json, "network");
        cordon_json_raw(json, box->network.data, box->network.size);
    }
    cordon_json_key(json, "lifecycle");
    cordon_json_object_begin(json);
    cordon_json_key(json, "autoResume");
    cordon_json_bool(json, guest->auto_resume);
    cordon_json_pair_text(json, "onTimeout", guest->at_end == CORDON_END_PAUSE ? "pause" : "kill");
    cordon_json_object_end(json);
    /* Not the protocol's: what holds for this sandbox in truth. */
    cordon_json_key(json, "cordon");
    cordon_json_object_begin(json);
    cordon_json_pair_text(json, "isolation", cordon_isolation_name(guest->isolation));
    cordon_json_pair_text(json, "backend", guest->backend);
    cordon_json_key(json, "network");
    cordon_json_bool(json, guest->network);
    tell_list(json, "egress", guest->allowed_domains, guest->allowed_domain_count);
    cordon_json_object_end(json);
    cordon_json_object_end(json);
}

int cordon_e2b_reply_sandbox(struct cordon_http_request *request, int status, const struct cordon_guest_info *guest,
                             struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    struct cordon_e2b_box box;
    int r = cordon_e2b_box_read(guest->private_data, &memory, &box, err);
    if (r < 0)
        return r;
    cordon_e2b_tell_sandbox(request, guest, &box, &json);
    return cordon_e2b_reply(request, status, &body, err);
}
