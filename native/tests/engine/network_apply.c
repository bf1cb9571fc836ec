/* A small engine for tests/test_network.py: applies [network] sections by order of its standard input, so that the
 * test can look between the steps, kill it, and start it again. Not run by `meson test`: needs a namespace.
 *
 *   network_apply STATE-FOLDER        ("" for none)
 *   tun NAME          makes a TUN device, kept open; what enters it is read by nobody
 *   close             closes the last TUN
 *   apply FILE        both phases; guard FILE and devices FILE are one each (FILE: key=value lines, on_stop, on_crash)
 *   rollback, stop open, stop closed, clear
 *   uplink 4|6        the uplink's route, not through any TUN made here
 *   watch             the kinds of the changes since the start, one line
 * Answers "ok" or "error: ..." a line; notices go to standard error. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/network.h"
#include "io/file.h"

static int tuns[8], tun_indices[8];
static size_t tun_count;

static int tun_make(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

    if (fd < 0 || tun_count == 8)
        return fd < 0 ? -errno : -ENOSPC;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (ioctl(fd, TUNSETIFF, &request) < 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    tun_indices[tun_count] = (int)if_nametoindex(name);
    tuns[tun_count++] = fd;
    return 0;
}

static int plan_read(const char *path, struct network_plan *plan, char *error, size_t size)
{
    char *text, *save = NULL;
    ssize_t n = file_read_new(path, 1 << 20, &text);
    int result = 0;

    *plan = (struct network_plan){.crash_closed = true};
    if (n < 0) {
        snprintf(error, size, "%s: %s", path, strerror((int)-n));
        return (int)n;
    }
    for (char *line = strtok_r(text, "\n", &save); line && !result; line = strtok_r(NULL, "\n", &save)) {
        char *equal = strchr(line, '=');
        if (!equal)
            continue;
        *equal = '\0';
        if (strcmp(line, "on_stop") == 0)
            plan->stop_closed = strcmp(equal + 1, "closed") == 0;
        else if (strcmp(line, "on_crash") == 0)
            plan->crash_closed = strcmp(equal + 1, "closed") == 0;
        else
            result = network_parse_line(plan, line, equal + 1, error, size);
    }
    free(text);
    return result;
}

static void notice(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "notice: %s\n", text);
}

static int watch_print(void *context, const struct netlink_event *event)
{
    static const char *const names[] = {"link", "address", "route", "rule", "lost"};
    _Static_assert(sizeof names / sizeof *names == NETLINK_EVENT_COUNT, "a name per kind");

    (void)context;
    printf("%s%s ", event->gone ? "-" : "+", names[event->kind]);
    return 0;
}

int main(int argc, char **argv)
{
    static struct network net;
    struct netlink nl;
    char line[1024], error[NETWORK_ERROR_SIZE];

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2 || netlink_open(&nl) || network_open(&net, &nl, argv[1])) {
        printf("error: cannot start: %s\n", net.error);
        return 1;
    }
    net.notice = notice;
    int watch = netlink_watch_open();
    printf("ok alone=%d\n", net.alone);
    while (fgets(line, sizeof line, stdin)) {
        char *argument = strchr(line, ' ');
        int result = -EINVAL;
        line[strcspn(line, "\n")] = '\0';
        if (argument)
            *argument++ = '\0';
        error[0] = '\0';
        bool guard = strcmp(line, "guard") == 0, devices = strcmp(line, "devices") == 0;
        if (argument && (guard || devices || strcmp(line, "apply") == 0)) {
            struct network_plan plan;
            result = plan_read(argument, &plan, error, sizeof error);
            if (!result && !devices)
                result = network_apply(&net, &plan, NETWORK_GUARD);
            if (!result && !guard)
                result = network_apply(&net, &plan, NETWORK_DEVICES);
            network_plan_free(&plan);
        } else if (argument && strcmp(line, "tun") == 0) {
            result = tun_make(argument);
        } else if (argument && strcmp(line, "stop") == 0) {
            result = network_stop(&net, strcmp(argument, "closed") == 0);
        } else if (argument && strcmp(line, "uplink") == 0) {
            struct netlink_route route;
            struct netlink_link link;
            result = netlink_uplink(&nl, argument[0] == '4' ? AF_INET : AF_INET6, tun_indices, tun_count, &route);
            if (!result)
                result = netlink_link_by_index(&nl, route.index, &link);
            if (result)
                snprintf(error, sizeof error, "%s", netlink_error(&nl));
            else
                printf("%s ", link.name);
        } else if (strcmp(line, "watch") == 0) {
            result = netlink_watch_read(watch, watch_print, NULL);
        } else if (strcmp(line, "rollback") == 0) {
            network_rollback(&net);
            result = 0;
        } else if (strcmp(line, "clear") == 0) {
            result = network_clear(&net);
        } else if (strcmp(line, "close") == 0 && tun_count) {
            result = close(tuns[--tun_count]);
        }
        if (result)
            printf("error: %d %s\n", result, error[0] ? error : net.error);
        else
            puts("ok");
    }
    network_close(&net);
    netlink_close(&nl);
    return 0;
}
