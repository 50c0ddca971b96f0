"""Run by Alembic for `pgonce migrate`, on the connection and in the transaction of pgonce.schema.migrate."""

from alembic import context

from pgonce.schema import VERSION_TABLE, create_schema

connection = context.config.attributes["connection"]
create_schema(connection)  # the version table stands in it
context.configure(connection=connection, version_table=VERSION_TABLE, version_table_schema="pgonce")
with context.begin_transaction():
    context.run_migrations()
