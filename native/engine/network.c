#include "engine/network.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/network_journal.h"
#include "engine/network_kernel.h"
#include "io/file.h"
#include "io/instance.h"
#include "wire/bytes.h"

/* One step back: remove the item, or put it there as it was. */
struct network_undo {
    struct network_item item;
    bool remove;
};

/* The order in which objects come into being; they go in the reverse one. */
enum network_step { STEP_GUARD, STEP_RULE, STEP_SYSCTL, STEP_LINK, STEP_ADDRESS, STEP_UP, STEP_ROUTE, STEP_COUNT };

static enum network_kind step_kind(enum network_step step)
{
    switch (step) {
    case STEP_RULE:
        return NETWORK_RULE;
    case STEP_SYSCTL:
        return NETWORK_SYSCTL;
    case STEP_LINK:
    case STEP_UP:
        return NETWORK_LINK;
    case STEP_ADDRESS:
        return NETWORK_ADDRESS;
    default:
        return NETWORK_ROUTE;
    }
}

static bool step_has(enum network_step step, const struct network_item *item)
{
    return item->kind == step_kind(step) &&
           (item->kind != NETWORK_ROUTE || network_item_guards(item) == (step == STEP_GUARD));
}

/* --- Messages --- */

__attribute__((format(printf, 2, 3))) static void network_notice(struct network *net, const char *format, ...)
{
    char text[NETWORK_ERROR_SIZE];
    va_list arguments;

    if (!net->notice)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    net->notice(net->context, text);
}

/* "KEY=VALUE: reason"; the reason is why, or the kernel's last one. */
static int network_fail(struct network *net, int error, const struct network_item *item, const char *why)
{
    char line[256], missing[64];

    network_format(item, line, sizeof line);
    if (error == -ENODEV && item->device[0] && !why) {
        snprintf(missing, sizeof missing, "there is no interface %s", item->device);
        why = missing;
    }
    if (!why)
        why = item->kind == NETWORK_SYSCTL ? strerror(-error) : netlink_error(net->nl);
    snprintf(net->error, sizeof net->error, "%s=%s: %s", network_kind_name(item->kind), line, why);
    return error;
}

/* --- The lists --- */

static int entries_add(struct network *net, const struct network_entry *entry)
{
    if (net->count == net->capacity) {
        size_t capacity = net->capacity ? net->capacity * 2 : 8;
        struct network_entry *grown = realloc(net->entries, capacity * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        net->entries = grown;
        net->capacity = capacity;
    }
    net->entries[net->count++] = *entry;
    return 0;
}

static struct network_entry *entries_find(struct network *net, const struct network_item *item)
{
    for (size_t i = 0; i < net->count; i++) {
        if (network_item_same(&net->entries[i].item, item))
            return &net->entries[i];
    }
    return NULL;
}

/* Room is made before the change, so that what was done can always be undone. */
static int undo_reserve(struct network *net)
{
    if (net->undo_count < net->undo_capacity)
        return 0;
    size_t capacity = net->undo_capacity ? net->undo_capacity * 2 : 16;
    struct network_undo *grown = realloc(net->undo, capacity * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    net->undo = grown;
    net->undo_capacity = capacity;
    return 0;
}

static void undo_push(struct network *net, const struct network_item *item, bool remove)
{
    net->undo[net->undo_count++] = (struct network_undo){.item = *item, .remove = remove};
}

/* Says which entries the plan wants, and adds those that are new. */
static int network_merge(struct network *net, const struct network_plan *plan)
{
    for (size_t i = 0; i < net->count; i++)
        net->entries[i].want = NULL;
    for (size_t i = 0; i < plan->count; i++) {
        struct network_entry *entry = entries_find(net, &plan->items[i]);
        if (entry) {
            entry->want = &plan->items[i];
            continue;
        }
        const struct network_entry fresh = {.item = plan->items[i], .want = &plan->items[i], .old_link = {.up = -1}};
        if (entries_add(net, &fresh))
            return -ENOMEM;
    }
    return 0;
}

/* --- Leftovers of an earlier run --- */

static bool plan_names_table(const struct network_plan *plan, uint32_t table)
{
    if (table == RT_TABLE_MAIN || table == RT_TABLE_LOCAL || table == RT_TABLE_DEFAULT)
        return false;
    for (size_t i = 0; i < plan->count; i++) {
        if (plan->items[i].kind == NETWORK_ROUTE && plan->items[i].route.table == table)
            return true;
    }
    return false;
}

static bool plan_has(const struct network_plan *plan, const struct network_item *item)
{
    for (size_t i = 0; i < plan->count; i++) {
        if (network_item_same(&plan->items[i], item))
            return true;
    }
    return false;
}

/* An object with our number: of our earlier run, or of an fv that is alive beside us? */
static bool leftover_is_ours(const struct network *net, const struct network_plan *plan,
                             const struct network_plan *journal, const struct network_item *item)
{
    uint32_t table = item->kind == NETWORK_ROUTE ? item->route.table : item->rule.table;

    return net->alone || plan_names_table(plan, table) || plan_names_table(journal, table) || plan_has(journal, item) ||
           plan_has(plan, item);
}

static int network_adopt(struct network *net, const struct network_plan *plan)
{
    struct network_plan journal;
    struct network_seen seen;
    int error = network_journal_read(net, &journal);

    if (error)
        return error;
    error = network_seen_read(net->nl, &seen);
    if (error) {
        snprintf(net->error, sizeof net->error, "reading routes, rules and addresses: %s", netlink_error(net->nl));
        network_plan_free(&journal);
        return error;
    }
    for (size_t i = 0; i < seen.route_count && error != -ENOMEM; i++) {
        struct network_entry entry = {.ours = true, .old_link = {.up = -1}};
        /* An interface that has gone in this moment has taken its routes along. */
        if (network_route_item(net->nl, &seen.routes[i], &entry.item) == 0 &&
            leftover_is_ours(net, plan, &journal, &entry.item))
            error = entries_add(net, &entry);
    }
    for (size_t i = 0; i < seen.rule_count && error != -ENOMEM; i++) {
        const struct network_entry entry = {
            .item = {.kind = NETWORK_RULE, .rule = seen.rules[i]}, .ours = true, .old_link = {.up = -1}};
        if (leftover_is_ours(net, plan, &journal, &entry.item))
            error = entries_add(net, &entry);
    }
    for (size_t i = 0; i < journal.count && error != -ENOMEM; i++) {
        struct network_entry entry = {.item = journal.items[i], .ours = true, .old_link = {.up = -1}};
        struct network_item *item = &entry.item;
        if (item->kind == NETWORK_ROUTE || item->kind == NETWORK_RULE)
            continue;
        if (item->kind == NETWORK_SYSCTL) {
            /* The journal has the value before us; what we wrote is not known and does not matter. */
            memcpy(entry.old_value, item->sysctl.value, sizeof entry.old_value);
            item->sysctl.value[0] = '\0';
        } else if (item->kind == NETWORK_LINK) {
            entry.old_link = item->link;
        } else if (network_resolve(net->nl, item) || !network_seen_address(&seen, item)) {
            continue;
        }
        error = entries_add(net, &entry);
    }
    network_seen_free(&seen);
    network_plan_free(&journal);
    if (!error && net->count)
        network_notice(net, "%zu objects of an earlier run found", net->count);
    net->adopted = !error;
    return error;
}

/* --- Making one object so --- */

/* The IPv6 half of a line without a family is not missed where there is no IPv6 to be caught or to leak. */
static bool may_miss(const struct network_item *want, int error)
{
    if (!want->optional)
        return false;
    if (error == -EOPNOTSUPP || error == -EAFNOSUPPORT)
        return network_lacks_ipv6("");
    return (error == -EACCES || error == -ENODEV || error == -EINVAL) && want->kind == NETWORK_ROUTE &&
           want->device[0] && network_lacks_ipv6(want->device);
}

static int ensure_route(struct network *net, struct network_entry *entry, const struct network_seen *seen)
{
    struct network_item want = *entry->want, previous;
    struct netlink_route foreign;
    int error = network_resolve(net->nl, &want);

    if (error)
        return network_fail(net, error, &want, NULL);
    const struct netlink_route *have = network_seen_route(seen, &want);
    if (have && network_route_matches(&want, have)) {
        entry->item = want;
        entry->ours = true;
        return 0;
    }
    if (have && (error = network_route_item(net->nl, have, &previous)))
        return network_fail(net, error, &want, NULL);
    error = network_put(net->nl, &want, have != NULL);
    if (error && may_miss(&want, error)) {
        network_notice(net, "IPv6 is off on %s: no IPv6 default route through it", want.device);
        return 0;
    }
    if (error == -EEXIST) {
        int found = network_route_foreign(net->nl, &want, &foreign);
        if (found == 1 && network_route_matches(&want, &foreign))
            return 0; /* somebody else's and good: stays theirs */
        return network_fail(net, error, &want, "another route of that destination, table and metric is there already");
    }
    if (error)
        return network_fail(net, error, &want, NULL);
    undo_push(net, have ? &previous : &want, !have);
    entry->item = want;
    entry->ours = true;
    return 0;
}

static int ensure_rule(struct network *net, struct network_entry *entry, const struct network_seen *seen)
{
    if (network_seen_rule(seen, entry->want)) {
        entry->ours = true;
        return 0;
    }
    int error = network_put(net->nl, entry->want, false);
    if (error && may_miss(entry->want, error)) {
        network_notice(net, "IPv6 is not there: its half of a rule is left out");
        return 0;
    }
    if (error == -EEXIST)
        return 0; /* the same rule of somebody else */
    if (error)
        return network_fail(net, error, entry->want, NULL);
    undo_push(net, entry->want, true);
    entry->ours = true;
    return 0;
}

static int ensure_address(struct network *net, struct network_entry *entry, const struct network_seen *seen)
{
    struct network_item want = *entry->want;
    int error = network_resolve(net->nl, &want);

    if (error)
        return network_fail(net, error, &want, NULL);
    if (network_seen_address(seen, &want))
        return 0;
    error = network_put(net->nl, &want, false);
    if (error == -EEXIST && entry->ours)
        return 0;
    if (error)
        return network_fail(net, error, &want, NULL);
    undo_push(net, &want, true);
    entry->item = want;
    entry->ours = true;
    return 0;
}

static int ensure_sysctl(struct network *net, struct network_entry *entry)
{
    struct network_item previous = *entry->want;
    int error = network_sysctl_read(previous.sysctl.key, previous.sysctl.value, sizeof previous.sysctl.value);

    if (error)
        return network_fail(net, error, entry->want, error == -ENOENT ? "this kernel has no such key" : NULL);
    entry->item = *entry->want;
    if (strcmp(previous.sysctl.value, entry->want->sysctl.value) == 0)
        return 0;
    error = network_put(net->nl, entry->want, false);
    if (error)
        return network_fail(net, error, entry->want, NULL);
    undo_push(net, &previous, false);
    entry->ours = true;
    return 0;
}

/* Up comes after the addresses; the rest of a link's settings before them. */
static int ensure_link(struct network *net, struct network_entry *entry, bool up_step)
{
    const struct network_item *want = entry->want;
    struct network_item change = *want, previous = *want;
    struct netlink_link link;
    int error = netlink_link_get(net->nl, want->device, &link);

    if (error)
        return network_fail(net, error, want, NULL);
    bool up = link.flags & IFF_UP;
    previous.link = (struct netlink_link_change){.mtu = link.mtu, .txqueuelen = link.txqueuelen, .up = up};
    if (up_step)
        change.link = (struct netlink_link_change){.up = want->link.up == 1 && !up ? 1 : -1};
    else if (want->link.up != 0 || !up)
        change.link.up = -1;
    /* What an earlier plan has set and this one does not name goes back now. */
    if (!up_step && !want->link.mtu)
        change.link.mtu = entry->old_link.mtu;
    if (!up_step && !want->link.txqueuelen)
        change.link.txqueuelen = entry->old_link.txqueuelen;
    if (change.link.mtu == link.mtu)
        change.link.mtu = 0;
    if (change.link.txqueuelen == link.txqueuelen)
        change.link.txqueuelen = 0;
    entry->item = *want;
    if (change.link.up < 0 && !change.link.mtu && !change.link.txqueuelen)
        return 0;
    error = network_put(net->nl, &change, false);
    if (error)
        return network_fail(net, error, want, NULL);
    /* Only what was changed goes back. */
    if (!change.link.mtu)
        previous.link.mtu = 0;
    if (!change.link.txqueuelen)
        previous.link.txqueuelen = 0;
    if (change.link.up < 0)
        previous.link.up = -1;
    undo_push(net, &previous, false);
    entry->ours = true;
    return 0;
}

/* --- Phases --- */

/* Looks at what will be changed and writes the journal, before anything is. */
static int network_prepare(struct network *net, const struct network_seen *seen, enum network_phase phase)
{
    struct netlink_link link;

    for (size_t i = 0; i < net->count && phase == NETWORK_DEVICES; i++) {
        struct network_entry *entry = &net->entries[i];
        const struct network_item *want = entry->want;
        int error = 0;
        /* A link of ours may be asked for more than the earlier plan did. */
        if (!want || (entry->ours && want->kind != NETWORK_LINK))
            continue;
        if (want->kind == NETWORK_SYSCTL) {
            error = network_sysctl_read(want->sysctl.key, entry->old_value, sizeof entry->old_value);
            if (!error && strcmp(entry->old_value, want->sysctl.value) == 0)
                entry->old_value[0] = '\0'; /* nothing to take back */
            if (error)
                return network_fail(net, error, want, error == -ENOENT ? "this kernel has no such key" : NULL);
        } else if (want->kind == NETWORK_LINK) {
            error = netlink_link_get(net->nl, want->device, &link);
            if (error)
                return network_fail(net, error, want, NULL);
            struct netlink_link_change *old = &entry->old_link;
            int up = (link.flags & IFF_UP) != 0;
            if (!old->mtu && want->link.mtu && want->link.mtu != link.mtu)
                old->mtu = link.mtu;
            if (!old->txqueuelen && want->link.txqueuelen && want->link.txqueuelen != link.txqueuelen)
                old->txqueuelen = link.txqueuelen;
            if (old->up < 0 && want->link.up >= 0 && want->link.up != up)
                old->up = up;
        } else if (want->kind == NETWORK_ADDRESS) {
            error = network_resolve(net->nl, &entry->item);
            if (error)
                return network_fail(net, error, want, NULL);
            if (network_seen_address(seen, &entry->item))
                entry->item.address.index = 0; /* not for the journal: it was there before us */
        }
    }
    network_journal_write(net);
    return 0;
}

static int network_run(struct network *net, const struct network_seen *seen, enum network_step step)
{
    for (size_t i = 0; i < net->count; i++) {
        struct network_entry *entry = &net->entries[i];
        if (!entry->want || !step_has(step, entry->want))
            continue;
        int error = undo_reserve(net);
        if (!error)
            error = step == STEP_RULE      ? ensure_rule(net, entry, seen)
                    : step == STEP_SYSCTL  ? ensure_sysctl(net, entry)
                    : step == STEP_LINK    ? ensure_link(net, entry, false)
                    : step == STEP_UP      ? ensure_link(net, entry, true)
                    : step == STEP_ADDRESS ? ensure_address(net, entry, seen)
                                           : ensure_route(net, entry, seen);
        if (error)
            return error;
    }
    return 0;
}

/* Takes one object back: removed, or set to what it was before us. */
static int network_take_back(struct network *net, const struct network_entry *entry)
{
    struct network_item item = entry->item;

    if (item.kind == NETWORK_SYSCTL) {
        if (!entry->old_value[0])
            return 0;
        memcpy(item.sysctl.value, entry->old_value, sizeof item.sysctl.value);
        int error = network_put(net->nl, &item, false);
        return error == -ENOENT ? 0 : error; /* the key went with its interface */
    }
    if (item.kind == NETWORK_LINK) {
        item.link = entry->old_link;
        if (item.link.up < 0 && !item.link.mtu && !item.link.txqueuelen)
            return 0;
        int error = network_put(net->nl, &item, false);
        return error == -ENODEV ? 0 : error;
    }
    return network_remove(net->nl, &item);
}

/* Ends all that is ours and not wanted, last made first; what is not ours is only forgotten. lasting: guards and rules
 * stay. Returns the first error, after having done everything. */
static int network_sweep(struct network *net, bool lasting)
{
    int first = 0;

    for (int step = STEP_COUNT - 1; step >= 0; step--) {
        if (step == STEP_UP || (lasting && step <= STEP_RULE))
            continue;
        for (size_t i = net->count; i-- > 0;) {
            struct network_entry *entry = &net->entries[i];
            if (entry->want || !entry->ours || !step_has((enum network_step)step, &entry->item))
                continue;
            int error = network_take_back(net, entry);
            if (error) {
                network_fail(net, error, &entry->item, NULL);
                network_notice(net, "not taken back: %s", net->error);
                first = first ? first : error;
            }
            entry->ours = false;
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < net->count; i++) {
        if (net->entries[i].want || net->entries[i].ours)
            net->entries[kept++] = net->entries[i];
    }
    net->count = kept;
    return first;
}

static void network_end(struct network *net)
{
    free(net->before);
    net->before = NULL;
    net->before_count = net->undo_count = 0;
    net->open = false;
    for (size_t i = 0; i < net->count; i++)
        net->entries[i].want = NULL; /* it points into the caller's plan */
}

static int network_begin(struct network *net, const struct network_plan *plan)
{
    int error = network_plan_check(plan, net->error, sizeof net->error);

    if (error)
        return error;
    net->crash_closed = plan->crash_closed;
    if (!net->adopted && (error = network_adopt(net, plan)))
        return error;
    if (!net->proved && !plan->crash_closed && !(error = network_merge(net, plan))) {
        size_t found = net->count;
        (void)network_sweep(net, false);
        if (net->count != found)
            network_notice(net, "on_crash=open: %zu of them taken back at once", found - net->count);
        /* What the merge has added is not there before the transaction. */
        size_t kept = 0;
        for (size_t i = 0; i < net->count; i++) {
            if (net->entries[i].ours)
                net->entries[kept++] = net->entries[i];
        }
        net->count = kept;
    }
    if (error)
        return error;
    net->before = malloc((net->count + 1) * sizeof *net->before);
    if (!net->before)
        return -ENOMEM;
    if (net->count)
        memcpy(net->before, net->entries, net->count * sizeof *net->before);
    net->before_count = net->count;
    net->undo_count = 0;
    net->open = true;
    return 0;
}

void network_rollback(struct network *net)
{
    if (!net->open)
        return;
    while (net->undo_count) {
        const struct network_undo *step = &net->undo[--net->undo_count];
        int error = step->remove ? network_remove(net->nl, &step->item) : network_put(net->nl, &step->item, true);
        char line[256];
        if (error && error != -ENODEV) {
            network_format(&step->item, line, sizeof line);
            network_notice(net, "not undone: %s=%s: %s", network_kind_name(step->item.kind), line, strerror(-error));
        }
    }
    /* before is never longer than entries was grown to. */
    if (net->before_count)
        memcpy(net->entries, net->before, net->before_count * sizeof *net->before);
    net->count = net->before_count;
    network_end(net);
    if (!net->proved && !net->crash_closed)
        (void)network_sweep(net, false);
    network_journal_write(net);
    if (!net->proved) {
        /* What an earlier run left stays as it is (on_crash=closed): it is not ours to take back at the end. */
        net->count = 0;
        net->adopted = false;
    }
}

int network_apply(struct network *net, const struct network_plan *plan, enum network_phase phase)
{
    const enum network_step last = phase == NETWORK_GUARD ? STEP_RULE : STEP_ROUTE;
    struct network_seen seen = {0};
    char reason[NETWORK_ERROR_SIZE];
    int error = 0;

    _Static_assert(NETWORK_PHASE_COUNT == 2, "a last step for each phase");
    net->error[0] = '\0';
    if (!net->open || phase == NETWORK_GUARD) {
        network_rollback(net);
        if ((error = network_begin(net, plan)))
            goto failed;
    }
    if ((error = network_merge(net, plan)) || (error = network_seen_read(net->nl, &seen)) ||
        (error = network_prepare(net, &seen, phase)))
        goto failed;
    for (int step = 0; step <= (int)last && !error; step++)
        error = network_run(net, &seen, (enum network_step)step);
    network_seen_free(&seen);
    if (error)
        goto failed;
    if (phase == NETWORK_GUARD) {
        for (size_t i = 0; i < net->count; i++)
            net->entries[i].want = NULL;
        return 0;
    }

    /* All of the new plan is in force: from here nothing is undone. */
    net->proved = true;
    size_t before = net->count;
    (void)network_sweep(net, false);
    /* An address that goes may take along its secondaries, and routes that name it as their source. */
    if (net->count != before && (error = network_seen_read(net->nl, &seen)) == 0) {
        for (int step = STEP_ADDRESS; step <= STEP_ROUTE && !error; step++)
            error = network_run(net, &seen, (enum network_step)step);
        network_seen_free(&seen);
        if (error)
            network_notice(net, "after the old plan was taken back: %s", net->error);
    }
    network_journal_write(net);
    network_end(net);
    return 0;

failed:
    if (!net->error[0])
        snprintf(net->error, sizeof net->error, "[network]: %s",
                 error == -ENOMEM ? strerror(ENOMEM) : netlink_error(net->nl));
    memcpy(reason, net->error, sizeof reason);
    network_seen_free(&seen);
    network_rollback(net);
    memcpy(net->error, reason, sizeof reason);
    return error;
}

/* --- Beginning and end --- */

int network_open(struct network *net, struct netlink *nl, const char *state)
{
    *net = (struct network){.nl = nl, .claim = -1};
    if (state[0]) {
        int error = file_make_folder(state);
        if (!error && (size_t)snprintf(net->journal, sizeof net->journal, "%s/network", state) >= sizeof net->journal)
            error = -ENAMETOOLONG;
        if (error) {
            snprintf(net->error, sizeof net->error, "state=%s: %s", state, strerror(-error));
            return error;
        }
    }
    instance_identity(net->identity, sizeof net->identity);
    net->claim = instance_claim(&net->alone);
    if (net->claim < 0)
        net->alone = false;
    return 0;
}

void network_close(struct network *net)
{
    network_end(net);
    free(net->entries);
    free(net->undo);
    free(net->journal_text);
    if (net->claim >= 0)
        close(net->claim);
    *net = (struct network){.claim = -1};
}

int network_stop(struct network *net, bool closed)
{
    network_rollback(net);
    for (size_t i = 0; i < net->count; i++)
        net->entries[i].want = NULL;
    int error = network_sweep(net, closed);
    network_journal_write(net);
    return error;
}

int network_clear(struct network *net)
{
    const struct network_plan nothing = {0};
    int error = net->adopted ? 0 : network_adopt(net, &nothing);

    return error ? error : network_stop(net, false);
}
