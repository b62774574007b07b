/* SPDX-License-Identifier: Apache-2.0 */
#include "door/e2b/box.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/json.h"

bool cordon_e2b_token_make(char to[CORDON_E2B_TOKEN_TEXT])
{
    unsigned char bytes[(CORDON_E2B_TOKEN_TEXT - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(to + 2 * i, 3, "%02x", bytes[i]); /* fits */
    return true;
}

bool cordon_e2b_token_ok(const char *token, const char *given)
{
    size_t size = strlen(token);
    return size && given && strlen(given) == size && CRYPTO_memcmp(token, given, size) == 0;
}

void cordon_e2b_box_write(const struct cordon_e2b_box *box, struct cordon_buf *to)
{
    const struct cordon_pair texts[] = {{"template", box->template_id},
                                        {"access", box->access_token},
                                        {"traffic", box->traffic_token},
                                        {"mask", box->mask_host}};
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cordon_json_key(&json, texts[i].key);
        cordon_json_text(&json, texts[i].value);
    }
    if (box->network.data) {
        cordon_json_key(&json, "network");
        cordon_json_raw(&json, box->network.data, box->network.size);
    }
    cordon_json_object_end(&json);
}

int cordon_e2b_box_read(struct cordon_bytes data, struct cordon_door_memory *memory, struct cordon_e2b_box *ret,
                        struct cordon_error *err)
{
    struct cordon_value object, network;
    *ret = (struct cordon_e2b_box){"", "", "", "", {0}};
    if (!data.size) /* of one that is gone */
        return 0;
    char *copy = cordon_door_take(memory, data.size + 1);
    if (!copy)
        return cordon_fail_errno(err, -ENOMEM, "reading what is kept of the sandbox");
    memcpy(copy, data.data, data.size);
    int r = cordon_value_parse(copy, data.size, &object, err);
    const struct {
        const char *name;
        const char **to;
    } texts[] = {{"template", &ret->template_id},
                 {"access", &ret->access_token},
                 {"traffic", &ret->traffic_token},
                 {"mask", &ret->mask_host}};
    for (size_t i = 0; r >= 0 && i < sizeof texts / sizeof *texts; i++)
        r = cordon_field_text(&object, texts[i].name, memory, texts[i].to, err);
    if (r >= 0)
        r = cordon_field_object(&object, "network", &network, err);
    if (r > 0)
        ret->network = (struct cordon_bytes){network.data, network.size};
    return r < 0 ? r : 0;
}
