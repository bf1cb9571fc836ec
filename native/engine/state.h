/* What outlives the process, in the plan's state folder: the last TAI64N stamp of each device. A stamp belongs to a private
 * key; the file names the public one, so that a new key begins anew. */
#ifndef FV_ENGINE_STATE_H
#define FV_ENGINE_STATE_H

#include <stdint.h>

#include "flow/tunnel.h"

/* folder "": none is kept. Failures are logged: a stamp that cannot be written costs a reboot with a bad clock. */
void state_write_stamp(const char *folder, const struct tunnel *tunnel, const uint8_t stamp[WG_STAMP_SIZE]);
void state_read_stamp(const char *folder, struct tunnel *tunnel);

#endif
