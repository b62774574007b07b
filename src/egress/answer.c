/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's DNS questions. In mode NAMES nothing of a question reaches a name server but an allowed name that is to be
 * resolved, once for as long as its answer is fresh: A gives the address that stands for the name here, other types
 * give an empty answer, a name that is not allowed does not exist. In mode OPEN questions are asked anew, in our words.
 * What comes too fast is refused.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "egress/egress.h"

#define QUESTIONS_A_TURN 64
#define TTL_S 60u
#define ANSWER_MAX (CORDON_DNS_QUESTION_MAX + 64u)
#define TCP_IDLE_US 10000000u
#define TCP_ANSWER_MAX 65535u
#define KNOWN_COST 0.05 /* of a question whose answer is here, against one that is not */

static void end_job(struct cordon_job *job)
{
    struct cordon_session *session = job->session;
    cordon_waiter_leave(&job->waiter);
    cordon_lookup_drop(&job->lookup);
    if (job->tcp)
        job->tcp->job = NULL;
    if (job->previous)
        job->previous->next = job->next;
    else
        session->jobs = job->next;
    if (job->next)
        job->next->previous = job->previous;
    session->job_count--;
    free(job);
}

void cordon_job_drop(struct cordon_job *job)
{
    end_job(job);
}

/* --- sending --- */

/* From the address that was asked, or the guest's resolver would not take it. */
static void send_udp(const struct cordon_job *job, const uint8_t *data, size_t size)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(struct in6_pktinfo))];
    } control = {.space = {0}};
    bool six = job->socket == CORDON_EGRESS_UDP6;
    size_t info = six ? sizeof(struct in6_pktinfo) : sizeof(struct in_pktinfo);
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr message = {.msg_name = (void *)(uintptr_t)&job->peer,
                             .msg_namelen = job->peer_size,
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = CMSG_SPACE(info)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = six ? IPPROTO_IPV6 : IPPROTO_IP;
    header->cmsg_type = six ? IPV6_PKTINFO : IP_PKTINFO;
    header->cmsg_len = CMSG_LEN(info);
    memcpy(CMSG_DATA(header), &job->local, info);
    /* What the guest does not take in is lost, as datagrams are. */
    (void)sendmsg(job->session->sockets[job->socket].source.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A guest that does not read the few bytes of an answer has had its connection. */
static void send_tcp(struct cordon_connection *connection, const uint8_t *data, size_t size)
{
    uint8_t length[2] = {(uint8_t)(size >> 8), (uint8_t)size};
    struct iovec iov[2] = {{length, 2}, {(void *)(uintptr_t)data, size}};
    const struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t n = sendmsg(connection->guest.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n != (ssize_t)size + 2)
        (void)shutdown(connection->guest.fd, SHUT_RDWR); /* its event ends it */
}

/* Sends, and the job is done. */
static void finish(struct cordon_job *job, const uint8_t *data, size_t size)
{
    struct cordon_connection *tcp = job->tcp;
    if (!tcp)
        send_udp(job, data, size);
    else
        send_tcp(tcp, data, size);
    end_job(job);
    if (tcp)
        cordon_answer_tcp(tcp); /* the next question may be there already */
}

static void answer(struct cordon_job *job, enum cordon_dns_code code, const struct cordon_egress_address *address)
{
    uint8_t data[ANSWER_MAX];
    finish(job, data, cordon_dns_answer(&job->question, job->query, code, address, TTL_S, data));
}

/* --- judging --- */

static void on_resolved(struct cordon_waiter *waiter, const struct cordon_resolved *resolved)
{
    struct cordon_job *job = CORDON_OWNER(struct cordon_job, waiter, waiter);
    if (resolved->status == 0)
        answer(job, CORDON_DNS_OK, job->question.type == CORDON_DNS_A ? &job->address : NULL);
    else
        answer(job, resolved->status == -ENOENT ? CORDON_DNS_NO_NAME : CORDON_DNS_FAILED, NULL);
}

static void on_answer(struct cordon_lookup *lookup, const uint8_t *data, size_t size)
{
    struct cordon_job *job = CORDON_OWNER(struct cordon_job, lookup, lookup);
    uint8_t own[CORDON_DNS_MAX + ANSWER_MAX];
    cordon_autofree uint8_t *large = NULL;
    size_t room = job->tcp ? TCP_ANSWER_MAX : job->question.room;
    uint8_t *to = own;
    if (job->tcp && size > CORDON_DNS_MAX)
        to = large = malloc(TCP_ANSWER_MAX);
    size_t adopted = to ? cordon_dns_adopt(&job->question, job->query, data, size, room, to) : 0;
    if (adopted)
        finish(job, to, adopted);
    else
        answer(job, CORDON_DNS_FAILED, NULL);
}

static void judge_name(struct cordon_job *job)
{
    struct cordon_session *session = job->session;
    const char *name = job->question.name;
    const struct cordon_egress_rule *rule = NULL;
    if (!*name || cordon_egress_decide_name(&session->policy, name, 0, &rule) == CORDON_EGRESS_REFUSE) {
        cordon_egress_log_refused(&session->log, *name ? name : "(no host name)", NULL, 0, rule, true,
                                  "the name is not allowed");
        answer(job, CORDON_DNS_NO_NAME, NULL);
        return;
    }
    struct cordon_name *entry = cordon_name_get(&session->names, name, &job->address);
    if (!entry) {
        answer(job, CORDON_DNS_FAILED, NULL);
        return;
    }
    session->log.counts.names++;
    cordon_name_wait(entry, &job->waiter);
}

static void judge(struct cordon_job *job)
{
    struct cordon_session *session = job->session;
    switch (session->policy.mode) {
    case CORDON_EGRESS_NAMES:
        judge_name(job);
        break;
    case CORDON_EGRESS_OPEN:
        if (!*job->question.name) {
            answer(job, CORDON_DNS_NO_NAME, NULL);
            break;
        }
        session->log.counts.names++;
        cordon_resolve_raw(session->egress->resolver, job->question.name, job->question.type, &job->lookup);
        break;
    default:
        cordon_egress_log_refused(&session->log, job->question.name, NULL, 0, NULL, true, "the network is off");
        answer(job, CORDON_DNS_NO_NAME, NULL);
    }
}

static struct cordon_job *new_job(struct cordon_session *session)
{
    struct cordon_job *job = session->job_count < CORDON_JOBS_MAX ? calloc(1, sizeof *job) : NULL;
    if (!job)
        return NULL;
    job->session = session;
    job->waiter.on_resolved = on_resolved;
    job->lookup.on_answer = on_answer;
    job->next = session->jobs;
    if (job->next)
        job->next->previous = job;
    session->jobs = job;
    session->job_count++;
    return job;
}

/* Programs that keep no answers ask for the same names all the time. */
static double cost_of(const struct cordon_job *job)
{
    const struct cordon_session *session = job->session;
    bool known = session->policy.mode == CORDON_EGRESS_NAMES && cordon_name_known(&session->names, job->question.name);
    return known ? KNOWN_COST : 1;
}

/* The job's query of size bytes is read and judged. False: it was not worth an answer, and the job is gone. */
static bool take_query(struct cordon_job *job, size_t size)
{
    enum cordon_dns_code code;
    int r = cordon_dns_read(job->query, size, &job->question, &code);
    if (r == -EINVAL) {
        end_job(job);
        return false;
    }
    if (r < 0) {
        answer(job, code, NULL);
    } else if (!cordon_egress_guest_may_ask(job->session, cost_of(job))) {
        cordon_egress_log_refused(&job->session->log, "", NULL, 0, NULL, true, "too many questions");
        answer(job, CORDON_DNS_REFUSED, NULL);
    } else {
        judge(job);
    }
    return true;
}

/* --- UDP --- */

static bool take_local(struct cordon_job *job, struct msghdr *message)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO) {
            memcpy(&job->local.v4, CMSG_DATA(header), sizeof job->local.v4);
            job->local.v4.ipi_spec_dst = job->local.v4.ipi_addr;
            job->local.v4.ipi_ifindex = 0;
            return true;
        }
        if (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_PKTINFO) {
            memcpy(&job->local.v6, CMSG_DATA(header), sizeof job->local.v6);
            return true;
        }
    }
    return false;
}

/* False: nothing more is there. */
static bool take_datagram(struct cordon_session *session, enum cordon_egress_socket which)
{
    union {
        struct cmsghdr align;
        char space[256];
    } control;
    uint8_t spill[CORDON_DNS_QUESTION_MAX];
    struct cordon_job *job = new_job(session);
    struct sockaddr_storage nobody;
    struct iovec iov = {job ? job->query : spill, CORDON_DNS_QUESTION_MAX};
    struct msghdr message = {.msg_name = job ? &job->peer : &nobody,
                             .msg_namelen = sizeof nobody,
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
    ssize_t n = recvmsg(session->sockets[which].source.fd, &message, MSG_DONTWAIT);
    if (!job)
        return n >= 0; /* too many are under way: lost, as datagrams are, and asked again by the guest */
    job->socket = which;
    job->peer_size = message.msg_namelen;
    if (n < 0 || (message.msg_flags & MSG_TRUNC) || !take_local(job, &message))
        end_job(job);
    else
        (void)take_query(job, (size_t)n); /* answered, under way, or not worth it */
    return n >= 0;
}

void cordon_answer_udp(struct cordon_session *session, enum cordon_egress_socket which)
{
    for (int i = 0; i < QUESTIONS_A_TURN; i++)
        if (!take_datagram(session, which))
            return;
}

/* --- TCP: one question after the other, each with two bytes of length before it --- */

/* Bytes of one message: 0 while it isn't whole, negative when it never will be. */
static int message_size(const struct cordon_buf *in)
{
    if (in->size < 2)
        return 0;
    size_t size = (size_t)(uint8_t)in->data[0] << 8 | (uint8_t)in->data[1];
    if (size < 12 || size > CORDON_DNS_QUESTION_MAX)
        return -EBADMSG;
    return in->size >= size + 2 ? (int)size : 0;
}

static int receive(struct cordon_connection *connection)
{
    char *to = cordon_buf_reserve(&connection->in, CORDON_DNS_QUESTION_MAX + 2);
    if (!to)
        return -ENOMEM;
    ssize_t n = recv(connection->guest.fd, to, CORDON_DNS_QUESTION_MAX + 2, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -EPIPE;
    connection->in.size += (size_t)n;
    return 1;
}

/* False: the connection is of no more use. */
static bool take_message(struct cordon_connection *connection, size_t size)
{
    struct cordon_job *job = new_job(connection->session);
    if (!job)
        return false;
    memcpy(job->query, connection->in.data + 2, size);
    cordon_buf_consume(&connection->in, size + 2);
    connection->job = job;
    job->tcp = connection;
    return take_query(job, size);
}

/* One question at a time; what is sent meanwhile waits in the socket. Answers that are there at once come back here,
 * where the loop takes the next. */
void cordon_answer_tcp(struct cordon_connection *connection)
{
    struct cordon_loop *loop = &connection->session->egress->loop;
    int size = 0;
    if (connection->answering || connection->job)
        return;
    bool good = receive(connection) >= 0;
    connection->answering = true;
    while (good && !connection->job && (size = message_size(&connection->in)) > 0)
        good = take_message(connection, (size_t)size);
    connection->answering = false;
    if (good && size >= 0)
        good = cordon_source_set(loop, &connection->guest, connection->job ? 0 : EPOLLIN) == 0;
    if (!good || size < 0) {
        cordon_connection_end(connection);
        return;
    }
    cordon_timer_arm(loop, &connection->timer, TCP_IDLE_US);
}
