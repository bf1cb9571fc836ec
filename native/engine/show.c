/* The other end of the engine's own socket, for where there is no shell and no Python: `fvd show`, `fvd --health`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/engine.h"
#include "io/socket.h"

static int ask(const char *control, const char *request)
{
    int fd = socket_unix_connect(control);
    if (fd < 0) {
        fprintf(stderr, "fvd: %s: %s: is an engine running with control=%s in its plan?\n", control, strerror(-fd),
                control);
        return fd;
    }
    ssize_t n = send(fd, request, strlen(request), MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    if (n != (ssize_t)strlen(request)) {
        close(fd);
        return -EIO;
    }
    return fd;
}

/* Copies the answer to stdout; the head (length=, errno=, blank line) of an answer with a body is left out. */
static int copy_answer(int fd, bool has_head)
{
    FILE *in = fdopen(fd, "r");
    char line[8192];
    bool head = has_head;
    int error = -EPROTO;
    if (!in)
        return -ENOMEM;
    while (fgets(line, sizeof line, in)) {
        bool body = has_head && !head; /* as it is: a plan has blank lines */
        if (head && line[0] == '\n')
            head = false;
        else if (!body && strncmp(line, "errno=", 6) == 0)
            error = (int)strtol(line + 6, NULL, 10);
        else if (body || (!has_head && line[0] != '\n'))
            fputs(line, stdout);
    }
    fclose(in);
    if (error == -EPROTO)
        fprintf(stderr, "fvd: the engine has not answered to the end\n");
    return error;
}

int show_main(const char *control, const char *what)
{
    bool stats = strcmp(what, "stats") == 0, log = strcmp(what, "log") == 0, plan = strcmp(what, "plan") == 0;
    if (!stats && !log && !plan) {
        fprintf(stderr, "fvd show: '%s' is not stats, log or plan\n", what);
        return 2;
    }
    int fd = ask(control, stats ? "show=stats\n\n" : log ? "log=1\n\n" : "get=1\n\n");
    if (fd < 0)
        return 1;
    return copy_answer(fd, !stats) ? 1 : 0;
}

/* Healthy: the engine answers. Whether its peers do is not the engine's health: restarting it would not help. */
int health_main(const char *control)
{
    int fd = ask(control, "show=stats\n\n");
    if (fd < 0)
        return 1;
    FILE *in = fdopen(fd, "r");
    char line[512];
    bool answered = false;
    if (!in)
        return 1;
    while (fgets(line, sizeof line, in))
        answered |= strcmp(line, "errno=0\n") == 0;
    fclose(in);
    puts(answered ? "healthy" : "no answer");
    return answered ? 0 : 1;
}
