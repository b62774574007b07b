/* SPDX-License-Identifier: Apache-2.0 */
#include "door/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "core/guests.h"
#include "core/metrics.h"
#include "door/door.h"
#include "guest/guest.h"

static void simple(struct cordon_buf *to, const char *name, const char *type, const char *help, uint64_t value)
{
    (void)cordon_buf_appendf(to, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", name, help, name, type, name,
                             value); /* sticky in to->failed, seen by the reply */
}

static void write_route(struct cordon_buf *to, const struct cordon_http_server *server, size_t index,
                        const struct cordon_http_route *route)
{
    static const char *const classes[] = {"broken", "1xx", "2xx", "3xx", "4xx", "5xx"};
    struct cordon_http_counts counts;
    cordon_http_counts_read(server, index, &counts);
    for (size_t i = 0; i < 6; i++)
        if (counts.by_class[i])
            (void)cordon_buf_appendf(
                to, "cordon_http_answers_total{method=\"%s\",route=\"%s\",status=\"%s\"} %" PRIu64 "\n",
                route ? route->method : "", route ? route->pattern : "", classes[i], counts.by_class[i]);
}

static void write_routes(struct cordon_buf *to, const struct cordon_http_request *request)
{
    const struct cordon_doors *doors = request->context;
    size_t index = 0;
    (void)cordon_buf_appends(
        to, "# HELP cordon_http_answers_total HTTP requests by route; an empty route: there was none.\n"
            "# TYPE cordon_http_answers_total counter\n");
    for (const struct cordon_http_door *const *door = doors->list; *door; door++)
        for (size_t i = 0; i < (*door)->route_count; i++)
            write_route(to, request->server, index++, &(*door)->routes[i]);
    write_route(to, request->server, index, NULL);
}

static int64_t count_requests(const struct cordon_http_request *request)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_http_counts counts;
    uint64_t sum = 0;
    for (size_t route = 0; route <= cordon_http_route_count(doors->list); route++) {
        cordon_http_counts_read(request->server, route, &counts);
        for (size_t i = 0; i < 6; i++)
            sum += counts.by_class[i];
    }
    return (int64_t)sum;
}

int cordon_door_metrics_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_buf body = CORDON_BUF_INIT(4u << 20);
    struct cordon_warden_hello hello;
    struct rusage usage;
    cordon_metrics_set(CORDON_METRIC_HTTP_CONNECTIONS, (int64_t)cordon_http_connections(request->server));
    cordon_metrics_set(CORDON_METRIC_HTTP_REQUESTS, count_requests(request));
    struct cordon_guests_counts kept;
    cordon_guests_count(cordon_guests_all, &kept);
    cordon_metrics_set(CORDON_METRIC_KEPT_RUNNING, (int64_t)kept.running);
    cordon_metrics_set(CORDON_METRIC_KEPT_PAUSED, (int64_t)kept.paused);
    cordon_metrics_write(&body);
    write_routes(&body, request);
    bool up = cordon_warden_hello(&hello, NULL) == 0 && hello.status == 0;
    simple(&body, "cordon_warden_up", "gauge", "1 when the warden is there and able to run code.", up);
    simple(&body, "cordon_uptime_seconds", "gauge", "Since the gateway started.",
           (cordon_now_us() - doors->started_us) / 1000000);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        simple(&body, "cordon_gateway_max_resident_bytes", "gauge", "Most memory that the gateway has had.",
               (uint64_t)usage.ru_maxrss * 1024);
    (void)cordon_buf_appendf(&body,
                             "# HELP cordon_info The daemon's version.\n# TYPE cordon_info gauge\n"
                             "cordon_info{version=\"%s\"} 1\n",
                             doors->version);
    int r = cordon_http_reply(request, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the metrics") : 0;
}
