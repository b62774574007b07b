/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Schemas of what /v1/guests takes and gives. */
#include "door/guests/guests.h"

/* The documents are to be read as such. */
/* clang-format off */
#define STRING "{\"type\":\"string\"}"
#define STRING_OR_NULL "{\"type\":\"string\",\"nullable\":true}"
#define BOOLEAN "{\"type\":\"boolean\"}"
#define INTEGER "{\"type\":\"integer\"}"
#define NUMBER "{\"type\":\"number\"}"
#define STRINGS "{\"type\":\"array\",\"items\":" STRING "}"
#define TEXTS "{\"type\":\"object\",\"additionalProperties\":" STRING "}"
#define DOC(type, text) "{\"type\":\"" type "\",\"description\":\"" text "\"}"
#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"
#define LIST(name) "{\"type\":\"array\",\"items\":" REF(name) "}"
#define OBJECT(properties) "{\"type\":\"object\",\"properties\":{" properties "}}"
#define STRICT(properties) "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{" properties "}}"
#define NETWORK                                                                                                        \
    "\"network\":" DOC("boolean", "Off by default.") ",\"allowed_domains\":" STRINGS ",\"egress_headers\":"            \
    "{\"type\":\"object\",\"writeOnly\":true,\"additionalProperties\":" TEXTS ",\"description\":\"Put into requests to "  \
    "a host, without being in the guest: {HOST: {NAME: VALUE}}. Values are kept sealed and never told.\"}"

static const char new_guest[] = STRICT(
    "\"name\":" DOC("string", "Unique among the key's guests that are not gone.") ","
    "\"template\":" STRING ",\"backend\":" STRING ",\"metadata\":" TEXTS ","
    "\"env\":" TEXTS ",\"memory_mb\":" INTEGER ",\"disk_mb\":" INTEGER ",\"disk_inodes\":" INTEGER ","
    "\"processes\":" INTEGER ",\"cpu_percent\":" INTEGER "," NETWORK ","
    "\"ttl_s\":" DOC("number", "Its life; 0 or left out: no end of its own.") ","
    "\"at_end\":{\"type\":\"string\",\"enum\":[\"destroy\",\"pause\"]},"
    "\"idle_pause_s\":" DOC("number", "It pauses after so long without activity; 0: never.") ","
    "\"auto_resume\":" DOC("boolean", "An operation on it while it is paused resumes it."));

static const char guest[] = OBJECT(
    "\"id\":" STRING ",\"name\":" STRING_OR_NULL ",\"key\":" STRING_OR_NULL ",\"state\":{\"type\":\"string\",\"enum\":[\"running\",\"paused\",\"gone\"]},"
    "\"template\":" STRING_OR_NULL ",\"backend\":" STRING_OR_NULL ",\"isolation\":" STRING ",\"metadata\":" TEXTS ","
    "\"network\":" BOOLEAN ",\"allowed_domains\":" STRINGS ",\"egress_headers\":" INTEGER ",\"memory_mb\":" INTEGER ",\"disk_mb\":" INTEGER ","
    "\"cpu_percent\":" INTEGER ",\"created_at\":" STRING_OR_NULL ",\"started_at\":" STRING_OR_NULL ","
    "\"paused_at\":" STRING_OR_NULL ",\"active_at\":" STRING_OR_NULL ",\"ends_at\":" STRING_OR_NULL ","
    "\"at_end\":" STRING ",\"idle_pause_s\":" INTEGER ",\"auto_resume\":" BOOLEAN ",\"gone_at\":" STRING_OR_NULL ","
    "\"cause\":" STRING_OR_NULL ",\"reason\":" STRING_OR_NULL ",\"remote_id\":" STRING_OR_NULL);

static const char guests[] = OBJECT("\"guests\":" LIST("Guest") ",\"total\":" INTEGER ",\"next\":" STRING_OR_NULL);
static const char resume[] = OBJECT("\"ttl_s\":" NUMBER);
static const char extend[] = OBJECT("\"ttl_s\":" NUMBER ",\"idle_pause_s\":" NUMBER ","
    "\"only_later\":" DOC("boolean", "An end that is later already stays."));
static const char network[] = OBJECT(NETWORK);
static const char egress[] = OBJECT(
    "\"network\":" BOOLEAN ",\"allowed_domains\":" STRINGS ",\"egress_headers\":" DOC("integer", "How many are put into its requests.") ","
    "\"open\":" DOC("integer", "Connections now.") ",\"counts\":" OBJECT("\"connections\":" INTEGER ",\"refused\":" INTEGER ","
    "\"names\":" INTEGER ",\"names_refused\":" INTEGER ",\"bytes_sent\":" INTEGER ",\"bytes_received\":" INTEGER ","
    "\"first_refused\":" STRING_OR_NULL) ",\"log\":{\"type\":\"array\",\"items\":" OBJECT("\"at_ms\":" INTEGER ","
    "\"name\":" STRING_OR_NULL ",\"address\":" STRING_OR_NULL ",\"port\":" INTEGER ",\"decision\":" STRING ",\"rule\":" STRING_OR_NULL ","
    "\"why\":" STRING_OR_NULL ",\"count\":" INTEGER ",\"bytes_sent\":" INTEGER ",\"bytes_received\":" INTEGER) "}");
static const char metrics[] = OBJECT(
    "\"at\":" STRING ",\"memory_bytes\":" INTEGER ",\"memory_cache_bytes\":" INTEGER ",\"memory_limit_bytes\":" INTEGER ","
    "\"disk_used_bytes\":" INTEGER ",\"disk_total_bytes\":" INTEGER ",\"processes\":" INTEGER ",\"cpu_percent\":" INTEGER ","
    "\"cpu_ms\":" NUMBER ",\"cpu_used_percent\":" NUMBER);
static const char notes[] = OBJECT("\"notes\":{\"type\":\"array\",\"items\":"
    OBJECT("\"at\":" STRING ",\"what\":" STRING ",\"text\":" STRING) "}");
static const char reuse[] = OBJECT("\"flow\":" STRING ",\"component\":" STRING "," NETWORK ",\"backend\":" STRING ","
    "\"template\":" STRING ",\"memory_mb\":" INTEGER);
static const char reused[] = OBJECT("\"reused\":" BOOLEAN ",\"guest\":" REF("Guest"));
static const char exec[] =
    "{\"type\":\"object\",\"required\":[\"command\"],\"properties\":{"
    "\"command\":{\"oneOf\":[" STRINGS "," STRING "],\"description\":\"A program and its arguments; or a text for /bin/sh.\"},"
    "\"stdin\":" STRING ",\"stdin_b64\":" STRING ",\"env\":" TEXTS ",\"cwd\":" STRING ",\"user\":" STRING ","
    "\"timeout_s\":" NUMBER ",\"background\":" BOOLEAN ",\"tag\":" STRING "}}";
static const char programs[] = OBJECT("\"programs\":{\"type\":\"array\",\"items\":" OBJECT(
    "\"pid\":" INTEGER ",\"command\":" STRINGS ",\"cwd\":" STRING ",\"user\":" STRING ",\"tag\":" STRING_OR_NULL ","
    "\"running\":" BOOLEAN ",\"cause\":" STRING ",\"exit_code\":" INTEGER ",\"signal\":" INTEGER ",\"run_ms\":" NUMBER) "}");
static const char signal_asked[] = OBJECT("\"signal\":" DOC("string", "INT, TERM (the default), KILL, HUP, QUIT, USR1, USR2, STOP, CONT, WINCH."));
#define SIZE "\"cols\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000},\"rows\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000}"
static const char terminal[] = OBJECT(SIZE
    ",\"command\":{\"type\":\"array\",\"items\":" STRING ",\"description\":\"A program and its arguments; left out: a login shell.\"},"
    "\"cwd\":" STRING ",\"user\":" STRING);
static const char terminal_event[] = OBJECT(
    "\"type\":{\"type\":\"string\",\"enum\":[\"started\",\"output\",\"keepalive\",\"exit\",\"error\"]},\"pid\":" INTEGER ","
    "\"data_b64\":" STRING ",\"cause\":" STRING ",\"exit_code\":" INTEGER ",\"signal\":" INTEGER ",\"run_ms\":" NUMBER ","
    "\"message\":" STRING ",\"error\":{\"type\":\"object\"}");
static const char terminal_size[] = "{\"type\":\"object\",\"required\":[\"cols\",\"rows\"],\"properties\":{" SIZE "}}";
static const char input[] = OBJECT("\"data\":" STRING ",\"data_b64\":" STRING);
static const char entry[] = OBJECT(
    "\"name\":" STRING ",\"path\":" STRING ",\"type\":{\"type\":\"string\",\"enum\":[\"other\",\"file\",\"directory\",\"link\"]},"
    "\"mode\":" STRING ",\"owner\":" STRING ",\"group\":" STRING ",\"target\":" STRING_OR_NULL ",\"size\":" INTEGER ","
    "\"modified_at\":" STRING);
static const char entries[] = OBJECT("\"entries\":" LIST("Entry"));
static const char cell[] =
    "{\"type\":\"object\",\"required\":[\"code\"],\"properties\":{\"code\":" STRING ","
    "\"context\":" DOC("string", "Its id; or give a language.") ",\"language\":{\"type\":\"string\",\"enum\":[\"python\","
    "\"javascript\",\"bash\"]},\"env\":" TEXTS ",\"timeout_s\":" NUMBER "}}";
static const char result[] =
    "{\"type\":\"object\",\"description\":\"A value in all its forms; png, jpeg and pdf in base64.\",\"properties\":{"
    "\"main\":" DOC("boolean", "The last expression's value; else something displayed.") ",\"text\":" STRING ",\"html\":" STRING ","
    "\"markdown\":" STRING ",\"svg\":" STRING ",\"png\":" STRING ",\"jpeg\":" STRING ",\"pdf\":" STRING ",\"latex\":" STRING ","
    "\"json\":{\"nullable\":true},\"javascript\":" STRING ",\"data\":{\"type\":\"object\"},\"chart\":{\"type\":\"object\"},"
    "\"extra\":{\"type\":\"object\"}}}";
#define END_OF_CELL                                                                                                    \
    "\"cause\":" STRING ",\"context_ended\":" DOC("boolean", "Its state is lost; the next cell starts a new interpreter.") \
    ",\"exit_code\":{\"type\":\"integer\",\"nullable\":true},\"run_ms\":" NUMBER ",\"results_dropped\":" INTEGER            \
    ",\"message\":" STRING
#define ERROR_OF_CELL "{\"type\":\"object\",\"nullable\":true,\"properties\":{\"name\":" STRING ",\"value\":" STRING ",\"traceback\":" STRINGS "}}"
#define BEGIN_OF_CELL "\"context\":" STRING ",\"number\":" INTEGER ",\"fresh\":" DOC("boolean", "A new interpreter: nothing of earlier cells is there.")
static const char cell_answer[] = OBJECT(
    BEGIN_OF_CELL ",\"stdout\":" STRING ",\"stdout_truncated\":" BOOLEAN ",\"stderr\":" STRING ",\"stderr_truncated\":" BOOLEAN ","
    "\"results\":" LIST("CellResult") ",\"error\":" ERROR_OF_CELL "," END_OF_CELL);
static const char cell_event[] = OBJECT(
    "\"type\":{\"type\":\"string\",\"enum\":[\"started\",\"stdout\",\"stderr\",\"result\",\"error\",\"keepalive\",\"end\"]},"
    BEGIN_OF_CELL ",\"data\":" STRING ",\"data_b64\":" STRING ",\"result\":" REF("CellResult") ",\"error\":" ERROR_OF_CELL "," END_OF_CELL);
static const char new_context[] = OBJECT("\"language\":" STRING ",\"cwd\":" STRING);
static const char context[] = OBJECT(
    "\"id\":" STRING ",\"language\":" STRING ",\"cwd\":" STRING ",\"state\":{\"type\":\"string\",\"enum\":[\"idle\",\"busy\","
    "\"ended\"]},\"default\":" BOOLEAN ",\"cells\":" INTEGER);
static const char contexts[] = OBJECT("\"contexts\":" LIST("Context"));
/* clang-format on */

const struct cordon_http_schema cordon_guest_schemas[CORDON_GUEST_SCHEMAS] = {
    {"NewGuest", new_guest},
    {"Guest", guest},
    {"Guests", guests},
    {"Resume", resume},
    {"Extend", extend},
    {"Network", network},
    {"Egress", egress},
    {"GuestMetrics", metrics},
    {"GuestNotes", notes},
    {"Reuse", reuse},
    {"Reused", reused},
    {"Exec", exec},
    {"Programs", programs},
    {"Signal", signal_asked},
    {"Terminal", terminal},
    {"TerminalEvent", terminal_event},
    {"TerminalSize", terminal_size},
    {"Input", input},
    {"Entry", entry},
    {"Entries", entries},
    {"Cell", cell},
    {"CellResult", result},
    {"CellAnswer", cell_answer},
    {"CellEvent", cell_event},
    {"NewContext", new_context},
    {"Context", context},
    {"Contexts", contexts},
};
