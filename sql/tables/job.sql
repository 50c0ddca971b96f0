-- One row a job (windows of a schedule) or scope (operations): its settings, and what every grant of a window writes.
-- Heartbeats and mark_done never touch it. No column but the key is indexed, so that every update is HOT.

create table pgonce.job (
    job            text collate "C" not null,
    defined        boolean not null,
    schedule       text collate "C",
    timezone       text collate "C",
    compiled       bigint[],
    ttl            interval,
    overlap        text collate "C" not null,
    max_attempts   integer not null,
    start_deadline interval,
    early          interval not null,
    max_hold       interval,
    keep           interval not null,
    record_denials boolean not null,
    beginning      timestamptz,
    backfill       boolean not null,
    newest_start   timestamptz,
    newest_end     timestamptz,
    running        bigint[] not null,
    last_token     bigint not null,
    constraint job_pkey primary key (job),
    constraint job_overlap_check check (overlap in ('forbid', 'allow', 'replace')),
    constraint job_max_attempts_check check (max_attempts >= 1),
    constraint job_schedule_check check (num_nonnulls(schedule, timezone, compiled) in (0, 3)),
    constraint job_newest_check check (newest_start < newest_end)
) with (fillfactor = 50);

comment on table pgonce.job is 'Settings and state of a job or a scope; every grant of a window writes its row.';
comment on column pgonce.job.job is 'Name of the job, or scope of operations.';
comment on column pgonce.job.defined is 'Set by define_job: the stored schedule and zone bind every claim.';
comment on column pgonce.job.schedule is 'Cron expression, macro, or "every <interval>", as it was given.';
comment on column pgonce.job.timezone is 'Name of the schedule''s time zone.';
comment on column pgonce.job.compiled is 'The schedule as _compile made it; the first element carries the format''s version.';
comment on column pgonce.job.ttl is 'Default ttl of a claim; null: to the end of the window.';
comment on column pgonce.job.overlap is 'forbid, allow or replace: what a window does to one that still runs.';
comment on column pgonce.job.max_attempts is 'How often a window or an operation may be attempted.';
comment on column pgonce.job.start_deadline is 'How long after its start a window may still be claimed first; null: to its end.';
comment on column pgonce.job.early is 'How long before its start a call means the coming window, not the present one.';
comment on column pgonce.job.max_hold is 'How long a grant can be kept alive by renewing; null: for ever.';
comment on column pgonce.job.keep is 'How long finished runs are kept at least.';
comment on column pgonce.job.record_denials is 'Whether each denial adds a row to the table denial.';
comment on column pgonce.job.beginning is 'No window that starts before it is ever claimed.';
comment on column pgonce.job.backfill is
    'The beginning was set by a first grant, not by a definition or an operator: an explicit window_start may move it back.';
comment on column pgonce.job.newest_start is 'Start of the newest window granted; saves the search for the window now open.';
comment on column pgonce.job.newest_end is 'End of the newest window granted.';
comment on column pgonce.job.running is
    'Tokens of the runs that ran when the last window was granted, and its own: every run that a grant may exclude.';
comment on column pgonce.job.last_token is 'The greatest token given for a window of the job; it outlives pruned runs.';
