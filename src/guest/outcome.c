/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is told of a run's end. A cause is only named for which there is evidence of our own: our deadline, the
 * kernel's counter of processes killed for memory and its peak, the agent's wait status. Exit codes are never
 * interpreted.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "guest/run.h"
#include "isolate/cgroup.h"

#define LAST_STEP_BYTES (1u << 20)

static void say(struct cordon_outcome *outcome, enum cordon_cause cause, int exit_code, const char *limit)
{
    outcome->cause = cause;
    outcome->exit_code = exit_code;
    (void)snprintf(outcome->limit_hit, sizeof outcome->limit_hit, "%s", limit);
}

/* "10 s", "2.5 s" */
static const char *seconds(uint64_t ms, char text[32])
{
    if (ms % 1000)
        (void)snprintf(text, 32, "%" PRIu64 ".%03u s", ms / 1000, (unsigned)(ms % 1000));
    else
        (void)snprintf(text, 32, "%" PRIu64 " s", ms / 1000);
    return text;
}

static void say_timeout(struct cordon_run *run)
{
    char text[32];
    struct cordon_outcome *outcome = &run->outcome;
    bool cpu = run->cut == CORDON_CUT_CPU;
    say(outcome, CORDON_CAUSE_TIMEOUT, -1, cpu ? "cpu_s" : "timeout_s");
    if (cpu)
        (void)snprintf(outcome->message, sizeof outcome->message,
                       "the program was ended because it used up its CPU time limit of %s (cpu_s)",
                       seconds(run->request->limits.cpu_ms, text));
    else
        (void)snprintf(outcome->message, sizeof outcome->message,
                       "the program was ended because it ran longer than its time limit of %s (timeout_s)",
                       seconds(run->request->limits.timeout_ms, text));
}

/* The kernel also counts what it killed because a group around the guest's, or the host, had no memory left. A guest
 * that came to its own limit has been there: only the last step is not charged. */
static bool came_to_its_limit(const struct cordon_run *run)
{
    if (run->lease.memory_peak < 0) /* nothing better is known */
        return true;
    uint64_t limit = run->request->limits.memory_bytes;
    return limit && run->outcome.memory_peak_bytes + LAST_STEP_BYTES >= limit;
}

static void say_host_memory(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->outcome;
    say(outcome, CORDON_CAUSE_INFRASTRUCTURE, -1, "");
    (void)snprintf(outcome->message, sizeof outcome->message,
                   "the program was killed because the host, or what it leaves to all guests together, had no memory "
                   "left; it had used %" PRIu64 " MiB, within its own limit",
                   outcome->memory_peak_bytes >> 20);
}

/* Which processes they were the kernel does not tell: a program that killed itself after its child was killed for
 * memory looks the same as one that was killed itself. The message says only what is known. */
static void say_memory(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->outcome;
    if (!came_to_its_limit(run)) {
        say_host_memory(run);
        return;
    }
    say(outcome, CORDON_CAUSE_MEMORY, 137, "memory_mb");
    outcome->signal = SIGKILL;
    /* In a machine its kernel and what waits there take their part of the same memory. */
    const char *what = run->backend.machine ? "more than its virtual machine's memory" : "more than its memory limit";
    (void)snprintf(
        outcome->message, sizeof outcome->message,
        "the program needed %s of %" PRIu64 " MiB (memory_mb), for which %" PRIu32 " of its processes %s killed", what,
        run->request->limits.memory_bytes >> 20, outcome->oom_kills, outcome->oom_kills == 1 ? "was" : "were");
}

static void say_signalled(struct cordon_outcome *outcome, int signal)
{
    const char *name = signal > 0 && signal < NSIG ? sigabbrev_np(signal) : NULL;
    say(outcome, CORDON_CAUSE_SIGNALLED, 128 + signal, "");
    outcome->signal = signal;
    (void)snprintf(outcome->message, sizeof outcome->message, "the program was ended by signal %d%s%s%s", signal,
                   name ? " (SIG" : "", name ? name : "", name ? ")" : "");
}

static void say_output_limit(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->outcome;
    uint64_t limit = run->request->limits.output_kill_bytes;
    say(outcome, CORDON_CAUSE_OUTPUT_LIMIT, -1, "output_kill_mb");
    (void)snprintf(outcome->message, sizeof outcome->message,
                   "the program was ended because it wrote more than %.10g MiB to %s (output_kill_mb)",
                   (double)limit / (1 << 20), run->reader.exit.stdout_bytes > limit ? "stdout" : "stderr");
}

static void judge_exit(struct cordon_run *run)
{
    const struct cordon_exit *exit = &run->reader.exit;
    struct cordon_outcome *outcome = &run->outcome;
    bool killed = exit->how == CORDON_EXIT_SIGNALLED && exit->status == SIGKILL;
    if (exit->how == CORDON_EXIT_TIMEOUT || (killed && run->cut))
        say_timeout(run);
    else if (killed && outcome->oom_kills)
        say_memory(run);
    else if (exit->how == CORDON_EXIT_SIGNALLED)
        say_signalled(outcome, exit->status);
    else if (exit->how == CORDON_EXIT_OUTPUT_LIMIT)
        say_output_limit(run);
    else
        say(outcome, CORDON_CAUSE_EXITED, exit->status, "");
}

static void judge_loss(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->outcome;
    const struct cordon_guest_reader *reader = &run->reader;
    say(outcome, CORDON_CAUSE_INFRASTRUCTURE, -1, "");
    if (run->loss == CORDON_LOSS_REFUSED) {
        bool files = reader->error_of_files;
        outcome->cause = files ? CORDON_CAUSE_REFUSED : CORDON_CAUSE_INFRASTRUCTURE;
        (void)snprintf(outcome->message, sizeof outcome->message, "the program was not started: %.140s%s%.80s%s",
                       reader->reason, *reader->name ? ": '" : "", reader->name, *reader->name ? "'" : "");
        return;
    }
    static const char *const texts[] = {
        [CORDON_LOSS_NONE] = "the run ended without an end",
        [CORDON_LOSS_AGENT] = "the guest ended before its program did: its agent, or the warden, was killed",
        [CORDON_LOSS_SILENT] = "the guest's agent did not answer in time",
        [CORDON_LOSS_VIOLATION] = "the guest violated its protocol: ",
        [CORDON_LOSS_MEMORY] = "the gateway has no memory for this run",
    };
    char word[160];
    if (run->loss == CORDON_LOSS_AGENT && cordon_lease_last_word(&run->lease, word, sizeof word)) {
        (void)snprintf(outcome->message, sizeof outcome->message,
                       "the virtual machine ended before its program did: %s", word);
        return;
    }
    (void)snprintf(outcome->message, sizeof outcome->message, "%s%s", texts[run->loss],
                   run->loss == CORDON_LOSS_VIOLATION ? reader->violation : "");
}

static void judge(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->outcome;
    bool lost = run->loss == CORDON_LOSS_AGENT || (run->loss == CORDON_LOSS_REFUSED && run->reader.error_of_files);
    if (run->cut == CORDON_CUT_CANCELLED) {
        say(outcome, CORDON_CAUSE_CANCELLED, -1, "");
        (void)snprintf(outcome->message, sizeof outcome->message, "the run was cancelled: its client left");
    } else if (run->reader.state >= CORDON_GUEST_EXITED) {
        judge_exit(run);
    } else if (run->loss == CORDON_LOSS_VIOLATION) {
        judge_loss(run);
    } else if (run->cut) {
        say_timeout(run);
    } else if (lost && outcome->oom_kills) {
        say_memory(run);
    } else {
        judge_loss(run);
    }
}

static void read_counters(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->outcome;
    const struct cordon_lease *lease = &run->lease;
    if (run->backend.machine) { /* the host's counters are QEMU's; in there the agent has looked */
        outcome->oom_kills = run->reader.exit.oom_kills;
        outcome->memory_peak_bytes = run->reader.exit.memory_peak_bytes;
    }
    if (lease->memory_events >= 0) {
        uint64_t kills = cordon_cgroup_read_oom_kills(lease->memory_events);
        outcome->oom_kills = kills > lease->oom_kill_base ? (uint32_t)(kills - lease->oom_kill_base) : 0;
    }
    if (lease->memory_peak >= 0)
        outcome->memory_peak_bytes = cordon_cgroup_read_number(lease->memory_peak);
    if (lease->cpu_usage >= 0) {
        uint64_t used = cordon_cgroup_read_cpu_us(lease->cpu_usage);
        outcome->cpu_us = used > lease->cpu_usage_base ? used - lease->cpu_usage_base : 0;
    }
}

static uint64_t at_least(uint64_t written, uint64_t kept)
{
    return written > kept ? written : kept;
}

static void copy_exit(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->outcome;
    const struct cordon_exit *exit = &run->reader.exit;
    outcome->processes_left = exit->processes_left;
    outcome->syscalls_denied = exit->syscalls_denied;
    memcpy(outcome->blocked_syscall, exit->blocked_syscall, sizeof outcome->blocked_syscall);
    outcome->stdout_kept = run->reader.kept[0];
    outcome->stderr_kept = run->reader.kept[1];
    outcome->stdout_bytes = at_least(exit->stdout_bytes, run->reader.kept[0]);
    outcome->stderr_bytes = at_least(exit->stderr_bytes, run->reader.kept[1]);
    outcome->artifacts_dropped = run->reader.dropped;
}

static void explain_result(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->outcome;
    if (!run->request->arguments.data || run->result_given || outcome->cause != CORDON_CAUSE_EXITED)
        return;
    const char *why = run->reader.result_error;
    if (!*why && outcome->exit_code == 0)
        why = strcmp(run->request->language, "bash") == 0
                  ? "main wrote no result to the descriptor that CORDON_RESULT_FD names"
                  : "the program ended before main returned";
    (void)snprintf(outcome->result_error, sizeof outcome->result_error, "%s", why);
}

static void tell_machine(struct cordon_run *run)
{
    static const char *const starts[] = {"", "booted", "copied", "pooled"};
    struct cordon_outcome *outcome = &run->outcome;
    uint32_t start = run->lease.machine_start;
    outcome->isolation = cordon_lease_isolation(&run->lease);
    (void)snprintf(outcome->accelerator, sizeof outcome->accelerator, "%s", cordon_lease_accelerator(&run->lease));
    (void)snprintf(outcome->start, sizeof outcome->start, "%s", start <= CORDON_MACHINE_POOLED ? starts[start] : "");
}

void cordon_guest_run_judge(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->outcome;
    uint64_t now = cordon_now_us(), ended = run->ended_us ? run->ended_us : now;
    *outcome = (struct cordon_outcome){.struct_size = sizeof *outcome, .isolation = run->backend.isolation};
    (void)snprintf(outcome->backend, sizeof outcome->backend, "%s", run->backend.name);
    outcome->warm = run->lease.warm;
    if (run->backend.machine)
        tell_machine(run);
    outcome->start_us = run->granted_us - run->opened_us;
    outcome->run_us = run->exec_us && ended > run->exec_us ? ended - run->exec_us : 0;
    outcome->total_us = now - run->opened_us;
    read_counters(run);
    outcome->network = run->egress != NULL;
    outcome->egress = run->egress_counts;
    copy_exit(run);
    judge(run);
    explain_result(run);
}
