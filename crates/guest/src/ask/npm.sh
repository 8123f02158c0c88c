#!/bin/sh
# npm takes the nearest directory above that has a node_modules for its project, and packages are in the root's. Where there
# is no project on the way up, it is the directory that one is in.
here=$PWD
while [ "$here" ] && [ ! -e "$here/package.json" ] && [ ! -d "$here/node_modules" ]; do here=${here%/*}; done
IFS=:
for folder in $PATH; do
  [ "$folder" != /belljar/bin ] && [ -x "$folder/npm" ] || continue
  unset IFS
  if [ "$here" ]; then exec "$folder/npm" "$@"; else exec "$folder/npm" "$@" --prefix "$PWD"; fi
done
echo "npm: it is not on this machine" >&2
exit 127
