# Pollux tells an agent such as Gemini CLI what is open in Kakoune, where the cursor is
# and what is selected. :pollux-open starts an agent in a new terminal, :pollux-send sends
# it the selected lines, :pollux-review shows proposed changes; see docs/EDITORS.md.

# The hooks do not wait for the programs that they start, so the events have numbers. The programs
# ignore the hangup of a terminal that closes together with Kakoune.
declare-option -hidden int pollux_events

define-command -override -hidden pollux-focus %{
    # A long selection does not fit into the shell's environment.
    evaluate-commands %sh{
        if [ "$kak_selection_length" -gt 1 ] && [ "$kak_selection_length" -le 16384 ]; then
            echo pollux-focus-selection
        else
            echo pollux-focus-cursor
        fi
    }
}

define-command -override -hidden pollux-focus-cursor %{
    set-option -add global pollux_events 1
    nop %sh{
        case $kak_buffile in /*) ;; *) exit ;; esac
        trap '' HUP
        @POLLUX@ notify --quiet --source "kakoune-$PPID" --number "$kak_opt_pollux_events" "$kak_buffile" \
            --line "$kak_cursor_line" --column "$kak_cursor_char_column" </dev/null >/dev/null 2>&1 &
    }
}

define-command -override -hidden pollux-focus-selection %{
    set-option -add global pollux_events 1
    nop %sh{
        case $kak_buffile in /*) ;; *) exit ;; esac
        trap '' HUP
        printf %s "$kak_selection" | @POLLUX@ notify --quiet --source "kakoune-$PPID" --number "$kak_opt_pollux_events" "$kak_buffile" \
            --line "$kak_cursor_line" --column "$kak_cursor_column" --unit byte \
            --anchor "${kak_selection_desc%%,*}" --selection - >/dev/null 2>&1 &
    }
}

define-command -override -hidden pollux-close %{
    set-option -add global pollux_events 1
    nop %sh{
        case $kak_buffile in /*) ;; *) exit ;; esac
        trap '' HUP
        @POLLUX@ notify --quiet --source "kakoune-$PPID" --number "$kak_opt_pollux_events" "$kak_buffile" \
            --event close </dev/null >/dev/null 2>&1 &
    }
}

define-command -override -hidden pollux-saved %{
    nop %sh{
        case $kak_buffile in /*) ;; *) exit ;; esac
        trap '' HUP
        @POLLUX@ notify --quiet "$kak_buffile" --event save </dev/null >/dev/null 2>&1 &
    }
}

define-command -override pollux-open -params .. \
    -docstring 'pollux-open [<agent> [<argument>...]]: start an agent in a new terminal, with a companion' %{
    evaluate-commands %sh{
        [ $# -gt 0 ] && echo 'pollux-open-agent %arg{@}' || echo pollux-open-any
    }
}

define-command -override -hidden pollux-open-any %{
    terminal @POLLUX@ run
}

define-command -override -hidden pollux-open-agent -params 1.. %{
    terminal @POLLUX@ run -- %arg{@}
}

define-command -override pollux-send -params .. \
    -docstring 'pollux-send [<question>]: send the selected lines to an agent' %{
    evaluate-commands %sh{
        case $kak_buffile in /*) ;; *) echo "fail 'this buffer is not a file: save it first'"; exit ;; esac
        # The selection, line.column,line.column, may go backwards.
        from=${kak_selection_desc%%.*} to=${kak_selection_desc##*,}
        to=${to%.*}
        if [ "$from" -gt "$to" ]; then file=$kak_buffile:$to-$from; else file=$kak_buffile:$from-$to; fi
        # Other users can see the arguments of a process, so the question is not one.
        if [ $# -gt 0 ]; then
            said=$(printf %s "$*" | @POLLUX@ send "$file" - 2>&1)
        else
            said=$(@POLLUX@ send "$file" </dev/null 2>&1)
        fi
        [ $? -eq 0 ] && result=echo || result=fail
        printf "%s '%s'" "$result" "$(printf %s "$said" | sed "s/'/''/g")"
    }
}

define-command -override pollux-review -docstring 'review pending changes in a new terminal' %{
    terminal @POLLUX@ review
}

define-command -override pollux-status -docstring 'show companions, agents and pending changes' %{
    info -title pollux -- %sh{ @POLLUX@ status 2>&1 }
}

remove-hooks global pollux
hook -group pollux global NormalIdle .* pollux-focus
hook -group pollux global InsertIdle .* pollux-focus
hook -group pollux global WinDisplay .* pollux-focus
hook -group pollux global BufWritePost .* pollux-focus
hook -group pollux global BufWritePost .* pollux-saved
hook -group pollux global BufClose .* pollux-close
hook -group pollux global KakEnd .* %{
    set-option -add global pollux_events 1
    nop %sh{
        trap '' HUP
        @POLLUX@ notify --quiet --source "kakoune-$PPID" --number "$kak_opt_pollux_events" \
            --event quit </dev/null >/dev/null 2>&1 &
    }
}
