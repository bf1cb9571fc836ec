#include "io/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/feature.h"
#include "io/log.h"

static int set_int(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof value) < 0 ? -errno : 0;
}

static void set_buffers(int fd, int bytes)
{
    /* Beyond rmem_max only the FORCE forms go, and those need CAP_NET_ADMIN outside a container. */
    if (set_int(fd, SOL_SOCKET, SO_RCVBUFFORCE, bytes))
        set_int(fd, SOL_SOCKET, SO_RCVBUF, bytes);
    if (set_int(fd, SOL_SOCKET, SO_SNDBUFFORCE, bytes))
        set_int(fd, SOL_SOCKET, SO_SNDBUF, bytes);
}

static int set_common(int fd, const struct socket_options *options)
{
    int error = 0;
    if (options->mark)
        error = socket_mark(fd, options->mark);
    if (!error && options->device &&
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, options->device, (socklen_t)strlen(options->device)) < 0)
        error = -errno;
    if (!error && options->reuseport)
        error = set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    if (options->buffer)
        set_buffers(fd, options->buffer);
    return error;
}

static int set_udp(int fd, enum socket_purpose purpose, int family)
{
    bool v6 = family == AF_INET6;
    int error = v6 ? set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) : 0;
    if (error || purpose != SOCKET_WIREGUARD)
        return error;
    /* The kernel's own WireGuard clears DF and lets the stack fragment. */
    set_int(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER,
            v6 ? IPV6_PMTUDISC_DONT : IP_PMTUDISC_DONT);
    const struct {
        enum feature feature;
        int level, option;
    } wanted[] = {
        {FEATURE_PKTINFO, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVPKTINFO : IP_PKTINFO},
        {FEATURE_RECV_TOS, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVTCLASS : IP_RECVTOS},
        {FEATURE_UDP_GRO, IPPROTO_UDP, UDP_GRO},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int refused = feature_on(wanted[i].feature) ? set_int(fd, wanted[i].level, wanted[i].option, 1) : 0;
        if (refused)
            feature_refused(wanted[i].feature, strerror(-refused));
    }
    return 0;
}

/* With SO_REUSEPORT a bind would join any group of this user's, even another device's, and take half of its packets. */
static int port_in_use(const struct sockaddr *address, socklen_t size)
{
    int fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int error = address->sa_family == AF_INET6 ? set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) : 0;
    if (!error && bind(fd, address, size) < 0)
        error = -errno;
    close(fd);
    return error;
}

int socket_udp(enum socket_purpose purpose, int family, uint16_t port, const struct socket_options *options)
{
    int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int error = set_common(fd, options);
    if (!error)
        error = set_udp(fd, purpose, family);
    struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    const struct sockaddr *address = family == AF_INET ? (const struct sockaddr *)&in4 : (const struct sockaddr *)&in6;
    socklen_t size = family == AF_INET ? sizeof in4 : sizeof in6;
    if (!error && options->reuseport && options->first && port)
        error = port_in_use(address, size);
    if (!error && bind(fd, address, size) < 0)
        error = -errno;
    if (error) {
        close(fd);
        return error;
    }
    return fd;
}

int socket_steer_wireguard(int fd, unsigned count)
{
    /* Offsets count from the UDP payload; the index is loaded big-endian, which serves a remainder as well. */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 4, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),  BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, count - 1),
        BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1), BPF_STMT(BPF_RET | BPF_A, 0),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (count < 2)
        return 0;
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) < 0 ? -errno : 0;
}

int socket_dial(int type, const struct sockaddr *to, socklen_t to_size, const struct socket_options *options)
{
    int fd = socket(to->sa_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int error = set_common(fd, options);
    if (!error && connect(fd, to, to_size) < 0 && errno != EINPROGRESS)
        error = -errno;
    if (error) {
        close(fd);
        return error;
    }
    return fd;
}

ssize_t socket_receive(int fd, void *bytes, size_t n)
{
    ssize_t got;
    do
        got = recv(fd, bytes, n, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

ssize_t socket_send(int fd, const void *bytes, size_t n)
{
    ssize_t put;
    do
        put = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    return put < 0 ? -errno : put;
}

uint16_t socket_port(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in4;
        struct sockaddr_in6 in6;
    } address = {.in6 = {0}};
    socklen_t size = sizeof address;
    if (getsockname(fd, &address.any, &size) < 0)
        return 0;
    return ntohs(address.any.sa_family == AF_INET6 ? address.in6.sin6_port : address.in4.sin_port);
}

int socket_mark(int fd, uint32_t mark)
{
    return setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark) < 0 ? -errno : 0;
}

static int unix_address(const char *path, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address->sun_path)
        return -ENAMETOOLONG;
    strcpy(address->sun_path, path);
    return 0;
}

int socket_unix_connect(const char *path)
{
    struct sockaddr_un address;
    int error = unix_address(path, &address);
    if (error)
        return error;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    struct timeval limit = {.tv_sec = SOCKET_UNIX_SECONDS};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* connect's too */
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

int socket_unix_listen(const char *path, unsigned mode)
{
    struct sockaddr_un address;
    int error = unix_address(path, &address);
    if (error)
        return error;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    mode_t old = umask(0777 & ~mode);
    int bound = bind(fd, (struct sockaddr *)&address, sizeof address);
    if (bound < 0 && errno == EADDRINUSE) {
        int probe = socket_unix_connect(path);
        struct stat there;
        if (probe >= 0)
            close(probe);
        /* Refused, and a socket: nobody listens. Anything else is somebody's, slow or no socket at all. */
        if (probe != -ECONNREFUSED || lstat(path, &there) < 0 || !S_ISSOCK(there.st_mode)) {
            errno = EADDRINUSE;
        } else if (unlink(path) == 0) {
            bound = bind(fd, (struct sockaddr *)&address, sizeof address);
        }
    }
    error = bound < 0 ? -errno : 0;
    umask(old);
    if (!error && listen(fd, 16) < 0)
        error = -errno;
    if (error) {
        close(fd);
        return error;
    }
    return fd;
}

/* Kept so that whoever comes when no descriptor is left can be turned away: else the listening socket would stay
 * readable for ever. */
static int reserve = -1;

static void reserve_fill(void)
{
    if (reserve < 0)
        reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int socket_accept(int fd)
{
    reserve_fill();
    int got = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    int error = got < 0 ? -errno : 0;
    if (error == -ECONNABORTED || error == -EINTR)
        return -EAGAIN;
    if ((error == -EMFILE || error == -ENFILE) && reserve >= 0) {
        close(reserve);
        reserve = -1;
        got = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (got >= 0)
            close(got);
        reserve_fill();
    }
    return error ? error : got;
}
