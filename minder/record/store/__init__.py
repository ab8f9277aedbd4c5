"""The one place with SQLAlchemy: engine, tables, migrations. Import the submodules; this package loads nothing."""
