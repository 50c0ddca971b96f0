"""The shim holds no rule: all it can say to PostgreSQL is to call a function of ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pgonce
from pgonce._connection import _SETTINGS

PACKAGE = Path(pgonce.__file__).parent
ELSEWHERE = ("schema.py", "_embedded.py", "demo")  # which install, and play

STATEMENT = re.compile(  # in lowercase, as all SQL here is
    r"\s*(select|insert|update|delete|merge|with|alter|create|drop|set|reset|begin|start|commit|rollback"
    r"|savepoint|lock|listen|notify|call|do|grant|revoke|copy|truncate|values|table)\s"
)


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(ELSEWHERE):
            yield name, ast.parse(path.read_text())


def texts(tree: ast.Module) -> Iterator[str]:
    """Constants that are texts, or bytes, and the constant parts of f-strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield node.value if isinstance(node.value, str) else node.value.decode("latin1")


def test_statements_call_functions_and_read_views() -> None:
    found = [
        (name, re.sub(r" where\b.*", " where", " ".join(text.split())) if "\n" in text else text)
        for name, tree in sources()
        for text in texts(tree)
        if STATEMENT.match(text)
    ]
    assert found == [
        ("_connection.py", _SETTINGS),  # of a connection that a function has made for us
        ("_functions.py", "select has_table_privilege('pgonce.runs', 'select')"),
        ("_functions.py", "select error from pgonce.runs where"),
        ("_functions.py", "select * from pgonce."),
    ]


def test_it_is_sent_in_one_place_and_nothing_commits() -> None:
    calls = [
        (name, node.func.attr)
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    sending = {"execute", "executemany", "stream", "copy", "callproc"}
    assert [call for call in calls if call[1] in sending] == [
        ("_connection.py", "execute"),
        ("_functions.py", "execute"),
        ("_functions.py", "execute"),
        ("_functions.py", "execute"),
        ("cli/_database.py", "execute"),  # installs the schema in a private server
    ]
    assert not [call for call in calls if call[1] in {"commit", "rollback", "transaction"}]


def test_public_names_are_in_order() -> None:
    assert pgonce.__all__ == sorted(pgonce.__all__)
    assert all(hasattr(pgonce, name) for name in pgonce.__all__)
