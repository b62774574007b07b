/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/qmp.h"

#include <stdio.h>
#include <string.h>

#include "core/value.h"

static void violation(struct cordon_qmp_message *ret, const char *why)
{
    *ret = (struct cordon_qmp_message){.kind = CORDON_QMP_VIOLATION, .id = -1};
    (void)snprintf(ret->text, sizeof ret->text, "%s", why); /* fits */
}

/* What is shown to people is printable ASCII, whatever QEMU put there. */
static void make_printable(char *text)
{
    for (char *p = text; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

static void copy(const struct cordon_value *object, const char *name, char *to, size_t size)
{
    struct cordon_value value;
    *to = '\0';
    if (cordon_value_member(object, name, &value) && value.kind == CORDON_VALUE_STRING)
        cordon_value_copy(&value, to, size);
    make_printable(to);
}

static void read_greeting(const struct cordon_value *greeting, struct cordon_qmp_message *ret)
{
    struct cordon_value version, numbers, number;
    int64_t parts[3] = {0};
    static const char *const names[] = {"major", "minor", "micro"};
    ret->kind = CORDON_QMP_GREETING;
    if (!cordon_value_member(greeting, "version", &version) || !cordon_value_member(&version, "qemu", &numbers))
        return;
    for (size_t i = 0; i < 3; i++)
        if (cordon_value_member(&numbers, names[i], &number) && !cordon_value_integer(&number, &parts[i]))
            parts[i] = 0;
    (void)snprintf(ret->text, sizeof ret->text, "%lld.%lld.%lld", (long long)parts[0], (long long)parts[1],
                   (long long)parts[2]); /* fits */
}

static void read_event(const struct cordon_value *object, struct cordon_qmp_message *ret)
{
    struct cordon_value data;
    ret->kind = CORDON_QMP_EVENT;
    copy(object, "event", ret->name, sizeof ret->name);
    if (!cordon_value_member(object, "data", &data))
        return;
    copy(&data, "status", ret->status, sizeof ret->status);
    if (!ret->status[0])
        copy(&data, "reason", ret->status, sizeof ret->status);
}

static void read_object(const struct cordon_value *object, struct cordon_qmp_message *ret)
{
    struct cordon_value value;
    if (cordon_value_member(object, "QMP", &value)) {
        read_greeting(&value, ret);
        return;
    }
    if (cordon_value_member(object, "event", &value)) {
        read_event(object, ret);
        return;
    }
    if (cordon_value_member(object, "id", &value) && (!cordon_value_integer(&value, &ret->id) || ret->id < 0))
        ret->id = -1;
    if (cordon_value_member(object, "return", &value)) {
        ret->kind = CORDON_QMP_RETURN;
        copy(&value, "status", ret->status, sizeof ret->status);
    } else if (cordon_value_member(object, "error", &value)) {
        ret->kind = CORDON_QMP_ERROR;
        copy(&value, "desc", ret->text, sizeof ret->text);
    }
}

void cordon_qmp_next(const char *data, size_t size, size_t *used, struct cordon_qmp_message *ret)
{
    struct cordon_value object;
    const char *end = size ? memchr(data, '\n', size < CORDON_QMP_LINE_MAX ? size : CORDON_QMP_LINE_MAX) : NULL;
    *ret = (struct cordon_qmp_message){.kind = CORDON_QMP_MORE, .id = -1};
    *used = 0;
    if (!end && size >= CORDON_QMP_LINE_MAX) {
        violation(ret, "a line is longer than 64 KiB");
        return;
    }
    if (!end)
        return;
    if (cordon_value_parse(data, (size_t)(end - data), &object, NULL) < 0 || object.kind != CORDON_VALUE_OBJECT) {
        violation(ret, "a line is no JSON object");
        return;
    }
    *used = (size_t)(end - data) + 1;
    ret->kind = CORDON_QMP_OTHER;
    read_object(&object, ret);
    ret->halted = ret->kind == CORDON_QMP_RETURN && memmem(data, (size_t)(end - data), " HLT=1", 6);
}

int cordon_qmp_put(struct cordon_buf *to, uint32_t id, const char *command, const char *arguments)
{
    return cordon_buf_appendf(to, "{\"execute\":\"%s\",\"id\":%u%s%s}\n", command, id,
                              arguments ? ",\"arguments\":" : "", arguments ? arguments : "");
}
