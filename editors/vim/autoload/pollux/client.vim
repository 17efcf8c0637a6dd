" Runs `pollux ide` and speaks JSON-RPC with it (see docs/PROTOCOL.md in Pollux's
" repository). The adapter of the editor handles the process and the messages' framing.

let s:cpo = &cpo | set cpo&vim

let s:VERSION = '1.0'
let s:PROTOCOL = 1
let s:MAX_FAILURES = 5 " failed starts in a row
let s:STOP_TIMEOUT = 5000 " ms until Pollux is killed
let s:NOT_RUNNING = 'Pollux is not running: run :Pollux start; if that fails, see :Pollux log'

let s:running = 0
let s:stopping = 0
let s:restart = 0 " start again after it has stopped
let s:started = []
let s:failures = 0
let s:info = {} " the result of initialize, while the companion is running
let s:previous = {} " port and token of a companion that crashed
let s:agents = [] " the connected agents
let s:outside = [] " the files that changed outside Pollux
let s:waiting = 0 " calls that wait for their answer
let s:log = []
let s:stderr = []
let s:unshown = [] " messages for the user, with their levels

function! pollux#client#Ready() abort
  return !empty(s:info)
endfunction

function! pollux#client#Info() abort
  return s:info
endfunction

function! pollux#client#Agents() abort
  return s:agents
endfunction

function! pollux#client#Outside() abort
  return s:outside
endfunction

function! pollux#client#Waiting() abort
  return s:waiting
endfunction

function! pollux#client#Log() abort
  return s:log
endfunction

function! pollux#client#Note(text) abort
  call add(s:log, strftime('%H:%M:%S ') .. a:text)
  if len(s:log) > 500
    call remove(s:log, 0)
  endif
endfunction

" Shows the user a message. The level is 'info', which is the default, 'warning' or 'error'.
function! pollux#client#Say(text, ...) abort
  call pollux#client#Note(a:text)
  call add(s:unshown, [a:text, get(a:000, 0, 'info')])
  if len(s:unshown) == 1
    call timer_start(0, function('s:ShowNext'))
  endif
endfunction

function! pollux#client#SayNotRunning() abort
  call pollux#client#Say(s:NOT_RUNNING, 'error')
endfunction

" Shows the oldest message. Vim runs timers that are due together in no particular order.
function! s:ShowNext(_) abort
  let [text, level] = remove(s:unshown, 0)
  if !empty(s:unshown)
    call timer_start(0, function('s:ShowNext'))
  endif
  if v:exiting isnot v:null " a message could ask for a key, and the editor would wait for it
    return
  endif
  call pollux#Host('Show', 'pollux: ' .. text, level)
endfunction

" Shortens a text in the middle so that it fits the command line. After a longer message the
" editor asks for Enter, and the next key would be lost. `:Pollux log` shows the whole text.
function! pollux#client#Fitting(text) abort
  if strdisplaywidth(a:text) <= v:echospace
    return a:text
  endif
  let head = strcharpart(a:text, 0, v:echospace / 3) .. (&encoding ==# 'utf-8' ? "\u2026" : '...')
  let tail = a:text
  while strdisplaywidth(head .. tail) > v:echospace
    let tail = strcharpart(tail, 1)
  endwhile
  return head .. tail
endfunction

" Runs the user's autocommands for an event. An error in them must not end what Pollux does.
function! pollux#client#Trigger(name) abort
  try
    execute 'doautocmd <nomodeline> User Pollux' .. a:name
  catch
    call pollux#client#Say(printf('an autocommand for Pollux%s failed: %s', a:name, v:exception), 'error')
  endtry
endfunction

function! pollux#client#Event(name) abort
  call pollux#client#Trigger(a:name)
  redrawstatus!
endfunction

function! s:Write(message) abort
  if s:running
    call pollux#Host('Send', a:message)
  endif
endfunction

function! pollux#client#Notify(method, params) abort
  if pollux#client#Ready()
    call s:Write({'method': a:method, 'params': a:params})
  endif
endfunction

" Returns the error, or an empty string, and the result in an answer.
function! s:Outcome(answer) abort
  if type(a:answer) != v:t_dict || empty(a:answer)
    return ['Pollux did not answer: try again', {}]
  endif
  if has_key(a:answer, 'error')
    return [get(a:answer.error, 'message', 'unknown error'), {}]
  endif
  let result = get(a:answer, 'result', {})
  return ['', type(result) == v:t_dict ? result : {}]
endfunction

" Calls Done(error, result) with the answer; the error is a text.
function! pollux#client#Request(method, params, Done) abort
  if !s:running || !pollux#client#Ready() && a:method !=# 'initialize'
    call a:Done(s:NOT_RUNNING, {})
    return
  endif
  call pollux#Host('Request', {'method': a:method, 'params': a:params}, {answer -> call(a:Done, s:Outcome(answer))})
endfunction

" Waits for the answer: returns [error, result].
function! pollux#client#Call(method, params) abort
  if !s:running || !pollux#client#Ready()
    return [s:NOT_RUNNING, {}]
  endif
  let s:waiting += 1
  try
    return s:Outcome(pollux#Host('Call', {'method': a:method, 'params': a:params}))
  finally
    let s:waiting -= 1
  endtry
endfunction

function! s:SetEnv(env) abort
  for [name, value] in items(a:env)
    call setenv(name, value)
  endfor
endfunction

" Handles a message from Pollux. Returns a result, or throws an error for the user.
function! s:Handle(method, p) abort
  if a:method ==# 'diff/open'
    call pollux#diff#Open(a:p)
  elseif a:method ==# 'diff/close'
    return pollux#diff#Close(a:p.id, get(a:p, 'reason', ''))
  elseif a:method ==# 'diff/changed'
    call pollux#diff#Changed(a:p)
  elseif a:method ==# 'file/changed'
    call pollux#diff#Reload(a:p.path)
    call pollux#Host('diagnostics#Reloaded', a:p.path)
  elseif a:method ==# 'diagnostics'
    return pollux#Host('diagnostics#Report', get(a:p, 'path', ''))
  elseif a:method ==# 'clients'
    let before = len(s:agents)
    let s:agents = get(a:p, 'clients', [])
    if len(s:agents) != before
      call pollux#client#Event(len(s:agents) > before ? 'Connected' : 'Disconnected')
    endif
  elseif a:method ==# 'outside'
    let s:outside = a:p.files
  elseif a:method ==# 'env'
    call s:SetEnv(a:p.env)
  elseif a:method ==# 'message'
    call pollux#client#Say(a:p.text, get(a:p, 'level', 'info'))
  else
    throw 'unknown method ' .. a:method
  endif
  return {}
endfunction

" Handles a request or a notification.
function! pollux#client#Received(message) abort
  let answer = {}
  try
    let answer.result = s:Handle(a:message.method, get(a:message, 'params', {}))
  catch
    let text = substitute(v:exception, '^Vim\%((\a\+)\)\?:\?', '', '')
    call pollux#client#Note(a:message.method .. ': ' .. text .. ' ' .. v:throwpoint)
    let answer.error = {'code': text =~# '^unknown method' ? -32601 : -32000, 'message': text}
  endtry
  if has_key(a:message, 'id')
    let answer.id = a:message.id
    call s:Write(answer)
  endif
endfunction

function! s:Initialized(error, result, roots) abort
  if a:error !=# ''
    call pollux#client#Say(a:error, 'error')
    call pollux#client#Stop()
    return
  endif
  if get(a:result, 'protocol', 0) != s:PROTOCOL
    call pollux#client#Say(printf('this plugin and `%s` are not compatible: update both', pollux#Command()), 'error')
    call pollux#client#Stop()
    return
  endif
  let s:info = a:result
  let s:previous = {'port': a:result.port, 'token': a:result.token}
  call s:SetEnv(a:result.env)
  call pollux#client#Note(printf('started: %s, pollux %s, port %d',
        \ pollux#Host('About').version, a:result.server.version, a:result.port))
  call pollux#context#Start(a:roots)
  call pollux#Host('diagnostics#Start')
  call pollux#client#Event('Started')
endfunction

" Handles the end of the process.
function! pollux#client#Ended(code) abort
  if v:exiting isnot v:null
    return
  endif
  let was = pollux#client#Ready()
  let s:running = 0
  let s:info = {}
  let s:agents = []
  let s:outside = []
  call pollux#context#Stop()
  call pollux#Host('diagnostics#Stop')
  call pollux#diff#Lost()
  call pollux#client#Event('Stopped')
  if s:stopping
    if s:restart
      call s:Launch()
    else
      call s:CanEncode() " last, so that the user sees it
    endif
    return
  endif
  let last = trim(join(s:stderr, ' '))
  call pollux#client#Note(printf('pollux exited with code %d. %s', a:code, last))
  if was && reltimefloat(reltime(s:started)) > 10
    let s:failures = 0
  endif
  let s:failures += 1
  if a:code == 2 && !was
    call pollux#client#Say(printf('`%s` is too old for this plugin: install a newer one', pollux#Command()), 'error')
  elseif s:failures >= s:MAX_FAILURES
    let why = last ==# '' ? 'see :Pollux log' : last
    call pollux#client#Say(printf('Pollux keeps exiting: %s (:Pollux start tries again)', why), 'error')
  else
    let pause = s:failures == 1 ? 0 : 250 * float2nr(pow(2, s:failures))
    call timer_start(pause, {-> s:stopping ? 0 : s:Launch()}) " the user may have stopped it in the meantime
  endif
endfunction

" Handles a line that the process wrote to its standard error.
function! pollux#client#Complained(line) abort
  call add(s:stderr, a:line)
  if len(s:stderr) > 20
    call remove(s:stderr, 0)
  endif
  call pollux#client#Note(a:line)
endfunction

" Reports whether Vim can exchange texts with Pollux; if not, tells the user what to do. In
" other encodings Vim's JSON functions damage texts.
function! s:CanEncode() abort
  if &encoding !=# 'utf-8'
    call pollux#client#Say(printf('Vim uses the encoding %s: add `set encoding=utf-8` to your vimrc and restart Vim',
          \ &encoding), 'error')
  endif
  return &encoding ==# 'utf-8'
endfunction

function! s:Launch() abort
  if s:running || !s:CanEncode()
    return
  endif
  let program = pollux#Program()
  if program ==# ''
    call pollux#client#Say(printf('`%s` is not installed, or not on the PATH: see :help pollux-install',
          \ pollux#Command()), 'error')
    return
  endif
  let s:stopping = 0
  let s:restart = 0
  let s:stderr = []
  let s:started = reltime()
  try
    call pollux#Host('Start', [program, 'ide'])
  catch
    call pollux#client#Say(printf('cannot start `%s`: %s', program, v:exception), 'error')
    return
  endtry
  let s:running = 1
  let about = pollux#Host('About')
  let roots = pollux#context#Roots()
  call pollux#client#Request('initialize', {
        \ 'protocol': s:PROTOCOL,
        \ 'client': {'name': about.client, 'version': s:VERSION},
        \ 'editor': about.editor,
        \ 'pid': getpid(),
        \ 'roots': roots,
        \ 'diff': v:true,
        \ 'diagnostics': v:true,
        \ 'settings': extend({
        \   'includeIgnored': pollux#Option('include_ignored') ? v:true : v:false,
        \   'reviewPage': pollux#Option('review_page') ? v:true : v:false,
        \ }, s:previous),
        \ }, {error, result -> s:Initialized(error, result, roots)})
endfunction

" Starts Pollux, unless it is running.
function! pollux#client#Start() abort
  let s:failures = 0
  let s:restart = s:stopping
  call s:Launch()
endfunction

function! pollux#client#Autostart() abort
  let wrong = pollux#WrongOption()
  if wrong !=# ''
    call pollux#client#Say(wrong, 'error')
  elseif pollux#Option('autostart')
    call pollux#client#Start()
  endif
endfunction

" Stops Pollux. Agents that wait for an answer receive a rejection.
function! pollux#client#Stop() abort
  let s:stopping = 1
  let s:restart = 0
  if s:running
    call pollux#Host('Stop', s:STOP_TIMEOUT)
  endif
endfunction

function! s:EncodingChanged() abort
  if s:running && &encoding !=# 'utf-8'
    call pollux#client#Stop()
  endif
endfunction

augroup pollux_client
  autocmd!
  autocmd OptionSet encoding call s:EncodingChanged()
  " Does nothing: without any autocommand, :doautocmd prints a message.
  autocmd User Pollux* eval 0
augroup END

let &cpo = s:cpo
