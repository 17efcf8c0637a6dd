vim9script
# The agents in terminals of Vim: each has a terminal of its own.

import autoload 'pollux.vim' as options
import autoload 'pollux/client.vim'
import autoload 'pollux/context.vim'

const ENTER_DELAY = 300 # ms after a paste; an earlier Enter would become part of it
const POLL_INTERVAL = 100 # ms between two checks of the terminal's screen
const MAX_POLLS = 100 # checks before a question counts as not accepted

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

# Reports whether the agent shows what it shows when its input line is empty and ready.
def Waits(buf: number, prompt: dict<any>): bool
  return range(1, term_getsize(buf)[0])->mapnew((_, n) => term_getline(buf, n))->join("\n")->stridx(prompt.ready) >= 0
enddef

# Sends bytes. term_sendkeys() sends keys: it turns the Esc in a paste into CSI 27 u if
# the agent has requested that encoding.
def Put(buf: number, text: string)
  ch_sendraw(job_getchannel(term_getjob(buf)), text)
enddef

# Presses Enter once the paste is visible: while the agent starts, it reads its input
# late.
def Enter(buf: number, prompt: dict<any>, polls: number)
  if !Running(buf)
    return
  elseif !Waits(buf, prompt)
    timer_start(ENTER_DELAY, (_) => {
      if !Running(buf)
        return
      elseif Waits(buf, prompt)
        Enter(buf, prompt, polls)
      else
        Put(buf, "\r")
      endif
    })
  elseif polls > 0
    timer_start(POLL_INTERVAL, (_) => Enter(buf, prompt, polls - 1))
  else
    client.Say('the agent did not accept your question: ' .. prompt.text, 'warning')
  endif
enddef

def TypeIn(buf: number, prompt: dict<any>)
  Put(buf, prompt.paste)
  if prompt.submit
    Enter(buf, prompt, MAX_POLLS)
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
