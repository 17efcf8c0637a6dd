" Options, and functions for the user's configuration; :help pollux-options describes them.
let s:cpo = &cpo | set cpo&vim
let s:here = expand('<sfile>:p:h:h')
let s:host = has('nvim') ? 'pollux#nvim#' : 'pollux#vim#'
let s:given = {} " what setup() has set
let s:defaults = {
      \ 'command': '',
      \ 'cli': [],
      \ 'autostart': v:true,
      \ 'layout': 'auto',
      \ 'include_ignored': v:false,
      \ 'review_page': v:false,
      \ 'terminal': {'position': 'botright vertical', 'size': 0.4},
      \ 'keys': v:true,
      \ }

" Calls a function of the adapter for this editor: pollux/vim.vim or pollux/nvim.vim.
function! pollux#Host(name, ...) abort
  return call(s:host .. a:name, a:000)
endfunction

" Returns the value of an option: from setup(), otherwise from g:pollux, otherwise the
" default. The keys of a dictionary can come from all three.
function! pollux#Option(name) abort
  let value = s:defaults[a:name]
  for options in [s:Global(), s:given]
    let own = get(options, a:name, value)
    let value = type(value) == v:t_dict ? extend(copy(value), s:Table(own)) : own
  endfor
  return value
endfunction

" Returns a dictionary that may come from Lua, whose empty tables arrive as lists.
function! s:Table(value) abort
  return empty(a:value) ? {} : a:value
endfunction

function! s:Global() abort
  return s:Table(get(g:, 'pollux', {}))
endfunction

" Returns what is wrong with the options, or an empty string.
function! pollux#WrongOption() abort
  let options = extend(copy(s:Global()), s:given)
  for name in keys(options)
    if !has_key(s:defaults, name)
      return printf('unknown option "%s"; see :help pollux-options', name)
    endif
  endfor
  if index(['auto', 'side-by-side', 'inline'], get(options, 'layout', 'auto')) < 0
    return 'layout must be auto, side-by-side or inline'
  endif
  return ''
endfunction

" Sets options, for Lua's setup(). Returns what is wrong with them, or an empty string.
function! pollux#Setup(options) abort
  let before = s:given
  let s:given = a:options
  let wrong = pollux#WrongOption()
  if wrong !=# ''
    let s:given = before
  endif
  return wrong
endfunction

" Returns the binary: from the option, otherwise as `pollux install` recorded it, otherwise
" the one on the PATH.
function! pollux#Command() abort
  let command = pollux#Option('command')
  if command !=# ''
    return command
  endif
  let noted = s:here .. '/command'
  return filereadable(noted) ? readfile(noted, '', 1)[0] : 'pollux'
endfunction

" Returns the full path of the binary, or an empty string if it is not installed. On Windows,
" job_start() finds no batch files, such as those of npm, and both editors would start a
" program in the current directory.
function! pollux#Program() abort
  let variable = 'NoDefaultCurrentDirectoryInExePath'
  let before = getenv(variable)
  call setenv(variable, '1')
  let path = exepath(pollux#Command())
  call setenv(variable, before)
  return path
endfunction

" Returns a short text for 'statusline': the number of pending changes, or that an agent is
" connected; otherwise an empty string.
function! pollux#Statusline() abort
  if !exists('*pollux#client#Ready')
    return ''
  endif
  let waiting = len(pollux#diff#Waiting())
  if waiting > 0
    return printf('Pollux: %d pending', waiting)
  endif
  return empty(pollux#client#Agents()) ? '' : 'Pollux'
endfunction

let &cpo = s:cpo
