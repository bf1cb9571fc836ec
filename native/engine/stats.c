/* Statistics as text: what `show=stats` answers and `fvd show` prints. Names are stable; a drop stands there only once it
 * has happened. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crypto/chacha20poly1305.h"
#include "engine/engine.h"
#include "io/clock.h"
#include "io/feature.h"
#include "io/process.h"

struct text {
    char *bytes;
    size_t used, size;
    bool failed;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *text, const char *format, ...)
{
    va_list args;
    if (text->size - text->used < 512) {
        size_t size = text->size ? 2 * text->size : 8192;
        char *bytes = realloc(text->bytes, size);
        if (!bytes) {
            text->failed = true;
            return;
        }
        text->bytes = bytes;
        text->size = size;
    }
    va_start(args, format);
    int n = vsnprintf(text->bytes + text->used, text->size - text->used, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < text->size - text->used)
        text->used += (size_t)n;
}

static void add_process(struct text *text, struct engine *engine)
{
    struct process_usage usage;
    process_usage(&usage);
    add(text, "version=" FV_VERSION "\n");
    add(text, "uptime_ms=%llu\n", (unsigned long long)((clock_mono() - engine->started) / NS_PER_MS));
    add(text, "workers=%u\n", engine->workers.count);
    add(text, "cpu_user_ms=%llu\n", (unsigned long long)(usage.user / NS_PER_MS));
    add(text, "cpu_system_ms=%llu\n", (unsigned long long)(usage.system / NS_PER_MS));
    add(text, "resident=%llu\n", (unsigned long long)usage.resident);
    add(text, "resident_peak=%llu\n", (unsigned long long)usage.resident_peak);
    add(text, "resident_anonymous=%llu\n", (unsigned long long)usage.anonymous);
    add(text, "lease_limit=%zu\n", engine->workers.budget.limit);
    add(text, "lease_taken=%zu\n", atomic_load(&engine->workers.budget.taken));
    add(text, "cipher=%s\n", chacha_selected());
    for (int i = 0; i < FEATURE_COUNT; i++)
        if (feature_table[i].refusals)
            add(text, "feature_refused.%s=%u\n", feature_names[i], feature_table[i].refusals);
}

static void add_device(struct text *text, const struct device *device)
{
    const struct tunnel *tunnel = device->tunnel;
    const char *name = tunnel->config.name;
    struct tunnel_stats stats;
    unsigned long long rx = 0, tx = 0;
    uint64_t handshake = 0, boot = clock_boot();
    for (struct wg_peer *peer = wg_device_first_peer(tunnel->core); peer; peer = wg_peer_next(peer)) {
        struct wg_peer_info info;
        wg_peer_info(peer, &info);
        rx += info.rx_bytes;
        tx += info.tx_bytes;
        handshake = info.handshake_boot > handshake ? info.handshake_boot : handshake;
    }
    tunnel_stats(tunnel, &stats);
    add(text, "device.%s.mtu=%u\n", name, tunnel->mtu);
    add(text, "device.%s.port=%u\n", name, wg_device_port(tunnel->core));
    add(text, "device.%s.peers=%u\n", name, wg_device_peers(tunnel->core));
    add(text, "device.%s.rx_bytes=%llu\n", name, rx);
    add(text, "device.%s.tx_bytes=%llu\n", name, tx);
    if (handshake)
        add(text, "device.%s.handshake_age_ms=%llu\n", name, (unsigned long long)((boot - handshake) / NS_PER_MS));
    const struct {
        const char *name;
        uint64_t value;
    } counters[] = {
        {"tun_reads", stats.tun_reads},
        {"tun_writes", stats.tun_writes},
        {"tun_written_packets", stats.tun_written_packets},
        {"udp_sends", stats.udp_sends},
        {"udp_sent_packets", stats.udp_sent_packets},
        {"udp_segment_refused", stats.udp_segment_refused},
        {"udp_receives", stats.udp_receives},
        {"udp_received_packets", stats.udp_received_packets},
        {"blocked", stats.blocked},
    };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        add(text, "device.%s.%s=%llu\n", name, counters[i].name, (unsigned long long)counters[i].value);
    const uint64_t *drops = stats.wg_drops;
    for (int i = 1; i < WG_DROP_COUNT; i++)
        if (drops[i])
            add(text, "device.%s.drop.%s=%llu\n", name, wg_drop_name((enum wg_drop)i), (unsigned long long)drops[i]);
    const struct nat_stats *nat = tunnel->nat ? nat_stats(tunnel->nat) : NULL;
    if (nat) {
        add(text, "device.%s.nat.sessions=%u\n", name, nat->sessions);
        add(text, "device.%s.nat.mappings=%u\n", name, nat->mappings);
        add(text, "device.%s.nat.created=%llu\n", name, (unsigned long long)nat->created);
        add(text, "device.%s.nat.evicted=%llu\n", name, (unsigned long long)nat->evicted);
        add(text, "device.%s.nat.mss_clamped=%llu\n", name, (unsigned long long)nat->mss_clamped);
        for (int i = NAT_DROP_MALFORMED; i < NAT_VERDICT_COUNT; i++)
            if (nat->verdict[i])
                add(text, "device.%s.drop.%s=%llu\n", name, nat_verdict_name((enum nat_verdict)i),
                    (unsigned long long)nat->verdict[i]);
    }
    for (int i = 0; i < TUNNEL_DROP_COUNT; i++)
        if (stats.drops[i])
            add(text, "device.%s.drop.%s=%llu\n", name, tunnel_drop_names[i], (unsigned long long)stats.drops[i]);
}

char *engine_stats_text(struct engine *engine, size_t *n)
{
    struct text text = {0};
    workers_pause(&engine->workers); /* whole 64-bit counters, also on 32-bit machines */
    add_process(&text, engine);
    for (struct device *device = engine->devices; device; device = device->next)
        add_device(&text, device);
    workers_resume(&engine->workers);
    add(&text, "errno=0\n\n");
    if (text.failed) {
        free(text.bytes);
        return NULL;
    }
    *n = text.used;
    return text.bytes;
}
