/* What several workers build on, asked of the kernel that is here: the reuseport program puts data of one receiver index
 * always on the same socket and handshakes on socket 0; and a write to a queue of a TUN moves the flow to that queue.
 *
 * Needs root and /dev/net/tun for the second half; ends with 77 (skipped) without. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/socket.h"
#include "io/tun.h"
#include "tests/check.h"
#include "wire/bytes.h"
#include "wire/checksum.h"
#include "wire/vnet.h"

enum { SOCKETS = 3, INDICES = 60 };

/* The number of the one socket that gets this; -1: none within a second. */
static int arrives_at(const int *fds, int sender, uint16_t port, const uint8_t *message, size_t n)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pollfd polls[SOCKETS];
    uint8_t buffer[256];
    if (sendto(sender, message, n, 0, (struct sockaddr *)&to, sizeof to) != (ssize_t)n)
        return -1;
    for (int i = 0; i < SOCKETS; i++)
        polls[i] = (struct pollfd){fds[i], POLLIN, 0};
    if (poll(polls, SOCKETS, 1000) != 1)
        return -1;
    for (int i = 0; i < SOCKETS; i++)
        if (polls[i].revents & POLLIN)
            return recv(fds[i], buffer, sizeof buffer, 0) == (ssize_t)n ? i : -1;
    return -1;
}

static void test_reuseport(void)
{
    struct socket_options options = {.reuseport = true};
    int fds[SOCKETS], senders[4];
    uint16_t port = 0;
    for (int i = 0; i < SOCKETS; i++) {
        fds[i] = socket_udp(SOCKET_WIREGUARD, AF_INET, port, &options);
        CHECK(fds[i] >= 0);
        port = socket_port(fds[i]);
    }
    CHECK_EQ(socket_steer_wireguard(fds[0], SOCKETS), 0);
    for (unsigned i = 0; i < ARRAY_COUNT(senders); i++)
        senders[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    unsigned seen[SOCKETS] = {0};
    for (uint32_t k = 0; k < INDICES; k++) {
        uint8_t message[64] = {4};
        uint32_t index = k * 2654435761u;
        store_le32(message + 4, index);
        /* The program reads the index as the wire has it, big-endian. */
        int wanted = 1 + (int)(load_be32(message + 4) % (SOCKETS - 1));
        for (unsigned i = 0; i < ARRAY_COUNT(senders); i++) /* whoever sends it */
            CHECK_EQ(arrives_at(fds, senders[i], port, message, sizeof message), wanted);
        seen[wanted]++;
    }
    CHECK_EQ(seen[0], 0);
    CHECK(seen[1] > INDICES / 4 && seen[2] > INDICES / 4);
    static const size_t sizes[] = {148, 92, 64}; /* initiation, response, cookie */
    for (uint8_t type = 1; type <= 3; type++)
        for (uint32_t k = 0; k < 8; k++) {
            uint8_t message[148] = {type};
            store_le32(message + 4, k * 2654435761u);
            CHECK_EQ(arrives_at(fds, senders[k % 4], port, message, sizes[type - 1]), 0);
        }
    uint8_t tiny = 0;
    CHECK_EQ(arrives_at(fds, senders[0], port, &tiny, 1), 0); /* shorter than what the program looks at */
    for (int i = 0; i < SOCKETS; i++)
        close(fds[i]);
    for (unsigned i = 0; i < ARRAY_COUNT(senders); i++)
        close(senders[i]);
}

/* --- TUN queues --- */

static int interface_up(const char *name)
{
    struct ifreq request = {0};
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a630001)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(request.ifr_name, name, strlen(name) + 1);
    memcpy(&request.ifr_addr, &own, sizeof own);
    int error = ioctl(fd, SIOCSIFADDR, &request);
    own.sin_addr.s_addr = htonl(0xffffff00);
    memcpy(&request.ifr_netmask, &own, sizeof own);
    error |= ioctl(fd, SIOCSIFNETMASK, &request);
    request.ifr_flags = IFF_UP;
    error |= ioctl(fd, SIOCSIFFLAGS, &request);
    close(fd);
    return error;
}

/* A UDP packet from 10.99.0.2:port to 10.99.0.1:port, written to a queue. */
static void write_packet(const struct tun *tun, uint16_t port)
{
    uint8_t buffer[VNET_HEADER_LEN + 32] = {0}, *ip = buffer + VNET_HEADER_LEN, *udp = ip + 20;
    ip[0] = 0x45;
    store_be16(ip + 2, 32);
    ip[8] = 64;
    ip[9] = 17;
    store_be32(ip + 12, 0x0a630002);
    store_be32(ip + 16, 0x0a630001);
    checksum_finish(ip + 10, checksum_add(0, ip, 20));
    store_be16(udp, port);
    store_be16(udp + 2, port);
    store_be16(udp + 4, 12);
    unsigned skip = tun->vnet ? 0 : VNET_HEADER_LEN;
    struct iovec iov = {buffer + skip, sizeof buffer - skip};
    CHECK_EQ(tun_write(tun, &iov, 1), 0);
}

/* Sends an answer of the kernel's side out and says which queue it comes out of; -1: none. */
static int comes_out_of(const struct tun *queues, unsigned count, int fd, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(0x0a630002)};
    struct pollfd polls[8];
    uint8_t buffer[2048];
    CHECK_EQ(sendto(fd, "answer", 6, 0, (struct sockaddr *)&to, sizeof to), 6);
    for (int tries = 0; tries < 20; tries++) {
        for (unsigned i = 0; i < count; i++)
            polls[i] = (struct pollfd){queues[i].fd, POLLIN, 0};
        if (poll(polls, count, 1000) <= 0)
            return -1;
        for (unsigned i = 0; i < count; i++) {
            if (!(polls[i].revents & POLLIN))
                continue;
            ssize_t n = tun_read(&queues[i], buffer, sizeof buffer);
            const uint8_t *ip = buffer + (queues[i].vnet ? VNET_HEADER_LEN : 0);
            if (n > 28 && ip[0] >> 4 == 4 && ip[9] == 17 && load_be16(ip + 22) == port) /* not the kernel's chatter */
                return (int)i;
        }
    }
    return -1;
}

static bool test_queues(void)
{
    enum { QUEUES = 3 };
    struct tun queues[QUEUES];
    if (unshare(CLONE_NEWNET) < 0)
        return false;
    for (int i = 0; i < QUEUES; i++)
        if (tun_open(&queues[i], "steer0", true) < 0)
            return false;
    CHECK_EQ(interface_up("steer0"), 0);
    for (uint16_t port = 5000; port < 5012; port++) {
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(0x0a630001)};
        CHECK_EQ(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
        for (int k = 0; k < 5; k++) { /* there and back: the last write decides */
            int queue = (port + k) % QUEUES;
            write_packet(&queues[queue], port);
            char got[16];
            CHECK_EQ(recv(fd, got, sizeof got, 0), 4);
            CHECK_EQ(comes_out_of(queues, QUEUES, fd, port), queue);
            CHECK_EQ(comes_out_of(queues, QUEUES, fd, port), queue);
        }
        close(fd);
    }
    for (int i = 0; i < QUEUES; i++)
        tun_close(&queues[i]);
    return true;
}

int main(void)
{
    test_reuseport();
    bool queues = test_queues();
    int status = check_done();
    return status || queues ? status : 77;
}
