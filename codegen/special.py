"""The functions of special.yaml, which the body language has in addition to those of nodes.py."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from codegen.syntax import parse


@dataclass(frozen=True)
class Function:
    """operands: the names of its parameters. let: named subexpressions; later ones may use earlier ones. operator: the
    operator that computes the function, "" if none does."""

    operands: tuple[str, ...]
    value: ast.expr
    let: dict[str, ast.expr] = field(default_factory=dict)
    operator: str = ""


def _function(row: dict) -> Function:
    let = {name: parse(str(text)) for name, text in row.get("let", {}).items()}
    return Function(tuple(row["of"].split()), parse(str(row["value"])), let, row.get("operator", ""))


_FILE = yaml.safe_load((Path(__file__).parent / "special.yaml").read_text())
FUNCTIONS: dict[str, Function] = {name: _function(row) for name, row in _FILE["functions"].items()}
COEFFICIENTS: dict[str, tuple[float, ...]] = {
    name: tuple(map(float, values)) for name, values in _FILE["coefficients"].items()
}
