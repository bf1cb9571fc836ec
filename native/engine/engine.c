#include "engine/engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crypto/secret.h"
#include "engine/state.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/log.h"
#include "io/process.h"

#define UAPI_FOLDER "/var/run/wireguard"

static int fail(struct plan_error *error, int result, unsigned line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static int fail(struct plan_error *error, int result, unsigned line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    error->line = line;
    return result;
}

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
    return loop_add(&engine->workers.worker[0].loop, &engine->signals, WAKE_SIGNAL, fd, WAKE_READ);
}

/* --- devices --- */

static void device_closed(void *user, struct tunnel *tunnel)
{
    struct device *device = user;
    if (device->engine->plan.text) {
        log_error("%s was deleted by somebody else", tunnel->config.name);
        device->engine->status = 1; /* whoever supervises us starts us anew */
    }
    engine_stop(device->engine, "its device is gone");
}

static void device_persist(void *user, struct tunnel *tunnel, const uint8_t stamp[WG_STAMP_SIZE])
{
    struct device *device = user;
    state_write_stamp(device->engine->plan.engine.state, tunnel, stamp);
}

static void device_free(struct device *device)
{
    struct engine *engine = device->engine;
    struct device **link = &engine->devices;
    while (*link && *link != device)
        link = &(*link)->next;
    if (*link)
        *link = device->next;
    session_close_all(engine, device);
    session_unlisten(&device->uapi);
    if (device->watch.kind != WAKE_NONE) {
        loop_remove(&engine->workers.worker[0].loop, &device->watch);
        close(device->watch.fd);
    }
    if (device->tunnel) {
        uint8_t stamp[WG_STAMP_SIZE];
        wg_device_stamp(device->tunnel->core, stamp);
        state_write_stamp(engine->plan.engine.state, device->tunnel, stamp);
        tunnel_free(device->tunnel);
    }
    free(device);
}

/* Notices when the socket's file is deleted: the way to end a userspace WireGuard. */
static void device_watch(struct device *device)
{
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0)
        return;
    if (inotify_add_watch(fd, device->uapi.path, IN_DELETE_SELF | IN_MOVE_SELF | IN_ATTRIB) < 0 ||
        loop_add(&device->engine->workers.worker[0].loop, &device->watch, WAKE_INOTIFY, fd, WAKE_READ) < 0)
        close(fd);
}

static int device_listen(struct device *device, int adopted_fd)
{
    char path[108];
    mode_t old = umask(022);
    mkdir("/var/run", 0755);
    mkdir(UAPI_FOLDER, 0755);
    umask(old);
    snprintf(path, sizeof path, UAPI_FOLDER "/%s.sock", device->tunnel->config.name);
    int error = session_listen(&device->uapi, device->engine, device, &uapi_kind, path, 0700, adopted_fd);
    if (!error)
        device_watch(device);
    return error;
}

static struct device *device_new(struct engine *engine, const struct tunnel_config *config, int *error)
{
    struct device *device = calloc(1, sizeof *device);
    uint8_t seed[32];
    *error = -ENOMEM;
    if (!device)
        return NULL;
    device->engine = engine;
    struct tunnel_events events = {device, device_closed, NULL, device_persist};
    process_entropy(seed, sizeof seed);
    device->tunnel = tunnel_new(&engine->workers, config, &events, seed, error);
    secret_wipe(seed, sizeof seed);
    if (!device->tunnel) {
        free(device);
        return NULL;
    }
    struct device **link = &engine->devices;
    while (*link)
        link = &(*link)->next;
    *link = device;
    return device;
}

static struct device *device_find(struct engine *engine, const char *name)
{
    struct device *device = engine->devices;
    while (device && strcmp(device->tunnel->config.name, name) != 0)
        device = device->next;
    return device;
}

int engine_start_device(struct engine *engine, const struct engine_device *wanted, struct plan_error *error)
{
    struct tunnel_config config = {
        .tun = true,
        .tun_fd = wanted->tun_fd,
        .workers = engine->workers.count,
    };
    int result;
    if (strlen(wanted->name) >= sizeof config.name)
        return fail(error, -EINVAL, 0, "'%.40s' is too long for an interface's name", wanted->name);
    strcpy(config.name, wanted->name);
    struct device *device = device_new(engine, &config, &result);
    if (!device)
        return fail(error, result, 0, "cannot make the TUN device %s: %s%s", wanted->name, strerror(-result),
            result == -EPERM ? " (CAP_NET_ADMIN is needed)" : "");
    result = device_listen(device, wanted->uapi_fd);
    if (result)
        return fail(error, result, 0, "cannot listen on " UAPI_FOLDER "/%s.sock: %s", device->tunnel->config.name,
            strerror(-result));
    result = tunnel_up(device->tunnel);
    return result ? fail(error, result, 0, "cannot open UDP sockets: %s", strerror(-result)) : 0;
}

static int device_from_plan(struct engine *engine, const struct plan_wireguard *wanted, struct plan_error *error)
{
    struct tunnel_config config = {
        .tun = wanted->tun,
        .tun_fd = -1,
        .mtu = wanted->mtu,
        .workers = engine->workers.count,
        .source4_set = wanted->source4_set,
        .source6_set = wanted->source6_set,
    };
    int result;
    strcpy(config.name, wanted->name); /* its length was checked by plan_parse */
    memcpy(config.source4, wanted->source4, sizeof config.source4);
    memcpy(config.source6, wanted->source6, sizeof config.source6);
    struct device *device = device_new(engine, &config, &result);
    if (!device)
        return fail(error, result, wanted->line, "cannot make device %s: %s", wanted->name, strerror(-result));
    const char *why = "";
    unsigned line = 0;
    result = wg_uapi_set_text(device->tunnel->core, tunnel_now(&engine->workers.worker[0]), WG_UAPI_SYNC, WG_UAPI_HOSTS,
        wanted->text, wanted->length, &line, &why);
    if (result)
        return fail(error, result, wanted->line + (line ? line - 1 : 0), "%s", why);
    state_read_stamp(engine->plan.engine.state, device->tunnel); /* before it is up: nothing has been sent */
    result = device_listen(device, -1);
    return result ? fail(error, result, wanted->line, "cannot listen on " UAPI_FOLDER "/%s.sock: %s", wanted->name,
                        strerror(-result))
                  : 0;
}

int engine_start_plan(struct engine *engine, struct plan *plan, struct plan_error *error)
{
    int result = 0;
    engine->plan = *plan;
    memset(plan, 0, sizeof *plan);
    for (unsigned i = 0; i < engine->plan.wireguard_count && !result; i++)
        result = device_from_plan(engine, &engine->plan.wireguard[i], error);
    for (unsigned i = 0; i < engine->plan.wireguard_count && !result; i++) {
        const struct plan_wireguard *wanted = &engine->plan.wireguard[i];
        struct device *device = device_find(engine, wanted->name);
        if (*wanted->detour)
            result = tunnel_carry_by(device->tunnel, device_find(engine, wanted->detour)->tunnel);
    }
    for (struct device *device = engine->devices; device && !result; device = device->next) {
        result = tunnel_up(device->tunnel);
        if (result)
            fail(error, result, 0, "%s: cannot open UDP sockets: %s", device->tunnel->config.name, strerror(-result));
    }
    const char *control = engine->plan.engine.control;
    if (!result && *control) {
        result = session_listen(&engine->control, engine, NULL, &control_kind, control, 0600, -1);
        if (result)
            fail(error, result, 0, "cannot listen on %s: %s", control, strerror(-result));
    }
    return result;
}

/* --- changes --- */

int engine_swap(struct engine *engine, const char *text, size_t n, struct plan_error *error)
{
    struct plan plan;
    int result = plan_parse(&plan, text, n, error);
    if (result)
        return result;
    for (unsigned i = 0; i < plan.wireguard_count && !result; i++) {
        const struct plan_wireguard *wanted = &plan.wireguard[i];
        struct device *device = device_find(engine, wanted->name);
        const char *why = "";
        unsigned line = 0;
        if (!device)
            result = fail(error, -ENOTSUP, wanted->line, "a new device needs a restart");
        else if ((result = wg_uapi_set_text(device->tunnel->core, tunnel_now(&engine->workers.worker[0]), WG_UAPI_CHECK,
                      WG_UAPI_HOSTS, wanted->text, wanted->length, &line, &why)))
            fail(error, result, wanted->line + (line ? line - 1 : 0), "%s", why);
    }
    for (unsigned i = 0; i < plan.wireguard_count && !result; i++) {
        const struct plan_wireguard *wanted = &plan.wireguard[i];
        struct device *device = device_find(engine, wanted->name);
        wg_uapi_set_text(device->tunnel->core, tunnel_now(&engine->workers.worker[0]), WG_UAPI_SYNC, WG_UAPI_HOSTS,
            wanted->text, wanted->length, NULL, NULL);
        tunnel_kick(device->tunnel);
    }
    if (result) {
        plan_free(&plan);
        return result;
    }
    plan_free(&engine->plan);
    engine->plan = plan;
    log_info("a new plan is in force");
    return 0;
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
    for (struct device *device = engine->devices; device; device = device->next)
        tunnel_turn(device->tunnel);
}

void engine_free(struct engine *engine)
{
    session_unlisten(&engine->control);
    session_close_all(engine, NULL);
    /* What is carried goes before its carrier. */
    while (engine->devices) {
        struct device *device = engine->devices;
        while (device->tunnel && device->tunnel->carried && device->next)
            device = device->next;
        device_free(device);
    }
    plan_free(&engine->plan);
    if (engine->signals.kind != WAKE_NONE) {
        loop_remove(&engine->workers.worker[0].loop, &engine->signals);
        close(engine->signals.fd);
    }
    for (unsigned i = 0; i < engine->workers.count; i++)
        tunnel_scratch_free(&engine->workers.worker[i]);
    workers_free(&engine->workers);
}
