"""The private server: any folder, any end, and errors that say what to do."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgonce._embedded import Server, ServerError, find_bindir
from tests.conftest import roomy_memory
from tests.helpers import wait_until

FAST = {"fsync": "off"}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def answer(server: Server, query: str) -> object:
    with psycopg.connect(server.dsn()) as conn:
        (row,) = conn.execute(query).fetchall()
    return row[0]


def test_it_is_private_and_leaves_nothing() -> None:
    with Server({**FAST, "work_mem": "5MB"}, roomy_memory()) as server:
        assert answer(server, "show work_mem") == "5MB"
        assert answer(server, "show listen_addresses") == "127.0.0.1"
        assert answer(server, "show unix_socket_directories") == ""
        data = Path(str(answer(server, "show data_directory")))
        assert stat.S_IMODE(data.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(make_conninfo(server.dsn(), password="guessed"))
        assert "password authentication failed" in server.log()
        pid = int((data / "postmaster.pid").read_text().splitlines()[0])
    assert not alive(pid)
    assert not data.parent.exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_stop_and_start_keep_port_and_data(how: signal.Signals) -> None:
    with Server({}, roomy_memory()) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute("create table kept ()")
            port = server.port
            server.stop(how)
            with pytest.raises(psycopg.OperationalError):
                conn.execute("select")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.dsn())
        server.start()
        assert server.port == port
        assert answer(server, "select count(*) from kept") == 0


def test_programs_that_only_this_account_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail with PermissionError, as root, before the programs were copied (Python in root's home)."""
    install = find_bindir().parent
    libs = install.parent.with_name(install.parent.name + ".libs")
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    shutil.copytree(install, private / "package" / "install", symlinks=True)
    if libs.is_dir():
        # The programs look for ../../../<wheel>.libs, so the copies need that name.
        (private / "package").rename(private / install.parent.name)
        shutil.copytree(libs, private / libs.name)
    (bindir,) = private.glob(f"*/install/{find_bindir().name}")
    monkeypatch.setenv("PG_BINDIR", str(bindir))
    monkeypatch.chdir(private)
    with Server(FAST, roomy_memory()) as server:
        assert answer(server, "select 1") == 1


def test_it_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Seen to fail without prctl: the server went on."""
    program = textwrap.dedent("""
        import signal
        from pgonce._embedded import Server
        with Server({"fsync": "off"}) as server:
            print(server._process.pid, server._home, flush=True)
            signal.pause()
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, home = parent.stdout.readline().split()
        assert alive(int(pid))
        parent.kill()
    wait_until(lambda: not alive(int(pid)))
    shutil.rmtree(home)


def test_a_setting_that_postgres_refuses_is_told_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    mkdtemp = tempfile.mkdtemp

    def remembered(prefix: str, dir: Path | None) -> str:  # noqa: A002
        made.append(mkdtemp(prefix=prefix, dir=dir))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", remembered)
    server = Server({"no_such_setting": "1"}, roomy_memory())
    with pytest.raises(ServerError, match="no_such_setting"), server:
        raise AssertionError("started")
    assert len(made) == 1
    assert not Path(made[0]).exists()


def test_pg_bindir_without_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_BINDIR", str(tmp_path))
    with pytest.raises(ServerError, match="PG_BINDIR says"):
        Server()


def test_no_programs_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PG_BINDIR", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match=r"pip install 'pgonce\[demo\]'"):
        Server()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="nowhere"), Server(parent=tmp_path / "nowhere"):
        raise AssertionError("started")
