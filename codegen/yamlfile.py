"""Reads the YAML of records, keeping the line of every key and value.

Records hold expressions, and YAML reads commas, brackets and quotes of its own into a `{...}`
mapping. So `grad: {self: f(grad, dim)}` is quoted before YAML sees it: within braces after a key of
a record, every value reaches to the next comma, or closing brace, that is outside of brackets and
quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml


class YamlError(ValueError):
    """Text that is not the YAML of records; `line` counts from 1."""

    def __init__(self, line: int, message: str):
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Text:
    """A scalar, as text, with its line."""

    text: str
    line: int


@dataclass(frozen=True)
class List:
    items: tuple[Value, ...]
    line: int


@dataclass(frozen=True)
class Map:
    """Keys keep their own lines; a key written as a list is its items joined with ", "."""

    items: tuple[tuple[Text, Value], ...]
    line: int

    def get(self, key: str) -> Value | None:
        for name, value in self.items:
            if name.text == key:
                return value
        return None


Value = Text | List | Map

_OPEN, _CLOSE = "([{", ")]}"
_FLOW = re.compile(r"^(?:- |  )[A-Za-z_]+:[ \t]+(?=\{)", re.M)


def _scan(text: str, start: int, stops: str) -> int:
    """The first of `stops` from `start` on that is outside of brackets and quotes."""
    depth, i = 0, start
    while i < len(text):
        c = text[i]
        if c in "'\"":
            i = text.find(c, i + 1)
            if i < 0:
                break
        elif depth == 0 and c in stops:
            return i
        elif c in _OPEN:
            depth += 1
        elif c in _CLOSE:
            depth -= 1
            if depth < 0:
                break
        i += 1
    raise YamlError(text.count("\n", 0, start) + 1, "unbalanced brackets or quotes")


def _quote(value: str) -> str:
    """A value in YAML's double quotes, on as many lines; those already in quotes stay."""
    stripped = value.strip()
    if not stripped or (stripped[0] in "'\"" and _closing_quote(stripped) == len(stripped) - 1):
        return value
    lead = value[: len(value) - len(value.lstrip())]
    tail = value[len(value.rstrip()) :]
    return lead + '"' + stripped.replace("\\", "\\\\").replace('"', '\\"') + '"' + tail


def _closing_quote(text: str) -> int:
    return text.find(text[0], 1)


def _quote_mapping(text: str, start: int) -> tuple[str, int]:
    """Rewrites the flow mapping whose brace opens at `start`; gives it and where it ends."""
    out, i = "{", start + 1
    while True:
        colon = _scan(text, i, ":}")
        if text[colon] == "}":
            return out + text[i:colon] + "}", colon + 1
        key = text[i:colon]
        out += _quote(key) if not key.strip().startswith("[") else _quote(_unbracket(key))
        i = colon + 1
        first = i + len(text[i:]) - len(text[i:].lstrip())
        if text[first : first + 1] == "{":
            inner, end = _quote_mapping(text, first)
            out += ": " + text[i:first].lstrip(" ") + inner
        else:
            end = _scan(text, i, ",}")
            out += ": " + _quote(text[i:end]).lstrip(" ")
        i = _scan(text, end, ",}")
        out += text[end:i] + text[i]
        i += 1
        if text[i - 1] == "}":
            return out, i


def _unbracket(key: str) -> str:
    return key.strip()[1:-1]


def quote_expressions(text: str) -> str:
    """`text` with the values of flow mappings in quotes; lines stay lines."""
    out, position = "", 0
    while match := _FLOW.search(text, position):
        mapping, end = _quote_mapping(text, match.end())
        out += text[position : match.end()] + mapping
        position = end
    return out + text[position:]


def _convert(node: yaml.Node) -> Value:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        return Text(node.value.strip(), line)
    if isinstance(node, yaml.SequenceNode):
        return List(tuple(_convert(item) for item in node.value), line)
    items, seen = [], set()
    for key_node, value_node in node.value:
        key = _convert(key_node)
        if isinstance(key, List):
            key = Text(", ".join(item.text for item in key.items), key.line)
        if not isinstance(key, Text):
            raise YamlError(key.line, "a key is a name")
        if key.text in seen:
            raise YamlError(key.line, f"the key `{key.text}` appears twice")
        seen.add(key.text)
        items.append((key, _convert(value_node)))
    return Map(tuple(items), line)


def read(text: str) -> Value | None:
    """The document, or None where it is empty."""
    try:
        node = yaml.compose(quote_expressions(text), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(mark.line + 1 if mark else 1, f"not YAML: {error.problem}") from None
    return None if node is None else _convert(node)
