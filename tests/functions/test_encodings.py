"""Names in databases of other encodings than UTF-8: what is a letter there is no control character."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.functions.holding import sqlstate
from tests.helpers import SQL, Conn, call, psql, value

# What the client sends; in SQL_ASCII the bytes are taken as they are.
NAMES = {
    "SQL_ASCII": ["é", "É", "Übergröße", "č", "€", "日本語", "\u0100"],
    "LATIN1": ["é", "É", "Übergröße"],
    "LATIN9": ["é", "€"],
    "WIN1252": ["é", "€", "„so“", "Ž"],
    "EUC_JP": ["日本語", "ｶﾅ"],
    "UTF8": ["é", "É", "č", "€", "日本語", "\u0100", "\U0001f4a5"],
}


@pytest.fixture(params=NAMES)
def odd(request: pytest.FixtureRequest, encoded_dsn: Callable[[str], str]) -> Iterator[Conn]:
    """A session of the owner's in a database of that encoding."""
    dsn = encoded_dsn(request.param)
    psql(dsn, "-f", SQL / "install.sql")
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row, client_encoding="utf8") as conn:
        yield conn


def test_letters_are_letters(odd: Conn) -> None:
    """Seen to fail in SQL_ASCII ("É" has the byte 0x89) and WIN1252 (0x80 is the euro)."""
    encoding = value(odd, "select current_setting('server_encoding')")
    for name in NAMES[encoding]:
        lease = call(odd, "acquire_lease", name=name, ttl="1 minute", owner=name)
        assert (lease["reason"], lease["name"], lease["owner"]) == ("granted", name, name)
        key = call(odd, "claim_key", scope=name, key=name, ttl="1 minute")
        assert (key["reason"], key["key"]) == ("granted", name)
        window = call(odd, "claim_window", job=name, schedule="@daily")
        assert (window["reason"], window["name"]) == ("granted", name)
        assert call(odd, "claim_window", job=name, schedule="@daily")["reason"] == "held"


def test_control_characters_are_refused(odd: Conn) -> None:
    for name in ("a\x01b", "a\x1fb", "a\x7fb", "a\nb", "\t"):
        assert sqlstate(odd, "acquire_lease", name=name, ttl="1 minute") == "22023", repr(name)
    if value(odd, "select current_setting('server_encoding')") == "UTF8":
        assert sqlstate(odd, "acquire_lease", name="a\x85b", ttl="1 minute") == "22023"


def test_a_long_name_is_quoted_in_part(odd: Conn) -> None:
    with pytest.raises(psycopg.Error) as refused:
        call(odd, "acquire_lease", name="n" * 500, ttl="1 minute")
    assert str(refused.value.diag.message_primary).count("n") < 80
