"""Tests that version 1 of the contract is unchanged since its release.

    python3 abi_test.py [--write] ROOT CC [LIBRARY.so ...]

abi/contract.lock has the offset and size of every field, the size of every struct, and the value of every
constant of abi/include/mytorch/abi.h, abi_comm.h, abi_fused.h and abi_region.h. Locked facts must not change; structs that begin with `size` may grow
at their ends. --write adds new facts. The libraries are backends, which must export only mt_backend_init
(engines of process groups, in comm/, only mt_comm_init), or also what cmake/backend_openmp.exports lists.
(abi/ops.lock has the operators' argument structs, which codegen checks.)
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

write = "--write" in sys.argv
root, cc, *libraries = [argument for argument in sys.argv[1:] if argument != "--write"]
lock = Path(root, "abi/contract.lock")


def declared(text: str) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the fields of each struct, and the constants."""
    text = re.sub(r"//[^\n]*", "", text)
    structs = {}
    for match in re.finditer(r"(?:typedef )?struct (mt_\w+) \{(.*?)\n\}", text, re.S):
        body = re.sub(r"union \{([^}]*)\};", r"\1", match[2])  # unnamed: its members are the struct's
        body = re.sub(r"union \{.*?\}", "union", body, flags=re.S)  # named: a field of its own
        fields = []
        for line in body.split(";"):
            line = " ".join(line.split())
            function = re.match(r".*?\(\*+(\w+)\)", line)
            plain = re.search(r"(\w+)(?:\[\w+\])?$", line)
            if line:
                assert function or plain, line
                fields.append(function[1] if function else plain[1])
        structs[match[1]] = fields
    constants = [
        name for block in re.findall(r"\benum \{(.*?)\}", text, re.S) for name in re.findall(r"\b(MT_\w+)\s*=", block)
    ]
    constants += re.findall(r"#define (MT_\w+) MT_\w+\s", text)  # earlier names
    return structs, constants


def measured(structs: dict[str, list[str]], constants: list[str]) -> dict[str, str]:
    lines = [
        "#include <stdio.h>",
        '#include "mytorch/abi_comm.h"',
        '#include "mytorch/abi_fused.h"',
        '#include "mytorch/abi_region.h"',
        "int main(void) {",
    ]
    lines += [f'printf("{name} %u\\n", {name});' for name in ("MT_ABI_MAJOR", "MT_COMM_MAJOR")]
    for struct, fields in structs.items():
        lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
        for field in fields:
            lines.append(
                f'printf("{struct}.{field} %zu+%zu\\n", offsetof({struct}, {field}),'
                f" sizeof((({struct}*)0)->{field}));"
            )
    lines += [f'printf("{name} %lld\\n", (long long){name});' for name in constants]
    lines.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "layout.c")
        source.write_text("\n".join(lines))
        subprocess.run(
            [
                cc,
                "-std=c11",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-I",
                f"{root}/abi/include",
                str(source),
                "-o",
                f"{folder}/layout",
            ],
            check=True,
        )
        text = subprocess.run([f"{folder}/layout"], check=True, capture_output=True, text=True).stdout
    return dict(line.split(" ", 1) for line in text.splitlines())


def may_grow(struct: list[str], name: str) -> bool:
    # mt_args_header is a member of other structs, which its growth would move.
    return struct[0] == "size" and name != "mt_args_header"


def wrong(old: dict[str, str], new: dict[str, str], structs: dict[str, list[str]]) -> list[str]:
    found = []
    for name, value in old.items():
        if name not in new:
            found.append(f"{name} is gone")
        elif name in structs and may_grow(structs[name], name):
            if int(new[name]) < int(value):
                found.append(f"{name} has shrunk from {value} to {new[name]} bytes")
        elif new[name] != value:
            found.append(f"{name} was {value} and is {new[name]}")
    for name, value in new.items():
        struct = name.split(".")[0]
        renames = any(n.startswith(struct + ".") and v == value for n, v in old.items())  # in an unnamed union
        inside = struct in old and int(value.split("+")[0]) < int(old[struct])
        if "." in name and name not in old and inside and not renames:
            found.append(f"{name} is new, but not at the end of its struct")
    return found


headers = [
    Path(root, "abi/include/mytorch", name).read_text()
    for name in ("abi.h", "abi_comm.h", "abi_fused.h", "abi_region.h")
]
structs, constants = declared("\n".join(headers))
assert len(structs) > 15 and len(constants) > 40, (structs, constants)
new = measured(structs, constants)
old = dict(line.split(" ", 1) for line in lock.read_text().splitlines()) if lock.exists() else {}
problems = wrong(old, new, structs)
if write and not problems:
    lock.write_text("".join(f"{name} {value}\n" for name, value in {**old, **new}.items()))
    old = new
problems += [f"{name} is not in {lock}: python3 {sys.argv[0]} --write {root} {cc}" for name in new if name not in old]
for library in libraries:
    text = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1] for line in text.splitlines()}
    expected = {"mt_comm_init" if Path(library).parent.name == "comm" else "mt_backend_init"}
    if "GOMP_parallel" in exported:  # its libraries find these functions before libgomp's
        expected |= set(re.findall(r"\b\w*omp_\w+", Path(root, "cmake/backend_openmp.exports").read_text(), re.I))
    if exported != expected:
        problems.append(f"{library} exports {sorted(exported)}, expected {sorted(expected)}")
for problem in problems:
    print(problem)
print(f"{len(new)} facts of contract version 1, {len(problems)} wrong")
sys.exit(1 if problems else 0)
