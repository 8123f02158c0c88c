song=
{ read -r song < "$CANARY"; } 2>/dev/null
if [ -n "$song" ] && [ "$song" = "$SONG" ]; then
    echo "canary fired a file of the host can be read inside"
else
    echo "canary passed a file of the host is not there"
fi

way=passed
(: < "/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && way=fired
while read -r name to rest; do
    [ "$to" = 00000000 ] && way=fired
done 2>/dev/null < /proc/net/route
echo "network $way the host's loopback, and ways out"

seen=passed
count=0
for process in /proc/[0-9]*; do
    [ -r "$process/cmdline" ] || continue
    count=$((count + 1))
    line=$(tr '\0' ' ' 2>/dev/null < "$process/cmdline")
    line=${line% }
    [ -n "$line" ] && { [ "$line" = "$SERVER" ] || [ "$line" = "$FIRST" ]; } && seen=fired
done
echo "processes $seen of $count processes, those of the host"

filter=passed
unshare -U true 2>/dev/null && filter=fired
while read -r key value; do
    [ "$key" = Seccomp: ] && [ "$value" = 0 ] && [ "$filter" = passed ] && filter=unfiltered
done 2>/dev/null < /proc/self/status
echo "seccomp $filter a namespace of one's own, and the filter of system calls"
