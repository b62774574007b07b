/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's file workers: putting before a run, collecting after it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent_guest.h"
#include "base/fd.h"

#define OUT(run, which) ((run).out[which].data ? (run).out[which].data : "")

static const struct agent_options plain = {.language = "python", .flags = CORDON_EXEC_ARTIFACTS};
static const struct agent_options isolated = {.language = "python", .flags = CORDON_EXEC_ARTIFACTS, .isolated = 1};

/* What COLLECT gave, as text: "name=content;" for each artifact, "name!reason;" for each dropped one. */
static void collect(struct agent_guest *guest, const struct cordon_exec_limits *limits, struct cordon_buf *text)
{
    struct cordon_buf request = CORDON_BUF_INIT(1024);
    struct cordon_frame frame;
    int done = 0;
    *text = CORDON_BUF_INIT(64u << 20);
    assert_int_equal(cordon_exec_limits_put(&request, limits), 0);
    agent_guest_send(guest, CORDON_FRAME_COLLECT, request.data, (uint32_t)request.size);
    cordon_buf_done(&request);
    while (!done && agent_guest_next(guest, &frame, 60000) == 1) {
        struct cordon_field field;
        size_t at = 0;
        if (frame.type == CORDON_FRAME_ARTIFACT_DATA)
            (void)cordon_buf_append(text, frame.payload, frame.length);
        if (frame.type == CORDON_FRAME_ARTIFACT_CLOSE)
            (void)cordon_buf_appends(text, ";");
        done = frame.type == CORDON_FRAME_COLLECTED;
        if (frame.type != CORDON_FRAME_ARTIFACT_OPEN && frame.type != CORDON_FRAME_ARTIFACT_DROPPED)
            continue;
        while (cordon_field_next(frame.payload, frame.length, &at, &field) == 1) {
            if (field.tag == CORDON_FIELD_REASON)
                (void)cordon_buf_appendf(text, "!%.*s;", (int)field.length, field.data);
            if (field.tag == CORDON_FIELD_PATH)
                (void)cordon_buf_append(text, field.data, field.length);
        }
        if (frame.type == CORDON_FRAME_ARTIFACT_OPEN)
            (void)cordon_buf_appends(text, "=");
    }
    assert_true(done);
    assert_int_equal(cordon_buf_append(text, "", 0), 0);
}

static const struct cordon_exec_limits plenty = {
    .artifact_bytes = 1u << 20, .artifacts_bytes = 8u << 20, .artifacts = 64};

static void run_and_collect(const struct agent_options *options, const char *code,
                            const struct cordon_exec_limits *limits, const char *expected)
{
    struct agent_guest guest;
    struct agent_run run;
    struct cordon_buf text;
    if (options->isolated && geteuid() != 0)
        skip();
    agent_guest_run(&guest, options, code, &run);
    assert_true(run.exited);
    assert_string_equal(OUT(run, 1), "");
    assert_int_equal(run.exit.may_have_artifacts, 1);
    collect(&guest, limits, &text);
    assert_string_equal(text.data, expected);
    cordon_buf_done(&text);
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void puts_files_and_makes_their_directories(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    static char big[300000];
    memset(big, 'b', sizeof big);
    agent_guest_start(&guest, &plain);
    agent_guest_put(&guest, "a.txt", "hello", 5, 0);
    agent_guest_put(&guest, "deep/er/run.sh", "#!/bin/sh\necho ran\n", 19, 0755);
    agent_guest_put(&guest, "empty", "", 0, 0600);
    agent_guest_put(&guest, "big", big, sizeof big, 0644);
    agent_guest_exec(&guest, &plain,
                     "print(open('a.txt').read(), os.path.getsize('big'), oct(os.stat('empty').st_mode)[-3:])\n"
                     "sys.stdout.flush(); os.spawnv(os.P_WAIT, './deep/er/run.sh', ['run.sh']); leave(0)");
    agent_guest_finish(&guest, &plain, &run);
    assert_string_equal(run.error.data ? run.error.data : "", "");
    assert_true(run.exited);
    assert_string_equal(OUT(run, 0), "hello 300000 600\nran\n");
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void failing_put_starts_nothing(void **state)
{
    static const struct {
        const char *path, *reason;
    } rows[] = {
        {"../up", "Invalid cross-device link"},
        {"a/../../up", "Invalid cross-device link"},
        {"/proc/self/status", "Permission denied"},
        {"/no-such-place/x", "Permission denied"},
        {"dir/", "Is a directory"},
        {"", "Is a directory"},
        {"artifacts", "Is a directory"},
        {"a/..", "Is a directory"},
    };
    if (geteuid() != 0)
        skip();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct agent_guest guest;
        struct agent_run run;
        agent_guest_start(&guest, &isolated);
        agent_guest_put(&guest, rows[i].path, "x", 1, 0);
        agent_guest_put(&guest, "later", "x", 1, 0);
        agent_guest_exec(&guest, &isolated, "print('started')");
        agent_guest_finish(&guest, &isolated, &run);
        assert_false(run.exited);
        assert_false(run.started);
        assert_non_null(run.error.data);
        assert_non_null(strstr(run.error.data, rows[i].reason));
        assert_non_null(strstr(run.error.data, rows[i].path));
        agent_run_done(&run);
        agent_guest_stop(&guest);
    }
}

static void put_files_belong_to_the_code(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    if (geteuid() != 0)
        skip();
    agent_guest_start(&guest, &isolated);
    agent_guest_put(&guest, "mine", "x", 1, 0644);
    agent_guest_exec(&guest, &isolated, "print(os.stat('mine').st_uid); open('mine', 'a').write('y'); leave(0)");
    agent_guest_finish(&guest, &isolated, &run);
    assert_string_equal(OUT(run, 0), "1000\n");
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void returns_what_was_written(void **state)
{
    const char *code =
        "os.makedirs('artifacts/sub/x'); open('artifacts/b', 'w').write('B'); open('artifacts/sub/x/c', "
        "'w').write('C')\n"
        "open('artifacts/.hidden', 'w').write('H'); open('top', 'w').write('T'); open('.dot', 'w').write('no')\n"
        "open('artifacts/empty', 'w'); leave(0)";
    const char *expected = ".hidden=H;b=B;empty=;sub/x/c=C;top=T;";
    run_and_collect(&plain, code, &plenty, expected);
    run_and_collect(&isolated, code, &plenty, expected);
}

static void returns_what_was_written_in_folders(void **state)
{
    run_and_collect(&isolated,
                    "for d in ('plots/deep', 'plots/__pycache__', 'plots/node_modules/x', '.cache', 'plots/.git'):\n"
                    "    os.makedirs(d); open(d + '/f', 'w').write('F')\n"
                    "open('plots/a.png', 'w').write('A'); open('plots/.hidden', 'w').write('H')\n"
                    "os.symlink('/etc', 'plots/etc'); os.makedirs('artifacts/plots'); os.makedirs('sub/artifacts')\n"
                    "open('artifacts/plots/a.png', 'w').write('B'); open('sub/artifacts/g', 'w').write('G'); leave(0)",
                    &plenty,
                    "plots/a.png=B;plots/a.png!a file in artifacts/ has the same name;plots/deep/f=F;"
                    "plots/etc!it is a symbolic link;sub/artifacts/g=G;");
    run_and_collect(&isolated,
                    "for i in range(20): os.mkdir('d'); os.chdir('d'); open('f', 'w')\n"
                    "leave(0)",
                    &plenty,
                    "d/d/d/d/d/d/d/d!it lies more than 8 directories deep;d/d/d/d/d/d/d/f=;d/d/d/d/d/d/f=;d/d/d/d/d/f=;"
                    "d/d/d/d/f=;d/d/d/f=;d/d/f=;d/f=;");
}

/* The test's driver has the program's text in code. */
static void the_programs_own_file_is_no_artifact(void **state)
{
    run_and_collect(&isolated,
                    "open('main.py', 'wb').write(code); open('main.mjs', 'wb').write(code + b'tail'); leave(0)",
                    &plenty, "");
    run_and_collect(
        &isolated, "open('main.mjs', 'wb').write(code[:-1] + b'#'); open('main.py', 'w'); leave(0)", &plenty,
        "main.mjs=open('main.mjs', 'wb').write(code[:-1] + b'#'); open('main.py', 'w'); leave(0#;main.py=;");
    run_and_collect(&isolated,
                    "os.mkdir('s')\n"
                    "for n in ('s/main.py', 'artifacts/main.py', 'x.py'): open(n, 'wb').write(code[:2])\n"
                    "open('main.js', 'wb').write(code + b'\\n'); leave(0)",
                    &plenty,
                    "main.js=os.mkdir('s')\n"
                    "for n in ('s/main.py', 'artifacts/main.py', 'x.py'): open(n, 'wb').write(code[:2])\n"
                    "open('main.js', 'wb').write(code + b'\\n'); leave(0)\n;main.py=os;s/main.py=os;x.py=os;");
}

static void links_and_other_things_are_dropped(void **state)
{
    run_and_collect(
        &isolated,
        "os.symlink('/etc/passwd', 'artifacts/l'); os.symlink('/etc', 'artifacts/d'); os.mkfifo('artifacts/p')\n"
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind('artifacts/s'); os.symlink('nowhere', 'top')\n"
        "open('artifacts/ok', 'w').write('1'); leave(0)",
        &plenty,
        "d!it is a symbolic link;l!it is a symbolic link;ok=1;p!it is no regular file;s!it is no regular file;"
        "top!it is a symbolic link;");
}

static void artifacts_as_a_link_is_not_followed(void **state)
{
    run_and_collect(&isolated, "os.rmdir('artifacts'); os.symlink('/etc', 'artifacts'); leave(0)", &plenty,
                    "artifacts!it is a symbolic link;");
}

static void names_are_checked(void **state)
{
    run_and_collect(
        &isolated,
        "open(b'artifacts/\\xff\\xfe', 'w'); open('artifacts/new\\nline', 'w'); open('artifacts/gr\\u00fc\\u00df', "
        "'w').write('u')\n"
        "d = 'artifacts'\n"
        "for i in range(2):\n    d += '/' + 'n' * 150\n    os.mkdir(d)\n"
        "open(d + '/f', 'w'); leave(0)",
        &plenty,
        "gr\u00fc\u00df=u;new?line!its name has control characters;"
        "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
        "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn/"
        "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
        "!its name is longer than 255 bytes;?\?!its name is not UTF-8;");
}

static void limits_keep_the_first_by_name(void **state)
{
    struct cordon_exec_limits limits = {.artifact_bytes = 10, .artifacts_bytes = 15, .artifacts = 3};
    run_and_collect(
        &plain,
        "for n, s in (('a', 10), ('b', 11), ('c', 6), ('d', 5), ('e', 0), ('f', 0)): open('artifacts/' + n, "
        "'w').write(n * s)\n"
        "leave(0)",
        &limits,
        "a=aaaaaaaaaa;b!it is larger than 10 bytes;c!all files together are larger than 15 bytes;d=ddddd;e=;"
        "f!there are more than 3 files;");
}

static void many_dropped_are_summed_up(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    struct cordon_buf text;
    struct cordon_exec_limits none = {.artifact_bytes = 1000, .artifacts_bytes = 1000, .artifacts = 0};
    agent_guest_run(&guest, &plain, "for i in range(200): open('artifacts/%d' % i, 'w')\nleave(0)", &run);
    collect(&guest, &none, &text);
    assert_non_null(strstr(text.data, "0!there are more than 0 files;"));
    assert_non_null(strstr(text.data, "(136 more)!too many files were dropped"));
    cordon_buf_done(&text);
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void deep_trees_end_somewhere(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    struct cordon_buf text;
    agent_guest_run(
        &guest, &plain,
        "os.chdir('artifacts')\nfor i in range(500): os.mkdir('d'); os.chdir('d')\nopen('f', 'w'); leave(0)", &run);
    collect(&guest, &plenty, &text);
    assert_string_equal(text.data, "d/d/d/d/d/d/d/d!it lies more than 8 directories deep;");
    cordon_buf_done(&text);
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void put_files_are_no_artifacts_unless_changed(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    struct cordon_buf text;
    agent_guest_start(&guest, &plain);
    agent_guest_put(&guest, "same", "1", 1, 0);
    agent_guest_put(&guest, "changed", "2", 1, 0);
    agent_guest_put(&guest, "artifacts/given", "3", 1, 0);
    agent_guest_exec(&guest, &plain, "open('changed', 'w').write('new'); leave(0)");
    agent_guest_finish(&guest, &plain, &run);
    assert_int_equal(run.exit.may_have_artifacts, 1);
    collect(&guest, &plenty, &text);
    assert_string_equal(text.data, "changed=new;");
    cordon_buf_done(&text);
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void nothing_written_is_known_without_a_look(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    agent_guest_start(&guest, &plain);
    (void)usleep(30000); /* a parked guest is older than a time stamp is coarse */
    agent_guest_exec(&guest, &plain, "print(1); leave(0)");
    agent_guest_finish(&guest, &plain, &run);
    assert_true(run.exited);
    assert_int_equal(run.exit.may_have_artifacts, 0);
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void same_names_are_returned_once(void **state)
{
    run_and_collect(&plain, "open('x', 'w').write('top'); open('artifacts/x', 'w').write('in'); leave(0)", &plenty,
                    "x=in;x!a file in artifacts/ has the same name;");
}

static void only_files_of_the_suffixes(void **state)
{
    const struct agent_options options = {
        .language = "python", .flags = CORDON_EXEC_ARTIFACTS, .isolated = 1, .suffixes = "png,csv,x"};
    run_and_collect(&options,
                    "os.makedirs('d.png/e')\n"
                    "for name in ('a.png', 'b.PNG', 'c.pngs', 'c.pn', 'csv', 'd.tar.csv', 'e.', 'f.x', "
                    "'d.png/e/g.csv', 'd.png/h'):\n"
                    "    open(name, 'w').write('1')\n"
                    "os.symlink('a.png', 'artifacts/l.png'); os.symlink('a.png', 'artifacts/l'); leave(0)",
                    &plenty, "a.png=1;b.PNG=1;d.png/e/g.csv=1;d.tar.csv=1;f.x=1;l.png!it is a symbolic link;");
}

static void a_flat_collection_looks_into_no_folder(void **state)
{
    const struct agent_options options = {
        .language = "python", .flags = CORDON_EXEC_ARTIFACTS | CORDON_EXEC_FLAT, .isolated = 1};
    run_and_collect(
        &options,
        "os.makedirs('d/e'); os.makedirs('artifacts/f'); os.symlink('d', 'z'); os.mkfifo('p')\n"
        "for name in ('a', 'd/b', 'd/e/c', 'artifacts/f/d', 'artifacts/e', 'artifacts/a', 'artifacts/z', "
        "'artifacts/p'):\n"
        "    open(name, 'w').write(name)\n"
        "leave(0)",
        &plenty, "a=a;a!a file in the working directory has the same name;e=artifacts/e;p=artifacts/p;z=artifacts/z;");
}

static void what_is_written_while_running_only_counts_at_the_end(void **state)
{
    run_and_collect(&isolated,
                    "if os.fork() == 0:\n"
                    "    os.setsid()\n"
                    "    while True: open('artifacts/grow', 'a').write('x')\n"
                    "import time; time.sleep(0.05); open('artifacts/a', 'w').write('1')\n"
                    "open('artifacts/grow2', 'w').write('y'); leave(0)",
                    &(struct cordon_exec_limits){.artifact_bytes = 4, .artifacts_bytes = 8, .artifacts = 1},
                    "a=1;grow!it is larger than 4 bytes;grow2!there are more than 1 files;");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_files_and_makes_their_directories),
        cmocka_unit_test(failing_put_starts_nothing),
        cmocka_unit_test(put_files_belong_to_the_code),
        cmocka_unit_test(returns_what_was_written),
        cmocka_unit_test(returns_what_was_written_in_folders),
        cmocka_unit_test(the_programs_own_file_is_no_artifact),
        cmocka_unit_test(links_and_other_things_are_dropped),
        cmocka_unit_test(artifacts_as_a_link_is_not_followed),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(limits_keep_the_first_by_name),
        cmocka_unit_test(many_dropped_are_summed_up),
        cmocka_unit_test(deep_trees_end_somewhere),
        cmocka_unit_test(put_files_are_no_artifacts_unless_changed),
        cmocka_unit_test(nothing_written_is_known_without_a_look),
        cmocka_unit_test(same_names_are_returned_once),
        cmocka_unit_test(only_files_of_the_suffixes),
        cmocka_unit_test(a_flat_collection_looks_into_no_folder),
        cmocka_unit_test(what_is_written_while_running_only_counts_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
