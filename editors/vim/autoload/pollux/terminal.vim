vim9script
# The agents in terminals of Vim: each has a terminal of its own.

import autoload 'pollux.vim' as options
import autoload 'pollux/client.vim'
import autoload 'pollux/context.vim'

const ENTER_DELAY = 300 # ms after a paste; an earlier Enter would become part of it
const POLL_INTERVAL = 100 # ms between two checks of the terminal's screen
const MAX_POLLS = 50 # checks before a question counts as not accepted
const SEEN = 10 # characters of a prompt that the agent must show

# Checks before an agent that was started counts as not ready, for about a minute: the user
# may have to sign in first, or to trust the folder.
var max_waits = 600

# The terminals, the last used one first: {name, buf}. The name is that of the agent, or
# empty for the one that `pollux run` chooses.
var terminals: list<dict<any>> = []

def Running(buf: number): bool
  return buf > 0 && bufexists(buf) && term_getstatus(buf) =~ 'running'
enddef

# Returns the command that starts an agent without a name.
def Chosen(): list<string>
  var cli = options.Option('cli')
  return type(cli) == v:t_string ? [cli] : cli
enddef

def DefaultName(): string
  var cli = Chosen()
  return empty(cli) ? '' : fnamemodify(cli[0], ':t')
enddef

# Returns the terminal of an agent, or {}.
def Find(name: string): dict<any>
  return get(copy(terminals)->filter((_, t) => t.name == name), 0, {})
enddef

# Returns the terminals in which agents run.
def Alive(): list<dict<any>>
  return copy(terminals)->filter((_, t) => Running(t.buf))
enddef

# Returns the last used terminal, preferably of an agent that runs; {} if there is none.
def Last(): dict<any>
  return get(Alive(), 0, get(terminals, 0, {}))
enddef

def LastName(): string
  return get(Last(), 'name', DefaultName())
enddef

def Split()
  var t = extend({position: 'botright vertical', size: 0.4}, options.Option('terminal'))
  execute t.position 'split'
  var vertical = t.position =~ 'vert'
  var size = t.size < 1 ? float2nr((vertical ? &columns : &lines) * t.size) : float2nr(t.size * 1.0)
  execute (vertical ? 'vertical resize' : 'resize') size
enddef

def Argv(name: string, args: list<string>): list<string>
  var argv = [options.Program(), 'run', '--attach']
  var cli = name == '' || name == DefaultName() ? Chosen() : [name]
  return empty(cli) ? argv : argv + ['--'] + cli + args
enddef

# Shows the terminal of an agent and goes to it. Starts the agent if it is not running.
# Reports whether the terminal is open.
export def Open(name = LastName(), args: list<string> = []): bool
  var t = Find(name)
  var buf = get(t, 'buf', 0)
  var win = buf > 0 ? bufwinid(buf) : -1
  if Running(buf) && !empty(args)
    client.Say(name .. ' is running: its arguments count when it starts', 'warning')
  endif
  if !Running(buf) && !client.Ready()
    client.Say('Pollux is not running: run :Pollux start; if that fails, see :Pollux log', 'error')
    return false
  endif
  if win > 0
    win_gotoid(win)
  else
    Split()
  endif
  if Running(buf)
    if win <= 0
      execute 'buffer' buf
    endif
  else
    buf = Start(name, args)
  endif
  filter(terminals, (_, other) => other.name != name)
  insert(terminals, {name: name, buf: buf})
  if Running(buf) && mode() != 't' && term_getstatus(buf) =~ 'normal'
    normal! i
  endif
  return buf > 0
enddef

# Starts an agent in the current window and returns the terminal's buffer.
def Start(name: string, args: list<string>): number
  var buf = term_start(Argv(name, args), {
    curwin: true, cwd: context.Roots()[0], term_name: 'pollux://agent' .. (name == '' ? '' : '/' .. name),
    term_kill: 'term', exit_cb: (_, code) => Ended(name, code), env: {COLORTERM: $COLORTERM},
  })
  setbufvar(buf, '&bufhidden', 'hide')
  setbufvar(buf, '&buflisted', 0)
  return buf
enddef

def Ended(name: string, code: number)
  if code == 0
    var gone = get(Find(name), 'buf', 0)
    timer_start(0, (_) => {
      if bufexists(gone)
        execute 'silent! bwipeout!' gone
      endif
    })
  endif
enddef

export def Toggle()
  var buf = get(Last(), 'buf', 0)
  var win = buf > 0 ? bufwinid(buf) : -1
  if !Running(buf) || win < 0
    Open()
  elseif winnr('$') == 1
    client.Say('cannot hide the terminal: it is in the only window')
  else
    win_execute(win, 'close!')
  endif
enddef

# Returns what the terminal shows.
def Screen(buf: number): string
  return range(1, term_getsize(buf)[0])->mapnew((_, n) => term_getline(buf, n))->join("\n")
enddef

# Reports whether the agent shows what it shows when its input line is empty and ready.
def Waits(buf: number, prompt: dict<any>): bool
  return Screen(buf)->stridx(prompt.ready) >= 0
enddef

# Returns how often the terminal shows the beginning or the end of a prompt, or what agents show
# in place of a long paste. Spaces do not count: agents wrap lines.
def Seen(buf: number, prompt: dict<any>): number
  var shown = Screen(buf)->substitute('\_s', '', 'g')
  var text = prompt.text->substitute('\_s', '', 'g')
  var times = 0
  for part in [strcharpart(text, 0, SEEN), strcharpart(text, max([0, strchars(text) - SEEN])), '[Past']
    times += count(shown, part)
  endfor
  return times
enddef

# Sends bytes. term_sendkeys() sends keys: it turns the Esc in a paste into CSI 27 u if
# the agent has requested that encoding.
def Put(buf: number, text: string)
  ch_sendraw(job_getchannel(term_getjob(buf)), text)
enddef

# Presses Enter once the agent shows the pasted prompt: it reads its input late while it
# starts, and a question that it asks would take Enter for the answer. before is what Seen
# returned before the paste.
def Enter(buf: number, prompt: dict<any>, before: number, polls: number)
  if !Running(buf)
    return
  elseif Seen(buf, prompt) > before
    timer_start(ENTER_DELAY, (_) => {
      if Running(buf) && Seen(buf, prompt) > before
        Put(buf, "\r")
      else
        Enter(buf, prompt, before, 0)
      endif
    })
  elseif polls > 0
    timer_start(POLL_INTERVAL, (_) => Enter(buf, prompt, before, polls - 1))
  else
    client.Say('the agent does not show your question. Look at its terminal before you press Enter: ' .. prompt.text, 'warning')
  endif
enddef

def TypeIn(buf: number, prompt: dict<any>)
  var before = Seen(buf, prompt)
  Put(buf, prompt.paste)
  if prompt.submit
    Enter(buf, prompt, before, MAX_POLLS)
  endif
enddef

# Returns how often an agent that was started is checked; tests set it.
export def MaxWaits(times = 0): number
  max_waits = times > 0 ? times : max_waits
  return max_waits
enddef

# Types a prompt when the agent, which has just been started, is ready.
def TypeWhenReady(buf: number, prompt: dict<any>, waits = max_waits)
  if !Running(buf)
    client.Say('the agent has ended; your question was: ' .. prompt.text, 'warning')
  elseif Waits(buf, prompt)
    TypeIn(buf, prompt)
  elseif waits > 0
    timer_start(POLL_INTERVAL, (_) => TypeWhenReady(buf, prompt, waits - 1))
  else
    client.Say('the agent is still not ready: send your question again when it is. It was not sent: ' .. prompt.text, 'warning')
  endif
enddef

def Pid(buf: number): number
  return job_info(term_getjob(buf)).process
enddef

# Sends a file, lines or a question to an agent. Starts one if none is running.
export def Send(params: dict<any>)
  var known = {start: LastName(), terminals: mapnew(Alive(), (_, t) => ({pid: Pid(t.buf), agent: t.name}))}
  var [error, result] = client.Call('send', extend(known, params))
  if error != ''
    client.Say(error, 'error')
  elseif result.status == 'terminal'
    var t = get(Alive()->filter((_, other) => Pid(other.buf) == result.pid), 0, {})
    if empty(t)
      client.Say('the agent has ended; your question was: ' .. result.prompt.text, 'warning')
    elseif Open(t.name)
      TypeIn(t.buf, result.prompt)
    endif
  elseif result.status == 'start'
    if Open(result.agent == '' ? LastName() : result.agent)
      TypeWhenReady(terminals[0].buf, result.prompt)
    endif
  else
    client.Say('sent to ' .. result.agent .. (has_key(result, 'pane') ? ' in tmux pane ' .. result.pane : ''))
  endif
enddef
