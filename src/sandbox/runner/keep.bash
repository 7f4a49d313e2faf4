# Runs a block of shell code in a bash that takes up where the last block ended: variables, functions, aliases,
# options, umask and working directory. Arguments: the block, the file of the state, `posix` for `sh`.
#
# Every block has a process of its own, so `exit`, `exec` and a kill end that block and nothing else. The state is
# a script in the guest's own words, run by the guest's own shell: nothing is trusted to it, and one that fails is
# thrown away. All of this is parsed before any of it runs, so that the block's aliases do not reach it.
{
  __cellblock_block=$1 __cellblock_state=$2 __cellblock_mode=${3-} __cellblock_saved='' __cellblock_whole=''
  BASH_ARGV0=$1
  set --

  # Names that bash keeps itself, or that belong to this process.
  __cellblock_own() {
    case $1 in
      BASH | BASH_* | BASHOPTS | BASHPID | COMP_* | DIRSTACK | EPOCH* | EUID | FUNCNAME | GROUPS | HISTCMD | LINENO) ;;
      OPTIND | PIPESTATUS | POSIXLY_CORRECT | PPID | PWD | RANDOM | SECONDS | SHELLOPTS | SHLVL | SRANDOM | UID | _) ;;
      __cellblock_*) ;;
      *) return 1 ;;
    esac
  }

  __cellblock_forget() {
    local __cellblock_name __cellblock_names
    builtin mapfile -t __cellblock_names <<<"$(builtin compgen -A variable)"
    for __cellblock_name in "${__cellblock_names[@]}"; do
      __cellblock_own "$__cellblock_name" || builtin unset -v "$__cellblock_name"
    done
  }

  # Options that outlive a block. Not noexec and onecmd, which would end every block; not monitor, which would put
  # children out of reach of an interrupt; not what says how the shell was started.
  __cellblock_note_options() {
    local __cellblock_name __cellblock_names
    for __cellblock_name in allexport braceexpand errexit errtrace functrace hashall keyword noclobber noglob nounset \
      physical pipefail verbose xtrace; do
      if [[ -o $__cellblock_name ]]; then __cellblock_options+="set -o $__cellblock_name;"; fi
    done
    set +eufkvx
    builtin mapfile -t __cellblock_names <<<"$(builtin compgen -A shopt)"
    for __cellblock_name in "${__cellblock_names[@]}"; do
      case $__cellblock_name in
        compat* | login_shell | restricted_shell) continue ;;
        expand_aliases | inherit_errexit) if [[ -n $__cellblock_mode ]]; then continue; fi ;;
      esac
      if builtin shopt -q "$__cellblock_name"; then
        __cellblock_options+="shopt -s $__cellblock_name;"
      else
        __cellblock_options+="shopt -u $__cellblock_name;"
      fi
    done
  }

  # The state as a script. The last line says that it is whole.
  __cellblock_write() {
    local __cellblock_name __cellblock_names
    builtin mapfile -t __cellblock_names <<<"$(builtin compgen -A variable)"
    for __cellblock_name in "${__cellblock_names[@]}"; do
      __cellblock_own "$__cellblock_name" || builtin declare -p -- "$__cellblock_name"
    done
    builtin mapfile -t __cellblock_names <<<"$(builtin compgen -A function)"
    for __cellblock_name in "${__cellblock_names[@]}"; do
      case $__cellblock_name in '' | __cellblock_*) ;; *) builtin declare -f -- "$__cellblock_name" ;; esac
    done
    builtin mapfile -t __cellblock_names <<<"$(builtin declare -Fx)"
    for __cellblock_name in "${__cellblock_names[@]}"; do
      case $__cellblock_name in 'declare -'*) builtin printf 'export -f -- %s\n' "${__cellblock_name##* }" ;; esac
    done
    builtin alias -p
    builtin printf 'umask %s\nbuiltin cd -- %q\n' "$(builtin umask)" "$__cellblock_here"
    builtin printf '__cellblock_options=%q __cellblock_whole=yes\n' "$__cellblock_options"
  }

  # Descriptor 9 is the block's standard error. At most 16 MB: the state lies in memory.
  __cellblock_save() {
    local __cellblock_options='' __cellblock_here
    if [[ -n $__cellblock_saved || $BASHPID != "$$" ]]; then return 0; fi
    __cellblock_saved=yes
    __cellblock_note_options
    builtin trap '' INT XFSZ PIPE
    builtin trap - DEBUG ERR RETURN
    builtin shopt -u nocasematch extdebug
    set +o posix
    __cellblock_here=$(builtin pwd)
    if ! (builtin ulimit -Sf 16384 && __cellblock_write >|"$__cellblock_state.new") ||
      ! builtin command -p mv -fT -- "$__cellblock_state.new" "$__cellblock_state"; then
      builtin printf '%s %s\n' 'cellblock: the variables and functions of this shell are not kept for the next block:' \
        'they take more than 16 MB, or there is no room in /tmp' >&9
      builtin command -p rm -f -- "$__cellblock_state.new"
    fi
    return 0
  }

  __cellblock_broken() {
    builtin printf '%s %s\n' 'cellblock: what was kept of the shell (variables, functions, options, folder) could not be' \
      'restored and was thrown away; run the block again' >&2
    : >|"$__cellblock_state"
    builtin exit 1
  }

  if [[ -f $__cellblock_state && -s $__cellblock_state ]]; then
    trap __cellblock_broken EXIT
    __cellblock_forget
    source "$__cellblock_state"
    if [[ -z $__cellblock_whole ]]; then exit 1; fi
  fi
  trap '{ __cellblock_save; } 9>&2 2>/dev/null || { __cellblock_save; } 9>/dev/null 2>/dev/null' EXIT
  {
    if [[ -n $__cellblock_mode ]]; then set -o posix; fi
    # Eval and source in one line each: with `set -e` from the last block, a failure in this one must end it here.
    builtin eval "${__cellblock_options-}"
    builtin source "$__cellblock_block" 2>&9 9>&-
    __cellblock_status=$?
  } 9>&2 2>/dev/null
  { __cellblock_save; } 9>&2 2>/dev/null || { __cellblock_save; } 9>/dev/null 2>/dev/null
  { builtin exit "$__cellblock_status"; } 2>/dev/null
}
