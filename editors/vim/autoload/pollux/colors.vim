" The highlight groups of the view. A user's own definitions win. The groups link to those of
" diff mode if the colour scheme defines them.

let s:cpo = &cpo | set cpo&vim

" The colours for diff mode of Vim, and of Neovim up to 0.9, which many colour schemes leave
" as they are. They cover the colours of the language, and blue on cyan cannot be read.
let s:STOCK = {
      \ 'dark': {'DiffAdd': 'DarkBlue', 'DiffChange': 'DarkMagenta', 'DiffDelete': 'DarkCyan', 'DiffText': 'Red'},
      \ 'light': {'DiffAdd': 'LightBlue', 'DiffChange': 'LightMagenta', 'DiffDelete': 'LightCyan', 'DiffText': 'Red'},
      \ }
let s:OWN = {
      \ 'dark': {
      \   'PolluxAdd': 'ctermbg=22 guibg=#1f3a2a',
      \   'PolluxDelete': 'ctermbg=52 guibg=#472529',
      \   'PolluxChange': 'ctermbg=237 guibg=#2a303c',
      \   'PolluxText': 'cterm=bold ctermbg=24 gui=bold guibg=#2c5170',
      \ },
      \ 'light': {
      \   'PolluxAdd': 'ctermbg=194 guibg=#d7f2da',
      \   'PolluxDelete': 'ctermbg=224 guibg=#fadcdc',
      \   'PolluxChange': 'ctermbg=254 guibg=#e7ebf1',
      \   'PolluxText': 'cterm=bold ctermbg=153 gui=bold guibg=#b9d6f2',
      \ },
      \ }
let s:FEW_COLORS = {
      \ 'PolluxAdd': 'ctermfg=White ctermbg=DarkGreen',
      \ 'PolluxDelete': 'ctermfg=White ctermbg=DarkRed',
      \ 'PolluxChange': 'cterm=underline',
      \ 'PolluxText': 'cterm=bold ctermfg=White ctermbg=DarkBlue',
      \ }
let s:LINKS = {
      \ 'PolluxAdd': 'DiffAdd', 'PolluxDelete': 'DiffDelete', 'PolluxChange': 'DiffChange', 'PolluxText': 'DiffText',
      \ }
" For Neovim's 'winhighlight'. What only the left side has is removed.
let s:WINDOW = 'DiffChange:PolluxChange,DiffText:PolluxText,DiffDelete:PolluxFill,DiffAdd:'

let s:own = 0 " the colour scheme has no colours for diff mode
let s:lent = [] " the colours of diff mode while it has ours

function! s:Define() abort
  let stock = copy(s:STOCK[&background])
  call filter(stock, {group, color -> synIDattr(synIDtrans(hlID(group)), 'bg', 'gui') ==# color})
  let s:own = !empty(stock)
  let many = has('nvim') || &termguicolors || has('gui_running') || str2nr(&t_Co) >= 256
  let colors = many ? s:OWN[&background] : s:FEW_COLORS
  for [group, link] in items(s:LINKS)
    if s:own
      execute 'highlight default' group colors[group]
    else
      execute 'highlight default link' group link
    endif
  endfor
  highlight default link PolluxFill NonText
endfunction

" Gives two windows in diff mode our colours. Vim has no colours for one window: its diff
" mode has ours while a view uses it.
function! pollux#colors#Lend(left, right) abort
  if has('nvim')
    call setwinvar(a:left, '&winhighlight', s:WINDOW .. 'PolluxDelete')
    call setwinvar(a:right, '&winhighlight', s:WINDOW .. 'PolluxAdd')
  elseif s:own && empty(s:lent)
    let s:lent = map(values(s:LINKS), {_, group -> hlget(group)[0]})
    for [group, link] in items(s:LINKS)
      execute 'highlight! link' link link ==# 'DiffDelete' ? 'PolluxFill' : group
    endfor
  endif
endfunction

" Gives a window of Neovim the colours of other windows back.
function! pollux#colors#Clear(win) abort
  if has('nvim')
    call setwinvar(a:win, '&winhighlight', '')
  endif
endfunction

" Gives Vim's diff mode its own colours back.
function! pollux#colors#Return() abort
  for group in s:lent
    execute 'highlight! link' group.name 'NONE'
    call hlset([group])
  endfor
  let s:lent = []
endfunction

" Defines the groups, now and after each change of the colour scheme.
function! pollux#colors#Start() abort
  call s:Define()
  augroup pollux_colors
    autocmd!
    autocmd ColorScheme * call s:Changed()
  augroup END
endfunction

function! s:Changed() abort
  let again = !empty(s:lent)
  let s:lent = [] " the colour scheme has replaced them
  call s:Define()
  if again
    call pollux#colors#Lend(0, 0)
  endif
endfunction

let &cpo = s:cpo
