"""The common syntax of all expressions in a record: Python's, parsed with `ast`."""

from __future__ import annotations

import ast


class ExprError(ValueError):
    """Raised for a rejected expression; the text gives the position and the reason."""


def parse(text: str) -> ast.expr:
    """Returns the tree of one expression. Raises ExprError with the column of a syntax error."""
    text = text.strip().replace("\n", " ")
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ExprError(f"column {error.offset or len(text) + 1}: not an expression: `{text}`") from None


class _Substitute(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)


def substitute(tree: ast.expr, values: dict[str, ast.expr]) -> ast.expr:
    """Returns `tree`, with the names in `values` replaced by their trees."""
    return _Substitute(values).visit(tree) if values else tree
