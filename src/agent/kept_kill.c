/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Killing a program with all that it started. In a kept guest other programs go on, so it can't be all of the guest:
 * who counts is its process group, its session, and who descends from any of those. One that left the session and
 * whose parents are all gone is not found; it stays within the guest's limits and ends with the guest.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/kept.h"
#include "base/fd.h"

#define PROCESSES 4096
#define ROUNDS 8

struct process {
    pid_t pid, parent, group, session;
    bool doomed;
};

/* "pid (name) state parent group session …"; the name may hold anything. */
static bool read_process(int proc, const char *name, struct process *ret)
{
    char path[32], text[512];
    (void)snprintf(path, sizeof path, "%.10s/stat", name); /* a number */
    if (cordon_read_file(proc, path, text, sizeof text) <= 0)
        return false;
    const char *rest = strrchr(text, ')');
    int parent, group, session;
    char state;
    if (!rest || sscanf(rest + 1, " %c %d %d %d", &state, &parent, &group, &session) != 4 || state == 'Z')
        return false;
    *ret = (struct process){.pid = (pid_t)strtol(name, NULL, 10), .parent = parent, .group = group, .session = session};
    return ret->pid > 1;
}

static size_t list_processes(struct process *list)
{
    size_t count = 0;
    DIR *dir = opendir("/proc");
    if (!dir)
        return 0;
    for (struct dirent *entry = readdir(dir); entry && count < PROCESSES; entry = readdir(dir))
        if (*entry->d_name >= '0' && *entry->d_name <= '9')
            count += read_process(dirfd(dir), entry->d_name, &list[count]);
    (void)closedir(dir); /* only read from */
    return count;
}

static bool descends(const struct process *list, size_t count, const struct process *process)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].doomed && list[i].pid == process->parent)
            return true;
    return false;
}

static void doom(struct process *list, size_t count, pid_t pid)
{
    bool more = true;
    for (size_t i = 0; i < count; i++)
        list[i].doomed = list[i].pid == pid || list[i].group == pid || list[i].session == pid;
    while (more) {
        more = false;
        for (size_t i = 0; i < count; i++) {
            if (list[i].doomed || !descends(list, count, &list[i]))
                continue;
            list[i].doomed = more = true;
        }
    }
}

void cordon_kept_kill_tree(pid_t pid)
{
    if (pid <= 1)
        return;
    (void)kill(-pid, SIGSTOP); /* so that fewer are born meanwhile; who was not in the group is found below */
    (void)kill(pid, SIGSTOP);
    struct process *list = calloc(PROCESSES, sizeof *list);
    for (int round = 0; list && round < ROUNDS; round++) {
        size_t count = list_processes(list), killed = 0;
        doom(list, count, pid);
        for (size_t i = 0; i < count; i++)
            killed += list[i].doomed && kill(list[i].pid, SIGKILL) == 0 && list[i].pid != pid;
        if (!killed)
            break;
    }
    free(list);
    (void)kill(-pid, SIGKILL); /* also where there was no memory, or /proc was no use */
    (void)kill(pid, SIGKILL);
}
