/* The journal: what must be taken back, written before it is done. network.c's only. */
#ifndef FV_ENGINE_NETWORK_JOURNAL_H
#define FV_ENGINE_NETWORK_JOURNAL_H

#include "engine/network.h"

/* Reads it into a plan: addresses, routes and rules that are ours, sysctls and links with their old values. An absent
 * one, one of another boot or namespace, and one that cannot be read (with a notice) is empty. 0 or -ENOMEM. */
int network_journal_read(struct network *net, struct network_plan *plan);
/* Writes what net->entries would have to be taken back, or removes the file when that is nothing. Failing is worth a
 * notice, not a stop: a full flash must not cut a LAN off. */
void network_journal_write(struct network *net);

#endif
