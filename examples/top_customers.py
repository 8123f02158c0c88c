# belljar run --mcp-config examples/mcp.json examples/top_customers.py
from tools import outbox, sales

QUERY = """
    SELECT name, region, sum(amount_cents) / 100.0 AS revenue
    FROM orders JOIN customers ON customers.id = customer_id
    WHERE status = ?
    GROUP BY customers.id ORDER BY revenue DESC LIMIT 10
"""

rows = sales.query_database(sql=QUERY, params=["paid"])["rows"]

report = "Top 10 customers by revenue\n"
for place, row in enumerate(rows, 1):
    report += f"{place}. {row['name']} ({row['region']}): ${row['revenue']:,.2f}\n"

outbox.send_report(to="team@example.com", subject="Top customers", body=report)

# All that a model gets to read; the rows and the report have stayed here.
print(f"Report sent: {len(rows)} customers, {rows[0]['name']} leads with ${rows[0]['revenue']:,.2f}.")
