" Sends Pollux a snapshot of the open files, the cursor and the selection at each event.
" Pollux debounces snapshots and drops those without a difference, so this code is
" simple.

let s:cpo = &cpo | set cpo&vim

" The size of a selection in bytes; Pollux enforces the exact limit.
let s:MAX_SELECTION = 20000
" Leaving Visual mode and entering a terminal are two events in one tick. The selection is
" kept for this time in between. It is also kept while a command line is typed and executed:
" the command may be about the selection.
let s:SELECTION_DELAY = 40 " ms
let s:VISUAL = "^[vVsS\<C-v>\<C-s>]"
let s:LAST_COLUMN = 2147483647 " v:maxcol, which Neovim 0.7 does not have

let s:others = {} " path by buffer
let s:focused = {} " when each buffer last had the focus, in ms
let s:active = {} " buf, cursor, and selected: the result of s:Selection(), or {}
let s:list_dirty = 1
let s:push_due = 0
let s:held = 0 " whether the terminal may still want a selection that has ended
let s:release = 0 " the timer that ends this
let s:last_roots = []
let s:roots_due = 0

" localtime() has a resolution of seconds, and reltime() has no fixed start.
let s:begun = localtime() * 1000
let s:clock = reltime()

function! s:Now() abort
  return s:begun + float2nr(reltimefloat(reltime(s:clock)) * 1000)
endfunction

function! s:IsFile(b) abort
  " Without 'hidden', a buffer that is not shown is not loaded.
  return a:b.listed && (a:b.loaded || has_key(s:focused, a:b.bufnr)) && a:b.name !=# ''
        \ && getbufvar(a:b.bufnr, '&buftype') ==# '' && a:b.name !~# '^\a[[:alnum:]+.-]\+://' && filereadable(a:b.name)
endfunction

" Returns a path without links, in one spelling.
function! s:Resolved(path) abort
  let real = resolve(fnamemodify(a:path, ':p'))
  if has('win32')
    let real = tr(real, '\', '/')
  endif
  return &fileignorecase ? tolower(real) : real
endfunction

" Returns the loaded buffers of the file at a path, which agents may spell in another way;
" with a second argument, also the buffers that are not loaded. The editor compares files as
" the system does, but takes a replaced file for another one until it reads it again.
function! pollux#context#Buffers(path, ...) abort
  let real = s:Resolved(a:path)
  " bufnr() would take the path for a pattern.
  let same = map(filter([a:path, resolve(a:path)], {_, name -> bufexists(name)}), {_, name -> bufadd(name)})
  let found = []
  for b in a:0 ? getbufinfo() : getbufinfo({'bufloaded': 1})
    if b.name !=# '' && getbufvar(b.bufnr, '&buftype') ==# ''
          \ && (index(same, b.bufnr) >= 0 || s:Resolved(b.name) ==# real)
      call add(found, b.bufnr)
    endif
  endfor
  return found
endfunction

" Returns a directory without separators at its end. C: is the working directory of that
" drive, so that C:\ stays.
function! pollux#context#Bare(dir, windows) abort
  let bare = substitute(a:dir, a:windows ? '[/\\]\+$' : '/\+$', '', '')
  return bare ==# '' || bare =~# '^\a:$' ? a:dir : bare
endfunction

" Returns the workspace: the working directories of the editor and its tabs, and the roots of
" Neovim's language servers.
function! pollux#context#Roots() abort
  let roots = []
  let dirs = [has('nvim') ? getcwd(-1, -1) : getcwd(-1)] + map(range(1, tabpagenr('$')), {_, n -> getcwd(-1, n)})
  for dir in dirs + pollux#Host('Roots')
    let dir = pollux#context#Bare(dir, has('win32'))
    if index(roots, dir) < 0 && isdirectory(dir)
      call add(roots, dir)
    endif
  endfor
  return roots
endfunction

" Returns the column in UTF-16 code units, from 1, after a number of bytes of a line.
function! pollux#context#Utf16(line, bytes) abort
  let part = strpart(a:line, 0, a:bytes)
  let units = strchars(part)
  if units < len(part)
    let units += len(filter(str2list(part), 'v:val > 0xFFFF'))
  endif
  return units + 1
endfunction

" Returns where the part of a line between two screen columns, from 1, both included, starts
" and ends, in bytes from 0.
function! s:Cells(line, left, right) abort
  if a:line !~# '[^ -~]' " each byte has a cell
    return [min([a:left - 1, len(a:line)]), min([a:right, len(a:line)])]
  endif
  let [first, end, column] = [-1, 0, 1]
  for char in split(a:line, '\zs')
    let width = strdisplaywidth(char, column - 1)
    if column > a:right
      break
    endif
    if first < 0 && column + width > a:left
      let first = end
    endif
    let end += len(char)
    let column += width
  endfor
  return [first < 0 ? end : first, end]
endfunction

" Returns the first cell of the character at a position.
function! s:FirstCell(pos) abort
  return strdisplaywidth(strpart(getline(a:pos[1]), 0, a:pos[2] - 1)) + 1
endfunction

" Returns where a selection starts and ends in a line, in bytes from 0. If the line end is
" selected too, the end is after it.
function! s:Part(s, nr, text) abort
  if a:s.left > 0
    return s:Cells(a:text, a:s.left, a:s.right)
  endif
  let [first, end] = [0, len(a:text)]
  if a:s.kind ==# 'v' || a:s.kind ==# 's'
    if a:nr == a:s.from[1]
      let first = a:s.from[2] - 1
    endif
    if a:nr == a:s.to[1]
      if a:s.exclusive
        let end = a:s.to[2] - 1
      elseif a:s.to[2] > len(a:text) && a:nr < line('$')
        let end += 1
      else
        let end = a:s.to[2] - 1 + len(matchstr(strpart(a:text, a:s.to[2] - 1), '^.'))
      endif
    endif
  endif
  return [first, end]
endfunction

" Returns the selection in Visual or Select mode: the text, and the range for Pollux. The
" range of a block is the smallest one that contains it.
function! s:Selection(mode) abort
  let [from, to] = [getpos('v'), getpos('.')]
  if from[1] > to[1] || from[1] == to[1] && from[2] > to[2]
    let [from, to] = [to, from]
  endif
  let s = {'kind': a:mode[0], 'exclusive': &selection ==# 'exclusive', 'from': from, 'to': to, 'left': 0, 'right': 0}
  if s.kind ==# "\<C-v>" || s.kind ==# "\<C-s>"
    let s.left = min([s:FirstCell(from), s:FirstCell(to)])
    let s.right = max([virtcol('v'), virtcol('.')]) - (s.exclusive ? 1 : 0)
    if getcurpos()[4] >= s:LAST_COLUMN
      let s.right = s:LAST_COLUMN
    endif
  endif
  let top = getline(from[1])
  let bottom = getline(to[1])
  let end = s:Part(s, to[1], bottom)[1]
  let where = {
        \ 'start': {'line': from[1], 'character': pollux#context#Utf16(top, s:Part(s, from[1], top)[0])},
        \ 'end': {'line': to[1], 'character': pollux#context#Utf16(bottom, end)},
        \ }
  if end > len(bottom)
    let where.end = {'line': to[1] + 1, 'character': 1}
  endif
  if s.left > 0 && s.right != s:LAST_COLUMN && exists('*getregion') && to[1] - from[1] < 1000
    let lines = call('getregion', [getpos('v'), getpos('.'), {'type': "\<C-v>"}])
    return {'selection': join(lines, "\n"), 'range': where}
  endif
  let text = s.left > 0 ? s:Block(s) : s:Lines(s)
  return {'selection': text, 'range': where}
endfunction

" Returns the text of a block.
function! s:Block(s) abort
  let lines = []
  let size = 0
  for nr in range(a:s.from[1], a:s.to[1])
    let line = getline(nr)
    let [first, last] = s:Part(a:s, nr, line)
    let line = strpart(line, first, last - first)
    call add(lines, line)
    let size += len(line) + 1
    if size > s:MAX_SELECTION
      break
    endif
  endfor
  return join(lines, "\n")
endfunction

" Returns the text of another selection. It reads many lines with one call: a statement of
" Vim script for each line would take longer than the time between two keys.
function! s:Lines(s) abort
  let [from, to] = [a:s.from[1], a:s.to[1]]
  let text = ''
  let next = from
  while next <= to && len(text) <= s:MAX_SELECTION
    let text ..= join(getline(next, min([next + 99, to])), "\n") .. "\n"
    let next += 100
  endwhile
  if next > to
    let bottom = getline(to)
    let text = strpart(text, 0, len(text) - 1 - len(bottom) + s:Part(a:s, to, bottom)[1])
  endif
  return strpart(text, s:Part(a:s, from, getline(from))[0])
endfunction

function! s:Rebuild() abort
  let s:others = {}
  for b in getbufinfo({'buflisted': 1})
    if s:IsFile(b)
      let s:others[b.bufnr] = fnamemodify(b.name, ':p')
    endif
  endfor
  call filter(s:focused, {buf -> has_key(s:others, buf)})
  let s:list_dirty = 0
endfunction

" Records the cursor and selection of the current window. In a terminal or another buffer
" that is not a file it keeps the last ones: the user is asking the agent about that file.
function! s:Sample() abort
  if s:list_dirty
    call s:Rebuild()
  endif
  if !empty(s:active) && !has_key(s:others, s:active.buf)
    let s:active = {}
  endif
  let buf = string(bufnr())
  let mode = mode()
  if !has_key(s:others, buf) || mode[0] ==# 'c' || mode[0] ==# 't'
    return
  endif
  let selected = {}
  if mode =~# s:VISUAL
    let selected = s:Selection(mode)
  elseif s:held && get(s:active, 'buf', '') ==# buf
    let selected = s:active.selected
  endif
  let s:focused[buf] = s:Now()
  let cursor = {'line': line('.'), 'character': pollux#context#Utf16(getline('.'), col('.') - 1)}
  let s:active = {'buf': buf, 'cursor': cursor, 'selected': selected}
endfunction

function! s:Push(_) abort
  let s:push_due = 0
  if !pollux#client#Ready()
    return
  endif
  call s:Sample()
  let files = []
  for [buf, path] in items(s:others)
    let file = {'path': path, 'focused': get(s:focused, buf, 0)}
    if get(s:active, 'buf', '') ==# buf
      call extend(file, {'active': v:true, 'cursor': s:active.cursor})
      call extend(file, s:active.selected)
    endif
    call add(files, file)
  endfor
  let update = {'files': files}
  if s:roots_due
    let s:roots_due = 0
    let roots = pollux#context#Roots()
    if roots !=# s:last_roots
      let s:last_roots = roots
      let update.roots = roots
    endif
  endif
  call pollux#client#Notify('context/update', update)
endfunction

" Sends the current state soon.
function! pollux#context#Soon() abort
  if !s:push_due
    let s:push_due = 1
    call timer_start(0, function('s:Push'))
  endif
endfunction

function! s:Moved() abort
  if !s:held
    call s:Sample()
  endif
  call pollux#context#Soon()
endfunction

function! s:Listed() abort
  let s:list_dirty = 1
  call pollux#context#Soon()
endfunction

function! s:Saved() abort
  if &buftype ==# ''
    call pollux#client#Notify('file/saved', {'path': fnamemodify(expand('<afile>'), ':p')})
  endif
endfunction

" Handles an event that may change the workspace.
function! s:Directory() abort
  let s:roots_due = 1
  call pollux#context#Soon()
endfunction

function! s:Mode() abort
  let [old, new] = [v:event.old_mode, v:event.new_mode]
  if old =~# s:VISUAL && new !~# s:VISUAL || s:held && old =~# '^c'
    call s:Hold()
  endif
  if new =~# '^c' && s:held
    call timer_stop(s:release) " until the command line ends
  elseif new =~# s:VISUAL || !s:held
    call timer_stop(s:release)
    let s:held = 0
    call s:Sample()
    call pollux#context#Soon()
  endif
endfunction

" Keeps a selection that has ended until a terminal had the time to get the focus, or until
" a command line begins.
function! s:Hold() abort
  let s:held = 1
  call timer_stop(s:release)
  let s:release = timer_start(s:SELECTION_DELAY, function('s:Release'))
endfunction

function! s:Release(_) abort
  if pollux#client#Waiting() > 0
    call s:Hold() " a command is being executed
    return
  endif
  let s:held = 0
  call pollux#context#Soon()
endfunction

" Starts to report the context. Pollux was started with the workspace in roots, which may
" have changed since.
function! pollux#context#Start(roots) abort
  let s:list_dirty = 1
  let s:held = 0
  let s:last_roots = a:roots
  let s:roots_due = 1
  augroup pollux_context
    autocmd!
    autocmd CursorMoved,CursorMovedI,WinEnter,TabEnter,TextChanged,InsertLeave * call s:Moved()
    autocmd BufEnter,BufReadPost,BufWritePost,BufFilePost,BufDelete,BufWipeout,BufAdd,BufHidden * call s:Listed()
    autocmd BufWritePost * call s:Saved()
    autocmd DirChanged,TabNew,TabClosed,BufReadPost * call s:Directory()
    if exists('##LspAttach')
      autocmd LspAttach,LspDetach * call s:Directory()
    endif
    autocmd ModeChanged * call s:Mode()
  augroup END
  call pollux#context#Soon()
endfunction

function! pollux#context#Stop() abort
  augroup pollux_context
    autocmd!
  augroup END
endfunction

let &cpo = s:cpo
