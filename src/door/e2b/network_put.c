/* SPDX-License-Identifier: Apache-2.0 */
/* PUT /sandboxes/{sandboxID}/network: replaces everything that was said of the network before. */
#include <errno.h>

#include "door/e2b/control.h"

/* What is kept to be told again: this network in place of the one before. */
static int note_network(const struct cordon_guest_info *guest, const struct cordon_e2b_network *network,
                        struct cordon_buf *to, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_e2b_box box;
    int r = cordon_e2b_box_read(guest->private_data, &memory, &box, err);
    if (r < 0)
        return r;
    box.network = (struct cordon_bytes){network->whole.data, network->whole.size};
    cordon_e2b_box_write(&box, to);
    return to->failed ? cordon_fail(err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE, "the network's rules are too many") : 0;
}

static int change(const struct cordon_http_request *request, const struct cordon_guest_info *guest,
                  const struct cordon_e2b_network *network, struct cordon_error *err)
{
    struct cordon_buf note = CORDON_BUF_INIT(CORDON_GUEST_PRIVATE_MAX);
    int r = note_network(guest, network, &note, err);
    const struct cordon_guest_network set = {.on = network->on,
                                             .allowed_domains = network->entries.items,
                                             .allowed_domain_count = network->entries.count,
                                             .headers = network->headers,
                                             .header_count = network->header_count,
                                             .private_data = {note.data, note.size}};
    if (r == 0)
        r = cordon_guests_set_network(request->subject, guest->id, &set, err);
    cordon_buf_wipe(&note); /* tokens */
    return r;
}

int cordon_e2b_network_put(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    const struct cordon_doors *doors = request->context;
    struct cordon_guest_info *guest;
    struct cordon_e2b_network network;
    struct cordon_value body;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = cordon_e2b_network_read(doors->settings, &body, &body, &memory, &network, err);
    if (r < 0)
        return r;
    r = cordon_e2b_find(request, true, &guest, err);
    if (r < 0)
        return r;
    r = change(request, guest, &network, err);
    cordon_guest_info_free(guest);
    return r < 0 ? r : cordon_e2b_reply_nothing(request, err);
}
