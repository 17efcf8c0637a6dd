" Starts Pollux with the editor, and defines its command and mappings.
if exists('g:loaded_pollux')
  finish
endif
let g:loaded_pollux = 1
if has('nvim') && !has('nvim-0.7')
  echomsg 'pollux: needs Neovim 0.7 or newer'
  finish
endif
if !has('nvim') && (!has('vim9script') || v:version < 900 || !has('job') || !has('channel') || !has('terminal') || !has('diff'))
  echomsg 'pollux: needs Vim 9.0 or newer with +channel, +job, +terminal and +diff'
  finish
endif

let s:cpo = &cpo | set cpo&vim

command! -nargs=* -range -bang -complete=customlist,pollux#command#Complete Pollux
      \ call pollux#command#Run(<q-args>, <range>, <line1>, <line2>, [<f-args>])

for s:name in ['open', 'toggle', 'send', 'diagnostics', 'accept', 'reject', 'next', 'list',
      \ 'next-hunk', 'previous-hunk', 'undo-hunk', 'redo-hunk', 'accept-hunk', 'status']
  execute printf('nnoremap <silent> <Plug>(pollux-%s) <Cmd>Pollux %s<CR>', s:name, s:name)
endfor
unlet s:name
xnoremap <silent> <Plug>(pollux-open) <Cmd>Pollux open<CR>
xnoremap <silent> <Plug>(pollux-send) :Pollux send<CR>
xnoremap <silent> <Plug>(pollux-diagnostics) :Pollux diagnostics<CR>

" Removes an empty buffer of a diff that a session file has restored.
function! s:Discard(buf) abort
  call timer_start(0, {-> execute('silent! bwipeout! ' .. a:buf)})
endfunction

augroup pollux_start
  autocmd!
  autocmd BufReadCmd pollux://* call s:Discard(str2nr(expand('<abuf>')))
  if v:vim_did_enter
    call timer_start(0, {-> pollux#client#Autostart()})
  else
    autocmd VimEnter * call pollux#client#Autostart()
  endif
augroup END

let &cpo = s:cpo
