"""Emits, from the public headers of nn, the umbrella header, and libtorch's spellings of modules and their options: the
names of the options, for builders (mytorch/nn/options.h), and those of the classes behind holders."""

from __future__ import annotations

import re
from pathlib import Path

from codegen import cpp
from codegen.lock import Lock
from codegen.model import Op

ROOM = Path(__file__).resolve().parent
# The templates of builders and readers of an aggregate of options, and the lists of the names that they have functions
# for.
BUILDERS = {
    "Options": "MYTORCH_OPTION_NAMES",
    "OptimizerOptionsOf": "MYTORCH_OPTIMIZER_OPTION_NAMES",
    "LoaderOptionSetters": "MYTORCH_LOADER_OPTION_NAMES",
    "AttentionOptionSetters": "MYTORCH_ATTENTION_OPTION_NAMES",
    "BuiltOptions": "MYTORCH_BUILT_OPTION_NAMES",
    "LayerWith": "MYTORCH_BUILT_OPTION_NAMES",
    "LossWith": "MYTORCH_BUILT_OPTION_NAMES",
}
LAYERS = {"Layer", "LayerWith", "LossWith", "Callable"}  # the bases of modules that programs make


def headers() -> dict[str, str]:
    """Returns the texts of the room's public headers by the names that include them."""
    texts = {str(path).partition("/include/")[2]: path.read_text() for path in sorted(ROOM.glob("**/include/**/*.h"))}
    return {name: re.sub(r"//.*", "", text) for name, text in texts.items()}


def options(texts: list[str]) -> dict[str, list[str]]:
    """Returns the names of the options of each aggregate, in their order."""
    text = "\n".join(texts)
    structs = re.findall(r"^struct (\w+Args)(?: : (\w+Args)(?:<\w+>)?)? \{(?:\n(.*?)^)?\};", text, re.M | re.S)
    fields = {name: re.findall(r"^  \S[^\n]*?\b(\w+) =\s", body, re.M) for name, _, body in structs}
    fields |= {name: fields[of] for name, of in re.findall(r"^using (\w+Args) = (\w+Args)\b", text, re.M)}
    return fields | {name: fields[base] + fields[name] for name, base, _ in structs if base}


def option_names(texts: list[str]) -> dict[str, list[str]]:
    """Returns the options that builders of each list have."""
    fields, text = options(texts), "\n".join(texts)
    built: dict[str, set[str]] = {names: set() for names in BUILDERS.values()}
    for builder, names in BUILDERS.items():
        for struct in re.findall(rf"\b{builder}<(?:\w+,\s+)?(\w+Args)\b", text):
            built[names] |= set(fields[struct])
    return {names: sorted(found) for names, found in built.items()}


def layers(text: str) -> list[str]:
    """Returns the classes of layers that a header defines, and their other names."""
    classes = re.findall(r"(?<!>\n)^(?:class|struct) (\w+)(?: final)?\s*:\s*public (\w+)", text, re.M)
    names = [name for name, base in classes if base in LAYERS and name not in LAYERS]
    return names + [name for name, of in re.findall(r"^using (\w+) = (\w+);", text, re.M) if of in names]


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    del ops, lock
    texts = headers()
    lists = [
        " \\\n  ".join([f"#define {name}(X)", *(f"X({option})" for option in names)])
        for name, names in option_names(list(texts.values())).items()
    ]
    public = [name for name in sorted(texts) if name.startswith("mytorch/nn/") and name.count("/") == 2]
    classes = sorted({name for header in public for name in layers(texts[header])})
    impls = [f"using {name}Impl = {name};" for name in classes]
    umbrella = [f'#include "{name}"' for name in sorted([*public, "mytorch/data.h", "mytorch/nn/impl.h"])]
    files = {
        "generated/option_names.h": ("The options that builders have.", [], lists),
        "nn/impl.h": (
            "libtorch's names of the modules behind its holders: LinearImpl is Linear.",
            [name for name in public if layers(texts[name])],
            ["", "namespace mytorch::nn {", *impls, "}  // namespace mytorch::nn"],
        ),
        "nn.h": (
            "Umbrella header for neural networks: modules, losses, optimizers, data, serialization and training. For "
            "programs; sources of mytorch include the individual headers.",
            [],
            ["// IWYU pragma: begin_exports", *umbrella, "// IWYU pragma: end_exports"],
        ),
    }
    return {f"include/mytorch/{name}": cpp.header(*parts, "the headers of nn") for name, parts in files.items()}
