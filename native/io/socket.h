/* The one place where sockets are made. Each is told its purpose; mark, device, source address, buffers and the options
 * that the purpose needs are set here, so that the engine's own traffic never loops into its own tunnel. */
#ifndef FV_IO_SOCKET_H
#define FV_IO_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum socket_purpose {
    SOCKET_WIREGUARD, /* UDP: pktinfo, TOS, GRO, DF clear, reuseport among workers */
    SOCKET_DNS, /* UDP to a name server */
    SOCKET_CONTROL, /* unix stream, mode 0600 or 0700 */
    SOCKET_PURPOSES
};

struct socket_options {
    uint32_t mark; /* SO_MARK; 0: none */
    const char *device; /* SO_BINDTODEVICE; NULL: none */
    bool reuseport; /* several workers on one port */
    bool first; /* with reuseport: of its group; somebody else's group on that port is -EADDRINUSE */
    int buffer; /* bytes for SO_RCVBUF and SO_SNDBUF; 0: the kernel's own */
};

/* A non-blocking close-on-exec UDP socket of AF_INET or AF_INET6 (V6ONLY), bound to port (0: the kernel picks) on every
 * address. Returns the descriptor or -errno. What the kernel refuses of the optional options is left out and counted in
 * the feature table. */
int socket_udp(enum socket_purpose purpose, int family, uint16_t port, const struct socket_options *options);

/* Steers what a group of `count` sockets on one port (bound with reuseport, in the order of the workers) receives, by a
 * program on any of them: WireGuard data goes to worker 1 + receiver index mod (count - 1), so that one session stays
 * with one worker and in order; everything else (handshakes) to worker 0. 0 or -errno; without it the kernel spreads by
 * the addresses' hash. */
int socket_steer_wireguard(int fd, unsigned count);

/* A non-blocking close-on-exec socket connected to an address: SOCK_DGRAM (only that peer is heard, and its ICMP errors
 * are) or SOCK_STREAM (connecting: writable when it is, or has failed). Returns the descriptor or -errno. */
int socket_dial(int type, const struct sockaddr *to, socklen_t to_size, const struct socket_options *options);
/* Bytes, 0 at the end of a stream, -EAGAIN, -errno. */
ssize_t socket_receive(int fd, void *bytes, size_t n);
ssize_t socket_send(int fd, const void *bytes, size_t n);

/* The bound port, host order; 0 on failure. */
uint16_t socket_port(int fd);
/* Sets the mark of an open socket; 0 or -errno. */
int socket_mark(int fd, uint32_t mark);

/* A listening unix stream socket at path with this mode; a file of a dead process there is replaced, a living one's
 * gives -EADDRINUSE. Returns the descriptor or -errno. */
int socket_unix_listen(const char *path, unsigned mode);
/* Connected to the unix socket at path; descriptor or -errno. It blocks, but for no longer than SOCKET_UNIX_SECONDS a
 * call: an engine that stands still is told from one that is slow. */
enum { SOCKET_UNIX_SECONDS = 5 };
int socket_unix_connect(const char *path);
/* Non-blocking accept; descriptor, -EAGAIN, or -errno. Where no descriptor is left (EMFILE, ENFILE) whoever waits is
 * turned away by the one in reserve; wait a little before the next call. */
int socket_accept(int fd);

#endif
