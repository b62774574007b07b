/* SPDX-License-Identifier: Apache-2.0 */
/* How a program's text is started in a kept guest, and files are put there. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "core/reuse.h"

/* Calls main of the module at argv[1] with what descriptor 3 has to read, and writes its value there. The words for
 * what goes wrong go to standard error; without a value the caller knows that there is none. */
static const char call_python[] =
    "import asyncio,importlib.util as u,json,os,sys\n"
    "d=b''\n"
    "while p:=os.read(3,1<<20):d+=p\n"
    "os.set_inheritable(3,False)\n"
    "sys.path[0]=os.getcwd();sys.argv[:]=sys.argv[1:]\n"
    "s=u.spec_from_file_location('main',sys.argv[0]);m=u.module_from_spec(s);sys.modules['main']=m;s.loader.exec_"
    "module(m)\n"
    "f=getattr(m,'main',None)\n"
    "if not callable(f):sys.exit('the program defines no function main(), which arguments are for')\n"
    "v=f(**json.loads(d))\n"
    "async def w():return await v\n"
    "if hasattr(v,'__await__'):v=asyncio.run(w())\n"
    "v=json.dumps(v,allow_nan=False).encode()\n"
    "while v:v=v[os.write(3,v):]\n";
static const char call_javascript[] =
    "const fs=require('fs'),{pathToFileURL:u}=require('url');let d=[],b=Buffer.alloc(1<<20),n;"
    "while((n=fs.readSync(3,b)))d.push(Buffer.from(b.subarray(0,n)));"
    "import(u(process.argv[1])).then(async(m)=>{const e=m.default;"
    "const f=[e,e&&e.main,m.main].find((x)=>typeof x==='function');"
    "if(!f){console.error('the program exports no function main, which arguments are for');process.exitCode=1;return}"
    "const v=JSON.stringify(await f(JSON.parse(Buffer.concat(d))));"
    "if(v===undefined){console.error('main() must return a value. Use null for an empty "
    "result.');process.exitCode=1;return}"
    "let o=Buffer.from(v);while(o.length)o=o.subarray(fs.writeSync(3,o))})";

static const struct {
    const char *name, *suffix, *program;
    const char *flag, *caller; /* how main is called; NULL: it can't be */
} languages[] = {
    {"python", "py", "python3", "-c", call_python},
    {"javascript", "js", "node", "-e", call_javascript},
    {"bash", "sh", "bash", NULL, NULL},
};

static bool starts_line_with(struct cordon_bytes code, const char *word)
{
    size_t size = strlen(word);
    for (const char *at = code.data, *end = at + code.size; at && (size_t)(end - at) > size;) {
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        if ((size_t)(end - at) > size && memcmp(at, word, size) == 0 && (at[size] == ' ' || at[size] == '{'))
            return true;
        at = memchr(at, '\n', (size_t)(end - at));
        at = at ? at + 1 : end;
    }
    return false;
}

/* Node takes a module for one by its file's name. */
static const char *suffix_of(size_t i, struct cordon_bytes code)
{
    bool module = strcmp(languages[i].name, "javascript") == 0 &&
                  (starts_line_with(code, "import") || starts_line_with(code, "export"));
    return module ? "mjs" : languages[i].suffix;
}

int cordon_guest_command(const struct cordon_program_request *program, struct cordon_guest_command *ret,
                         struct cordon_error *err)
{
    size_t i = 0, count = sizeof languages / sizeof *languages;
    unsigned char random[6];
    while (i < count && strcmp(languages[i].name, program->language) != 0)
        i++;
    if (i == count)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "language is python, javascript or bash, not \"%.40s\"",
                           program->language);
    *ret = (struct cordon_guest_command){.calls_main = program->arguments.data != NULL};
    if (ret->calls_main && !languages[i].caller)
        return cordon_fail(err, -ENOSYS, CORDON_ERROR_UNSUPPORTED,
                           "arguments for main() of %s are not supported in a kept guest", program->language);
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return cordon_fail_errno(err, -EIO, "random bytes");
    (void)snprintf(ret->path, sizeof ret->path, "/home/user/main_%02x%02x%02x%02x%02x%02x.%s", random[0], random[1],
                   random[2], random[3], random[4], random[5], suffix_of(i, program->code)); /* fits */
    ret->argv[ret->argc++] = languages[i].program;
    if (ret->calls_main) {
        ret->argv[ret->argc++] = languages[i].flag;
        ret->argv[ret->argc++] = languages[i].caller;
    }
    ret->argv[ret->argc++] = ret->path;
    return 0;
}

int cordon_guest_put(const char *tenant, const char *guest, const char *path, uint32_t mode,
                     struct cordon_bytes content, int cancel_fd, struct cordon_error *err)
{
    struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_WRITE, .path = path, .mode = mode, .cancel_fd = cancel_fd};
    struct cordon_live_stream *stream = NULL;
    struct cordon_stream_event event;
    bool ended = false;
    int r = cordon_guests_open(tenant, guest, &operation, &stream, err);
    if (r >= 0 && content.size)
        r = cordon_guests_write(stream, CORDON_TO_FILE, content.data, content.size, err);
    if (r >= 0)
        r = cordon_guests_control(stream, CORDON_CONTROL_END, CORDON_TO_FILE, err);
    while (r >= 0 && !ended && (r = cordon_guests_next(stream, -1, &event, &ended, err)) == 1)
        if (event.type == CORDON_STREAM_END)
            break;
    cordon_guests_close(stream);
    if (r < 0)
        cordon_error_context(err, "putting %.200s", path);
    return r < 0 ? r : 0;
}

void cordon_guest_remove(const char *tenant, const char *guest, const char *path)
{
    struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_REMOVE, .path = path, .cancel_fd = -1};
    (void)cordon_guests_file(tenant, guest, &operation, NULL, NULL, NULL);
}
