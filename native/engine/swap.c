/* From the plan in force to another one, without stopping: the difference by object name, all or nothing.
 *
 *   look      the new plan is parsed, every text in it checked against the devices that will take it
 *   prepare   the kill switch, new devices (down), ports and marks of the existing ones, then links, addresses, routes
 *   commit    nothing can fail any more: peers and keys, NAT, carriers, new devices up, old ones gone
 *
 * What fails in `prepare` is undone: old ports opened again, new devices removed, the network rolled back. */
#include <errno.h>
#include <string.h>

#include "engine/engine.h"
#include "io/log.h"

static int check_engine(const struct plan *old, const struct plan *new, struct plan_error *error)
{
    const struct plan_section *section = plan_find(new, PLAN_ENGINE, "");
    unsigned line = section ? section->line : 0;
    const char *what = NULL;
    if (old->engine.workers != new->engine.workers)
        what = "workers";
    else if (memcmp(old->engine.cpu, new->engine.cpu, sizeof old->engine.cpu) != 0)
        what = "cpu";
    else if (old->engine.nice != new->engine.nice)
        what = "nice";
    else if (old->engine.memory != new->engine.memory)
        what = "memory";
    else if (strcmp(old->engine.state, new->engine.state) != 0)
        what = "state";
    else if (strcmp(old->engine.control, new->engine.control) != 0)
        what = "control";
    else if (strcmp(old->engine.feature_off, new->engine.feature_off) != 0)
        what = "feature_off";
    return what ? plan_fail(error, -EBUSY, line, "%s= cannot change while the engine runs: restart it", what) : 0;
}

static int look(struct engine *engine, const struct plan *plan, struct plan_error *error)
{
    int result = check_engine(&engine->plan, plan, error);
    if (!result)
        result = engine_names_check(plan, error);
    for (struct device *device = engine->devices; device; device = device->next)
        device->kept = device->fresh = device->moved = false;
    for (unsigned i = 0; i < plan->wireguard_count && !result; i++) {
        const struct plan_wireguard *wanted = &plan->wireguard[i];
        struct device *device = device_find(engine, wanted->name);
        if (device) {
            device->kept = true;
            result = device_plan_check(device, wanted, error);
        }
        if (!result)
            result = device_plan_nat(device, wanted, plan_find(plan, PLAN_NAT, wanted->name), true, error);
    }
    return result;
}

static void undo(struct engine *engine)
{
    struct plan_error ignored = {0};
    for (struct device *device = engine->devices, *next; device; device = next) {
        next = device->next;
        if (device->fresh)
            device_free(device);
        else if (device->moved && device_plan_sockets_undo(device, &ignored))
            log_error("%s: the old sockets could not be given back: %s", device->tunnel->config.name, ignored.text);
    }
}

static int prepare(struct engine *engine, const struct plan *plan, const struct network_plan *network,
                   struct plan_error *error)
{
    int result = network_apply(&engine->network, network, NETWORK_GUARD);
    if (result)
        return engine_network_fail(engine, result, error);
    for (unsigned i = 0; i < plan->wireguard_count && !result; i++) {
        const struct plan_wireguard *wanted = &plan->wireguard[i];
        struct device *device = device_find(engine, wanted->name);
        if (device)
            device->moved = true;
        result = device ? device_plan_sockets(device, wanted, error) : device_plan_new(engine, wanted, error);
    }
    if (result) {
        undo(engine);
        network_rollback(&engine->network);
        return result;
    }
    result = network_apply(&engine->network, network, NETWORK_DEVICES);
    if (result) {
        engine_network_fail(engine, result, error);
        undo(engine);
    }
    return result;
}

static void commit(struct engine *engine, const struct plan *plan)
{
    struct plan_error error = {0};
    for (unsigned i = 0; i < plan->wireguard_count; i++) {
        const struct plan_wireguard *wanted = &plan->wireguard[i];
        struct device *device = device_find(engine, wanted->name);
        if (!device->fresh && device_plan_sync(device, wanted, &error)) /* it was checked: only for want of memory */
            log_error("%s: %s", wanted->name, error.text);
    }
    for (unsigned i = 0; i < plan->wireguard_count; i++) {
        const struct plan_wireguard *wanted = &plan->wireguard[i];
        struct device *device = device_find(engine, wanted->name);
        struct device *carrier = *wanted->detour ? device_find(engine, wanted->detour) : NULL;
        int result = device_plan_nat(device, wanted, plan_find(plan, PLAN_NAT, wanted->name), false, &error);
        if (result) /* only for want of memory: the flows of the old table go on */
            log_error("%s: %s", wanted->name, error.text);
        result = tunnel_carry_by(device->tunnel, carrier ? carrier->tunnel : NULL);
        if (!result && device->fresh)
            result = tunnel_link_changed(device->tunnel);
        if (result)
            log_error("%s: cannot open its sockets: %s", wanted->name, strerror(-result));
        device->kept = true;
        device->fresh = false;
    }
    for (struct device *device = engine->devices, *next; device; device = next) {
        next = device->next;
        if (!device->kept)
            device_free(device);
    }
}

int engine_swap(struct engine *engine, const char *text, size_t n, struct plan_error *error)
{
    struct plan plan;
    struct network_plan network;
    if (!engine->plan_running)
        return plan_fail(error, -EINVAL, 0, "this engine was started without a plan");
    int result = plan_parse(&plan, text, n, error);
    if (result)
        return result == -ENOMEM ? plan_fail(error, result, 0, "out of memory") : result;
    result = engine_network_plan(&plan, &network, error);
    if (!result)
        result = look(engine, &plan, error);
    if (!result)
        result = prepare(engine, &plan, &network, error);
    if (result) {
        network_plan_free(&network);
        plan_free(&plan);
        return result;
    }
    commit(engine, &plan);
    if (engine_names_configure(engine, &plan, error)) /* it was checked: only for want of memory */
        log_error("name servers: %s", error->text);
    network_plan_free(&network);
    plan_free(&engine->plan);
    engine->plan = plan;
    log_setup((enum log_level)plan.engine.log_level, plan.engine.log_json);
    log_info("a new plan is in force");
    return 0;
}
