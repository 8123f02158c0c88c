from tools import fetch

print(fetch.fetch(url="https://example.com/minutes", max_length=100000))
