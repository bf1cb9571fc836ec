/* Levelled log to stderr, as text or JSON lines, and a ring in memory that `fvd show log` reads.
 *
 * A call site that repeats itself is cut to LOG_BURST lines in LOG_WINDOW; the next line that passes says how many were
 * left out. Secrets never reach a log: callers print names, addresses, lengths and counts. Safe from any thread. */
#ifndef FV_IO_LOG_H
#define FV_IO_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG, LOG_LEVELS };
extern const char *const log_level_names[LOG_LEVELS];

enum { LOG_BURST = 8, LOG_RING = 16384, LOG_LINE = 512 };

/* One per call site. */
struct log_site {
    uint64_t window;  /* monotonic ns at which the current window began */
    uint32_t lines;   /* written in it */
    uint32_t dropped; /* and left out */
};

void log_setup(enum log_level level, bool json);
bool log_enabled(enum log_level level);
/* -1 when the name is none of log_level_names. */
int log_level_parse(const char *name);
void log_write(struct log_site *site, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Copies the ring, oldest line first, whole lines only; returns bytes written (<= n, <= LOG_RING). */
size_t log_ring_copy(char *out, size_t n);

#define LOG_AT(level, ...) \
    do { \
        static struct log_site log_site_here; \
        if (log_enabled(level)) \
            log_write(&log_site_here, (level), __VA_ARGS__); \
    } while (0)
#define log_error(...) LOG_AT(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) LOG_AT(LOG_WARNING, __VA_ARGS__)
#define log_info(...) LOG_AT(LOG_INFO, __VA_ARGS__)
#define log_debug(...) LOG_AT(LOG_DEBUG, __VA_ARGS__)

/* Only while starting: says why and ends the process with status 1. */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
