-- pgonce: PostgreSQL decides, once, who runs.
--
--     psql -v ON_ERROR_STOP=1 -f sql/install.sql
--
-- installs what pgonce is today, in one transaction: one ordinary schema, no extension, no superuser. This file is the
-- table of contents. (Databases that are to be upgraded later are installed by the same text, frozen in migrations/.)
--
-- How a claim decides. It reads, and answers a denial from what it has read: no lock, no transaction id, nothing
-- written, nobody waited for. Only who may win goes on to lock: an insertion where there is no record yet ("on conflict
-- do nothing", 50 ms), else the row, "for update skip locked"; what is locked elsewhere is answered busy. Under the
-- lock it reads the clock and checks everything again. Then it writes owner, a new token and expires_at = clock + ttl.
--
-- Why it holds. Every grant writes the one row that a competing grant would write too: the operation's record, the
-- lease's slot, the job's row. A token is the only proof of holding. Whoever takes over, or is granted what excludes
-- an expired holder, replaces the token in the row ("burns" it), so that every later call with the old one raises ON001.
-- renew_lease and mark_done lock "for no key update", assert_held "for key share"; a takeover changes the token, which
-- is unique, so it needs "for update": it never passes an assert_held, while a heartbeat does.
--
-- Lock order: job, run, lease. Nothing that pgonce calls waits for a lock longer than 100 ms (define_job: 10 s), and a
-- grant never waits for an existing row at all, so that even callers who claim several things cannot deadlock.

\set ON_ERROR_STOP on
begin;

\ir schema.sql
\ir tables/job.sql
\ir tables/run.sql
\ir tables/lease.sql
\ir tables/denial.sql

-- What the functions share: arguments, roles, tokens, the caller's transaction.
\ir functions/_refuse_null.sql
\ir functions/_quoted.sql
\ir functions/_check_name.sql
\ir functions/_check_instant.sql
\ir functions/_check_max_hold.sql
\ir functions/_duration.sql
\ir functions/_require_writable.sql
\ir functions/_caller.sql
\ir functions/_may_use.sql
\ir functions/_may_see.sql
\ir functions/_owner.sql
\ir functions/_next_token.sql
\ir functions/_secure.sql
\ir functions/_not_held.sql

-- Schedules: from text to windows.
\ir schedule/_refuse_schedule.sql
\ir schedule/_refuse_item.sql
\ir schedule/_check_schedule.sql
\ir schedule/_every.sql
\ir schedule/_value.sql
\ir schedule/_item.sql
\ir schedule/_month_days.sql
\ir schedule/_week_days.sql
\ir schedule/_lowest.sql
\ir schedule/_highest.sql
\ir schedule/_compile.sql
\ir schedule/_check_zone.sql
\ir schedule/_wall.sql
\ir schedule/_transition.sql
\ir schedule/_day_before.sql
\ir schedule/_day_after.sql
\ir schedule/_before.sql
\ir schedule/_after.sql
\ir schedule/_fire_before.sql
\ir schedule/_fire_after.sql
\ir schedule/_window.sql
\ir schedule/window_at.sql
\ir schedule/windows.sql

-- Windows and operations.
\ir functions/_fresh_job.sql
\ir functions/_read_job.sql
\ir functions/_lock_job.sql
\ir functions/_resolve_schedule.sql
\ir functions/_run_reason.sql
\ir functions/_note_denial.sql
\ir functions/_deny.sql
\ir functions/_denied_late.sql
\ir functions/_granted.sql
\ir functions/_attempt.sql
\ir functions/_insert_run.sql
\ir functions/_write_attempt.sql
\ir functions/_replay.sql
\ir functions/define_job.sql
\ir functions/_grant_window.sql
\ir functions/_try_window.sql
\ir functions/_take_window.sql
\ir functions/claim_window.sql
\ir functions/_try_key.sql
\ir functions/_take_key.sql
\ir functions/claim_key.sql

-- Leases.
\ir functions/_lease_claim.sql
\ir functions/_insert_lease.sql
\ir functions/_resize_lease.sql
\ir functions/_replay_lease.sql
\ir functions/_take_slot.sql
\ir functions/acquire_lease.sql

-- What a holder does with its token.
\ir functions/_renewed.sql
\ir functions/_hold_run.sql
\ir functions/renew_lease.sql
\ir functions/release_lease.sql
\ir functions/mark_done.sql
\ir functions/mark_failed.sql
\ir functions/assert_held.sql

-- The rest.
\ir functions/_canonical.sql
\ir functions/key_of.sql
\ir functions/schema_version.sql
\ir views/runs.sql
\ir views/leases.sql
\ir functions/_revoke.sql
\ir functions/_prepare_role.sql
\ir functions/grant_worker.sql
\ir functions/grant_reader.sql
\ir grants.sql

commit;
