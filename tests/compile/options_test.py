"""Checks that every option of a module, function, optimizer or data loader has a builder's function: the fields of the
structs *Args of the headers are the names in MYTORCH_OPTION_NAMES.

Usage: options_test.py FOLDER      with mytorch/nn
"""

import pathlib
import re
import sys

folder = pathlib.Path(sys.argv[1])
paths = [*folder.glob("*.h"), *folder.glob("optim/*.h"), folder.parent / "data.h"]
headers = {str(path.relative_to(folder.parent)): path.read_text() for path in paths}
builders = set(re.findall(r"\bX\((\w+)\)", headers["nn/options.h"]))
# The structs that builders are made of; others, such as GenerateArgs, have designated initializers only.
built = {
    struct
    for text in headers.values()
    for struct in re.findall(r"\b(?:Options|OptimizerOptionsOf|OptionSetters)<(?:\w+, )?(\w+Args)\b", text)
}
fields = [
    (field, struct)
    for text in headers.values()
    for struct, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S)
    for field in re.findall(r"^  [^/\n]*?\b(\w+) = ", body, re.M)
]
options = {field: struct for field, struct in fields if struct in built}
failures = [f"{options[name]}::{name} is not in MYTORCH_OPTION_NAMES" for name in sorted(set(options) - builders)]
failures += [f"X({name}) is a field of no struct" for name in sorted(builders - {field for field, _ in fields})]
print("\n".join(failures) or f"{len(options)} options have builders")
sys.exit(bool(failures) or not options)
