" The changes that agents propose. One at a time is on the screen, the others are pending.
" Pollux computes the hunks and carries out the decisions; this file handles buffers and
" windows.
"
" A view never takes the focus, so that keys still reach the terminal that the user types
" in. The proposal's buffer is modified from the start: `:q` complains, `:w`, `:wq` and
" `:x` accept, and if the buffer is closed without being written, the change is rejected.
"
" A change can be decided on once it has been in view for a while without a key press,
" because a key may have been meant for another change. After that it stays ready while
" it is in view.

let s:cpo = &cpo | set cpo&vim

let s:SUCCESSOR_TIMEOUT = 2000 " ms that a view waits for the proposal that replaces it
let s:EDIT_DELAY = 200 " ms without typing, after which the text is sent
let s:MIN_COLUMNS = 100 " for two texts side by side
" The delay consists of several timers: if the editor was busy, it reads the keys that were
" pressed meanwhile before the next timer.
let s:SETTLE_PARTS = 5
let s:BOM = "\uFEFF"
" None starts with <C-c>, with which many users leave Insert mode.
let s:KEYS = [
      \ [']c', 'next-hunk'],
      \ ['[c', 'previous-hunk'],
      \ ['do', 'undo-hunk'],
      \ ['dp', 'redo-hunk'],
      \ ['ZZ', 'accept'],
      \ ]

let s:diffs = [] " the oldest first
let s:views = {} " diffs by buffer, also after their companion has ended
let s:shown = {} " the one on the screen
let s:superseded = {} " a view that waits for the proposal that replaces it
let s:ended = [] " decided, but still on the screen
let s:entered = win_getid() " the window that the user entered last
let s:typed = '' " the command line that is being executed
let s:begun = reltime() " when the user started to type it
let s:settle = 500 " ms until a change can be decided on
let s:following = 0 " whether keys are followed

function! s:Loaded(buf) abort
  return a:buf > 0 && bufloaded(a:buf)
endfunction

" Returns a text as a buffer's lines, and the settings with which the buffer returns it
" byte for byte.
function! s:LinesOf(whole) abort
  let text = a:whole
  let form = {'bom': stridx(text, s:BOM) == 0}
  if form.bom
    let text = strpart(text, len(s:BOM))
  endif
  let lf = count(text, "\n")
  let form.dos = lf > 0 && lf == count(text, "\r\n")
  if form.dos
    let text = substitute(text, "\r\n", "\n", 'g')
  endif
  let form.eol = strpart(text, len(text) - 1) ==# "\n"
  if form.eol
    let text = strpart(text, 0, len(text) - 1)
  endif
  let form.blank = text ==# '' && form.eol
  return [split(text, "\n", 1), form]
endfunction

function! s:Fill(buf, text) abort
  let [lines, form] = s:LinesOf(a:text)
  call setbufline(a:buf, 1, empty(lines) ? [''] : lines)
  call deletebufline(a:buf, max([1, len(lines)]) + 1, '$')
  call setbufvar(a:buf, '&fileformat', form.dos ? 'dos' : 'unix')
  call setbufvar(a:buf, '&fixendofline', 0)
  call setbufvar(a:buf, '&endofline', form.eol)
  return form
endfunction

" Returns the text of a view as it should be on disk.
function! s:TextOf(d) abort
  if !s:Loaded(a:d.buf)
    return a:d.text
  endif
  let lines = getbufline(a:d.buf, 1, '$')
  if lines ==# [''] && !a:d.form.blank
    return ''
  endif
  let nl = getbufvar(a:d.buf, '&fileformat') ==# 'dos' ? "\r\n" : "\n"
  return (a:d.form.bom ? s:BOM : '') .. join(lines, nl) .. (getbufvar(a:d.buf, '&endofline') ? nl : '')
endfunction

function! s:SetModified(buf, modified) abort
  if s:Loaded(a:buf)
    call setbufvar(a:buf, '&modified', a:modified)
  endif
endfunction

function! s:Find(id) abort
  return get(filter(copy(s:diffs), {_, d -> d.diff.id ==# a:id}), 0, {})
endfunction

" Returns the diff that a buffer shows, or {}.
function! s:ByBuffer(buf) abort
  let d = get(s:views, a:buf, {})
  return get(d, 'ended', 1) ? {} : d
endfunction

" Returns the diff that a command applies to: the current buffer's, otherwise the one
" shown, otherwise the oldest.
function! s:Current() abort
  let inside = s:ByBuffer(bufnr())
  if !empty(inside)
    return inside
  endif
  return empty(s:shown) ? get(s:diffs, 0, {}) : s:shown
endfunction

" Returns the pending diffs, the oldest first.
function! pollux#diff#Waiting() abort
  return copy(s:diffs)
endfunction

function! pollux#diff#Name(d) abort
  return fnamemodify(a:d.diff.path, ':~:.')
endfunction

" Returns the name of the agent that proposed a diff.
function! pollux#diff#Agent(d) abort
  let names = [get(a:d.diff, 'agent', ''), get(a:d.diff, 'client', ''), 'the agent']
  return filter(names, {_, name -> name !=# ''})[0]
endfunction

" Returns the path of the diff on the screen, or an empty string.
function! pollux#diff#Shown() abort
  let d = s:Current()
  return get(d, 'buf', 0) > 0 ? d.diff.path : ''
endfunction

" Returns the path of the current diff if it can be decided on, otherwise an empty string.
function! pollux#diff#Ready() abort
  let d = s:Current()
  return get(d, 'settled', 0) ? d.diff.path : ''
endfunction

" Returns the milliseconds until a change can be decided on; tests set them.
function! pollux#diff#Settle(...) abort
  let s:settle = get(a:000, 0, s:settle)
  return s:settle
endfunction

" Returns the buffer of the current proposal, or 0.
function! pollux#diff#Buffer() abort
  return get(s:Current(), 'buf', 0)
endfunction

function! s:Target(path) abort
  return get(pollux#context#Buffers(a:path), 0, 0)
endfunction

function! s:Scratch(d, what, buftype, text) abort
  let uri = printf('pollux://%s/%s/%s', a:d.diff.id, a:what, fnamemodify(a:d.diff.path, ':t'))
  let buf = bufadd(uri)
  let s:views[buf] = a:d
  let options = {'buftype': a:buftype, 'bufhidden': 'wipe', 'swapfile': 0, 'buflisted': 0, 'undolevels': -1}
  for [name, value] in items(options)
    call setbufvar(buf, '&' .. name, value)
  endfor
  silent noautocmd call bufload(buf)
  call setbufvar(buf, '&readonly', 0) " even after `vim -R`
  call setbufvar(buf, '&modifiable', 1) " even after `vim -M`
  let form = s:Fill(buf, a:text)
  call setbufvar(buf, '&undolevels', -123456) " the global value
  if a:what ==# 'proposed'
    call extend(a:d, {'form': form, 'uri': uri})
  endif
  let target = s:Target(a:d.diff.path)
  if target > 0
    for name in ['tabstop', 'shiftwidth', 'softtabstop', 'expandtab', 'autoindent']
      call setbufvar(buf, '&' .. name, getbufvar(target, '&' .. name))
    endfor
  endif
  return buf
endfunction

" Returns the window next to which a diff opens: the one with the file, otherwise the last
" one with a file, otherwise the first that is not a terminal, otherwise the current one.
function! s:Beside(path) abort
  let [best, rank] = [win_getid(), 0]
  let last = win_getid(winnr('#'))
  let target = s:Target(a:path)
  for w in filter(getwininfo(), {_, w -> w.tabnr == tabpagenr() && !w.terminal && win_gettype(w.winid) !~# 'popup'})
    let r = 1
    if w.bufnr == target
      let r = 4
    elseif getbufvar(w.bufnr, '&buftype') ==# ''
      let r = w.winid == last ? 3 : 2
    endif
    if r > rank
      let [best, rank] = [w.winid, r]
    endif
  endfor
  return best
endfunction

function! s:Windows() abort
  return gettabinfo(tabpagenr())[0].windows
endfunction

function! s:Split(win, how, buf) abort
  let before = s:Windows()
  call win_execute(a:win, printf('noautocmd keepalt keepjumps %s split', a:how))
  let new = filter(s:Windows(), {_, w -> index(before, w) < 0})
  if empty(new)
    throw 'there is no room for another window'
  endif
  for name in ['winfixheight', 'winfixwidth', 'previewwindow']
    call setwinvar(new[0], '&' .. name, 0)
  endfor
  silent! call setwinvar(new[0], '&winfixbuf', 0)
  call win_execute(new[0], printf('silent keepalt keepjumps buffer! %d', a:buf))
  return new[0]
endfunction

" Returns the window of a proposal, or 0.
function! s:Window(d) abort
  return get(filter(copy(a:d.wins), {_, w -> winbufnr(w) == a:d.buf}), 0, 0)
endfunction

" Shows a text above a window, in Vim below it. A narrow window cuts the tail at its start.
function! s:Caption(win, head, tail) abort
  let text = ''
  if a:head .. a:tail !=# ''
    let text = printf(' %s%%<%s', substitute(a:head, '%', '%%', 'g'), substitute(a:tail, '%', '%%', 'g'))
  endif
  call setwinvar(a:win, exists('+winbar') ? '&winbar' : '&statusline', text)
endfunction

" Says what is special about a diff, in one message: after two, the editor asks for Enter.
function! s:Remark(d) abort
  let remarks = []
  if a:d.dirty > 0
    call add(remarks, 'has unsaved changes: they are kept')
  endif
  if has_key(a:d.diff, 'readOnly')
    call add(remarks, 'is read-only: ' .. a:d.diff.readOnly)
  endif
  if !empty(remarks)
    call pollux#client#Say(pollux#diff#Name(a:d) .. ' ' .. join(remarks, '; it '), a:d.dirty > 0 ? 'warning' : 'info')
  endif
endfunction

" Sets the title of the proposal. It always has the name of the file and the keys. In a narrow
" window the name of the agent is missing, the path has no start, and the rest is brief.
function! s:CaptionOf(d) abort
  let win = s:Window(a:d)
  if win == 0
    return
  endif
  let who = pollux#diff#Agent(a:d) .. ' proposes: '
  let [how, brief] = [' (:w accepts, :q! rejects)', ' (:w/:q!)']
  if a:d.lost
    let [who, how, brief] = ['', ': its companion has ended; :w FILE saves the text', ' (ended)']
  elseif a:d.diff.state ==# 'accepted'
    let [who, how, brief] = ['', ': accepted; waiting for the agent to write the file', ' (accepted)']
  elseif a:d.diff.state ==# 'outside'
    let [who, how] = ['changed outside Pollux: ', ' (:w saves this text, :q! keeps the file)']
  elseif a:d.diff.state ==# 'orphaned'
    let [who, how] = [pollux#diff#Agent(a:d) .. ' proposed: ', ' (disconnected; :w saves, :q! discards)']
  elseif has_key(a:d.diff, 'readOnly')
    let how = ' (read-only; :w accepts, :q! rejects)'
  endif
  if !a:d.lost && a:d.diff.state !=# 'accepted'
    if !a:d.settled
      let [how, brief] = [' (look at it, then decide)', ' (look)']
    elseif a:d.overwrite !=# ''
      let how = ' (:w overwrites the file, :q! keeps it)'
    endif
  endif
  let path = pollux#diff#Name(a:d)
  let name = fnamemodify(path, ':t')
  let least = strwidth(name) + (name !=# path) " with a mark for the start of the path
  let columns = winwidth(win) - 1
  if columns - strwidth(how) < least
    let how = brief
  endif
  let room = columns - strwidth(who .. how)
  call s:Caption(win, room < min([strwidth(path), max([20, least])]) ? '' : who, path .. how)
endfunction

function! s:InView(d) abort
  return a:d.buf > 0 && bufwinid(a:d.buf) > 0
endfunction

" Follows keys only while needed: Vim loses a Ctrl-C, and the mapping that it starts, if it
" is typed while a script runs.
function! s:FollowKeys(on) abort
  if s:following != a:on
    let s:following = a:on
    call pollux#Host('FollowKeys', a:on)
  endif
endfunction

" Starts the delay after which d can be decided on.
function! s:Unsettle(d) abort
  let was = a:d.settled
  let a:d.settled = 0
  let a:d.delays += 1
  if was
    call s:CaptionOf(a:d)
  endif
  call s:FollowKeys(1)
  call s:Rest(a:d, a:d.delays, 1)
endfunction

function! s:Rest(d, delays, part) abort
  call timer_start(s:settle / s:SETTLE_PARTS, {-> s:Rested(a:d, a:delays, a:part)})
endfunction

function! s:Rested(d, delays, part) abort
  if a:d.delays != a:delays || !s:InView(a:d)
    return
  endif
  if a:part < s:SETTLE_PARTS
    return s:Rest(a:d, a:delays, a:part + 1)
  endif
  call s:FollowKeys(0)
  let a:d.settled = 1
  let a:d.since = reltime()
  call s:CaptionOf(a:d)
  call pollux#client#Trigger('DiffReady') " pollux#client#Event() would redraw over a message
endfunction

" Reports whether d can be decided on. A command counts from when the user started to
" type it.
function! s:CanDecide(d) abort
  return a:d.lost || a:d.diff.state !=# 'accepted' && a:d.settled
        \ && (s:typed ==# '' || reltimefloat(reltime(a:d.since, s:begun)) >= 0)
endfunction

" Tells the user why the attempt decided nothing.
function! s:Refuse(d) abort
  if a:d.diff.state ==# 'accepted'
    call pollux#client#Say(pollux#diff#Name(a:d) .. ' is accepted; waiting for the agent to write the file', 'warning')
    return
  endif
  call s:Unsettle(a:d)
  call pollux#client#Say('This change has just appeared. Look at it, then decide.', 'warning')
endfunction

" Handles a key press in a buffer.
function! pollux#diff#Pressed() abort
  let d = s:ByBuffer(bufnr())
  if !empty(d) && d.buf > 0 && !d.settled && !d.hiding
    call s:Unsettle(d)
  endif
endfunction

" Highlights the changes in the window of an inline view.
function! s:Draw(d) abort
  if a:d.inline && s:Loaded(a:d.buf)
    let tick = getbufvar(a:d.buf, 'changedtick')
    call pollux#client#Request('diff/hunks', {'id': a:d.diff.id, 'content': s:TextOf(a:d)},
          \ {error, result -> s:Drawn(a:d, tick, error, result)})
  endif
endfunction

function! s:Drawn(d, tick, error, result) abort
  if a:error ==# '' && s:Loaded(a:d.buf) && getbufvar(a:d.buf, 'changedtick') == a:tick
    call pollux#Host('Draw', a:d.buf, a:result.hunks)
  endif
endfunction

function! s:Edited(d) abort
  call timer_stop(a:d.pause)
  let a:d.pause = timer_start(s:EDIT_DELAY, {-> s:Pause(a:d)})
endfunction

" Handles the end of typing.
function! s:Pause(d) abort
  if !a:d.ended && a:d.diff.state !=# 'accepted'
    call pollux#client#Notify('diff/edit', {'id': a:d.diff.id, 'content': s:TextOf(a:d)})
    call s:Draw(a:d)
  endif
endfunction

function! s:Forget(d) abort
  let a:d.ended = 1
  call filter(s:diffs, {_, other -> other isnot a:d})
endfunction

" Calls F, which opens or closes windows of d, so that only the neighbouring window changes
" its size. 'equalalways' would resize the terminal too, and wrap its text again.
function! s:KeepingSizes(F, d) abort
  let base = empty(getwininfo(a:d.base)) ? s:Beside(a:d.diff.path) : a:d.base
  let fixed = []
  for win in s:Windows()
    if win != base && index(a:d.wins, win) < 0
      call add(fixed, [win, getwinvar(win, '&winfixwidth'), getwinvar(win, '&winfixheight')])
      call setwinvar(win, '&winfixwidth', 1)
      call setwinvar(win, '&winfixheight', 1)
    endif
  endfor
  try
    call a:F(a:d)
  finally
    for [win, width, height] in fixed
      if !empty(getwininfo(win))
        call setwinvar(win, '&winfixwidth', width)
        call setwinvar(win, '&winfixheight', height)
      endif
    endfor
  endtry
endfunction

" Removes a view from the screen and restores the windows.
function! s:Hide(d) abort
  if s:shown is a:d
    let s:shown = {}
    call s:FollowKeys(0)
  endif
  call timer_stop(a:d.pause)
  let a:d.text = s:TextOf(a:d)
  let a:d.settled = 0
  let a:d.delays += 1
  let a:d.hiding = 1
  if bufnr() == a:d.buf && mode() =~# '^[iR]'
    " Keys that are still queued were meant for the proposal.
    stopinsert
    while getchar(1) isnot 0
      call getchar(0)
    endwhile
  endif
  call s:SetModified(a:d.buf, 0)
  if win_id2win(a:d.dirty) > 0
    call win_execute(a:d.dirty, 'diffoff')
  endif
  for win in a:d.wins
    if !empty(getwininfo(win))
      call s:CloseWindow(win)
    endif
  endfor
  for buf in [a:d.buf, a:d.left]
    if buf > 0 && bufexists(buf)
      execute 'silent! bwipeout!' buf
    endif
  endfor
  if empty(filter(values(s:views), {_, o -> o isnot a:d && !o.inline && !empty(o.wins)}))
    call pollux#colors#Return()
  endif
  if a:d.tab == tabpagenr() && winnr('$') == a:d.count
    execute a:d.sizes
  endif
  call extend(a:d, {'buf': 0, 'left': 0, 'wins': [], 'dirty': 0, 'hiding': 0, 'overwrite': ''})
endfunction

" Closes a window of a view. The last window of the editor gets an empty buffer.
function! s:CloseWindow(win) abort
  try
    call win_execute(a:win, 'close!')
  catch /E444:\|E5601:/
    call s:Caption(a:win, '', '')
    call win_execute(a:win, 'diffoff | setlocal signcolumn< | enew!')
    call pollux#colors#Clear(a:win)
  endtry
endfunction

" Removes a view from the screen, even if the user has changed its windows.
function! s:Remove(d) abort
  try
    call s:KeepingSizes(function('s:Hide'), a:d)
  catch
    call pollux#client#Note(v:exception .. ' ' .. v:throwpoint)
  endtry
endfunction

function! s:Finish(d) abort
  call s:Forget(a:d)
  if !a:d.deciding " otherwise s:Decide() calls s:Finish() again; `:wq` needs the window until then
    call timer_start(0, {-> s:Finished(a:d)})
  endif
endfunction

function! s:Finished(d) abort
  let inside = a:d.buf > 0 && bufnr() == a:d.buf
  if !inside && s:Busy()
    call add(s:ended, a:d)
    return
  endif
  call s:Remove(a:d)
  call s:ShowNext()
  call pollux#client#Event('DiffClosed')
endfunction

" Keeps a superseded view until the new proposal for its file arrives: the user may be
" typing in it.
function! s:Await(d) abort
  call s:Forget(a:d)
  let s:superseded = a:d
  call timer_start(s:SUCCESSOR_TIMEOUT, {-> s:GiveUp(a:d)})
endfunction

function! s:GiveUp(d) abort
  if s:superseded is a:d
    let s:superseded = {}
    call s:Finish(a:d)
  endif
endfunction

" Shows the new proposal in place of the old one, and keeps the cursor in it.
function! s:Replace(old, d) abort
  let s:superseded = {}
  if bufnr() != a:old.buf
    return s:Finish(a:old)
  endif
  let s:shown = {}
  if s:Try(a:d)
    call win_gotoid(s:Window(a:d))
    call extend(a:d, {'count': a:old.count, 'sizes': a:old.sizes})
  endif
  call s:Finish(a:old)
endfunction

" Reports whether no window can be opened now: in the command-line window none can, and in
" Vim, opening one would end Visual mode or an insert in a block. If so, shows the diff later.
function! s:Busy() abort
  let event = 'ModeChanged *:[nt]*'
  if getcmdwintype() !=# ''
    let event = 'CmdwinLeave *'
  elseif has('nvim') || mode() !~# "^[vVsSiR\<C-v>\<C-s>]"
    return 0
  endif
  execute 'autocmd! pollux_later' event '++once call timer_start(0, {-> s:ShowLater()})'
  return 1
endfunction

function! s:ShowLater() abort
  let gone = s:ended
  let s:ended = []
  for d in gone
    call s:Finished(d)
  endfor
  call s:ShowNext()
endfunction

function! s:ShowNext() abort
  if empty(s:shown) && !empty(s:diffs) && !s:Busy()
    call s:Try(s:diffs[0])
  endif
endfunction

" Cleans up after the user has closed a view.
function! s:Tidy(d) abort
  if a:d.dismissed
    let a:d.dismissed = 0
    call s:Remove(a:d)
  endif
endfunction

" Shows a diff and reports whether that worked. If not, the diff stays pending and the
" user gets a message.
function! s:Try(d) abort
  call s:Tidy(a:d)
  try
    call s:KeepingSizes(function('s:Show'), a:d)
    return 1
  catch
    let error = substitute(v:exception, '^Vim\%((\a\+)\)\?:\?', '', '')
    call pollux#client#Note(v:throwpoint)
  endtry
  call s:Remove(a:d)
  call pollux#client#Say(printf('%s is pending but cannot be shown (%s): :Pollux next',
        \ pollux#diff#Name(a:d), error), 'warning')
  return 0
endfunction

function! s:KeepEdits(d) abort
  let text = s:TextOf(a:d)
  if text !=# get(a:d.diff, 'content', a:d.diff.proposed)
    call pollux#client#Notify('diff/edit', {'id': a:d.diff.id, 'content': text}) " so that the journal has it
  endif
endfunction

function! s:Decline(d) abort
  if a:d.ended
    return
  endif
  call s:KeepEdits(a:d)
  call s:Finish(a:d)
  call pollux#client#Request('diff/reject', {'id': a:d.diff.id}, {error -> s:Declined(a:d, error)})
endfunction

function! s:Declined(d, error) abort
  if a:error !=# ''
    call pollux#client#Note(a:error)
    return
  endif
  let words = {'open': 'rejected', 'orphaned': 'discarded'}
  call pollux#client#Say(get(words, a:d.diff.state, 'kept') .. ': ' .. fnamemodify(a:d.diff.path, ':t'))
endfunction

" Handles a view that the user has closed: that rejects, unless it was too early to
" decide.
function! s:Closed(d, decides) abort
  if a:d.ended
    return
  endif
  if a:decides
    return s:Decline(a:d)
  endif
  call s:KeepEdits(a:d)
  if s:shown is a:d
    let s:shown = {}
    call s:FollowKeys(0)
  endif
  let a:d.dismissed = 1
  call timer_start(0, {-> s:Tidy(a:d)})
  if a:d.diff.state !=# 'accepted'
    call pollux#client#Say(pollux#diff#Name(a:d) .. ' had just appeared, so it is still pending: :Pollux next shows it',
          \ 'warning')
  endif
endfunction

" Accepts d and reports whether that succeeded.
function! s:Decide(d) abort
  if a:d.ended
    return 1
  endif
  if a:d.lost
    call pollux#client#Say('the companion of this change has ended: `:w FILE` saves the text, `pollux journal` has it too',
          \ 'error')
    return 0
  endif
  if !s:CanDecide(a:d)
    call s:Refuse(a:d)
    return 0
  endif
  if s:Loaded(a:d.buf) && match(getbufline(a:d.buf, 1, '$'), "\n") >= 0 " which would become a line end
    call pollux#client#Say('the text holds NUL bytes: remove them, then accept again', 'error')
    return 0
  endif
  let agent_waits = a:d.diff.state ==# 'open'
  let params = {'id': a:d.diff.id, 'content': s:TextOf(a:d)}
  if a:d.overwrite !=# ''
    let params.overwrite = a:d.overwrite
  endif
  let a:d.deciding = 1
  let [error, result] = pollux#client#Call(agent_waits ? 'diff/accept' : 'diff/save', params)
  let a:d.deciding = 0
  if error !=# ''
    if a:d.ended
      call s:Finish(a:d)
    endif
    call pollux#client#Say(error, 'error')
    return a:d.ended
  endif
  if result.status ==# 'accepted'
    call s:SetModified(a:d.buf, 0)
    call pollux#client#Say((agent_waits ? 'accepted: ' : 'saved: ') .. fnamemodify(a:d.diff.path, ':t'))
    call s:Finish(a:d)
    return 1
  endif
  if result.status ==# 'conflict'
    return s:Conflict(a:d, result)
  endif
  call pollux#client#Say(get(result, 'message', result.status), 'error')
  return 0
endfunction

" Asks the user about a file that another program has changed. Reports whether d is accepted.
function! s:Conflict(d, result) abort
  let answer = 0
  while 1 " a key that was meant for the text must not overwrite
    let asked = reltime()
    let answer = confirm(a:result.message, "&Overwrite it\n&Compare with it\n&Not now", 3, 'Warning')
    if answer != 1 || reltimefloat(reltime(asked)) * 1000 >= s:settle
      break
    endif
  endwhile
  let a:d.overwrite = answer == 1 || answer == 2 ? a:result.version : ''
  if answer == 1
    return s:Decide(a:d)
  elseif answer == 2
    call s:Compare(a:d, get(a:result, 'disk', ''))
  endif
  return 0
endfunction

" Shows the file on disk next to the proposal, above one that was alone. The next decision
" overwrites it.
function! s:Compare(d, disk) abort
  let where = 'left side'
  if s:Loaded(a:d.left)
    call setbufvar(a:d.left, '&modifiable', 1)
    call s:Fill(a:d.left, a:disk)
  else
    let where = 'window above'
    let a:d.left = s:Scratch(a:d, 'original', 'nofile', a:disk)
    call s:KeepingSizes(function('s:OpenAbove'), a:d)
  endif
  call setbufvar(a:d.left, '&modifiable', 0)
  call s:Unsettle(a:d)
  call pollux#client#Say('the ' .. where .. ' now shows the file on disk')
endfunction

function! s:OpenAbove(d) abort
  let right = s:Window(a:d)
  let left = s:Split(right, 'aboveleft', a:d.left)
  call pollux#Host('Draw', a:d.buf, [])
  call extend(a:d, {'wins': [left] + a:d.wins, 'inline': 0})
  for win in [left, right]
    call win_execute(win, 'diffthis')
  endfor
  call pollux#colors#Lend(left, right)
  call s:Caption(left, 'on disk: ', pollux#diff#Name(a:d))
  execute printf('autocmd pollux_diff BufWipeout <buffer=%d> call s:Wiped(%d)', a:d.left, a:d.left)
endfunction

" Reports whether the user wants this write. A command typed in the proposal says so.
" Otherwise it asks: `:wa` in another window, 'autowrite' and plugins that save
" automatically write too.
function! s:Asked(d) abort
  if winbufnr(s:entered) != a:d.buf
    return 0
  endif
  if s:typed =~# '^[[:space:]:%]*[wux]\a*' && s:typed !~# '^[[:space:]:%]*[wx]q\?a\%[ll]\s*\%([!|].*\)\?$'
    return 1
  endif
  return confirm(printf('Accept the change to %s?', pollux#diff#Name(a:d)), "&Accept\n&Not now", 2) == 1
endfunction

" Handles BufWriteCmd: `:w` in the proposal.
function! s:Written(buf, name) abort
  let d = s:views[a:buf]
  if a:name !=# d.uri && expand('<amatch>') !=# d.uri " a copy
    if filereadable(a:name) && !v:cmdbang
      call pollux#client#Say(a:name .. ' exists: add ! to overwrite it', 'error')
      return
    endif
    call writefile(split(s:TextOf(d), "\n", 1), a:name, 'b')
    if bufname(d.buf) !=# d.uri " after :saveas
      execute 'silent keepalt file' fnameescape(d.uri)
    endif
    call pollux#client#Say('saved a copy to ' .. a:name)
    return
  endif
  if d.ended
    call s:SetModified(d.buf, 0)
  elseif !s:CanDecide(d)
    call s:Refuse(d)
    call s:SetModified(d.buf, 1)
  elseif !s:Asked(d) || !s:Decide(d)
    call s:SetModified(d.buf, 1)
  endif
endfunction

" Handles the loss of the left side: after `:only`, or with another buffer in its window,
" the proposal stays alone; closing its window rejects.
function! s:Alone(d, decides) abort
  if a:d.ended || !s:Loaded(a:d.buf)
    return
  endif
  let right = a:d.wins[1]
  if empty(getwininfo(a:d.wins[0])) && !(winbufnr(right) == a:d.buf && winnr('$') == 1)
    return s:Closed(a:d, a:decides)
  endif
  for win in a:d.wins
    call win_execute(win, 'diffoff')
  endfor
  call extend(a:d, {'wins': [right], 'inline': 1, 'overwrite': ''})
  call s:CaptionOf(a:d)
  call pollux#colors#Return()
  call pollux#colors#Clear(right)
  call setwinvar(right, '&signcolumn', 'yes')
  call s:Draw(a:d)
endfunction

function! s:Wiped(buf) abort
  let d = s:ByBuffer(a:buf)
  call remove(s:views, a:buf)
  if empty(d) || d.hiding
    return
  endif
  let decides = s:CanDecide(d)
  if d.left == a:buf && s:Loaded(d.buf)
    let d.left = 0
    call timer_start(0, {-> s:Alone(d, decides)})
    return
  endif
  if d.buf == a:buf
    let d.buf = 0
  endif
  call s:Closed(d, decides)
endfunction

function! s:Watch(d) abort
  augroup pollux_diff
    execute printf('autocmd BufWriteCmd <buffer=%d> ++nested call s:Written(%d, expand("<afile>"))', a:d.buf, a:d.buf)
    execute printf('autocmd TextChanged,TextChangedI,InsertLeave <buffer=%d> call s:Touched(%d)', a:d.buf, a:d.buf)
    execute printf('autocmd BufUnload <buffer=%d> call s:Unloaded(%d)', a:d.buf, a:d.buf)
    for buf in filter([a:d.buf, a:d.left], 'v:val > 0')
      execute printf('autocmd BufWipeout <buffer=%d> call s:Wiped(%d)', buf, buf)
    endfor
  augroup END
endfunction

function! s:Touched(buf) abort
  let d = s:ByBuffer(a:buf)
  if !empty(d)
    call s:Edited(d)
  endif
endfunction

" Handles BufUnload, the last event at which the buffer has its text.
function! s:Unloaded(buf) abort
  let d = s:ByBuffer(a:buf)
  if !empty(d)
    let d.text = s:TextOf(d)
  endif
endfunction

function! s:SetKeys(win, keys) abort
  if pollux#Option('keys')
    for [lhs, name] in a:keys
      call win_execute(a:win, printf('nnoremap <buffer> <silent> <nowait> %s <Cmd>Pollux %s<CR>', lhs, name))
    endfor
  endif
endfunction

" Opens the windows of a view.
function! s:OpenWindows(d) abort
  let base = a:d.base
  let info = getwininfo(base)[0]
  let layout = pollux#Option('layout')
  let a:d.inline = layout ==# 'inline' || layout ==# 'auto' && info.width < s:MIN_COLUMNS
  if a:d.inline
    let a:d.wins = [s:Split(base, 'aboveleft', a:d.buf)]
  else
    let a:d.left = s:Scratch(a:d, 'original', 'nofile', a:d.diff.original)
    call setbufvar(a:d.left, '&modifiable', 0)
    let a:d.wins = [s:Split(base, 'aboveleft', a:d.left)]
    call add(a:d.wins, s:Split(a:d.wins[0], 'rightbelow vertical', a:d.buf))
  endif
  let target = s:Target(a:d.diff.path)
  if target > 0 && getbufvar(target, '&modified')
    let a:d.dirty = s:Split(a:d.wins[-1], 'rightbelow vertical', target)
    call add(a:d.wins, a:d.dirty)
  endif
  if info.height > 12 && !info.terminal
    call win_execute(a:d.wins[0], printf('resize %d', info.height - max([4, info.height / 4]) - 1))
  endif
  if a:d.inline
    call setwinvar(a:d.wins[0], '&signcolumn', 'yes') " for the plus signs
  else
    for win in a:d.wins
      call win_execute(win, 'diffthis')
    endfor
    call pollux#colors#Lend(a:d.wins[0], a:d.wins[1])
  endif
endfunction

function! s:Show(d) abort
  let was = s:entered
  call extend(a:d, {'base': s:Beside(a:d.diff.path), 'tab': tabpagenr(), 'count': winnr('$'), 'sizes': winrestcmd()})
  let a:d.buf = s:Scratch(a:d, 'proposed', 'acwrite', a:d.text)
  call s:OpenWindows(a:d)
  let s:entered = was
  let s:shown = a:d
  call s:Watch(a:d)
  let right = s:Window(a:d)
  call pollux#Host('Highlight', a:d.buf, right, a:d.diff.path, s:Target(a:d.diff.path))
  call s:SetKeys(right, s:KEYS)
  call s:CaptionOf(a:d)
  call s:Unsettle(a:d)
  if a:d.left > 0
    let left = a:d.wins[0]
    call pollux#Host('Highlight', a:d.left, left, a:d.diff.path, s:Target(a:d.diff.path))
    call s:SetKeys(left, s:KEYS[-1 :]) " those for hunks are keys of diff mode
    if a:d.diff.state ==# 'outside' || a:d.diff.exists
      call s:Caption(left, a:d.diff.state ==# 'outside' ? 'before: ' : 'on disk: ', pollux#diff#Name(a:d))
    else
      call s:Caption(left, 'new file', '')
    endif
  endif
  if a:d.dirty > 0
    call s:Caption(a:d.dirty, 'your unsaved changes (they are kept)', '')
  endif
  call s:Remark(a:d)
  call setbufvar(a:d.buf, '&modified', 1)
  call setbufvar(a:d.buf, '&modifiable', !has_key(a:d.diff, 'readOnly'))
  call s:Draw(a:d)
  call pollux#client#Request('diff/hunks', {'id': a:d.diff.id, 'content': a:d.text},
        \ {error, result -> s:GoToFirst(a:d, right, error, result)})
  if has('nvim') && !has('nvim-0.8')
    redraw
  endif
endfunction

function! s:GoToFirst(d, win, error, result) abort
  if a:error ==# '' && !empty(a:result.hunks) && winbufnr(a:win) == a:d.buf
    call win_execute(a:win, printf('call cursor(%d, 1) | normal! zz', max([1, a:result.hunks[0].line])))
    call pollux#Host('Reveal', a:d.buf)
  endif
endfunction

" Handles diff/open: shows a diff, or keeps it pending.
function! pollux#diff#Open(diff) abort
  let old = s:Find(a:diff.id)
  if !empty(old)
    if a:diff.state ==# 'outside'
      call pollux#diff#Go(old)
    endif
    return
  endif
  let d = {
        \ 'diff': a:diff, 'text': get(a:diff, 'content', a:diff.proposed), 'ended': 0, 'lost': 0, 'deciding': 0,
        \ 'hiding': 0, 'base': 0, 'tab': 0, 'buf': 0, 'left': 0, 'dirty': 0, 'wins': [], 'pause': 0, 'inline': 0,
        \ 'form': {}, 'settled': 0, 'since': [], 'delays': 0, 'dismissed': 0, 'overwrite': '',
        \ }
  call add(s:diffs, d)
  if !empty(s:superseded) && s:superseded.diff.path ==# a:diff.path
    call s:Replace(s:superseded, d)
  elseif a:diff.state ==# 'outside' " the user has chosen it
    call pollux#diff#Go(d)
  else
    call s:ShowNext()
  endif
  call pollux#client#Event('DiffOpened')
endfunction

" Handles diff/close: the diff has been decided. Returns the text as the user left it.
function! pollux#diff#Close(id, reason) abort
  let d = s:Find(a:id)
  if empty(d)
    return {}
  endif
  let text = s:TextOf(d)
  let what = a:reason ==# 'unwritten' ? 'accepted, but not written' : a:reason
  call pollux#client#Note(pollux#diff#Name(d) .. ': ' .. what)
  call s:SetModified(d.buf, 0)
  if a:reason ==# 'superseded' && d.buf > 0
    call s:Await(d)
  else
    call s:Finish(d)
  endif
  return {'content': text}
endfunction

" Handles diff/changed: another client edited the text, or the state changed.
function! pollux#diff#Changed(p) abort
  let d = s:Find(a:p.id)
  if empty(d)
    return
  endif
  if has_key(a:p, 'state')
    let d.diff.state = a:p.state
    call s:CaptionOf(d)
  endif
  if has_key(a:p, 'content') && a:p.content !=# s:TextOf(d)
    let d.text = a:p.content
    if s:Loaded(d.buf)
      let d.form = s:Fill(d.buf, a:p.content)
      call s:SetModified(d.buf, 1)
      call s:Unsettle(d)
      call s:Draw(d)
    endif
  endif
endfunction

" Handles the end of the companion: the shown diff stays, and its text can be saved.
function! pollux#diff#Lost() abort
  for d in s:diffs
    let d.lost = d.buf > 0
    let d.ended = !d.lost
    if d.lost
      call s:CaptionOf(d)
      call pollux#client#Say(pollux#diff#Name(d) .. ': the companion has ended; your text is kept here', 'warning')
    endif
  endfor
  let s:diffs = []
  let s:shown = {}
endfunction

" Handles file/changed: another program has written a file.
function! pollux#diff#Reload(path) abort
  for buf in pollux#context#Buffers(a:path)
    if getbufvar(buf, '&modified')
      call pollux#client#Say(fnamemodify(a:path, ':~:.')
            \ .. ' was written; your unsaved changes are kept (:e! reads the file)', 'warning')
    elseif filereadable(getbufinfo(buf)[0].name)
      let wins = win_findbuf(buf)
      if getbufline(buf, 1, '$') ==# [''] && !empty(wins) " maybe of a new file, about which checktime asks
        call win_execute(wins[0], 'silent! edit')
      else
        call setbufvar(buf, '&autoread', 1)
        execute 'silent! checktime' buf
        call setbufvar(buf, '&autoread', -1) " the global value
      endif
      if mode(1) !=# 'r?' " it would hide the question that Vim asks
        redraw
      endif
    endif
  endfor
  call pollux#context#Soon()
endfunction

" Returns the diff that a command decides on, or {}. One that is not in view is shown instead.
function! s:ToDecide() abort
  let d = s:Current()
  if empty(d)
    call pollux#client#Say('no pending changes')
  elseif !s:InView(d)
    call pollux#diff#Go(d)
    call pollux#client#Say('Look at it first, then decide.', 'warning')
    return {}
  endif
  return d
endfunction

function! pollux#diff#Accept() abort
  let d = s:ToDecide()
  if !empty(d)
    call s:Decide(d)
  endif
endfunction

function! pollux#diff#Reject() abort
  let d = s:ToDecide()
  if empty(d)
    return
  elseif s:CanDecide(d)
    call s:Decline(d)
  else
    call s:Refuse(d)
  endif
endfunction

" Goes to the diff on the screen; from there, to the next pending one.
function! pollux#diff#Next() abort
  let d = s:Current()
  if empty(d)
    call pollux#client#Say('no pending changes')
  elseif !empty(s:ByBuffer(bufnr())) && !empty(s:diffs)
    let ids = map(copy(s:diffs), {_, other -> other.diff.id})
    call pollux#diff#Go(s:diffs[(index(ids, d.diff.id) + 1) % len(ids)])
  else
    call pollux#diff#Go(d)
  endif
endfunction

" Shows a diff in place of the one on the screen, and goes to it.
function! pollux#diff#Go(d) abort
  call s:Tidy(a:d)
  if a:d.buf == 0
    let other = s:shown
    if !empty(other)
      call pollux#client#Notify('diff/edit', {'id': other.diff.id, 'content': s:TextOf(other)})
      call s:KeepingSizes(function('s:Hide'), other)
    endif
    if !s:Try(a:d)
      tab split " which has room
      if !s:Try(a:d)
        tabclose
        return
      endif
    endif
  endif
  call win_gotoid(s:Window(a:d))
  redraw " otherwise, after `C-w :` in a terminal, Vim waits for Enter
endfunction

function! s:OnScreen() abort
  let d = s:Current()
  if empty(d) || s:Window(d) == 0
    call pollux#client#Say('no change on the screen')
    return {}
  endif
  return d
endfunction

" Goes to the next or the previous hunk.
function! pollux#diff#Hunk(backwards) abort
  let d = s:OnScreen()
  if empty(d)
    return
  endif
  let [error, result] = pollux#client#Call('diff/hunks', {'id': d.diff.id, 'content': s:TextOf(d)})
  if error !=# ''
    return pollux#client#Say(error, 'error')
  endif
  let win = s:Window(d)
  let here = line('.', win)
  let last = line('$', win)
  let lines = map(result.hunks, {_, h -> max([1, min([h.line, last])])})
  call filter(lines, {_, n -> a:backwards ? n < here : n > here})
  if empty(lines)
    call pollux#client#Say(a:backwards ? 'no hunk before this line' : 'no hunk after this line')
  else
    call win_execute(win, printf('call cursor(%d, 1)', lines[a:backwards ? -1 : 0]))
    call pollux#Host('Reveal', d.buf)
  endif
endfunction

" Restores the hunk at the cursor from the text on disk ('original') or from the proposal
" ('proposed').
function! pollux#diff#Take(what) abort
  let d = s:OnScreen()
  if empty(d)
    return
  endif
  let win = s:Window(d)
  let was = s:TextOf(d)
  let params = {'id': d.diff.id, 'content': was, 'line': line('.', win), 'take': a:what}
  let [error, edit] = pollux#client#Call('diff/hunk', params)
  if error !=# ''
    return pollux#client#Say(error)
  endif
  let new = edit.text ==# '' ? [] : s:LinesOf(edit.text)[0]
  " Replace the only line of an empty buffer.
  let gone = was ==# '' ? 1 : edit.lines
  let line = was ==# '' ? 1 : edit.line
  if !empty(new)
    call appendbufline(d.buf, line - 1, new)
  endif
  if gone > 0
    call deletebufline(d.buf, line + len(new), line + len(new) + gone - 1)
  endif
  call setbufvar(d.buf, '&endofline', edit.eol ? 1 : 0)
  call setbufvar(d.buf, '&modified', 1)
  call win_execute(win, printf('call cursor(%d, 1)', max([1, line])))
  if !d.inline
    call win_execute(win, 'diffupdate')
  endif
  call s:Edited(d)
endfunction

function! s:Typed(command) abort
  let s:typed = a:command
  call timer_start(0, {-> s:Untyped()})
endfunction

function! s:Untyped() abort
  let s:typed = ''
endfunction

function! s:Appeared() abort
  if !empty(s:shown) && s:InView(s:shown)
    call s:Unsettle(s:shown)
  endif
endfunction

call pollux#colors#Start()
augroup pollux_later
augroup END
augroup pollux_diff
  autocmd!
  autocmd WinEnter * let s:entered = win_getid()
  autocmd TabEnter * call s:Appeared()
  autocmd CmdlineEnter : let s:begun = reltime()
  autocmd CmdlineLeave : call s:Typed(getcmdline())
augroup END

let &cpo = s:cpo
