/* The resolver's edge: its actions on sockets of the event loop, its clock on a timer, its names from files.
 *
 * Belongs to one worker. fvd.c's switch hands WAKE_RESOLVER to resolver_io_ready and WAKE_RESOLVER_TIMER to
 * resolver_io_expired; results come by the callback, from within those two or from resolver_io_lookup itself (a literal,
 * the hosts, the cache). The callback may start and cancel lookups. */
#ifndef FV_FLOW_RESOLVER_IO_H
#define FV_FLOW_RESOLVER_IO_H

#include "flow/resolver.h"
#include "io/loop.h"
#include "io/socket.h"

/* context: resolver_io_new's; the lookup's own is in the result. */
typedef void resolver_io_done(void *context, const struct resolver_result *result);

struct resolver_io;

/* options: the mark and device of the sockets to name servers, so that they do not go into the own tunnel; copied, the
 * device's name is not. NULL: out of memory. */
struct resolver_io *resolver_io_new(struct loop *loop, const struct socket_options *options, resolver_io_done *done,
                                    void *context);
/* Closes its sockets; lookups under way are forgotten without a result. */
void resolver_io_free(struct resolver_io *io);

/* For resolver_reset, resolver_add_server, resolver_add_host and the statistics. */
struct resolver *resolver_io_core(struct resolver_io *io);
/* Adds the names of a hosts file, the servers of a resolv.conf (NULL: not read). A file that is not there is empty; a
 * resolv.conf without a server means 127.0.0.1 when fallback is set, as for everybody else. 0, or -errno of what went
 * wrong first. */
int resolver_io_load(struct resolver_io *io, const char *hosts, const char *resolv_conf, bool fallback);

/* As resolver_lookup and resolver_cancel. */
int resolver_io_lookup(struct resolver_io *io, const char *text, size_t n, uint16_t port, unsigned flags,
                       void *context);
void resolver_io_cancel(struct resolver_io *io, int lookup);

void resolver_io_ready(struct resolver_io *io, struct wake *wake);
void resolver_io_expired(struct resolver_io *io);

#endif
