taken=xxxxxxxx
times=0
while [ "$times" -lt 25 ]; do
    taken=$taken$taken
    times=$((times + 1))
done
# Some walls look at the memory from time to time, and end who has too much only then.
sleep 2
echo took
