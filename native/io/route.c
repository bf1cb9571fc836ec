#include "io/route.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

int route_open(void)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct timeval limit = {.tv_sec = 1}; /* the kernel answers before sending returns */
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

struct question {
    struct nlmsghdr head;
    struct rtmsg route;
    uint8_t room[64];
};

static void add(struct question *q, uint16_t type, const void *data, size_t n)
{
    struct rtattr attribute = {.rta_len = (uint16_t)RTA_LENGTH(n), .rta_type = type};
    uint8_t *at = (uint8_t *)q + q->head.nlmsg_len;
    memcpy(at, &attribute, sizeof attribute);
    memcpy(at + RTA_LENGTH(0), data, n);
    q->head.nlmsg_len += (uint32_t)RTA_ALIGN(attribute.rta_len);
}

static int read_answer(const uint8_t *bytes, size_t n)
{
    struct nlmsghdr head;
    if (n < sizeof head)
        return -EPROTO;
    memcpy(&head, bytes, sizeof head);
    if (head.nlmsg_type == NLMSG_ERROR && n >= sizeof head + sizeof(int)) {
        int error;
        memcpy(&error, bytes + sizeof head, sizeof error);
        return error < 0 ? error : -EPROTO;
    }
    size_t at = NLMSG_LENGTH(sizeof(struct rtmsg)), end = head.nlmsg_len < n ? head.nlmsg_len : n;
    struct rtattr attribute;
    while (head.nlmsg_type == RTM_NEWROUTE && at + sizeof attribute <= end) {
        memcpy(&attribute, bytes + at, sizeof attribute);
        if (attribute.rta_len < sizeof attribute || at + attribute.rta_len > end)
            break;
        if (attribute.rta_type == RTA_OIF && attribute.rta_len >= RTA_LENGTH(sizeof(int))) {
            int index;
            memcpy(&index, bytes + at + RTA_LENGTH(0), sizeof index);
            return index;
        }
        at += RTA_ALIGN(attribute.rta_len);
    }
    return -ENETUNREACH;
}

int route_interface(int fd, uint8_t family, const void *to, const void *from, uint32_t mark)
{
    size_t n = family == AF_INET ? 4 : 16;
    uint8_t answer[4096];
    struct question q = {
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof q.route), .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST},
        .route = {.rtm_family = family, .rtm_dst_len = (uint8_t)(8 * n), .rtm_src_len = (uint8_t)(8 * n)},
    };
    add(&q, RTA_DST, to, n);
    add(&q, RTA_SRC, from, n);
    if (mark)
        add(&q, RTA_MARK, &mark, sizeof mark);
    if (send(fd, &q, q.head.nlmsg_len, 0) < 0)
        return -errno;
    ssize_t got = recv(fd, answer, sizeof answer, 0);
    return got < 0 ? -errno : read_answer(answer, (size_t)got);
}
