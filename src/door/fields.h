/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the members of a JSON object that a client wrote, for doors whose protocols pass over what they don't know.
 * A member that is null counts as left out; of one that is there twice, the last counts. Errors are INVALID and name
 * the member, what was found and what is needed.
 */
#ifndef CORDON_DOOR_FIELDS_H
#define CORDON_DOOR_FIELDS_H

#include "base/buf.h"
#include "core/guests.h"
#include "core/value.h"

/* What a request's texts are copied to: freed as a whole. All zero at the start. */
struct cordon_door_memory {
    struct cordon_door_block *blocks;
};
void *cordon_door_take(struct cordon_door_memory *memory, size_t size); /* zeroed; NULL: no memory */
void cordon_door_forget(struct cordon_door_memory *memory);
#define cordon_autoforget __attribute__((cleanup(cordon_door_forget)))

/* A body that must be an object; an empty one counts as {}. */
int cordon_fields_parse(const struct cordon_buf *body, struct cordon_value *ret, struct cordon_error *err);

/* Each: 1 when it is there, 0 when not (and *ret untouched), negative with err when it is something else. */
int cordon_field(const struct cordon_value *object, const char *name, struct cordon_value *ret);
int cordon_field_object(const struct cordon_value *object, const char *name, struct cordon_value *ret,
                        struct cordon_error *err);
int cordon_field_bool(const struct cordon_value *object, const char *name, bool *ret, struct cordon_error *err);
/* A whole number; also as a string, which is how JSON of protocol buffers has large ones. */
int cordon_field_int(const struct cordon_value *object, const char *name, int64_t min, int64_t max, int64_t *ret,
                     struct cordon_error *err);
/* Without NULs. */
int cordon_field_text(const struct cordon_value *object, const char *name, struct cordon_door_memory *memory,
                      const char **ret, struct cordon_error *err);
/* A list of texts. */
struct cordon_texts {
    const char **items; /* NULL-terminated where count is not 0 */
    size_t count;
};
int cordon_field_texts(const struct cordon_value *object, const char *name, struct cordon_door_memory *memory,
                       struct cordon_texts *ret, struct cordon_error *err);
/* An object of texts. */
struct cordon_pairs {
    struct cordon_pair *items;
    size_t count;
};
int cordon_field_pairs(const struct cordon_value *object, const char *name, struct cordon_door_memory *memory,
                       struct cordon_pairs *ret, struct cordon_error *err);
/* The same as "NAME=VALUE" texts; a name that no environment can have is INVALID. */
int cordon_field_env(const struct cordon_value *object, const char *name, struct cordon_door_memory *memory,
                     struct cordon_texts *ret, struct cordon_error *err);
/* Base64, standard or for URLs, with padding or without, appended to ret. */
int cordon_field_bytes(const struct cordon_value *object, const char *name, struct cordon_buf *ret,
                       struct cordon_error *err);

/* Appends text, decoded as above; 0, -EINVAL, or an append's error. */
int cordon_door_unbase64(struct cordon_buf *to, const char *text, size_t size);

#endif
