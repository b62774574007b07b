/* SPDX-License-Identifier: Apache-2.0 */
/* The languages that have contexts, and the programs that are their interpreters' drivers. */
#include <string.h>
#include <strings.h>

#include "cells/internal.h"

#define ASSETS(X)                                                                                                      \
    X(boot_py)                                                                                                         \
    X(cell_py) X(cell_show_py) X(cell_plot_py) X(cell_magic_py) X(boot_js) X(cell_js) X(cell_show_js) X(cell_control_js)
#define X_DECLARE(name)                                                                                                \
    extern const char cordon_asset_##name[];                                                                           \
    extern const uint64_t cordon_asset_##name##_size;
ASSETS(X_DECLARE)

static const struct cordon_cells_source python_sources[] = {
    {"boot", cordon_asset_boot_py, &cordon_asset_boot_py_size},
    {"", cordon_asset_cell_py, &cordon_asset_cell_py_size},
    {"show", cordon_asset_cell_show_py, &cordon_asset_cell_show_py_size},
    {"plot", cordon_asset_cell_plot_py, &cordon_asset_cell_plot_py_size},
    {"magic", cordon_asset_cell_magic_py, &cordon_asset_cell_magic_py_size},
    {0},
};
static const struct cordon_cells_source javascript_sources[] = {
    {"boot", cordon_asset_boot_js, &cordon_asset_boot_js_size},
    {"", cordon_asset_cell_js, &cordon_asset_cell_js_size},
    {"show", cordon_asset_cell_show_js, &cordon_asset_cell_show_js_size},
    {"control", cordon_asset_cell_control_js, &cordon_asset_cell_control_js_size}, /* the last one: see cell.js */
    {0},
};
static const char *const python_argv[] = {"python3", "-c", "{boot}", NULL};
/* The checks end a process whose code was ended within a callback, which is what an interrupt does. V8 has its own
 * limit of memory; the guest's is the one that is to count. */
static const char *const javascript_argv[] = {
    "node", "--no-force-async-hooks-checks", "--max-old-space-size={memory}", "-e", "{boot}", NULL};

static const struct cordon_cells_language languages[] = {
    {.name = "python", .aliases = "py,python3,ipython", .stays = true, .argv = python_argv, .sources = python_sources},
    {.name = "javascript",
     .aliases = "js,node,nodejs",
     .stays = true,
     .by_frame = true,
     .argv = javascript_argv,
     .sources = javascript_sources},
    {.name = "bash", .aliases = "sh,shell"},
};

static bool is_alias(const char *aliases, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = aliases; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == size && strncasecmp(at, name, size) == 0)
            return true;
    return false;
}

const struct cordon_cells_language *cordon_cells_language(const char *name)
{
    if (!name)
        return &languages[0];
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++)
        if (strcasecmp(languages[i].name, name) == 0 || is_alias(languages[i].aliases, name))
            return &languages[i];
    return NULL;
}
