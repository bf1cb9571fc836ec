/* Lines of [network]: what is taken must be written back as a line that means the same. The first byte chooses the
 * key. */
#include <stdlib.h>
#include <string.h>

#include "engine/network.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct network_plan plan = {0}, again = {0};
    char value[2048], error[NETWORK_ERROR_SIZE], text[400];

    if (size < 1 || size > sizeof value)
        return 0;
    const char *key = network_kind_name((enum network_kind)(data[0] % NETWORK_KIND_COUNT));
    memcpy(value, data + 1, size - 1);
    value[size - 1] = '\0';
    if (network_parse_line(&plan, key, value, error, sizeof error) && (plan.count || !error[0]))
        abort();
    for (size_t i = 0; i < plan.count; i++) {
        network_format(&plan.items[i], text, sizeof text);
        if (network_parse_line(&again, key, text, error, sizeof error) || again.count != i + 1 ||
            !network_item_equal(&plan.items[i], &again.items[i]))
            abort();
    }
    (void)network_plan_check(&plan, error, sizeof error);
    network_plan_free(&plan);
    network_plan_free(&again);
    return 0;
}
