/* SPDX-License-Identifier: Apache-2.0 */
/* cordon guest egress: what a guest may reach is shown, or set anew with --allow-domain, --header, --network, --off. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/guest.h"
#include "cli/headers.h"
#include "core/value.h"

#define REPLY_MAX (1u << 20)

static bool sets_any(const struct cordon_guest_options *options)
{
    return options->network || options->domains.count || options->headers.count;
}

static int set(struct cordon_guest_call *call, const char *path, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(8u << 20);
    struct cordon_json json = {.buf = &body};
    if (call->options->off && sets_any(call->options))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "--off and what may be reached can't be both");
    cordon_json_object_begin(&json);
    int r =
        cordon_cli_network_write(call->options->network, &call->options->domains, &call->options->headers, &json, err);
    cordon_json_object_end(&json);
    if (r == 0)
        r = cordon_guest_ask(call, "PUT", path, &body, NULL, err);
    cordon_buf_wipe(&body);
    return r;
}

/* A member as it stands, without quotes; "-" for null and for what is not there. */
static void show(const struct cordon_value *object, const char *name, int width)
{
    struct cordon_value value;
    bool there = cordon_value_member(object, name, &value) && value.kind != CORDON_VALUE_NULL;
    bool text = there && value.kind == CORDON_VALUE_STRING;
    (void)printf("%-*.*s ", width, there ? (int)value.size - 2 * text : 1, there ? value.data + text : "-");
}

static void show_entry(const struct cordon_value *entry)
{
    static const struct {
        const char *name;
        int width;
    } columns[] = {{"decision", 8},    {"name", 30},           {"address", 16}, {"port", 5}, {"count", 6},
                   {"bytes_sent", 10}, {"bytes_received", 12}, {"rule", 24},    {"why", 1}};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        show(entry, columns[i].name, columns[i].width);
    (void)puts("");
}

static void show_text(const struct cordon_value *egress)
{
    static const char *const plain[] = {"network", "egress_headers", "open"};
    struct cordon_value list, key, item;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        (void)printf("%-16s ", plain[i]);
        show(egress, plain[i], 1);
        (void)puts("");
    }
    struct cordon_value_walk walk = {0};
    if (cordon_value_member(egress, "counts", &list) && list.kind == CORDON_VALUE_OBJECT)
        walk = cordon_value_walk(&list);
    while (walk.p && cordon_value_next(&walk, &key, &item))
        (void)printf("%-16.*s %.*s\n", (int)key.size - 2, key.data + 1, (int)item.size, item.data);
    if (cordon_value_member(egress, "allowed_domains", &list) && list.kind == CORDON_VALUE_ARRAY)
        for (walk = cordon_value_walk(&list); cordon_value_next(&walk, &key, &item);)
            (void)printf("allowed          %.*s\n", (int)item.size - 2, item.data + 1);
    if (cordon_value_member(egress, "log", &list) && list.kind == CORDON_VALUE_ARRAY)
        for (walk = cordon_value_walk(&list); cordon_value_next(&walk, &key, &item);)
            show_entry(&item);
}

int cordon_guest_do_egress(struct cordon_guest_call *call, struct cordon_error *err)
{
    const struct cordon_guest_options *options = call->options;
    struct cordon_buf path = CORDON_BUF_INIT(8192), reply = CORDON_BUF_INIT(REPLY_MAX);
    struct cordon_value object;
    bool sets = sets_any(options) || options->off;
    int r = cordon_guest_path(&path, options->argv[0], sets ? "/egress" : "/egress/log", err);
    if (r == 0 && sets)
        r = set(call, path.data, err);
    else if (r == 0)
        r = cordon_guest_ask(call, "GET", path.data, NULL, &reply, err);
    if (r == 0 && !sets && options->json)
        r = fwrite(reply.data, 1, reply.size, stdout) == reply.size ? 0 : -EIO;
    else if (r == 0 && !sets && (r = cordon_value_parse(reply.data, reply.size, &object, err)) == 0)
        show_text(&object);
    cordon_buf_done(&path);
    cordon_buf_done(&reply);
    return r;
}
