/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signature is a hash over the token and what is asked for, so no table leads from it to its guest: all tokens are
 * tried. They are kept here apart, so that trying them costs a hash each and not a list of all guests with what their
 * doors keep beside them. Guests of an earlier gateway are read once; those that are gone are left out when the table
 * is full, before it grows.
 */
#include "door/e2b/tokens.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "door/e2b/box.h"

struct token {
    char id[CORDON_GUEST_ID], text[CORDON_E2B_TOKEN_TEXT];
};

static struct {
    pthread_mutex_t lock;
    struct token *items;
    size_t count, room;
    bool read; /* those that were there when the gateway started */
} tokens = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_gone(const char *id)
{
    struct cordon_guest_info *info;
    if (cordon_guests_info(cordon_guests_all, id, &info, NULL) < 0)
        return true;
    bool gone = info->condition == CORDON_GUEST_IS_GONE;
    cordon_guest_info_free(info);
    return gone;
}

/* Those of guests that are gone leave; where that does not free half of it the table doubles. */
static int make_room(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < tokens.count; i++)
        if (!is_gone(tokens.items[i].id))
            tokens.items[kept++] = tokens.items[i];
    explicit_bzero(tokens.items + kept, (tokens.count - kept) * sizeof *tokens.items);
    tokens.count = kept;
    if (kept < tokens.room / 2)
        return 0;
    size_t room = tokens.room ? tokens.room * 2 : 16;
    struct token *items = calloc(room, sizeof *items);
    if (!items)
        return kept < tokens.room ? 0 : -ENOMEM;
    if (kept)
        memcpy(items, tokens.items, kept * sizeof *items);
    if (tokens.items)
        explicit_bzero(tokens.items, tokens.room * sizeof *items);
    free(tokens.items);
    tokens.items = items;
    tokens.room = room;
    return 0;
}

/* With the lock held. */
static int add(const struct cordon_guest_info *guest)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_e2b_box box;
    if (cordon_e2b_box_read(guest->private_data, &memory, &box, NULL) < 0 || !*box.access_token)
        return 0; /* nothing is signed with it */
    size_t size = strlen(box.access_token);
    if (size >= sizeof tokens.items->text)
        return 0; /* none of ours */
    int r = tokens.count == tokens.room ? make_room() : 0;
    if (r < 0)
        return r;
    struct token *item = &tokens.items[tokens.count++];
    memcpy(item->id, guest->id, sizeof item->id);
    memcpy(item->text, box.access_token, size + 1);
    return 0;
}

void cordon_e2b_tokens_add(const struct cordon_guest_info *guest)
{
    pthread_mutex_lock(&tokens.lock);
    (void)add(guest); /* see tokens.h */
    pthread_mutex_unlock(&tokens.lock);
}

/* With the lock held: who is made meanwhile waits to be added, at worst as well. */
static int read_all(struct cordon_error *err)
{
    char after[sizeof((struct cordon_guest_page *)0)->next] = "";
    int r = 0;
    tokens.count = 0; /* the lists have them, too */
    do {
        struct cordon_guest_query query = {
            .tenant = cordon_guests_all, .door = CORDON_DOOR_E2B, .limit = 500, .after = after};
        struct cordon_guest_page page = {0};
        if ((r = cordon_guests_list(&query, &page, err)) < 0)
            return r;
        for (size_t i = 0; i < page.count && r == 0; i++)
            r = add(page.guests[i]);
        memcpy(after, page.next, sizeof after);
        cordon_guest_page_done(&page);
    } while (after[0] && r == 0);
    tokens.read = r == 0;
    return r < 0 ? cordon_fail_errno(err, r, "reading the sandboxes' tokens") : 0;
}

int cordon_e2b_tokens_find(bool (*fits)(void *context, const char *token), void *context, char id[CORDON_GUEST_ID],
                           struct cordon_error *err)
{
    pthread_mutex_lock(&tokens.lock);
    int r = tokens.read ? 0 : read_all(err);
    for (size_t i = 0; i < tokens.count && r == 0; i++) {
        if (!fits(context, tokens.items[i].text))
            continue;
        memcpy(id, tokens.items[i].id, CORDON_GUEST_ID);
        r = 1;
    }
    pthread_mutex_unlock(&tokens.lock);
    return r;
}
