/* The plan's parser: any text is a plan or an error with a line. */
#include <stdlib.h>
#include <string.h>

#include "engine/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan plan;
    struct plan_error error = {0};
    char *exact = malloc(size ? size : 1);
    memcpy(exact, data, size);
    int result = plan_parse(&plan, exact, size, &error);
    if (result == 0) {
        for (unsigned i = 0; i < plan.wireguard_count; i++)
            if (memchr(plan.wireguard[i].text, 0, plan.wireguard[i].length))
                abort();
        plan_free(&plan);
    } else if (!error.text[0]) {
        abort();
    }
    free(exact);
    return 0;
}
