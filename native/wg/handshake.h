/* Handshake messages in their context: which peer, which macs, which stamp, what follows. noise.c has
 * their contents. */
#ifndef FV_WG_HANDSHAKE_H
#define FV_WG_HANDSHAKE_H

#include "wg/peer.h"

/* The initiation that is pending for the peer: true with WG_ACTION_SEND, or with WG_ACTION_PERSIST and the initiation
 * still pending; false: it cannot be made, and it is pending no longer. */
bool wg_send_initiation(struct wg_peer *peer, const struct wg_now *now, struct wg_output *out);

#endif
