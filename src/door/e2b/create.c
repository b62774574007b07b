/* SPDX-License-Identifier: Apache-2.0 */
/* POST /sandboxes and POST /v2/sandboxes: a NewSandbox becomes a guest. What it asks for and is not there is refused.
 */
#include <errno.h>
#include <string.h>

#include "door/e2b/control.h"
#include "door/e2b/tokens.h"

struct new_sandbox {
    struct cordon_door_memory memory;
    const char *template_id;
    int64_t timeout_s;
    struct cordon_pairs metadata;
    struct cordon_texts env;
    struct cordon_e2b_network network;
    bool secure, auto_pause, auto_resume;
};

/* Parts of the protocol that this daemon does not have: nobody may believe to have got them. */
static int refuse_absent(const struct cordon_value *body, struct cordon_error *err)
{
    static const char *const names[] = {"mcp", "iam", "volumeMounts"};
    struct cordon_value value, key, member;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!cordon_field(body, names[i], &value))
            continue;
        bool holder = value.kind == CORDON_VALUE_OBJECT || value.kind == CORDON_VALUE_ARRAY;
        struct cordon_value_walk walk = cordon_value_walk(&value);
        if (!holder || cordon_value_next(&walk, &key, &member))
            return cordon_fail(err, -ENOSYS, CORDON_ERROR_UNSUPPORTED, "%s is not implemented by this server",
                               names[i]);
    }
    return 0;
}

static int read_life(const struct cordon_value *body, struct new_sandbox *new, struct cordon_error *err)
{
    struct cordon_value resume;
    int r = cordon_field_int(body, "timeout", 0, CORDON_E2B_TTL_MAX_S, &new->timeout_s, err);
    if (r >= 0)
        r = cordon_field_bool(body, "autoPause", &new->auto_pause, err);
    if (r >= 0)
        r = cordon_e2b_check_memory(body, "autoPauseMemory", err);
    if (r >= 0)
        r = cordon_field_object(body, "autoResume", &resume, err);
    if (r > 0)
        r = cordon_field_bool(&resume, "enabled", &new->auto_resume, err);
    return r;
}

static int read_new(const struct cordon_settings *settings, const struct cordon_value *body, struct new_sandbox *new,
                    struct cordon_error *err)
{
    struct cordon_value network;
    int r = refuse_absent(body, err);
    if (r >= 0)
        r = cordon_field_text(body, "templateID", &new->memory, &new->template_id, err);
    if (r >= 0)
        r = read_life(body, new, err);
    if (r >= 0)
        r = cordon_field_pairs(body, "metadata", &new->memory, &new->metadata, err);
    if (r >= 0)
        r = cordon_field_env(body, "envVars", &new->memory, &new->env, err);
    if (r >= 0)
        r = cordon_field_bool(body, "secure", &new->secure, err);
    if (r >= 0)
        r = cordon_field_object(body, "network", &network, err);
    if (r >= 0)
        r = cordon_e2b_network_read(settings, r ? &network : NULL, body, &new->memory, &new->network, err);
    return r < 0 ? r : 0;
}

/* The names that the SDKs ask for by themselves are the default template. */
static const char *template_of(const char *id)
{
    return cordon_e2b_template_is_own(id) ? NULL : id;
}

static int make_box(const struct new_sandbox *new, struct cordon_buf *to, struct cordon_error *err)
{
    char access[CORDON_E2B_TOKEN_TEXT] = "", traffic[CORDON_E2B_TOKEN_TEXT] = "";
    if ((new->secure && !cordon_e2b_token_make(access)) ||
        (!new->network.public_traffic && !cordon_e2b_token_make(traffic)))
        return cordon_fail_errno(err, -EIO, "making the sandbox's tokens");
    const struct cordon_e2b_box box = {
        .template_id = new->template_id,
        .access_token = access,
        .traffic_token = traffic,
        .mask_host = new->network.mask_host,
        .network = {new->network.whole.data, new->network.whole.size},
    };
    cordon_e2b_box_write(&box, to);
    return to->failed ? cordon_fail(err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE, "the network's rules are too many") : 0;
}

static int make_guest(const struct cordon_http_request *request, const struct new_sandbox *new,
                      struct cordon_bytes private_data, struct cordon_guest_info **ret, struct cordon_error *err)
{
    const struct cordon_guest_create create = {
        .tenant = request->subject,
        .door = CORDON_DOOR_E2B,
        .template_name = template_of(new->template_id),
        .metadata = new->metadata.items,
        .metadata_count = new->metadata.count,
        .env = new->env.items,
        .env_count = new->env.count,
        .network = new->network.on,
        .allowed_domains = new->network.entries.items,
        .allowed_domain_count = new->network.entries.count,
        .headers = new->network.headers,
        .header_count = new->network.header_count,
        .ttl_ms = new->timeout_s ? (uint64_t) new->timeout_s * 1000 : 1,
        .at_end = new->auto_pause ? CORDON_END_PAUSE : CORDON_END_DESTROY,
        .auto_resume = new->auto_resume,
        .private_data = private_data,
        .cancel_fd = request->fd,
    };
    return cordon_guests_create(&create, ret, err);
}

static int create(struct cordon_http_request *request, int64_t default_timeout_s, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct new_sandbox new = {.template_id = "base", .timeout_s = default_timeout_s, .secure = true};
    struct cordon_buf box = CORDON_BUF_INIT(CORDON_GUEST_PRIVATE_MAX);
    struct cordon_guest_info *guest = NULL;
    struct cordon_value body;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = read_new(doors->settings, &body, &new, err);
    if (r == 0)
        r = make_box(&new, &box, err);
    if (r == 0)
        r = make_guest(request, &new, (struct cordon_bytes){box.data, box.size}, &guest, err);
    cordon_buf_wipe(&box);
    cordon_door_forget(&new.memory);
    if (r == 0)
        cordon_e2b_tokens_add(guest);
    if (r == 0)
        r = cordon_e2b_reply_sandbox(request, 201, guest, err);
    cordon_guest_info_free(guest);
    return r;
}

int cordon_e2b_create_old(struct cordon_http_request *request, struct cordon_error *err)
{
    return create(request, 15, err);
}

int cordon_e2b_create(struct cordon_http_request *request, struct cordon_error *err)
{
    return create(request, 300, err);
}
