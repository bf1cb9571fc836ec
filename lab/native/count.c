/* A plugin of QEMU's user emulation: counts executed instructions and says how many at exit.
 *
 *   qemu-aarch64 -plugin count.so -d plugin PROGRAM...     ->  instructions 123456
 *
 * Distributions ship QEMU without its plugin header, so the few declarations used are written out here, as interface
 * version 1 has them (QEMU's docs/devel/tcg-plugins). One thread is counted exactly; several would race. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
enum { INLINE_ADD_U64 = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*translated)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int operation, void *counter, uint64_t add);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*end)(plugin_id, void *), void *user);
void qemu_plugin_outs(const char *text);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t instructions;

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &instructions, qemu_plugin_tb_n_insns(tb));
}

static void end(plugin_id id, void *user)
{
    char text[48];
    (void)id;
    (void)user;
    snprintf(text, sizeof text, "instructions %llu\n", (unsigned long long)instructions);
    qemu_plugin_outs(text);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    (void)argc;
    (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, end, NULL);
    return 0;
}
