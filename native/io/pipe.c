#include "io/pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int pipe_open(struct pipe *pipe, size_t capacity)
{
    pipe->held = 0;
    if (pipe2(pipe->ends, O_NONBLOCK | O_CLOEXEC) < 0)
        return -errno;
    fcntl(pipe->ends[1], F_SETPIPE_SZ, (int)capacity);
    int granted = fcntl(pipe->ends[1], F_GETPIPE_SZ);
    pipe->capacity = granted > 0 ? (size_t)granted : 65536;
    return 0;
}

void pipe_close(struct pipe *pipe)
{
    close(pipe->ends[0]);
    close(pipe->ends[1]);
    pipe->ends[0] = pipe->ends[1] = -1;
}

ssize_t pipe_read(struct pipe *pipe, void *to, size_t size)
{
    ssize_t got;
    do
        got = read(pipe->ends[0], to, size);
    while (got < 0 && errno == EINTR);
    if (got > 0)
        pipe->held -= (size_t)got;
    return got < 0 ? -errno : got;
}
