/* Which way the kernel would send: one question to its routing table. */
#ifndef FV_IO_ROUTE_H
#define FV_IO_ROUTE_H

#include <stdint.h>

/* A socket for the questions; descriptor or -errno. */
int route_open(void);
/* Index of the interface by which a packet with this mark would go from `from` to `to` (4 or 16 bytes, family AF_INET or
 * AF_INET6); -errno: -EINVAL where `from` is no address of ours any more, -ENETUNREACH. */
int route_interface(int fd, uint8_t family, const void *to, const void *from, uint32_t mark);

#endif
