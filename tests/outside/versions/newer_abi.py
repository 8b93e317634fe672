"""The contract's header as a later minor version may have it: every struct that may grow has grown.

    python3 newer_abi.py ABI_H NEWER_ABI_H

What is appended to the structs that a backend fills in is set by whoever compiles against it, as by one that uses
what is new.
"""

import re
import sys

text = open(sys.argv[1]).read()
text, n = re.subn(r"#define MT_ABI_MINOR \d+u", "#define MT_ABI_MINOR 99u", text)
assert n == 1
grown = []


def grow(match: re.Match) -> str:
    if match[1] == "mt_args_header":  # lies in other structs: its size is theirs
        return match[0]
    grown.append(match[1])
    return f"{match[1]} {match[2]}  void* newer[3];\n}}"


text = re.sub(r"(?<=struct )(mt_\w+) (\{\n  size_t size;.*?\n)\}", grow, text, flags=re.S)
assert {"mt_backend", "mt_candidate", "mt_device_ops", "mt_ctx", "mt_host", "mt_program"} <= set(grown), grown
open(sys.argv[2], "w").write(text)
