/* A connection to one of the engine's unix sockets: requests of key=value lines, answers in the same form.
 *
 * WireGuard's socket (uapi.c) and the engine's own (control.c) differ in what they make of a line. Output is made piece by
 * piece as the reader takes it, so that 10,000 peers need no 10,000 peers' worth of memory. On worker 0. */
#ifndef FV_ENGINE_SESSION_H
#define FV_ENGINE_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/loop.h"
#include "wg/wg.h"

enum { SESSIONS_MAX = 32, SESSION_LINE = 4096, SESSION_OUT = 16384 };

struct engine;
struct device;
struct session;

struct session_kind {
    const char *name;
    /* One line without its newline, terminated; a blank line ends a request. False: close the connection. */
    bool (*line)(struct session *session, const char *line, size_t n);
    /* The body of session->body_size bytes is complete. False: close. */
    bool (*body)(struct session *session);
    /* There is room in `out` again. True: there is more to come. */
    bool (*more)(struct session *session);
    void (*closed)(struct session *session);
};

/* A listening socket. */
struct session_listener {
    struct wake wake; /* WAKE_CONTROL_LISTEN */
    struct timer pause; /* WAKE_CONTROL_LISTEN: accepting has failed, and goes on then */
    struct engine *engine;
    struct device *device; /* whose UAPI socket it is, or NULL */
    const struct session_kind *kind;
    char path[108];
    bool adopted; /* somebody else made it (WG_UAPI_FD): its file is not ours to unlink */
};

struct session {
    struct wake wake; /* WAKE_CONTROL */
    struct session *next;
    struct engine *engine;
    struct device *device;
    const struct session_kind *kind;
    bool more; /* kind->more is to be called when the output has drained */
    int request; /* the kind's own: which request is being read */
    int error;   /* of it, so far */
    size_t in_used, out_used, out_sent;
    char *body; /* being read, or NULL */
    size_t body_size, body_used;
    union {
        struct wg_uapi_set set;
        struct wg_uapi_get get;
        struct {
            const char *bytes; /* sent in pieces; owned by `owned` or by the engine */
            size_t at, size;
            void *owned;
        } blob;
        uint64_t words[4];
    };
    char in[SESSION_LINE + 1];
    char out[SESSION_OUT];
};

int session_listen(struct session_listener *listener, struct engine *engine, struct device *device,
                   const struct session_kind *kind, const char *path, unsigned mode, int adopted_fd);
void session_unlisten(struct session_listener *listener);

void session_accept(struct session_listener *listener);
void session_accept_again(struct session_listener *listener);
void session_ready(struct session *session, unsigned events);
void session_close(struct session *session);
/* All of a device that goes, or of the engine (device NULL). */
void session_close_all(struct engine *engine, const struct device *device);

/* Appends to the output; what does not fit SESSION_OUT is cut: kinds keep answers short or use `more`. */
void session_print(struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));

extern const struct session_kind uapi_kind, control_kind;

#endif
