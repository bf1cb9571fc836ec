"""Runs a program to which this kernel seems to lack a feature: `restrict.py udp_gro,tun_uso -- PROGRAM ARGUMENTS`.

A seccomp filter answers the system calls by which a program asks for the feature as a kernel without it would:

    udp_segment   setsockopt, getsockopt (SOL_UDP, UDP_SEGMENT)      ENOPROTOOPT     (a control message with a
    udp_gro       setsockopt, getsockopt (SOL_UDP, UDP_GRO)          ENOPROTOOPT      size is behind a pointer, out
    tun_uso       ioctl TUNSETOFFLOAD with TUN_F_USO4 or TUN_F_USO6  EINVAL           of a filter's reach: a program
                                                                                      that never asks is not held)

So the same restriction can be put on every implementation, with no switch of its own.
"""

import ctypes
import os
import platform
import struct
import sys

# Numbers of <linux/bpf_common.h>, <linux/seccomp.h>, <linux/audit.h>.
LD_W_ABS, JEQ_K, JSET_K, RET_K = 0x20, 0x15, 0x45, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ENOPROTOOPT, EINVAL = 92, 22
SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
TUNSETOFFLOAD, TUN_F_USO4, TUN_F_USO6 = 0x400454D0, 0x20, 0x40

# machine -> (audit architecture, setsockopt, getsockopt, ioctl)
CALLS = {"x86_64": (0xC000003E, 54, 55, 16), "aarch64": (0xC00000B7, 208, 209, 29)}

# struct seccomp_data: the call's number at 0, the architecture at 4, the low halves of the arguments from 16 on.
NUMBER, ARCHITECTURE, ARGUMENT_1, ARGUMENT_2 = 0, 4, 16 + 8, 16 + 16


def instruction(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def rule(number: int, tests: list[tuple[int, int, int]], errno: int) -> list[bytes]:
    """`errno` for this call when every test (offset, opcode, value) holds; else on to what follows."""
    steps = [(NUMBER, JEQ_K, number), *tests]
    lines = []
    for index, (offset, code, value) in enumerate(steps):
        rest = 2 * (len(steps) - index - 1) + 1  # instructions of this rule after this jump
        lines += [instruction(LD_W_ABS, 0, 0, offset), instruction(code, 0, rest, value)]
    return [*lines, instruction(RET_K, 0, 0, ERRNO | errno)]


def program(features: list[str], architecture: str) -> bytes:
    audit, setsockopt, getsockopt, ioctl = CALLS[architecture]
    # Another ABI's calls (32-bit on 64-bit) have other numbers and are let through.
    lines = [
        instruction(LD_W_ABS, 0, 0, ARCHITECTURE),
        instruction(JEQ_K, 1, 0, audit),
        instruction(RET_K, 0, 0, ALLOW),
    ]
    for feature in features:
        if feature in {"udp_gro", "udp_segment"}:
            option = UDP_GRO if feature == "udp_gro" else UDP_SEGMENT
            tests = [(ARGUMENT_1, JEQ_K, SOL_UDP), (ARGUMENT_2, JEQ_K, option)]
            lines += rule(setsockopt, tests, ENOPROTOOPT) + rule(getsockopt, tests, ENOPROTOOPT)
        elif feature == "tun_uso":
            tests = [(ARGUMENT_1, JEQ_K, TUNSETOFFLOAD), (ARGUMENT_2, JSET_K, TUN_F_USO4 | TUN_F_USO6)]
            lines += rule(ioctl, tests, EINVAL)
        else:
            raise ValueError(f"no feature is called {feature}")
    return b"".join([*lines, instruction(RET_K, 0, 0, ALLOW)])


def install(features: list[str]) -> None:
    code = program(features, platform.machine())
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(filter_program), 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")


if __name__ == "__main__":
    install(sys.argv[1].split(","))
    os.execvp(sys.argv[3], sys.argv[3:])
