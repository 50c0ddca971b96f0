"""The command line: what it understands, and what it answers when something is wrong."""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import re
import signal
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import psycopg

from .. import demo, schema
from .._embedded import ServerError
from .._errors import Error, FingerprintMismatch, InvalidArgument
from .._hold import one_line
from .._spans import span
from . import _command
from ._database import EMBEDDED, open_dsn
from ._exit import SIGNALLED, UNAVAILABLE, USAGE, UsageError, say
from ._process import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]

_Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"

_EXIT_STATUSES = """\
exit status: the command's own, or 128+n when signal n ended it; otherwise
  0    denied: done, paused or skipped (nothing is left to do)
  75   denied for another reason: ask again later (--denied-exit: for all denials)
  76   what was held was lost, and the command ended before anybody else could be granted
  64   wrong usage                      126  the command cannot be run
  69   no certain answer, not started   127  there is no such command
"""

_WINDOW = """\
example, in the crontab of every host:
  */10 * * * *  pgonce window report '*/10 * * * *' -- /usr/local/bin/report --all
"""

_LEASE = """\
example: deploy one at a time, waiting for at most five minutes
  pgonce lease deploy --wait 5m -- ./deploy.sh
"""

_KEY = """\
example: charge an order once, however often it is asked for
  pgonce key invoices order-4711 -- ./charge 4711
"""

_MIGRATE = """\
example, as the role that is to own the schema:
  pgonce migrate --dsn postgresql://owner@db/app
"""

_SQL = """\
example:
  pgonce sql | psql -v ON_ERROR_STOP=1 app
"""

_DEMO = """\
example:
  pgonce demo
"""


def main(arguments: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if arguments is None else arguments)
    try:
        args = _parse(argv)
        logging.basicConfig(format="pgonce: %(message)s")
        logging.getLogger("pgonce").setLevel(
            logging.INFO if getattr(args, "verbose", False) else logging.WARNING
        )
        run: Callable[[argparse.Namespace], int] = args.run
        return run(args)
    except (UsageError, InvalidArgument, FingerprintMismatch) as error:
        say(_explain(error))
        return USAGE
    except (psycopg.Error, Error, schema.SchemaError, ServerError) as error:
        say(_explain(error))
        return UNAVAILABLE
    except Stopped as stopped:
        return SIGNALLED + stopped.signum
    except KeyboardInterrupt:
        return SIGNALLED + signal.SIGINT


def _explain(error: Exception) -> str:
    """One line: what is wrong, and what to do."""
    if isinstance(error, Error):
        return _in_options(" ".join(error.message.split()) + (f" ({error.hint})" if error.hint else ""))
    if isinstance(error, schema.SchemaError):
        return str(error).partition("\n")[0].rstrip(",")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return f"{error.diag.message_primary} (let its owner select pgonce.grant_worker('…') for this role)"
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        return f"no database: {one_line(error)} (see --dsn, PGONCE_DSN, or libpq's PGHOST and its like)"
    return one_line(error)


def _in_options(text: str) -> str:
    """What the database calls by the names of its arguments, by those of our options."""
    text = re.sub(r"\b(schedule|job|scope|key|name) => ", lambda match: match[1].upper() + " ", text)
    text = re.sub(r"\b(timezone|owner) => ", r"--\1 ", text)
    return re.sub(
        r"(?<![-\w.])(ttl|slots|timezone|fingerprint|max_hold|min_hold|window_start)\b",
        lambda match: "--" + match[1].replace("_", "-"),
        text,
    )


class _Parser(argparse.ArgumentParser):
    def __init__(self, **kwargs: object) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **kwargs,  # type: ignore[arg-type]
        )

    def error(self, message: str) -> NoReturn:
        if self.prog.endswith(" window") and re.match("unrecognized arguments: [^-]", message):
            message += "; SCHEDULE is one argument, so put it in quotes: '*/10 * * * *'"
        raise UsageError(f"{message} (see {self.prog} --help)")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="pgonce",
        description="PostgreSQL decides, once, who runs. Each command has a --help of its own.",
        epilog="example:\n  pgonce window nightly '0 3 * * *' -- ./nightly.sh",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_runners(commands)
    _add_others(commands)

    command = commands.choices.get(argv[0]) if argv else None
    if command is None:
        return parser.parse_args(argv)
    end = argv.index("--") if "--" in argv else len(argv)
    for option, following in itertools.pairwise(argv[1:end]):
        if option.startswith("--") and re.match("-[0-9]", following):  # argparse would miss an argument
            command.error(f"argument {option}: {following} is negative")
    args = command.parse_intermixed_args(argv[1:end])
    args.argv = argv[end + 1 :]
    if args.runs_command != bool(args.argv):
        command.error(
            "put -- and the command to run at the end" if args.runs_command else "nothing can follow --"
        )
    if args.embedded:
        args.dsn = EMBEDDED
    elif args.dsn is None:
        args.dsn = os.environ.get("PGONCE_DSN", "")
    return args


def _add_runners(commands: _Commands) -> None:
    window = commands.add_parser(
        "window",
        help="run a command if this window of a schedule is ours",
        usage="pgonce window JOB [SCHEDULE] [options] -- COMMAND...",
        description="Run COMMAND if the window of JOB that is open now is ours. SCHEDULE: five cron fields, "
        "a macro such as @daily, or 'every 90 minutes'; not needed for a job defined in the database.",
        epilog=_WINDOW + "\n" + _EXIT_STATUSES,
    )
    window.add_argument("job", metavar="JOB")
    window.add_argument("schedule", metavar="SCHEDULE", nargs="?")
    window.add_argument(
        "--timezone", metavar="ZONE", help="of the schedule, such as Europe/Berlin (default: UTC)"
    )
    window.add_argument(
        "--window-start",
        metavar="T",
        type=_instant,
        help="claim the window that starts at T, such as 2026-03-01T02:00:00Z, instead of the present one",
    )
    _add_running(window, _command.window)

    lease = commands.add_parser(
        "lease",
        help="run a command while holding a lease",
        usage="pgonce lease NAME [options] -- COMMAND...",
        description="Run COMMAND while holding the lease NAME, as flock does on one host.",
        epilog=_LEASE + "\n" + _EXIT_STATUSES,
    )
    lease.add_argument("name", metavar="NAME")
    lease.add_argument(
        "--slots", metavar="N", type=int, help="so many may hold it at the same time (default: 1)"
    )
    lease.add_argument("--max-hold", metavar="SPAN", type=_span, help="hold it no longer than this")
    lease.add_argument(
        "--min-hold", metavar="SPAN", type=_span, help="nobody else gets it before this is over"
    )
    _add_running(lease, _command.lease)

    key = commands.add_parser(
        "key",
        help="run a command once for a key",
        usage="pgonce key SCOPE KEY [options] -- COMMAND...",
        description="Run COMMAND once for KEY, an idempotency key of yours, in SCOPE.",
        epilog=_KEY + "\n" + _EXIT_STATUSES,
    )
    key.add_argument("scope", metavar="SCOPE")
    key.add_argument("key", metavar="KEY")
    key.add_argument(
        "--fingerprint", metavar="TEXT", help="what stands for the request: another one is refused"
    )
    _add_running(key, _command.key)


def _add_running(command: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    """What is the same for everything that runs a command."""
    command.set_defaults(run=run, runs_command=True)
    add = command.add_argument
    add(
        "--ttl",
        metavar="SPAN",
        type=_span,
        help="how long it stays ours without a heartbeat (default: 60s); one is sent every third of it; "
        "cut to the job's max_hold",
    )
    add("--owner", metavar="TEXT", help="a label for people (default: host:pid and the client's address)")
    add(
        "--wait",
        metavar="SPAN",
        type=_span,
        default=timedelta(),
        help="if denied for a reason that may change (held, overlap, backoff, ahead), ask again for so long",
    )
    add("--denied-exit", metavar="N", type=_exit_status, help="exit status of all denials")
    add(
        "--kill-after",
        metavar="SPAN",
        type=_span,
        help="from TERM to KILL when what was held is lost (default: 10s, or ttl/6 if that is less)",
    )
    add("-v", "--verbose", action="store_true", help="say what is granted and what is denied")
    _add_database(command)


def _add_others(commands: _Commands) -> None:
    migrate = commands.add_parser(
        "migrate",
        help="install or upgrade the schema",
        description="Install the schema pgonce, or bring it up to date. Run it on as many hosts as you like.",
        epilog=_MIGRATE,
    )
    _add_database(migrate)
    migrate.set_defaults(run=_migrate, runs_command=False)

    sql = commands.add_parser(
        "sql",
        help="print the schema as SQL",
        description="Print the schema as one SQL script.",
        epilog=_SQL,
    )
    sql.set_defaults(run=_sql, runs_command=False, embedded=False, dsn="")

    show = commands.add_parser(
        "demo",
        help="watch six hosts compete for the windows of a schedule",
        description="On a private PostgreSQL six hosts fire the same schedule, and one is killed at work.",
        epilog=_DEMO,
    )
    demo.add_arguments(show)
    show.set_defaults(run=_demo, runs_command=False, embedded=False, dsn="")


def _add_database(command: argparse.ArgumentParser) -> None:
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--dsn",
        metavar="DSN",
        help="connection string (default: PGONCE_DSN, else libpq's variables such as PGHOST)",
    )
    which.add_argument(
        "--embedded",
        action="store_true",
        help="a private, temporary PostgreSQL, which no other host sees (also PGONCE_DSN=embedded)",
    )


def _span(text: str) -> timedelta:
    try:
        return span(text, "")
    except InvalidArgument as error:
        fault = "is negative" if text.lstrip().startswith("-") else "is not a duration"
        raise argparse.ArgumentTypeError(f'"{text}" {fault}; write it as 90s, 5m or "1h 30m"') from error


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(re.sub("[Zz]$", "+00:00", text))
    except ValueError:
        instant = None
    if instant is None or instant.utcoffset() is None:
        raise argparse.ArgumentTypeError(f'"{text}" is not an instant such as 2026-03-01T02:00:00Z')
    return instant


def _exit_status(text: str) -> int:
    if not re.fullmatch("[0-9]{1,3}", text) or int(text) > 255:
        raise argparse.ArgumentTypeError(f'"{text}" is not an exit status from 0 to 255')
    return int(text)


def _migrate(args: argparse.Namespace) -> int:
    with open_dsn(args.dsn) as dsn:
        before, after = schema.migrate(dsn)
    print(f"schema pgonce: revision {after}" + (", as it was" if before == after else ""))
    return 0


def _sql(_: argparse.Namespace) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # pgonce sql | head
    print(schema.sql(), end="")
    return 0


def _demo(args: argparse.Namespace) -> int:
    try:
        return demo.run(args)
    except ImportError as error:
        say(f"the demo needs {error.name}: pip install 'pgonce[demo]'")
        return UNAVAILABLE
