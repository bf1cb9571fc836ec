/* The engine: live objects made of a plan, and everything that is one per process.
 *
 * engine_start makes all of a plan or nothing; engine_swap makes the difference between two plans by object name, all or
 * nothing: what is unchanged is not touched, sessions stay. On worker 0. */
#ifndef FV_ENGINE_ENGINE_H
#define FV_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/plan.h"
#include "engine/session.h"
#include "flow/tunnel.h"
#include "io/worker.h"

/* A WireGuard device with what the engine keeps beside the tunnel. */
struct device {
    struct device *next;
    struct engine *engine;
    struct tunnel *tunnel;
    struct session_listener uapi;
    struct wake watch; /* WAKE_INOTIFY: the socket's file was deleted */
};

struct engine {
    struct workers workers;
    struct device *devices;
    struct plan plan; /* in force; plan.text NULL: started as `fvd NAME` */
    const char *plan_path;
    struct session_listener control;
    struct session *sessions;
    unsigned session_count;
    struct wake signals; /* WAKE_SIGNAL */
    uint64_t started;    /* monotonic ns */
    bool stopping;
    int status;
};

/* How one device is made when there is no plan. */
struct engine_device {
    const char *name;
    int tun_fd, uapi_fd; /* -1: our own */
};

int engine_init(struct engine *engine, const struct plan_engine *settings);
/* 0 or -errno with *error. */
int engine_start_plan(struct engine *engine, struct plan *plan, struct plan_error *error);
int engine_start_device(struct engine *engine, const struct engine_device *device, struct plan_error *error);
int engine_swap(struct engine *engine, const char *text, size_t n, struct plan_error *error);
void engine_reload(struct engine *engine); /* SIGHUP: the plan's file again */
void engine_stop(struct engine *engine, const char *why);
void engine_free(struct engine *engine);
/* Once a turn of worker 0. */
void engine_turn(struct engine *engine);
/* key=value lines ending with errno=0 and a blank line; malloc'ed; *n bytes. NULL: no memory. */
char *engine_stats_text(struct engine *engine, size_t *n);

/* `fvd show [stats|plan|log]` and `fvd --health`: the other end of the socket. Exit status. */
int show_main(const char *control, const char *what);
int health_main(const char *control);

#endif
