"""Remake the frozen copy of sql/, until the first release after each change: python migrations/freeze.py

Writes versions/0001.up.sql (the files of sql/install.sql, in its order), versions/0001.down.sql (what takes
it back) and frozen.sha256 (the sums of all revisions, as sha256sum writes them).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSIONS = HERE / "versions"
SQL = HERE.parent / "sql"

CREATE = re.compile(r"^create (?:unlogged )?(sequence|type|table|function|view) (pgonce\.\w+)", re.MULTILINE)
INCLUDE = re.compile(r"\\ir (\S+)")
NO_MATTER = re.compile(r"|--.*|begin;|commit;|\\set ON_ERROR_STOP on")

DROP_SCHEMA = """\
do $$
begin
    -- With `pgonce migrate` the version table stands in the schema, and both stay.
    if to_regclass('pgonce.pgonce_version') is null then
        drop schema pgonce;
    end if;
end
$$;
"""


def up(install: Path) -> str:
    """The files that install.sql includes, one after the other; it holds nothing else but a transaction."""
    texts = []
    for number, line in enumerate(install.read_text().splitlines(), 1):
        if included := INCLUDE.fullmatch(line.strip()):
            texts.append((install.parent / included[1]).read_text().strip() + "\n")
        elif not NO_MATTER.fullmatch(line.strip()):
            raise SystemExit(f"{install}:{number}: neither a comment nor \\ir: {line}")
    return "\n".join(texts)


def down(script: str) -> str:
    """Drop what the script creates, the last first; without cascade: a host may have built on it."""
    drops = [f"drop {kind} {name};\n" for kind, name in reversed(CREATE.findall(script))]
    return "".join([*drops, "\n", DROP_SCHEMA])


def sums() -> str:
    frozen = sorted(path for path in VERSIONS.iterdir() if path.name[:4].isdecimal())
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(HERE)}\n" for path in frozen
    )


def main() -> None:
    if (VERSIONS / "0002.py").exists():
        raise SystemExit("0001 is released: a change of sql/ needs a revision of its own now (see README.md)")
    script = up(SQL / "install.sql")
    (VERSIONS / "0001.up.sql").write_text(script)
    (VERSIONS / "0001.down.sql").write_text(down(script))
    (HERE / "frozen.sha256").write_text(sums())


if __name__ == "__main__":
    main()
