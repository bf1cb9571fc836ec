/* What this kernel and CPU really do, found by doing it once at start: a GSO send that arrives as its parts, a GRO
 * receive that joins them, a steered reuseport group, a splice, a super-packet written to a TUN. The results go into the
 * feature table; `fvd --probe` prints it.
 *
 * Nothing leaves the host: sockets are on loopback, the TUN is a throw-away device without an address, and what is
 * written into it has TTL 0. Without privileges the rest is still probed, and the table says what could not be tried. A
 * feature that is forced off is probed all the same: what the kernel can and what the engine uses are two columns. */
#ifndef FV_IO_PROBE_H
#define FV_IO_PROBE_H

#include <stdio.h>

enum { PROBE_CPU = 1, PROBE_SOCKETS = 2, PROBE_TUN = 4, PROBE_ALL = 7 };

/* Fills feature_table; takes some milliseconds, a TUN some tens of them. */
void probe_run(unsigned what);

/* The feature table with the kernel's release, aligned, one feature a line. */
void probe_print(FILE *out);

/* Parts of probe_run. */
void probe_sockets(void);
void probe_tun(void);

#endif
