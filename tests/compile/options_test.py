"""Checks that the messages about misspelt options, of modules, functions and optimizers, list the options.

Usage: options_test.py ROOT
"""

import importlib.util
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root))
spec = importlib.util.spec_from_file_location("emit", root / "nn/emit.py")
emit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(emit)

texts = list(emit.headers().values())
text = "\n".join(texts)
fields_of = emit.options(texts)
failures = []
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
print("\n".join(failures) or f"{len(messages)} messages list the options")
sys.exit(bool(failures))
