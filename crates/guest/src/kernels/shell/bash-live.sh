# The shell driver where cells follow each other.
#
# The cell is evaluated at the top level of this process, not in a function, where `declare` would be local, and with
# the control socket closed: bash keeps its copy of it close-on-exec. `exit` and an interrupt unwind the cell and leave
# the process alive: from then on a DEBUG trap makes every function return, every loop break and every command be
# skipped, until __belljar_next is reached. What bash itself ends the shell for (set -e, set -u, ${x:?}) meets the EXIT
# trap, which carries the state over into a new bash in the same process.
__belljar_cell=0 __belljar_stop= __belljar_was=0 __belljar_told= __belljar_functions= __belljar_seen= __belljar_options=
__belljar_boot='IFS= read -r -d "" -u 4 __belljar_text; exec 4<&-; eval "$__belljar_text"; '
__belljar_boot+='builtin eval "$__belljar_loop"'

__belljar_interrupted='{"error":{"name":"Interrupted","value":"the cell was interrupted",'\
'"traceback":"Interrupted: the cell was interrupted"}}'

# The user's names: variables and functions that were not there at the start. No fork but where functions may be new.
# Names that begin with _ are not told, so those of the driver and its functions begin with it. Looking takes longer
# than most cells, so it is left out where the code cannot have made a name.
__belljar_names() {
  if [[ ! $__belljar_functions ]]; then
    case $__belljar_code in
      *[=.\(]* | *read* | *for* | *select* | *unset* | *printf* | *mapfile* | *source* | *eval* | *let* | *getopts* | \
        *declare* | *typeset* | *export* | *alias* | *coproc* | *function*) ;;
      *) return ;;
    esac
  fi
  local LC_ALL=C IFS=$' \n' _name _found=() _place _count _text _all="
    ${!A*} ${!B*} ${!C*} ${!D*} ${!E*} ${!F*} ${!G*} ${!H*} ${!I*} ${!J*} ${!K*} ${!L*} ${!M*} ${!N*} ${!O*}
    ${!P*} ${!Q*} ${!R*} ${!S*} ${!T*} ${!U*} ${!V*} ${!W*} ${!X*} ${!Y*} ${!Z*} ${!a*} ${!b*} ${!c*} ${!d*}
    ${!e*} ${!f*} ${!g*} ${!h*} ${!i*} ${!j*} ${!k*} ${!l*} ${!m*} ${!n*} ${!o*} ${!p*} ${!q*} ${!r*} ${!s*}
    ${!t*} ${!u*} ${!v*} ${!w*} ${!x*} ${!y*} ${!z*}"
  case $__belljar_code in
    *'()'* | *function* | *source* | *'. '* | *unset* | *eval*)
      __belljar_functions=
      while IFS= builtin read -r _name; do
        [[ $_name == [!A-Za-z]* || $_name == *[!A-Za-z0-9_.:-]* || $_name == exit ]] || __belljar_functions+=" $_name"
      done < <(builtin compgen -A function) ;;
  esac
  [[ $_all$__belljar_functions == "$__belljar_seen" ]] && return
  __belljar_seen=$_all$__belljar_functions
  builtin set -f
  for _name in $_all; do
    [[ $_name == BASH* || $__belljar_before == *" $_name "* ]] || _found+=("$_name")
  done
  for _name in $__belljar_functions; do
    _place=${#_found[@]}
    while ((_place > 0)) && [[ ${_found[_place - 1]} > $_name ]]; do ((_place--)); done
    ((_place > 0)) && [[ ${_found[_place - 1]} == "$_name" ]] && continue
    _found=("${_found[@]:0:_place}" "$_name" "${_found[@]:_place}")
  done
  builtin set +f
  _count=${#_found[@]}
  builtin printf -v _text '"%s",' "${_found[@]:0:100}"
  ((_count)) || _text=
  _text="{\"names\":[${_text%,}],\"count\":$_count}"
  [[ $_text == "$__belljar_told" || ! $__belljar_told && $_count == 0 ]] && return
  __belljar_told=$_text
  __belljar_say record "$_text"
}

# Says how the last cell ended and takes the next. The status it is called with is that of the cell.
__belljar_next() {
  local _status=$? _options=${__belljar_options:-$-} _word _part
  builtin set +x +e +u +f +v
  __belljar_options=
  if [[ $__belljar_active == live ]]; then
    __belljar_active= __belljar_was=$_status # Before `done`: an interrupt after it is for no cell.
    __belljar_unwound
    __belljar_names
    __belljar_say done "$__belljar_was"
  fi
  [[ $__belljar_active == first ]] || __belljar_header || builtin exit 0
  ((__belljar_cell += 1))
  BASH_ARGV0="cell $__belljar_cell"
  # What the last cell left in $?, and the options that would have shown or hurt the driver. All on the first line.
  _part=
  for _word in e u f v; do [[ $_options == *$_word* ]] && _part+=$_word; done
  [[ $_options == *x* ]] && __belljar_code="{ builtin set -x; } 2> /dev/null; $__belljar_code"
  if [[ $__belljar_was != 0 && $_options != *e* && $__belljar_code == *@(\?|exit|return)* ]]; then
    __belljar_code="__belljar_again; $__belljar_code"
  fi
  [[ $_part ]] && __belljar_code="builtin set -$_part; $__belljar_code"
  __belljar_active=live
  return 0
}

__belljar_again() { return "$__belljar_was"; }

# Ends the running cell with status $1; see the top.
__belljar_unwind() {
  [[ $__belljar_active == live && ! $__belljar_stop ]] || return 0
  __belljar_stop=$1
  builtin shopt -s extdebug
  builtin set -T
  builtin trap 'case $BASH_COMMAND in
    __belljar_* | "builtin eval \"\$__belljar_loop\"") : ;;
    *) case ${FUNCNAME-} in __belljar_*) : ;; ?*) __belljar_two ;; *) case $BASH_COMMAND in
      "for "*) ! : ;; # It goes on with its next word, and would not use the break up.
      *) ! builtin break 40 2> /dev/null ;;
    esac ;; esac ;;
  esac' DEBUG
}
__belljar_two() { return 2; }

# Ends the unwinding, if there was one, of a cell that is over.
__belljar_unwound() {
  [[ $__belljar_stop ]] || return 0
  builtin trap - DEBUG
  builtin shopt -u extdebug
  builtin set +T
  __belljar_was=$__belljar_stop __belljar_stop=
  ((__belljar_was != 130)) || __belljar_say record "$__belljar_interrupted"
}

# What EXIT finds at the end of a cell that ended the shell. No local names: they would be carried over.
__belljar_fatal() {
  __belljar_was=$? __belljar_options=$-
  builtin set +e +u +x +v
  [[ $__belljar_active == live && $BASHPID == "$$" ]] || return
  { : >&3; } 2> /dev/null || return
  __belljar_active=
  __belljar_unwound # An interrupt may have come with what ended the shell.
  builtin trap : INT # Not '': what is ignored at the start of a shell cannot be trapped in it.
  __belljar_text=$(
    builtin trap - EXIT INT
    builtin echo 'exec {__belljar_errors}>&2 2> /dev/null' # Some names are bash's own and refuse a value.
    builtin shopt -p
    builtin declare -p
    builtin declare -f
    builtin trap -p
    builtin alias -p
  )
  exec "$BASH" -c "$__belljar_boot" bash 4<<< "$__belljar_text"$'\n__belljar_resume'
}
__belljar_resume() {
  exec 2>&"$__belljar_errors" {__belljar_errors}>&-
  builtin unset __belljar_text __belljar_errors BASH_EXECUTION_STRING
  __belljar_begin
  __belljar_names
  __belljar_say done "$__belljar_was"
}

__belljar_begin() {
  builtin trap '__belljar_unwind 130' INT
  builtin trap __belljar_fatal EXIT
  exit() {
    local _status=${1-$?}
    [[ $BASHPID == "$$" ]] || builtin exit "$@"
    if [[ $_status != ?(-)+([0-9]) ]]; then
      builtin printf '%s: exit: %s: numeric argument required\n' "$0" "$_status" >&2
      _status=2
    fi
    __belljar_unwind "$((_status & 255))"
    return "$((_status & 255))"
  }
}

__belljar_before=" BASH_REMATCH COLUMNS COPROC FUNCNAME LINES MAPFILE OLDPWD OPTARG OPTIND
    PIPESTATUS REPLY
    ${!A*} ${!B*} ${!C*} ${!D*} ${!E*} ${!F*} ${!G*} ${!H*} ${!I*} ${!J*} ${!K*} ${!L*} ${!M*} ${!N*} ${!O*}
    ${!P*} ${!Q*} ${!R*} ${!S*} ${!T*} ${!U*} ${!V*} ${!W*} ${!X*} ${!Y*} ${!Z*} ${!a*} ${!b*} ${!c*} ${!d*}
    ${!e*} ${!f*} ${!g*} ${!h*} ${!i*} ${!j*} ${!k*} ${!l*} ${!m*} ${!n*} ${!o*} ${!p*} ${!q*} ${!r*} ${!s*}
    ${!t*} ${!u*} ${!v*} ${!w*} ${!x*} ${!y*} ${!z*} "
__belljar_before=${__belljar_before//[[:space:]]/ }

# Loops around the loop, since a break may reach out of the cell: `for ((;;))` does not always use one up. All in one
# line, for the count of lines.
__belljar_on() { return 0; }
__belljar_loop='while { __belljar_next; } 2> /dev/null; do builtin eval -- "$__belljar_code" 3>&-; done'
for __belljar_word in {1..60}; do __belljar_loop="while __belljar_on; do $__belljar_loop; done"; done
__belljar_loop+='; builtin eval "$__belljar_loop"'
unset __belljar_word
