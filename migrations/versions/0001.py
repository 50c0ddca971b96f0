"""Everything there is: the first release."""

from pgonce import schema

revision, down_revision, branch_labels, depends_on = "pgonce_0001", None, ("pgonce",), None


def upgrade() -> None:
    schema.upgrade(to=1)


def downgrade() -> None:
    schema.downgrade(since=1, to=0)
