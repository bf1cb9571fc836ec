/* The plan: what Python has decided, as the engine reads it (docs/plan.md).
 *
 * plan_parse takes the whole text or nothing; an error names the line and what would be right, never a value that may be
 * a secret. The result points into one copy of the text. */
#ifndef FV_ENGINE_PLAN_H
#define FV_ENGINE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/tun.h"
#include "io/worker.h"

enum {
    PLAN_LINE = 4096,        /* bytes of a line, its end not counted */
    PLAN_MAX = 64 << 20,     /* bytes of a plan */
    PLAN_ERROR = 256,
    PLAN_NICE = -15,
    PLAN_MEMORY_MIN = 262144, /* bytes a worker: three buffers, of which two directions need one each */
};

enum plan_type { PLAN_ENGINE, PLAN_WIREGUARD, PLAN_NAT, PLAN_NETWORK, PLAN_RESOLVER, PLAN_TYPES };
extern const char *const plan_type_names[PLAN_TYPES];

struct plan_error {
    unsigned line; /* 0: the whole */
    char text[PLAN_ERROR];
};

struct plan_line {
    const char *key, *value; /* terminated; value percent-decoded */
    unsigned line;
};

struct plan_section {
    enum plan_type type;
    const char *name; /* "" where the type has none */
    unsigned line;
    struct plan_line *lines;
    unsigned count;
};

struct plan_engine {
    unsigned workers;
    int cpu[WORKERS_MAX]; /* -1: not pinned */
    bool cpu_set;
    int nice; /* -20..19 */
    size_t memory;
    int log_level; /* enum log_level */
    bool log_json;
    const char *state, *control, *feature_off; /* "": none */
    bool stop_closed, crash_closed;
};

struct plan_wireguard {
    const char *name;
    unsigned mtu;
    const char *detour; /* "": none */
    bool tun;
    bool source4_set, source6_set;
    uint8_t source4[4], source6[16];
    const char *text; /* the configuration protocol's lines, as wg_uapi_set_text takes them */
    size_t length;
    unsigned line; /* where it begins */
};

struct plan {
    char *text; /* as given, `length` bytes: what `get=1` answers */
    size_t length;
    char *words; /* the cut copy that everything points into */
    char *uapi;  /* the WireGuard texts */
    struct plan_section *sections;
    unsigned section_count;
    struct plan_line *lines;
    struct plan_engine engine;
    struct plan_wireguard *wireguard;
    unsigned wireguard_count;
};

/* 0, -EINVAL with *error, or -ENOMEM. */
int plan_parse(struct plan *plan, const char *text, size_t n, struct plan_error *error);
void plan_free(struct plan *plan); /* wipes: keys are in it */

const struct plan_section *plan_find(const struct plan *plan, enum plan_type type, const char *name);

#endif
