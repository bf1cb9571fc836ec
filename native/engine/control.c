/* The engine's own socket (docs/plan.md): the plan in force, statistics, the log ring, a new plan. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crypto/secret.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "io/log.h"
#include "wire/bytes.h"
#include "wire/text.h"

enum { CONTROL_IDLE, CONTROL_GET, CONTROL_SHOW, CONTROL_LOG, CONTROL_SWAP, CONTROL_STOP };

static void control_blob(struct session *session, const char *bytes, size_t n, void *owned)
{
    session->blob.bytes = bytes;
    session->blob.at = 0;
    session->blob.size = n;
    session->blob.owned = owned;
    session_print(session, "length=%zu\nerrno=0\n\n", n);
    session->more = true;
}

static void control_fail(struct session *session, int error, const char *why)
{
    char text[3 * PLAN_ERROR + 1];
    size_t n;
    if (text_percent_encode(why, strlen(why), text, sizeof text, &n) != TEXT_OK)
        text[0] = 0;
    session_print(session, "errno=%d\nerror=%s\n\n", error, text);
}

/* A copy, so that a swap in the middle of the answer does not change what is being sent. */
static bool control_copy(struct session *session, const char *bytes, size_t n)
{
    char *copy = malloc(n + 1);
    if (!copy)
        return false;
    memcpy(copy, bytes, n);
    control_blob(session, copy, n, copy);
    return true;
}

static bool control_run(struct session *session)
{
    struct engine *engine = session->engine;
    int request = session->request;
    session->request = CONTROL_IDLE;
    switch (request) {
    case CONTROL_GET:
        return control_copy(session, engine->plan.text ? engine->plan.text : "", engine->plan.length);
    case CONTROL_LOG: {
        char *ring = malloc(LOG_RING);
        if (!ring)
            return false;
        control_blob(session, ring, log_ring_copy(ring, LOG_RING), ring);
        return true;
    }
    case CONTROL_SHOW: {
        size_t n;
        char *text = engine_stats_text(engine, &n);
        if (!text)
            return false;
        session->blob.bytes = text;
        session->blob.owned = text;
        session->blob.at = 0;
        session->blob.size = n;
        session->more = true;
        return true;
    }
    case CONTROL_STOP:
        session_print(session, "errno=0\n\n");
        engine_stop(engine, "asked by the control socket");
        return true;
    case CONTROL_SWAP:
        if (!session->body_size || session->body_size > PLAN_MAX) {
            control_fail(session, -EINVAL, "swap=1 needs length=N, the bytes of the plan that follow");
            return true;
        }
        session->body = malloc(session->body_size + 1);
        session->body_used = 0;
        return session->body != NULL;
    default:
        return true;
    }
}

static bool control_line(struct session *session, const char *line, size_t n)
{
    static const struct {
        const char *line;
        int request;
    } requests[] = {{"get=1", CONTROL_GET},
                    {"show=stats", CONTROL_SHOW},
                    {"log=1", CONTROL_LOG},
                    {"swap=1", CONTROL_SWAP},
                    {"stop=1", CONTROL_STOP}};
    if (n == 0)
        return control_run(session);
    if (session->request == CONTROL_SWAP && strncmp(line, "length=", 7) == 0) {
        uint64_t length = 0;
        if (text_decimal(line + 7, n - 7, 1, PLAN_MAX, &length) != TEXT_OK)
            length = 0;
        session->body_size = (size_t)length;
        return true;
    }
    if (session->request != CONTROL_IDLE)
        return false;
    for (size_t i = 0; i < ARRAY_COUNT(requests); i++)
        if (strcmp(line, requests[i].line) == 0)
            session->request = requests[i].request;
    session->body_size = 0;
    return session->request != CONTROL_IDLE;
}

static bool control_body(struct session *session)
{
    struct plan_error error = {0};
    int result = engine_swap(session->engine, session->body, session->body_size, &error);
    if (result == 0) {
        session_print(session, "errno=0\n\n");
    } else {
        char why[PLAN_ERROR + 32];
        if (error.line)
            snprintf(why, sizeof why, "line %u: %s", error.line, error.text);
        else
            snprintf(why, sizeof why, "%s", error.text);
        control_fail(session, result, why);
    }
    return true;
}

static void control_blob_free(struct session *session)
{
    if (session->blob.owned) /* a plan holds keys */
        secret_wipe(session->blob.owned, session->blob.size);
    free(session->blob.owned);
    session->blob.owned = NULL;
}

static bool control_more(struct session *session)
{
    size_t n = MIN(session->blob.size - session->blob.at, (size_t)SESSION_OUT);
    memcpy(session->out, session->blob.bytes + session->blob.at, n);
    session->out_used = n;
    session->blob.at += n;
    if (session->blob.at < session->blob.size)
        return true;
    control_blob_free(session);
    return false;
}

static void control_closed(struct session *session)
{
    if (session->more)
        control_blob_free(session);
}

const struct session_kind control_kind = {"control", control_line, control_body, control_more, control_closed};
