/* The engine's own resolver: host names -> addresses, without blocking and without getaddrinfo.
 *
 * Sans-IO. Whoever owns it hands in time, entropy, datagrams and bytes of TCP connections, and takes out actions: send
 * this to that server, close that socket, here is a result. resolver_io.c is the edge with sockets on the event loop.
 *
 * A lookup asks for A and AAAA side by side, each a query in a slot of its own. A query's attempt goes to one server from
 * a fresh socket (the kernel picks a random port) with a fresh random id, and lasts 1 s in the first round over all
 * servers, 2 s in the second, 4 s in the third; a server that fails, refuses, or cannot be reached is passed over at
 * once. A truncated answer is asked for again by TCP from the same server. Only what comes from the server asked, with
 * the attempt's id and question, counts; anything else is as if it had not come. Aliases that a server leaves open are
 * followed (12 deep). When one family has its addresses, the other is waited for another 300 ms.
 *
 * Before the servers: literals, "localhost" (RFC 6761), the hosts file and the plan's hosts, then the cache: positive
 * answers for their TTL (a day at most), negative ones by their SOA (5 minutes at most), both bounded in number.
 *
 * Names are absolute: there is no search list. Everything is allocated at the start. */
#ifndef FV_FLOW_RESOLVER_H
#define FV_FLOW_RESOLVER_H

#include "wire/dns.h"

enum {
    RESOLVER_SERVERS = 4,
    RESOLVER_LOOKUPS = 32,                  /* under way at once */
    RESOLVER_SLOTS = 2 * RESOLVER_LOOKUPS,
    RESOLVER_ADDRESSES = 2 * DNS_ADDRESSES, /* of one result */
    RESOLVER_CACHE = 128,
    RESOLVER_TCP_SIZE = 16384               /* the longest answer by TCP that is taken */
};

enum resolver_flags {
    RESOLVER_IPV4 = 1,
    RESOLVER_IPV6 = 2,
    RESOLVER_BOTH = 3,
    RESOLVER_FRESH = 4 /* does not look into the cache: the address that it has did not answer */
};

struct resolver_result {
    void *context; /* as given to resolver_lookup */
    int error;     /* 0; -ENOENT no such name; -ENODATA it has no address; -ETIMEDOUT nobody answered; -EREMOTEIO the
                      servers could not say; -EHOSTUNREACH no server can be reached; -EDESTADDRREQ there is no server */
    unsigned count;
    uint64_t expires; /* when to ask again, ns as `now`; UINT64_MAX: it does not age */
    struct addr addresses[RESOLVER_ADDRESSES]; /* IPv6 first; port as given to resolver_lookup */
};

enum resolver_action_kind { RESOLVER_SEND_UDP, RESOLVER_SEND_TCP, RESOLVER_CLOSE, RESOLVER_DONE };

struct resolver_action {
    enum resolver_action_kind kind;
    unsigned slot;      /* of SEND and CLOSE: SEND opens a socket for the slot, CLOSE ends it; strictly in turn */
    struct addr server; /* of SEND */
    const uint8_t *bytes; /* of SEND; of TCP with its length before it. Good until the next call */
    size_t length;
    struct resolver_result result; /* of DONE */
};

struct resolver_stats {
    uint64_t lookups, cache_hits, sent_udp, sent_tcp, timeouts, mismatches, failures;
};

struct resolver;

/* NULL: out of memory. random fills n bytes, of the quality of getrandom. */
struct resolver *resolver_new(void (*random)(void *context, void *bytes, size_t n), void *context);
void resolver_free(struct resolver *r);
/* Drops servers, hosts and cache (a new plan); lookups under way go on with the new servers. */
void resolver_reset(struct resolver *r);

/* 0, -ENOSPC (the list is full). A port of 0 means 53. */
int resolver_add_server(struct resolver *r, const struct addr *server);
/* The servers of a resolv.conf, as far as there is room; what it cannot read is passed over. Returns how many. */
unsigned resolver_add_resolv_conf(struct resolver *r, const char *text, size_t n);
/* One name with one address; again for more. 0, -EINVAL, -ENOMEM. */
int resolver_add_host(struct resolver *r, const char *name, size_t n, const struct addr *address);
/* A hosts file. Returns how many names; -ENOMEM. */
int resolver_add_hosts(struct resolver *r, const char *text, size_t n);

/* Starts a lookup of n bytes of text (an address literal is fine). Returns its number, to be cancelled by, or -EINVAL:
 * not a name; -EBUSY: too many under way. The result always comes by resolver_next. */
int resolver_lookup(struct resolver *r, const char *text, size_t n, uint16_t port, unsigned flags, void *context,
                    uint64_t now);
void resolver_cancel(struct resolver *r, int lookup);

/* A datagram for a slot; from is where it came from. */
void resolver_datagram(struct resolver *r, unsigned slot, const struct addr *from, const uint8_t *bytes, size_t n,
                       uint64_t now);
/* Bytes of a slot's TCP connection; n 0: the server has closed it. */
void resolver_stream(struct resolver *r, unsigned slot, const uint8_t *bytes, size_t n, uint64_t now);
/* A slot's socket cannot be made, connected or written, or the network says unreachable. */
void resolver_broken(struct resolver *r, unsigned slot, uint64_t now);
/* Time has passed. */
void resolver_poll(struct resolver *r, uint64_t now);
/* When resolver_poll has to be called next; UINT64_MAX: no need. */
uint64_t resolver_deadline(const struct resolver *r);

/* The next thing to do; false: nothing. To be called until then after each of the calls above. */
bool resolver_next(struct resolver *r, struct resolver_action *action);

const struct resolver_stats *resolver_stats(const struct resolver *r);

#endif
