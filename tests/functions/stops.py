"""One call, stopped each time it has read the clock, so that other sessions can act in between."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.helpers import Conn, Row, value, wait_until

FIRST = 7000  # the advisory locks' keys: this one and those after it
LAST = 20  # no call reads the clock more often

CLOCK = f"""
    create schema stops;
    create sequence stops.readings;
    create or replace function pgonce.clock() returns timestamptz language plpgsql volatile as $$
    declare
        v_now     timestamptz := pg_catalog.clock_timestamp();
        v_reading bigint;
    begin
        if pg_catalog.current_setting('application_name') = 'stopped' then
            v_reading := {FIRST} - 1 + pg_catalog.nextval('stops.readings');
            perform pg_catalog.pg_advisory_lock(v_reading);
            perform pg_catalog.pg_advisory_unlock(v_reading);
        end if;
        return v_now;
    end
    $$
"""

WAITS = "select exists (select from pg_locks where locktype = 'advisory' and objid = %s and not granted)"


def stopping_at(
    conn: Conn,
    connect: Callable[..., Conn],
    ask: Callable[[Conn], Row],
    steps: list[tuple[int, Callable[[], object]]],
) -> Row:
    """What ``ask`` answers when each step is done at its n-th reading of the clock, from 1."""
    if value(conn, "select to_regnamespace('stops') is null"):
        conn.execute(CLOCK)
    conn.execute("select setval('stops.readings', 1, false)")
    with connect() as gate, connect(application_name="stopped") as asking, ThreadPoolExecutor() as pool:
        gate.execute(f"select pg_advisory_lock(n) from generate_series({FIRST}, {FIRST + LAST}) n")
        answer = pool.submit(ask, asking)
        for reading in range(1, LAST + 1):
            key = FIRST - 1 + reading

            def stopped_or_done(key: int = key) -> bool:
                return answer.done() or bool(value(conn, WAITS, key))

            wait_until(stopped_or_done)
            for at, step in steps:
                if at == reading and not answer.done():
                    step()
            gate.execute("select pg_advisory_unlock(%s)", (key,))
        return answer.result()
