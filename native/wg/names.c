/* Names of drops and actions, for counters and logs. */
#include "wg/wg.h"

#include "wire/bytes.h"

static const char *const drop_names[] = {
#define X(name, text) [WG_DROP_##name] = text,
    WG_DROPS(X)
#undef X
};
_Static_assert(ARRAY_COUNT(drop_names) == WG_DROP_COUNT, "every drop has a name");

static const char *const action_names[] = {
    [WG_ACTION_NONE] = "none",
    [WG_ACTION_SEND] = "send",
    [WG_ACTION_KEEPALIVE] = "keepalive",
    [WG_ACTION_FLUSH] = "flush",
    [WG_ACTION_DROP_STAGED] = "drop_staged",
    [WG_ACTION_RESOLVE] = "resolve",
    [WG_ACTION_PERSIST] = "persist",
};
_Static_assert(ARRAY_COUNT(action_names) == WG_ACTION_COUNT, "every action has a name");

const char *wg_drop_name(enum wg_drop drop)
{
    return drop < WG_DROP_COUNT ? drop_names[drop] : "?";
}

const char *wg_action_name(enum wg_action action)
{
    return action < WG_ACTION_COUNT ? action_names[action] : "?";
}
