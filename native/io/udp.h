/* UDP in batches: many datagrams a system call, segments joined (UDP_GRO) and split (UDP_SEGMENT) by the kernel, with
 * the addresses of both ends and the TOS byte of each.
 *
 * Sending falls back by itself where the kernel goes back on a promise: EINVAL and EMSGSIZE on a batch mean that this
 * batch does not fit this path (gso_size + headers above the route's MTU) and it goes out one by one; EIO means that the
 * device cannot segment at all: the feature is refused for the whole process. A source address that has outlived its
 * interface (EINVAL, ENETUNREACH, EADDRNOTAVAIL) is left out and the datagram sent once more. */
#ifndef FV_IO_UDP_H
#define FV_IO_UDP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

union udp_address {
    struct sockaddr any;
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
};

/* The local end: as IP_PKTINFO / IPV6_PKTINFO give and take it. family 0: the kernel chooses. */
struct udp_source {
    uint8_t family; /* AF_INET, AF_INET6 or 0 */
    uint32_t ifindex;
    union {
        struct in_addr in4;
        struct in6_addr in6;
    };
};

struct udp_message {
    union udp_address from;
    struct udp_source to;
    uint8_t tos;      /* TOS or traffic class of the outer packet */
    bool truncated;   /* longer than its buffer: the rest is lost */
    uint32_t segment; /* bytes of each datagram joined here; the last may be shorter; == length when only one */
    uint32_t length;
    uint8_t *data;
};

enum { UDP_BATCH = 64, UDP_MAX_SEGMENTS_SENT = 64, UDP_MAX_PAYLOAD = 65507 };

/* Receives up to n (<= UDP_BATCH) messages; messages[i].data and .length (room) are set by the caller.
 * Returns how many, 0 when none is there, -errno. An ICMP error pending on the socket is swallowed. */
int udp_receive(int fd, struct udp_message *messages, unsigned n);

/* For want of memory: drops up to n messages; how many. */
unsigned udp_discard(int fd, unsigned n);

enum udp_result {
    UDP_SENT,
    UDP_AGAIN,  /* socket buffer full: nothing of it was sent; wait for WAKE_WRITE */
    UDP_FAILED, /* see *error; dropped */
};

struct udp_outcome {
    bool singly;    /* in: the caller knows that batches do not fit this path. out: the kernel has just said so */
    unsigned sent;  /* datagrams handed to the kernel, also on UDP_AGAIN: the rest is the caller's to keep */
    int error;      /* -errno of the last failure, or 0 */
};

/* Sends length bytes as datagrams of `segment` bytes (the last may be shorter). *source is cleared when it had to be
 * left out. */
enum udp_result udp_send(int fd, const union udp_address *to, struct udp_source *source, uint8_t tos,
                         const uint8_t *data, size_t length, size_t segment, struct udp_outcome *outcome);

#endif
