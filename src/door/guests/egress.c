/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest may reach, which headers are put into its requests, and what came of it. */
#include "core/egress.h"
#include "door/guests/guests.h"

static void *take(void *memory, size_t size)
{
    return cordon_door_take(memory, size);
}

int cordon_guest_read_network(const struct cordon_value *body, struct cordon_door_memory *memory,
                              struct cordon_guest_network *ret, struct cordon_error *err)
{
    struct cordon_texts domains = {0};
    struct cordon_value headers;
    int r = cordon_field_bool(body, "network", &ret->on, err);
    if (r >= 0)
        r = cordon_field_texts(body, "allowed_domains", memory, &domains, err);
    ret->allowed_domains = domains.items;
    ret->allowed_domain_count = domains.count;
    if (r >= 0)
        r = cordon_field_object(body, "egress_headers", &headers, err);
    if (r > 0)
        r = cordon_egress_headers_read(&headers, "egress_headers", take, memory, &ret->headers, &ret->header_count,
                                       err);
    return r < 0 ? r : 0;
}

int cordon_guest_network_put(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_guest_network network = {0};
    char id[CORDON_GUEST_ID];
    struct cordon_value body;
    int r = cordon_guest_of(request, id, err);
    if (r == 0)
        r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = cordon_guest_read_network(&body, &memory, &network, err);
    if (r == 0)
        r = cordon_guests_set_network(cordon_guest_viewer(request), id, &network, err);
    return r < 0 ? r : cordon_guest_reply_now(request, id, err);
}

/* {"network", "allowed_domains", "egress_headers": how many, "counts"} and, with_log, "log". */
static int reply_egress(struct cordon_http_request *request, bool with_log, struct cordon_error *err)
{
    struct cordon_guest_info *info = NULL;
    struct cordon_egress_counts counts = {0};
    struct cordon_buf log = CORDON_BUF_INIT(CORDON_EGRESS_TEXT_MAX);
    struct cordon_guest_reply reply;
    int r = cordon_guest_object_of(request, &info, err);
    if (r == 0)
        r = cordon_guests_egress(cordon_guest_viewer(request), info->id, &counts, &log, err);
    if (r == 0) {
        cordon_guest_reply_begin(&reply);
        cordon_json_object_begin(&reply.json);
        cordon_guest_write_network(&reply.json, info);
        cordon_json_key(&reply.json, "counts");
        cordon_egress_counts_write(&counts, &reply.json);
        cordon_json_key(&reply.json, "open");
        cordon_json_uint(&reply.json, counts.open);
        if (with_log) {
            cordon_json_key(&reply.json, "log");
            cordon_json_raw(&reply.json, log.size ? log.data : "[]", log.size ? log.size : 2);
        }
        cordon_json_object_end(&reply.json);
        r = cordon_guest_reply_send(request, 200, &reply, err);
    }
    cordon_buf_done(&log);
    cordon_guest_info_free(info);
    return r;
}

int cordon_guest_egress_get(struct cordon_http_request *request, struct cordon_error *err)
{
    return reply_egress(request, false, err);
}

int cordon_guest_egress_log_get(struct cordon_http_request *request, struct cordon_error *err)
{
    return reply_egress(request, true, err);
}
