"""Writes the contract's header as of a later minor version, in which every growable struct has more fields.

    python3 newer_abi.py ABI_H NEWER_ABI_H

A backend that is compiled against this header fills in the added fields.
"""

import re
import sys

text = open(sys.argv[1]).read()
text, n = re.subn(r"#define MT_ABI_MINOR \d+u", "#define MT_ABI_MINOR 99u", text)
assert n == 1
grown = []


def grow(match: re.Match) -> str:
    if match[1] == "mt_args_header":  # part of other structs, which its growth would change
        return match[0]
    grown.append(match[1])
    return f"{match[1]} {match[2]}  void* newer[3];\n}}"


text = re.sub(r"(?<=struct )(mt_\w+) (\{\n  size_t size;.*?\n)\}", grow, text, flags=re.S)
assert {"mt_backend", "mt_candidate", "mt_device_ops", "mt_ctx", "mt_host", "mt_program"} <= set(grown), grown
open(sys.argv[2], "w").write(text)
