"""What is shown: a line for every answer, and a table of windows and hosts; live on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ._cast import HOSTS, instant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from types import TracebackType

    from ._cast import Event
    from ._check import Verdict

_PLAIN_WIDTH = 120
_STYLES = {"granted": "green", "finished": "bold green", "denied": "dim", "killed": "bold red"}
_WORKS = "works"
_ANSWERS = {
    "finished": "done",
    "killed": "killed (kill -9) in the middle of its work",
    "lost": "lost it, and wrote nothing",
    "no answer": "no answer from the database in time",
}
_REASONS = {
    "done": "done before",
    "busy": "busy, another claim is being decided",
    "exhausted": "exhausted, all attempts are used up",
    "backoff": "backoff, it failed a moment ago",
}


class Screen:
    """Use it as a context manager for as long as events come in."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        if not self._console.is_terminal:
            self._console = Console(highlight=False, width=_PLAIN_WIDTH)
        self._cells: dict[datetime, dict[str, list[str]]] = {}
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str = "", style: str = "") -> None:
        self._console.print(Text(text, style), soft_wrap=True)

    def show(self, event: Event) -> None:
        self.say(sentence(event), _STYLES.get(event.what, "yellow"))
        if event.window_start is not None:
            row = self._cells.setdefault(instant(event.window_start), {})
            words = row.setdefault(event.host, [])
            word = _word(event)
            if _WORKS in words and event.what != "denied":
                words[words.index(_WORKS)] = word
            elif word not in words:
                words.append(word)
        if self._live.is_started:
            self._live.update(self.table(), refresh=True)

    def table(self, verdicts: Sequence[Verdict] | None = None) -> Table:
        """One line a window: the answers each host had, in order, and what the database says in the end."""
        known = {verdict.window_start: verdict for verdict in verdicts or ()}
        table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("window")
        for host in HOSTS.values():
            table.add_column(f"{host.name}\n{host.note}")
        if verdicts is not None:
            table.add_column("attempts")
            table.add_column("done")
        for window_start in sorted({*self._cells, *known}):
            answers = self._cells.get(window_start, {})
            cells = [", ".join(answers.get(name, ["-"])) for name in HOSTS]
            if verdict := known.get(window_start):
                cells += [str(verdict.attempt or 0), verdict.fault or "once"]
            table.add_row(f"{window_start:%H:%M:%S}", *cells)
        return table

    def show_result(self, verdicts: Sequence[Verdict]) -> None:
        self._console.print(self.table(verdicts))
        self.say("held, done and their like: denied for this reason; -: did not ask for it", "dim")


def sentence(event: Event) -> str:
    """Such as ``12:00:04.031  east-1  window 12:00:04  denied: held by west-1``."""
    now = f"{instant(event.at):%H:%M:%S.%f}"[:-3]
    window = "" if event.window_start is None else f"window {instant(event.window_start):%H:%M:%S}"
    return f"{now}  {event.host}  {window:15}  {_answer(event)}"


def _answer(event: Event) -> str:
    host = HOSTS[event.host]
    if event.what == "granted":
        answer = (
            "granted: works" if event.attempt == 1 else f"granted: takes it over, attempt {event.attempt}"
        )
        early = (event.window_start or 0.0) - (event.asked or 0.0)
        return f"{answer} (asked {early * 1000:.0f} ms early, waited for its start)" if early > 0 else answer
    if event.what == "denied":
        answer = "denied: " + _REASONS.get(event.reason or "", f"{event.reason} by {event.holder}")
        if host.offset < 0:
            return f"{answer} (its trigger is {host.note})"
        return f"{answer}; a spare, it asks again" if event.asks_again else answer
    return _ANSWERS[event.what]


def _word(event: Event) -> str:
    if event.what == "granted":
        return _WORKS
    return "ran" if event.what == "finished" else event.reason or event.what
