# Pollux tells an agent such as Gemini CLI what is open in Kakoune, where the cursor is
# and what is selected. :pollux-open starts Gemini CLI in a new terminal, :pollux-review
# shows proposed changes; see docs/EDITORS.md.

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
    nop %sh{
        case $kak_buffile in /*) ;; *) exit ;; esac
        @POLLUX@ notify --quiet --source "kakoune-$kak_session" "$kak_buffile" \
            --line "$kak_cursor_line" --column "$kak_cursor_char_column" </dev/null >/dev/null 2>&1 &
    }
}

define-command -override -hidden pollux-focus-selection %{
    nop %sh{
        case $kak_buffile in /*) ;; *) exit ;; esac
        printf %s "$kak_selection" | @POLLUX@ notify --quiet --source "kakoune-$kak_session" "$kak_buffile" \
            --line "$kak_cursor_line" --column "$kak_cursor_column" --unit byte \
            --anchor "${kak_selection_desc%%,*}" --selection - >/dev/null 2>&1 &
    }
}

define-command -override -hidden pollux-close %{
    nop %sh{
        case $kak_buffile in /*) ;; *) exit ;; esac
        @POLLUX@ notify --quiet --source "kakoune-$kak_session" "$kak_buffile" --event close </dev/null >/dev/null 2>&1 &
    }
}

define-command -override pollux-open -docstring 'start Gemini CLI in a new terminal, with a companion' %{
    terminal @POLLUX@ run
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
hook -group pollux global BufClose .* pollux-close
hook -group pollux global KakEnd .* %{
    nop %sh{ @POLLUX@ notify --quiet --source "kakoune-$kak_session" --event quit </dev/null >/dev/null 2>&1 & }
}
