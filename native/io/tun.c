#include "io/tun.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io/feature.h"
#include "io/log.h"

#ifndef TUN_F_USO4 /* headers before Linux 6.2 */
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif

static int open_clone_device(void)
{
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT)
        return fd < 0 ? -errno : fd;
    /* A container without the node: the kernel may have the driver all the same. */
    mkdir("/dev/net", 0755);
    if (mknod("/dev/net/tun", S_IFCHR | 0666, makedev(10, 200)) < 0)
        return -errno;
    fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* The ladder: the most that both the kernel and the feature table grant. */
static void set_offload(struct tun *tun)
{
    static const struct {
        unsigned flags;
        bool csum, tso, uso;
    } steps[] = {
        {TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_USO4 | TUN_F_USO6, true, true, true},
        {TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6, true, true, false},
        {TUN_F_CSUM | TUN_F_USO4 | TUN_F_USO6, true, false, true},
        {TUN_F_CSUM, true, false, false},
        {0, false, false, false},
    };
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
        if ((steps[i].csum && !feature_on(FEATURE_TUN_CSUM)) || (steps[i].tso && !feature_on(FEATURE_TUN_TSO)) ||
            (steps[i].uso && !feature_on(FEATURE_TUN_USO)))
            continue;
        if (ioctl(tun->fd, TUNSETOFFLOAD, steps[i].flags) == 0) {
            tun->csum = steps[i].csum;
            tun->tso = steps[i].tso;
            tun->uso = steps[i].uso;
            return;
        }
    }
}

int tun_open(struct tun *tun, const char *name, bool multi_queue)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    memset(tun, 0, sizeof *tun);
    if (strlen(name) >= sizeof request.ifr_name)
        return -ENAMETOOLONG;
    tun->fd = open_clone_device();
    if (tun->fd < 0)
        return tun->fd;
    strcpy(request.ifr_name, name);
    tun->vnet = feature_on(FEATURE_TUN_VNET_HDR);
    if (tun->vnet)
        request.ifr_flags |= IFF_VNET_HDR;
    if (multi_queue)
        request.ifr_flags |= IFF_MULTI_QUEUE;
    if (ioctl(tun->fd, TUNSETIFF, &request) < 0) {
        int error = -errno;
        tun_close(tun);
        return error;
    }
    memcpy(tun->name, request.ifr_name, sizeof tun->name);
    tun->name[sizeof tun->name - 1] = 0;
    if (tun->vnet)
        set_offload(tun);
    return 0;
}

int tun_adopt(struct tun *tun, int fd)
{
    struct ifreq request = {0};
    memset(tun, 0, sizeof *tun);
    tun->fd = fd;
    if (ioctl(fd, TUNGETIFF, &request) < 0)
        return -errno;
    memcpy(tun->name, request.ifr_name, sizeof tun->name);
    tun->name[sizeof tun->name - 1] = 0;
    tun->vnet = request.ifr_flags & IFF_VNET_HDR;
    if (!(request.ifr_flags & IFF_NO_PI))
        return -EINVAL;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    if (tun->vnet)
        set_offload(tun);
    return 0;
}

void tun_close(struct tun *tun)
{
    if (tun->fd >= 0)
        close(tun->fd);
    tun->fd = -1;
}

/* An interface ioctl by name, on a throw-away socket. */
static int interface_ioctl(const struct tun *tun, unsigned long number, struct ifreq *request)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    memcpy(request->ifr_name, tun->name, sizeof request->ifr_name);
    int error = ioctl(fd, number, request) < 0 ? -errno : 0;
    close(fd);
    return error;
}

int tun_set_mtu(const struct tun *tun, unsigned mtu)
{
    struct ifreq request = {.ifr_mtu = (int)mtu};
    return interface_ioctl(tun, SIOCSIFMTU, &request);
}

int tun_get_mtu(const struct tun *tun)
{
    struct ifreq request = {0};
    int error = interface_ioctl(tun, SIOCGIFMTU, &request);
    return error ? error : request.ifr_mtu;
}

int tun_is_up(const struct tun *tun)
{
    struct ifreq request = {0};
    int error = interface_ioctl(tun, SIOCGIFFLAGS, &request);
    return error ? error : (request.ifr_flags & IFF_UP) != 0;
}

ssize_t tun_read(const struct tun *tun, void *buffer, size_t n)
{
    ssize_t got = read(tun->fd, buffer, n);
    if (got >= 0)
        return got;
    return errno == EAGAIN || errno == EINTR ? 0 : -errno;
}

int tun_discard(const struct tun *tun, unsigned n)
{
    unsigned dropped = 0;
    uint8_t byte;
    /* Too short for a packet, even for its header (EINVAL): the kernel frees the packet all the same. */
    while (dropped < n && (read(tun->fd, &byte, sizeof byte) >= 0 || errno == EINVAL))
        dropped++;
    if (dropped || errno == EAGAIN || errno == EINTR)
        return (int)dropped;
    return -errno;
}

int tun_write(const struct tun *tun, const struct iovec *iov, unsigned count)
{
    ssize_t done = count == 1 ? write(tun->fd, iov->iov_base, iov->iov_len) : writev(tun->fd, iov, (int)count);
    return done < 0 ? -errno : 0;
}
