# belljar run --mcp-config examples/mcp.json examples/top_customers.sh
set -eu

# SQLite writes the report, so that nothing here has to read JSON but one text out of it.
sql="
    WITH top AS (
        SELECT name, region, sum(amount_cents) AS cents, row_number() OVER (ORDER BY sum(amount_cents) DESC) AS place
        FROM orders JOIN customers ON customers.id = customer_id
        WHERE status = ?
        GROUP BY customers.id ORDER BY cents DESC LIMIT 10
    ), lines AS (
        SELECT place, name, printf('\$%,d.%02d', cents / 100, cents % 100) AS money, region FROM top
    )
    SELECT 'Top 10 customers by revenue' || char(10)
            || group_concat(place || '. ' || name || ' (' || region || '): ' || money || char(10), '') AS report,
        'Report sent: ' || count(*) || ' customers, ' || min(CASE place WHEN 1 THEN name END) || ' leads with '
            || min(CASE place WHEN 1 THEN money END) || '.' AS summary
    FROM lines
"
answer=$(tools call sales query_database sql="$sql" params:='["paid"]' | tr '\n' ' ')

# A member of the row as a JSON text, quotes and all.
member() {
    printf '%s' "$answer" | sed -E 's/.*"rows".*"'"$1"'": *("([^"\\]|\\.)*").*/\1/'
}

tools call outbox send_report to=team@example.com subject="Top customers" body:="$(member report)" > /dev/null

# All that a model gets to read; the rows and the report have stayed here.
member summary | tr -d '"'
echo
