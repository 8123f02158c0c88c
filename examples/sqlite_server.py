"""An MCP server for one SQLite database, which it only reads.

    python3 examples/sqlite_server.py [FILE]

Without a file the database is in memory: a shop's customers and orders, the same ones each time.
"""

import math
import pathlib
import random
import sqlite3
import sys
import time

from mcp_stdio import Refusal, Server, tool

ROWS_MAX = 10_000
SECONDS_MAX = 5
TEXT_BYTES_MAX = 4 << 20
ANSWER_CHARACTERS_MAX = 8 << 20
FIRST = ["Alder", "Birch", "Cedar", "Dune", "Ember", "Fjord", "Grove", "Harbor", "Iris", "Juniper"]
LAST = ["Analytics", "Books", "Coffee", "Design", "Energy", "Foods", "Gardens", "Health"]
REGIONS = ["Africa", "Americas", "Asia", "Europe", "Oceania"]


def shop():
    """A database in memory with 80 customers and their orders of one year."""
    database = sqlite3.connect(":memory:")
    database.executescript(
        """
        CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL, region TEXT NOT NULL);
        CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id),
            day TEXT NOT NULL, amount_cents INTEGER NOT NULL, status TEXT NOT NULL);
        CREATE INDEX orders_of_customer ON orders (customer_id);
        """
    )
    dice = random.Random(7)
    names = ["%s %s" % (first, last) for last in LAST for first in FIRST]
    for ident, name in enumerate(names, 1):
        email = name.lower().replace(" ", ".") + "@example.org"
        database.execute("INSERT INTO customers VALUES (?, ?, ?, ?)", (ident, name, email, dice.choice(REGIONS)))
        size = dice.choice([1, 1, 1, 2, 3, 8])
        for _ in range(dice.randint(5, 40)):
            day = "2025-%02d-%02d" % (dice.randint(1, 12), dice.randint(1, 28))
            status = dice.choice(["paid", "paid", "paid", "refunded"])
            amount = dice.randint(1_000, 90_000) * size
            row = (ident, day, amount, status)
            database.execute("INSERT INTO orders (customer_id, day, amount_cents, status) VALUES (?, ?, ?, ?)", row)
    database.commit()
    return database


def only_reading(action, first, second, _database, _trigger):
    """What a statement may do: select, read, compute. It cannot attach a file, for one."""
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second != "load_extension":
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first == "table_info":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def opened(words):
    if words:
        database = sqlite3.connect(pathlib.Path(words[0]).absolute().as_uri() + "?mode=ro", uri=True)
    else:
        database = shop()
    database.execute("PRAGMA query_only = ON")
    if hasattr(database, "setlimit"):
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT_BYTES_MAX)
    database.set_authorizer(only_reading)
    return database


def rows_of(sql, params=()):
    """The names of the columns, the rows, and whether there would be more."""
    deadline = time.monotonic() + SECONDS_MAX
    DATABASE.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    try:
        cursor = DATABASE.execute(sql, params)
        columns, rows, size = [column[0] for column in cursor.description or []], [], 0
        for row in cursor:
            size += sum(len(str(value)) for value in row)
            if len(rows) == ROWS_MAX or size > ANSWER_CHARACTERS_MAX:
                return columns, rows, True
            rows.append(row)
        return columns, rows, False
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        if time.monotonic() > deadline:
            raise Refusal("the query took longer than %d s; ask for less" % SECONDS_MAX) from error
        advice = "statements can only read; list_tables and describe_table tell what there is"
        raise Refusal("SQLite says: %s (%s)" % (error, advice)) from error


def plain(value):
    """As JSON has it."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def query_database(sql, params=()):
    if not isinstance(sql, str) or not isinstance(params, (list, tuple)):
        raise Refusal("sql is a text, and params is a list")
    if any(not isinstance(each, (str, int, float, type(None))) for each in params):
        raise Refusal("params are texts, numbers, true, false or null")
    columns, rows, truncated = rows_of(sql, params)
    if len(set(columns)) != len(columns):
        raise Refusal("two columns have the same name; rename one with AS")
    named = [dict(zip(columns, map(plain, row))) for row in rows]
    return {"columns": columns, "rows": named, "row_count": len(named), "truncated": truncated}


def list_tables():
    _, found, _ = rows_of("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
    return {"tables": [name for (name,) in found if not name.startswith("sqlite_")]}


def describe_table(table):
    if table not in list_tables()["tables"]:
        raise Refusal("there is no table %r; there are %s" % (table, ", ".join(list_tables()["tables"])))
    quoted = '"%s"' % table.replace('"', '""')
    _, found, _ = rows_of("PRAGMA table_info(%s)" % quoted)
    columns = [{"name": name, "type": kind, "nullable": not strict, "primary_key": bool(key)}
        for _, name, kind, strict, _, key in found]
    _, [(count,)], _ = rows_of("SELECT count(*) FROM %s" % quoted)
    return {"table": table, "columns": columns, "row_count": count}


def shape(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
NAMES = {"type": "array", "items": TEXT}
VALUE = {"type": ["string", "number", "null", "object"]}
ROWS = {"type": "array", "items": {"type": "object", "additionalProperties": VALUE}}
COLUMN = shape(name=TEXT, type=TEXT, nullable={"type": "boolean"}, primary_key={"type": "boolean"})
READS = {"readOnlyHint": True, "openWorldHint": False}

TOOLS = [
    tool(query_database, "Runs one SQL query (SQLite) that reads, and returns its rows. Write ? for values and give "
        "them in params.", {"sql": {**TEXT, "description": "One SELECT statement."},
        "params": {"type": "array", "items": {"type": ["string", "number", "boolean", "null"]},
            "description": "The values of the ? in it, in order."}}, ["sql"],
        shape(columns=NAMES, rows=ROWS, row_count=COUNT, truncated={"type": "boolean"}), **READS),
    tool(list_tables, "Names the tables of the database.", {}, (), shape(tables=NAMES), **READS),
    tool(describe_table, "Tells the columns of a table, and how many rows it has.", {"table": TEXT}, ["table"],
        shape(table=TEXT, columns={"type": "array", "items": COLUMN}, row_count=COUNT), **READS),
]

if __name__ == "__main__":
    DATABASE = opened(sys.argv[1:])
    Server("sqlite", "1.0.0", "One SQLite database, read only.", TOOLS).serve()
