#include "io/feature.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/log.h"

const char *const feature_names[FEATURE_COUNT] = {
#define X(id, name, about) name,
    FEATURES(X)
#undef X
};
const char *const feature_abouts[FEATURE_COUNT] = {
#define X(id, name, about) about,
    FEATURES(X)
#undef X
};

struct feature_state feature_table[FEATURE_COUNT];
bool feature_used[FEATURE_COUNT] = {[0 ... FEATURE_COUNT - 1] = true};

static void update(enum feature feature)
{
    const struct feature_state *state = &feature_table[feature];
    feature_used[feature] = !state->forced_off && !state->refused && state->support != FEATURE_NO;
}

int feature_parse(const char *name, size_t n)
{
    for (int i = 0; i < FEATURE_COUNT; i++)
        if (strlen(feature_names[i]) == n && memcmp(feature_names[i], name, n) == 0)
            return i;
    return -1;
}

int feature_force_off(const char *names, char *unknown, size_t unknown_size)
{
    while (*names) {
        size_t n = strcspn(names, ", ");
        int feature = feature_parse(names, n);
        bool all = n == 3 && memcmp(names, "all", 3) == 0;
        if (n && feature < 0 && !all) {
            if (unknown)
                snprintf(unknown, unknown_size, "%.*s", (int)n, names);
            return -EINVAL;
        }
        for (int i = 0; n && i < FEATURE_COUNT; i++)
            if (all || i == feature) {
                feature_table[i].forced_off = true;
                update((enum feature)i);
            }
        names += n;
        names += *names != 0;
    }
    return 0;
}

void feature_probed(enum feature feature, bool supported, const char *why)
{
    struct feature_state *state = &feature_table[feature];
    state->support = supported ? FEATURE_YES : FEATURE_NO;
    snprintf(state->why, sizeof state->why, "%s", why ? why : "");
    update(feature);
}

void feature_refused(enum feature feature, const char *why)
{
    struct feature_state *state = &feature_table[feature];
    state->refusals++;
    if (state->refused)
        return;
    state->refused = true;
    snprintf(state->why, sizeof state->why, "%s", why ? why : "");
    update(feature);
    log_warning("%s is refused by this kernel from now on: %s", feature_names[feature], state->why);
}
