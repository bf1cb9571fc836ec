/* Pipes to splice through: how bytes go from one socket to another without being copied. */
#ifndef FV_IO_PIPE_H
#define FV_IO_PIPE_H

#include <stddef.h>
#include <sys/types.h>

struct pipe {
    int ends[2];     /* read, write; non-blocking, close-on-exec */
    size_t capacity; /* bytes, as the kernel granted them */
    size_t held;     /* bytes in it; kept by who splices */
};

/* 0 or -errno. A capacity that the kernel does not grant (fs.pipe-max-size) leaves it as large as it is. */
int pipe_open(struct pipe *pipe, size_t capacity);
void pipe_close(struct pipe *pipe);
/* Takes bytes out by copying; bytes or -errno. */
ssize_t pipe_read(struct pipe *pipe, void *to, size_t size);

#endif
