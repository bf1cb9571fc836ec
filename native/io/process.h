/* The process: what a correct first process of a container, and a well-behaved daemon, does once. */
#ifndef FV_IO_PROCESS_H
#define FV_IO_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Resets inherited signal dispositions and mask, sees that descriptors 0..2 are open, closes every other one that is not
 * in keep, raises the descriptor limit, makes the process undumpable (keys are in its memory). */
void process_begin(const int *keep, unsigned keep_count);

/* A descriptor (signalfd) for TERM, INT, HUP, CHLD and USR1, which are blocked from then on; or -errno. */
int process_signals(void);
/* The next signal's number, 0: none. */
int process_signal_read(int fd);
/* Waits for whatever children have ended: orphans come to process 1. */
void process_reap(void);

/* Forks; the parent waits until the child says that it is ready and ends with status 0, or with the child's status when
 * it ended before that. In the child: *ready is to be handed to process_ready. */
void process_daemonize(int *ready);
/* Tells the waiting parent, and lets go of the terminal. */
void process_ready(int ready);

/* Sets the scheduling priority of the process (nice) and lets short sleeps be short. Before process_confine, which
 * takes the right to. 0 or -errno: refused in many containers, and nothing is lost but latency under load. */
int process_priority(int nice);

/* Gives up every capability but CAP_NET_ADMIN, CAP_NET_RAW, CAP_NET_BIND_SERVICE, for good, and the way to new ones
 * (no_new_privs). Before threads start. 0 or -errno; a process that had none is left as it is. */
int process_confine(void);

/* n bytes of entropy from the kernel; waits for its pool only where the kernel has just booted. */
void process_entropy(void *out, size_t n);

/* CPU time of the whole process (ns, user and system), peak and present resident bytes; zeros where /proc is missing. */
struct process_usage {
    uint64_t user, system;
    uint64_t resident, resident_peak, anonymous;
};
void process_usage(struct process_usage *usage);

#endif
