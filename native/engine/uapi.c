/* WireGuard's configuration protocol on /var/run/wireguard/NAME.sock: what `wg` speaks. The lines are the core's; here is
 * only the conversation: "get=1", "set=1", a blank line at the end of each, errno= at the end of each answer. */
#include <errno.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/session.h"

enum { UAPI_IDLE, UAPI_GET, UAPI_SET };

static void uapi_end_set(struct session *session)
{
    int error = wg_uapi_set_end(&session->set, session->error == 0);
    if (!session->error)
        session->error = error;
    tunnel_kick(session->device->tunnel);
}

static bool uapi_line(struct session *session, const char *line, size_t n)
{
    struct tunnel *tunnel = session->device->tunnel;
    const struct wg_now *now = tunnel_now(&session->engine->workers.worker[0]);
    switch (session->request) {
    case UAPI_GET: /* what follows get=1 up to the blank line says nothing */
        if (n)
            return true;
        wg_uapi_get_begin(&session->get, tunnel->core);
        session->more = true;
        return true;
    case UAPI_SET:
        session->set.now = now;
        if (n) {
            if (!session->error)
                session->error = wg_uapi_set_line(&session->set, line, n);
            return true;
        }
        uapi_end_set(session);
        session_print(session, "errno=%d\n\n", session->error);
        session->request = UAPI_IDLE;
        return true;
    default:
        if (strcmp(line, "get=1") == 0) {
            session->request = UAPI_GET;
        } else if (strcmp(line, "set=1") == 0) {
            session->request = UAPI_SET;
            session->error = 0;
            wg_uapi_set_begin(&session->set, tunnel->core, now, WG_UAPI_SET, 0);
        } else {
            return n == 0; /* neither: whoever this is speaks something else */
        }
        return true;
    }
}

static bool uapi_more(struct session *session)
{
    size_t n = wg_uapi_get_read(&session->get, session->out, SESSION_OUT);
    session->out_used = n;
    if (n)
        return true;
    wg_uapi_get_end(&session->get);
    session->request = UAPI_IDLE;
    session_print(session, "errno=0\n\n");
    return false;
}

static bool uapi_body(struct session *session)
{
    (void)session;
    return false;
}

static void uapi_closed(struct session *session)
{
    if (session->request == UAPI_SET)
        uapi_end_set(session); /* what came before the end stays in force, line by line */
    else if (session->more)
        wg_uapi_get_end(&session->get);
}

const struct session_kind uapi_kind = {"WireGuard", uapi_line, uapi_body, uapi_more, uapi_closed};
