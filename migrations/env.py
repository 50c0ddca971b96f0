"""Run by Alembic for `pgonce migrate`, on the connection and in the transaction of pgonce.schema.migrate."""

from alembic import context
from sqlalchemy import text

from pgonce.schema import VERSION_TABLE

connection = context.config.attributes["connection"]
if connection.scalar(text("select to_regnamespace('pgonce') is null")):
    connection.execute(text("create schema pgonce"))  # the version table stands in it
context.configure(connection=connection, version_table=VERSION_TABLE, version_table_schema="pgonce")
with context.begin_transaction():
    context.run_migrations()
