" Reports the diagnostics of vim.diagnostic: lua/pollux/diagnostics.lua.

function! pollux#nvim#diagnostics#Start() abort
  call v:lua.require'pollux.diagnostics'.start()
endfunction

function! pollux#nvim#diagnostics#Stop() abort
  call v:lua.require'pollux.diagnostics'.stop()
endfunction

" Returns what Pollux asks for: the diagnostics of a file, or of all files.
function! pollux#nvim#diagnostics#Report(path) abort
  return v:lua.require'pollux.diagnostics'.report(a:path)
endfunction

" Returns the diagnostics of the current buffer, as parameters of Pollux.
function! pollux#nvim#diagnostics#Problems() abort
  return v:lua.require'pollux.diagnostics'.problems()
endfunction

" Handles a file that was read again: Neovim tells its language servers.
function! pollux#nvim#diagnostics#Reloaded(path) abort
endfunction
