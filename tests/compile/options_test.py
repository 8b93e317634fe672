"""Checks that every option of a module, function, optimizer or data loader has a builder's function: the fields of the
structs *Args of the headers are the names in the list that their builder is made of.

Usage: options_test.py FOLDER      with mytorch/nn
"""

import pathlib
import re
import sys

folder = pathlib.Path(sys.argv[1])
paths = [*folder.glob("*.h"), *folder.glob("optim/*.h"), folder.parent / "data.h"]
headers = {str(path.relative_to(folder.parent)): path.read_text() for path in paths}
# The lists of names, and the templates that make builders of an *Args and of a list.
lists = {"MYTORCH_OPTION_NAMES": "Options", "MYTORCH_OPTIMIZER_OPTION_NAMES": "OptimizerOptionsOf"}
lists["MYTORCH_LOADER_OPTION_NAMES"] = "LoaderOptionSetters"

count = 0
failures = []
for names, template in lists.items():
    text = "\n".join(headers.values())
    listed = set(re.findall(r"\bX\((\w+)\)", re.search(rf"#define {names}\(X\)((?:.*\\\n)*.*\n)", text)[1]))
    # The structs that builders are made of; others, such as GenerateArgs, have designated initializers only.
    built = set(re.findall(rf"\b{template}<(?:\w+, )?(\w+Args)\b", text))
    fields = [
        (field, struct)
        for struct, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S)
        for field in re.findall(r"^  [^/\n]*?\b(\w+) = ", body, re.M)
    ]
    options = {field: struct for field, struct in fields if struct in built}
    failures += [f"{options[name]}::{name} is not in {names}" for name in sorted(set(options) - listed)]
    failures += [f"X({name}) of {names} is a field of no struct" for name in sorted(listed - dict(fields).keys())]
    if not options:
        failures.append(f"no struct has a builder of {template}")
    count += len(options)
# The messages about misspelt options have their names.
fields_of = {
    struct: re.findall(r"^  [^/\n]*?\b(\w+) = ", body, re.M)
    for struct, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S)
}
aliases = dict(re.findall(r"^using (\w+) = (\w+Args)(?:<\d>)?;", text, re.M))
aliases["Args"] = "AdamArgs"  # of AdamOf
strings = r'((?:"[^"]*"\s*)+)'
messages = re.findall(rf"^MYTORCH_NAMED_\d\(\w+,\s*(\w+)(?:<\d>)?,\s*{strings}\)", text, re.M)
messages += re.findall(
    rf"^ +template <class TakesOptionsOf = (\w+)(?:<\d>)?,\s+OptionNames Named =\s*{strings}>", text, re.M
)
for struct, literals in messages:
    listed = "".join(re.findall(r'"([^"]*)"', literals)).split(", ")
    fields = fields_of[aliases.get(struct, struct)]
    if listed != fields:
        failures.append(f"{struct} has the options {', '.join(fields)}: the message has {', '.join(listed)}")
if len(messages) < 80:
    failures.append(f"only {len(messages)} messages list options")
print("\n".join(failures) or f"{count} options have builders")
sys.exit(bool(failures))
