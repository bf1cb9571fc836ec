#include "io/route.h"

#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include "tests/check.h"

int main(void)
{
    static const uint8_t own[4] = {127, 0, 0, 1}, other[4] = {127, 0, 0, 2}, foreign[4] = {192, 0, 2, 77};
    int fd = route_open();
    CHECK(fd >= 0);
    CHECK_EQ(route_interface(fd, AF_INET, other, own, 0), (int)if_nametoindex("lo"));
    CHECK_EQ(route_interface(fd, AF_INET, other, own, 77), (int)if_nametoindex("lo"));
    CHECK(route_interface(fd, AF_INET, other, foreign, 0) < 0); /* not an address of ours */
    CHECK_EQ(route_interface(fd, AF_INET, own, own, 0), (int)if_nametoindex("lo")); /* each question has its answer */
    close(fd);
    return check_done();
}
