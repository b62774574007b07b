/* SPDX-License-Identifier: Apache-2.0 */
/* What one key may have at once and start in a minute. Guests are counted where they are, in their table; here are the
 * runs and the rate: one account a key, forgotten once it is empty. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "core/guests_internal.h"

#define MIB (UINT64_C(1) << 20)
#define ACCOUNTS_MOST 4096u
#define WAIT_S 5u /* until it is worth asking again for what only ends when it ends */

struct account {
    struct account *next;
    char tenant[64];
    uint64_t runs, memory_bytes;
    double tokens;
    uint64_t filled_us;
};

static struct account *accounts;
static size_t account_count;

/* Who came without a key sits at the machine: keys' limits are not for him. */
static bool is_operator(const char *tenant)
{
    return !*tenant;
}

static uint64_t limit_of(enum cordon_setting id)
{
    int64_t value = cordon_guests.settings ? cordon_settings_int(cordon_guests.settings, CORDON_DOOR_NATIVE, id) : 0;
    return value > 0 ? (uint64_t)value : 0;
}

static void refill(struct account *account, uint64_t rate)
{
    uint64_t now = cordon_now_us();
    account->tokens += (double)rate * (double)(now - account->filled_us) / 60e6;
    account->tokens = fmin(account->tokens, (double)rate);
    account->filled_us = now;
}

/* With the lock held. Those with nothing on them give way. */
static void forget_empty(uint64_t rate)
{
    for (struct account **at = &accounts; *at;) {
        struct account *account = *at;
        refill(account, rate);
        if (account->runs || account->tokens < (double)rate) {
            at = &account->next;
            continue;
        }
        *at = account->next;
        free(account);
        account_count--;
    }
}

/* With the lock held; NULL: no memory. */
static struct account *account_of(const char *tenant)
{
    uint64_t rate = limit_of(CORDON_SET_KEY_RATE);
    for (struct account *account = accounts; account; account = account->next)
        if (strncmp(account->tenant, tenant, sizeof account->tenant - 1) == 0)
            return account;
    if (account_count >= ACCOUNTS_MOST)
        forget_empty(rate);
    struct account *account = calloc(1, sizeof *account);
    if (!account)
        return NULL;
    (void)snprintf(account->tenant, sizeof account->tenant, "%s", tenant); /* ids of keys are shorter */
    account->tokens = (double)rate;
    account->filled_us = cordon_now_us();
    account->next = accounts;
    accounts = account;
    account_count++;
    return account;
}

static uint64_t memory_of(const char *tenant, size_t *guests)
{
    uint64_t bytes = 0;
    *guests = 0;
    for (struct cordon_guest_item *item = cordon_guests.first; item; item = item->next) {
        if (item->gone || strcmp(item->tenant, tenant) != 0)
            continue;
        ++*guests;
        bytes += item->limits.memory_bytes;
    }
    return bytes;
}

static int say_memory(uint64_t used, uint64_t wanted, uint64_t most, struct cordon_error *err)
{
    return cordon_fail(
        err, -EDQUOT, CORDON_ERROR_QUOTA,
        "the key's runs and guests may have %llu MiB together (CORDON_KEY_MEMORY_MB): they have %llu, and "
        "this wants %llu more",
        (unsigned long long)(most / MIB), (unsigned long long)(used / MIB), (unsigned long long)(wanted / MIB));
}

int cordon_quota_guest_check(const char *tenant, enum cordon_door door, uint64_t memory_bytes, struct cordon_error *err)
{
    uint64_t most = limit_of(CORDON_SET_KEY_GUESTS), memory = limit_of(CORDON_SET_KEY_MEMORY_MB) * MIB;
    size_t guests;
    (void)door;
    if (is_operator(tenant))
        return 0;
    uint64_t used = memory_of(tenant, &guests);
    struct account *account = memory ? account_of(tenant) : NULL;
    used += account ? account->memory_bytes : 0;
    if (most && guests >= most)
        return cordon_fail(err, -EDQUOT, CORDON_ERROR_QUOTA,
                           "the key keeps %zu guests, as many as it may (CORDON_KEY_GUESTS): destroy one first",
                           guests);
    return memory && used + memory_bytes > memory ? say_memory(used, memory_bytes, memory, err) : 0;
}

int cordon_quota_run_enter(const char *tenant, uint64_t memory_bytes, struct cordon_error *err)
{
    uint64_t most = limit_of(CORDON_SET_KEY_RUNS), memory = limit_of(CORDON_SET_KEY_MEMORY_MB) * MIB;
    size_t guests;
    int r = 0;
    if (is_operator(tenant))
        return 0;
    cordon_guests_lock();
    struct account *account = account_of(tenant);
    uint64_t used = memory ? memory_of(tenant, &guests) + (account ? account->memory_bytes : 0) : 0;
    if (!account)
        r = cordon_fail_errno(err, -ENOMEM, "count a key's runs");
    else if (most && account->runs >= most)
        r = cordon_fail(err, -EDQUOT, CORDON_ERROR_QUOTA,
                        "the key has %llu runs under way, as many as it may (CORDON_KEY_RUNS): try again later",
                        (unsigned long long)account->runs);
    else if (memory && used + memory_bytes > memory)
        r = say_memory(used, memory_bytes, memory, err);
    if (r == 0) {
        account->runs++;
        account->memory_bytes += memory_bytes;
    }
    cordon_guests_unlock();
    return r;
}

void cordon_quota_run_leave(const char *tenant, uint64_t memory_bytes)
{
    if (is_operator(tenant))
        return;
    cordon_guests_lock();
    struct account *account = account_of(tenant);
    if (account && account->runs) {
        account->runs--;
        account->memory_bytes -= memory_bytes < account->memory_bytes ? memory_bytes : account->memory_bytes;
    }
    cordon_guests_unlock();
}

int cordon_quota_rate(const char *tenant, struct cordon_error *err)
{
    uint64_t rate = limit_of(CORDON_SET_KEY_RATE);
    if (!rate || is_operator(tenant))
        return 0;
    cordon_guests_lock();
    struct account *account = account_of(tenant);
    bool enough = true;
    if (account) {
        refill(account, rate);
        enough = account->tokens >= 1;
        account->tokens -= enough;
    }
    cordon_guests_unlock();
    if (enough)
        return 0;
    return cordon_fail(
        err, -EAGAIN, CORDON_ERROR_QUOTA,
        "the key may start %llu runs, guests and programs in a minute (CORDON_KEY_RATE): try again later",
        (unsigned long long)rate);
}

void cordon_quota_read(const char *tenant, struct cordon_quota_use *ret)
{
    uint64_t rate = limit_of(CORDON_SET_KEY_RATE);
    *ret = (struct cordon_quota_use){.rate_left = rate};
    cordon_guests_lock();
    ret->memory_bytes = memory_of(tenant, &ret->guests);
    for (struct account *account = accounts; account; account = account->next) { /* none is made for looking */
        if (strncmp(account->tenant, tenant, sizeof account->tenant - 1) != 0)
            continue;
        refill(account, rate);
        ret->runs = account->runs;
        ret->memory_bytes += account->memory_bytes;
        ret->rate_left = (uint64_t)account->tokens;
    }
    cordon_guests_unlock();
}

unsigned cordon_guests_retry_after_s(const struct cordon_error *err)
{
    uint64_t rate = limit_of(CORDON_SET_KEY_RATE);
    if (err->code != -EAGAIN || !rate)
        return WAIT_S;
    return (unsigned)((60 + rate - 1) / rate);
}
