"""Writes the docstrings of the extension module into its stub, where editors read them.

    python stub_docs.py FILE.pyi            writes them
    python stub_docs.py --check FILE.pyi    fails if one is missing, or says something else

The package has to be installed: its docstrings, which come from the Rust code, are the only source.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import pathlib
from collections.abc import Iterator
from typing import Any

import fetchwise._fetchwise


def owners(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | ast.FunctionDef, Any]]:
    """Yields each class and function of the stub with its object; those that a class only inherits are left out."""
    for node in tree.body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or not hasattr(fetchwise._fetchwise, node.name):
            continue
        value = getattr(fetchwise._fetchwise, node.name)
        yield node, value
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("__") and part.name in vars(value):
                    yield part, vars(value)[part.name]


def text_of(value: Any) -> str:
    """Returns the docstring of an object, without the markup that only the reader of the Rust code sees."""
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    return inspect.cleandoc(value.__doc__ or "")


def problems(source: str) -> list[str]:
    """Returns the names whose docstring in the stub is not that of the module."""
    return [node.name for node, value in owners(ast.parse(source)) if (ast.get_docstring(node) or "") != text_of(value)]


def quoted(text: str, indent: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    end = "\n" if "\n" in escaped else " " if escaped.endswith('"') else ""
    lines = f'"""{escaped}{end}"""'.splitlines()
    return "\n".join([indent + lines[0], *(indent + line if line else "" for line in lines[1:])])


def written(source: str) -> str:
    """Returns the stub with the docstrings of the module."""
    lines = source.splitlines()
    for node, value in reversed(list(owners(ast.parse(source)))):
        text, indent = text_of(value), " " * (node.col_offset + 4)
        first = node.body[0]
        has_one = ast.get_docstring(node) is not None
        if isinstance(node, ast.ClassDef):
            start = first.lineno - 1
            if isinstance(first, ast.FunctionDef) and first.decorator_list:
                start = first.decorator_list[0].lineno - 1
            if isinstance(first, ast.Expr) and not has_one:
                has_one = True  # A class without members, whose body is `...`.
            lines[start : (first.end_lineno if has_one else start)] = [quoted(text, indent)] if text else []
        elif text:
            head = lines[first.lineno - 1]
            if not has_one and head.rstrip().endswith(": ..."):
                lines[first.lineno - 1] = head.rstrip().removesuffix(" ...")
                lines.insert(first.lineno, quoted(text, indent))
            else:
                lines[first.lineno - 1 : first.end_lineno] = [quoted(text, indent)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("stub", type=pathlib.Path)
    args = parser.parse_args()
    if not args.check:
        args.stub.write_text(written(args.stub.read_text()))
    wrong = problems(args.stub.read_text())
    if wrong:
        raise SystemExit(f"{args.stub}: not the docstrings of the module: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
