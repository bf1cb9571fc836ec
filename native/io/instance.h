/* Which fv is this one: whether another runs in the same network namespace, and of which boot and namespace a note in
 * the state folder speaks. */
#ifndef FV_IO_INSTANCE_H
#define FV_IO_INSTANCE_H

#include <stdbool.h>
#include <stddef.h>

/* Takes one of 16 abstract Unix socket names of this network namespace, held until the descriptor is closed (a crash
 * closes it too). Returns the descriptor or -errno; *alone says that no other fv holds one. A stranger who takes the
 * names can only make fv think that it is not alone. */
int instance_claim(bool *alone);

/* "BOOT-ID net:[INODE]": changes with a reboot and with another network namespace. "" when it cannot be told. */
void instance_identity(char *text, size_t size);

#endif
