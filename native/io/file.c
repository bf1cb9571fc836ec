#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int file_open(const char *path, int flags, mode_t mode)
{
    int fd;

    do
        fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

/* Bytes read until the end of the file or n; -errno. */
static ssize_t file_fill(int fd, char *data, size_t n)
{
    size_t have = 0;

    while (have < n) {
        ssize_t got = read(fd, data + have, n - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

static int file_drain(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t put = write(fd, data, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        data += put;
        n -= (size_t)put;
    }
    return 0;
}

ssize_t file_read(const char *path, void *buffer, size_t size)
{
    char *data = buffer;
    int fd = file_open(path, O_RDONLY, 0);

    if (fd < 0)
        return fd;
    ssize_t got = file_fill(fd, data, size);
    close(fd);
    if (got >= 0 && (size_t)got == size)
        return -EFBIG;
    if (got >= 0)
        data[got] = '\0';
    return got;
}

static void file_forget(char *bytes, size_t n)
{
    if (bytes)
        explicit_bzero(bytes, n);
    free(bytes);
}

ssize_t file_read_new(const char *path, size_t limit, char **data)
{
    size_t size = 0, have = 0;
    char *bytes = NULL;
    int fd = file_open(path, O_RDONLY, 0);

    if (fd < 0)
        return fd;
    for (;;) {
        size = size ? size * 2 : 4096;
        if (size > limit + 1)
            size = limit + 1;
        char *grown = malloc(size);
        ssize_t got = -ENOMEM;
        if (grown) { /* not realloc: a plan holds keys, and what it is moved out of must not keep them */
            memcpy(grown, bytes ? bytes : "", have);
            file_forget(bytes, have);
            bytes = grown;
            got = file_fill(fd, bytes + have, size - have);
        }
        if (got >= 0) {
            have += (size_t)got;
            if (have == size && size <= limit)
                continue;
            got = have > limit ? -EFBIG : (ssize_t)have;
        }
        close(fd);
        if (got < 0) {
            file_forget(bytes, have);
            return got;
        }
        bytes[have] = '\0'; /* NOLINT(clang-analyzer-security.ArrayBound): a full buffer went on, or was too long */
        *data = bytes;
        return got;
    }
}

/* A rename is only on the disk when its folder is. */
static int file_sync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);

    memcpy(folder, n ? path : ".", n ? n : 1);
    folder[n ? n : 1] = '\0';
    int fd = file_open(folder, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fd;
    /* Some file systems do not know fsync of a folder: EINVAL is theirs, not a failed write. */
    int error = fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
    close(fd);
    return error;
}

int file_write(const char *path, const void *data, size_t n, mode_t mode)
{
    char temporary[PATH_MAX];

    /* Room for ".PID.new" beside the path. */
    if (strlen(path) + 24 > sizeof temporary)
        return -ENAMETOOLONG;
    snprintf(temporary, sizeof temporary, "%s.%d.new", path, (int)getpid());
    (void)unlink(temporary);
    int fd = file_open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    if (fd < 0)
        return fd;
    int error = file_drain(fd, data, n);
    if (!error && fchmod(fd, mode) < 0)
        error = -errno;
    if (!error && fsync(fd) < 0)
        error = -errno;
    if (close(fd) < 0 && !error)
        error = -errno;
    if (!error && rename(temporary, path) < 0)
        error = -errno;
    if (error) {
        (void)unlink(temporary);
        return error;
    }
    return file_sync_folder(path);
}

int file_poke(const char *path, const void *data, size_t n)
{
    int fd = file_open(path, O_WRONLY, 0);

    if (fd < 0)
        return fd;
    ssize_t put;
    do
        put = write(fd, data, n);
    while (put < 0 && errno == EINTR);
    int error = put < 0 ? -errno : (size_t)put == n ? 0 : -EIO;
    close(fd);
    return error;
}

int file_remove(const char *path)
{
    return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

int file_make_folder(const char *path)
{
    char folder[PATH_MAX];
    size_t n = strlen(path);

    if (n == 0 || n >= sizeof folder)
        return n ? -ENAMETOOLONG : -EINVAL;
    memcpy(folder, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (folder[i] != '/' && folder[i] != '\0')
            continue;
        char was = folder[i];
        folder[i] = '\0';
        if (mkdir(folder, 0700) < 0 && errno != EEXIST)
            return -errno;
        folder[i] = was;
    }
    struct stat st;
    if (stat(path, &st) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}
