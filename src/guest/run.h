/* SPDX-License-Identifier: Apache-2.0 */
/* One run at the gateway's end. See run.c. */
#ifndef CORDON_GUEST_RUN_H
#define CORDON_GUEST_RUN_H

#include "guest/egress.h"
#include "guest/internal.h"

enum cordon_guest_stage { CORDON_STAGE_RUN, CORDON_STAGE_COLLECT, CORDON_STAGE_OUTCOME, CORDON_STAGE_DONE };

/* Why we ended it. */
enum cordon_guest_cut { CORDON_CUT_NONE = 0, CORDON_CUT_TIMEOUT, CORDON_CUT_CPU, CORDON_CUT_CANCELLED };

/* Why there will be no EXIT. */
enum cordon_guest_loss {
    CORDON_LOSS_NONE = 0,
    CORDON_LOSS_AGENT,     /* the channel ended, or the lease did */
    CORDON_LOSS_SILENT,    /* no answer in time */
    CORDON_LOSS_REFUSED,   /* ERROR: reader.reason */
    CORDON_LOSS_VIOLATION, /* reader.violation */
    CORDON_LOSS_MEMORY     /* of the gateway itself */
};

struct cordon_run {
    struct cordon_guest_backend backend;
    const struct cordon_request *request; /* borrowed until run_close */
    struct cordon_lease lease;
    struct cordon_guest_sender sender;
    struct cordon_guest_reader reader;
    struct cordon_buf in;
    size_t in_at; /* what lies before it was taken in; an event may still point there */
    enum cordon_guest_stage stage;
    enum cordon_guest_cut cut;
    enum cordon_guest_loss loss;
    uint64_t opened_us, granted_us, exec_us, ended_us;
    uint64_t deadline_us;  /* of the program; 0: none */
    uint64_t cpu_check_us; /* when its CPU time could be used up at the earliest; 0: no limit */
    uint64_t give_up_us;   /* when no answer is waited for any longer; 0: none */
    uint64_t credit_owed[2];
    bool lease_ended, channel_ended; /* of a machine the lease's last word is waited for */
    bool result_given;
    bool missing_told;                         /* that artifacts were lost */
    struct cordon_egress_session *egress;      /* with network */
    struct cordon_buf egress_log;              /* given as an event when it was read */
    struct cordon_egress_counts egress_counts; /* …with it */
    bool egress_told;
    struct cordon_outcome outcome;
};

/* outcome.c: fills run->outcome from all that is known; the counters are read here. */
void cordon_guest_run_judge(struct cordon_run *run);

#endif
