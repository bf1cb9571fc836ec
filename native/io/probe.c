#include "io/probe.h"

#include <string.h>
#include <sys/utsname.h>

#include "io/feature.h"

#if defined(__arm__)
#include <sys/auxv.h>
#ifndef HWCAP_NEON
#define HWCAP_NEON (1 << 12)
#endif
#endif

static void probed_cpu(enum feature feature, bool has)
{
    feature_probed(feature, has, has ? NULL : "this processor has none");
}

static void probe_cpu(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    probed_cpu(FEATURE_AVX2, __builtin_cpu_supports("avx2"));
    probed_cpu(FEATURE_AVX512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512ifma"));
    feature_probed(FEATURE_NEON, false, "another architecture");
#else
    feature_probed(FEATURE_AVX2, false, "another architecture");
    feature_probed(FEATURE_AVX512, false, "another architecture");
#if defined(__aarch64__)
    feature_probed(FEATURE_NEON, true, NULL);
#elif defined(__arm__)
    probed_cpu(FEATURE_NEON, getauxval(AT_HWCAP) & HWCAP_NEON);
#else
    feature_probed(FEATURE_NEON, false, "another architecture");
#endif
#endif
}

void probe_run(unsigned what)
{
    if (what & PROBE_CPU)
        probe_cpu();
    if (what & PROBE_SOCKETS)
        probe_sockets();
    if (what & PROBE_TUN)
        probe_tun();
}

void probe_print(FILE *out)
{
    static const char *const supports[] = {[FEATURE_UNKNOWN] = "unknown", [FEATURE_YES] = "yes", [FEATURE_NO] = "no"};
    struct utsname host;
    int width = 0;

    if (uname(&host) == 0)
        fprintf(out, "Linux %s %s\n\n", host.release, host.machine);
    for (int i = 0; i < FEATURE_COUNT; i++) {
        int n = (int)strlen(feature_names[i]);
        width = n > width ? n : width;
    }
    fprintf(out, "%-*s  %-9s  %-4s  %s\n", width, "feature", "supported", "used", "what it is");
    for (int i = 0; i < FEATURE_COUNT; i++) {
        const struct feature_state *state = &feature_table[i];
        fprintf(out, "%-*s  %-9s  %-4s  %s", width, feature_names[i], supports[state->support],
                feature_on((enum feature)i) ? "yes" : "no", feature_abouts[i]);
        if (state->forced_off)
            fprintf(out, "; forced off");
        if (state->refused)
            fprintf(out, "; refused %u times at run time", state->refusals);
        if (state->why[0])
            fprintf(out, "; %s", state->why);
        fputc('\n', out);
    }
}
