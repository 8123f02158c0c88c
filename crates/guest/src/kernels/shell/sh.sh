# The shell driver for a POSIX shell, where there is no bash. Variables, functions and the folder live on between cells.
# `exit`, set -e, a syntax error and an interrupt end the cell as they should, and the shell with it: the state is lost.
# A first cell that is the last is left to the boot text, in a shell without a driver: how the process ends is how it does.
unset __belljar_text
__belljar_cells=0
__belljar_record='{"error":{"name":"Interrupted","value":"the cell was interrupted",'\
'"traceback":"Interrupted: the cell was interrupted"}}'

__belljar_say() { printf '%s %s\n%s' "$1" "${#2}" "$2" >&3; }

__belljar_interrupted() {
  [ "$__belljar_active" ] && exit 130
}

# Also says the end of a cell that ended the shell.
__belljar_end() {
  [ "$__belljar_active" ] || return 0
  [ "$1" = 130 ] &&
    __belljar_say record "$__belljar_record"
  __belljar_say done "$1"
}

__belljar_say ready "$$"
trap __belljar_interrupted INT
trap '__belljar_end $?' EXIT
__belljar_active=
while :; do
  IFS=' ' read -r __belljar_word __belljar_length __belljar_language __belljar_one <&3 || {
    [ $? -gt 128 ] && continue
    trap - EXIT
    exit 0
  }
  [ "$__belljar_word" = run ] || continue
  # The dot keeps the line ends at the end.
  __belljar_code=$(head -c "$__belljar_length" <&3; echo .)
  __belljar_code=${__belljar_code%.}
  __belljar_active=1
  if [ "$__belljar_one" = 1 ] && [ "$__belljar_cells" = 0 ]; then
    exec 3>&-
    trap - INT EXIT
    unset -f __belljar_say __belljar_interrupted __belljar_end
    unset -v __belljar_cells __belljar_record __belljar_active __belljar_word __belljar_length __belljar_language \
      __belljar_one
    break
  fi
  __belljar_cells=1
  eval "$__belljar_code" 3>&-
  __belljar_was=$?
  __belljar_active=
  __belljar_say done "$__belljar_was"
done
