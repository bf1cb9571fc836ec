/* A data packet's whole way through WireGuard's core with no socket and no TUN, both directions, in nanoseconds of this
 * thread's CPU time per packet: what a program pays per packet before any system call.
 *
 *   bench_transport [--size N] [--batch N] [--ms N] [--warmup-ms N] [--samples N] [--packets N]
 *
 *   encapsulate   allowed IPs by destination, the peer's key, counters, header, sealing, the peer's timers
 *   decapsulate   the keypair by index, opening in place, replay window, inner length, allowed IPs by source, timers
 *
 * Two hosts shake hands; then RING packets are encapsulated by one and decapsulated by the other, round after round,
 * --batch at a time, until a sample has taken --ms in each direction. Sizes are inner packets of IPv4. One JSON object
 * a line. With --packets N it does just so many and measures nothing: for an emulator that counts instructions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/wg/sim.h"

enum { RING = 256, SLOT = 9216, MAX_SAMPLES = 1000, MAX_BATCH = 64 };

static uint8_t plain[RING * SLOT], sealed[RING * SLOT];
static struct sim sim;
static unsigned batch = 32, samples = 100, sample_ms = 30, warmup_ms = 1000, packets;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void need(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "bench_transport: %s\n", what);
        exit(1);
    }
}

static void encapsulate(unsigned first, unsigned n, unsigned size)
{
    struct sim_host *h = &sim.host[0];
    struct wg_now now = sim_now(&sim, h);
    struct chacha_job jobs[MAX_BATCH];
    struct wg_keypair *kp;
    uint64_t counter;
    uint32_t length = (uint32_t)wg_padded_length(size, 8920);
    struct wg_peer *peer = wg_allowedips_lookup4(h->dev, plain + first * SLOT + 16);
    need(peer && wg_peer_send_key(peer, &now, &kp) == WG_SEND_OK, "no key to send with");
    need(wg_keypair_counters(kp, n, &counter), "no counters left");
    for (unsigned i = 0; i < n; i++) {
        uint8_t *header = sealed + (first + i) * SLOT;
        store_le32(header, WG_TYPE_DATA);
        store_le32(header + WG_DATA_RECEIVER, kp->remote_index);
        store_le64(header + WG_DATA_COUNTER, counter);
        jobs[i] = (struct chacha_job){
            .dst = header + WG_DATA_SEALED, .src = plain + (first + i) * SLOT, .len = length, .counter = counter++};
    }
    chacha_seal_batch(kp->send_key, jobs, n);
    wg_peer_sent(peer, kp, &now, n, (uint64_t)n * (length + WG_DATA_OVERHEAD));
}

static void decapsulate(unsigned first, unsigned n, unsigned size)
{
    struct sim_host *h = &sim.host[1];
    struct wg_now now = sim_now(&sim, h);
    struct chacha_job jobs[MAX_BATCH];
    struct wg_endpoint from = sim.host[0].address;
    uint32_t length = (uint32_t)wg_padded_length(size, 8920);
    struct wg_keypair *kp = wg_keypair_find(h->dev, load_le32(sealed + first * SLOT + WG_DATA_RECEIVER));
    need(kp && wg_keypair_usable(kp, &now), "no key to receive with");
    for (unsigned i = 0; i < n; i++) {
        uint8_t *header = sealed + (first + i) * SLOT;
        jobs[i] = (struct chacha_job){.dst = header + WG_DATA_SEALED,
                                      .src = header + WG_DATA_SEALED,
                                      .len = length + WG_TAG_SIZE,
                                      .counter = load_le64(header + WG_DATA_COUNTER)};
    }
    need(chacha_open_batch(kp->receive_key, jobs, n) == 0, "does not open what it sealed");
    for (unsigned i = 0; i < n; i++) {
        need(wg_keypair_accept(kp, jobs[i].counter), "outside the window");
        need(wg_inner_length(jobs[i].dst, length) == size, "another length than was sent");
        need(wg_allowedips_lookup4(h->dev, jobs[i].dst + 12) == kp->peer, "another peer's source");
    }
    wg_peer_received(kp->peer, kp, &now, &from, WG_RECEIVED_DATA, (uint64_t)n * (length + WG_DATA_OVERHEAD));
}

/* A turn through the ring; adds what each direction took. */
static void turn(unsigned size, uint64_t *out, uint64_t *in)
{
    uint64_t start = now_ns(), middle;
    for (unsigned i = 0; i < RING; i += batch)
        encapsulate(i, MIN(batch, RING - i), size);
    middle = now_ns();
    for (unsigned i = 0; i < RING; i += batch)
        decapsulate(i, MIN(batch, RING - i), size);
    *out += middle - start;
    *in += now_ns() - middle;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *what, unsigned size, double *value)
{
    qsort(value, samples, sizeof value[0], by_value);
    printf("{\"what\":\"%s\",\"impl\":\"%s\",\"size\":%u,\"batch\":%u,\"ns\":%.1f,\"ns_low\":%.1f,\"ns_high\":%.1f,"
           "\"samples\":%u}\n",
           what, chacha_selected(), size, batch, value[samples / 2], value[samples / 10],
           value[samples - 1 - samples / 10], samples);
}

static void measure(unsigned size)
{
    static double out[MAX_SAMPLES], in[MAX_SAMPLES];
    uint64_t out_ns = 0, in_ns = 0;
    for (unsigned i = 0; i < RING; i++) {
        uint8_t *p = plain + i * SLOT;
        memset(p, 0, SLOT);
        p[0] = 0x45;
        store_be16(p + 2, (uint16_t)size);
        memcpy(p + 12, (uint8_t[]){10, 7, 0, 1, 10, 7, 0, 2}, 8);
    }
    if (packets) {
        for (unsigned done = 0; done < packets; done += batch) {
            encapsulate(done % RING, batch, size);
            decapsulate(done % RING, batch, size);
        }
        return;
    }
    while (out_ns + in_ns < warmup_ms * (uint64_t)1000000)
        turn(size, &out_ns, &in_ns);
    for (unsigned s = 0; s < samples; s++) {
        unsigned turns = 0;
        for (out_ns = in_ns = 0; MIN(out_ns, in_ns) < sample_ms * (uint64_t)1000000; turns++)
            turn(size, &out_ns, &in_ns);
        out[s] = (double)out_ns / turns / RING;
        in[s] = (double)in_ns / turns / RING;
    }
    print("encapsulate", size, out);
    print("decapsulate", size, in);
}

static void shake_hands(void)
{
    static const char everything[] = "update_only=true\nallowed_ip=0.0.0.0/0";
    sim_begin(&sim);
    for (unsigned i = 0; i < 2; i++) {
        struct sim_host *h = &sim.host[i];
        struct wg_now now = sim_now(&sim, h);
        struct wg_peer_info info;
        char text[200] = "public_key=";
        const char *error;
        unsigned line;
        wg_peer_info(h->peer, &info);
        for (unsigned k = 0; k < 32; k++)
            snprintf(text + 11 + 2 * k, 3, "%02x", info.public_key[k]);
        snprintf(text + 75, sizeof text - 75, "\n%s", everything);
        need(wg_uapi_set_text(h->dev, &now, WG_UAPI_SET, 0, text, strlen(text), &line, &error) == 0, "not configured");
    }
    sim_send(&sim, &sim.host[0], 1);
    sim_run(&sim, 1);
    need(sim.host[1].received == 1, "no handshake");
}

int main(int argc, char **argv)
{
    static const unsigned sizes[] = {64, 128, 256, 512, 1024, 1420, 2048, 4096, 8920};
    unsigned only = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        struct {
            const char *name;
            unsigned *value;
        } options[] = {{"--size", &only},           {"--batch", &batch},     {"--ms", &sample_ms},
                       {"--warmup-ms", &warmup_ms}, {"--samples", &samples}, {"--packets", &packets}};
        unsigned k = 0;
        while (k < ARRAY_COUNT(options) && strcmp(argv[i], options[k].name) != 0)
            k++;
        need(k < ARRAY_COUNT(options), "unknown option");
        *options[k].value = (unsigned)strtoul(argv[i + 1], NULL, 10);
    }
    need(batch >= 1 && batch <= MAX_BATCH && RING % batch == 0, "--batch is 1, 2, 4, 8, 16, 32 or 64");
    need(samples >= 1 && samples <= MAX_SAMPLES && only <= 8920, "--samples up to 1000, --size up to 8920");
    shake_hands();
    if (only)
        measure(only);
    else
        for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++)
            measure(sizes[i]);
    sim_end(&sim);
    return 0;
}
