#include "io/fdstream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/feature.h"

enum { SPLICE_SHORT = 16384 }; /* less than this, and the next wait asks the kernel */

static struct fdstream *of(struct stream *stream)
{
    return (struct fdstream *)(void *)stream; /* its first member */
}

static enum stream_reason reason_of(int error)
{
    switch (error) {
    case ECONNRESET:
    case EPIPE:
    case ECONNABORTED:
        return STREAM_REASON_RESET;
    case ECONNREFUSED:
        return STREAM_REASON_REFUSED;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
        return STREAM_REASON_UNREACHABLE;
    case ETIMEDOUT:
        return STREAM_REASON_TIMEOUT;
    default:
        return STREAM_REASON_LOCAL;
    }
}

/* Refused: to be woken for this direction. */
static enum stream_status refused(struct fdstream *f, unsigned direction)
{
    unsigned wanted = f->wake.interest | (direction == STREAM_READ ? WAKE_READ : WAKE_WRITE);
    *(direction == STREAM_READ ? &f->read_wanted : &f->write_wanted) = true;
    if (f->wake.kind == WAKE_NONE) { /* was taken out as hung up, and yet it refuses */
        f->hung_up = false;
        if (loop_add(f->loop, &f->wake, WAKE_STREAM, f->wake.fd, wanted))
            return stream_fail(&f->stream, STREAM_REASON_LOCAL);
    } else if (loop_interest(f->loop, &f->wake, wanted)) {
        return stream_fail(&f->stream, STREAM_REASON_LOCAL);
    }
    return STREAM_AGAIN;
}

static enum stream_status failed(struct fdstream *f, unsigned direction, int error)
{
    if (error == EAGAIN || error == ENOBUFS || error == ENOMEM)
        return refused(f, direction);
    /* The kernel tells a reset to one call only, and whoever reads next gets 0, which would pass for the peer's FIN. After a
     * FIN it says EPIPE instead: then 0 is the truth. */
    f->broken |= error != EPIPE;
    return stream_fail(&f->stream, reason_of(error));
}

/* A read gave nothing. */
static enum stream_status ended(struct fdstream *f)
{
    return f->broken ? stream_fail(&f->stream, STREAM_REASON_RESET) : STREAM_END;
}

static enum stream_status fd_read(struct stream *stream, void *to, size_t size, unsigned flags, size_t *got)
{
    struct fdstream *f = of(stream);
    ssize_t n;
    *got = 0;
    if (f->dead)
        return STREAM_ERROR;
    if (f->connecting)
        return refused(f, STREAM_READ);
    do
        n = read(f->wake.fd, to, size);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return failed(f, STREAM_READ, errno);
    *got = (size_t)n;
    if (n == 0)
        return ended(f);
    /* Less than asked for: that was all; a hung-up one has its END still to give, and epoll will not say so again. */
    return (size_t)n < size && !f->hung_up ? refused(f, STREAM_READ) : STREAM_OK;
}

static enum stream_status fd_write(struct stream *stream, const struct iovec *from, unsigned count, unsigned flags,
                                   size_t *accepted)
{
    struct fdstream *f = of(stream);
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)from, .msg_iovlen = count};
    size_t offered = 0;
    ssize_t n;
    *accepted = 0;
    for (unsigned i = 0; i < count; i++)
        offered += from[i].iov_len;
    if (f->dead)
        return STREAM_ERROR;
    if (f->connecting)
        return refused(f, STREAM_WRITE);
    if (!offered) { /* what would a further call get? */
        struct pollfd room = {.fd = f->wake.fd, .events = POLLOUT};
        return poll(&room, 1, 0) == 0 ? refused(f, STREAM_WRITE) : STREAM_OK;
    }
    do
        n = f->not_socket ? writev(f->wake.fd, from, (int)count) : sendmsg(f->wake.fd, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return failed(f, STREAM_WRITE, errno);
    *accepted = (size_t)n;
    return (size_t)n < offered ? refused(f, STREAM_WRITE) : STREAM_OK;
}

static size_t fd_room(struct stream *stream)
{
    struct fdstream *f = of(stream);
    if (!f->connecting)
        return f->write_wanted ? 0 : SIZE_MAX;
    refused(f, STREAM_WRITE);
    return 0;
}

static enum stream_status fd_finish(struct stream *stream)
{
    struct fdstream *f = of(stream);
    if (f->dead)
        return STREAM_ERROR;
    if (f->connecting)
        return refused(f, STREAM_WRITE);
    if (f->not_socket || shutdown(f->wake.fd, SHUT_WR) == 0 || errno == ENOTCONN)
        return STREAM_OK;
    return stream_fail(stream, reason_of(errno));
}

static void fd_abort(struct stream *stream, unsigned directions, enum stream_reason reason)
{
    of(stream)->aborted |= (uint8_t)directions;
    if (!stream->reason)
        stream->reason = (uint8_t)reason;
}

static void fd_wait(struct stream *stream, unsigned directions, struct stream_waiter *waiter)
{
    struct fdstream *f = of(stream);
    if (directions & STREAM_READ)
        f->reader = waiter;
    if (directions & STREAM_WRITE)
        f->writer = waiter;
}

static enum stream_status fd_detach(struct stream *stream, unsigned direction, struct stream_left *left)
{
    struct fdstream *f = of(stream);
    *left = (struct stream_left){.fd = -1};
    if (f->connecting)
        return refused(f, STREAM_WRITE);
    f->detached |= (uint8_t)direction;
    if (f->detached == (STREAM_READ | STREAM_WRITE)) {
        left->fd = f->wake.fd;
        loop_remove(f->loop, &f->wake);
        f->wake.fd = -1;
    }
    return STREAM_OK;
}

static enum stream_status fd_splice(struct stream *stream, unsigned direction, int pipe, size_t size, size_t *moved)
{
    struct fdstream *f = of(stream);
    ssize_t n;
    *moved = 0;
    if (f->dead)
        return STREAM_ERROR;
    if (f->connecting)
        return refused(f, direction);
    do
        n = direction == STREAM_READ ? splice(f->wake.fd, NULL, pipe, NULL, size, SPLICE_F_NONBLOCK | SPLICE_F_MOVE)
                                     : splice(pipe, NULL, f->wake.fd, NULL, size, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    while (n < 0 && errno == EINTR);
    if (n < 0 &&
        (errno == EINVAL || errno == ENOSYS)) { /* not this kind of descriptor: the caller looks at `can` again */
        stream->can &= (uint8_t)~(STREAM_SPLICE_READ | STREAM_SPLICE_WRITE);
        return STREAM_OK;
    }
    if (n < 0)
        return failed(f, direction, errno);
    *moved = (size_t)n;
    if (direction == STREAM_WRITE)
        return (size_t)n < size ? refused(f, STREAM_WRITE) : STREAM_OK;
    if (n == 0)
        return ended(f);
    return n < SPLICE_SHORT && (size_t)n < size && !f->hung_up ? refused(f, STREAM_READ) : STREAM_OK;
}

static uint64_t fd_next(const struct stream *stream)
{
    return UINT64_MAX;
}

static void fd_tick(struct stream *stream, uint64_t now)
{
}

static void fd_close(struct stream *stream)
{
    struct fdstream *f = of(stream);
    loop_remove(f->loop, &f->wake);
    if (f->wake.fd >= 0) {
        struct linger now = {.l_onoff = 1, .l_linger = 0}; /* RST, nothing more is delivered */
        if (f->aborted == (STREAM_READ | STREAM_WRITE))
            setsockopt(f->wake.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(f->wake.fd);
    }
    stream->host->unmake(stream->host, f);
}

static const struct stream_ops fd_ops = {
    "descriptor", fd_read,   fd_write,  fd_room, fd_finish, fd_abort,
    fd_wait,      fd_detach, fd_splice, fd_next, fd_tick,   fd_close,
};

struct stream *fdstream_open(struct stream_host *host, struct loop *loop, int fd, bool connecting)
{
    struct fdstream *f = host->make(host, sizeof *f);
    int type;
    socklen_t size = sizeof type;
    if (!f) {
        close(fd);
        return NULL;
    }
    f->stream = (struct stream){&fd_ops, host, 1, STREAM_HALF_CLOSE, STREAM_REASON_NONE};
    if (feature_on(FEATURE_SPLICE))
        f->stream.can |= STREAM_SPLICE_READ | STREAM_SPLICE_WRITE;
    f->not_socket = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0;
    f->loop = loop;
    f->connecting = connecting;
    if (loop_add(loop, &f->wake, WAKE_STREAM, fd, connecting ? WAKE_WRITE : WAKE_READ)) {
        close(fd);
        host->unmake(host, f);
        return NULL;
    }
    return &f->stream;
}

static void connect_ended(struct fdstream *f)
{
    int error = 0;
    socklen_t size = sizeof error;
    f->connecting = false;
    if (getsockopt(f->wake.fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error) {
        f->stream.reason = (uint8_t)reason_of(error);
        f->dead = true; /* the kernel has told it once and would say "not connected" from now on */
    }
}

void fdstream_ready(struct fdstream *f)
{
    unsigned events = f->wake.events;
    if (f->connecting && events & (WAKE_WRITE | WAKE_HANGUP))
        connect_ended(f);
    unsigned useless = 0;
    if (events & (WAKE_READ | WAKE_HANGUP)) {
        if (!f->read_wanted)
            useless |= WAKE_READ;
        else
            stream_wake(f->stream.host, f->reader, STREAM_READ);
        f->read_wanted = false;
    }
    if (events & (WAKE_WRITE | WAKE_HANGUP)) {
        if (f->write_wanted || events & WAKE_HANGUP)
            stream_wake(f->stream.host, f->writer, STREAM_WRITE);
        else
            useless |= WAKE_WRITE;
        f->write_wanted = false;
    }
    if (events & WAKE_HANGUP) {
        f->hung_up = true;
        stream_wake(f->stream.host, f->reader, STREAM_READ);
        loop_remove(f->loop, &f->wake);
    } else if (useless & f->wake.interest) {
        loop_interest(f->loop, &f->wake, f->wake.interest & ~useless);
    }
}
