vim9script
# The changes that agents propose. One at a time is on the screen, the others are pending.
# Pollux computes the hunks and carries out the decisions; this file handles buffers and
# windows.
#
# A view never takes the focus, so that keys still reach the terminal that the user types
# in. The proposal's buffer is modified from the start: `:q` complains, `:w`, `:wq` and
# `:x` accept, and if the buffer is closed without being written, the change is rejected.
#
# A change can be decided on once it has been in view for a while without a key press,
# because a key may have been meant for another change. After that it stays ready while
# it is in view.

import autoload 'pollux.vim' as options
import autoload 'pollux/client.vim'
import autoload 'pollux/colors.vim'
import autoload 'pollux/context.vim'

const SUCCESSOR_TIMEOUT = 2000 # ms that a view waits for the proposal that replaces it
const EDIT_DELAY = 200 # ms without typing, after which the text is sent
const MIN_COLUMNS = 100 # for two texts side by side
# The delay consists of several timers: if Vim was busy, it reads the keys that were
# pressed meanwhile before the next timer.
const SETTLE_PARTS = 5
const BOM = "\uFEFF"
# None starts with <C-c>, with which many users leave Insert mode.
const KEYS = [
  [']c', 'next-hunk'],
  ['[c', 'previous-hunk'],
  ['do', 'undo-hunk'],
  ['dp', 'redo-hunk'],
  ['ZZ', 'accept'],
]

var diffs: list<dict<any>> = [] # the oldest first
var views: dict<dict<any>> = {} # diffs by buffer, also those of a companion that has ended
var shown: dict<any> = {} # the one on the screen
var superseded: dict<any> = {} # a view that waits for the proposal that replaces it
var ended: list<dict<any>> = [] # decided, but still on the screen
var entered = win_getid() # the window that the user entered last
var typed = '' # the command line that is being executed
var begun = reltime() # when the user started to type it
var settle = 500 # ms until a change can be decided on
var following = false # whether keys are followed

def Loaded(buf: number): bool
  return buf > 0 && bufloaded(buf)
enddef

# Returns a text as a buffer's lines, and the settings with which the buffer returns it
# byte for byte.
def LinesOf(whole: string): list<any>
  var text = whole
  var form = {bom: stridx(text, BOM) == 0, dos: false, eol: false, blank: false}
  if form.bom
    text = text[1 :]
  endif
  var lf = count(text, "\n")
  form.dos = lf > 0 && lf == count(text, "\r\n")
  if form.dos
    text = substitute(text, "\r\n", "\n", 'g')
  endif
  form.eol = text =~ '\n$'
  if form.eol
    text = strpart(text, 0, len(text) - 1)
  endif
  form.blank = text == '' && form.eol
  return [split(text, "\n", true), form]
enddef

def Fill(buf: number, text: string): dict<any>
  var [lines, form] = LinesOf(text)
  if empty(lines)
    lines = ['']
  endif
  setbufline(buf, 1, lines)
  deletebufline(buf, len(lines) + 1, '$')
  setbufvar(buf, '&fileformat', form.dos ? 'dos' : 'unix')
  setbufvar(buf, '&fixendofline', 0)
  setbufvar(buf, '&endofline', form.eol)
  return form
enddef

# Returns the text of a view as it should be on disk.
def TextOf(d: dict<any>): string
  if !Loaded(d.buf)
    return d.text
  endif
  var lines = getbufline(d.buf, 1, '$')
  if lines == [''] && !d.form.blank
    return ''
  endif
  var nl = getbufvar(d.buf, '&fileformat') == 'dos' ? "\r\n" : "\n"
  return (d.form.bom ? BOM : '') .. join(lines, nl) .. (getbufvar(d.buf, '&endofline') ? nl : '')
enddef

def Find(id: string): dict<any>
  return diffs->copy()->filter((_, d) => d.diff.id == id)->get(0, {})
enddef

# Returns the diff that a buffer shows, or {}.
def ByBuffer(buf: number): dict<any>
  var d = get(views, string(buf), {})
  return get(d, 'ended', true) ? {} : d
enddef

# Returns the diff that a command applies to: the current buffer's, otherwise the one
# shown, otherwise the oldest.
def Current(): dict<any>
  return ByBuffer(bufnr()) ?? shown ?? get(diffs, 0, {})
enddef

# Returns the pending diffs, the oldest first.
export def Waiting(): list<dict<any>>
  return copy(diffs)
enddef

export def Name(d: dict<any>): string
  return fnamemodify(d.diff.path, ':~:.')
enddef

# Returns the name of the agent that proposed a diff.
export def Agent(d: dict<any>): string
  return get(d.diff, 'agent', '') ?? get(d.diff, 'client', '') ?? 'the agent'
enddef

# Returns the path of the diff on the screen, or an empty string.
export def Shown(): string
  var d = Current()
  return get(d, 'buf', 0) > 0 ? d.diff.path : ''
enddef

# Returns the path of the current diff if it can be decided on, otherwise an empty string.
export def Ready(): string
  var d = Current()
  return get(d, 'settled', false) ? d.diff.path : ''
enddef

# Returns the milliseconds until a change can be decided on; tests set them.
export def Settle(ms = 0): number
  settle = ms > 0 ? ms : settle
  return settle
enddef

# Returns the buffer of the current proposal, or 0.
export def Buffer(): number
  return get(Current(), 'buf', 0)
enddef

def Target(path: string): number
  return get(context.Buffers(path), 0, 0)
enddef

def Scratch(d: dict<any>, what: string, buftype: string, text: string): number
  var uri = printf('pollux://%s/%s/%s', d.diff.id, what, fnamemodify(d.diff.path, ':t'))
  var buf = bufadd(uri)
  views[buf] = d
  for [name, value] in items({buftype: buftype, bufhidden: 'wipe', swapfile: 0, buflisted: 0, undolevels: -1})
    setbufvar(buf, '&' .. name, value)
  endfor
  silent noautocmd bufload(buf)
  var form = Fill(buf, text)
  setbufvar(buf, '&undolevels', -123456) # the global value
  if what == 'proposed'
    extend(d, {form: form, uri: uri})
  endif
  var target = Target(d.diff.path)
  if target > 0
    for name in ['tabstop', 'shiftwidth', 'softtabstop', 'expandtab', 'autoindent']
      setbufvar(buf, '&' .. name, getbufvar(target, '&' .. name))
    endfor
  endif
  return buf
enddef

# Sets the syntax. Not 'filetype': its plugins expect real files.
def Highlight(d: dict<any>, win: number, buf: number)
  var target = Target(d.diff.path)
  var filetype = target > 0 ? getbufvar(target, '&filetype') : ''
  if filetype == ''
    var ignore = &eventignore
    try
      set eventignore=FileType,Syntax
      win_execute(win, 'silent! doautocmd <nomodeline> filetypedetect BufRead ' .. fnameescape(d.diff.path))
      filetype = getbufvar(buf, '&filetype')
      setbufvar(buf, '&filetype', '')
    finally
      &eventignore = ignore
    endtry
  endif
  if filetype != ''
    setbufvar(buf, '&syntax', filetype)
  endif
enddef

# Returns the window next to which a diff opens: the one with the file, otherwise the last
# one with a file, otherwise the first that is not a terminal, otherwise the current one.
def Beside(path: string): number
  var best = win_getid()
  var rank = 0
  var last = win_getid(winnr('#'))
  var target = Target(path)
  for w in getwininfo()->filter((_, w) => w.tabnr == tabpagenr() && !w.terminal && win_gettype(w.winid) !~ 'popup')
    var r = 1
    if w.bufnr == target
      r = 4
    elseif getbufvar(w.bufnr, '&buftype') == ''
      r = w.winid == last ? 3 : 2
    endif
    if r > rank
      best = w.winid
      rank = r
    endif
  endfor
  return best
enddef

def Windows(): list<number>
  return gettabinfo(tabpagenr())[0].windows
enddef

def Split(win: number, how: string, buf: number): number
  var before = Windows()
  win_execute(win, printf('noautocmd keepalt keepjumps %s split', how))
  var new = Windows()->filter((_, w) => index(before, w) < 0)
  if empty(new)
    throw 'there is no room for another window'
  endif
  for name in ['winfixheight', 'winfixwidth', 'previewwindow']
    setwinvar(new[0], '&' .. name, 0)
  endfor
  silent! setwinvar(new[0], '&winfixbuf', 0)
  win_execute(new[0], printf('silent keepalt keepjumps buffer! %d', buf))
  return new[0]
enddef

# Shows a text below a window. A narrow window cuts the tail at its start.
def Caption(win: number, head: string, tail = '')
  var text = head .. tail == '' ? '' : printf(' %s%%<%s', substitute(head, '%', '%%', 'g'), substitute(tail, '%', '%%', 'g'))
  setwinvar(win, '&statusline', text)
enddef

# Says what is special about a diff, in one message: after two, Vim asks for Enter.
def Remark(d: dict<any>)
  var remarks: list<string> = []
  if d.dirty > 0
    add(remarks, 'has unsaved changes: they are kept')
  endif
  if has_key(d.diff, 'readOnly')
    add(remarks, 'is read-only: ' .. d.diff.readOnly)
  endif
  if !empty(remarks)
    client.Say(Name(d) .. ' ' .. join(remarks, '; it '), d.dirty > 0 ? 'warning' : 'info')
  endif
enddef

# Sets the title below the proposal. It always has the keys. In a narrow window the name of
# the agent is missing, and the path has no start.
def CaptionOf(d: dict<any>)
  var win = Window(d)
  if win == 0
    return
  endif
  var who = Agent(d) .. ' proposes: '
  var how = ' (:w accepts, :q! rejects)'
  if d.lost
    [who, how] = ['', ': its companion has ended; :w FILE saves the text']
  elseif d.diff.state == 'accepted'
    [who, how] = ['', ': accepted; waiting for the agent to write the file']
  elseif d.diff.state == 'outside'
    [who, how] = ['changed outside Pollux: ', ' (:w saves this text, :q! keeps the file)']
  elseif d.diff.state == 'orphaned'
    [who, how] = [Agent(d) .. ' proposed: ', ' (agent has ended; :w saves, :q! discards)']
  elseif has_key(d.diff, 'readOnly')
    how = ' (read-only; :w accepts, :q! rejects)'
  endif
  if !d.lost && d.diff.state != 'accepted' && !d.settled
    how = ' (look at it, then decide)'
  endif
  var path = Name(d)
  var room = winwidth(win) - 1 - len(who) - len(how)
  Caption(win, room < min([len(path), 20]) ? '' : who, path .. how)
enddef

def InView(d: dict<any>): bool
  return d.buf > 0 && bufwinid(d.buf) > 0
enddef

# Turns the autocommands for keys on or off. They are on only while needed: Vim loses a
# Ctrl-C, and the mapping that it starts, if it is typed while a script runs.
def FollowKeys(on: bool)
  following = on
  autocmd! pollux_keys
  if !on
    return
  endif
  augroup pollux_keys
    if exists('##KeyInputPre')
      autocmd KeyInputPre * Pressed()
    endif
    # Without KeyInputPre: the events that most keys trigger.
    autocmd CursorMoved,CursorMovedI,InsertEnter,InsertCharPre,TextChanged,TextChangedI pollux://* Pressed()
    autocmd CmdlineEnter,CmdlineChanged,ModeChanged * Pressed()
  augroup END
enddef

# Starts the delay after which d can be decided on.
def Unsettle(d: dict<any>)
  var was = d.settled
  d.settled = false
  d.delays += 1
  if was
    CaptionOf(d)
  endif
  if !following
    FollowKeys(true)
  endif
  Rest(d, d.delays, 1)
enddef

def Rest(d: dict<any>, delays: number, part: number)
  timer_start(settle / SETTLE_PARTS, (_) => {
    if d.delays != delays || !InView(d)
      return
    endif
    if part < SETTLE_PARTS
      Rest(d, delays, part + 1)
      return
    endif
    FollowKeys(false)
    d.settled = true
    d.since = reltime()
    CaptionOf(d)
    if exists('#User#PolluxDiffReady') # Event() would redraw over a message
      doautocmd <nomodeline> User PolluxDiffReady
    endif
  })
enddef

# Reports whether d can be decided on. A command counts from when the user started to
# type it.
def CanDecide(d: dict<any>): bool
  return d.lost || d.diff.state != 'accepted' && d.settled
    && (typed == '' || reltimefloat(reltime(d.since, begun)) >= 0)
enddef

# Tells the user why the attempt decided nothing.
def Refuse(d: dict<any>)
  if d.diff.state == 'accepted'
    client.Say(Name(d) .. ' is accepted; waiting for the agent to write the file', 'warning')
    return
  endif
  Unsettle(d)
  client.Say('This change has just appeared. Look at it, then decide.', 'warning')
enddef

# Handles a key press in a buffer.
export def Pressed()
  var d = ByBuffer(bufnr())
  if !empty(d) && d.buf > 0 && !d.settled && !d.hiding
    Unsettle(d)
  endif
enddef

# Highlights the changes in the window of an inline view.
def Draw(d: dict<any>)
  if !d.inline || !Loaded(d.buf)
    return
  endif
  if empty(prop_type_get('PolluxAdd'))
    prop_type_add('PolluxAdd', {highlight: 'PolluxAdd', combine: true})
    prop_type_add('PolluxDelete', {highlight: 'PolluxDelete'})
    sign_define('PolluxAdd', {text: '+', texthl: 'PolluxAdd'})
  endif
  var tick = getbufvar(d.buf, 'changedtick')
  client.Request('diff/hunks', {id: d.diff.id, content: TextOf(d)}, (error, result) => {
    if error != '' || !Loaded(d.buf) || getbufvar(d.buf, 'changedtick') != tick
      return
    endif
    sign_unplace('pollux', {buffer: d.buf})
    for type in ['PolluxAdd', 'PolluxDelete']
      prop_remove({type: type, bufnr: d.buf, all: true})
    endfor
    var last = getbufinfo(d.buf)[0].linecount
    for h in result.hunks
      for n in range(h.line, min([h.line + h.lines - 1, last]))
        prop_add(n, 1, {type: 'PolluxAdd', bufnr: d.buf, length: len(getbufline(d.buf, n)[0])})
        sign_place(0, 'pollux', 'PolluxAdd', d.buf, {lnum: n})
      endfor
      # Removed lines are below the line before: above a line, they would get its sign. Those
      # of the first line are below the added ones.
      var line = h.line > 1 ? h.line - 1 : min([h.lines, last])
      for text in has('patch-9.0.0121') ? h.removed : [] # virtual text
        prop_add(max([1, line]), 0, {type: 'PolluxDelete', bufnr: d.buf,
          text: '- ' .. substitute(substitute(text, "\t", '    ', 'g'), "\r", '', 'g') .. ' ',
          text_align: line > 0 ? 'below' : 'above'})
      endfor
    endfor
  })
enddef

export def Edited(buf: number)
  var d = ByBuffer(buf)
  if empty(d)
    return
  endif
  timer_stop(d.pause)
  d.pause = timer_start(EDIT_DELAY, (_) => {
    if !d.ended && d.diff.state != 'accepted'
      client.Notify('diff/edit', {id: d.diff.id, content: TextOf(d)})
      Draw(d)
    endif
  })
enddef

def Forget(d: dict<any>)
  d.ended = true
  filter(diffs, (_, other) => other isnot d)
enddef

# Calls F, which opens or closes windows of d, so that only the neighbouring window changes
# its size. 'equalalways' would resize the terminal too, and wrap its text again.
def KeepingSizes(F: func(dict<any>), d: dict<any>)
  var base = empty(getwininfo(d.base)) ? Beside(d.diff.path) : d.base
  var fixed: list<list<any>> = []
  for win in Windows()
    if win != base && index(d.wins, win) < 0
      add(fixed, [win, getwinvar(win, '&winfixwidth'), getwinvar(win, '&winfixheight')])
      setwinvar(win, '&winfixwidth', 1)
      setwinvar(win, '&winfixheight', 1)
    endif
  endfor
  try
    F(d)
  finally
    for [win, width, height] in fixed
      if !empty(getwininfo(win))
        setwinvar(win, '&winfixwidth', width)
        setwinvar(win, '&winfixheight', height)
      endif
    endfor
  endtry
enddef

# Removes a view from the screen and restores the windows.
def Hide(d: dict<any>)
  if shown is d
    shown = {}
    FollowKeys(false)
  endif
  timer_stop(d.pause)
  d.text = TextOf(d)
  d.settled = false
  d.delays += 1
  d.hiding = true
  if bufnr() == d.buf && mode() =~ '^[iR]'
    # Keys that are still queued were meant for the proposal.
    stopinsert
    while getchar(1) != 0
      getchar(0)
    endwhile
  endif
  if Loaded(d.buf)
    setbufvar(d.buf, '&modified', 0)
  endif
  if win_id2win(d.dirty) > 0
    win_execute(d.dirty, 'diffoff')
  endif
  for win in d.wins
    if !empty(getwininfo(win))
      try
        win_execute(win, 'close!')
      catch /E444/
        Caption(win, '')
        win_execute(win, 'diffoff | enew!') # the last window gets an empty buffer
      endtry
    endif
  endfor
  for buf in [d.buf, d.left]
    if buf > 0 && bufexists(buf)
      execute 'silent! bwipeout!' buf
    endif
  endfor
  if values(views)->filter((_, o) => o isnot d && !o.inline && !empty(o.wins))->empty()
    colors.Return()
  endif
  if d.tab == tabpagenr() && winnr('$') == d.count
    execute d.sizes
  endif
  extend(d, {buf: 0, left: 0, wins: [], dirty: 0, hiding: false})
enddef

def Finish(d: dict<any>)
  Forget(d)
  if d.deciding
    return # Decide() calls Finish() again; `:wq` needs the window until then
  endif
  timer_start(0, (_) => Finished(d))
enddef

def Finished(d: dict<any>)
  var inside = d.buf > 0 && bufnr() == d.buf
  if !inside && Busy()
    add(ended, d)
    return
  endif
  try
    KeepingSizes(Hide, d)
  catch
    client.Note(v:exception .. ' ' .. v:throwpoint)
  endtry
  ShowNext()
  client.Event('DiffClosed')
enddef

# Keeps a superseded view until the new proposal for its file arrives: the user may be
# typing in it.
def Await(d: dict<any>)
  Forget(d)
  superseded = d
  timer_start(SUCCESSOR_TIMEOUT, (_) => {
    if superseded is d
      superseded = {}
      Finish(d)
    endif
  })
enddef

# Shows the new proposal in place of the old one, and keeps the cursor in it.
def Replace(old: dict<any>, d: dict<any>)
  superseded = {}
  if bufnr() != old.buf
    Finish(old)
    return
  endif
  shown = {}
  if Try(d)
    win_gotoid(Window(d))
    extend(d, {count: old.count, sizes: old.sizes})
  endif
  Finish(old)
enddef

# Reports whether no window can be opened now: in the command-line window none can, and
# opening one would end Visual mode or an insert in a block. If so, shows the diff later.
def Busy(): bool
  var event = ['ModeChanged', '*:[nt]*']
  if getcmdwintype() != ''
    event = ['CmdwinLeave', '*']
  elseif mode() !~ "^[vVsSiR\<C-v>\<C-s>]"
    return false
  endif
  autocmd_add([{group: 'pollux_diff', event: event[0], pattern: event[1], once: true, replace: true,
    cmd: 'call pollux#diff#ShowLater()'}])
  return true
enddef

export def ShowLater()
  timer_start(0, (_) => Later())
enddef

def Later()
  var gone = ended
  ended = []
  for d in gone
    Finished(d)
  endfor
  ShowNext()
enddef

def ShowNext()
  if empty(shown) && !empty(diffs) && !Busy()
    Try(diffs[0])
  endif
enddef

# Cleans up after the user has closed a view.
def Tidy(d: dict<any>)
  if d.dismissed
    d.dismissed = false
    try
      KeepingSizes(Hide, d)
    catch
      client.Note(v:exception .. ' ' .. v:throwpoint)
    endtry
  endif
enddef

# Shows a diff and reports whether that worked. If not, the diff stays pending and the
# user gets a message.
def Try(d: dict<any>): bool
  Tidy(d)
  try
    KeepingSizes(Show, d)
    return true
  catch
    var error = substitute(v:exception, '^Vim\%((\a\+)\)\?:\?', '', '')
    KeepingSizes(Hide, d)
    client.Say(printf('%s is pending but cannot be shown (%s): :Pollux next', Name(d), error), 'warning')
    return false
  endtry
enddef

def KeepEdits(d: dict<any>)
  var text = TextOf(d)
  if text != get(d.diff, 'content', d.diff.proposed)
    client.Notify('diff/edit', {id: d.diff.id, content: text}) # so that the journal has it
  endif
enddef

def Decline(d: dict<any>)
  if d.ended
    return
  endif
  KeepEdits(d)
  Finish(d)
  client.Request('diff/reject', {id: d.diff.id}, (error, _) => {
    if error != ''
      client.Note(error)
      return
    endif
    var words = {open: 'rejected', orphaned: 'discarded'}
    client.Say(get(words, d.diff.state, 'kept') .. ': ' .. fnamemodify(d.diff.path, ':t'))
  })
enddef

# Handles a view that the user has closed: that rejects, unless it was too early to
# decide.
def Closed(d: dict<any>, decides: bool)
  if d.ended
    return
  endif
  if decides
    Decline(d)
    return
  endif
  KeepEdits(d)
  if shown is d
    shown = {}
  endif
  d.dismissed = true
  timer_start(0, (_) => Tidy(d))
  if d.diff.state != 'accepted'
    client.Say(Name(d) .. ' had just appeared, so it is still pending: :Pollux next shows it', 'warning')
  endif
enddef

# Accepts d and reports whether that succeeded.
def Decide(d: dict<any>, overwrite = ''): bool
  if d.ended
    return true
  endif
  if d.lost
    client.Say('the companion of this change has ended: `:w FILE` saves the text, `pollux journal` has it too', 'error')
    return false
  endif
  if !CanDecide(d)
    Refuse(d)
    return false
  endif
  var agent_waits = d.diff.state == 'open'
  var params: dict<any> = {id: d.diff.id, content: TextOf(d)}
  if overwrite != ''
    params.overwrite = overwrite
  endif
  d.deciding = true
  var [error, result] = client.Call(agent_waits ? 'diff/accept' : 'diff/save', params)
  d.deciding = false
  if error != ''
    if d.ended
      Finish(d)
    endif
    client.Say(error, 'error')
    return d.ended
  endif
  if result.status == 'accepted'
    if Loaded(d.buf)
      setbufvar(d.buf, '&modified', 0)
    endif
    client.Say((agent_waits ? 'accepted: ' : 'saved: ') .. fnamemodify(d.diff.path, ':t'))
    Finish(d)
    return true
  endif
  if result.status != 'conflict'
    client.Say(get(result, 'message', result.status), 'error')
    return false
  endif
  var answer = 0
  var asked = reltime()
  while true # a key that was meant for the text must not overwrite
    asked = reltime()
    answer = confirm(result.message, "&Overwrite it\n&Compare with it\n&Not now", 3, 'Warning')
    if answer != 1 || reltimefloat(reltime(asked)) * 1000 >= settle
      break
    endif
  endwhile
  if answer == 1
    return Decide(d, result.version)
  elseif answer == 2 && Loaded(d.left)
    setbufvar(d.left, '&modifiable', 1)
    Fill(d.left, get(result, 'disk', ''))
    setbufvar(d.left, '&modifiable', 0)
    client.Say('the left side now shows the file on disk')
  endif
  return false
enddef

# Reports whether the user wants this write. A command typed in the proposal says so.
# Otherwise it asks: `:wa` in another window, 'autowrite' and plugins that save
# automatically write too.
def Asked(d: dict<any>): bool
  if winbufnr(entered) != d.buf
    return false
  endif
  if typed =~ '^[[:space:]:%]*[wux]\a*' && typed !~ '^[[:space:]:%]*[wx]q\?a\%[ll]\s*\%([!|].*\)\?$'
    return true
  endif
  return confirm(printf('Accept the change to %s?', Name(d)), "&Accept\n&Not now", 2) == 1
enddef

# Handles BufWriteCmd: `:w` in the proposal.
export def Written(buf: number, name: string)
  var d = ByBuffer(buf)
  if empty(d)
    setlocal nomodified
    return
  endif
  if name != d.uri # a copy
    if filereadable(name) && !v:cmdbang
      client.Say(name .. ' exists: add ! to overwrite it', 'error')
      return
    endif
    writefile(split(TextOf(d), "\n", true), name, 'b')
    if bufname(d.buf) != d.uri
      execute 'silent keepalt file' fnameescape(d.uri) # after :saveas
    endif
    client.Say('saved a copy to ' .. name)
    return
  endif
  if !d.ended && !CanDecide(d)
    Refuse(d)
    setbufvar(d.buf, '&modified', 1)
  elseif !Asked(d) || !Decide(d)
    setbufvar(d.buf, '&modified', 1)
  endif
enddef

# Handles the loss of the left side: after `:only`, or with another buffer in its window,
# the proposal stays alone; closing its window rejects.
def Alone(d: dict<any>, decides: bool)
  if d.ended || !Loaded(d.buf)
    return
  endif
  var right = d.wins[1]
  if empty(getwininfo(d.wins[0])) && !(winbufnr(right) == d.buf && winnr('$') == 1)
    Closed(d, decides)
    return
  endif
  for win in d.wins
    win_execute(win, 'diffoff')
  endfor
  extend(d, {wins: [right], inline: true})
  colors.Return()
  setwinvar(right, '&signcolumn', 'yes')
  Draw(d)
enddef

# Handles BufUnload, the last event at which the buffer has its text.
export def Unloaded(buf: number)
  var d = ByBuffer(buf)
  if !empty(d)
    d.text = TextOf(d)
  endif
enddef

export def Wiped(buf: number)
  var d = ByBuffer(buf)
  remove(views, string(buf))
  if empty(d) || d.hiding
    return
  endif
  var decides = CanDecide(d)
  if d.left == buf && Loaded(d.buf)
    d.left = 0
    timer_start(0, (_) => Alone(d, decides))
    return
  endif
  if d.buf == buf
    d.buf = 0
  endif
  Closed(d, decides)
enddef

def Watch(d: dict<any>)
  var On = (events: any, buf: number, call: string) =>
    ({group: 'pollux_diff', event: events, bufnr: buf, cmd: 'call pollux#diff#' .. call, nested: call =~ '^Written'})
  autocmd_add([
    On('BufWriteCmd', d.buf, printf('Written(%d, expand("<afile>"))', d.buf)),
    On(['TextChanged', 'TextChangedI', 'InsertLeave'], d.buf, printf('Edited(%d)', d.buf)),
    On('BufUnload', d.buf, printf('Unloaded(%d)', d.buf)),
  ] + [d.buf, d.left]->filter((_, buf) => buf > 0)->mapnew((_, buf) => On('BufWipeout', buf, printf('Wiped(%d)', buf))))
enddef

# On the left side, the keys for hunks are those of diff mode.
def SetKeys(win: number, left = false)
  if options.Option('keys')
    for [lhs, name] in left ? KEYS[-1 :] : KEYS
      win_execute(win, printf('nnoremap <buffer> <silent> <nowait> %s <Cmd>Pollux %s<CR>', lhs, name))
    endfor
  endif
enddef

def Show(d: dict<any>)
  var was = entered
  var base = Beside(d.diff.path)
  d.base = base
  var info = getwininfo(base)[0]
  extend(d, {tab: tabpagenr(), count: winnr('$'), sizes: winrestcmd()})
  d.buf = Scratch(d, 'proposed', 'acwrite', d.text)
  var layout = options.Option('layout')
  d.inline = layout == 'inline' || layout == 'auto' && info.width < MIN_COLUMNS
  var first = 0
  if d.inline
    first = Split(base, 'aboveleft', d.buf)
    d.wins = [first]
  else
    d.left = Scratch(d, 'original', 'nofile', d.diff.original)
    setbufvar(d.left, '&modifiable', 0)
    first = Split(base, 'aboveleft', d.left)
    d.wins = [first]
    add(d.wins, Split(first, 'rightbelow vertical', d.buf))
  endif
  var target = Target(d.diff.path)
  if target > 0 && getbufvar(target, '&modified')
    d.dirty = Split(d.wins[-1], 'rightbelow vertical', target)
    add(d.wins, d.dirty)
  endif
  if info.height > 12 && !info.terminal
    win_execute(first, printf('resize %d', info.height - max([4, info.height / 4]) - 1))
  endif
  if d.inline
    setwinvar(first, '&signcolumn', 'yes') # for the plus signs
  else
    for win in d.wins
      win_execute(win, 'diffthis')
    endfor
    colors.Lend()
  endif
  setbufvar(d.buf, '&modified', 1)
  if has_key(d.diff, 'readOnly')
    setbufvar(d.buf, '&modifiable', 0)
  endif
  entered = was
  shown = d
  Watch(d)
  var right = d.inline ? d.wins[0] : d.wins[1]
  Highlight(d, right, d.buf)
  SetKeys(right)
  CaptionOf(d)
  Unsettle(d)
  if d.left > 0
    Highlight(d, d.wins[0], d.left)
    SetKeys(d.wins[0], true)
    var what = d.diff.state == 'outside' ? 'before: ' : d.diff.exists ? 'on disk: ' : ''
    Caption(d.wins[0], what ?? 'new file', what == '' ? '' : Name(d))
  endif
  if d.dirty > 0
    Caption(d.dirty, 'your unsaved changes (they are kept)')
  endif
  Remark(d)
  setbufvar(d.buf, '&modified', 1)
  Draw(d)
  client.Request('diff/hunks', {id: d.diff.id, content: d.text}, (error, result) => {
    if error == '' && !empty(result.hunks) && winbufnr(right) == d.buf
      win_execute(right, printf('call cursor(%d, 1) | normal! zz', max([1, result.hunks[0].line])))
    endif
  })
enddef

# Handles diff/open: shows a diff, or keeps it pending.
export def Open(diff: dict<any>)
  var old = Find(diff.id)
  if !empty(old)
    if diff.state == 'outside'
      Go(old)
    endif
    return
  endif
  var d: dict<any> = {
    diff: diff, text: get(diff, 'content', diff.proposed), ended: false, lost: false, deciding: false, hiding: false,
    base: 0, buf: 0, left: 0, dirty: 0, wins: [], pause: 0, inline: false, form: {},
    settled: false, since: [], delays: 0, dismissed: false,
  }
  add(diffs, d)
  if get(get(superseded, 'diff', {}), 'path', '') == diff.path
    Replace(superseded, d)
  elseif diff.state == 'outside' # the user has chosen it
    Go(d)
  else
    ShowNext()
  endif
  client.Event('DiffOpened')
enddef

# Handles diff/close: the diff has been decided. Returns the text as the user left it.
export def Close(id: string, reason: string): dict<any>
  var d = Find(id)
  if empty(d)
    return {}
  endif
  var text = TextOf(d)
  client.Note(Name(d) .. ': ' .. (reason == 'unwritten' ? 'accepted, but not written' : reason))
  if Loaded(d.buf)
    setbufvar(d.buf, '&modified', 0)
  endif
  if reason == 'superseded' && d.buf > 0
    Await(d)
  else
    Finish(d)
  endif
  return {content: text}
enddef

# Handles diff/changed: another client edited the text, or the state changed.
export def Changed(p: dict<any>)
  var d = Find(p.id)
  if empty(d)
    return
  endif
  if has_key(p, 'state')
    d.diff.state = p.state
    CaptionOf(d)
  endif
  if has_key(p, 'content') && p.content != TextOf(d)
    d.text = p.content
    if Loaded(d.buf)
      d.form = Fill(d.buf, p.content)
      setbufvar(d.buf, '&modified', 1)
      Unsettle(d)
      Draw(d)
    endif
  endif
enddef

# Handles the end of the companion: the shown diff stays, and its text can be saved.
export def Lost()
  for d in diffs
    d.lost = d.buf > 0
    d.ended = !d.lost
    if d.lost
      CaptionOf(d)
      client.Say(Name(d) .. ': the companion has ended; your text is kept here', 'warning')
    endif
  endfor
  diffs = []
  shown = {}
enddef

# Handles file/changed: another program has written a file.
export def Reload(path: string)
  for buf in context.Buffers(path)
    if getbufvar(buf, '&modified')
      client.Say(fnamemodify(path, ':~:.')
        .. ' was written; your unsaved changes are kept (:e! reads the file)', 'warning')
    elseif filereadable(getbufinfo(buf)[0].name)
      setbufvar(buf, '&autoread', 1)
      execute 'silent! checktime' buf
      setbufvar(buf, '&autoread', -1) # the global value
      redraw
    endif
  endfor
  context.Soon()
enddef

def None()
  client.Say('no pending changes')
enddef

# Returns the diff that a command decides on. One that is not in view is shown instead.
def ToDecide(): dict<any>
  var d = Current()
  if empty(d)
    None()
    return {}
  endif
  if !InView(d)
    Go(d)
    client.Say('Look at it first, then decide.', 'warning')
    return {}
  endif
  return d
enddef

export def Accept()
  var d = ToDecide()
  if !empty(d)
    Decide(d)
  endif
enddef

export def Reject()
  var d = ToDecide()
  if empty(d)
    return
  endif
  if CanDecide(d)
    Decline(d)
  else
    Refuse(d)
  endif
enddef

# Goes to the diff on the screen; from there, to the next pending one.
export def Next()
  var d = Current()
  if empty(d)
    None()
  elseif !empty(ByBuffer(bufnr())) && !empty(diffs)
    Go(diffs[(mapnew(diffs, (_, other) => other.diff.id)->index(d.diff.id) + 1) % len(diffs)])
  else
    Go(d)
  endif
enddef

# Shows a diff in place of the one on the screen, and goes to it.
export def Go(d: dict<any>)
  Tidy(d)
  if d.buf == 0
    var other = shown
    if !empty(other)
      client.Notify('diff/edit', {id: other.diff.id, content: TextOf(other)})
      KeepingSizes(Hide, other)
    endif
    if !Try(d)
      tab split # which has room
      if !Try(d)
        return
      endif
    endif
  endif
  win_gotoid(Window(d))
  redraw # otherwise, after `C-w :` in a terminal, Vim waits for Enter
enddef

def Window(d: dict<any>): number
  var found = d.wins->copy()->filter((_, w) => winbufnr(w) == d.buf)
  return empty(found) ? 0 : found[0]
enddef

def OnScreen(): dict<any>
  var d = Current()
  if empty(d) || Window(d) == 0
    client.Say('no change on the screen')
    return {}
  endif
  return d
enddef

# Goes to the next or the previous hunk.
export def Hunk(backwards: bool)
  var d = OnScreen()
  if empty(d)
    return
  endif
  var [error, result] = client.Call('diff/hunks', {id: d.diff.id, content: TextOf(d)})
  if error != ''
    client.Say(error, 'error')
    return
  endif
  var win = Window(d)
  var here = line('.', win)
  var lines = result.hunks->mapnew((_, h) => max([1, min([h.line, line('$', win)])]))
    ->filter((_, n) => backwards ? n < here : n > here)
  if empty(lines)
    client.Say(backwards ? 'no hunk before this line' : 'no hunk after this line')
  else
    win_execute(win, printf('call cursor(%d, 1)', backwards ? lines[-1] : lines[0]))
  endif
enddef

# Restores the hunk at the cursor from the text on disk ('original') or from the proposal
# ('proposed').
export def Take(what: string)
  var d = OnScreen()
  if empty(d)
    return
  endif
  var win = Window(d)
  var was = TextOf(d)
  var [error, edit] = client.Call('diff/hunk', {id: d.diff.id, content: was, line: line('.', win), take: what})
  if error != ''
    client.Say(error)
    return
  endif
  var new: list<string> = []
  if edit.text != ''
    new = LinesOf(edit.text)[0]
  endif
  # Replace the only line of an empty buffer.
  var gone = was == '' ? 1 : edit.lines
  if was == ''
    edit.line = 1
  endif
  if !empty(new)
    appendbufline(d.buf, edit.line - 1, new)
  endif
  if gone > 0
    deletebufline(d.buf, edit.line + len(new), edit.line + len(new) + gone - 1)
  endif
  setbufvar(d.buf, '&endofline', edit.eol)
  setbufvar(d.buf, '&modified', 1)
  win_execute(win, printf('call cursor(%d, 1)', max([1, edit.line])))
  if !d.inline
    win_execute(win, 'diffupdate')
  endif
  Edited(d.buf)
enddef

def Typed(command: string)
  typed = command
  timer_start(0, (_) => {
    typed = ''
  })
enddef

def Appeared()
  if !empty(shown) && InView(shown)
    Unsettle(shown)
  endif
enddef

colors.Start()
augroup pollux_keys
augroup END
augroup pollux_diff
  autocmd!
  autocmd WinEnter * entered = win_getid()
  autocmd TabEnter * Appeared()
  autocmd CmdlineEnter : begun = reltime()
  autocmd CmdlineLeave : Typed(getcmdline())
augroup END
