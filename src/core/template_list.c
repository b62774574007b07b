/* SPDX-License-Identifier: Apache-2.0 */
#include "core/template_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

/* An entry of the folder whose name is one of a template: its name's length. */
static size_t template_of(const char *file, char name[CORDON_TEMPLATE_NAME])
{
    size_t size = strlen(file), ending = strlen(CORDON_TEMPLATE_ENDING);
    if (size <= ending || size - ending >= CORDON_TEMPLATE_NAME ||
        strcmp(file + size - ending, CORDON_TEMPLATE_ENDING) != 0)
        return 0;
    memcpy(name, file, size - ending);
    name[size - ending] = '\0';
    return cordon_template_name_valid(name) ? size - ending : 0;
}

static void write_packages(const char *recipe, const char *kind, struct cordon_json *json)
{
    size_t size = strlen(kind);
    cordon_json_array_begin(json);
    for (const char *line = recipe; *line;) {
        size_t length = strcspn(line, "\n");
        if (length > size && strncmp(line, kind, size) == 0 && line[size] == ' ')
            cordon_json_bytes(json, line + size + 1, length - size - 1);
        line += length + (line[length] == '\n');
    }
    cordon_json_array_end(json);
}

void cordon_template_write(const char *name, const struct cordon_template_header *header, struct cordon_json *json)
{
    char hex[65];
    cordon_json_object_begin(json);
    cordon_json_key(json, "name");
    cordon_json_text(json, name);
    cordon_json_key(json, "kind");
    cordon_json_text(json, header->kind == CORDON_TEMPLATE_ROOTFS ? "rootfs" : "layer");
    cordon_json_key(json, "from");
    cordon_json_text(json, header->from);
    cordon_json_key(json, "base");
    cordon_json_text(json, header->base);
    cordon_json_key(json, "pip");
    write_packages(header->recipe, "pip", json);
    cordon_json_key(json, "npm");
    write_packages(header->recipe, "npm", json);
    cordon_json_key(json, "bytes");
    cordon_json_int(json, (int64_t)header->payload_bytes);
    cordon_json_key(json, "created_s");
    cordon_json_int(json, header->created_s);
    cordon_template_hex(header->digest, hex);
    cordon_json_key(json, "digest");
    cordon_json_text(json, hex);
    cordon_template_hex(header->key, hex);
    cordon_json_key(json, "key");
    cordon_json_text(json, hex);
    cordon_json_object_end(json);
}

int cordon_template_read(int folder, const char *name, bool verify, struct cordon_template_header *ret,
                         struct cordon_error *err)
{
    static const char text[] = "there is no template %.80s (see cordon template list)";
    if (!cordon_template_name_valid(name))
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, text, name);
    cordon_autoclose int file = cordon_template_file_open(folder, name, err);
    if (file == -ENOENT)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, text, name);
    int r = file < 0 ? file : cordon_template_file_header(file, ret, err);
    if (r == 0 && verify)
        r = cordon_template_file_verify(file, ret, err);
    if (r < 0)
        cordon_error_context(err, "template %s", name);
    return r;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int cordon_templates_each(int folder, cordon_template_visit *visit, void *context, struct cordon_error *err)
{
    struct cordon_template_header header; /* 9 KiB */
    struct dirent **entries = NULL;
    char name[CORDON_TEMPLATE_NAME];
    int count = scandirat(folder, ".", &entries, NULL, by_name);
    if (count < 0)
        return cordon_fail_errno(err, -errno, "list the templates");
    for (int i = 0; i < count; i++) {
        struct cordon_error why = {0};
        if (template_of(entries[i]->d_name, name))
            visit(context, name, cordon_template_read(folder, name, false, &header, &why) < 0 ? NULL : &header, &why);
        free(entries[i]);
    }
    free(entries);
    return 0;
}
