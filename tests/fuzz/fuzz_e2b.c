/* SPDX-License-Identifier: Apache-2.0 */
/* What E2B's and CreateOS's doors read of strangers. The first byte chooses the reader. */
#include <stdlib.h>
#include <string.h>

#include "door/createos/egress.h"
#include "door/e2b/address.h"
#include "door/e2b/envelope.h"
#include "door/e2b/inflate.h"
#include "door/e2b/metadata.h"
#include "door/e2b/signature.h"
#include "door/json_time.h"
#include "fuzz.h"

static void check_address(const struct cordon_e2b_address *found)
{
    size_t size = strlen(found->id);
    if (size >= CORDON_E2B_ID_TEXT || strspn(found->id, "abcdefghijklmnopqrstuvwxyz0123456789") != size)
        abort();
    if (size && !found->port)
        abort();
}

static void addresses(const char *text, size_t size)
{
    struct cordon_e2b_address found;
    const char *second = text + strlen(text) + (strlen(text) < size);
    if (cordon_e2b_address_host(text, &found)) {
        check_address(&found);
        if (!found.id[0])
            abort();
    }
    if (cordon_e2b_address_headers(text, second, &found))
        check_address(&found);
}

static void envelope(const char *text, size_t size)
{
    struct cordon_bytes message;
    struct cordon_value value;
    struct cordon_error err = {0};
    int r = cordon_e2b_envelope_read(text, size, &message, &err);
    if (r < 0 && err.kind == CORDON_ERROR_NONE)
        abort();
    if (r == 0 && (message.data < text || message.data + message.size != text + size))
        abort();
    const struct cordon_buf body = {.data = r == 0 ? (char *)(uintptr_t)message.data : NULL,
                                    .size = r == 0 ? message.size : 0};
    if (r == 0)
        (void)cordon_fields_parse(&body, &value, &err); /* good or not, it must not read beyond */
}

static void signature(const char *text, size_t size)
{
    const char *parts[5] = {text, "", "", "", ""};
    size_t count = 1;
    for (size_t i = 0; i < size && count < 5; i++)
        if (!text[i])
            parts[count++] = text + i + 1;
    struct cordon_e2b_signed what = {parts[0], "read", parts[1], parts[2]};
    char good[CORDON_E2B_SIGNATURE_TEXT];
    if (*parts[3] && cordon_e2b_sign(&what, parts[3], good) && !cordon_e2b_signature_ok(&what, parts[3], good))
        abort();
    (void)cordon_e2b_signature_ok(&what, parts[3], parts[4]);
    (void)cordon_e2b_signature_expired(parts[2], 1000);
}

static void metadata(const char *text, size_t size)
{
    struct cordon_door_memory memory = {0};
    struct cordon_pairs pairs;
    struct cordon_error err = {0};
    int r = cordon_e2b_metadata_read(text, &memory, &pairs, &err);
    if (r < 0 && err.kind == CORDON_ERROR_NONE)
        abort();
    for (size_t i = 0; r == 0 && i < pairs.count; i++)
        if (strlen(pairs.items[i].key) + strlen(pairs.items[i].value) > size)
            abort();
    cordon_door_forget(&memory);
}

static void egress(const char *text, size_t size)
{
    struct cordon_createos_egress found;
    struct cordon_error err = {0};
    const char *items[2] = {text, text + strlen(text) + (strlen(text) < size)};
    const struct cordon_texts list = {items, 2};
    int r = cordon_createos_egress_read(&list, &found, &err);
    if ((r < 0 && err.kind != CORDON_ERROR_INVALID) || (r == 0 && !found.named))
        abort();
}

static void fields(const char *text, size_t size)
{
    struct cordon_door_memory memory = {0};
    struct cordon_error err = {0};
    struct cordon_value object;
    struct cordon_texts texts;
    struct cordon_buf bytes = CORDON_BUF_INIT(1u << 20);
    const struct cordon_buf body = {.data = (char *)(uintptr_t)text, .size = size};
    const char *string;
    int64_t number;
    if (cordon_fields_parse(&body, &object, &err) == 0) {
        (void)cordon_field_text(&object, "a", &memory, &string, &err); /* good or not: none may go astray */
        (void)cordon_field_int(&object, "a", -5, 5, &number, &err);
        (void)cordon_field_texts(&object, "b", &memory, &texts, &err);
        (void)cordon_field_env(&object, "c", &memory, &texts, &err);
        (void)cordon_field_bytes(&object, "d", &bytes, &err);
    }
    int64_t us;
    (void)cordon_time_parse(text, &us);
    cordon_buf_done(&bytes);
    cordon_door_forget(&memory);
}

static int count(void *context, const char *data, size_t size)
{
    size_t *left = context;
    if (size > *left)
        return -1;
    *left -= size;
    return 0;
}

static void gzip(const char *text, size_t size)
{
    size_t left = 1u << 22;
    struct cordon_e2b_inflate *inflate = cordon_e2b_inflate_new(count, &left);
    if (inflate)
        (void)cordon_e2b_inflate_feed(inflate, text, size);
    cordon_e2b_inflate_free(inflate);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const char *, size_t) = {addresses, envelope, signature, metadata,
                                                            egress,    fields,   gzip};
    if (!size)
        return 0;
    char *text = malloc(size); /* one byte less, and a NUL behind it */
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    readers[data[0] % (sizeof readers / sizeof *readers)](text, size - 1);
    free(text);
    return 0;
}
