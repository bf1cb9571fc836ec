/* Sockets on loopback: every option is set, used once, and its effect looked at. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "io/feature.h"
#include "io/probe.h"
#include "wire/bytes.h"

/* Kernel numbers that older headers lack. */
#define PROBE_UDP_SEGMENT 103
#define PROBE_UDP_GRO 104
#define PROBE_SO_TXTIME 61
#define PROBE_CBPF 51 /* SO_ATTACH_REUSEPORT_CBPF */
#define PROBE_PATIENCE 200 /* ms; loopback delivers before send returns, so this is for a machine that stands still */
#define PROBE_PART 100 /* bytes of a segment */
#define PROBE_PARTS 3

/* Not permitted and not there are different answers: what could not be tried stays unknown, and its switch on or off
 * as `used` says. */
static void probe_untried(enum feature feature, bool used, const char *why)
{
    if (!used) {
        feature_probed(feature, false, why);
        feature_table[feature].support = FEATURE_UNKNOWN;
        return;
    }
    snprintf(feature_table[feature].why, sizeof feature_table[feature].why, "%s", why);
}

static void probe_failed(enum feature feature, int error)
{
    if (error == EPERM || error == EACCES)
        probe_untried(feature, false, "not permitted here");
    else
        feature_probed(feature, false, strerror(error));
}

static int probe_udp(struct sockaddr_in *local)
{
    socklen_t n = sizeof *local;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    *local = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd >= 0 && (bind(fd, (const struct sockaddr *)local, sizeof *local) < 0 ||
                    getsockname(fd, (struct sockaddr *)local, &n) < 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* One message with at most one control message: bytes sent or -errno. */
static ssize_t probe_send(int fd, const struct sockaddr_in *to, const void *data, size_t n, int level, int type,
                          const void *control, size_t control_size)
{
    union {
        char bytes[CMSG_SPACE(64)];
        struct cmsghdr align;
    } space = {{0}};
    struct sockaddr_in target = *to;
    char copy[PROBE_PART * PROBE_PARTS];
    struct iovec part = {.iov_base = copy, .iov_len = n};
    struct msghdr message = {.msg_name = &target, .msg_namelen = sizeof target, .msg_iov = &part, .msg_iovlen = 1};

    memcpy(copy, data, n);
    if (control_size) {
        message.msg_control = space.bytes;
        message.msg_controllen = CMSG_SPACE(control_size);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = level;
        c->cmsg_type = type;
        c->cmsg_len = CMSG_LEN(control_size);
        memcpy(CMSG_DATA(c), control, control_size);
    }
    ssize_t sent = sendmsg(fd, &message, 0);
    return sent < 0 ? -errno : sent;
}

/* One datagram, and the payload of the control message that is asked for (control_size 0 when it is not there). */
static ssize_t probe_receive(int fd, char *data, size_t n, int level, int type, void *control, size_t *control_size)
{
    union {
        char bytes[CMSG_SPACE(256)];
        struct cmsghdr align;
    } space;
    struct iovec part = {.iov_base = data, .iov_len = n};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof space.bytes};
    struct pollfd p = {.fd = fd, .events = POLLIN};

    if (poll(&p, 1, PROBE_PATIENCE) != 1)
        return -EAGAIN;
    ssize_t got = recvmsg(fd, &message, 0);
    if (got < 0)
        return -errno;
    size_t room = control_size ? *control_size : 0;
    if (control_size)
        *control_size = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c && room; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == level && c->cmsg_type == type) {
            *control_size = MIN(room, c->cmsg_len - CMSG_LEN(0));
            memcpy(control, CMSG_DATA(c), *control_size);
        }
    }
    return got;
}

/* Three segments of one send arrive as three datagrams; with GRO on the receiver as one. */
static void probe_batches(int from, int to, const struct sockaddr_in *target)
{
    char data[PROBE_PART * PROBE_PARTS], got[PROBE_PART * PROBE_PARTS + 1];
    const uint16_t segment = PROBE_PART;
    const int on = 1;
    int merged = 0;
    size_t n = sizeof merged;
    bool gso = true;

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i / PROBE_PART);
    ssize_t sent =
        probe_send(from, target, data, sizeof data, IPPROTO_UDP, PROBE_UDP_SEGMENT, &segment, sizeof segment);
    if (sent < 0)
        gso = false;
    for (int i = 0; gso && i < PROBE_PARTS; i++)
        gso = probe_receive(to, got, sizeof got, 0, 0, NULL, NULL) == PROBE_PART && got[0] == i;
    if (sent < 0)
        probe_failed(FEATURE_UDP_SEGMENT, (int)-sent);
    else
        feature_probed(FEATURE_UDP_SEGMENT, gso, gso ? NULL : "the datagrams were not cut as asked");
    /* Kernels without it take no notice of an unknown control message and send one long datagram. */
    while (recv(to, got, sizeof got, MSG_DONTWAIT) >= 0)
        continue;

    /* Before 5.12 the option cannot be read back, so that it is judged by what it does. */
    if (setsockopt(to, IPPROTO_UDP, PROBE_UDP_GRO, &on, sizeof on) < 0) {
        probe_failed(FEATURE_UDP_GRO, errno);
        return;
    }
    if (!gso) {
        feature_probed(FEATURE_UDP_GRO, true, "taken, but nothing here to see it merge with");
        return;
    }
    sent = probe_send(from, target, data, sizeof data, IPPROTO_UDP, PROBE_UDP_SEGMENT, &segment, sizeof segment);
    ssize_t first = probe_receive(to, got, sizeof got, IPPROTO_UDP, PROBE_UDP_GRO, &merged, &n);
    bool joined =
        sent == (ssize_t)sizeof data && first == (ssize_t)sizeof data && n == sizeof merged && merged == PROBE_PART;
    feature_probed(FEATURE_UDP_GRO, true, joined ? NULL : "taken, but not seen to merge");
    while (recv(to, got, sizeof got, MSG_DONTWAIT) >= 0)
        continue;
    const int off = 0;
    (void)setsockopt(to, IPPROTO_UDP, PROBE_UDP_GRO, &off, sizeof off);
}

static void probe_information(int from, int to, const struct sockaddr_in *target)
{
    const int on = 1, ect1 = 1;
    struct in_pktinfo local = {.ipi_spec_dst.s_addr = htonl(INADDR_LOOPBACK)}, seen = {0};
    uint8_t tos = 0;
    char data[8] = "x";
    size_t n = sizeof seen;

    if (setsockopt(to, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) < 0) {
        probe_failed(FEATURE_PKTINFO, errno);
    } else {
        ssize_t sent = probe_send(from, target, data, 1, IPPROTO_IP, IP_PKTINFO, &local, sizeof local);
        bool good = sent == 1 && probe_receive(to, data, sizeof data, IPPROTO_IP, IP_PKTINFO, &seen, &n) == 1 &&
                    n == sizeof seen && seen.ipi_addr.s_addr == htonl(INADDR_LOOPBACK);
        feature_probed(FEATURE_PKTINFO, good, good ? NULL : "the address that was addressed is not told");
    }
    n = sizeof tos;
    if (setsockopt(to, IPPROTO_IP, IP_RECVTOS, &on, sizeof on) < 0) {
        probe_failed(FEATURE_RECV_TOS, errno);
    } else {
        ssize_t sent = probe_send(from, target, data, 1, IPPROTO_IP, IP_TOS, &ect1, sizeof ect1);
        bool good =
            sent == 1 && probe_receive(to, data, sizeof data, IPPROTO_IP, IP_TOS, &tos, &n) == 1 && n == 1 && tos == 1;
        feature_probed(FEATURE_RECV_TOS, good, good ? NULL : "ECN did not arrive as it was sent");
    }
}

static void probe_options(int from, int to, const struct sockaddr_in *target)
{
    const uint32_t mark = 1, none = 0;
    char data[8] = "x";
    struct sock_txtime pacing = {.clockid = CLOCK_MONOTONIC};
    struct timespec now;

    if (setsockopt(from, SOL_SOCKET, SO_MARK, &mark, sizeof mark) < 0)
        probe_failed(FEATURE_SO_MARK, errno);
    else
        feature_probed(FEATURE_SO_MARK, setsockopt(from, SOL_SOCKET, SO_MARK, &none, sizeof none) == 0, NULL);

    if (setsockopt(from, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2) < 0) {
        probe_failed(FEATURE_BIND_DEVICE, errno);
    } else {
        bool good = probe_send(from, target, data, 1, 0, 0, NULL, 0) == 1 &&
                    probe_receive(to, data, sizeof data, 0, 0, NULL, NULL) == 1;
        feature_probed(FEATURE_BIND_DEVICE, good, good ? NULL : "nothing came through the bound socket");
        (void)setsockopt(from, SOL_SOCKET, SO_BINDTODEVICE, "", 0);
    }

    if (setsockopt(from, SOL_SOCKET, PROBE_SO_TXTIME, &pacing, sizeof pacing) < 0) {
        probe_failed(FEATURE_TXTIME, errno);
    } else {
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t when = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        bool good = probe_send(from, target, data, 1, SOL_SOCKET, PROBE_SO_TXTIME, &when, sizeof when) == 1 &&
                    probe_receive(to, data, sizeof data, 0, 0, NULL, NULL) == 1;
        feature_probed(FEATURE_TXTIME, good, good ? "the queue discipline decides whether it paces" : "not delivered");
    }
}

/* Two sockets on one port, and a program that always names the same one: twice, for either. */
static void probe_reuseport(int from)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    int fds[2] = {-1, -1}, error = 0;
    const int on = 1;
    bool good = true;
    char data[8] = "x";

    for (int i = 0; i < 2 && !error; i++) {
        fds[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fds[i] < 0 || setsockopt(fds[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) < 0 ||
            bind(fds[i], (const struct sockaddr *)&address, sizeof address) < 0 ||
            getsockname(fds[i], (struct sockaddr *)&address, &n) < 0)
            error = errno;
    }
    for (uint32_t chosen = 0; chosen < 2 && !error; chosen++) {
        struct sock_filter program[] = {{.code = BPF_RET | BPF_K, .k = 1 - chosen}};
        struct sock_fprog attach = {.len = 1, .filter = program};
        if (setsockopt(fds[0], SOL_SOCKET, PROBE_CBPF, &attach, sizeof attach) < 0) {
            error = errno;
            break;
        }
        good = good && probe_send(from, &address, data, 1, 0, 0, NULL, 0) == 1 &&
               probe_receive(fds[1 - chosen], data, sizeof data, 0, 0, NULL, NULL) == 1;
    }
    if (error)
        probe_failed(FEATURE_REUSEPORT_PROG, error);
    else
        feature_probed(FEATURE_REUSEPORT_PROG, good, good ? NULL : "the program is not obeyed");
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

/* TCP -> pipe -> TCP. */
static void probe_splice(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), out = -1, in = -1, pipes[2] = {-1, -1};
    char data[8] = "splice", got[8] = {0};
    int error = 0;

    if (listener < 0 || bind(listener, (const struct sockaddr *)&address, n) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &n) < 0 ||
        (out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0 ||
        connect(out, (const struct sockaddr *)&address, n) < 0 ||
        (in = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0 || pipe2(pipes, O_CLOEXEC) < 0)
        error = errno;
    if (!error && send(out, data, sizeof data, MSG_NOSIGNAL) != (ssize_t)sizeof data)
        error = EIO;
    struct pollfd p = {.fd = in, .events = POLLIN}, q = {.fd = out, .events = POLLIN};
    if (!error && (poll(&p, 1, PROBE_PATIENCE) != 1 ||
                   splice(in, NULL, pipes[1], NULL, sizeof data, SPLICE_F_NONBLOCK) != (ssize_t)sizeof data ||
                   splice(pipes[0], NULL, in, NULL, sizeof data, SPLICE_F_NONBLOCK) != (ssize_t)sizeof data))
        error = EIO;
    bool good = !error && poll(&q, 1, PROBE_PATIENCE) == 1 && recv(out, got, sizeof got, 0) == (ssize_t)sizeof got &&
                memcmp(data, got, sizeof data) == 0;
    if (error)
        probe_failed(FEATURE_SPLICE, error);
    else
        feature_probed(FEATURE_SPLICE, good, good ? NULL : "what came out is not what went in");
    const int all[] = {listener, out, in, pipes[0], pipes[1]};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        if (all[i] >= 0)
            close(all[i]);
    }
}

void probe_sockets(void)
{
    static const enum feature features[] = {FEATURE_UDP_SEGMENT, FEATURE_UDP_GRO,  FEATURE_REUSEPORT_PROG,
                                            FEATURE_SPLICE,      FEATURE_SO_MARK,  FEATURE_BIND_DEVICE,
                                            FEATURE_PKTINFO,     FEATURE_RECV_TOS, FEATURE_TXTIME};
    struct sockaddr_in source, target;
    char data[8] = "x";
    int from = probe_udp(&source), to = probe_udp(&target);

    if (from < 0 || to < 0 || probe_send(from, &target, data, 1, 0, 0, NULL, 0) != 1 ||
        probe_receive(to, data, sizeof data, 0, 0, NULL, NULL) != 1) {
        /* A namespace whose loopback is down: the code that uses a feature finds out. */
        for (size_t i = 0; i < ARRAY_COUNT(features); i++)
            probe_untried(features[i], true, "not tried: the loopback interface does not work");
    } else {
        probe_batches(from, to, &target);
        probe_information(from, to, &target);
        probe_options(from, to, &target);
        probe_reuseport(from);
        probe_splice();
    }
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
}
