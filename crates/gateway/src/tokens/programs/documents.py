from tools import notion, hubspot

page = notion.API_retrieve_page_markdown(page_id="3f1c9a52-7d0e-4b8a-9c57-2e6b1d4f8a90", include_transcript=True)
note = hubspot.hubspot_create_engagement(
    type="NOTE",
    ownerId=4711,
    associations={"dealIds": [90210]},
    metadata={"body": page["markdown"]},
)
print(f"Attached as note {note['engagement']['id']}.")
