"""Checks that every option of a module or function has a builder's function: the fields of the structs *Args of the
headers in nn are the names in MYTORCH_OPTION.

Usage: options_test.py FOLDER
"""

import pathlib
import re
import sys

headers = {path.name: path.read_text() for path in pathlib.Path(sys.argv[1]).glob("*.h")}
builders = set(re.findall(r"MYTORCH_OPTION\((\w+)\)", headers["options.h"])) - {"name"}
fields = {
    field: struct
    for name, text in headers.items()
    if name != "init.h"
    for struct, body in re.findall(r"^struct (\w+Args) \{\n(.*?)^\};", text, re.M | re.S)
    for field in re.findall(r"^  [^/\n]*?\b(\w+) = ", body, re.M)
}
failures = [f"{fields[name]}::{name} has no MYTORCH_OPTION in options.h" for name in sorted(set(fields) - builders)]
failures += [f"MYTORCH_OPTION({name}) is a field of no struct" for name in sorted(builders - set(fields))]
print("\n".join(failures) or f"{len(fields)} options have builders")
sys.exit(bool(failures) or not fields)
