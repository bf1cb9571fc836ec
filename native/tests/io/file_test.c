/* Whole files: bounds, replacement in one step, modes, errors that leave the old file. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"
#include "tests/check.h"

int main(void)
{
    char folder[] = "/tmp/fv-file-test-XXXXXX", path[200], deep[200], buffer[16], *data = NULL;
    struct stat st;

    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/state", folder);
    snprintf(deep, sizeof deep, "%s/a/b/c", folder);

    /* 1: what is not there */
    CHECK_EQ(file_read(path, buffer, sizeof buffer), -ENOENT);
    CHECK_EQ(file_read_new(path, 10, &data), -ENOENT);
    CHECK_EQ(file_poke(path, "x", 1), -ENOENT);
    /* 2: write, mode, read */
    CHECK_EQ(file_write(path, "hello", 5, 0600), 0);
    CHECK_EQ(stat(path, &st), 0);
    CHECK_EQ(st.st_mode & 07777, 0600);
    CHECK_EQ(file_read(path, buffer, sizeof buffer), 5);
    CHECK_STR(buffer, "hello");
    /* 3: the bound: five bytes and the NUL fit in six */
    CHECK_EQ(file_read(path, buffer, 6), 5);
    CHECK_EQ(file_read(path, buffer, 5), -EFBIG);
    CHECK_EQ(file_read_new(path, 5, &data), 5);
    CHECK_STR(data, "hello");
    free(data);
    CHECK_EQ(file_read_new(path, 4, &data), -EFBIG);
    /* 4: replaced by something shorter; the old descriptor keeps the old text */
    CHECK_EQ(file_write(path, "new", 3, 0644), 0);
    CHECK_EQ(file_read(path, buffer, sizeof buffer), 3);
    CHECK_EQ(stat(path, &st), 0);
    CHECK_EQ(st.st_mode & 07777, 0644);
    /* 5: a target that cannot be replaced (a folder) leaves no temporary file */
    CHECK_EQ(file_make_folder(deep), 0);
    CHECK_EQ(file_make_folder(deep), 0);
    CHECK(file_write(deep, "x", 1, 0600) < 0);
    char temporary[256];
    snprintf(temporary, sizeof temporary, "%s.%d.new", deep, (int)getpid());
    CHECK_EQ(access(temporary, F_OK), -1);
    CHECK_EQ(file_make_folder(path), -ENOTDIR);
    /* 6: larger than the first guess of file_read_new */
    char *big = calloc(1, 10000);
    memset(big, 'x', 9999);
    CHECK_EQ(file_write(path, big, 9999, 0600), 0);
    CHECK_EQ(file_read_new(path, 9999, &data), 9999);
    CHECK_MEM(data, big, 10000);
    free(data);
    CHECK_EQ(file_read_new(path, 9998, &data), -EFBIG);
    free(big);
    /* 7: in place */
    CHECK_EQ(file_write(path, "abc", 3, 0600), 0);
    CHECK_EQ(file_poke(path, "X", 1), 0);
    CHECK_EQ(file_read(path, buffer, sizeof buffer), 3);
    CHECK_STR(buffer, "Xbc");
    /* 8: /proc says length 0 */
    CHECK(file_read_new("/proc/self/status", 65536, &data) > 0);
    free(data);

    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(rmdir(deep), 0);
    deep[strlen(deep) - 2] = '\0';
    CHECK_EQ(rmdir(deep), 0);
    deep[strlen(deep) - 2] = '\0';
    CHECK_EQ(rmdir(deep), 0);
    CHECK_EQ(rmdir(folder), 0);
    return check_done();
}
