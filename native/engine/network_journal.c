#include "engine/network_journal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "wire/bytes.h"

#define JOURNAL_LIMIT (4u << 20) /* bytes; a line is at most 400, so some 10,000 objects */
#define JOURNAL_LINE 400
#define JOURNAL_HEAD "fv-network=1\n"

__attribute__((format(printf, 2, 3))) static void journal_notice(struct network *net, const char *format, ...)
{
    char text[PATH_MAX + 200];
    va_list arguments;

    if (!net->notice)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    net->notice(net->context, text);
}

int network_journal_read(struct network *net, struct network_plan *plan)
{
    char *text, error[NETWORK_ERROR_SIZE];
    bool valid = false;

    *plan = (struct network_plan){0};
    if (!net->journal[0])
        return 0;
    ssize_t n = file_read_new(net->journal, JOURNAL_LIMIT, &text);
    if (n == -ENOENT)
        return 0;
    if (n < 0) {
        journal_notice(net, "%s: %s; old values are not restored", net->journal, strerror((int)-n));
        return n == -ENOMEM ? -ENOMEM : 0;
    }
    char *next;
    for (char *line = text; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        char *equal = strchr(line, '=');
        if (!equal)
            continue;
        *equal = '\0';
        if (strcmp(line, "fv-network") == 0)
            continue;
        if (strcmp(line, "of") == 0) {
            valid = net->identity[0] && strcmp(equal + 1, net->identity) == 0;
            continue;
        }
        /* After a reboot, or in another namespace, none of this is there any more. */
        if (!valid)
            break;
        int result = network_parse_line(plan, line, equal + 1, error, sizeof error);
        if (result == -ENOMEM) {
            free(text);
            return result;
        }
        if (result)
            journal_notice(net, "%s: %s", net->journal, error);
    }
    free(text);
    return 0;
}

/* The line that would be read back, or false where there is nothing to take back. */
static bool journal_line(const struct network_entry *entry, char *line, size_t size)
{
    struct network_item item = entry->item;

    if (!entry->ours && !entry->want)
        return false;
    if (item.kind == NETWORK_SYSCTL) {
        if (!entry->old_value[0])
            return false;
        memcpy(item.sysctl.value, entry->old_value, sizeof item.sysctl.value);
    } else if (item.kind == NETWORK_LINK) {
        item.link = entry->old_link;
        if (item.link.up < 0 && !item.link.mtu && !item.link.txqueuelen)
            return false;
    } else if (item.kind == NETWORK_ADDRESS && !entry->ours && !entry->item.address.index) {
        return false; /* somebody else's, or not looked at yet */
    }
    network_format(&item, line, size);
    return true;
}

void network_journal_write(struct network *net)
{
    char line[JOURNAL_LINE];
    bool any = false;

    if (!net->journal[0])
        return;
    size_t size = sizeof JOURNAL_HEAD + sizeof net->identity + 8 + net->count * (JOURNAL_LINE + 16);
    char *text = malloc(size);
    if (!text) {
        journal_notice(net, "%s: %s", net->journal, strerror(ENOMEM));
        return;
    }
    size_t n = (size_t)snprintf(text, size, JOURNAL_HEAD "of=%s\n", net->identity);
    for (size_t i = 0; i < net->count; i++) {
        if (!journal_line(&net->entries[i], line, sizeof line))
            continue;
        n += (size_t)snprintf(text + n, size - n, "%s=%s\n", network_kind_name(net->entries[i].item.kind), line);
        any = true;
    }
    if (net->journal_text && strcmp(net->journal_text, any ? text : "") == 0) {
        free(text);
        return;
    }
    int error = any ? file_write(net->journal, text, n, 0600) : file_remove(net->journal);
    if (error)
        journal_notice(net, "%s: %s; a crash would not be taken back in full", net->journal, strerror(-error));
    free(net->journal_text);
    if (!any)
        text[0] = '\0';
    net->journal_text = error ? NULL : text;
    if (error)
        free(text);
}
