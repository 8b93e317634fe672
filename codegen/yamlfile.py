"""Reads YAML as a tree of texts in which every key and value has its line number."""

from __future__ import annotations

from dataclasses import dataclass

import yaml


class YamlError(ValueError):
    """Raised for invalid YAML; `line` counts from 1."""

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
    """A mapping whose keys have their own lines. A key written as a list becomes its items joined with ", "."""

    items: tuple[tuple[Text, Value], ...]
    line: int

    def get(self, key: str) -> Value | None:
        for name, value in self.items:
            if name.text == key:
                return value
        return None


Value = Text | List | Map


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
    """Returns the document, or None if it is empty."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(mark.line + 1 if mark else 1, f"not YAML: {error.problem}") from None
    return None if node is None else _convert(node)
