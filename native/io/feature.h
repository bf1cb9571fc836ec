/* The feature table: what this kernel and CPU can do, what the engine makes of it, and what has gone wrong since.
 *
 * One table drives the code (feature_on), the switches that force each feature off (plan: feature_off=; environment:
 * FV_FEATURE_OFF), the print of `fvd --probe` and the tests that run with each one off. io/probe.c fills it once at start
 * by real use; a feature that the kernel goes back on later is refused here, once, with a line in the log. A feature that
 * nobody has probed counts as there: the code that uses it finds out. */
#ifndef FV_IO_FEATURE_H
#define FV_IO_FEATURE_H

#include <stdbool.h>
#include <stddef.h>

#define FEATURES(X) \
    X(UDP_SEGMENT, "udp_segment", "one send call for many datagrams (UDP_SEGMENT)") \
    X(UDP_GRO, "udp_gro", "one receive call for many datagrams (UDP_GRO)") \
    X(TUN_VNET_HDR, "tun_vnet_hdr", "virtio header on the TUN: without it no offload at all") \
    X(TUN_CSUM, "tun_csum", "partial checksums from the TUN") \
    X(TUN_TSO, "tun_tso", "TCP super-packets from and to the TUN") \
    X(TUN_USO, "tun_uso", "UDP super-packets from and to the TUN (Linux 6.2)") \
    X(TUN_MULTI_QUEUE, "tun_multi_queue", "a queue of the TUN for each worker") \
    X(REUSEPORT_PROG, "reuseport_prog", "steering of datagrams to workers by a program") \
    X(SPLICE, "splice", "moving bytes between sockets without copying") \
    X(SO_MARK, "so_mark", "marks on the engine's own sockets") \
    X(BIND_DEVICE, "bind_device", "sockets bound to an interface") \
    X(PKTINFO, "pktinfo", "answers from the address that was addressed") \
    X(RECV_TOS, "recv_tos", "ECN of outer packets") \
    X(TXTIME, "txtime", "pacing by the kernel (SO_TXTIME)") \
    X(AVX2, "avx2", "x86-64: 256-bit vectors") \
    X(AVX512, "avx512", "x86-64: 512-bit vectors") \
    X(NEON, "neon", "ARM: 128-bit vectors")

enum feature {
#define X(id, name, about) FEATURE_##id,
    FEATURES(X)
#undef X
        FEATURE_COUNT
};
extern const char *const feature_names[FEATURE_COUNT];
extern const char *const feature_abouts[FEATURE_COUNT];

enum feature_support { FEATURE_UNKNOWN, FEATURE_YES, FEATURE_NO };

struct feature_state {
    bool forced_off;               /* by the user */
    bool refused;                  /* by the kernel, at run time */
    unsigned char support;         /* enum feature_support, from the probe */
    unsigned refusals;
    char why[80];                  /* of NO or of the refusal */
};
extern struct feature_state feature_table[FEATURE_COUNT];

/* Used now? The hot path's question: one load. */
extern bool feature_used[FEATURE_COUNT];
static inline bool feature_on(enum feature feature)
{
    return feature_used[feature];
}

/* -1 when it is the name of none. */
int feature_parse(const char *name, size_t n);
/* "udp_gro,tun_uso" or "all"; 0 or -EINVAL with the first unknown name copied to unknown (may be NULL, at least 32 bytes). */
int feature_force_off(const char *names, char *unknown, size_t unknown_size);
void feature_probed(enum feature feature, bool supported, const char *why);
/* The kernel has gone back on it: not used any more; said once in the log. Any thread. */
void feature_refused(enum feature feature, const char *why);

#endif
