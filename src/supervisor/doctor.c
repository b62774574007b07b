/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/doctor.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#define LOOK_S 50u /* less than the gateway's patience */

/* In the child. The alarm stays over exec: a probe that hangs, or a pipe that nobody reads, is no process for ever. */
static void child(const struct cordon_doctor *doctor, pid_t parent, int to) __attribute__((noreturn));
static void child(const struct cordon_doctor *doctor, pid_t parent, int to)
{
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL); /* can't fail */
    (void)signal(SIGPIPE, SIG_DFL);              /* can't fail */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        _exit(125);
    (void)setpgid(0, 0); /* the terminal's ^C is for the supervisor */
    (void)alarm(LOOK_S);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(to, STDOUT_FILENO) < 0 || unsetenv("NOTIFY_SOCKET") < 0)
        _exit(125);
    (void)execv("/proc/self/exe", doctor->argv);
    _exit(125);
}

void cordon_doctor_start(struct cordon_doctor *doctor, int to)
{
    pid_t parent = getpid();
    if (doctor->pid) {
        cordon_close(&doctor->next);
        doctor->next = to;
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        child(doctor, parent, to);
    if (pid < 0)
        cordon_log(CORDON_LOG_ERROR, "the look at the host can not be started", NULL);
    else
        doctor->pid = pid;
    cordon_close(&to);
}

void cordon_doctor_ended(struct cordon_doctor *doctor)
{
    doctor->pid = 0;
    if (doctor->next >= 0)
        cordon_doctor_start(doctor, CORDON_TAKE_FD(doctor->next));
}
