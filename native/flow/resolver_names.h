/* Names that need no server: hosts files, the plan's hosts, localhost; and reading resolv.conf. */
#ifndef FV_FLOW_RESOLVER_NAMES_H
#define FV_FLOW_RESOLVER_NAMES_H

#include "wire/dns.h"

enum { RESOLVER_HOSTS = 4096 }; /* entries kept; block lists of a million lines are not for this */

struct resolver_host {
    struct dns_name name;
    struct addr address;
};

struct resolver_names {
    struct resolver_host *hosts;
    size_t count, capacity;
};

void resolver_names_free(struct resolver_names *names);
/* 0, -EINVAL (not a name), -ENOMEM, -ENOSPC. */
int resolver_names_add(struct resolver_names *names, const char *name, size_t n, const struct addr *address);
/* "ADDRESS NAME NAME... # comment" lines; what it cannot read is passed over. The number of names, or -ENOMEM. */
int resolver_names_file(struct resolver_names *names, const char *text, size_t n);
/* Is there an entry of any family? Then no server is asked. */
bool resolver_names_has(const struct resolver_names *names, const struct dns_name *name);
unsigned resolver_names_find(const struct resolver_names *names, const struct dns_name *name, uint8_t family,
                             struct addr *addresses, unsigned room);
/* The next "nameserver ADDRESS" of a resolv.conf; false at its end. Port 53. */
bool resolver_names_server(const char **text, size_t *n, struct addr *server);

#endif
