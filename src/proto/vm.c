/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/vm.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define LEASED_SIZE 4u
#define MACHINE_ID 32u

static void put_number(char **at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *(*at)++ = (char)(value >> (8 * i));
}

static uint64_t take_number(const char **at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | (uint8_t)(*at)[i];
    *at += bytes;
    return value;
}

static void put_bytes(char **at, const char *from, size_t size)
{
    memcpy(*at, from, size);
    *at += size;
}

static void take_bytes(const char **at, char *to, size_t size)
{
    memcpy(to, *at, size);
    *at += size;
}

/* Is it a text of these characters, of `least` or more of them, with zeros behind? */
static bool is_text(const char text[CORDON_VM_TEXT], const char *allowed, size_t least)
{
    size_t length = strnlen(text, CORDON_VM_TEXT);
    if (length == CORDON_VM_TEXT || length < least || strspn(text, allowed) != length)
        return false;
    for (size_t i = length; i < CORDON_VM_TEXT; i++)
        if (text[i])
            return false;
    return true;
}

#define DIGITS "0123456789"
#define NAMES DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-."

void cordon_vm_ready_put(struct cordon_buf *to, const struct cordon_vm_ready *ready)
{
    char bytes[CORDON_VM_READY_SIZE], *at = bytes;
    put_number(&at, CORDON_VM_VERSION, 4);
    put_number(&at, ready->language, 4);
    put_number(&at, ready->kept, 4);
    put_number(&at, ready->memory_available_bytes, 8);
    put_number(&at, ready->boot_ms, 4);
    (void)cordon_frame_put(to, CORDON_FRAME_VM_READY, 0, bytes, sizeof bytes); /* sticks in to->failed */
}

int cordon_vm_ready_parse(const struct cordon_frame *frame, struct cordon_vm_ready *ret)
{
    if (frame->type != CORDON_FRAME_VM_READY || frame->exec != 0 || frame->length != CORDON_VM_READY_SIZE)
        return -EBADMSG;
    const char *at = frame->payload;
    if (take_number(&at, 4) != CORDON_VM_VERSION)
        return -EBADMSG;
    struct cordon_vm_ready found = {.language = (uint32_t)take_number(&at, 4)};
    found.kept = (uint32_t)take_number(&at, 4);
    found.memory_available_bytes = take_number(&at, 8);
    found.boot_ms = (uint32_t)take_number(&at, 4);
    if (found.language > CORDON_VM_BASH || found.kept > 1)
        return -EBADMSG;
    *ret = found;
    return 0;
}

void cordon_vm_lease_put(struct cordon_buf *to, const struct cordon_vm_lease *lease)
{
    char bytes[CORDON_VM_LEASE_SIZE], *at = bytes;
    put_number(&at, CORDON_VM_VERSION, 4);
    put_number(&at, lease->flags, 4);
    put_bytes(&at, lease->entropy, CORDON_VM_ENTROPY);
    put_number(&at, lease->realtime_ns, 8);
    put_bytes(&at, lease->guest, CORDON_VM_TEXT);
    put_bytes(&at, lease->hostname, CORDON_VM_TEXT);
    put_bytes(&at, lease->machine_id, CORDON_VM_TEXT);
    put_number(&at, lease->memory_bytes, 8);
    put_number(&at, lease->disk_bytes, 8);
    put_number(&at, lease->disk_inodes, 8);
    put_number(&at, lease->pids, 4);
    put_number(&at, lease->open_files, 4);
    put_number(&at, lease->cpu_percent, 4);
    put_number(&at, 0, 4);                                                     /* room, for the next number */
    (void)cordon_frame_put(to, CORDON_FRAME_VM_LEASE, 0, bytes, sizeof bytes); /* sticks in to->failed */
}

int cordon_vm_lease_parse(const struct cordon_frame *frame, struct cordon_vm_lease *ret)
{
    if (frame->type != CORDON_FRAME_VM_LEASE || frame->exec != 0 || frame->length != CORDON_VM_LEASE_SIZE)
        return -EBADMSG;
    const char *at = frame->payload;
    if (take_number(&at, 4) != CORDON_VM_VERSION)
        return -EBADMSG;
    struct cordon_vm_lease found = {.flags = (uint32_t)take_number(&at, 4)};
    take_bytes(&at, found.entropy, CORDON_VM_ENTROPY);
    found.realtime_ns = take_number(&at, 8);
    take_bytes(&at, found.guest, CORDON_VM_TEXT);
    take_bytes(&at, found.hostname, CORDON_VM_TEXT);
    take_bytes(&at, found.machine_id, CORDON_VM_TEXT);
    found.memory_bytes = take_number(&at, 8);
    found.disk_bytes = take_number(&at, 8);
    found.disk_inodes = take_number(&at, 8);
    found.pids = (uint32_t)take_number(&at, 4);
    found.open_files = (uint32_t)take_number(&at, 4);
    found.cpu_percent = (uint32_t)take_number(&at, 4);
    if (take_number(&at, 4) != 0 || found.flags > CORDON_VM_REHEARSAL) /* one of them at most */
        return -EBADMSG;
    if (!is_text(found.guest, NAMES "_:", 1) || !is_text(found.hostname, NAMES, 1) ||
        !is_text(found.machine_id, DIGITS "abcdef", MACHINE_ID) || found.machine_id[MACHINE_ID])
        return -EBADMSG;
    *ret = found;
    return 0;
}

void cordon_vm_leased_put(struct cordon_buf *to)
{
    char bytes[LEASED_SIZE], *at = bytes;
    put_number(&at, CORDON_VM_VERSION, 4);
    (void)cordon_frame_put(to, CORDON_FRAME_VM_LEASED, 0, bytes, sizeof bytes); /* sticks in to->failed */
}

int cordon_vm_leased_parse(const struct cordon_frame *frame)
{
    bool good = frame->type == CORDON_FRAME_VM_LEASED && frame->exec == 0 && frame->length == LEASED_SIZE &&
                cordon_frame_u32(frame, 0) == CORDON_VM_VERSION;
    return good ? 0 : -EBADMSG;
}
