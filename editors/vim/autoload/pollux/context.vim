vim9script
# Sends Pollux a snapshot of the open files, the cursor and the selection at each event.
# Pollux debounces snapshots and drops those without a difference, so this code is
# simple.

import autoload 'pollux/client.vim'

# The size of a selection in bytes; Pollux enforces the exact limit.
const MAX_SELECTION = 20000
# Leaving Visual mode and entering a terminal are two events in one tick. The selection is
# kept for this time in between. It is also kept while a command line is typed and executed:
# the command may be about the selection.
const SELECTION_DELAY = 40 # ms
const VISUAL = "^[vVsS\<C-v>\<C-s>]"

var others: dict<string> = {} # path by buffer
var focused: dict<number> = {} # when each buffer last had the focus, in ms
var active: dict<any> = {} # buf, cursor, and selected: the result of Selection(), or {}
var list_dirty = true
var push_due = false
var held = false # whether the terminal may still want a selection that has ended
var release = 0 # the timer that ends this
var last_roots: list<string> = []
var roots_due = false

# localtime() has a resolution of seconds, and reltime() has no fixed start.
const begun = localtime() * 1000
const clock = reltime()

def Now(): number
  return begun + float2nr(reltimefloat(reltime(clock)) * 1000)
enddef

def IsFile(b: dict<any>): bool
  # Without 'hidden', a buffer that is not shown is not loaded.
  return b.listed && (b.loaded || has_key(focused, b.bufnr)) && b.name != '' && getbufvar(b.bufnr, '&buftype') == ''
    && b.name !~ '^\a[[:alnum:]+.-]\+://' && filereadable(b.name)
enddef

# Returns a path without links, in one spelling.
def Resolved(path: string): string
  var real = resolve(fnamemodify(path, ':p'))
  if has('win32')
    real = tr(real, '\', '/')
  endif
  return &fileignorecase ? tolower(real) : real
enddef

# Returns the loaded buffers of the file at a path, which agents may spell in another way.
# Vim compares files as the system does, but takes a replaced file for another one until it
# reads it again.
export def Buffers(path: string): list<number>
  var real = Resolved(path)
  # bufnr() would take the path for a pattern.
  var same = [path, resolve(path)]->filter((_, name) => bufexists(name))->mapnew((_, name) => bufadd(name))
  return getbufinfo({bufloaded: 1})
    ->filter((_, b) => b.name != '' && getbufvar(b.bufnr, '&buftype') == ''
      && (index(same, b.bufnr) >= 0 || Resolved(b.name) == real))
    ->mapnew((_, b) => b.bufnr)
enddef

# Returns the workspace: the working directories of Vim and its tabs.
export def Roots(): list<string>
  var roots: list<string> = []
  for dir in [getcwd(-1)] + range(1, tabpagenr('$'))->mapnew((_, n) => getcwd(-1, n))
    if index(roots, dir) < 0 && isdirectory(dir)
      add(roots, dir)
    endif
  endfor
  return roots
enddef

# Returns the column in UTF-16 code units, from 1, after a number of bytes of a line.
export def Utf16(line: string, bytes: number): number
  var units = 1
  for c in str2list(strpart(line, 0, bytes))
    units += c > 0xFFFF ? 2 : 1
  endfor
  return units
enddef

# Returns where the part of a line between two screen columns, from 1, both included, starts
# and ends, in bytes from 0.
def Cells(line: string, left: number, right: number): list<number>
  var [first, end, column] = [-1, 0, 1]
  for char in split(line, '\zs')
    var width = strdisplaywidth(char, column - 1)
    if column > right
      break
    endif
    if first < 0 && column + width > left
      first = end
    endif
    end += len(char)
    column += width
  endfor
  return [first < 0 ? end : first, end]
enddef

# Returns the selection in Visual or Select mode: the text, and the range for Pollux. The
# range of a block is the smallest one that contains it.
def Selection(mode: string): dict<any>
  var from = getpos('v')
  var to = getpos('.')
  var [kind, exclusive] = [mode[0], &selection == 'exclusive']
  if from[1] > to[1] || from[1] == to[1] && from[2] > to[2]
    [from, to] = [to, from]
  endif
  var [left, right] = [0, 0]
  if kind == "\<C-v>" || kind == "\<C-s>"
    var First = (pos) => strdisplaywidth(strpart(getline(pos[1]), 0, pos[2] - 1)) + 1
    left = min([First(from), First(to)])
    right = max([virtcol('v'), virtcol('.')]) - (exclusive ? 1 : 0)
    if getcurpos()[4] >= v:maxcol
      right = v:maxcol
    endif
  endif
  # Returns where the selection starts and ends in a line, in bytes from 0. If the line end
  # is selected too, the end is after it.
  def Part(nr: number, text: string): list<number>
    if left > 0
      return Cells(text, left, right)
    endif
    var [first, end] = [0, len(text)]
    if kind == 'v' || kind == 's'
      if nr == from[1]
        first = from[2] - 1
      endif
      if nr == to[1]
        if exclusive
          end = to[2] - 1
        elseif to[2] > len(text) && nr < line('$')
          end += 1
        else
          end = to[2] - 1 + len(matchstr(strpart(text, to[2] - 1), '^.'))
        endif
      endif
    endif
    return [first, end]
  enddef
  var top = getline(from[1])
  var bottom = getline(to[1])
  var end = Part(to[1], bottom)[1]
  var where = {
    start: {line: from[1], character: Utf16(top, Part(from[1], top)[0])},
    end: end > len(bottom) ? {line: to[1] + 1, character: 1} : {line: to[1], character: Utf16(bottom, end)},
  }
  if left > 0 && right != v:maxcol && exists('*getregion') && to[1] - from[1] < 1000
    return {selection: call('getregion', [getpos('v'), getpos('.'), {type: "\<C-v>"}])->join("\n"), range: where}
  endif
  var lines: list<string> = []
  var size = 0
  for nr in range(from[1], to[1])
    var line = getline(nr)
    var part = Part(nr, line)
    line = strpart(line .. "\n", part[0], part[1] - part[0])
    add(lines, line)
    size += len(line) + 1
    if size > MAX_SELECTION
      break
    endif
  endfor
  return {selection: join(lines, "\n"), range: where}
enddef

def Rebuild()
  others = {}
  for b in getbufinfo({buflisted: 1})
    if IsFile(b)
      others[b.bufnr] = fnamemodify(b.name, ':p')
    endif
  endfor
  filter(focused, (buf, _) => has_key(others, buf))
  list_dirty = false
enddef

# Records the cursor and selection of the current window. In a terminal or another buffer
# that is not a file it keeps the last ones: the user is asking the agent about that file.
def Sample()
  if list_dirty
    Rebuild()
  endif
  if !empty(active) && !has_key(others, active.buf)
    active = {}
  endif
  var buf = string(bufnr())
  var mode = mode()
  if !has_key(others, buf) || mode[0] == 'c' || mode[0] == 't'
    return
  endif
  var selected: dict<any> = {}
  if mode =~ VISUAL
    selected = Selection(mode)
  elseif held && get(active, 'buf', '') == buf
    selected = active.selected
  endif
  focused[buf] = Now()
  active = {buf: buf, cursor: {line: line('.'), character: Utf16(getline('.'), col('.') - 1)}, selected: selected}
enddef

def Push(_: number)
  push_due = false
  if !client.Ready()
    return
  endif
  Sample()
  var files: list<dict<any>> = []
  for [buf, path] in items(others)
    var file: dict<any> = {path: path, focused: get(focused, buf, 0)}
    if get(active, 'buf', '') == buf
      extend(file, {active: true, cursor: active.cursor})->extend(active.selected)
    endif
    add(files, file)
  endfor
  var update: dict<any> = {files: files}
  if roots_due
    roots_due = false
    var roots = Roots()
    if roots != last_roots
      last_roots = roots
      update.roots = roots
    endif
  endif
  client.Notify('context/update', update)
enddef

export def Soon()
  if !push_due
    push_due = true
    timer_start(0, Push)
  endif
enddef

export def Moved()
  if !held
    Sample()
  endif
  Soon()
enddef

export def Listed()
  list_dirty = true
  Soon()
enddef

export def Saved()
  if &buftype == ''
    client.Notify('file/saved', {path: fnamemodify(expand('<afile>'), ':p')})
  endif
enddef

export def Directory()
  roots_due = true
  Soon()
enddef

export def Mode()
  var [old, new] = [v:event.old_mode, v:event.new_mode]
  if old =~ VISUAL && new !~ VISUAL || held && old =~ '^c'
    Hold()
  endif
  if new =~ '^c' && held
    timer_stop(release) # until the command line ends
  elseif new =~ VISUAL || !held
    timer_stop(release)
    held = false
    Sample()
    Soon()
  endif
enddef

# Keeps a selection that has ended until a terminal had the time to get the focus, or until
# a command line begins.
def Hold()
  held = true
  timer_stop(release)
  release = timer_start(SELECTION_DELAY, (_) => {
    held = false
    Soon()
  })
enddef

# Starts to report the context. roots is what Pollux was started with; the workspace may
# have changed since.
export def Start(roots: list<string>)
  list_dirty = true
  held = false
  last_roots = roots
  roots_due = true
  augroup pollux_context
    autocmd!
    autocmd CursorMoved,CursorMovedI,WinEnter,TabEnter,TextChanged,InsertLeave * Moved()
    autocmd BufEnter,BufReadPost,BufWritePost,BufFilePost,BufDelete,BufWipeout,BufAdd,BufHidden * Listed()
    autocmd BufWritePost * Saved()
    autocmd DirChanged,TabNew,TabClosed * Directory()
    autocmd ModeChanged * Mode()
  augroup END
  Soon()
enddef

export def Stop()
  augroup pollux_context
    autocmd!
  augroup END
enddef
