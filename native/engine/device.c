#include "engine/device.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crypto/secret.h"
#include "engine/engine.h"
#include "engine/state.h"
#include "flow/mss.h"
#include "io/log.h"
#include "io/process.h"
#include "wire/bytes.h"
#include "wire/text.h"

#define UAPI_FOLDER "/var/run/wireguard"

int plan_fail(struct plan_error *error, int result, unsigned line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    error->line = line;
    return result;
}

/* --- what the tunnel reports --- */

static void device_closed(void *user, struct tunnel *tunnel)
{
    struct device *device = user;
    if (device->engine->plan_running) {
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

static void device_resolve(void *user, struct tunnel *tunnel, struct wg_peer *peer)
{
    struct device *device = user;
    engine_resolve(device->engine, tunnel, peer);
}

/* --- life --- */

struct device *device_new(struct engine *engine, const struct tunnel_config *config, int *error)
{
    struct device *device = calloc(1, sizeof *device);
    uint8_t seed[32];
    *error = -ENOMEM;
    if (!device)
        return NULL;
    device->engine = engine;
    process_entropy(&device->nat_seed, sizeof device->nat_seed);
    struct tunnel_events events = {device, device_closed, device_resolve, device_persist};
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

struct device *device_find(const struct engine *engine, const char *name)
{
    struct device *device = engine->devices;
    while (device && strcmp(device->tunnel->config.name, name) != 0)
        device = device->next;
    return device;
}

void device_free(struct device *device)
{
    struct engine *engine = device->engine;
    struct device **link = &engine->devices;
    while (*link != device)
        link = &(*link)->next;
    *link = device->next;
    session_close_all(engine, device);
    session_unlisten(&device->uapi);
    if (device->watch.kind != WAKE_NONE) {
        loop_remove(&engine->workers.worker[0].loop, &device->watch);
        close(device->watch.fd);
    }
    uint8_t stamp[WG_STAMP_SIZE];
    wg_device_stamp(device->tunnel->core, stamp);
    state_write_stamp(engine->plan.engine.state, device->tunnel, stamp);
    engine_resolve_forget(engine, device->tunnel);
    tunnel_free(device->tunnel);
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

int device_listen(struct device *device, int adopted_fd)
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

/* --- from a plan --- */

static int device_text(struct device *device, const struct plan_wireguard *wanted, enum wg_uapi_mode mode,
                       struct plan_error *error)
{
    const char *why = "";
    unsigned line = 0;
    int result = wg_uapi_set_text(device->tunnel->core, tunnel_now(&device->engine->workers.worker[0]), mode,
                                  WG_UAPI_HOSTS, wanted->text, wanted->length, &line, &why);
    return result ? plan_fail(error, result, wanted->line + (line ? line - 1 : 0), "%s", why ? why : strerror(-result))
                  : 0;
}

int device_plan_new(struct engine *engine, const struct plan_wireguard *wanted, struct plan_error *error)
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
        return plan_fail(error, result, wanted->line, "cannot make device %s: %s%s", wanted->name, strerror(-result),
                         result == -EPERM   ? " (CAP_NET_ADMIN is needed)"
                         : result == -EBUSY ? " (another process has it)"
                                            : "");
    device->fresh = true;
    result = device_text(device, wanted, WG_UAPI_SYNC, error);
    if (result)
        return result;
    state_read_stamp(engine->plan.engine.state, device->tunnel); /* before it is up: nothing has been sent */
    result = device_listen(device, -1);
    return result ? plan_fail(error, result, wanted->line, "cannot listen on " UAPI_FOLDER "/%s.sock: %s", wanted->name,
                              strerror(-result))
                  : 0;
}

int device_plan_check(struct device *device, const struct plan_wireguard *wanted, struct plan_error *error)
{
    if (device->tunnel->config.tun != wanted->tun)
        return plan_fail(error, -EBUSY, wanted->line, "tun= of %s cannot change while it runs: restart", wanted->name);
    return device_text(device, wanted, WG_UAPI_CHECK, error);
}

/* Port and mark are all that can fail of a plan that was checked, and the rest is done when nothing can fail any more: a
 * peer that went would not come back with its session. */
static int device_sockets(struct device *device, const char *port, const char *mark, struct plan_error *error)
{
    const char *why = "";
    unsigned line = 0;
    char text[96];
    int n = snprintf(text, sizeof text, "fwmark=%.20s\n", mark);
    if (strcmp(port, "0") != 0) /* any: it has one */
        n += snprintf(text + n, sizeof text - (size_t)n, "listen_port=%.20s\n", port);
    int result = wg_uapi_set_text(device->tunnel->core, tunnel_now(&device->engine->workers.worker[0]), WG_UAPI_SET, 0,
                                  text, (size_t)n, &line, &why);
    tunnel_kick(device->tunnel);
    return result ? plan_fail(error, result, 0, "%s=%.20s of %s: %s", line == 2 ? "listen_port" : "fwmark",
                              line == 2 ? port : mark, device->tunnel->config.name, strerror(-result))
                  : 0;
}

/* The value of a key of the device itself; "0" where it does not stand. */
static void device_value(const struct plan_wireguard *wanted, const char *key, char *value, size_t size)
{
    const char *at = wanted->text, *end = at + wanted->length;
    size_t n = strlen(key);
    snprintf(value, size, "0");
    while (at < end && strncmp(at, "public_key=", 11) != 0) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if ((size_t)(stop - at) > n && memcmp(at, key, n) == 0)
            snprintf(value, size, "%.*s", (int)((size_t)(stop - at) - n), at + n);
        at = stop + 1;
    }
}

int device_plan_sockets(struct device *device, const struct plan_wireguard *wanted, struct plan_error *error)
{
    char port[24], mark[24];
    device->port_before = wg_device_port(device->tunnel->core);
    device->mark_before = wg_device_fwmark(device->tunnel->core);
    device_value(wanted, "listen_port=", port, sizeof port);
    device_value(wanted, "fwmark=", mark, sizeof mark);
    int result = device_sockets(device, port, mark, error);
    error->line = result ? wanted->line : 0;
    return result;
}

int device_plan_sockets_undo(struct device *device, struct plan_error *error)
{
    char port[24], mark[24];
    snprintf(port, sizeof port, "%u", device->port_before);
    snprintf(mark, sizeof mark, "%u", device->mark_before);
    return device_sockets(device, port, mark, error);
}

int device_plan_sync(struct device *device, const struct plan_wireguard *wanted, struct plan_error *error)
{
    struct tunnel *tunnel = device->tunnel;
    int result = device_text(device, wanted, WG_UAPI_SYNC, error);
    if (result)
        return result;
    workers_pause(tunnel->workers);
    tunnel->config.source4_set = wanted->source4_set;
    tunnel->config.source6_set = wanted->source6_set;
    memcpy(tunnel->config.source4, wanted->source4, sizeof tunnel->config.source4);
    memcpy(tunnel->config.source6, wanted->source6, sizeof tunnel->config.source6);
    if (!tunnel->config.tun)
        tunnel->mtu = wanted->mtu;
    workers_resume(tunnel->workers);
    if (tunnel->config.tun && tunnel->mtu != wanted->mtu && tun_set_mtu(&tunnel->lanes[0].tun, wanted->mtu) == 0)
        tunnel_link_changed(tunnel);
    tunnel_kick(tunnel);
    return 0;
}

/* --- [nat] --- */

static int nat_line(struct nat_config *config, const struct plan_line *line, const struct plan_wireguard *wanted,
                    struct plan_error *error)
{
    uint64_t number;
    size_t n = strlen(line->value);
    uint8_t family = line->key[3] == '4' ? 4 : 6;
    if (strcmp(line->key, "entries") == 0) {
        if (text_decimal(line->value, n, 16, 1 << 22, &number) != TEXT_OK)
            return plan_fail(error, -EINVAL, line->line, "'entries' is a number from 16 to %d", 1 << 22);
        config->entries = (uint32_t)number;
    } else if (strcmp(line->key, "mss") == 0) {
        if (strcmp(line->value, "off") == 0)
            config->mss4 = config->mss6 = 0;
        else if (strcmp(line->value, "auto") != 0) {
            if (text_decimal(line->value, n, 64, 65495, &number) != TEXT_OK)
                return plan_fail(error, -EINVAL, line->line, "'mss' is auto, off or a number from 64 to 65495");
            config->mss4 = config->mss6 = (uint16_t)number;
        }
    } else { /* lan4, lan6 */
        struct prefix *prefix = &config->lan[config->lan_count];
        if (config->lan_count == NAT_LANS)
            return plan_fail(error, -EINVAL, line->line, "%d prefixes are the most", NAT_LANS);
        if (prefix_parse(prefix, line->value, n) != TEXT_OK || prefix->family != family)
            return plan_fail(error, -EINVAL, line->line, "'%s' is an IPv%u prefix", line->key, family);
        if (!(family == 4 ? wanted->source4_set : wanted->source6_set))
            return plan_fail(error, -EINVAL, line->line, "'%s' needs source%u= in [wireguard %s]", line->key, family,
                             wanted->name);
        prefix_mask(prefix);
        config->lan_count++;
    }
    return 0;
}

int device_plan_nat(struct device *device, const struct plan_wireguard *wanted, const struct plan_section *section,
                    bool check, struct plan_error *error)
{
    if (!section) {
        if (!check && device->tunnel->nat) {
            tunnel_set_nat(device->tunnel, NULL);
            device->nat_entries = 0;
        }
        return 0;
    }
    struct nat_config config = {
        .source4_set = wanted->source4_set,
        .source6_set = wanted->source6_set,
        .entries = 65536,
        .mss4 = mss_of_mtu(4, wanted->mtu),
        .mss6 = mss_of_mtu(6, wanted->mtu),
        .seed = device ? device->nat_seed : 0,
    };
    memcpy(config.source4, wanted->source4, sizeof config.source4);
    memcpy(config.source6, wanted->source6, sizeof config.source6);
    for (unsigned i = 0; i < section->count; i++) {
        int result = nat_line(&config, &section->lines[i], wanted, error);
        if (result)
            return result;
    }
    if (!wanted->source4_set && !wanted->source6_set)
        return plan_fail(error, -EINVAL, section->line, "[nat %s] needs source4= or source6= in [wireguard %s]",
                         wanted->name, wanted->name);
    if (check || !device)
        return 0;
    bool kept = false;
    if (device->tunnel->nat && device->nat_entries == config.entries) {
        workers_pause(&device->engine->workers);
        kept = nat_configure(device->tunnel->nat, &config);
        workers_resume(&device->engine->workers);
    }
    if (kept)
        return 0;
    struct nat *nat = nat_new(&config);
    if (!nat)
        return plan_fail(error, -ENOMEM, section->line, "no memory for a table of %u translations", config.entries);
    tunnel_set_nat(device->tunnel, nat);
    device->nat_entries = config.entries;
    return 0;
}
