# Runs a block of shell code in a bash that takes up where the last block ended: variables, functions, aliases,
# options, umask and working directory. Arguments: the block, the file of the state, `posix` for `sh`.
#
# Every block has a process of its own, so `exit`, `exec` and a kill end that block and nothing else. The state is
# a script in the guest's own words, run by the guest's own shell: nothing is trusted to it, and one that fails is
# thrown away. All of this is parsed before any of it runs, so that the block's aliases do not reach it.
#
# Nothing here starts a process, for one takes longer than all the rest: what a command prints goes by way of a file, and
# instead of one file that is renamed there are two that take turns. The first line of each is its number, written over in
# place when the rest is whole; the higher number counts.
{
  __cellblock_block=$1 __cellblock_state=$2 __cellblock_mode=${3-} __cellblock_saved='' __cellblock_whole=''
  __cellblock_lines=$2-lines __cellblock_kept='' __cellblock_next='' __cellblock_number=0
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

  # Finds the file to read and the file to write; empty: there is none, or something else lies there. All are made here,
  # before the guest's umask applies.
  __cellblock_find() {
    local __cellblock_file __cellblock_line
    for __cellblock_file in "$__cellblock_state" "$__cellblock_state-2" "$__cellblock_lines"; do
      if [[ -e $__cellblock_file && ! -f $__cellblock_file ]] || ! : >>"$__cellblock_file"; then return 1; fi
    done 2>/dev/null
    for __cellblock_file in "$__cellblock_state" "$__cellblock_state-2"; do
      __cellblock_line=''
      builtin read -r __cellblock_line <"$__cellblock_file"
      if [[ $__cellblock_line =~ ^#[0-9]{10}$ ]] && ((10#${__cellblock_line#?} > __cellblock_number)); then
        __cellblock_kept=$__cellblock_file __cellblock_number=$((10#${__cellblock_line#?}))
      fi
    done
    __cellblock_next=$__cellblock_state
    if [[ $__cellblock_kept == "$__cellblock_state" ]]; then __cellblock_next=$__cellblock_state-2; fi
  }

  # The lines that a command prints, in __cellblock_names.
  __cellblock_list() {
    __cellblock_names=()
    "$@" >|"$__cellblock_lines" && builtin mapfile -t __cellblock_names <"$__cellblock_lines"
  }

  __cellblock_forget() {
    local __cellblock_name __cellblock_names
    __cellblock_list builtin compgen -A variable
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
    __cellblock_list builtin compgen -A shopt
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

  # The state as a script. Its first line counts for nothing yet; the last one says that all of it was run.
  __cellblock_write() {
    local __cellblock_name __cellblock_names
    builtin printf '#%010d\n' 0
    __cellblock_list builtin compgen -A variable
    for __cellblock_name in "${__cellblock_names[@]}"; do
      __cellblock_own "$__cellblock_name" || builtin declare -p -- "$__cellblock_name"
    done
    __cellblock_list builtin compgen -A function
    for __cellblock_name in "${__cellblock_names[@]}"; do
      case $__cellblock_name in '' | __cellblock_*) ;; *) builtin declare -f -- "$__cellblock_name" ;; esac
    done
    __cellblock_list builtin declare -Fx
    for __cellblock_name in "${__cellblock_names[@]}"; do
      case $__cellblock_name in 'declare -'*) builtin printf 'export -f -- %s\n' "${__cellblock_name##* }" ;; esac
    done
    builtin alias -p
    builtin umask -p
    builtin printf 'builtin cd -- %q\n' "$__cellblock_here"
    builtin printf '__cellblock_options=%q __cellblock_whole=yes\n' "$__cellblock_options"
  }

  # Descriptor 9 is the block's standard error. At most 16 MB: the state lies in memory.
  __cellblock_save() {
    local __cellblock_options='' __cellblock_here __cellblock_limit __cellblock_names
    if [[ -n $__cellblock_saved || $BASHPID != "$$" ]]; then return 0; fi
    __cellblock_saved=yes
    __cellblock_note_options
    builtin trap '' INT XFSZ PIPE
    builtin trap - DEBUG ERR RETURN
    builtin shopt -u nocasematch extdebug
    set +o posix
    __cellblock_list builtin pwd
    __cellblock_here=${__cellblock_names[0]-}
    __cellblock_list builtin ulimit -Sf
    __cellblock_limit=${__cellblock_names[0]-}
    builtin ulimit -Sf 16384
    if [[ -n $__cellblock_next ]] && __cellblock_write >|"$__cellblock_next" &&
      builtin printf '#%010d\n' $((__cellblock_number + 1)) 1<>"$__cellblock_next"; then
      if [[ -n $__cellblock_kept ]]; then : >|"$__cellblock_kept"; fi
    else
      builtin printf '%s %s\n' 'cellblock: the variables and functions of this shell are not kept for the next block:' \
        'they take more than 16 MB, or there is no room in /tmp' >&9
      if [[ -f $__cellblock_next ]]; then : >|"$__cellblock_next"; fi
    fi
    # A trap of the block's own may follow.
    builtin ulimit -Sf "$__cellblock_limit"
    return 0
  }

  __cellblock_broken() {
    builtin printf '%s %s\n' 'cellblock: what was kept of the shell (variables, functions, options, folder) could not be' \
      'restored and was thrown away; run the block again' >&2
    : >|"$__cellblock_state"
    : >|"$__cellblock_state-2"
    builtin exit 1
  }

  if __cellblock_find && [[ -n $__cellblock_kept ]]; then
    trap __cellblock_broken EXIT
    __cellblock_forget
    source "$__cellblock_kept"
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
