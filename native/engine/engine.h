/* The engine: live objects made of a plan, and everything that is one per process.
 *
 * engine_start_plan makes all of a plan or nothing; engine_swap makes the difference between two plans by object name, all
 * or nothing: what is unchanged is not touched, sessions stay. On worker 0. */
#ifndef FV_ENGINE_ENGINE_H
#define FV_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/device.h"
#include "engine/network.h"
#include "engine/plan.h"
#include "engine/session.h"
#include "io/netlink.h"
#include "io/worker.h"

struct names;

struct engine {
    struct workers workers;
    struct device *devices;
    struct plan plan;     /* in force */
    bool plan_running;    /* started by a plan, not as `fvd NAME` */
    const char *plan_path;
    struct netlink netlink;
    struct network network;
    bool network_open;
    bool network_again;   /* an interface of ours has come up: its routes are to be set again */
    struct wake links;    /* WAKE_NETLINK: reports of changed interfaces */
    bool routes_changed;  /* and of routes and addresses: not yet looked at */
    uint64_t routes_at;   /* monotonic ns before which they are not */
    struct session_listener control;
    struct session *sessions;
    unsigned session_count;
    struct wake signals;  /* WAKE_SIGNAL */
    struct names *names;  /* host names of endpoints (names.c) */
    uint64_t started;     /* monotonic ns */
    bool stopping;
    int status;
};

/* How one device is made when there is no plan. */
struct engine_device {
    const char *name;
    int tun_fd, uapi_fd; /* -1: our own */
};

int engine_init(struct engine *engine, const struct plan_engine *settings);
/* 0 or -errno with *error; after an error nothing is left but what on_crash says. Takes the plan over. */
int engine_start_plan(struct engine *engine, struct plan *plan, struct plan_error *error);
int engine_start_device(struct engine *engine, const struct engine_device *wanted, struct plan_error *error);
/* swap.c. 0, or -errno with *error and the old plan in force. */
int engine_swap(struct engine *engine, const char *text, size_t n, struct plan_error *error);
void engine_reload(struct engine *engine); /* SIGHUP: the plan's file again */
void engine_stop(struct engine *engine, const char *why);
void engine_free(struct engine *engine);
/* Once a turn of worker 0. */
void engine_turn(struct engine *engine);
void engine_links_changed(struct engine *engine);
/* key=value lines ending with errno=0 and a blank line; malloc'ed; *n bytes. NULL: no memory. */
char *engine_stats_text(struct engine *engine, size_t *n);

/* The [network] section, parsed; 0 or -EINVAL with *error. */
int engine_network_plan(const struct plan *plan, struct network_plan *out, struct plan_error *error);
int engine_network_fail(struct engine *engine, int result, struct plan_error *error);

/* names.c: looks the host name of a peer's endpoint up, and tells the tunnel. */
int engine_names_init(struct engine *engine, const struct plan *plan, struct plan_error *error);
/* Servers and hosts of another plan, from now on. */
int engine_names_configure(struct engine *engine, const struct plan *plan, struct plan_error *error);
int engine_names_check(const struct plan *plan, struct plan_error *error);
void engine_names_free(struct engine *engine);
void engine_names_ready(struct engine *engine, struct wake *wake);
void engine_names_timer(struct engine *engine, struct timer *timer);
void engine_resolve(struct engine *engine, struct tunnel *tunnel, struct wg_peer *peer);
void engine_resolve_forget(struct engine *engine, const struct tunnel *tunnel);

/* `fvd show [stats|plan|log]` and `fvd --health`: the other end of the socket. Exit status. */
int show_main(const char *control, const char *what);
int health_main(const char *control);

#endif
