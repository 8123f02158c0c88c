# The shell driver, for bash 4 and later. All names of it begin with __belljar_. The boot text evaluates this, which
# reads the first message. If no other cell follows, it then runs that in a subshell, which does all that a script's end
# does. Else bash-live.sh is evaluated too, and then __belljar_loop. All of the boot text is one line: from there bash
# counts the lines of the cells.
unset BASH_EXECUTION_STRING

__belljar_say() {
  local LC_ALL=C
  builtin printf '%s %d\n%s' "$1" "${#2}" "$2" >&3
}

__belljar_interrupted='{"error":{"name":"Interrupted","value":"the cell was interrupted",'\
'"traceback":"Interrupted: the cell was interrupted"}}'

# The next message; fails at the end of the socket.
__belljar_header() {
  local _word _length _language _read
  while :; do
    IFS=' ' builtin read -r -u 3 _word _length _language __belljar_last
    _read=$?
    [[ $_read == 0 && $_word == run ]] && break
    ((_read == 0 || _read > 128)) && continue # A signal ends a read early.
    builtin trap - EXIT
    return 1
  done
  __belljar_take "$_length"
}

# Reads $1 bytes of code. A signal may end a read early.
__belljar_take() {
  local LC_ALL=C IFS= _left=$1 _part
  __belljar_code=
  while ((_left > 0)); do
    builtin read -r -N "$_left" -u 3 _part || (($? > 128)) || builtin exit 0
    __belljar_code+=$_part
    ((_left -= ${#_part}))
  done
  return 0
}

__belljar_once() {
  ((__belljar_was == 130)) && __belljar_say record "$__belljar_interrupted"
  __belljar_say done "$__belljar_was"
  exit "$__belljar_was"
}

__belljar_say ready "$$"
trap : INT
__belljar_header || exit 0
BASH_ARGV0='cell 1'
if [[ $__belljar_last == 1 ]]; then
  __belljar_active=once
else
  __belljar_active=first
  IFS= read -r -d '' -u 4 __belljar_text
  eval "$__belljar_text"
fi
exec 4<&-
unset __belljar_text
