/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/secret.h"

static const char *log_role = "cordon";
static enum cordon_log_level log_level = CORDON_LOG_INFO;
static bool log_json;

static const char *const level_names[] = {"error", "warn", "info", "debug"};

void cordon_log_setup(const char *role, enum cordon_log_level level, bool json)
{
    log_role = role;
    log_level = level;
    log_json = json;
}

bool cordon_log_level_parse(const char *name, enum cordon_log_level *ret)
{
    for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *ret = (enum cordon_log_level)i;
            return true;
        }
    }
    return false;
}

bool cordon_log_wants(enum cordon_log_level level)
{
    return level <= log_level;
}

const char *cordon_log_number(char text[24], long long number)
{
    (void)snprintf(text, 24, "%lld", number); /* 24 bytes hold any long long */
    return text;
}

static void put_field(struct cordon_buf *line, const char *key, const char *text)
{
    cordon_autofree char *value = strdup(text ? text : "");
    if (!value) {
        line->failed = true;
        return;
    }
    cordon_secret_mask(value);
    if (log_json) {
        (void)cordon_buf_appends(line, line->size > 1 ? "," : "");
        cordon_json_string(line, key, strlen(key));
        (void)cordon_buf_appends(line, ":");
        cordon_json_string(line, value, strlen(value));
        return;
    }
    bool plain = *value && !strpbrk(value, " \"=\\\x7f");
    for (const char *p = value; *p && plain; p++)
        plain = (unsigned char)*p >= ' '; /* what steers a terminal is escaped */
    (void)cordon_buf_appendf(line, "%s%s=", line->size ? " " : "", key);
    if (plain)
        (void)cordon_buf_appends(line, value);
    else
        cordon_json_string(line, value, strlen(value));
}

static void put_time(struct cordon_buf *line)
{
    struct timespec ts;
    struct tm tm;
    char text[64];
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    if (!gmtime_r(&ts.tv_sec, &tm))
        return;
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(text + n, sizeof text - n, ".%06ldZ", ts.tv_nsec / 1000);
    put_field(line, "ts", text);
}

static void write_line(struct cordon_buf *line)
{
    (void)cordon_buf_appends(line, log_json ? "}\n" : "\n");
    if (!line->failed)
        (void)cordon_write_full(STDERR_FILENO, line->data, line->size); /* nobody is left to tell */
    cordon_buf_done(line);
}

void cordon_log(enum cordon_log_level level, const char *message, ...)
{
    if (level > log_level)
        return;
    struct cordon_buf line = CORDON_BUF_INIT(16384);
    if (log_json)
        (void)cordon_buf_appends(&line, "{");
    put_time(&line);
    put_field(&line, "level", level_names[level]);
    put_field(&line, "role", log_role);
    put_field(&line, "msg", message);
    va_list ap;
    va_start(ap, message);
    for (const char *key; (key = va_arg(ap, const char *));)
        put_field(&line, key, va_arg(ap, const char *));
    va_end(ap);
    write_line(&line);
}

void cordon_log_error(const char *message, const struct cordon_error *err)
{
    cordon_log(CORDON_LOG_ERROR, message, "kind", cordon_error_name(err->kind), "error", err->message, "detail",
               err->detail, NULL);
}
