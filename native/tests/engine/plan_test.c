#include "engine/plan.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/check.h"

#define KEY "1111111111111111111111111111111111111111111111111111111111111111"
#define HEAD "plan=1\nneeds=wireguard\n"
#define DEVICE "[wireguard wg0]\nprivate_key=" KEY "\n"

static const char whole[] =
    "plan=1\nneeds=wireguard,nat,network\n\n# a comment\n"
    "[engine]\nworkers=2\ncpu=0,1\nmemory=1048576\nlog_level=debug\nlog_format=json\nstate=/var/lib/f%20v\n"
    "control=/run/fv.sock\nfeature_off=udp_gro\non_stop=closed\non_crash=open\n"
    "[wireguard wg0]\nmtu=1380\ndetour=wg1\ntun=true\nsource4=10.7.0.2\nsource6=fd00::2\nprivate_key=" KEY
    "\nlisten_port=1\npublic_key=" KEY "\nendpoint=vpn.example:51820\nallowed_ip=0.0.0.0/0\nallowed_ip=::/0\n"
    "[wireguard wg1]\ntun=false\nprivate_key=" KEY "\n"
    "[nat wg0]\nlan4=192.168.88.0/24\nlan4=192.168.89.0/24\n"
    "[network]\naddress=10.7.0.2/32 dev wg0\naddress=fd00::2/128 dev wg0\n";

static void test_whole(void)
{
    struct plan plan;
    struct plan_error error = {0};
    CHECK_EQ(plan_parse(&plan, whole, sizeof whole - 1, &error), 0);
    CHECK_EQ(plan.engine.workers, 2);
    CHECK_EQ(plan.engine.cpu[1], 1);
    CHECK_EQ(plan.engine.cpu[2], -1);
    CHECK_EQ(plan.engine.memory, 1048576);
    CHECK(plan.engine.log_json && plan.engine.stop_closed && !plan.engine.crash_closed);
    CHECK_STR(plan.engine.state, "/var/lib/f v");
    CHECK_EQ(plan.wireguard_count, 2);
    CHECK_EQ(plan.wireguard[0].mtu, 1380);
    CHECK_STR(plan.wireguard[0].detour, "wg1");
    CHECK(plan.wireguard[0].source4_set && plan.wireguard[0].source6_set && !plan.wireguard[1].tun);
    static const char text[] = "private_key=" KEY "\nlisten_port=1\npublic_key=" KEY
                               "\nendpoint=vpn.example:51820\nallowed_ip=0.0.0.0/0\nallowed_ip=::/0\n";
    CHECK_EQ(plan.wireguard[0].length, sizeof text - 1);
    CHECK_MEM(plan.wireguard[0].text, text, sizeof text - 1);
    CHECK_EQ(plan.wireguard[0].line, 22);
    CHECK_EQ(plan_find(&plan, PLAN_NAT, "wg0")->count, 2);
    CHECK_EQ(plan_find(&plan, PLAN_NETWORK, "")->count, 2);
    CHECK(plan_find(&plan, PLAN_RESOLVER, "") == NULL);
    CHECK_EQ(plan.length, sizeof whole - 1);
    plan_free(&plan);
}

/* Each: a plan that is refused, the line that is named, a word of the reason. */
static void test_refused(void)
{
    static const struct {
        const char *text;
        unsigned line;
        const char *why;
    } cases[] = {
        {"", 0, "plan=1"},
        {"plan=2\nneeds=\n", 1, "version"},
        {"needs=\nplan=1\n", 1, "begins with"},
        {"plan=1\nneeds=teleport\n", 2, "teleport"},
        {HEAD "[castle x]\n", 3, "unknown section"},
        {HEAD "[wireguard]\n", 3, "needs a name"},
        {HEAD "[engine x]\n", 3, "no name"},
        {HEAD "[engine\n", 3, "']'"},
        {HEAD "[engine]\nworkers=0\n", 4, "1 to"},
        {HEAD "[engine]\nworkers=1\nworkers=1\n", 5, "twice"},
        {HEAD "[engine]\nspeed=11\n", 4, "no key"},
        {HEAD "[engine]\n[engine]\n", 4, "twice"},
        {HEAD "[engine]\nworkers\n", 4, "key=value"},
        {HEAD "[engine]\nstate=%4\n", 4, "percent"},
        {HEAD "[engine]\nstate=%00\n", 4, "NUL"},
        {HEAD "[engine]\nlog_level=loud\n", 4, "error, warning"},
        {HEAD "[engine]\ncpu=a\n", 4, "CPU"},
        {HEAD "[wireguard wg0]\n", 3, "private_key"},
        {HEAD "[wireguard wg0]\nlisten_port=1\n", 4, "before private_key"},
        {HEAD "[wireguard a/b]\n", 3, "interface"},
        {HEAD "[wireguard sixteencharacters]\n", 3, "interface"},
        {HEAD "[wireguard wg0]\nsource4=10.0.0.0/8\n", 4, "IPv4"},
        {HEAD "[wireguard wg0]\nsource6=10.0.0.1\n", 4, "IPv6"},
        {HEAD "[wireguard wg0]\ndetour=wg1\nprivate_key=" KEY "\n", 3, "names no"},
        {HEAD "[wireguard wg0]\ndetour=wg0\nprivate_key=" KEY "\n", 3, "circle"},
        {HEAD DEVICE "[nat wg1]\n", 5, "names no"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        struct plan_error error = {0};
        int result = plan_parse(&plan, cases[i].text, strlen(cases[i].text), &error);
        CHECK_EQ(result, -EINVAL);
        CHECK_EQ(error.line, cases[i].line);
        if (!CHECK(strstr(error.text, cases[i].why) != NULL))
            fprintf(stderr, "    case %zu: '%s', said: %u: %s\n", i, cases[i].text, error.line, error.text);
        CHECK(strstr(error.text, KEY) == NULL);
        if (result == 0)
            plan_free(&plan);
    }
}

static void test_limits(void)
{
    struct plan plan;
    struct plan_error error = {0};
    char *long_line = malloc(PLAN_LINE + 100);
    int n = sprintf(long_line, HEAD "[engine]\nstate=");
    memset(long_line + n, 'a', PLAN_LINE);
    CHECK_EQ(plan_parse(&plan, long_line, (size_t)n + PLAN_LINE, &error), -EINVAL);
    CHECK_EQ(error.line, 4);
    CHECK(strstr(error.text, "4096") != NULL);
    CHECK_EQ(plan_parse(&plan, HEAD "a\0b=c\n", sizeof HEAD + 5, &error), -EINVAL);
    free(long_line);
    /* Cut anywhere it is refused or smaller, never read beyond. */
    for (size_t cut = 0; cut < sizeof whole; cut++) {
        char *copy = malloc(cut + 1);
        memcpy(copy, whole, cut);
        char *exact = malloc(cut ? cut : 1);
        memcpy(exact, copy, cut);
        if (plan_parse(&plan, exact, cut, &error) == 0)
            plan_free(&plan);
        free(exact);
        free(copy);
    }
}

int main(void)
{
    test_whole();
    test_refused();
    test_limits();
    return check_done();
}
