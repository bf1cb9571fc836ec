#include "engine/engine.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crypto/secret.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/log.h"
#include "io/process.h"
#include "io/socket.h"

int engine_init(struct engine *engine, const struct plan_engine *settings)
{
    memset(engine, 0, sizeof *engine);
    engine->started = clock_mono();
    int error = workers_init(&engine->workers, settings->workers, settings->memory);
    for (unsigned i = 0; i < settings->workers && !error; i++)
        error = tunnel_scratch_init(&engine->workers.worker[i]);
    if (error)
        return error;
    int fd = process_signals();
    if (fd < 0)
        return fd;
    error = loop_add(&engine->workers.worker[0].loop, &engine->signals, WAKE_SIGNAL, fd, WAKE_READ);
    if (error)
        return error;
    fd = netlink_watch_open();
    if (fd < 0) {
        log_warning("changes of interfaces are not seen: %s", strerror(-fd));
        return 0;
    }
    return loop_add(&engine->workers.worker[0].loop, &engine->links, WAKE_NETLINK, fd, WAKE_READ);
}

/* --- start --- */

int engine_start_device(struct engine *engine, const struct engine_device *wanted, struct plan_error *error)
{
    struct tunnel_config config = {
        .tun = true,
        .tun_fd = wanted->tun_fd,
        .workers = engine->workers.count,
    };
    int result;
    if (strlen(wanted->name) >= sizeof config.name)
        return plan_fail(error, -EINVAL, 0, "'%.40s' is too long for an interface's name", wanted->name);
    strcpy(config.name, wanted->name);
    struct device *device = device_new(engine, &config, &result);
    if (!device)
        return plan_fail(error, result, 0, "cannot make the TUN device %s: %s%s", wanted->name, strerror(-result),
                         result == -EPERM   ? " (CAP_NET_ADMIN is needed)"
                         : result == -EBUSY ? " (another process has it)"
                                            : "");
    result = device_listen(device, wanted->uapi_fd);
    if (result)
        return plan_fail(error, result, 0, "cannot listen for wg on %s: %s", device->tunnel->config.name,
                         strerror(-result));
    /* Up when the interface is (it may have been made by somebody else); without reports of changes, at once. */
    result = engine->links.kind == WAKE_NONE ? tunnel_up(device->tunnel) : tunnel_link_changed(device->tunnel);
    return result ? plan_fail(error, result, 0, "cannot open UDP sockets: %s", strerror(-result)) : 0;
}

int engine_network_plan(const struct plan *plan, struct network_plan *out, struct plan_error *error)
{
    const struct plan_section *section = plan_find(plan, PLAN_NETWORK, "");
    char why[NETWORK_ERROR_SIZE];
    int result = 0;
    memset(out, 0, sizeof *out);
    out->stop_closed = plan->engine.stop_closed;
    out->crash_closed = plan->engine.crash_closed;
    for (unsigned i = 0; section && i < section->count && !result; i++) {
        const struct plan_line *line = &section->lines[i];
        result = network_parse_line(out, line->key, line->value, why, sizeof why);
        if (result)
            plan_fail(error, result, line->line, "%s", result == -ENOMEM ? "out of memory" : why);
    }
    if (!result && (result = network_plan_check(out, why, sizeof why)) != 0)
        plan_fail(error, result, section ? section->line : 0, "%s", why);
    if (result)
        network_plan_free(out);
    return result;
}

int engine_network_fail(struct engine *engine, int result, struct plan_error *error)
{
    return plan_fail(error, result, 0, "%s", engine->network.error);
}

static void network_notice(void *context, const char *text)
{
    (void)context;
    log_info("%s", text);
}

static int network_begin(struct engine *engine, struct plan_error *error)
{
    int result = netlink_open(&engine->netlink);
    if (result)
        return plan_fail(error, result, 0, "cannot open netlink: %s", strerror(-result));
    engine->network_open = true;
    result = network_open(&engine->network, &engine->netlink, engine->plan.engine.state);
    if (result)
        return plan_fail(error, result, 0, "cannot begin with [network]: %s",
                         *engine->network.error ? engine->network.error : strerror(-result));
    engine->network.notice = network_notice;
    return 0;
}

static int make_devices(struct engine *engine, struct plan_error *error)
{
    const struct plan *plan = &engine->plan;
    int result = 0;
    for (unsigned i = 0; i < plan->wireguard_count && !result; i++) {
        const struct plan_wireguard *wanted = &plan->wireguard[i];
        result = device_plan_new(engine, wanted, error);
        if (!result)
            result = device_plan_nat(device_find(engine, wanted->name), wanted, plan_find(plan, PLAN_NAT, wanted->name),
                                     false, error);
    }
    for (unsigned i = 0; i < plan->wireguard_count && !result; i++) {
        const struct plan_wireguard *wanted = &plan->wireguard[i];
        if (*wanted->detour)
            result =
                tunnel_carry_by(device_find(engine, wanted->name)->tunnel, device_find(engine, wanted->detour)->tunnel);
        if (result)
            plan_fail(error, result, wanted->line, "%s", strerror(-result));
    }
    return result;
}

static int start_plan(struct engine *engine, struct plan_error *error)
{
    struct network_plan network;
    const char *control = engine->plan.engine.control;
    int result = engine_network_plan(&engine->plan, &network, error);
    if (result)
        return result;
    /* What another engine has set is no leftover of a crash. Its socket says that it lives; ours is bound last. */
    int living = *control ? socket_unix_connect(control) : -ENOENT;
    if (living >= 0) {
        close(living);
        network_plan_free(&network);
        return plan_fail(error, -EADDRINUSE, 0, "another engine answers on control=%s: end it first", control);
    }
    result = network_begin(engine, error);
    if (!result)
        result = engine_names_init(engine, &engine->plan, error);
    /* The kill switch first, the devices, then what needs them. */
    if (!result && (result = network_apply(&engine->network, &network, NETWORK_GUARD)) != 0)
        engine_network_fail(engine, result, error);
    if (!result) {
        result = make_devices(engine, error);
        if (result)
            network_rollback(&engine->network);
        else if ((result = network_apply(&engine->network, &network, NETWORK_DEVICES)) != 0)
            engine_network_fail(engine, result, error);
    }
    for (struct device *device = engine->devices; device && !result; device = device->next) {
        device->fresh = false;
        result = tunnel_link_changed(device->tunnel);
        if (result)
            plan_fail(error, result, 0, "%s: cannot open UDP port %u: %s", device->tunnel->config.name,
                      wg_device_port(device->tunnel->core), strerror(-result));
    }
    if (!result && *control) {
        char folder[108];
        snprintf(folder, sizeof folder, "%s", control);
        char *slash = strrchr(folder, '/');
        if (slash && slash != folder) {
            *slash = 0;
            file_make_folder(folder);
        }
        result = session_listen(&engine->control, engine, NULL, &control_kind, control, 0600, -1);
        if (result)
            plan_fail(error, result, 0, "cannot listen on control=%s: %s", control, strerror(-result));
    }
    network_plan_free(&network);
    return result;
}

int engine_start_plan(struct engine *engine, struct plan *plan, struct plan_error *error)
{
    engine->plan = *plan;
    engine->plan_running = true;
    memset(plan, 0, sizeof *plan);
    return start_plan(engine, error);
}

/* --- changes --- */

/* The kernel drops the routes of an interface that goes down: when it is up again the plan's are set again. */
static void network_again(struct engine *engine)
{
    struct network_plan network;
    struct plan_error error = {0};
    if (!engine->network_open || engine_network_plan(&engine->plan, &network, &error))
        return;
    if (network_apply(&engine->network, &network, NETWORK_DEVICES))
        log_error("[network] could not be set again: %s", engine->network.error);
    network_plan_free(&network);
}

static int link_event(void *context, const struct netlink_event *event)
{
    struct engine *engine = context;
    engine->routes_changed |= event->kind != NETLINK_EVENT_LINK;
    for (struct device *device = engine->devices; device; device = device->next) {
        bool its = event->kind == NETLINK_EVENT_LINK && !event->gone &&
                   strcmp(event->link.name, device->tunnel->config.name) == 0;
        bool was_up = device->tunnel->up;
        int error = its || event->kind == NETLINK_EVENT_LOST ? tunnel_link_changed(device->tunnel) : 0;
        engine->network_again |= device->tunnel->up && !was_up;
        if (error)
            log_error("%s: it is up, but UDP port %u cannot be opened: %s", device->tunnel->config.name,
                      wg_device_port(device->tunnel->core), strerror(-error));
    }
    return 0;
}

void engine_links_changed(struct engine *engine)
{
    netlink_watch_read(engine->links.fd, link_event, engine);
    if (engine->network_again) {
        engine->network_again = false;
        network_again(engine);
    }
}

void engine_reload(struct engine *engine)
{
    char *text = NULL;
    struct plan_error error = {0};
    if (!engine->plan_path) {
        log_warning("SIGHUP: there is no plan file to read again");
        return;
    }
    ssize_t n = file_read_new(engine->plan_path, PLAN_MAX, &text);
    if (n < 0) {
        log_error("%s: %s; the old plan stays in force", engine->plan_path, strerror((int)-n));
        return;
    }
    if (engine_swap(engine, text, (size_t)n, &error))
        log_error("%s:%u: %s; the old plan stays in force", engine->plan_path, error.line, error.text);
    secret_wipe(text, (size_t)n);
    free(text);
}

void engine_stop(struct engine *engine, const char *why)
{
    if (!engine->stopping)
        log_info("stopping: %s", why);
    engine->stopping = true;
}

void engine_turn(struct engine *engine)
{
    uint64_t now = engine->workers.worker[0].loop.now;
    /* A table that changes all the time is looked at a few times a second; the last change counts when a packet moves. */
    if (engine->routes_changed && now >= engine->routes_at) {
        engine->routes_changed = false;
        engine->routes_at = now + 200 * NS_PER_MS;
        for (struct device *device = engine->devices; device; device = device->next)
            tunnel_routes_changed(device->tunnel);
    }
    for (struct device *device = engine->devices; device; device = device->next)
        tunnel_turn(device->tunnel);
}

static void close_wake(struct engine *engine, struct wake *wake)
{
    if (wake->kind == WAKE_NONE)
        return;
    loop_remove(&engine->workers.worker[0].loop, wake);
    close(wake->fd);
}

void engine_free(struct engine *engine)
{
    session_unlisten(&engine->control);
    session_close_all(engine, NULL);
    if (engine->network_open) { /* while the devices are there: routes through them go by our hand, not with them */
        int error = network_stop(&engine->network, engine->plan.engine.stop_closed);
        if (error)
            log_error("taking [network] back: %s", engine->network.error);
        network_close(&engine->network);
        netlink_close(&engine->netlink);
    }
    while (engine->devices) { /* what is carried goes before its carrier */
        struct device *device = engine->devices;
        while (device->tunnel->carried && device->next)
            device = device->next;
        device_free(device);
    }
    engine_names_free(engine);
    plan_free(&engine->plan);
    close_wake(engine, &engine->signals);
    close_wake(engine, &engine->links);
    for (unsigned i = 0; i < engine->workers.count; i++)
        tunnel_scratch_free(&engine->workers.worker[i]);
    workers_free(&engine->workers);
}
