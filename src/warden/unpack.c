/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacks an archive that nobody has read. Whatever is wrong in libarchive or here, this process has nothing: its root
 * is the empty tmpfs that it fills, its uid is nobody else's, it has no network, no capability, no way to start a
 * program or another process, a fixed list of system calls, and limits of time, memory, bytes and files (the tmpfs's).
 *
 * What is made of a hostile archive: plain files, folders and links only, with no more than rwxr-xr-x, no owner, no
 * extended attributes. Devices, pipes and sockets are left out and counted, setuid and setgid bits dropped and counted
 * (file trees of distributions have both). A member that is named absolutely or by "..", that lies behind a link, or
 * that is a hard link to what was not unpacked before refuses the whole archive. Symbolic links may point anywhere:
 * guests resolve them in their own tree.
 */
#include "warden/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <locale.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sanitize.h"

#define ARCHIVE_FD 3
#define RESULT_FD 4
#define TREE_FD 5
#define READ_BLOCK (256u << 10)
#define CPU_S 900
#define MEMORY (512ull << 20) /* of the decompressor: far more than any window that is in use */
#define NAME_MAX_BYTES 4000

#ifdef CORDON_WEAKEN_UNPACK_NAMES
#define EXTRACT (ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_PERM)
#else
#define EXTRACT                                                                                                        \
    (ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_SYMLINKS | \
     ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS)
#endif

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define NATIVE_ARCH AUDIT_ARCH_RISCV64
#endif

const char *const cordon_unpack_python[CORDON_UNPACK_PLACES] = {"/usr/local/bin/python3", "/usr/bin/python3",
                                                                "/opt/conda/bin/python3"};
const char *const cordon_unpack_node[CORDON_UNPACK_PLACES] = {"/usr/local/bin/node", "/usr/bin/node",
                                                              "/usr/bin/nodejs"};
const char *const cordon_unpack_bash[CORDON_UNPACK_PLACES] = {"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"};

static struct cordon_unpack_result result;

static int fail(int error, const char *what, const char *name)
{
    result.status = error;
    (void)snprintf(result.why, sizeof result.why, "%.150s%s%.140s", what, *name ? ": " : "", name);
    return error;
}

/* --- the jail --- */

static const int allowed_calls[] = {
    SYS_read,           SYS_write,     SYS_pread64,    SYS_lseek,           SYS_close,        SYS_fcntl,
    SYS_openat,         SYS_fstat,     SYS_newfstatat, SYS_statx,           SYS_mkdirat,      SYS_symlinkat,
    SYS_linkat,         SYS_unlinkat,  SYS_renameat2,  SYS_fchmod,          SYS_fchmodat,     SYS_utimensat,
    SYS_ftruncate,      SYS_fchdir,    SYS_chdir,      SYS_umask,           SYS_readlinkat,   SYS_faccessat,
    SYS_faccessat2,     SYS_brk,       SYS_mmap,       SYS_munmap,          SYS_mremap,       SYS_mprotect,
    SYS_madvise,        SYS_futex,     SYS_getrandom,  SYS_clock_gettime,   SYS_gettimeofday, SYS_geteuid,
    SYS_getuid,         SYS_getegid,   SYS_getgid,     SYS_getpid,          SYS_gettid,       SYS_rt_sigreturn,
    SYS_rt_sigprocmask, SYS_exit,      SYS_exit_group, SYS_restart_syscall, SYS_sendto,       SYS_getcwd,
#ifdef SYS_open
    SYS_open,           SYS_stat,      SYS_lstat,      SYS_mkdir,           SYS_rmdir,        SYS_unlink,
    SYS_symlink,        SYS_link,      SYS_chmod,      SYS_readlink,        SYS_access,       SYS_time,
    SYS_utimes,         SYS_futimesat, SYS_rename,     SYS_renameat,        SYS_arch_prctl,
#endif
};

#define CALLS (sizeof allowed_calls / sizeof *allowed_calls)

static int install_filter(void)
{
#if defined(NATIVE_ARCH) && !defined(CORDON_SANITIZED)
    struct sock_filter program[CALLS + 6];
    size_t n = 0;
    program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < CALLS; i++)
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed_calls[i],
                                                    (unsigned char)(CALLS - i), 0);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog filter = {.len = (unsigned short)n, .filter = program};
    _Static_assert(CALLS < 250, "jumps are of one byte");
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0 ? -errno : 0;
#else
    return 0; /* a sanitizer needs more calls than are worth listing */
#endif
}

static int limit(int resource, rlim_t value)
{
    const struct rlimit both = {value, value};
    return setrlimit((__rlimit_resource_t)resource, &both) < 0 ? -errno : 0;
}

static int drop_ids(uid_t uid)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    for (unsigned long capability = 0; prctl(PR_CAPBSET_DROP, capability) == 0; capability++)
        ;
    if (uid && (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0))
        return -errno;
    if (syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}

/* Gives up everything, in this order: each step needs what the next takes away. */
static int confine(uid_t uid)
{
    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* so that names in UTF-8 stay what they are; its files are outside */
    if (fchdir(TREE_FD) < 0 || chroot(".") < 0 || chdir("/") < 0)
        return fail(-errno, "entering the jail", strerror(errno));
    (void)close(TREE_FD); /* it is / now */
    (void)umask(0);
    int r = limit(RLIMIT_CORE, 0);
    if (r == 0)
        r = limit(RLIMIT_CPU, CPU_S);
    if (r == 0)
        r = limit(RLIMIT_NOFILE, 64);
#ifndef CORDON_SANITIZED
    if (r == 0)
        r = limit(RLIMIT_AS, MEMORY);
#endif
    if (r == 0)
        r = drop_ids(uid);
    if (r == 0 && uid)
        r = limit(RLIMIT_NPROC, 0);
    if (r == 0)
        r = install_filter();
    return r < 0 ? fail(r, "entering the jail", strerror(-r)) : 0;
}

/* --- the archive --- */

/* "./" before a name, as many tars have it, means nothing. A name that is the tree itself is "". */
static const char *strip(const char *name)
{
    while (name[0] == '.' && (name[1] == '/' || !name[1]))
        name += name[1] ? 2 : 1;
    return name;
}

static bool has_dotdot(const char *name)
{
    for (const char *at = name; *at; at += *at == '/') {
        size_t size = strcspn(at, "/");
        if (size == 2 && at[0] == '.' && at[1] == '.')
            return true;
        at += size;
    }
    return false;
}

static int check_name(const char *name)
{
    if (!name)
        return fail(-EBADMSG, "a member has a name that can not be read", "");
    if (strlen(name) > NAME_MAX_BYTES)
        return fail(-ENAMETOOLONG, "a member's name is too long", name);
#ifdef CORDON_WEAKEN_UNPACK_NAMES
    return 0;
#endif
    if (*name == '/')
        return fail(-EPERM, "a member is named absolutely", name);
    return has_dotdot(name) ? fail(-EPERM, "a member's name has \"..\" in it", name) : 0;
}

/* Changes entry to what may be made of it: 1, 0 when nothing is, negative when the archive is refused. */
static int tame(struct archive_entry *entry)
{
    static char name[NAME_MAX_BYTES + 1], target[NAME_MAX_BYTES + 1]; /* not the entry's own memory */
    mode_t mode = archive_entry_mode(entry);
    const char *path = archive_entry_pathname(entry), *link = archive_entry_hardlink(entry);
    int r = check_name(path);
    if (r == 0 && link)
        r = check_name(link);
    if (r < 0)
        return r;
    (void)snprintf(name, sizeof name, "%s", strip(path)); /* checked to fit */
    if (!*name)
        return 0;
    if (link)
        (void)snprintf(target, sizeof target, "%s", strip(link)); /* checked to fit */
    archive_entry_copy_pathname(entry, name);
    if (link) {
        archive_entry_copy_hardlink(entry, target);
        return 1;
    }
    mode_t type = mode & S_IFMT;
    bool plain = type == S_IFREG || type == S_IFDIR || type == S_IFLNK;
#ifdef CORDON_WEAKEN_UNPACK_TYPES
    plain = true;
#endif
    if (!plain) {
        result.left_out++;
        return 0;
    }
    result.lost_bits += type == S_IFREG && (mode & (S_ISUID | S_ISGID));
    if (type == S_IFDIR)
        archive_entry_set_mode(entry, S_IFDIR | 0755);
    else if (type == S_IFREG)
        archive_entry_set_mode(entry, S_IFREG | (mode & 0111 ? 0755 : 0644));
    return 1;
}

static int told(struct archive *of, const char *name)
{
    int error = archive_errno(of);
    const char *text = archive_error_string(of);
    char what[160];
    if (error == ENOSPC)
        return fail(-ENOSPC, "it is larger, or has more files, than CORDON_TEMPLATE_MB allows", name);
    (void)snprintf(what, sizeof what, "%.150s", text ? text : "it is no archive that is known"); /* cut is fine */
    return fail(error > 0 ? -error : -EBADMSG, what, name);
}

static int copy_data(struct archive *from, struct archive *to, const char *name)
{
    const void *data;
    size_t size;
    la_int64_t offset;
    int r;
    while ((r = archive_read_data_block(from, &data, &size, &offset)) == ARCHIVE_OK) {
        if (archive_write_data_block(to, data, size, offset) < ARCHIVE_OK)
            return told(to, name);
        result.bytes += size;
    }
    return r == ARCHIVE_EOF ? 0 : told(from, name);
}

static int put_entry(struct archive *from, struct archive *to, struct archive_entry *entry)
{
    char name[256];
    int r = tame(entry);
    if (r <= 0)
        return r;
    (void)snprintf(name, sizeof name, "%s", archive_entry_pathname(entry)); /* for messages: cut is fine */
    bool link = archive_entry_hardlink(entry) != NULL;
    if (archive_write_header(to, entry) < ARCHIVE_OK)
        return told(to, name);
    if (!link && archive_entry_size(entry) > 0 && (r = copy_data(from, to, name)) < 0)
        return r;
    if (archive_write_finish_entry(to) < ARCHIVE_OK)
        return told(to, name);
    result.files++;
    return 0;
}

static int unpack(struct archive *from, struct archive *to)
{
    struct archive_entry *entry;
    int r;
    if (archive_read_open_fd(from, ARCHIVE_FD, READ_BLOCK) != ARCHIVE_OK)
        return told(from, "");
    while ((r = archive_read_next_header(from, &entry)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
        int put = put_entry(from, to, entry);
        if (put < 0)
            return put;
    }
    if (r != ARCHIVE_EOF)
        return told(from, "");
    return archive_write_close(to) < ARCHIVE_OK ? told(to, "") : 0;
}

static int run(void)
{
    struct archive *from = archive_read_new(), *to = archive_write_disk_new();
    if (!from || !to)
        return fail(-ENOMEM, "no memory", "");
    /* Only what is in the library itself: others would be programs that it starts. */
    (void)archive_read_support_format_tar(from);
    (void)archive_read_support_filter_gzip(from);
    (void)archive_read_support_filter_bzip2(from);
    (void)archive_read_support_filter_xz(from);
    (void)archive_read_support_filter_zstd(from);      /* what the library lacks is told as an unknown archive */
    (void)archive_write_disk_set_options(to, EXTRACT); /* can't fail */
    int r = unpack(from, to);
    (void)archive_write_free(to); /* what it would still say was said */
    (void)archive_read_free(from);
    return r;
}

/* By its place in the list, followed within the tree. */
static uint32_t find(const char *const *places)
{
    struct stat found;
    for (uint32_t i = 0; i < CORDON_UNPACK_PLACES; i++)
        if (stat(places[i], &found) == 0 && S_ISREG(found.st_mode) && (found.st_mode & 0111))
            return i + 1;
    return 0;
}

int cordon_unpack_main(int argc, char **argv)
{
    if (argc != 3)
        return 125;
    bool whole = strcmp(argv[2], "whole") == 0;
    if (confine((uid_t)strtoul(argv[1], NULL, 10)) == 0 && run() == 0 && whole) {
        result.python = find(cordon_unpack_python);
        result.node = find(cordon_unpack_node);
        result.bash = find(cordon_unpack_bash);
    }
    return send(RESULT_FD, &result, sizeof result, MSG_NOSIGNAL) == (ssize_t)sizeof result ? 0 : 1;
}
