vim9script
# Gemini CLI in a terminal of Vim's.

import autoload 'pollux.vim' as options
import autoload 'pollux/client.vim'
import autoload 'pollux/context.vim'

const ENTER = 150 # ms after a paste; the CLI takes an earlier Enter for a part of it
const LOOK = 100 # ms between two looks at the CLI's screen
const LOOKS = 100 # until a question counts as not taken

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

# Shows the CLI's terminal and goes to it; starts it if there is none. Reports
# whether there is one.
export def Open(): bool
  var win = buf > 0 ? bufwinid(buf) : -1
  if Running() && win > 0
    win_gotoid(win)
  elseif Running()
    Split()
    execute 'buffer' buf
  else
    if !client.Ready()
      client.Say('Pollux is not running: :Pollux start, and :Pollux log if that fails', 'error')
      return false
    endif
    if win > 0
      win_gotoid(win)
    else
      Split()
    endif
    buf = term_start(Argv(), {curwin: true, cwd: context.Roots()[0], term_name: 'pollux://gemini', term_kill: 'term', exit_cb: Ended, env: {COLORTERM: $COLORTERM}})
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
    client.Say('the terminal is in the only window')
  else
    win_execute(win, 'close!')
  endif
enddef

# Whether the CLI's input line waits for a first character.
def Waits(prompt: dict<any>): bool
  return range(1, term_getsize(buf)[0])->mapnew((_, n) => term_getline(buf, n))->join("\n")->stridx(prompt.ready) >= 0
enddef

# Sends bytes. term_sendkeys() sends keys, and makes CSI 27 u of the Esc in a
# paste where the CLI has asked for such keys.
def Put(text: string)
  ch_sendraw(job_getchannel(term_getjob(buf)), text)
enddef

# The CLI reads late what it is sent while it starts, so the Enter waits until
# the paste is to be seen.
def Enter(prompt: dict<any>, looks: number)
  if !Running()
    return
  elseif !Waits(prompt)
    timer_start(ENTER, (_) => {
      if Waits(prompt)
        Enter(prompt, looks)
      elseif Running()
        Put("\r")
      endif
    })
  elseif looks > 0
    timer_start(LOOK, (_) => Enter(prompt, looks - 1))
  else
    client.Say('the CLI has not taken your question: ' .. prompt.text, 'warning')
  endif
enddef

def TypeIn(prompt: dict<any>)
  Put(prompt.paste)
  if prompt.submit
    Enter(prompt, LOOKS)
  endif
enddef

# Types a question into the CLI, and starts it if there is none.
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
    client.Say('the CLI has ended; your question was: ' .. prompt.text, 'warning')
  elseif Waits(prompt)
    TypeIn(prompt)
  else
    timer_start(LOOK, (_) => Wait(prompt))
  endif
enddef
