"""Turns `tun_gso_split` of tests/vectors/wireguard.json into a C header: gso_vectors.py JSON HEADER."""

import json
import sys
from pathlib import Path


def array(name: str, hexdigits: str) -> str:
    values = ",".join(str(b) for b in bytes.fromhex(hexdigits))
    return f"static const uint8_t {name}[] = {{{values}}};\n"


def main(source: str, target: str) -> None:
    cases = json.loads(Path(source).read_text())["tun_gso_split"]["cases"]
    out = ["#include <stddef.h>\n#include <stdint.h>\n"]
    rows = []
    for i, case in enumerate(cases):
        out.append(array(f"gso_header_{i}", case["vnet_hdr"]))
        out.append(array(f"gso_packet_{i}", case["packet"]))
        out.append(array(f"gso_segments_{i}", "".join(case["segments"])))
        lengths = ",".join(str(len(s) // 2) for s in case["segments"])
        out.append(f"static const uint16_t gso_lengths_{i}[] = {{{lengths}}};\n")
        rows.append(
            f'{{"{case["name"]}", gso_header_{i}, gso_packet_{i}, sizeof gso_packet_{i}, gso_segments_{i}, '
            f"gso_lengths_{i}, {len(case['segments'])}, {case['gso_size']}}},\n"
        )
    out.append(
        "static const struct gso_vector {\n"
        "    const char *name;\n    const uint8_t *header, *packet;\n    size_t packet_len;\n"
        "    const uint8_t *segments;\n    const uint16_t *lengths;\n    unsigned count, gso_size;\n"
        "} gso_vectors[] = {\n" + "".join(rows) + "};\n"
    )
    Path(target).write_text("".join(out))


main(sys.argv[1], sys.argv[2])
