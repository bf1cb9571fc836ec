/* The least that a tunnel in user space can do, as a measure of what the machine allows: TUN -> UDP_SEGMENT ->
 * UDP_GRO -> TUN, either copying or sealing and opening too. No handshake, no splitting or joining of TCP, no window,
 * no timers.
 *
 *   floor_tunnel NAME LOCAL REMOTE copy|seal      (addresses of the wire, port 51820; runs until it is killed)
 *
 * A read of the TUN gives a super-packet with its virtio header. It is cut as bytes, not as TCP, into chunks of CHUNK
 * bytes, each behind a header of 16, sent by one sendmsg with UDP_SEGMENT (two near 64 KiB). The other side puts chunks
 * that follow one another together again and writes the super-packet with one write. A lost chunk loses it whole.
 *
 *   chunk header: counter (8, nonce and order) | bytes of the whole (4) | first byte's place in it (4)
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "crypto/chacha20poly1305.h"
#include "wire/bytes.h"

enum {
    HEADER = 16,
    CHUNK = 1440 - HEADER - CHACHA_TAG,
    DATAGRAM = HEADER + CHUNK + CHACHA_TAG,
    MAX_CHUNKS = 48,
    SEND_CHUNKS = 45,
    PACKET_MAX = 65535 + 10,
    VIRTIO = 10,
    PORT = 51820
};

static uint8_t packet[PACKET_MAX + CHUNK], whole[PACKET_MAX + CHUNK], datagrams[MAX_CHUNKS * DATAGRAM + DATAGRAM];
static uint8_t received[65536], key[CHACHA_KEY] = "not a secret: a benchmark's key.";
static uint32_t whole_length, whole_have;
static uint64_t counter;
static bool sealing;

static void need(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "floor_tunnel: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static int open_tun(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), header = VIRTIO;
    need(fd >= 0, "/dev/net/tun");
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    need(ioctl(fd, TUNSETIFF, &request) == 0, name);
    need(ioctl(fd, TUNSETVNETHDRSZ, &header) == 0, "TUNSETVNETHDRSZ");
    need(ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) == 0, "TUNSETOFFLOAD");
    return fd;
}

static int open_udp(const char *local, const char *remote)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)}, b = a;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1, room = 4 << 20;
    need(fd >= 0, "socket");
    need(inet_pton(AF_INET, local, &a.sin_addr) == 1 && inet_pton(AF_INET, remote, &b.sin_addr) == 1, "address");
    need(setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0, "UDP_GRO");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room); /* not allowed: the default will do */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    need(bind(fd, (struct sockaddr *)&a, sizeof a) == 0, "bind");
    need(connect(fd, (struct sockaddr *)&b, sizeof b) == 0, "connect");
    return fd;
}

static void send_chunks(int udp, uint8_t *data, size_t length)
{
    struct iovec iov = {data, length};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(2)];
    } control = {0};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (length > DATAGRAM) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = IPPROTO_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(2);
        memcpy(CMSG_DATA(c), &(uint16_t){DATAGRAM}, 2);
    }
    while (sendmsg(udp, &message, 0) < 0) {
        struct pollfd wait = {udp, POLLOUT, 0};
        need(errno == EAGAIN || errno == ECONNREFUSED, "sendmsg"); /* refused: the other side is not up yet */
        if (errno == EAGAIN)
            poll(&wait, 1, -1);
    }
}

/* One super-packet out. */
static void out(int udp, uint32_t n)
{
    struct chacha_job jobs[MAX_CHUNKS];
    unsigned chunks = 0;
    size_t used = 0;
    for (uint32_t at = 0; at < n; at += CHUNK, chunks++) {
        uint8_t *header = datagrams + used;
        uint32_t length = MIN((uint32_t)CHUNK, n - at);
        store_le64(header, counter);
        store_le32(header + 8, n);
        store_le32(header + 12, at);
        jobs[chunks] =
            (struct chacha_job){.dst = header + HEADER, .src = packet + at, .len = length, .counter = counter++};
        if (!sealing)
            memcpy(header + HEADER, packet + at, length);
        used += HEADER + length + CHACHA_TAG;
    }
    if (sealing)
        chacha_seal_batch(key, jobs, chunks);
    for (size_t at = 0; at < used; at += SEND_CHUNKS * DATAGRAM)
        send_chunks(udp, datagrams + at, MIN(used - at, (size_t)SEND_CHUNKS * DATAGRAM));
}

/* What the kernel joined: chunks of DATAGRAM bytes, the last shorter. */
static void in(int tun, uint32_t n, uint32_t segment)
{
    struct chacha_job jobs[MAX_CHUNKS + 2];
    unsigned chunks = 0;
    for (uint32_t at = 0; at < n && chunks < ARRAY_COUNT(jobs); at += segment, chunks++) {
        uint32_t length = MIN(segment, n - at);
        if (length < HEADER + CHACHA_TAG)
            return;
        jobs[chunks] = (struct chacha_job){.dst = received + at + HEADER,
                                           .src = received + at + HEADER,
                                           .len = length - HEADER,
                                           .ok = true,
                                           .counter = load_le64(received + at)};
    }
    if (sealing)
        chacha_open_batch(key, jobs, chunks);
    for (unsigned i = 0; i < chunks; i++) {
        const uint8_t *header = jobs[i].dst - HEADER;
        uint32_t total = load_le32(header + 8), place = load_le32(header + 12), length = jobs[i].len - CHACHA_TAG;
        if (place == 0) {
            whole_length = total;
            whole_have = 0;
        }
        if (!jobs[i].ok || place != whole_have || total != whole_length || total > PACKET_MAX || length > total - place)
            continue;
        memcpy(whole + place, jobs[i].dst, length);
        whole_have += length;
        if (whole_have == whole_length && write(tun, whole, whole_length) < 0 && errno != EAGAIN && errno != EIO &&
            errno != EINVAL)
            need(false, "write to the TUN");
    }
}

static bool receive(int udp, int tun)
{
    struct iovec iov = {received, sizeof received};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    ssize_t n = recvmsg(udp, &message, 0);
    if (n <= 0)
        return errno == ECONNREFUSED && n < 0; /* the other side is not up yet */
    int segment = (int)n;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO)
            memcpy(&segment, CMSG_DATA(c), sizeof segment);
    in(tun, (uint32_t)n, (uint32_t)segment);
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 5 || (strcmp(argv[4], "copy") != 0 && strcmp(argv[4], "seal") != 0)) {
        fprintf(stderr, "usage: floor_tunnel NAME LOCAL REMOTE copy|seal\n");
        return 2;
    }
    sealing = argv[4][0] == 's';
    int udp = open_udp(argv[2], argv[3]), tun = open_tun(argv[1]);
    struct pollfd wait[2] = {{tun, POLLIN, 0}, {udp, POLLIN, 0}};
    for (;;) {
        need(poll(wait, 2, -1) >= 0 || errno == EINTR, "poll");
        for (unsigned i = 0; i < 16; i++) { /* neither way starves the other */
            ssize_t n = read(tun, packet, PACKET_MAX);
            if (n > 0)
                out(udp, (uint32_t)n);
            if (!receive(udp, tun) && n <= 0)
                break;
        }
    }
}
