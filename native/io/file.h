/* Whole small files: read with a bound, written so that a crash or a full disk leaves the old one (fv's state: old
 * sysctl values, TAI64N stamps). Not for data of a size that matters. */
#ifndef FV_IO_FILE_H
#define FV_IO_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* Reads path into buffer and ends it with a NUL (not counted). Returns the bytes read, -EFBIG where the file has more
 * than size - 1, or another -errno. Works on /proc, whose files say length 0. */
ssize_t file_read(const char *path, void *buffer, size_t size);

/* The same into memory of its own: *data is NUL-terminated, to be freed by the caller; at most limit bytes. */
ssize_t file_read_new(const char *path, size_t limit, char **data);

/* Replaces path by n bytes in one step: a temporary file beside it, fsync, rename, fsync of the folder. 0 or -errno;
 * after an error the old file is there unchanged and no temporary one is left. */
int file_write(const char *path, const void *data, size_t n, mode_t mode);

/* Overwrites an existing file in place with one write() (what /proc and /sys want). 0 or -errno. */
int file_poke(const char *path, const void *data, size_t n);

/* Removes a file; one that is not there is no error. 0 or -errno. */
int file_remove(const char *path);

/* Makes a folder and those above it (mode 0700 for what is new). 0 or -errno. */
int file_make_folder(const char *path);

#endif
