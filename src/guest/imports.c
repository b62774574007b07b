/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which zygote a Python program should be forked from. A wrong guess costs time, never correctness: modules that were
 * not loaded are imported, ones that were not needed stay unused. So this reads lines, not Python.
 */
#include <string.h>

#include "guest/internal.h"

/* Roots of packages that the data zygote has loaded, or that import those. */
static const char *const roots[] = {"numpy",   "pandas",       "matplotlib", "scipy",   "seaborn",
                                    "sklearn", "statsmodels",  "networkx",   "plotly",  "xarray",
                                    "pylab",   "mpl_toolkits", "cv2",        "skimage", "sympy.plotting"};

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static const char *skip_spaces(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return at;
}

static bool starts_with_root(const char *at, const char *end)
{
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        size_t size = strlen(roots[i]);
        if ((size_t)(end - at) >= size && memcmp(at, roots[i], size) == 0 && (at + size == end || !is_name(at[size])))
            return true;
    }
    return false;
}

static const char *after_word(const char *at, const char *end, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(end - at) <= size || memcmp(at, word, size) != 0 || is_name(at[size]))
        return NULL;
    return skip_spaces(at + size, end);
}

/* One statement: `import a, b as c` or `from a import b`. */
static bool statement_imports(const char *at, const char *end)
{
    const char *name = after_word(at, end, "from");
    if (name)
        return starts_with_root(name, end);
    name = after_word(at, end, "import");
    while (name) {
        if (starts_with_root(name, end))
            return true;
        name = memchr(name, ',', (size_t)(end - name));
        name = name ? skip_spaces(name + 1, end) : NULL;
    }
    return false;
}

static bool line_imports(const char *at, const char *end)
{
    while (at && at < end) {
        at = skip_spaces(at, end);
        const char *stop = memchr(at, ';', (size_t)(end - at));
        if (statement_imports(at, stop ? stop : end))
            return true;
        at = stop ? stop + 1 : NULL;
    }
    return false;
}

/* `try: import numpy`, `if x: import pandas` */
static bool after_colon(const char *at, const char *end)
{
    const char *colon = memchr(at, ':', (size_t)(end - at));
    return colon && line_imports(colon + 1, end);
}

/* `importlib.import_module("numpy")`, `__import__('pandas')` */
static bool by_call(const char *at, const char *end)
{
    static const char *const calls[] = {"import_module(", "__import__("};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const char *call = memmem(at, (size_t)(end - at), calls[i], strlen(calls[i]));
        if (!call)
            continue;
        const char *name = skip_spaces(call + strlen(calls[i]), end);
        if (name < end && (*name == '"' || *name == '\'') && starts_with_root(name + 1, end))
            return true;
    }
    return false;
}

bool cordon_imports_data(const char *code, size_t size)
{
    const char *at = code, *end = code + size;
    while (at && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        if (line_imports(at, stop) || after_colon(at, stop) || by_call(at, stop))
            return true;
        at = newline ? newline + 1 : NULL;
    }
    return false;
}
