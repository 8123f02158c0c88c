from tools import airtable

rows = airtable.list_records(baseId="appShop2026", tableId="tblOrders", maxRecords=10000)["records"]
late = [row["fields"] for row in rows if row["fields"]["Status"] == "pending" and row["fields"]["City"] == "Lagos"
        and row["fields"]["Amount"] > 900]
print(f"{len(late)} orders, {round(sum(row['Amount'] for row in late), 2)} in all.")
