-- Who was denied, when and why, for jobs and scopes with record_denials. Unlogged: it may be lost, and costs little.

create unlogged table pgonce.denial (
    at     timestamptz not null,
    name   text collate "C" not null,
    key    text collate "C",
    owner  text,
    reason text collate "C" not null
);

comment on table pgonce.denial is 'Denials of jobs and scopes defined with record_denials; lost when the server crashes.';
comment on column pgonce.denial.at is 'When the claim was denied.';
comment on column pgonce.denial.name is 'Job or scope.';
comment on column pgonce.denial.key is 'Start of the window, or key of the operation; null: no window was found.';
comment on column pgonce.denial.owner is 'Label of who asked.';
comment on column pgonce.denial.reason is 'Why: the reason of the claim.';
