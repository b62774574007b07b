/* SPDX-License-Identifier: Apache-2.0 */
/* vmm/host: what doctor says of QEMU and of an image, missing, of another kind, and whole. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "vmm/accel.h"
#include "vmm/host.h"

enum { KVM, QEMU, IMAGE, NETWORK };
static char folder[] = "/tmp/cordon-vmm-host-XXXXXX", path[96];
static struct cordon_probe rows[CORDON_VMM_HOST_PROBES];
static const char *const names[] = {"manifest.json", "vmlinux", "initrd", "root.erofs", "qemu"};

static const char *in_folder(const char *name)
{
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void probe(const char *qemu, const char *image, bool wanted, bool emulation)
{
    cordon_vmm_host_probe(&(struct cordon_vmm_host){qemu, image, wanted, emulation, .forced = false}, rows);
    for (size_t i = 0; i < CORDON_VMM_HOST_PROBES; i++) {
        print_message("# %s %d: %s | %s\n", rows[i].name, rows[i].ok, rows[i].found, rows[i].fix);
        assert_true(*rows[i].found);
        assert_int_equal(rows[i].ok, !*rows[i].fix);
    }
}

static void finds(size_t row, bool ok, const char *words)
{
    assert_int_equal(rows[row].ok, ok);
    if (!strstr(rows[row].found, words))
        fail_msg("\"%s\" is not in \"%s\"", words, rows[row].found);
}

static void what_is_missing_is_told_with_what_mends_it(void **state)
{
    char qemu[96];
    (void)snprintf(qemu, sizeof qemu, "%s", in_folder("qemu"));
    probe(qemu, "/nonexistent/vm", false, false);
    finds(QEMU, false, "is not there");
    assert_non_null(strstr(rows[QEMU].fix, "apt-get install --no-install-recommends qemu-system-x86"));
    finds(IMAGE, false, "/nonexistent/vm");
    assert_string_equal(rows[IMAGE].fix, "cordon image build");
    for (size_t i = 0; i < CORDON_VMM_HOST_PROBES; i++)
        assert_int_equal(rows[i].weight, CORDON_PROBE_INFO);
}

static void it_is_needed_where_a_setting_names_it(void **state)
{
    probe("/bin/true", folder, true, false);
    for (size_t i = 0; i < CORDON_VMM_HOST_PROBES; i++)
        assert_int_equal(rows[i].weight, i == NETWORK ? CORDON_PROBE_LESSENS : CORDON_PROBE_NEEDED);
    probe("/bin/true", folder, true, true);
    assert_int_equal(rows[KVM].weight, CORDON_PROBE_LESSENS);
    assert_int_equal(rows[QEMU].weight, CORDON_PROBE_NEEDED);
}

static void qemu_must_be_one_and_new_enough(void **state)
{
    static const struct {
        const char *script, *words;
        bool ok;
    } cases[] = {
        {"#!/bin/sh\n", "did not tell its version", false},
        {"#!/bin/sh\nexit 3\n", "exit status 3", false},
        {"#!/bin/sh\necho QEMU emulator version 7.1.9\n", "is 7.1", false},
        {"#!/bin/sh\necho 'QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)'\n", "is 7.2", true},
        {"#!/bin/sh\necho QEMU emulator version 11.0.2\n", "is 11.0", true},
    };
    char qemu[96];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file("qemu", cases[i].script, 0755);
        (void)snprintf(qemu, sizeof qemu, "%s", in_folder("qemu"));
        probe(qemu, folder, false, false);
        finds(QEMU, cases[i].ok, cases[i].words);
    }
}

#define PART(name, file, size) "\"" name "\":{\"file\":\"" file "\",\"sha256\":\"00\",\"size\":" size
#define REST PART("initrd", "initrd", "4") "}," PART("root", "root.erofs", "5") "}}"
#define WHOLE "{\"format\":1," PART("kernel", "vmlinux", "3") ",\"version\":\"6.1.0-57-cloud-amd64\"}," REST

static void an_image_must_be_whole(void **state)
{
    static const struct {
        const char *manifest, *words;
    } cases[] = {
        {"", "no manifest.json can be read"},
        {"no JSON", "is no JSON object"},
        {"[]", "is no JSON object"},
        {"{}", "its manifest names no kernel"},
        {"{" PART("kernel", "vmlinux", "3") "}}", "its manifest names no initrd"},
        {"{" PART("kernel", "vmlinux", "\"3\"") "}," REST, "its manifest names no kernel"},
        {"{" PART("kernel", "nothing", "3") "}," REST, "its nothing: No such file"},
        {"{" PART("kernel", "vmlinux", "4") "}," REST, "its vmlinux has 3 bytes, its manifest says 4"},
    };
    write_file("vmlinux", "123", 0600);
    write_file("initrd", "1234", 0600);
    write_file("root.erofs", "12345", 0600);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file("manifest.json", cases[i].manifest, 0600);
        probe("/bin/true", folder, false, false);
        finds(IMAGE, false, cases[i].words);
    }
    write_file("manifest.json", WHOLE, 0600);
    probe("/bin/true", folder, false, false);
    finds(IMAGE, true, "kernel 6.1.0-57-cloud-amd64");
}

static void the_accelerator_is_told_by_its_state(void **state)
{
    struct cordon_accel accel;
    assert_int_equal(cordon_accel_probe_anew(&accel, NULL), 0);
    probe("/bin/true", folder, false, false);
    finds(KVM, accel.usable, cordon_accel_state_name(accel.state));
}

static int make_folder(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unlink(in_folder(names[i])); /* not each test ran to its end */
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing_is_told_with_what_mends_it),
        cmocka_unit_test(it_is_needed_where_a_setting_names_it),
        cmocka_unit_test(qemu_must_be_one_and_new_enough),
        cmocka_unit_test(an_image_must_be_whole),
        cmocka_unit_test(the_accelerator_is_told_by_its_state),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
