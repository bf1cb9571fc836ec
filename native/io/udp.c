#include "io/udp.h"

#include <errno.h>
#include <linux/udp.h>
#include <string.h>

#include "io/feature.h"
#include "io/log.h"

/* Room for one control message of n bytes. */
#define CONTROL_ROOM(n) CMSG_SPACE(n)

union receive_control {
    struct cmsghdr align;
    uint8_t bytes[CONTROL_ROOM(sizeof(struct in6_pktinfo)) + 2 * CONTROL_ROOM(sizeof(int))];
};

static void read_control(struct udp_message *message, struct msghdr *header)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
        const void *data = CMSG_DATA(c);
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, data, sizeof info);
            message->to.family = AF_INET;
            message->to.ifindex = (uint32_t)info.ipi_ifindex;
            message->to.in4 = info.ipi_spec_dst; /* the local address that answers come from */
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, data, sizeof info);
            message->to.family = AF_INET6;
            message->to.ifindex = info.ipi6_ifindex;
            message->to.in6 = info.ipi6_addr;
        } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
            memcpy(&message->tos, data, 1);
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
            int class;
            memcpy(&class, data, sizeof class);
            message->tos = (uint8_t)class;
        } else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int size; /* an int, not the 16 bits of UDP_SEGMENT */
            memcpy(&size, data, sizeof size);
            if (size > 0)
                message->segment = (uint32_t)size;
        }
    }
}

int udp_receive(int fd, struct udp_message *messages, unsigned n)
{
    struct mmsghdr headers[UDP_BATCH];
    struct iovec iov[UDP_BATCH];
    union receive_control control[UDP_BATCH];
    if (n > UDP_BATCH)
        n = UDP_BATCH;
    for (unsigned i = 0; i < n; i++) {
        iov[i] = (struct iovec){messages[i].data, messages[i].length};
        headers[i].msg_hdr = (struct msghdr){
            .msg_name = &messages[i].from,
            .msg_namelen = sizeof messages[i].from,
            .msg_iov = &iov[i],
            .msg_iovlen = 1,
            .msg_control = &control[i],
            .msg_controllen = sizeof control[i],
        };
    }
    int got;
    if (n == 1) { /* recvmsg saves the array's copying in and out */
        ssize_t length = recvmsg(fd, &headers[0].msg_hdr, 0);
        headers[0].msg_len = length < 0 ? 0 : (unsigned)length;
        got = length < 0 ? -1 : 1;
    } else {
        got = recvmmsg(fd, headers, n, 0, NULL);
    }
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == ENETUNREACH)
            return 0;
        return -errno;
    }
    for (int i = 0; i < got; i++) {
        messages[i].length = messages[i].segment = headers[i].msg_len;
        messages[i].tos = 0;
        messages[i].to.family = 0;
        messages[i].to.ifindex = 0;
        messages[i].truncated = headers[i].msg_hdr.msg_flags & MSG_TRUNC;
        read_control(&messages[i], &headers[i].msg_hdr);
        if (messages[i].segment > messages[i].length)
            messages[i].segment = messages[i].length;
    }
    return got;
}

unsigned udp_discard(int fd, unsigned n)
{
    unsigned dropped = 0;
    uint8_t byte;
    while (dropped < n && (recv(fd, &byte, sizeof byte, MSG_DONTWAIT) >= 0 || errno == EINTR))
        dropped++;
    return dropped;
}

union send_control {
    struct cmsghdr align;
    uint8_t bytes[CONTROL_ROOM(sizeof(struct in6_pktinfo)) + 2 * CONTROL_ROOM(sizeof(int))];
};

static void add_control(struct msghdr *header, int level, int type, const void *data, size_t n)
{
    struct cmsghdr *c = (struct cmsghdr *)(void *)((uint8_t *)header->msg_control + header->msg_controllen);
    c->cmsg_level = level;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(n);
    memcpy(CMSG_DATA(c), data, n);
    header->msg_controllen += CMSG_SPACE(n);
}

struct send_frame {
    union udp_address name;
    union send_control control;
    struct msghdr header; /* without its iovec */
};

/* Everything of a message but its bytes. segment 0: none. */
static void frame_set(struct send_frame *frame, const union udp_address *to, const struct udp_source *source,
                      uint8_t tos, size_t segment)
{
    bool v6 = to->any.sa_family == AF_INET6;
    memset(&frame->control, 0, sizeof frame->control);
    frame->name = *to;
    struct msghdr *header = &frame->header;
    *header = (struct msghdr){
        .msg_name = &frame->name,
        .msg_namelen = v6 ? sizeof frame->name.in6 : sizeof frame->name.in4,
        .msg_iovlen = 1,
        .msg_control = &frame->control,
    };
    if (source->family == AF_INET && !v6) {
        struct in_pktinfo info = {.ipi_ifindex = (int)source->ifindex, .ipi_spec_dst = source->in4};
        add_control(header, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
    } else if (source->family == AF_INET6 && v6) {
        struct in6_pktinfo info = {.ipi6_addr = source->in6, .ipi6_ifindex = source->ifindex};
        add_control(header, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
    }
    if (tos) {
        int value = tos;
        add_control(header, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, &value, sizeof value);
    }
    if (segment) {
        uint16_t size = (uint16_t)segment;
        add_control(header, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
    }
    if (!header->msg_controllen)
        header->msg_control = NULL;
}

/* One sendmsg; 0 or -errno. */
static int send_once(int fd, const union udp_address *to, const struct udp_source *source, uint8_t tos,
                     const uint8_t *data, size_t length, size_t segment)
{
    struct send_frame frame;
    struct iovec iov = {(void *)(uintptr_t)data, length};
    frame_set(&frame, to, source, tos, segment < length ? segment : 0);
    frame.header.msg_iov = &iov;
    return sendmsg(fd, &frame.header, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Datagrams of `segment` bytes each in one system call; how many were taken, or -errno of the first. */
static int send_many(int fd, const union udp_address *to, const struct udp_source *source, uint8_t tos,
                     const uint8_t *data, size_t length, size_t segment)
{
    struct send_frame frame;
    struct mmsghdr headers[UDP_BATCH];
    struct iovec iov[UDP_BATCH];
    unsigned n = 0;
    frame_set(&frame, to, source, tos, 0);
    for (size_t at = 0; at < length && n < UDP_BATCH; at += segment, n++) {
        iov[n] = (struct iovec){(void *)(uintptr_t)(data + at), length - at < segment ? length - at : segment};
        headers[n] = (struct mmsghdr){.msg_hdr = frame.header};
        headers[n].msg_hdr.msg_iov = &iov[n];
    }
    int sent = sendmmsg(fd, headers, n, MSG_NOSIGNAL);
    return sent < 0 ? -errno : sent;
}

/* The source may be why: a datagram that failed with one of these is worth one try without it. */
static bool source_suspect(int error)
{
    return error == -EINVAL || error == -ENETUNREACH || error == -EADDRNOTAVAIL || error == -ENODEV || error == -ENXIO;
}

static int send_sourced(int fd, const union udp_address *to, struct udp_source *source, uint8_t tos,
                        const uint8_t *data, size_t length, size_t segment)
{
    int error = send_once(fd, to, source, tos, data, length, segment);
    if (error && source->family && source_suspect(error)) {
        struct udp_source none = {0};
        int again = send_once(fd, to, &none, tos, data, length, segment);
        if (again == 0 || !source_suspect(again)) {
            *source = none;
            return again;
        }
    }
    return error;
}

enum udp_result udp_send(int fd, const union udp_address *to, struct udp_source *source, uint8_t tos,
                         const uint8_t *data, size_t length, size_t segment, struct udp_outcome *outcome)
{
    unsigned count = (unsigned)((length + segment - 1) / segment);
    bool whole = count > 1 && !outcome->singly && feature_on(FEATURE_UDP_SEGMENT);
    *outcome = (struct udp_outcome){0};
    if (whole) {
        int e = send_sourced(fd, to, source, tos, data, length, segment);
        if (!e) {
            outcome->sent = count;
            return UDP_SENT;
        }
        if (e == -EAGAIN || e == -EWOULDBLOCK)
            return UDP_AGAIN;
        if (e == -EIO) {
            feature_refused(FEATURE_UDP_SEGMENT, "the device cannot segment (EIO)");
        } else if (e == -EINVAL || e == -EMSGSIZE) {
            outcome->singly = true;
        } else {
            outcome->error = e;
            return UDP_FAILED;
        }
    }
    for (unsigned done = 0; done < count;) {
        size_t at = (size_t)done * segment, part = length - at < segment ? length - at : segment;
        int many = count - done > 1 ? send_many(fd, to, source, tos, data + at, length - at, segment) : 0;
        if (many > 0) {
            done += (unsigned)many;
            outcome->sent += (unsigned)many;
            continue;
        }
        /* The first of them was refused, or there is but one: alone, with what is to be done about its source. */
        int e = send_sourced(fd, to, source, tos, data + at, part, part);
        if (e == -EAGAIN || e == -EWOULDBLOCK) {
            outcome->sent = done;
            return UDP_AGAIN;
        }
        done++;
        if (e)
            outcome->error = e;
        else
            outcome->sent++;
    }
    return outcome->error ? UDP_FAILED : UDP_SENT;
}
