#include "io/instance.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/file.h"

#define INSTANCE_NAMES 16

static int instance_bind(unsigned number)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* The leading NUL makes the name abstract. */
    int n = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "fv/instance/%u", number);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) < 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

int instance_claim(bool *alone)
{
    int mine = -EADDRINUSE;

    *alone = true;
    for (unsigned i = 0; i < INSTANCE_NAMES; i++) {
        int fd = instance_bind(i);
        if (fd < 0 && fd != -EADDRINUSE) {
            if (mine >= 0)
                close(mine);
            return fd;
        }
        if (fd < 0)
            *alone = false;
        else if (mine < 0)
            mine = fd;
        else
            close(fd);
    }
    return mine;
}

void instance_identity(char *text, size_t size)
{
    char boot[64];
    char space[64];
    ssize_t n = file_read("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    ssize_t m = readlink("/proc/self/ns/net", space, sizeof space - 1);

    text[0] = '\0';
    if (n <= 0 || m <= 0)
        return;
    boot[strcspn(boot, "\n")] = '\0';
    space[m] = '\0';
    snprintf(text, size, "%s %s", boot, space);
}
