from tools import time

print(time.get_current_time(timezone="Asia/Tokyo")["datetime"])
