// belljar run --mcp-config examples/mcp.json examples/top_customers.ts
import { outbox, sales } from "tools";

type Row = { name: string; region: string; revenue: number };

const sql = `
    SELECT name, region, sum(amount_cents) / 100.0 AS revenue
    FROM orders JOIN customers ON customers.id = customer_id
    WHERE status = ?
    GROUP BY customers.id ORDER BY revenue DESC LIMIT 10
`;
const money = (amount: number): string =>
  "$" + amount.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

const rows: Row[] = (await sales.query_database({ sql, params: ["paid"] })).rows;

let report = "Top 10 customers by revenue\n";
rows.forEach((row, index) => {
  report += `${index + 1}. ${row.name} (${row.region}): ${money(row.revenue)}\n`;
});

await outbox.send_report({ to: "team@example.com", subject: "Top customers", body: report });

// All that a model gets to read; the rows and the report have stayed here.
console.log(`Report sent: ${rows.length} customers, ${rows[0].name} leads with ${money(rows[0].revenue)}.`);
