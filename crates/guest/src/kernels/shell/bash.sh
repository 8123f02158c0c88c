# The shell driver, for bash 4 and later. All names of it begin with __belljar_. The boot text evaluates this, which waits
# for the first message, and then the code or __belljar_loop. All of the boot text is one line: from there bash counts the
# lines of the cells.
#
# If other cells may follow, bash-live.sh is evaluated too. If not, this shell becomes the script: everything of the driver
# goes, the control socket too, and how the process ends is how the cell does. So `exit`, `exec`, a signal, a trap on EXIT
# are what they are in any script.
#
# Cleaning up takes a while, and so does the end of a process. Code that can neither look at what there is in the shell nor
# have commands traced or trapped is run beside the driver, and its end is told when it is reached; an end that it makes by
# itself is still the process's. BASH_EXECUTION_STRING is where `bash -c` has its code.
__belljar_say() {
  local LC_ALL=C
  builtin printf '%s %d\n%s' "$1" "${#2}" "$2" >&3
}

# The next message, its code into __belljar_code; fails at the end of the socket. Lengths are bytes, so that it waits in
# the locale in which a character is one. A signal may end a read early.
__belljar_header() {
  local LC_ALL=C IFS=' ' _word _left _language _read _part
  while :; do
    builtin read -r -u 3 _word _left _language __belljar_last
    _read=$?
    [[ $_read == 0 && $_word == run ]] && break
    ((_read == 0 || _read > 128)) && continue
    builtin trap - EXIT
    return 1
  done
  IFS= __belljar_code=
  while ((_left > 0)); do
    builtin read -r -N "$_left" -u 3 _part || (($? > 128)) || builtin exit 0
    __belljar_code+=$_part
    ((_left -= ${#_part}))
  done
  return 0
}

__belljar_script() {
  builtin trap - INT
  BASH_EXECUTION_STRING=$__belljar_code
  case $__belljar_code in
    *trap* | *set* | *exec* | *eval* | *source* | *.\ * | *declare* | *typeset* | *compgen* | *builtin* | *enable* | *\${!*)
      exec 3>&-
      # A trace would show that this is an `eval`. Only code that is too long for an argument does.
      [[ $__belljar_code == *set*-*x* ]] && ((${#__belljar_code} < 30000)) &&
        exec -a bash "$BASH" -c -- "$__belljar_code"
      builtin unset -f __belljar_{header,over,say,script}
      builtin unset -v "${!__belljar_@}" ;;
    *) __belljar_active=script ;;
  esac
}

__belljar_over() {
  builtin printf 'done %d\n%d' "${#1}" "$1" >&3
  builtin exit "$1"
}

exec 4<&-
trap : INT
# Once through all of it: what is done for the first time takes longest.
__belljar_header 3<<< $'run 1 shell 1\n:'
builtin eval -- "$__belljar_code" 3>&-
__belljar_say ready "$$"
__belljar_header || exit 0
if [[ $__belljar_last == 1 ]]; then
  __belljar_script
else
  BASH_ARGV0='cell 1'
  eval "$__belljar_live"
  unset BASH_EXECUTION_STRING __belljar_text __belljar_live
  unset -f __belljar_script __belljar_over
  shopt -s expand_aliases
  __belljar_active=first
  __belljar_begin
fi
