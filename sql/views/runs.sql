-- Every window and operation on record. A result is shown only to those for whom the run's token would work.

create view pgonce.runs as
select
    r.name,
    r.key,
    r.state,
    r.attempt,
    r.owner,
    r.role,
    case when not r.burnt then r.token end as token,
    r.claimed_at,
    r.expires_at,
    r.state = 'running' and r.expires_at <= pgonce.clock() as expired,
    r.finished_at,
    r.window_start,
    r.window_end,
    case when r.result is not null and pgonce._may_see(r.role) then r.result end as result,
    r.error
from pgonce.run r;

comment on view pgonce.runs is 'Every window and operation on record.';
comment on column pgonce.runs.name is 'Job or scope.';
comment on column pgonce.runs.key is 'Start of the window as YYYY-MM-DDTHH:MI:SSZ, or the operation''s key.';
comment on column pgonce.runs.state is 'running, done, failed, or replaced by a newer window.';
comment on column pgonce.runs.attempt is 'Number of the last attempt, from 1.';
comment on column pgonce.runs.owner is 'Label of the last holder.';
comment on column pgonce.runs.role is 'Role the token was granted to.';
comment on column pgonce.runs.token is 'Token of the last grant; null once it is burnt.';
comment on column pgonce.runs.claimed_at is 'When the last attempt was granted.';
comment on column pgonce.runs.expires_at is 'Until when the holder cannot be taken over.';
comment on column pgonce.runs.expired is 'Still running, but anybody may take over.';
comment on column pgonce.runs.finished_at is 'When the last attempt was finished (done, failed or replaced).';
comment on column pgonce.runs.window_start is 'The fire time that opened the window; null: an operation.';
comment on column pgonce.runs.window_end is 'The next fire time; null: an operation.';
comment on column pgonce.runs.result is 'What mark_done stored, if your role may see it.';
comment on column pgonce.runs.error is 'What the last mark_failed stored.';
