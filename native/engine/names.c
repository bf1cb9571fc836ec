/* Host names of endpoints: known ones from the plan's [resolver]. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "io/log.h"
#include "wire/addr.h"

int engine_names_init(struct engine *engine, const struct plan *plan, struct plan_error *error)
{
    (void)engine, (void)plan, (void)error;
    return 0;
}

void engine_names_free(struct engine *engine)
{
    (void)engine;
}

void engine_resolve(struct engine *engine, struct tunnel *tunnel, struct wg_peer *peer)
{
    const struct plan_section *section = plan_find(&engine->plan, PLAN_RESOLVER, "");
    const char *host = wg_peer_host(peer), *colon = host ? strrchr(host, ':') : NULL;
    for (unsigned i = 0; section && colon && i < section->count; i++) {
        const struct plan_line *line = &section->lines[i];
        size_t n = (size_t)(colon - host);
        struct addr a;
        if (strcmp(line->key, "host") != 0 || strncmp(line->value, host, n) != 0 || line->value[n] != ' ' ||
            addr_parse_ip(&a, line->value + n + 1, strlen(line->value + n + 1)) != TEXT_OK)
            continue;
        struct wg_endpoint e = {.family = a.family, .port = (uint16_t)atoi(colon + 1), .scope = a.scope};
        memcpy(e.address, a.ip, sizeof e.address);
        wg_peer_set_endpoint(peer, &e, tunnel_now(&engine->workers.worker[0]));
        return;
    }
    log_warning("%s: the endpoint %s is not known", tunnel->config.name, host ? host : "?");
}

void engine_resolve_forget(struct engine *engine, const struct tunnel *tunnel)
{
    (void)engine, (void)tunnel;
}
