/* Toy layers that stand for the real ones in the relay's test: each has the one habit that makes its kind hard.
 *
 *   toy_drip    below everything else: one byte, or a random few, a call
 *   toy_frame   TLS's habit: whole 16 KiB records, a hello each way before anything is taken, an end mark, reads ahead
 *   toy_detach  Vision's habit: wraps the first bytes of each direction, then takes the layer below it away, in mid-stream
 *   toy_mux     AnyTLS's habit (windows: false): many streams on one connection, no windows, no half-close;
 *               QUIC's habit (windows: true): credit from the budget, half-close, reset and stop for each direction */
#ifndef FV_TESTS_FLOW_TOY_H
#define FV_TESTS_FLOW_TOY_H

#include "wire/stream.h"

static inline uint32_t toy_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Constructors take the stream below over and return the new top; NULL never (the tests have memory). */

/* Bytes a call at most: 0: no bound; -1: a random number from 1 to 3,000. */
struct stream *toy_drip(struct stream *below, int read_most, int write_most, uint32_t seed);
struct stream *toy_frame(struct stream *below);
/* Switches after this many bytes of each direction. */
/* deep: the layer below (a toy_frame) is detached too. */
struct stream *toy_detach(struct stream *below, size_t write_at, bool deep);

enum { TOY_MUX_BOUND = 32768, TOY_MUX_FRAME = 2048 };
struct toy_mux;
struct toy_mux *toy_mux_new(struct stream *below, bool windows, uint64_t patience_ns);
/* Called for each stream that the peer opens. */
void toy_mux_on_open(struct toy_mux *mux, void (*opened)(void *context, struct stream *stream, unsigned id),
                     void *context);
struct stream *toy_mux_dial(struct toy_mux *mux, unsigned id);
uint64_t toy_mux_next(const struct toy_mux *mux);
void toy_mux_tick(struct toy_mux *mux, uint64_t now);
unsigned toy_mux_resets(const struct toy_mux *mux);
size_t toy_mux_peak(const struct toy_mux *mux); /* most bytes that one stream ever held */
/* The streams must be closed before. */
void toy_mux_close(struct toy_mux *mux);

#endif
