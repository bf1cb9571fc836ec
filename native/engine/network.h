/* The kernel state of a plan's [network] section: links, addresses, routes, rules and sysctls, set at start, changed by
 * a swap, taken back at the end.
 *
 * A plan's lines are iproute2's words (network_parse.c), one object a line; a line that names no address family stands
 * for both (`rule=priority 5210 iif eth1 table 51820` would leak all of IPv6 otherwise).
 *
 * Applying is reconciling: network_apply looks at what the plan wants and at what is there, adds what is missing,
 * changes what differs, and only then deletes what is not wanted any more, so that a swap never opens a gap. Asked
 * twice it does nothing. It has two phases, because the engine makes its TUN devices in between:
 *
 *   NETWORK_GUARD     the kill switch: unreachable, blackhole and prohibit routes; then the rules
 *   NETWORK_DEVICES   sysctls, link settings, addresses, links up, the other routes; then the deletions
 *
 * The two are one transaction: a failure in either undoes all that both did (network_rollback does the same when a
 * device cannot be made in between); deletions come when nothing can fail any more. What existed before and is equal
 * is left alone and not taken back; what existed before and is in the way is an error, never overwritten.
 *
 * After a crash the kernel still has our routes through other devices, the guards and the rules, found by their
 * protocol number; addresses, old sysctl values and old link settings are in a journal (the file `network` in the state
 * folder, plan syntax, written before anything is changed; void after a reboot or in another namespace). All this
 * becomes the first transaction's "old plan". Where another fv runs in the same network namespace, only the tables that
 * the plan or the journal name are looked at. crash_closed: what is left over and not in the new plan goes after the new
 * plan is in place, and stays when it fails; open: it goes at once.
 *
 * The kill switch is kernel state: the guards hold while fv is not there. network_stop(closed) leaves guards and rules,
 * takes back everything else; open takes back everything, rules and guards last. */
#ifndef FV_ENGINE_NETWORK_H
#define FV_ENGINE_NETWORK_H

#include <limits.h>

#include "io/netlink.h"

#define NETWORK_ERROR_SIZE 512

enum network_kind { NETWORK_SYSCTL, NETWORK_LINK, NETWORK_ADDRESS, NETWORK_ROUTE, NETWORK_RULE, NETWORK_KIND_COUNT };

struct network_sysctl {
    char key[96]; /* as a path below /proc/sys: net/ipv4/ip_forward */
    char value[64]; /* words separated by one space */
};

struct network_item {
    enum network_kind kind;
    bool optional; /* the IPv6 half of a line that names no family: not missed where the host has no IPv6 */
    char device[IF_NAMESIZE]; /* of link, address, route; "" none */
    union {
        struct network_sysctl sysctl;
        struct netlink_link_change link;
        struct netlink_address address;
        struct netlink_route route;
        struct netlink_rule rule;
    };
};

/* What a plan wants. Zeroed is empty. */
struct network_plan {
    struct network_item *items;
    size_t count, capacity;
    bool stop_closed, crash_closed; /* [engine] on_stop, on_crash */
};

void network_plan_free(struct network_plan *plan);

/* One line: key is address, link, route, rule or sysctl; value is decoded text. Returns 0, -EINVAL with the reason in
 * error (no line number: the caller has it), -ENOMEM. Makes no system call. */
int network_parse_line(struct network_plan *plan, const char *key, const char *value, char *error, size_t size);
/* What no single line can tell: the same object twice, rules that could not be told apart when one is deleted. */
int network_plan_check(const struct network_plan *plan, char *error, size_t size);

const char *network_kind_name(enum network_kind kind); /* the line's key */
/* Key and value of a line, as network_parse_line reads it; always NUL-terminated. */
void network_format(const struct network_item *item, char *text, size_t size);
/* The same object (its other properties may differ), and the same in all. */
bool network_item_same(const struct network_item *a, const struct network_item *b);
bool network_item_equal(const struct network_item *a, const struct network_item *b);
/* A route that refuses: part of the kill switch. */
bool network_item_guards(const struct network_item *item);

enum network_phase { NETWORK_GUARD, NETWORK_DEVICES, NETWORK_PHASE_COUNT };

/* An object in force. */
struct network_entry {
    struct network_item item;
    const struct network_item *want; /* in the plan that is being applied; NULL: not wanted any more */
    bool ours; /* we made it, or found it after a crash: it is taken back at the end */
    char old_value[64]; /* sysctl: before us */
    struct netlink_link_change old_link; /* link: before us */
};

struct network_undo;

struct network {
    struct netlink *nl;
    struct network_entry *entries;
    size_t count, capacity;
    /* the transaction that is open between the two phases */
    bool open;
    struct network_entry *before;
    size_t before_count;
    struct network_undo *undo;
    size_t undo_count, undo_capacity;
    bool adopted; /* leftovers of an earlier run have been looked for */
    bool proved; /* a transaction has succeeded: before that a failure leaves what on_crash says */
    bool crash_closed;
    bool alone; /* no other fv in this network namespace */
    int claim; /* descriptor that says that we are here */
    char journal[PATH_MAX]; /* "": no state folder */
    char *journal_text; /* as it was written last: a flash is not written without need */
    char identity[160]; /* of this boot and namespace */
    void (*notice)(void *context, const char *text); /* what is worth a log line; may be NULL */
    void *context;
    char error[NETWORK_ERROR_SIZE];
};

/* state: folder for the journal, or "" . nl is used until network_close. 0 or -errno. */
int network_open(struct network *net, struct netlink *nl, const char *state);
/* Forgets; changes nothing in the kernel. */
void network_close(struct network *net);

/* 0, or -errno with net->error, all undone. GUARD begins a transaction, DEVICES ends it; DEVICES without GUARD does both. */
int network_apply(struct network *net, const struct network_plan *plan, enum network_phase phase);
/* Undoes an open transaction. */
void network_rollback(struct network *net);
/* Clean stop. 0, or the first error (everything that can be taken back is). */
int network_stop(struct network *net, bool closed);
/* Takes back what an earlier run left, kill switch and all, without applying anything. */
int network_clear(struct network *net);

#endif
