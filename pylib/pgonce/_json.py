"""What can be stored: the JSON text of a value, or an error that names the part which cannot be."""

from __future__ import annotations

import json
import math
from typing import Any

from ._errors import InvalidArgument

_DEEPEST = 500  # levels; PostgreSQL's own limit depends on its stack


def written(value: Any, path: str) -> str:
    """The JSON text of ``value``; ``TypeError`` or ``InvalidArgument`` (a ``ValueError``) if there is none.

    Refused is also what Python writes and PostgreSQL cannot store: NaN, infinity, NUL, lone surrogates.
    """
    _check(value, path, 0)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidArgument(f"{path}: {error}") from error


def _check(value: Any, path: str, level: int) -> None:
    if level > _DEEPEST:
        raise InvalidArgument(f"{path[:60]}…: nested deeper than {_DEEPEST} levels")
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, dict):
        for key, each in value.items():
            if isinstance(key, str):
                _check_text(key, f"{path}: the key {key!r}")
            elif not (key is None or isinstance(key, int | float)):  # which are written as text
                raise TypeError(f"{path}: the key {key!r} cannot be written as JSON")
            _check(each, f"{path}[{key!r}]", level + 1)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            _check(each, f"{path}[{number}]", level + 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArgument(f"{path}: {value} is no number of JSON")
    elif not (value is None or isinstance(value, bool | int)):
        kind = type(value)
        raise TypeError(f"{path}: a {kind.__module__}.{kind.__qualname__} cannot be written as JSON")


def _check_text(text: str, path: str) -> None:
    if "\0" in text:
        raise InvalidArgument(f"{path}: it contains the character NUL, which PostgreSQL cannot store")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{path}: it contains a lone surrogate, which is no character") from error
