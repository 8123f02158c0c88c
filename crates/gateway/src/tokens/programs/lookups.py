import tools
from tools import google_maps

addresses = [f"Lindenstrasse {number}, Berlin" for number in range(1, 21)]
found = tools.parallel(google_maps.maps_geocode, [dict(address=address) for address in addresses])
address, place = max(zip(addresses, found), key=lambda pair: pair[1]["location"]["lat"])
print(f"{address} at {place['location']['lat']}.")
