/* SPDX-License-Identifier: Apache-2.0 */
#include "door/admin/admin.h"

static const struct cordon_http_route routes[] = {
    {"GET", "/admin", cordon_admin_page, CORDON_HTTP_OPEN, CORDON_HTTP_BODY_NONE, NULL, NULL, NULL, NULL},
    {"GET", "/admin/", cordon_admin_page, CORDON_HTTP_OPEN, CORDON_HTTP_BODY_NONE, NULL, NULL, NULL, NULL},
    {"GET", "/admin/{file}", cordon_admin_file, CORDON_HTTP_OPEN, CORDON_HTTP_BODY_NONE, NULL, NULL, NULL, NULL},
    {"POST", "/v1/admin/login", cordon_admin_login, CORDON_HTTP_OPEN, 4096,
     "Exchanges a key of scope admin or view, or a one-time link, for a session cookie.", "Login", "Session", NULL},
    {"POST", "/v1/admin/logout", cordon_admin_logout, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE, "Ends the session.",
     NULL, "Empty", NULL},
    {"GET", "/v1/admin/session", cordon_admin_session, CORDON_HTTP_OPEN, CORDON_HTTP_BODY_NONE,
     "Whose session the cookie names, and its CSRF token.", NULL, "Session", NULL},
    {"GET", "/v1/admin/settings", cordon_admin_settings_get, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE,
     "Every setting: its value (a secret's is masked), where that comes from, bounds, help. ETag: their revision.",
     NULL, "Settings", NULL},
    {"PUT", "/v1/admin/settings", cordon_admin_settings_put, CORDON_HTTP_ADMIN, 1u << 20,
     "Stores settings of runtime scope, all or none; null forgets one. The next run sees them. With If-Match: only if "
     "that is their revision still.",
     "SettingsChange", "Settings", NULL},
    {"POST", "/v1/admin/test", cordon_admin_trial_post, CORDON_HTTP_ADMIN, 1u << 20,
     "Runs the test program on a backend with settings that are not stored: one answer when it ended, or a line an "
     "event as it happens.",
     "Trial", "TrialAnswer", "TrialEvent"},
    {"GET", "/v1/admin/audit", cordon_admin_audit_get, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE,
     "Who changed what, newest first; before=ID and limit=N page through it.", NULL, "Audit", NULL},
    {"GET", "/v1/admin/history", cordon_admin_history_get, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE,
     "Runs that ended, newest first; backend, language, cause filter, before=ID and limit=N page.", NULL, "History",
     NULL},
    {"GET", "/v1/admin/history/{id}", cordon_admin_history_one, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE,
     "One run of the history, with its program and output where these are kept.", NULL, "HistoryEntry", NULL},
    {"GET", "/v1/admin/keys", cordon_admin_keys_get, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE, "The keys.", NULL,
     "Keys", NULL},
    {"POST", "/v1/admin/keys", cordon_admin_keys_post, CORDON_HTTP_ADMIN, 4096,
     "Makes a key; its text is in this answer only.", "KeyWanted", "Key", NULL},
    {"DELETE", "/v1/admin/keys/{id}", cordon_admin_keys_delete, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE,
     "Revokes a key.", NULL, "Empty", NULL},
    {"GET", "/v1/admin/quotas", cordon_admin_quotas_get, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE,
     "What each key may have (null: no limit of its own), and has now.", NULL, "Quotas", NULL},
    {"GET", "/v1/admin/doctor", cordon_admin_doctor_get, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE,
     "What cordon doctor tells: what this host lacks, and how to mend it. Looked for by the supervisor; null, with the "
     "reason, where it could not.",
     NULL, "Doctor", NULL},
};

#define OBJECT(properties) "{\"type\":\"object\",\"properties\":{" properties "}}"
#define TEXT "{\"type\":\"string\"}"
#define NUMBER "{\"type\":\"number\"}"
#define WHOLE "{\"type\":\"integer\"}"
#define FLAG "{\"type\":\"boolean\"}"
#define LIMIT "{\"type\":\"integer\",\"nullable\":true}"
#define LIST(name) "{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/" name "\"}}"

#define TRIAL                                                                                                          \
    "\"passed\":" FLAG ",\"message\":" TEXT ",\"cause\":" TEXT ",\"exit_code\":" WHOLE ",\"total_ms\":" NUMBER         \
    ",\"stdout\":" TEXT ",\"stderr\":" TEXT

static const struct cordon_http_schema schemas[] = {
    {"Empty", OBJECT("")},
    {"Login", OBJECT("\"key\":" TEXT ",\"link\":" TEXT)},
    {"Session",
     OBJECT("\"key\":{\"type\":\"string\",\"nullable\":true},\"name\":" TEXT ",\"scope\":" TEXT ",\"csrf\":" TEXT)},
    {"Setting", OBJECT("\"name\":" TEXT ",\"type\":" TEXT ",\"help\":" TEXT ",\"unit\":" TEXT ",\"default\":" TEXT
                       ",\"source\":" TEXT ",\"set_by\":" TEXT ",\"scope\":" TEXT ",\"secret\":" FLAG ",\"min\":" WHOLE
                       ",\"max\":" WHOLE ",\"value\":" TEXT ",\"stored\":" FLAG ",\"overridden\":" FLAG
                       ",\"changed_s\":" WHOLE ",\"changed_by\":" TEXT)},
    {"Settings", OBJECT("\"settings\":" LIST("Setting"))},
    {"SettingsChange",
     "{\"type\":\"object\",\"required\":[\"values\"],\"properties\":{\"values\":{\"type\":\"object\"}}}"},
    {"Trial", "{\"type\":\"object\",\"required\":[\"backend\"],\"properties\":{\"backend\":" TEXT
              ",\"values\":{\"type\":\"object\"}}}"},
    {"TrialAnswer", OBJECT(TRIAL)},
    {"TrialEvent", OBJECT("\"type\":{\"type\":\"string\",\"enum\":[\"probing\",\"connected\",\"started\",\"stdout\","
                          "\"stderr\",\"outcome\"]},\"data\":" TEXT ",\"data_b64\":" TEXT "," TRIAL)},
    {"AuditEntry", OBJECT("\"id\":" WHOLE ",\"at_s\":" WHOLE ",\"who\":" TEXT ",\"action\":" TEXT ",\"subject\":" TEXT
                          ",\"before\":" TEXT ",\"after\":" TEXT)},
    {"Audit", OBJECT("\"entries\":" LIST("AuditEntry"))},
    {"HistoryEntry",
     OBJECT("\"id\":" WHOLE ",\"at_ms\":" WHOLE ",\"key\":" TEXT ",\"door\":" TEXT ",\"backend\":" TEXT
            ",\"language\":" TEXT ",\"cause\":" TEXT ",\"message\":" TEXT ",\"exit_code\":" WHOLE
            ",\"queue_ms\":" NUMBER ",\"start_ms\":" NUMBER ",\"run_ms\":" NUMBER ",\"total_ms\":" NUMBER
            ",\"cpu_ms\":" NUMBER ",\"memory_peak_bytes\":" WHOLE ",\"stdout_bytes\":" WHOLE ",\"stderr_bytes\":" WHOLE
            ",\"code\":{\"type\":\"string\",\"nullable\":true}"
            ",\"stdout\":{\"type\":\"string\",\"nullable\":true}"
            ",\"stderr\":{\"type\":\"string\",\"nullable\":true}")},
    {"History", OBJECT("\"runs\":" LIST("HistoryEntry"))},
    {"KeyWanted", OBJECT("\"name\":" TEXT ",\"scope\":" TEXT)},
    {"Key", OBJECT("\"id\":" TEXT ",\"name\":" TEXT ",\"scope\":" TEXT ",\"created_s\":" WHOLE
                   ",\"revoked_s\":{\"type\":\"integer\",\"nullable\":true},\"key\":" TEXT)},
    {"Keys", OBJECT("\"keys\":" LIST("Key"))},
    {"Quota", OBJECT("\"id\":" TEXT ",\"name\":" TEXT ",\"scope\":" TEXT ",\"runs\":" WHOLE ",\"guests\":" WHOLE
                     ",\"memory_mb\":" WHOLE ",\"rate_left\":{\"type\":\"integer\",\"nullable\":true}")},
    {"Quotas", OBJECT("\"limits\":" OBJECT("\"runs\":" LIMIT ",\"guests\":" LIMIT ",\"memory_mb\":" LIMIT
                                           ",\"rate_per_minute\":" LIMIT) ",\"keys\":" LIST("Quota"))},
    {"Probe", OBJECT("\"name\":" TEXT ",\"weight\":{\"type\":\"string\",\"enum\":[\"needed\",\"lessens\",\"info\"]}"
                     ",\"ok\":" FLAG ",\"found\":" TEXT ",\"fix\":" TEXT)},
    {"Doctor",
     OBJECT("\"ok\":{\"type\":\"boolean\",\"nullable\":true},\"reason\":" TEXT
            ",\"probes\":{\"type\":\"array\",\"nullable\":true,\"items\":{\"$ref\":\"#/components/schemas/Probe\"}}"
            ",\"daemon\":{\"$ref\":\"#/components/schemas/Ready\"}")},
};

const struct cordon_http_door cordon_door_admin = {
    .name = "admin",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .schemas = schemas,
    .schema_count = sizeof schemas / sizeof *schemas,
};
