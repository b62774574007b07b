/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Schemas of the native door's documents, for /openapi.json. What is read and written is core's (core/run.h). */
#include "door/native_schemas.h"

/* The documents are to be read as such. */
/* clang-format off */
#define STRING "{\"type\":\"string\"}"
#define STRING_OR_NULL "{\"type\":\"string\",\"nullable\":true}"
#define BOOLEAN "{\"type\":\"boolean\"}"
#define INTEGER "{\"type\":\"integer\"}"
#define INTEGER_OR_NULL "{\"type\":\"integer\",\"nullable\":true}"
#define NUMBER "{\"type\":\"number\"}"
#define NUMBER_OR_NULL "{\"type\":\"number\",\"nullable\":true}"
#define BASE64 "{\"type\":\"string\",\"format\":\"byte\"}"
#define STRINGS "{\"type\":\"array\",\"items\":" STRING "}"
#define DOC(type, text) "{\"type\":\"" type "\",\"description\":\"" text "\"}"
#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"
#define CAUSES                                                                                                         \
    "{\"type\":\"string\",\"enum\":[\"exited\",\"signalled\",\"timeout\",\"memory\",\"output_limit\",\"cancelled\","   \
    "\"refused\",\"unavailable\",\"infrastructure\"]}"
#define ISOLATIONS                                                                                                     \
    "{\"type\":\"string\",\"enum\":[\"none\",\"namespace\",\"userspace-kernel\",\"software-emulated\","               \
    "\"hardware-virtualized\"]}"
#define STREAM                                                                                                         \
    "{\"type\":\"object\",\"properties\":{\"bytes\":" INTEGER ",\"kept\":" INTEGER ",\"truncated\":" BOOLEAN "}}"

static const char run[] =
    "{\"type\":\"object\",\"required\":[\"language\"],\"additionalProperties\":false,\"properties\":{"
    "\"language\":{\"type\":\"string\",\"enum\":[\"python\",\"javascript\",\"bash\"]},"
    "\"code\":" DOC("string", "The program; this or code_b64 must be given.") ","
    "\"code_b64\":" BASE64 ","
    "\"arguments\":" DOC("object", "When present, the program's main is called with it and its JSON result returned.") ","
    "\"stdin\":{\"oneOf\":[" STRING ",{\"type\":\"object\",\"properties\":{\"b64\":" BASE64 "}}],"
    "\"description\":\"Empty by default.\"},"
    "\"env\":{\"type\":\"object\",\"additionalProperties\":" STRING "},"
    "\"files\":{\"description\":\"Put into the guest first: a list, or an object of path: text.\",\"oneOf\":["
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"path\"],\"properties\":{\"path\":" STRING ","
    "\"content\":" STRING ",\"content_b64\":" BASE64 ",\"mode\":" DOC("string", "Octal, 0644 by default.") "}}},"
    "{\"type\":\"object\"}]},"
    "\"timeout_s\":" DOC("number", "Wall-clock limit in seconds.") ","
    "\"memory_mb\":" DOC("integer", "Memory limit in MiB, private files included.") ","
    "\"cpu_s\":" DOC("number", "CPU time limit of all its processes together, in seconds.") ","
    "\"disk_mb\":" DOC("integer", "Size of its private files in MiB.") ","
    "\"network\":" DOC("boolean", "Off by default.") ","
    "\"allowed_domains\":" STRINGS ","
    "\"egress_headers\":{\"type\":\"object\",\"writeOnly\":true,\"additionalProperties\":{\"type\":\"object\",\"additionalProperties\":"
    STRING "},\"description\":\"Put into requests to a host, without being in the guest: {HOST: {NAME: VALUE}}.\"},"
    "\"artifacts\":" DOC("boolean", "Return files from artifacts/ and files newly written to the working directory.") ","
    "\"backend\":" DOC("string", "The daemon's default where it is left out.") ","
    "\"template\":" DOC("string", "What its guest starts from, made by `cordon template`; the default one where left out.") ","
    "\"policy\":{\"type\":\"string\",\"enum\":[\"native\",\"langflow\"],\"description\":\"Whose settings give the"
    " defaults, and whose rules judge: with langflow the LANGFLOW_SANDBOX_ ones, which demand hardware virtualization.\"},"
    "\"fresh_interpreter\":" DOC("boolean", "Start a new interpreter rather than fork a warm one.") "}}";

static const char outcome[] =
    "{\"type\":\"object\",\"required\":[\"cause\",\"exit_code\"],\"properties\":{\"cause\":" CAUSES ","
    "\"exit_code\":" INTEGER ",\"signal\":" INTEGER_OR_NULL ",\"limit_hit\":" STRING_OR_NULL ",\"message\":" STRING ","
    "\"backend\":" STRING ",\"isolation\":" ISOLATIONS ",\"warm\":" BOOLEAN ","
    "\"accelerator\":" STRING_OR_NULL ",\"start\":" STRING_OR_NULL ",\"cpu_ms\":" NUMBER_OR_NULL ","
    "\"memory_peak_bytes\":" INTEGER_OR_NULL ",\"oom_kills\":" INTEGER ",\"processes_left\":" INTEGER ","
    "\"stdout\":" STREAM ",\"stderr\":" STREAM ",\"artifacts_dropped\":" INTEGER ",\"syscalls_denied\":" INTEGER ","
    "\"blocked_syscall\":" STRING_OR_NULL ",\"result_error\":" STRING_OR_NULL "}}";

static const char timing[] = "{\"type\":\"object\",\"properties\":{\"queue_ms\":" NUMBER ",\"start_ms\":" NUMBER
                             ",\"run_ms\":" NUMBER ",\"total_ms\":" NUMBER "}}";

static const char answer[] =
    "{\"type\":\"object\",\"required\":[\"stdout\",\"stderr\",\"exit_code\",\"outcome\"],\"properties\":{"
    "\"stdout\":" STRING ",\"stdout_b64\":" BASE64 ",\"stderr\":" STRING ",\"stderr_b64\":" BASE64 ","
    "\"exit_code\":" INTEGER ",\"outcome\":" REF("Outcome") ",\"result\":{\"nullable\":true},"
    "\"artifacts\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"name\"],\"properties\":{"
    "\"name\":" STRING ",\"size\":" INTEGER ",\"content_b64\":" BASE64 ","
    "\"dropped\":" DOC("string", "Why it is not returned.") "}}},"
    "\"backend\":" STRING ",\"timing\":" REF("Timing") "}}";

static const char event[] =
    "{\"type\":\"object\",\"required\":[\"type\"],\"properties\":{"
    "\"type\":{\"type\":\"string\",\"enum\":[\"queued\",\"started\",\"stdout\",\"stderr\",\"result\",\"artifact\","
    "\"dropped\",\"outcome\",\"error\"],\"description\":\"queued comes only when the run has to wait; outcome, or error "
    "when it could not take place, is the last.\"},"
    "\"data\":" STRING ",\"data_b64\":" BASE64 ",\"result\":{\"nullable\":true},\"name\":" STRING ",\"size\":" INTEGER ","
    "\"content_b64\":" BASE64 ",\"reason\":" STRING ",\"exit_code\":" INTEGER ",\"outcome\":" REF("Outcome") ","
    "\"timing\":" REF("Timing") ",\"backend\":" STRING ",\"error\":{\"type\":\"object\"}}}";

static const char backends[] =
    "{\"type\":\"object\",\"required\":[\"backends\"],\"properties\":{\"backends\":{\"type\":\"array\",\"items\":{"
    "\"type\":\"object\",\"required\":[\"name\",\"able\",\"capabilities\"],\"properties\":{\"name\":" STRING ","
    "\"able\":" BOOLEAN ",\"reason\":" STRING ",\"capabilities\":{\"type\":\"object\",\"properties\":{"
    "\"isolation\":" ISOLATIONS ",\"deny_all_egress\":" BOOLEAN ",\"network\":" BOOLEAN ",\"domain_allowlist\":" BOOLEAN ",\"egress_headers\":" BOOLEAN ","
    "\"guests\":" BOOLEAN ",\"files\":" BOOLEAN ",\"artifacts\":" BOOLEAN ",\"streaming\":" BOOLEAN ","
    "\"memory_limit\":" BOOLEAN ",\"pids_limit\":" BOOLEAN ",\"cpu_limit\":" BOOLEAN ",\"agent_protected\":" BOOLEAN ","
    "\"accelerator\":" STRING_OR_NULL ",\"max_timeout_s\":" INTEGER ",\"languages\":" STRINGS ",\"egress_exceptions\":" STRINGS ","
    "\"egress_ports\":" STRINGS "}},"
    "\"verified\":{\"nullable\":true,\"allOf\":[" REF("Verification") "]}}}}}}";

static const char verify_wanted[] =
    "{\"type\":\"object\",\"properties\":{\"backend\":" DOC("string", "Left out: that of the setting.") "}}";

static const char verification[] =
    "{\"type\":\"object\",\"properties\":{\"backend\":" STRING ",\"at\":" INTEGER ",\"version\":" STRING ","
    "\"differences\":" DOC("integer", "How much is declared and was measured not to hold.") ","
    "\"capabilities\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":" STRING ","
    "\"declared\":{\"type\":\"boolean\",\"nullable\":true,\"description\":\"null: there is no capability for it.\"},"
    "\"verified\":{\"type\":\"boolean\",\"nullable\":true,\"description\":\"null: not known.\"},"
    "\"differs\":" BOOLEAN ",\"evidence\":" STRING "}}}}}";

static const char template[] =
    "{\"type\":\"object\",\"required\":[\"name\"],\"properties\":{\"name\":" STRING ",\"reason\":" STRING ","
    "\"kind\":{\"enum\":[\"layer\",\"rootfs\"]},\"from\":" STRING ",\"base\":" STRING ",\"pip\":" STRINGS ",\"npm\":" STRINGS ","
    "\"bytes\":" INTEGER ",\"created_s\":" INTEGER ",\"digest\":" STRING ",\"key\":" STRING "}}";

static const char templates[] =
    "{\"type\":\"object\",\"required\":[\"templates\"],\"properties\":{\"templates\":{\"type\":\"array\",\"items\":"
    REF("Template") "}}}";

/* clang-format on */

const struct cordon_http_schema cordon_native_schemas[CORDON_NATIVE_SCHEMAS] = {
    {"Run", run},
    {"Outcome", outcome},
    {"Timing", timing},
    {"Answer", answer},
    {"Event", event},
    {"Backends", backends},
    {"VerifyWanted", verify_wanted},
    {"Verification", verification},
    {"Template", template},
    {"Templates", templates},
};
