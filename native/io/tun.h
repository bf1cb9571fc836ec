/* TUN devices: creation with as many queues and as much offload as the kernel grants, reads and gathered writes.
 *
 * With the virtio header (FEATURE_TUN_VNET_HDR) every packet read or written is preceded by 10 bytes that name partial
 * checksums and super-packets; without it plain packets move. The offload ladder is that of the feature table. */
#ifndef FV_IO_TUN_H
#define FV_IO_TUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { TUN_NAME = 16 }; /* IFNAMSIZ, the end included */

struct tun {
    char name[TUN_NAME];
    int fd;     /* non-blocking; one queue */
    bool vnet;  /* a virtio header precedes each packet */
    bool csum, tso, uso; /* what the kernel may hand us, and we it */
};

/* Opens (creates, if there is none) the device; queues of a device with several are opened by calling again with
 * multi_queue. An existing tun->name of "fv%d" form is filled in by the kernel. 0 or -errno. */
int tun_open(struct tun *tun, const char *name, bool multi_queue);
/* Takes over a descriptor that somebody else has set up (WG_TUN_FD); 0 or -errno. */
int tun_adopt(struct tun *tun, int fd);
void tun_close(struct tun *tun);

/* Sets the MTU of the interface; 0 or -errno. */
int tun_set_mtu(const struct tun *tun, unsigned mtu);
/* -errno or the MTU. */
int tun_get_mtu(const struct tun *tun);
/* -errno, or whether the interface is up (1, 0). */
int tun_is_up(const struct tun *tun);

/* Bytes read, 0 when nothing is there, -errno. */
ssize_t tun_read(const struct tun *tun, void *buffer, size_t n);
/* For want of memory: drops up to n packets; how many, or -errno. */
int tun_discard(const struct tun *tun, unsigned n);
/* 0 or -errno. */
int tun_write(const struct tun *tun, const struct iovec *iov, unsigned count);

#endif
