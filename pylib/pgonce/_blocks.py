"""Context managers and decorators: work under a grant, on a connection of our own, with a heartbeat."""

from __future__ import annotations

import functools
import inspect
import json
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from . import _functions as functions
from ._errors import Denied, InvalidArgument
from ._hold import Ask, Hold, acquire, logger
from ._json import written
from ._spans import Span, span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._claim import Claim
    from ._connection import Conn, Dsn

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_TTL = timedelta(seconds=60)


class Holder:
    """What a block works under."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    @property
    def claim(self) -> Claim:
        return self._hold.claim

    @property
    def token(self) -> int:
        return self._hold.token

    @property
    def held(self) -> bool:
        """False as soon as somebody else could be granted, or the block has ended; and then for ever."""
        return self._hold.held_inside

    def check(self) -> None:
        """Raise ``NotHeld`` if it is held no more, also after the block, in a thread left behind."""
        self._hold.check_inside()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.claim.name} {self.claim.key}, token {self.token}>"


class Run(Holder):
    """A window or an operation; ``result``, if set, is stored when the block ends well."""

    _result: Any = None
    _storable: Any = None  # the same, as it was when it was set

    @property
    def result(self) -> Any:
        """What is stored. What cannot be written as JSON is refused: ``TypeError`` or ``ValueError``."""
        return self._result

    @result.setter
    def result(self, value: Any) -> None:
        self._storable = json.loads(written(value, "result"))
        self._result = value

    def _final_result(self) -> Any:
        """The result; as it was set, if it was changed since into something that cannot be stored."""
        try:
            written(self._result, "result")
        except (TypeError, ValueError) as error:
            logger.warning("%s: stored as it was set: %s", self._hold.label, error)
            return self._storable
        return self._result

    @property
    def attempt(self) -> int | None:
        return self.claim.attempt

    @property
    def window_start(self) -> datetime | None:
        return self.claim.window_start

    @property
    def window_end(self) -> datetime | None:
        return self.claim.window_end


@contextmanager
def window(
    dsn: Dsn,
    job: str,
    schedule: str | None = None,
    *,
    timezone: str | None = None,
    ttl: Span | None = None,
    owner: str | None = None,
    window_start: datetime | None = None,
    wait: Span | None = None,
) -> Iterator[Run]:
    """Work in a window of ``job``: done when the block ends, failed when it raises.

    ``Denied`` if the window is not ours. ``wait``: if that may change, ask again for so long.
    """
    lifetime = _ttl(ttl)

    def ask(conn: Conn, nonce: Any) -> Claim:
        return functions.claim_window(
            conn,
            job,
            schedule,
            timezone=timezone,
            ttl=lifetime,
            owner=owner,
            window_start=window_start,
            nonce=nonce,
        )

    with _run(dsn, ask, lifetime, wait) as run:
        yield run


@contextmanager
def operation(
    dsn: Dsn,
    scope: str,
    key: str,
    *,
    ttl: Span | None = None,
    owner: str | None = None,
    fingerprint: str | None = None,
    wait: Span | None = None,
) -> Iterator[Run]:
    """Work once for ``key``, as in ``window``. What a done one has stored is in ``Denied.claim.result``."""
    lifetime = _ttl(ttl)

    def ask(conn: Conn, nonce: Any) -> Claim:
        return functions.claim_key(
            conn, scope, key, lifetime, owner=owner, fingerprint=fingerprint, nonce=nonce
        )

    with _run(dsn, ask, lifetime, wait) as run:
        yield run


@contextmanager
def lease(
    dsn: Dsn,
    name: str,
    *,
    ttl: Span | None = None,
    owner: str | None = None,
    slots: int | None = None,
    max_hold: Span | None = None,
    min_hold: Span | None = None,
    wait: Span | None = None,
) -> Iterator[Holder]:
    """Work while holding a lease, or one of its ``slots``; released when the block ends."""
    lifetime = _ttl(ttl, max_hold)

    def ask(conn: Conn, nonce: Any) -> Claim:
        return functions.acquire_lease(
            conn,
            name,
            lifetime,
            owner=owner,
            slots=slots,
            max_hold=max_hold,
            min_hold=min_hold,
            nonce=nonce,
        )

    hold = acquire(dsn, ask, lifetime, _wait(wait))
    with closing(hold):
        try:
            with _heartbeat(hold):
                yield Holder(hold)
        except BaseException:
            if hold.held:
                hold.release()
            raise
        hold.check()
        hold.release()
        hold.check()


@contextmanager
def _run(dsn: Dsn, ask: Ask, ttl: timedelta, wait: Span | None) -> Iterator[Run]:
    hold = acquire(dsn, ask, ttl, _wait(wait))
    leaving: SystemExit | None = None
    with closing(hold):
        run = Run(hold)
        try:
            with _heartbeat(hold):
                try:
                    yield run
                except SystemExit as error:
                    if error.code not in (None, 0):
                        raise
                    leaving = error  # the program ends, and ends well
        except BaseException as error:
            if hold.held:
                hold.failed(f"{type(error).__name__}: {error}")
            raise
        if not hold.refused:
            hold.check()
        _done(hold, run._final_result())
        if leaving is not None:
            raise leaving


def _done(hold: Hold, result: Any) -> None:
    """``NotHeld`` if the beats were refused, unless the block itself has finished the run."""
    try:
        hold.done(result)
    except InvalidArgument as error:
        # Such as a character that the database's encoding does not have. The work has ended well.
        logger.warning("%s: done, but its result cannot be stored: %s", hold.label, error.message)
        hold.done()


@contextmanager
def _heartbeat(hold: Hold) -> Iterator[None]:
    hold.start()
    try:
        hold.wait_for_start()
        yield
    finally:
        hold.leave()
        hold.stop()


def _ttl(ttl: Span | None, max_hold: Span | None = None) -> timedelta:
    """What is asked for; by default 60 s, or a lease's max_hold if that is less."""
    if ttl is not None:
        return span(ttl, "ttl")
    longest = timedelta() if max_hold is None else span(max_hold, "max_hold")
    return min(DEFAULT_TTL, longest or DEFAULT_TTL)


def _wait(wait: Span | None) -> timedelta:
    return timedelta() if wait is None else span(wait, "wait")


def every(
    schedule: str,
    *,
    job: str,
    dsn: Dsn,
    timezone: str | None = None,
    ttl: Span | None = None,
    owner: str | None = None,
    wait: Span | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Decorator: a call runs the function if the window that is open now is ours, else returns None.

    It starts nothing by itself; call the function as often as you like, from any scheduler, on every host.
    """
    return _only_with(lambda: window(dsn, job, schedule, timezone=timezone, ttl=ttl, owner=owner, wait=wait))


def exclusive(
    name: str,
    *,
    dsn: Dsn,
    ttl: Span | None = None,
    owner: str | None = None,
    slots: int | None = None,
    max_hold: Span | None = None,
    min_hold: Span | None = None,
    wait: Span | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Decorator: a call runs the function while holding the lease, or returns None if somebody else does."""
    return _only_with(
        lambda: lease(
            dsn,
            name,
            ttl=ttl,
            owner=owner,
            slots=slots,
            max_hold=max_hold,
            min_hold=min_hold,
            wait=wait,
        )
    )


def _only_with(
    block: Callable[[], AbstractContextManager[Holder]],
) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
        name = getattr(function, "__qualname__", None) or repr(function)
        if _ends_later(function):
            raise TypeError(f"{name}: {_PLAIN}")

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | None:
            with ExitStack() as stack:
                try:
                    held = stack.enter_context(block())
                except Denied:  # ours, and said; one that the function raises is its own business
                    return None
                value = function(*args, **kwargs)
                if _close_unfinished(value):
                    raise TypeError(
                        f"{name}: {_PLAIN}, and this one has returned a {type(value).__qualname__}"
                    )
                if isinstance(held, Run):
                    try:
                        held.result = value
                    except (TypeError, ValueError) as error:
                        logger.warning("%s: what it returned is not stored: %s", name, error)
                return value

        return wrapper

    return decorate


_PLAIN = "only a plain function has ended when its call returns"


def _ends_later(function: Callable[..., object]) -> bool:
    """Whether a call is known to return before its work is done, so that it would work without a grant."""
    while isinstance(function, functools.partial):
        function = function.func
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(kind(each) for kind in kinds for each in (function, getattr(function, "__call__", None)))  # noqa: B004


def _close_unfinished(value: object) -> bool:
    """Whether it is work that has not ended, or not begun; it is closed then, where it can be."""
    if not (inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value)):
        return False
    for name in ("close", "cancel"):  # of coroutines and generators; of futures and tasks
        method = getattr(value, name, None)
        if callable(method):
            method()
            break
    return True
