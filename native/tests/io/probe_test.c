/* The probes on the machine that runs the test: every feature gets an answer or a reason, known kernels give known
 * answers, and a forced-off feature is still probed. */
#include <stdlib.h>
#include <sys/utsname.h>

#include "io/feature.h"
#include "io/probe.h"
#include "tests/check.h"

static bool kernel_at_least(int major, int minor)
{
    struct utsname host;
    int a = 0, b = 0;

    return uname(&host) == 0 && sscanf(host.release, "%d.%d", &a, &b) == 2 && (a > major || (a == major && b >= minor));
}

static void expect(enum feature feature, bool since)
{
    const struct feature_state *state = &feature_table[feature];

    if (state->support == FEATURE_UNKNOWN)
        return; /* no loopback, or not permitted: the reason is checked in main */
    if (state->support == FEATURE_NO && getenv("FV_EMULATED"))
        return; /* an emulator of user programs names the kernel below it and passes on less than that can */
    if (!CHECK((state->support == FEATURE_YES) == since))
        fprintf(stderr, "    %s: %s\n", feature_names[feature], state->why);
}

int main(void)
{
    char unknown[32], *text = NULL;
    size_t n = 0;
    unsigned lines = 0;

    CHECK_EQ(feature_force_off("udp_gro,splice", unknown, sizeof unknown), 0);
    probe_run(PROBE_ALL);
    for (int i = 0; i < FEATURE_COUNT; i++) {
        const struct feature_state *state = &feature_table[i];
        /* 1: no answer without a reason */
        if (!CHECK(state->support == FEATURE_YES || state->why[0]))
            fprintf(stderr, "    %s\n", feature_names[i]);
        /* 2: used only what is not refused */
        CHECK(!(feature_on((enum feature)i) && state->support == FEATURE_NO));
    }
    /* 3: what each kernel offers */
    expect(FEATURE_UDP_SEGMENT, kernel_at_least(4, 18));
    expect(FEATURE_UDP_GRO, kernel_at_least(5, 0));
    expect(FEATURE_REUSEPORT_PROG, kernel_at_least(4, 5));
    expect(FEATURE_SPLICE, true);
    expect(FEATURE_PKTINFO, true);
    expect(FEATURE_RECV_TOS, true);
    expect(FEATURE_TUN_VNET_HDR, true);
    expect(FEATURE_TUN_TSO, true);
    expect(FEATURE_TUN_USO, kernel_at_least(6, 2));
    /* 4: forced off is not the same as not there */
    CHECK(!feature_on(FEATURE_UDP_GRO));
    CHECK(!feature_on(FEATURE_SPLICE));
    CHECK(feature_table[FEATURE_SPLICE].support != FEATURE_NO);
    /* 5: refused at run time */
    feature_refused(FEATURE_PKTINFO, "Invalid argument");
    feature_refused(FEATURE_PKTINFO, "Invalid argument");
    CHECK(!feature_on(FEATURE_PKTINFO));
    CHECK_EQ(feature_table[FEATURE_PKTINFO].refusals, 2);
    /* 6: the table has a line per feature and two above */
    FILE *out = open_memstream(&text, &n);
    CHECK(out != NULL);
    probe_print(out);
    fclose(out);
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    CHECK_EQ(lines, FEATURE_COUNT + 3);
    CHECK(strstr(text, "; forced off") != NULL);
    CHECK(strstr(text, "; refused 2 times at run time; Invalid argument") != NULL);
    free(text);
    return check_done();
}
