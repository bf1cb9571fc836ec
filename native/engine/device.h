/* A WireGuard device of the engine: the tunnel, its UAPI socket, its NAT. */
#ifndef FV_ENGINE_DEVICE_H
#define FV_ENGINE_DEVICE_H

#include "engine/plan.h"
#include "engine/session.h"
#include "flow/tunnel.h"

struct device {
    struct device *next;
    struct engine *engine;
    struct tunnel *tunnel;
    struct session_listener uapi;
    struct wake watch;       /* WAKE_INOTIFY: the socket's file was deleted */
    uint32_t nat_entries;    /* of the table in use; 0: none */
    uint64_t nat_seed;
    uint32_t mark_before;    /* of the swap under way */
    uint16_t port_before;
    bool fresh;              /* made by the swap under way */
    bool moved;              /* its sockets were changed by the swap under way */
    bool kept;               /* named by the plan of the swap under way */
};

/* Appended to the engine's list, not listening and down; NULL with *error. */
struct device *device_new(struct engine *engine, const struct tunnel_config *config, int *error);
struct device *device_find(const struct engine *engine, const char *name);
/* What is carried by it must have gone, or been given to another carrier, before. */
void device_free(struct device *device);
/* WireGuard's socket; 0 or -errno. adopted_fd: -1, or one that somebody else has made. */
int device_listen(struct device *device, int adopted_fd);

/* From a plan: makes the device and gives it its configuration; 0 or -errno with *error. */
int device_plan_new(struct engine *engine, const struct plan_wireguard *wanted, struct plan_error *error);
/* Only looks whether an existing device can become what the plan says. */
int device_plan_check(struct device *device, const struct plan_wireguard *wanted, struct plan_error *error);
/* Opens the port and sets the mark that the plan says, and puts the old ones back. */
int device_plan_sockets(struct device *device, const struct plan_wireguard *wanted, struct plan_error *error);
int device_plan_sockets_undo(struct device *device, struct plan_error *error);
/* Makes peers, keys and port equal to the plan's text; sessions of unchanged peers stay. */
int device_plan_sync(struct device *device, const struct plan_wireguard *wanted, struct plan_error *error);
/* Reads a [nat] section (NULL: none) and translates by it from now on. With `check` only looks. */
int device_plan_nat(struct device *device, const struct plan_wireguard *wanted, const struct plan_section *section,
                    bool check, struct plan_error *error);

int plan_fail(struct plan_error *error, int result, unsigned line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
