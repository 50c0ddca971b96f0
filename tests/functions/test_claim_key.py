"""claim_key: each operation once. (Races and open transactions: tests/rules.)

The operation is "order-17" of the scope "invoices", with a ttl of ten minutes; it is noon.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import combinations_with_replacement
from typing import Any
from uuid import uuid4

import pytest

from tests.functions.holding import after, run, sqlstate
from tests.functions.refusals import assert_refused, bad_durations, bad_names
from tests.functions.stops import stopping_at
from tests.helpers import Clock, Conn, Row, call, wait_for_lock

Connect = Callable[..., Conn]


def claim(conn: Conn, **arguments: Any) -> Row:
    asked = {"scope": "invoices", "key": "order-17", "ttl": "10 minutes", **arguments}
    answer: Row = call(conn, "claim_key", **asked)
    return answer


def grant(conn: Conn, **arguments: Any) -> int:
    """Claim what can be claimed; its token."""
    answer = claim(conn, **arguments)
    assert answer["reason"] == "granted", answer
    token: int = answer["token"]
    return token


def define(conn: Conn, **settings: Any) -> None:
    call(conn, "define_job", job="invoices", **settings)


def done(conn: Conn, token: int, **arguments: Any) -> None:
    assert call(conn, "mark_done", token=token, **arguments) is True


def failed(conn: Conn, token: int, retry_in: str | None = None) -> None:
    assert call(conn, "mark_failed", token=token, retry_in=retry_in) is True


def reason(conn: Conn, **arguments: Any) -> str:
    answer: str = claim(conn, **arguments)["reason"]
    return answer


def denial(conn: Conn, **fields: Any) -> Row:
    """What a denial says, with these fields in it."""
    empty = dict.fromkeys(claim(conn, key="another"))
    return {**empty, "claimed": False, "name": "invoices", "key": "order-17", "attempt": 1, **fields}


# --- The answer.


def test_a_grant_tells_all(conn: Conn, clock: Clock) -> None:
    answer = claim(conn, owner="host-a")
    token = answer["token"]
    assert isinstance(token, int)
    assert 0 < token < 2**53
    assert answer == {
        "claimed": True,
        "reason": "granted",
        "name": "invoices",
        "key": "order-17",
        "token": token,
        "attempt": 1,
        "owner": "host-a",
        "expires_at": after(minutes=10),
        "window_start": None,
        "window_end": None,
        "retry_at": None,
        "result": None,
    }


def test_held_tells_of_the_holder(conn: Conn, connect: Connect, clock: Clock) -> None:
    grant(conn, owner="host-a")
    clock.advance(minutes=1)
    until = after(minutes=10)
    expected = denial(conn, reason="held", owner="host-a", expires_at=until, retry_at=until)
    assert claim(connect(), owner="host-b") == expected


def test_done_brings_the_result(conn: Conn, connect: Connect, clock: Clock) -> None:
    """And tells who did it."""
    done(conn, grant(conn, ttl="1 second", owner="host-a"), result='{"rows": 7}')
    for days in (0, 1, 89):
        clock.set(after(days=days))
        assert claim(connect()) == denial(conn, reason="done", owner="host-a", result={"rows": 7})


def test_a_result_is_for_those_who_could_have_stored_it(connect: Connect, conn: Conn, clock: Clock) -> None:
    worker = connect("worker")
    done(worker, grant(worker), result="[1]")
    assert [claim(who)["result"] for who in (worker, conn, connect("worker2"))] == [[1], [1], None]
    assert reason(connect("worker2")) == "done"


def test_the_owner_is_made_from_application_name_and_address(connect: Connect, clock: Clock) -> None:
    assert claim(connect(application_name="api"))["owner"] == "api@127.0.0.1"


def test_scopes_keys_windows_and_leases_are_apart(conn: Conn, clock: Clock) -> None:
    grant(conn)
    grant(conn, key="order-18")
    grant(conn, scope="receipts")
    window = call(conn, "claim_window", job="invoices", schedule="@daily")
    assert window["reason"] == "granted"
    grant(conn, key=window["key"])
    assert call(conn, "acquire_lease", name="invoices", ttl="1 minute")["reason"] == "granted"


# --- How long.


@pytest.mark.parametrize(
    ("ttl", "length"), [("100 milliseconds", timedelta(seconds=0.1)), ("366 days", timedelta(days=366))]
)
def test_ttl(conn: Conn, clock: Clock, ttl: str, length: timedelta) -> None:
    assert claim(conn, ttl=ttl)["expires_at"] == after() + length


def test_a_day_is_24_hours(connect: Connect, clock: Clock) -> None:
    """Whatever the session's zone: clocks go forward in the night to 2026-03-29 in Berlin."""
    clock.set("2026-03-28T12:00:00Z")
    berlin = connect(options="-c TimeZone=Europe/Berlin")
    call(berlin, "define_job", job="invoices", max_hold="1 day", keep="1 day")
    answer = claim(berlin, ttl="1 day")
    assert answer["expires_at"] == clock.now + timedelta(hours=24)
    done(berlin, answer["token"])
    clock.advance(hours=23, minutes=59)
    assert reason(berlin) == "done"
    clock.advance(minutes=1)
    assert reason(berlin) == "granted"


def test_the_ttl_runs_from_the_grant(conn: Conn, connect: Connect, clock: Clock) -> None:
    """Case 13: the transaction is old, and the statement waits for somebody who then rolls back."""
    conn.execute("alter function pgonce._insert_run(pgonce.run) set lock_timeout = '20s'")
    first, second = connect(autocommit=False), connect(autocommit=False)
    second.execute("select 1")
    grant(first)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(claim, second, ttl="2 seconds")
        wait_for_lock(conn, second.info.backend_pid)
        clock.advance(seconds=3)
        first.rollback()
        answer = waiting.result()
    assert (answer["reason"], answer["attempt"]) == ("granted", 1)
    assert answer["expires_at"] == after(seconds=5)
    second.commit()
    assert run(conn, "invoices", "order-17")["claimed_at"] == after(seconds=3)


# --- Attempts.


def test_a_repeat_while_the_first_still_works(conn: Conn, connect: Connect, clock: Clock) -> None:
    """Case 28: never a second execution: busy until the first one's claim is committed, then held."""
    first, client = connect(autocommit=False), connect()
    grant(first)
    assert claim(client) == denial(conn, reason="busy", attempt=None)
    first.commit()
    assert reason(client) == "held"
    assert run(conn, "invoices", "order-17")["attempt"] == 1


def test_a_killed_one_is_claimed_again(conn: Conn, connect: Connect, clock: Clock) -> None:
    """Cases 29 and 30: only the current token is recorded, in whatever order both finish."""
    first = grant(conn)
    clock.set(after(minutes=9, seconds=59.999999))
    assert reason(connect()) == "held"
    clock.set(after(minutes=10))
    answer = claim(connect(), owner="host-b")
    second = answer["token"]
    assert (answer["reason"], answer["attempt"], answer["expires_at"]) == ("granted", 2, after(minutes=20))
    assert second > first
    assert sqlstate(conn, "mark_done", token=first, result='"slow"') == "ON001"
    done(conn, second, result='"quick"')
    assert sqlstate(conn, "mark_done", token=first, result='"slow"') == "ON001"
    assert claim(conn)["result"] == "quick"


def test_backoff(conn: Conn, clock: Clock) -> None:
    failed(conn, grant(conn), retry_in="45 seconds")
    clock.set(after(seconds=44.999999))
    assert claim(conn) == denial(conn, reason="backoff", retry_at=after(seconds=45))
    clock.set(after(seconds=45))
    assert claim(conn)["attempt"] == 2


@pytest.mark.parametrize("max_attempts", [None, 1, 2])
def test_exhausted(conn: Conn, clock: Clock, max_attempts: int | None) -> None:
    """Attempts that failed and attempts that expired count alike; three by default."""
    if max_attempts is not None:
        define(conn, max_attempts=max_attempts)
    for attempt in range(1, (max_attempts or 3) + 1):
        answer = claim(conn)
        assert (answer["reason"], answer["attempt"]) == ("granted", attempt)
        if attempt % 2:
            clock.advance(minutes=10)
        else:
            failed(conn, answer["token"], retry_in="0")
    assert claim(conn) == denial(conn, reason="exhausted", attempt=max_attempts or 3)


def test_exhausted_before_backoff(conn: Conn, clock: Clock) -> None:
    define(conn, max_attempts=1)
    failed(conn, grant(conn), retry_in="1 hour")
    assert reason(conn) == "exhausted"


def test_held_before_exhausted(conn: Conn, clock: Clock) -> None:
    define(conn, max_attempts=1)
    grant(conn)
    assert reason(conn) == "held"


def test_done_before_exhausted(conn: Conn, clock: Clock) -> None:
    define(conn, max_attempts=1)
    done(conn, grant(conn))
    assert reason(conn) == "done"


def test_the_present_max_attempts_decides(conn: Conn, clock: Clock) -> None:
    define(conn, max_attempts=1)
    failed(conn, grant(conn), retry_in="0")
    define(conn, max_attempts=2)
    assert claim(conn)["attempt"] == 2


# --- keep.


@pytest.mark.parametrize(
    ("defined", "given", "kept"),
    [
        (None, None, timedelta(days=90)),
        (None, "2 hours", timedelta(hours=2)),
        ("1 day", None, timedelta(days=1)),
        ("1 day", "2 days", timedelta(days=2)),
        ("1 day", "2 hours", timedelta(hours=2)),
        ("0", None, timedelta(0)),
        ("1 day", "0", timedelta(0)),
    ],
)
def test_a_done_one_is_granted_anew_after_keep(
    conn: Conn, connect: Connect, clock: Clock, defined: str | None, given: str | None, kept: timedelta
) -> None:
    """Case 32: a retry gets the stored result, or a grant."""
    if defined is not None:
        define(conn, keep=defined)
    clock.advance(minutes=1)
    first = grant(conn, fingerprint="a")
    clock.advance(minutes=1)
    done(conn, first, result="1", keep=given)
    finished = after(minutes=2)
    if kept:
        clock.set(finished + kept - timedelta(microseconds=1))
        assert claim(connect(), fingerprint="a")["result"] == 1
    clock.set(finished + kept)
    answer = claim(connect(), fingerprint="b")
    assert (answer["reason"], answer["attempt"], answer["result"]) == ("granted", 1, None)
    assert answer["token"] > first
    assert sqlstate(conn, "mark_done", token=first) == "ON001"
    record = run(conn, "invoices", "order-17")
    assert (record["state"], record["finished_at"], record["result"]) == ("running", None, None)


def test_a_retry_while_expired_keys_are_swept(conn: Conn, connect: Connect, clock: Clock) -> None:
    """Case 32: undecided while the sweeper's transaction is open; then a grant, or the result."""
    done(conn, grant(conn, key="old"), keep="1 hour")
    done(conn, grant(conn, key="kept"), result="1", keep="3 hours")
    clock.advance(hours=2)
    sweeper, client = connect(autocommit=False), connect()
    sweeper.execute("delete from pgonce.run where keep_until <= pgonce.clock()")
    assert (reason(client, key="old"), reason(client, key="kept")) == ("busy", "done")
    sweeper.commit()
    answer = claim(client, key="old")
    assert (answer["reason"], answer["attempt"]) == ("granted", 1)
    assert claim(client, key="kept")["result"] == 1


@pytest.mark.parametrize("last", ["failed", "expired"])
def test_an_exhausted_one_is_granted_anew_keep_after_its_last_attempt(
    conn: Conn, clock: Clock, last: str
) -> None:
    define(conn, max_attempts=1, keep="1 day")
    token = grant(conn, fingerprint="a")
    clock.advance(minutes=10)
    if last == "failed":
        failed(conn, token, retry_in="2 days")
    ended = clock.now
    clock.set(ended + timedelta(days=1, microseconds=-1))
    assert reason(conn, fingerprint="a") == "exhausted"
    clock.set(ended + timedelta(days=1))
    answer = claim(conn, fingerprint="b")
    assert (answer["reason"], answer["attempt"]) == ("granted", 1)
    assert answer["token"] > token


def test_keep_ends_nothing_that_can_still_be_retried(conn: Conn, clock: Clock) -> None:
    """A failed operation with attempts left goes on counting them, and keeps its fingerprint."""
    define(conn, keep="1 minute")
    failed(conn, grant(conn, fingerprint="a"), retry_in="0")
    clock.advance(hours=1)
    assert sqlstate(conn, "claim_key", scope="invoices", key="order-17", ttl="1 minute") == "ON002"
    assert claim(conn, fingerprint="a")["attempt"] == 2


def test_keep_ends_no_holder(conn: Conn, clock: Clock) -> None:
    define(conn, keep="1 minute", max_attempts=1)
    grant(conn, ttl="2 hours")
    clock.advance(hours=1)
    assert reason(conn) == "held"


# --- The fingerprint.


@pytest.mark.parametrize(
    ("known", "given"), [("a", "b"), ("a", None), (None, "a"), (None, ""), ("a", "A"), ("a", "a ")]
)
def test_another_fingerprint(conn: Conn, clock: Clock, known: str | None, given: str | None) -> None:
    """Case 31: the same key, another payload: ON002 whatever the state of the first."""
    asked = {"scope": "invoices", "key": "order-17", "ttl": "10 minutes", "fingerprint": given}
    token = grant(conn, fingerprint=known)
    assert sqlstate(conn, "claim_key", **asked) == "ON002"
    failed(conn, token, retry_in="1 minute")
    assert sqlstate(conn, "claim_key", **asked) == "ON002"
    clock.advance(minutes=1)
    assert sqlstate(conn, "claim_key", **asked) == "ON002"
    token = grant(conn, fingerprint=known)
    clock.advance(minutes=20)
    assert sqlstate(conn, "claim_key", **asked) == "ON002"
    assert call(conn, "assert_held", token=token) is True
    done(conn, token)
    assert sqlstate(conn, "claim_key", **asked) == "ON002"
    assert reason(conn, fingerprint=known) == "done"


@pytest.mark.parametrize("fingerprint", [None, "", " padded\n", "x" * 100_000])
def test_a_fingerprint_is_any_text(conn: Conn, clock: Clock, fingerprint: str | None) -> None:
    grant(conn, fingerprint=fingerprint)
    assert reason(conn, fingerprint=fingerprint) == "held"


def test_another_fingerprint_is_an_error_that_says_what_to_do(conn: Conn, clock: Clock) -> None:
    grant(conn)
    with pytest.raises(
        Exception, match='key "order-17" of scope "invoices" is known with another fingerprint'
    ) as raised:
        claim(conn, fingerprint="b")
    assert raised.value.diag.message_hint  # type: ignore[attr-defined]


# --- max_hold.


def test_max_hold(conn: Conn, clock: Clock) -> None:
    define(conn, max_hold="15 minutes")
    token = grant(conn)
    clock.advance(minutes=5)
    assert call(conn, "renew_lease", token=token) == after(minutes=15)
    clock.advance(seconds=1)
    assert sqlstate(conn, "renew_lease", token=token) == "ON003"
    assert reason(conn) == "held"


# --- The same question again.


def test_the_same_question_brings_the_same_grant_renewed(conn: Conn, connect: Connect, clock: Clock) -> None:
    nonce = uuid4()
    first = claim(conn, nonce=nonce, owner="host-a", fingerprint="a")
    clock.advance(minutes=4)
    again = claim(connect(), nonce=nonce, owner="host-a", fingerprint="a")
    assert again == {**first, "expires_at": after(minutes=14)}
    assert claim(connect(), nonce=nonce, fingerprint="a", ttl="1 second") == again
    assert reason(conn, nonce=uuid4(), fingerprint="a") == "held"


def test_a_replay_after_expiry_when_nobody_came(conn: Conn, clock: Clock) -> None:
    nonce = uuid4()
    first = claim(conn, nonce=nonce)
    clock.advance(hours=1)
    assert claim(conn, nonce=nonce) == {**first, "expires_at": after(hours=1, minutes=10)}


def test_a_replay_of_the_last_attempt(conn: Conn, clock: Clock) -> None:
    """Held until taken: even when no attempt is left for anybody else."""
    define(conn, max_attempts=1)
    nonce = uuid4()
    first = grant(conn, nonce=nonce)
    clock.advance(hours=1)
    assert reason(conn) == "exhausted"
    assert claim(conn, nonce=nonce)["token"] == first


def test_the_same_question_when_it_is_kept_no_longer(conn: Conn, clock: Clock) -> None:
    """Expired, exhausted and past keep, but nobody took it over: still the same grant.

    Seen to fail: it was granted anew to whoever held it.
    """
    define(conn, max_attempts=1, keep="0")
    nonce = uuid4()
    first = claim(conn, nonce=nonce, ttl="1 second")
    clock.advance(seconds=2)
    assert claim(conn, nonce=nonce)["token"] == first["token"]
    clock.advance(hours=1)
    assert claim(conn, nonce=uuid4())["token"] > first["token"]
    assert claim(conn, nonce=nonce)["reason"] == "held"


def test_a_replay_up_to_max_hold(conn: Conn, clock: Clock) -> None:
    define(conn, max_hold="15 minutes")
    nonce = uuid4()
    first = claim(conn, nonce=nonce)
    for minutes in (6, 14):
        clock.set(after(minutes=minutes))
        assert claim(conn, nonce=nonce) == {**first, "expires_at": after(minutes=15)}
    clock.set(after(minutes=15))
    anew = claim(conn, nonce=nonce)
    assert (anew["reason"], anew["attempt"]) == ("granted", 2)
    assert anew["token"] > first["token"]


@pytest.mark.parametrize(
    ("ended_by", "expected"), [("mark_done", "done"), ("mark_failed", "backoff"), ("takeover", "held")]
)
def test_the_question_of_an_ended_grant_is_a_new_one(
    conn: Conn, connect: Connect, clock: Clock, ended_by: str, expected: str
) -> None:
    nonce = uuid4()
    token = grant(conn, nonce=nonce)
    if ended_by == "takeover":
        clock.advance(minutes=10)
        grant(connect())
    else:
        call(conn, ended_by, token=token)
    assert reason(conn, nonce=nonce) == expected


def test_somebody_elses_question(connect: Connect, clock: Clock) -> None:
    """A nonce belongs to the role, the scope and the key it was asked for."""
    nonce = uuid4()
    worker = connect("worker")
    grant(worker, nonce=nonce)
    assert reason(connect("worker2"), nonce=nonce) == "held"
    assert claim(worker, key="order-18", nonce=nonce)["key"] == "order-18"
    assert claim(worker, scope="receipts", nonce=nonce)["name"] == "receipts"


def test_a_question_with_another_fingerprint_is_another_one(conn: Conn, clock: Clock) -> None:
    nonce = uuid4()
    grant(conn, nonce=nonce, fingerprint="a")
    asked = {"scope": "invoices", "key": "order-17", "ttl": "1 minute", "fingerprint": "b", "nonce": nonce}
    assert sqlstate(conn, "claim_key", **asked) == "ON002"


# --- Denials on record.


def test_denials_are_recorded_where_asked_for(conn: Conn, connect: Connect, clock: Clock) -> None:
    define(conn, record_denials=True)
    first = connect(autocommit=False)
    grant(first)
    assert reason(conn, owner="host-b") == "busy"
    first.commit()
    clock.advance(seconds=1)
    assert reason(conn, owner="host-b") == "held"
    grant(conn, scope="receipts")
    assert reason(conn, scope="receipts") == "held"
    rows = conn.execute("select at, name, key, owner, reason from pgonce.denial order by at").fetchall()
    assert [tuple(row.values()) for row in rows] == [
        (after(), "invoices", "order-17", "host-b", "busy"),
        (after(seconds=1), "invoices", "order-17", "host-b", "held"),
    ]


# --- Several at once. (More in tests/rules.)


def test_a_record_that_is_swept_and_made_anew_meanwhile(conn: Conn, connect: Connect) -> None:
    """Case 32. A slow claim has read a failed record. As it reads the clock, at all times and in this order:

    a sweeper deletes the record; another claim makes a new one and fails at once; a third one is granted it.
    Nobody may take it away from the third.

    Seen to fail: the second look found no record, its insertion came too late, and then it wrote its grant
    over a record that it had read but not locked.
    """
    client = connect()
    lost = []

    def sweep(key: str) -> None:
        conn.execute(
            "delete from pgonce.run where token in"
            " (select token from pgonce.run where key = %s and state = 'failed' for update skip locked)",
            (key,),
        )

    def try_and_fail(key: str) -> None:
        token = claim(client, key=key)["token"]
        if token is not None:
            failed(client, token, retry_in="0")

    def take(key: str, tokens: list[int]) -> None:
        answer = claim(client, key=key)
        if answer["claimed"]:
            tokens.append(answer["token"])

    for second, third in combinations_with_replacement(range(1, 7), 2):
        key = f"{second} {third}"
        tokens: list[int] = []
        failed(conn, grant(conn, key=key), retry_in="0")
        answer = stopping_at(
            conn,
            connect,
            partial(claim, key=key),
            [
                (1, partial(sweep, key)),
                (second, partial(try_and_fail, key)),
                (third, partial(take, key, tokens)),
            ],
        )
        if tokens and sqlstate(conn, "assert_held", token=tokens[0]) is not None:
            lost.append(f"at readings 1, {second}, {third}: {tokens[0]} lost to {answer['token']}")
    assert lost == []


# --- Bad input.

VALID = {"scope": "invoices", "key": "order-17", "ttl": "1 minute", "owner": "host-a", "fingerprint": "a"}


def test_refusals(conn: Conn, clock: Clock) -> None:
    assert_refused(
        conn,
        "claim_key",
        VALID,
        [
            *bad_names("scope"),
            *bad_names("key", 1000),
            *bad_names("owner", required=False),
            *bad_durations(conn, "ttl", zero=False, required=True),
        ],
    )


def test_refusals_for_a_key_on_record(conn: Conn, clock: Clock) -> None:
    """Free, held, and not to be had: a bad argument is refused all the same."""
    define(conn, max_hold="1 hour", max_attempts=1)
    for state in ("new", "held", "exhausted"):
        if state == "held":
            grant(conn, fingerprint="a")
        elif state == "exhausted":
            clock.advance(hours=1)
        assert_refused(
            conn,
            "claim_key",
            VALID,
            [
                *bad_names("scope"),
                *bad_names("key", 1000),
                *bad_names("owner", required=False),
                *bad_durations(conn, "ttl", zero=False, required=True),
            ],
        )


@pytest.mark.parametrize("state", ["new", "failed", "expired", "done"])
def test_a_ttl_above_max_hold_is_cut(conn: Conn, clock: Clock, state: str) -> None:
    """Case 71: a caller need not know the scope's max_hold. Seen to fail (22023)."""
    define(conn, max_hold="1 minute")
    if state != "new":
        token = grant(conn, ttl="2 minutes")
        if state == "failed":
            failed(conn, token, retry_in="0")
        elif state == "expired":
            clock.advance(minutes=1)
        else:
            done(conn, token, keep="0")
            clock.advance(seconds=1)
    token = grant(conn, ttl="61 minutes")
    assert run(conn, "invoices", "order-17")["expires_at"] == clock.now + timedelta(minutes=1)
    assert sqlstate(conn, "renew_lease", token=token, ttl="61 seconds") == "22023"
    assert call(conn, "renew_lease", token=token) == clock.now + timedelta(minutes=1)  # the ttl granted
    assert reason(conn, ttl="61 minutes") == "held"


def test_names_up_to_the_limit(conn: Conn, clock: Clock) -> None:
    for key in ("k" * 1000, "é" * 500, "日本 %s :x $$ '\" \\", "2026-06-01T12:00:00Z"):
        answer = claim(conn, scope="é" * 100, key=key, owner="o" * 200)
        assert (answer["reason"], answer["name"], answer["key"]) == ("granted", "é" * 100, key)
