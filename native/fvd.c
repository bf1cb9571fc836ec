/* fvd: the engine's main. Arguments, the plan in, workers up, the one switch over what can wake them. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "crypto/chacha20poly1305.h"
#include "crypto/secret.h"
#include "engine/engine.h"
#include "io/clock.h"
#include "io/feature.h"
#include "io/file.h"
#include "io/log.h"
#include "io/probe.h"
#include "io/process.h"

#define CONTROL_DEFAULT "/run/fv/fv.sock"

static const char usage[] =
    "fvd, fv's engine\n"
    "\n"
    "  fvd --plan FILE         run the plan (made by `fv plan --secrets` or `fv run`)\n"
    "  fvd NAME                a WireGuard device, in the background; configure it with wg\n"
    "  fvd -f NAME             the same in the foreground\n"
    "  fvd show [stats|log|plan] [--control PATH]\n"
    "                          what a running engine counts, has logged, runs\n"
    "  fvd --health [--control PATH]\n"
    "                          status 0 when a running engine answers\n"
    "  fvd --probe             what this kernel and CPU can do, and what the engine will use of it\n"
    "  fvd --version\n"
    "\n"
    "environment: LOG_LEVEL (error, warning, info, debug; verbose; silent), FV_FEATURE_OFF (names by comma),\n"
    "FV_WORKERS (of a device without a plan), WG_TUN_FD, WG_UAPI_FD, WG_PROCESS_FOREGROUND\n";

struct arguments {
    const char *plan, *name, *show, *control;
    bool foreground, health;
};

static struct engine engine;

/* --- the switch --- */

#define OWNER(type, member, pointer) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

static void signal_ready(void)
{
    int number;
    while ((number = process_signal_read(engine.signals.fd)) != 0) {
        if (number == SIGCHLD)
            process_reap();
        else if (number == SIGHUP)
            engine_reload(&engine);
        else if (number == SIGTERM || number == SIGINT)
            engine_stop(&engine, number == SIGTERM ? "SIGTERM" : "SIGINT");
    }
}

static void watch_ready(struct wake *wake)
{
    struct device *device = OWNER(struct device, watch, wake);
    char events[4096] __attribute__((aligned(8)));
    while (read(wake->fd, events, sizeof events) > 0)
        ;
    if (access(device->uapi.path, F_OK) < 0 && errno == ENOENT)
        engine_stop(&engine, "its socket was deleted");
}

static void wake_ready(struct worker *worker, struct wake *wake)
{
    switch ((enum wake_kind)wake->kind) {
    case WAKE_SIGNAL:
        signal_ready();
        break;
    case WAKE_MESSAGE:
        worker_receive(worker);
        break;
    case WAKE_CONTROL_LISTEN:
        session_accept(OWNER(struct session_listener, wake, wake));
        break;
    case WAKE_CONTROL:
        session_ready(OWNER(struct session, wake, wake), wake->events);
        break;
    case WAKE_TUN:
        tunnel_tun_ready(OWNER(struct tunnel_lane, tun_wake, wake));
        break;
    case WAKE_WG_SOCKET:
        tunnel_socket_ready(OWNER(struct tunnel_socket, wake, wake), wake->events);
        break;
    case WAKE_NETLINK:
        engine_links_changed(&engine);
        break;
    case WAKE_RESOLVER:
        engine_names_ready(&engine, wake);
        break;
    case WAKE_INOTIFY:
        watch_ready(wake);
        break;
    default:
        log_error("woken by %s, which nobody waits for", wake_kind_names[wake->kind]);
        loop_remove(&worker->loop, wake);
        break;
    }
}

static void timer_ready(struct worker *worker, struct timer *timer)
{
    switch ((enum wake_kind)timer->kind) {
    case WAKE_WG_TIMER:
        break; /* engine_turn does what is due, and sets it anew: here it would be due again at once */
    case WAKE_CONTROL_LISTEN:
        session_accept_again(OWNER(struct session_listener, pause, timer));
        break;
    case WAKE_RESOLVER_TIMER:
    case WAKE_NAMES_TIMER:
        engine_names_timer(&engine, timer);
        break;
    case WAKE_HOUSEKEEPING: /* 10 ms of quiet: memory goes back to the kernel */
        if (worker->moved || worker->loop.now - worker->quiet_since < 10 * NS_PER_MS)
            timer_arm(&worker->loop, timer, WAKE_HOUSEKEEPING, worker->loop.now + 10 * NS_PER_MS);
        else
            lease_quiet(&worker->leases);
        break;
    default:
        log_error("a timer of kind %s that nobody set", wake_kind_names[timer->kind]);
        break;
    }
}

static void worker_run(struct worker *worker)
{
    while (!atomic_load_explicit(&worker->all->stop, memory_order_relaxed) &&
           !(worker->index == 0 && engine.stopping)) {
        worker->moved = false;
        int error = loop_wait(&worker->loop, worker->again ? 0 : UINT64_MAX);
        if (error)
            die("waiting for events failed: %s", strerror(-error));
        worker->again = false;
        tunnel_turn_begin(worker);
        for (uint32_t i = 0; i < worker->loop.ready_count; i++)
            if (worker->loop.ready[i])
                wake_ready(worker, worker->loop.ready[i]);
        struct timer *timer;
        while ((timer = loop_expired(&worker->loop)) != NULL)
            timer_ready(worker, timer);
        if (worker->index == 0)
            engine_turn(&engine);
        else
            worker_rest(worker);
        worker_gather(worker);
        if (worker->moved) {
            worker->quiet_since = worker->loop.now;
            if (!timer_armed(&worker->housekeeping))
                timer_arm(&worker->loop, &worker->housekeeping, WAKE_HOUSEKEEPING, worker->loop.now + 10 * NS_PER_MS);
        }
    }
}

/* --- start --- */

/* -1: not given. */
static int fd_from_environment(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return -1;
    long fd = strtol(text, &end, 10);
    if (*end || fd < 0 || fd > INT_MAX)
        die("%s is a descriptor's number, not '%.20s'", name, text);
    return (int)fd;
}

static void setup_log(int level, bool json)
{
    const char *text = getenv("LOG_LEVEL");
    if (text && *text) {
        int wanted = log_level_parse(text);
        if (strcmp(text, "verbose") == 0) /* wireguard-go's word */
            wanted = LOG_DEBUG;
        if (strcmp(text, "silent") == 0)
            wanted = LOG_ERROR;
        if (wanted >= 0)
            level = wanted;
    }
    log_setup((enum log_level)level, json);
}

static void setup_features(const char *plan_off, bool probe_tun_too)
{
    char unknown[32];
    const char *environment = getenv("FV_FEATURE_OFF");
    if (feature_force_off(plan_off, unknown, sizeof unknown))
        die("feature_off: there is no feature '%s' (fvd --probe lists them)", unknown);
    if (environment && feature_force_off(environment, unknown, sizeof unknown))
        die("FV_FEATURE_OFF: there is no feature '%s' (fvd --probe lists them)", unknown);
    probe_run(PROBE_CPU | PROBE_SOCKETS | (probe_tun_too ? PROBE_TUN : 0u));
    unsigned allowed = 0;
    const char *const *names = chacha_names();
    for (unsigned i = 0; names[i]; i++) {
        int feature = feature_parse(names[i], strlen(names[i]));
        if (feature < 0 || feature_on((enum feature)feature))
            allowed |= 1u << i;
    }
    chacha_select(allowed);
}

static void read_plan(const char *path, struct plan *plan)
{
    char *text = NULL;
    struct plan_error error = {0};
    ssize_t n = file_read_new(path, PLAN_MAX, &text);
    if (n < 0)
        die("%s: %s", path, strerror((int)-n));
    int result = plan_parse(plan, text, (size_t)n, &error);
    secret_wipe(text, (size_t)n);
    free(text);
    if (result == -ENOMEM)
        die("%s: out of memory", path);
    if (result)
        die("%s:%u: %s", path, error.line, error.text);
}

static int run(const struct arguments *arguments)
{
    int tun_fd = arguments->plan ? -1 : fd_from_environment("WG_TUN_FD");
    int uapi_fd = arguments->plan ? -1 : fd_from_environment("WG_UAPI_FD");
    const char *foreground = getenv("WG_PROCESS_FOREGROUND"), *workers = getenv("FV_WORKERS");
    struct plan plan = {0};
    struct plan_error error = {0};
    int ready = -1;

    if (arguments->plan) { /* before descriptors are closed: it may be one of them */
        read_plan(arguments->plan, &plan);
    } else {
        plan_parse(&plan, "plan=1\nneeds=\n", 14, &error);
        plan.engine.workers = workers ? (unsigned)strtoul(workers, NULL, 10) : 1;
        if (plan.engine.workers < 1 || plan.engine.workers > WORKERS_MAX)
            die("FV_WORKERS is a number from 1 to %d", WORKERS_MAX);
    }
    int keep[] = {tun_fd, uapi_fd};
    process_begin(keep, 2);
    setup_log(plan.engine.log_level, plan.engine.log_json);
    setup_features(plan.engine.feature_off, true);
    if (arguments->name && !arguments->foreground && !(foreground && strcmp(foreground, "1") == 0))
        process_daemonize(&ready);

    int result = engine_init(&engine, &plan.engine);
    if (result)
        die("cannot start: %s", strerror(-result));
    int plan_nice = plan.engine.nice;
    int cpus[WORKERS_MAX];
    memcpy(cpus, plan.engine.cpu, sizeof cpus);
    if (cpus[0] >= 0 && (result = worker_pin(cpus[0])) != 0)
        log_warning("cannot pin worker 0 to CPU %d: %s", cpus[0], strerror(-result));
    engine.plan_path = arguments->plan;
    if (arguments->plan) {
        result = engine_start_plan(&engine, &plan, &error);
    } else {
        struct engine_device device = {arguments->name, tun_fd, uapi_fd};
        plan_free(&plan);
        result = engine_start_device(&engine, &device, &error);
    }
    if (result) {
        engine_free(&engine);
        if (error.line)
            die("%s:%u: %s", arguments->plan, error.line, error.text);
        die("%s", error.text);
    }
    result = process_priority(plan_nice);
    if (result)
        log_debug("the scheduling priority stays as it is: %s", strerror(-result));
    result = process_confine();
    if (result)
        log_warning("capabilities are kept: %s", strerror(-result));
    result = workers_start(&engine.workers, worker_run, cpus);
    if (result)
        die("cannot start worker threads: %s", strerror(-result));
    log_info("fvd " FV_VERSION " is ready: %u worker%s, %s", engine.workers.count, engine.workers.count == 1 ? "" : "s",
             chacha_selected());
    process_ready(ready);
    worker_run(&engine.workers.worker[0]);
    workers_stop(&engine.workers);
    int status = engine.status;
    engine_free(&engine);
    return status;
}

static int bad_usage(const char *what)
{
    fprintf(stderr, "fvd: %s\n\n%s", what, usage);
    return 2;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.control = CONTROL_DEFAULT};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        bool value = i + 1 < argc;
        if (strcmp(a, "--version") == 0) {
            puts("fvd " FV_VERSION);
            return 0;
        } else if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        } else if (strcmp(a, "--probe") == 0) {
            log_setup(LOG_WARNING, false);
            setup_features("", true);
            probe_print(stdout);
            return 0;
        } else if (strcmp(a, "--health") == 0) {
            arguments.health = true;
        } else if (strcmp(a, "--foreground") == 0 || strcmp(a, "-f") == 0) {
            arguments.foreground = true;
        } else if (strcmp(a, "--plan") == 0 && value) {
            arguments.plan = argv[++i];
        } else if (strcmp(a, "--control") == 0 && value) {
            arguments.control = argv[++i];
        } else if (strcmp(a, "show") == 0 && !arguments.name && i == 1) {
            arguments.show = value && argv[i + 1][0] != '-' ? argv[++i] : "stats";
        } else if (a[0] != '-' && !arguments.name && !arguments.show) {
            arguments.name = a;
        } else {
            return bad_usage("the arguments are not of a form that it knows");
        }
    }
    if (arguments.show)
        return show_main(arguments.control, arguments.show);
    if (arguments.health)
        return health_main(arguments.control);
    if (!arguments.plan == !arguments.name)
        return bad_usage("one of --plan FILE and NAME is needed");
    return run(&arguments);
}
