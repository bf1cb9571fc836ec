#include "io/log.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"

const char *const log_level_names[] = {"error", "warning", "info", "debug"};
_Static_assert(sizeof log_level_names / sizeof *log_level_names == LOG_LEVELS, "a name for every level");

static const uint64_t log_window = 5ull * NS_PER_S;

static struct {
    pthread_mutex_t lock;
    enum log_level level;
    bool json;
    char ring[LOG_RING]; /* lines end in \n; the oldest is cut at ring_at when it has wrapped */
    size_t ring_at;
    bool ring_wrapped;
} logger = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = LOG_INFO};

void log_setup(enum log_level level, bool json)
{
    logger.level = level;
    logger.json = json;
}

bool log_enabled(enum log_level level)
{
    return level <= logger.level;
}

int log_level_parse(const char *name)
{
    for (int i = 0; i < LOG_LEVELS; i++)
        if (strcmp(name, log_level_names[i]) == 0)
            return i;
    return -1;
}

static void ring_add(const char *line, size_t n)
{
    for (size_t done = 0; done < n;) {
        size_t room = LOG_RING - logger.ring_at, part = n - done < room ? n - done : room;
        memcpy(logger.ring + logger.ring_at, line + done, part);
        done += part;
        logger.ring_at += part;
        if (logger.ring_at == LOG_RING) {
            logger.ring_at = 0;
            logger.ring_wrapped = true;
        }
    }
}

size_t log_ring_copy(char *out, size_t n)
{
    pthread_mutex_lock(&logger.lock);
    size_t have = logger.ring_wrapped ? LOG_RING : logger.ring_at;
    size_t start = logger.ring_wrapped ? logger.ring_at : 0, skip = have > n ? have - n : 0;
    if (logger.ring_wrapped || skip) /* begin behind the first whole line's predecessor */
        while (skip < have && logger.ring[(start + skip) % LOG_RING] != '\n')
            skip++;
    if (skip && skip < have)
        skip++;
    size_t written = 0;
    for (; skip < have; skip++)
        out[written++] = logger.ring[(start + skip) % LOG_RING];
    pthread_mutex_unlock(&logger.lock);
    return written;
}

/* JSON string contents of text, cut to what fits. */
static size_t json_escape(char *out, size_t n, const char *text)
{
    size_t at = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p && at + 7 < n; p++) {
        if (*p == '"' || *p == '\\') {
            out[at++] = '\\';
            out[at++] = (char)*p;
        } else if (*p < 0x20) {
            at += (size_t)snprintf(out + at, n - at, "\\u%04x", *p);
        } else {
            out[at++] = (char)*p;
        }
    }
    out[at] = 0;
    return at;
}

static void log_emit(enum log_level level, const char *text)
{
    char line[2 * LOG_LINE + 96];
    _Static_assert(sizeof line <= PIPE_BUF, "a line is written to a pipe whole, and at once");
    struct timespec wall;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &wall);
    gmtime_r(&wall.tv_sec, &tm);
    size_t n = strftime(line, 40, logger.json ? "{\"time\":\"%Y-%m-%dT%H:%M:%S" : "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ", wall.tv_nsec / NS_PER_MS);
    if (logger.json) {
        n += (size_t)snprintf(line + n, sizeof line - n, "\",\"level\":\"%s\",\"message\":\"", log_level_names[level]);
        n += json_escape(line + n, sizeof line - n - 4, text);
        n += (size_t)snprintf(line + n, sizeof line - n, "\"}\n");
    } else {
        n += (size_t)snprintf(line + n, sizeof line - n, " %-7s %s\n", log_level_names[level], text);
    }
    ring_add(line, n);
    /* Neither a closed stderr nor a pipe that nobody empties must stop the engine: what does not fit is in the ring. (A
     * pipe that can be written to has room for PIPE_BUF bytes, which is more than a line.) */
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};
    ssize_t done = poll(&err, 1, 0) == 1 && err.revents & POLLOUT ? write(STDERR_FILENO, line, n) : 0;
    (void)done;
}

void log_write(struct log_site *site, enum log_level level, const char *format, ...)
{
    char text[LOG_LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);

    uint64_t now = clock_mono();
    pthread_mutex_lock(&logger.lock);
    if (now - site->window >= log_window) {
        site->window = now;
        site->lines = 0;
    }
    if (level > LOG_WARNING && logger.level == LOG_DEBUG)
        site->lines = 0; /* who asks for debug wants all of it */
    if (site->lines >= LOG_BURST) {
        site->dropped++;
    } else {
        site->lines++;
        if (site->dropped) {
            char more[64];
            snprintf(more, sizeof more, "(%u lines like the next one left out)", site->dropped);
            site->dropped = 0;
            log_emit(level, more);
        }
        log_emit(level, text);
    }
    pthread_mutex_unlock(&logger.lock);
}

void die(const char *format, ...)
{
    char text[LOG_LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&logger.lock);
    log_emit(LOG_ERROR, text);
    pthread_mutex_unlock(&logger.lock);
    exit(1);
}
