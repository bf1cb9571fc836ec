#include "engine/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crypto/secret.h"
#include "engine/engine.h"
#include "io/clock.h"
#include "io/log.h"
#include "io/socket.h"

int session_listen(struct session_listener *listener, struct engine *engine, struct device *device,
                   const struct session_kind *kind, const char *path, unsigned mode, int adopted_fd)
{
    *listener = (struct session_listener){.engine = engine, .device = device, .kind = kind};
    int fd = adopted_fd >= 0 ? adopted_fd : socket_unix_listen(path, mode);
    if (fd < 0)
        return fd;
    listener->adopted = adopted_fd >= 0;
    /* A client that has gone before it is accepted must not stop the engine. */
    if (listener->adopted && (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0))
        return -errno;
    snprintf(listener->path, sizeof listener->path, "%s", path);
    int error = loop_add(&engine->workers.worker[0].loop, &listener->wake, WAKE_CONTROL_LISTEN, fd, WAKE_READ);
    if (error) {
        close(fd);
        listener->wake.kind = WAKE_NONE;
    }
    return error;
}

void session_unlisten(struct session_listener *listener)
{
    if (listener->wake.kind == WAKE_NONE)
        return;
    timer_cancel(&listener->engine->workers.worker[0].loop, &listener->pause);
    loop_remove(&listener->engine->workers.worker[0].loop, &listener->wake);
    close(listener->wake.fd);
    if (!listener->adopted)
        unlink(listener->path);
}

void session_accept(struct session_listener *listener)
{
    struct engine *engine = listener->engine;
    int fd = socket_accept(listener->wake.fd);
    if (fd < 0) {
        struct loop *loop = &engine->workers.worker[0].loop;
        if (fd == -EAGAIN)
            return;
        log_warning("%s socket: accepting failed: %s", listener->kind->name, strerror(-fd));
        loop_interest(loop, &listener->wake, 0);
        timer_arm(loop, &listener->pause, WAKE_CONTROL_LISTEN, loop->now + 100 * NS_PER_MS);
        return;
    }
    struct session *session = engine->session_count < SESSIONS_MAX ? calloc(1, sizeof *session) : NULL;
    if (!session || loop_add(&engine->workers.worker[0].loop, &session->wake, WAKE_CONTROL, fd, WAKE_READ)) {
        log_warning("%s socket: %u connections are open already", listener->kind->name, engine->session_count);
        free(session);
        close(fd);
        return;
    }
    session->engine = engine;
    session->device = listener->device;
    session->kind = listener->kind;
    session->next = engine->sessions;
    engine->sessions = session;
    engine->session_count++;
}

void session_accept_again(struct session_listener *listener)
{
    loop_interest(&listener->engine->workers.worker[0].loop, &listener->wake, WAKE_READ);
}

void session_close(struct session *session)
{
    struct engine *engine = session->engine;
    struct session **link = &engine->sessions;
    while (*link != session)
        link = &(*link)->next;
    *link = session->next;
    engine->session_count--;
    session->kind->closed(session);
    loop_remove(&engine->workers.worker[0].loop, &session->wake);
    close(session->wake.fd);
    if (session->body)
        secret_wipe(session->body, session->body_size);
    free(session->body);
    secret_wipe(session, sizeof *session); /* keys have passed through its buffers */
    free(session);
}

void session_close_all(struct engine *engine, const struct device *device)
{
    for (struct session *session = engine->sessions, *next; session; session = next) {
        next = session->next;
        if (!device || session->device == device)
            session_close(session);
    }
}

void session_print(struct session *session, const char *format, ...)
{
    size_t room = SESSION_OUT - session->out_used;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(session->out + session->out_used, room, format, args);
    va_end(args);
    if (n > 0)
        session->out_used += (size_t)n < room ? (size_t)n : room - 1;
}

/* Writes what is there and makes more as it drains. False: the connection is gone. */
static bool drain(struct session *session)
{
    for (;;) {
        while (session->out_sent < session->out_used) {
            ssize_t n = send(session->wake.fd, session->out + session->out_sent, session->out_used - session->out_sent,
                             MSG_NOSIGNAL);
            if (n < 0)
                return errno == EAGAIN || errno == EINTR;
            session->out_sent += (size_t)n;
        }
        session->out_sent = session->out_used = 0;
        if (!session->more)
            return true;
        session->more = session->kind->more(session);
    }
}

static bool busy(const struct session *session)
{
    return session->more || session->out_used > session->out_sent;
}

/* Works off what has been read, a line or a body at a time, until something must be written first. */
static bool digest(struct session *session)
{
    size_t at = 0;
    bool open = true;
    while (open && !busy(session)) {
        if (session->body) {
            size_t part = session->body_size - session->body_used, have = session->in_used - at;
            part = part < have ? part : have;
            memcpy(session->body + session->body_used, session->in + at, part);
            session->body_used += part;
            at += part;
            if (session->body_used < session->body_size)
                break;
            open = session->kind->body(session);
            if (session->body)
                secret_wipe(session->body, session->body_size);
            free(session->body);
            session->body = NULL;
        } else {
            char *line = session->in + at, *end = memchr(line, '\n', session->in_used - at);
            if (!end)
                break;
            *end = 0;
            at += (size_t)(end - line) + 1;
            open = session->kind->line(session, line, (size_t)(end - line));
        }
        if (open)
            open = drain(session);
    }
    memmove(session->in, session->in + at, session->in_used - at);
    session->in_used -= at;
    if (session->in_used == SESSION_LINE && !busy(session) && !session->body)
        return false; /* a line without end */
    return open;
}

void session_ready(struct session *session, unsigned events)
{
    bool open = true, ended = false;
    if (events & WAKE_WRITE)
        open = drain(session);
    if (open && events & (WAKE_READ | WAKE_HANGUP) && session->in_used < SESSION_LINE) {
        ssize_t n = recv(session->wake.fd, session->in + session->in_used, SESSION_LINE - session->in_used, 0);
        if (n > 0)
            session->in_used += (size_t)n;
        else if (n == 0)
            ended = true;
        else if (errno != EAGAIN && errno != EINTR)
            open = false;
    }
    if (open)
        open = digest(session);
    if (!open || (ended && !busy(session))) {
        session_close(session);
        return;
    }
    loop_interest(&session->engine->workers.worker[0].loop, &session->wake,
                  busy(session) ? WAKE_WRITE : (ended ? 0u : WAKE_READ));
}
