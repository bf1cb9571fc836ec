/* A throw-away TUN: which offloads it takes, and whether a super-packet can be written to it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/feature.h"
#include "io/probe.h"
#include "wire/bytes.h"

#ifndef TUN_F_USO4 /* headers before Linux 6.2 */
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif
#define PROBE_GSO_UDP_L4 5 /* VIRTIO_NET_HDR_GSO_UDP_L4, likewise */

#define PROBE_VNET 10  /* bytes of the virtio header */
#define PROBE_IP 20
#define PROBE_SEGMENT 100
#define PROBE_PAYLOAD (3 * PROBE_SEGMENT)

static const enum feature tun_features[] = {FEATURE_TUN_VNET_HDR, FEATURE_TUN_CSUM, FEATURE_TUN_TSO, FEATURE_TUN_USO,
                                            FEATURE_TUN_MULTI_QUEUE};

/* One's complement sum, not folded into its complement. */
static uint32_t probe_sum(const uint8_t *data, size_t n, uint32_t sum)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        sum += load_be16(data + i);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* An IPv4 packet of TTL 0 behind its virtio header: the kernel parses all of it and delivers it nowhere. gso: 0, or
 * the type of its super-packet. */
static size_t probe_packet(uint8_t *out, uint8_t protocol, uint8_t gso)
{
    uint8_t *ip = out + PROBE_VNET, *transport = ip + PROBE_IP;
    size_t header = protocol == IPPROTO_TCP ? 20 : 8, length = PROBE_IP + header + PROBE_PAYLOAD;
    uint16_t checksum_at = protocol == IPPROTO_TCP ? 16 : 6, start = PROBE_IP, segment = PROBE_SEGMENT;
    uint16_t headers = (uint16_t)(PROBE_IP + header);

    memset(out, 0, PROBE_VNET + length);
    out[0] = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    out[1] = gso;
    if (gso) {
        memcpy(out + 2, &headers, 2);
        memcpy(out + 4, &segment, 2);
    }
    memcpy(out + 6, &start, 2);
    memcpy(out + 8, &checksum_at, 2);

    ip[0] = 0x45;
    store_be16(ip + 2, (uint16_t)length);
    ip[9] = protocol;
    store_be32(ip + 12, 0xc0000201); /* 192.0.2.1 -> 192.0.2.2, TEST-NET-1 */
    store_be32(ip + 16, 0xc0000202);
    store_be16(ip + 10, (uint16_t)~probe_sum(ip, PROBE_IP, 0));
    store_be16(transport, 9);
    store_be16(transport + 2, 9);
    if (protocol == IPPROTO_TCP) {
        transport[12] = 0x50; /* 20 bytes of header */
        transport[13] = 0x10; /* ACK */
    } else {
        store_be16(transport + 4, (uint16_t)(header + PROBE_PAYLOAD));
    }
    /* The folded pseudo-header's sum, over the whole length. */
    uint32_t sum = probe_sum(ip + 12, 8, (uint32_t)(protocol + header + PROBE_PAYLOAD));
    store_be16(transport + checksum_at, (uint16_t)sum);
    return PROBE_VNET + length;
}

static void probe_tun_all(bool tried, const char *why)
{
    for (size_t i = 0; i < ARRAY_COUNT(tun_features); i++) {
        if (tried)
            feature_probed(tun_features[i], false, why);
        else
            snprintf(feature_table[tun_features[i]].why, sizeof feature_table[tun_features[i]].why, "%s", why);
    }
}

/* Takes the offload, then a packet that needs it. */
static void probe_offload(int fd, enum feature feature, unsigned flags, uint8_t protocol, uint8_t gso)
{
    uint8_t packet[PROBE_VNET + PROBE_IP + 20 + PROBE_PAYLOAD];

    if (ioctl(fd, TUNSETOFFLOAD, flags) < 0) {
        feature_probed(feature, false, errno == EINVAL ? "this kernel does not offer it" : strerror(errno));
        return;
    }
    size_t n = probe_packet(packet, protocol, gso);
    ssize_t put = write(fd, packet, n);
    feature_probed(feature, put == (ssize_t)n, put < 0 ? strerror(errno) : NULL);
}

static int probe_attach(int fd, const char *name, short flags, struct ifreq *request)
{
    *request = (struct ifreq){.ifr_flags = flags};
    memcpy(request->ifr_name, name, strnlen(name, IFNAMSIZ - 1));
    return ioctl(fd, TUNSETIFF, request) < 0 ? errno : 0;
}

static int probe_open(void)
{
    return open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

void probe_tun(void)
{
    const short plain = IFF_TUN | IFF_NO_PI;
    struct ifreq request;
    char why[80];
    int fd = probe_open(), control = -1, second = -1;

    if (fd < 0) {
        snprintf(why, sizeof why, "not tried: /dev/net/tun: %s", strerror(errno));
        probe_tun_all(false, why);
        return;
    }
    int error = probe_attach(fd, "fvprobe%d", plain | IFF_VNET_HDR | IFF_MULTI_QUEUE, &request);
    if (!error) {
        second = probe_open();
        char name[IFNAMSIZ];
        memcpy(name, request.ifr_name, sizeof name);
        int refused = second < 0 ? errno : probe_attach(second, name, plain | IFF_VNET_HDR | IFF_MULTI_QUEUE, &request);
        feature_probed(FEATURE_TUN_MULTI_QUEUE, !refused, refused ? strerror(refused) : NULL);
        if (second >= 0)
            close(second);
        memcpy(request.ifr_name, name, sizeof name);
    } else if (error == EINVAL) {
        feature_probed(FEATURE_TUN_MULTI_QUEUE, false, "this kernel does not offer it");
        error = probe_attach(fd, "fvprobe%d", plain | IFF_VNET_HDR, &request);
    }
    if (error == EPERM || error == EACCES) {
        probe_tun_all(false, "not tried: making a TUN is not permitted here");
    } else if (error) {
        probe_tun_all(true, strerror(error));
    } else {
        feature_probed(FEATURE_TUN_VNET_HDR, true, NULL);
        /* A write to a TUN that is down is EIO. */
        control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        request.ifr_flags = IFF_UP;
        if (control < 0 || ioctl(control, SIOCSIFFLAGS, &request) < 0) {
            snprintf(why, sizeof why, "not tried: the probe's TUN does not come up: %s", strerror(errno));
            probe_tun_all(false, why);
        } else {
            probe_offload(fd, FEATURE_TUN_CSUM, TUN_F_CSUM, IPPROTO_TCP, VIRTIO_NET_HDR_GSO_NONE);
            probe_offload(fd, FEATURE_TUN_TSO, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6, IPPROTO_TCP,
                          VIRTIO_NET_HDR_GSO_TCPV4);
            probe_offload(fd, FEATURE_TUN_USO, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_USO4 | TUN_F_USO6,
                          IPPROTO_UDP, PROBE_GSO_UDP_L4);
        }
    }
    if (control >= 0)
        close(control);
    close(fd);
}
