vim9script
# Runs `pollux ide` and speaks JSON-RPC with it (see docs/PROTOCOL.md in Pollux's
# repository). Vim does the framing.

import autoload 'pollux.vim' as options
import autoload 'pollux/context.vim'
import autoload 'pollux/diagnostics.vim'
import autoload 'pollux/diff.vim'

const VERSION = '1.0'
const PROTOCOL = 1
const MAX_FAILURES = 5 # failed starts in a row
const STOP_TIMEOUT = 5000 # ms until Pollux is killed

var job: job
var running = false
var stopping = false
var restart = false # start again after it has stopped
var started: list<any>
var failures = 0
var info: dict<any> = {} # the result of initialize, while the companion is running
var previous: dict<any> = {} # port and token of a companion that crashed
var agents: list<any> = [] # the connected agents
var outside: list<any> = [] # the files that changed outside Pollux
var log: list<string> = []
var stderr: list<string> = []
var unshown: list<list<string>> = [] # messages for the user, with their levels

export def Ready(): bool
  return !empty(info)
enddef

export def Info(): dict<any>
  return info
enddef

export def Agents(): list<any>
  return agents
enddef

export def Outside(): list<any>
  return outside
enddef

export def Log(): list<string>
  return log
enddef

export def Note(text: string)
  add(log, strftime('%H:%M:%S ') .. text)
  if len(log) > 500
    remove(log, 0)
  endif
enddef

# Shows the user a message. level is 'info', 'warning' or 'error'.
export def Say(text: string, level = 'info')
  Note(text)
  add(unshown, [text, level])
  if len(unshown) == 1
    timer_start(0, ShowNext)
  endif
enddef

# Shows the oldest message. Vim runs timers that are due together in no particular order.
def ShowNext(_: number)
  var [text, level] = remove(unshown, 0)
  if !empty(unshown)
    timer_start(0, ShowNext)
  endif
  Show(text, level)
enddef

def Show(text: string, level: string)
  if v:exiting != v:null
    return # a message could ask for a key, and Vim would wait for it
  endif
  if mode() == 't'
    # Somebody who types in a terminal does not look at the command line.
    popup_notification('pollux: ' .. text, {highlight: level == 'info' ? 'Normal' : 'WarningMsg', time: 5000})
    return
  endif
  redraw # otherwise Vim asks for Enter after a second message
  execute 'echohl' {warning: 'WarningMsg', error: 'ErrorMsg'}->get(level, 'None')
  echomsg Fitting('pollux: ' .. text)
  echohl None
enddef

# Shortens a text in the middle so that it fits the command line. After a longer message
# Vim asks for Enter, and the next key would be lost. `:Pollux log` shows the whole text.
def Fitting(text: string): string
  if strdisplaywidth(text) <= v:echospace
    return text
  endif
  const head = strcharpart(text, 0, v:echospace / 3) .. (&encoding ==# 'utf-8' ? '…' : '...')
  var tail = text
  while strdisplaywidth(head .. tail) > v:echospace
    tail = strcharpart(tail, 1)
  endwhile
  return head .. tail
enddef

export def Event(name: string)
  if exists('#User#Pollux' .. name)
    execute 'doautocmd <nomodeline> User Pollux' .. name
  endif
  redrawstatus!
enddef

def Write(message: dict<any>)
  if running && ch_status(job_getchannel(job)) == 'open'
    try
      ch_sendexpr(job, message)
    catch
      Note(v:exception)
    endtry
  endif
enddef

export def Notify(method: string, params: dict<any>)
  if Ready()
    Write({method: method, params: params})
  endif
enddef

# Calls Done(error, result) with the answer; the error is a text.
export def Request(method: string, params: dict<any>, Done: func(string, any))
  if !running || (!Ready() && method != 'initialize')
    Done('Pollux is not running: run :Pollux start; if that fails, see :Pollux log', {})
    return
  endif
  ch_sendexpr(job, {method: method, params: params}, {callback: (_, answer) => Answer(answer, Done)})
enddef

def Answer(answer: dict<any>, Done: func(string, any))
  if has_key(answer, 'error')
    Done(get(answer.error, 'message', 'unknown error'), {})
  else
    Done('', get(answer, 'result', {}))
  endif
enddef

# Waits for the answer: returns [error, result].
export def Call(method: string, params: dict<any>): list<any>
  if !running || !Ready()
    return ['Pollux is not running: run :Pollux start; if that fails, see :Pollux log', {}]
  endif
  var answer = ch_evalexpr(job, {method: method, params: params}, {timeout: 5000})
  redraw # otherwise messages received meanwhile can make Vim 9.2 wait for Enter
  if type(answer) != v:t_dict || empty(answer)
    return ['Pollux did not answer: try again', {}]
  endif
  if has_key(answer, 'error')
    return [get(answer.error, 'message', 'unknown error'), {}]
  endif
  var result = get(answer, 'result', {})
  return ['', type(result) == v:t_dict ? result : {}]
enddef

def SetEnv(env: dict<any>)
  for [name, value] in items(env)
    setenv(name, value)
  endfor
enddef

# Handles a message from Pollux. Returns a result, or throws an error for the user.
def Handle(method: string, p: dict<any>): dict<any>
  if method == 'diff/open'
    diff.Open(p)
  elseif method == 'diff/close'
    return diff.Close(p.id, get(p, 'reason', ''))
  elseif method == 'diff/changed'
    diff.Changed(p)
  elseif method == 'file/changed'
    diff.Reload(p.path)
    diagnostics.Reloaded(p.path)
  elseif method == 'diagnostics'
    return diagnostics.Report(get(p, 'path', ''))
  elseif method == 'clients'
    var before = len(agents)
    agents = get(p, 'clients', [])
    if len(agents) != before
      Event(len(agents) > before ? 'Connected' : 'Disconnected')
    endif
  elseif method == 'outside'
    outside = p.files
  elseif method == 'env'
    SetEnv(p.env)
  elseif method == 'message'
    Say(p.text, get(p, 'level', 'info'))
  else
    throw 'unknown method ' .. method
  endif
  return {}
enddef

def Received(_: channel, message: dict<any>)
  if !has_key(message, 'method')
    return
  endif
  var answer: dict<any> = {}
  try
    answer.result = Handle(message.method, get(message, 'params', {}))
  catch
    var text = substitute(v:exception, '^Vim\%((\a\+)\)\?:\?', '', '')
    Note(message.method .. ': ' .. text .. ' ' .. v:throwpoint)
    answer.error = {code: text =~ '^unknown method' ? -32601 : -32000, message: text}
  endtry
  if has_key(message, 'id')
    answer.id = message.id
    Write(answer)
  endif
enddef

def Initialized(error: string, result: dict<any>, roots: list<string>)
  if error != ''
    Say(error, 'error')
    Stop()
    return
  endif
  if get(result, 'protocol', 0) != PROTOCOL
    Say(printf('this plugin and `%s` are not compatible: update both', options.Command()), 'error')
    Stop()
    return
  endif
  info = result
  previous = {port: result.port, token: result.token}
  SetEnv(result.env)
  Note(printf('started: Vim %d, pollux %s, port %d', v:versionlong, result.server.version, result.port))
  context.Start(roots)
  diagnostics.Start()
  Event('Started')
enddef

def Ended(_: job, code: number)
  var was = Ready()
  running = false
  info = {}
  agents = []
  outside = []
  context.Stop()
  diagnostics.Stop()
  diff.Lost()
  if v:exiting != v:null
    return
  endif
  Event('Stopped')
  if stopping
    if restart
      Launch()
    else
      CanEncode() # last, so that the user sees it
    endif
    return
  endif
  var last = trim(join(stderr, ' '))
  Note(printf('pollux exited with code %d. %s', code, last))
  if was && reltimefloat(reltime(started)) > 10
    failures = 0
  endif
  failures += 1
  if code == 2 && !was
    Say(printf('`%s` is too old for this plugin: install a newer one', options.Command()), 'error')
  elseif failures >= MAX_FAILURES
    Say(printf('Pollux keeps exiting: %s (:Pollux start tries again)', last ?? 'see :Pollux log'), 'error')
  else
    timer_start(failures == 1 ? 0 : 250 * float2nr(pow(2, failures)), (_) => Relaunch())
  endif
enddef

def Error(_: channel, line: string)
  add(stderr, line)
  if len(stderr) > 20
    remove(stderr, 0)
  endif
  Note(line)
enddef

# Reports whether Vim can exchange texts with Pollux; if not, tells the user what to do. In
# other encodings Vim's JSON functions damage texts.
def CanEncode(): bool
  if &encoding !=# 'utf-8'
    Say(printf('Vim uses the encoding %s: add `set encoding=utf-8` to your vimrc and restart Vim', &encoding), 'error')
  endif
  return &encoding ==# 'utf-8'
enddef

def Launch()
  if running || !CanEncode()
    return
  endif
  var program = options.Program()
  if program == ''
    Say(printf('`%s` is not installed, or not on the PATH: see :help pollux-install', options.Command()), 'error')
    return
  endif
  stopping = false
  restart = false
  stderr = []
  started = reltime()
  job = job_start([program, 'ide'], {
    in_mode: 'lsp', out_mode: 'lsp', err_mode: 'nl', noblock: 1,
    out_cb: Received, err_cb: Error, exit_cb: Ended,
    stoponexit: '', # the end of its input ends it; Windows has no gentle signal
  })
  if job_status(job) != 'run'
    Say(printf('cannot start `%s`', program), 'error')
    return
  endif
  running = true
  var roots = context.Roots()
  var settings: dict<any> = {
    includeIgnored: !!options.Option('include_ignored'), reviewPage: !!options.Option('review_page'),
  }
  extend(settings, previous)
  Request('initialize', {
    protocol: PROTOCOL,
    client: {name: 'pollux.vim', version: VERSION},
    editor: {name: 'vim', displayName: 'Vim'},
    pid: getpid(),
    roots: roots,
    diff: true,
    diagnostics: true,
    settings: settings,
  }, (failure, result) => Initialized(failure, result, roots))
enddef

# Starts Pollux after a crash, unless the user has stopped it in the meantime.
def Relaunch()
  if !stopping
    Launch()
  endif
enddef

# Starts Pollux, unless it is running.
export def Start()
  failures = 0
  restart = stopping
  Launch()
enddef

export def Autostart()
  var wrong = options.WrongOption()
  if wrong != ''
    Say(wrong, 'error')
  elseif options.Option('autostart')
    Start()
  endif
enddef

# Stops Pollux. Agents that wait for an answer receive a rejection.
export def Stop()
  stopping = true
  restart = false
  if running
    var ending = job
    ch_close_in(job)
    timer_start(STOP_TIMEOUT, (_) => job_stop(ending))
  endif
enddef

def EncodingChanged()
  if running && &encoding !=# 'utf-8'
    Stop()
  endif
enddef

augroup pollux_client
  autocmd!
  autocmd OptionSet encoding EncodingChanged()
augroup END
