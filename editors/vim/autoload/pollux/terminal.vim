vim9script
# The agent in a terminal of Vim.

import autoload 'pollux.vim' as options
import autoload 'pollux/client.vim'
import autoload 'pollux/context.vim'

const ENTER_DELAY = 150 # ms after a paste; an earlier Enter would become part of it
const POLL_INTERVAL = 100 # ms between two checks of the terminal's screen
const MAX_POLLS = 100 # checks before a question counts as not accepted

var buf = 0

def Running(): bool
  return buf > 0 && bufexists(buf) && term_getstatus(buf) =~ 'running'
enddef

def Split()
  var t = extend({position: 'botright vertical', size: 0.4}, options.Option('terminal'))
  execute t.position 'split'
  var vertical = t.position =~ 'vert'
  var size = t.size < 1 ? float2nr((vertical ? &columns : &lines) * t.size) : float2nr(t.size * 1.0)
  execute (vertical ? 'vertical resize' : 'resize') size
enddef

def Argv(): list<string>
  var argv = [options.Command(), 'run', '--attach']
  var cli = options.Option('cli')
  if type(cli) == v:t_string
    cli = [cli]
  endif
  return empty(cli) ? argv : argv + ['--'] + cli
enddef

# Shows the agent's terminal and goes to it. Starts the agent if it is not running.
# Reports whether the terminal is open.
export def Open(): bool
  var win = buf > 0 ? bufwinid(buf) : -1
  if Running() && win > 0
    win_gotoid(win)
  elseif Running()
    Split()
    execute 'buffer' buf
  else
    if !client.Ready()
      client.Say('Pollux is not running: run :Pollux start; if that fails, see :Pollux log', 'error')
      return false
    endif
    if win > 0
      win_gotoid(win)
    else
      Split()
    endif
    buf = term_start(Argv(), {
      curwin: true, cwd: context.Roots()[0], term_name: 'pollux://agent', term_kill: 'term', exit_cb: Ended,
      env: {COLORTERM: $COLORTERM},
    })
    setbufvar(buf, '&bufhidden', 'hide')
    setbufvar(buf, '&buflisted', 0)
    return buf > 0
  endif
  if mode() != 't' && term_getstatus(buf) =~ 'normal'
    normal! i
  endif
  return true
enddef

def Ended(_: job, code: number)
  if code == 0
    var gone = buf
    timer_start(0, (_) => {
      if bufexists(gone)
        execute 'silent! bwipeout!' gone
      endif
    })
  endif
enddef

export def Toggle()
  var win = buf > 0 ? bufwinid(buf) : -1
  if !Running() || win < 0
    Open()
  elseif winnr('$') == 1
    client.Say('cannot hide the terminal: it is in the only window')
  else
    win_execute(win, 'close!')
  endif
enddef

# Reports whether the agent's input line is empty and ready.
def Waits(prompt: dict<any>): bool
  return range(1, term_getsize(buf)[0])->mapnew((_, n) => term_getline(buf, n))->join("\n")->stridx(prompt.ready) >= 0
enddef

# Sends bytes. term_sendkeys() sends keys: it turns the Esc in a paste into CSI 27 u if
# the agent has requested that encoding.
def Put(text: string)
  ch_sendraw(job_getchannel(term_getjob(buf)), text)
enddef

# Presses Enter once the paste is visible: while the agent starts, it reads its input
# late.
def Enter(prompt: dict<any>, polls: number)
  if !Running()
    return
  elseif !Waits(prompt)
    timer_start(ENTER_DELAY, (_) => {
      if Waits(prompt)
        Enter(prompt, polls)
      elseif Running()
        Put("\r")
      endif
    })
  elseif polls > 0
    timer_start(POLL_INTERVAL, (_) => Enter(prompt, polls - 1))
  else
    client.Say('the agent did not accept your question: ' .. prompt.text, 'warning')
  endif
enddef

def TypeIn(prompt: dict<any>)
  Put(prompt.paste)
  if prompt.submit
    Enter(prompt, MAX_POLLS)
  endif
enddef

# Types a question into the agent's terminal. Starts the agent if it is not running.
export def Send(params: dict<any>)
  var [error, prompt] = client.Call('prompt', params)
  if error != ''
    client.Say(error, 'error')
    return
  endif
  var was = Running()
  if !Open()
    return
  endif
  if was
    TypeIn(prompt)
  else
    Wait(prompt)
  endif
enddef

def Wait(prompt: dict<any>)
  if !Running()
    client.Say('the agent has ended; your question was: ' .. prompt.text, 'warning')
  elseif Waits(prompt)
    TypeIn(prompt)
  else
    timer_start(POLL_INTERVAL, (_) => Wait(prompt))
  endif
enddef
