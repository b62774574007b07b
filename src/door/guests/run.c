/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/guests/{guest}/runs: the body of POST /v1/runs, done in a kept guest. What only a guest of its own can have
 * (memory, disk, network, backend, template) is refused here: the guest has its own.
 * POST /v1/reuse: finds the guest of a flow's component again, or makes it.
 */
#include <errno.h>
#include <string.h>

#include "door/guests/program.h"

static const char *const of_the_guest[] = {
    "memory_mb", "disk_mb",         "cpu_s",          "network",  "backend",
    "guest",     "allowed_domains", "egress_headers", "template", "fresh_interpreter"};

static int refuse_of_the_guest(const struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_value body, value;
    int r = cordon_fields_parse(&request->body, &body, err);
    for (size_t i = 0; r == 0 && i < sizeof of_the_guest / sizeof *of_the_guest; i++)
        if (cordon_field(&body, of_the_guest[i], &value))
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                               "%s is not a run's to say in a kept guest: the guest has its own", of_the_guest[i]);
    return r;
}

/* Stdin is borrowed from the run's request, which a stream outlives: it is copied. */
static int fill_program(const struct cordon_http_request *request, struct cordon_guest_asked *asked,
                        struct cordon_error *err)
{
    const struct cordon_request *from = &asked->run.request;
    asked->limits = from->limits;
    asked->input = CORDON_BUF_INIT(1u << 30);
    if (cordon_buf_append(&asked->input, from->stdin_data.data ? from->stdin_data.data : "", from->stdin_data.size) < 0)
        return cordon_fail_errno(err, -ENOMEM, "starting a program");
    asked->program = (struct cordon_program_request){
        .struct_size = sizeof asked->program,
        .tenant = cordon_guest_viewer(request),
        .guest = asked->guest,
        .language = from->language,
        .code = from->code,
        .arguments = from->arguments,
        .env = from->env,
        .env_count = from->env_count,
        .stdin_data = {asked->input.data, asked->input.size},
        .files = from->files,
        .file_count = from->file_count,
        .timeout_ms = from->limits.timeout_ms,
        .stdout_bytes = from->limits.stdout_bytes,
        .stderr_bytes = from->limits.stderr_bytes,
        .output_kill_bytes = from->limits.output_kill_bytes,
        .artifacts = from->artifacts,
        .artifact_bytes = from->limits.artifacts_bytes,
        .cancel_fd = request->fd,
    };
    /* Their number is bounded here, not by a run's setting; the answer has to have room for them. */
    asked->limits.artifacts = CORDON_REUSE_FILES;
    return 0;
}

int cordon_guest_run_post(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_guest_asked asked = {0};
    int r = cordon_guest_of(request, asked.guest, err);
    if (r == 0)
        r = refuse_of_the_guest(request, err);
    if (r == 0)
        r = cordon_run_request_parse(doors->settings, request->body.data ? request->body.data : "", request->body.size,
                                     &asked.run, err);
    asked.has_run = r == 0;
    if (r == 0)
        r = fill_program(request, &asked, err);
    if (r == 0)
        r = cordon_guest_asked_run(request, &asked, err);
    cordon_guest_asked_done(&asked);
    return r;
}

static int read_reuse(const struct cordon_value *body, struct cordon_door_memory *memory, struct cordon_reuse *ret,
                      struct cordon_error *err)
{
    struct cordon_texts domains = {0};
    int64_t memory_mb = 0;
    int r = cordon_field_text(body, "flow", memory, &ret->flow, err);
    if (r >= 0)
        r = cordon_field_text(body, "component", memory, &ret->component, err);
    if (r >= 0)
        r = cordon_field_text(body, "backend", memory, &ret->backend, err);
    if (r >= 0)
        r = cordon_field_text(body, "template", memory, &ret->template_name, err);
    if (r >= 0)
        r = cordon_field_bool(body, "network", &ret->network, err);
    if (r >= 0)
        r = cordon_field_texts(body, "allowed_domains", memory, &domains, err);
    if (r >= 0)
        r = cordon_field_int(body, "memory_mb", 1, INT32_MAX, &memory_mb, err);
    ret->domains = domains.items;
    ret->domain_count = domains.count;
    ret->memory_bytes = (uint64_t)memory_mb << 20;
    return r < 0 ? r : 0;
}

int cordon_guest_reuse_post(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_reuse reuse = {
        .struct_size = sizeof reuse, .tenant = cordon_guest_tenant(request), .cancel_fd = request->fd};
    struct cordon_guest_info *info = NULL;
    char id[CORDON_GUEST_ID];
    bool reused;
    struct cordon_value body;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = read_reuse(&body, &memory, &reuse, err);
    if (r == 0)
        r = cordon_reuse_acquire(&reuse, id, &reused, err);
    if (r == 0)
        r = cordon_guests_info(reuse.tenant, id, &info, err);
    if (r >= 0) {
        struct cordon_guest_reply reply;
        cordon_guest_reply_begin(&reply);
        cordon_json_object_begin(&reply.json);
        cordon_json_key(&reply.json, "reused");
        cordon_json_bool(&reply.json, reused);
        cordon_json_key(&reply.json, "guest");
        cordon_guest_write(&reply.json, info);
        cordon_json_object_end(&reply.json);
        r = cordon_guest_reply_send(request, reused ? 200 : 201, &reply, err);
    }
    cordon_guest_info_free(info);
    return r < 0 ? r : 0;
}
