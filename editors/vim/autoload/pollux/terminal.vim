" The agents in terminals of the editor: each has its own terminal.

let s:cpo = &cpo | set cpo&vim

" ms after a paste is shown: an earlier Enter would become part of it. A busy agent shows it late
" and needs longer, so twice the time until then is added.
let s:ENTER_DELAY = 300
let s:POLL_INTERVAL = 100 " ms between two checks of the terminal's screen
let s:MAX_POLLS = 50 " checks before a question counts as not accepted
let s:SEEN = 10 " characters of a prompt that the agent must show

" Checks before an agent that was started counts as not ready, for about a minute: the user
" may have to sign in first, or to trust the folder.
let s:max_waits = 600

" The terminals, the last used one first: name and buf. The name is that of the agent, or
" empty for the one that `pollux run` chooses.
let s:terminals = []

function! s:Running(buf) abort
  return a:buf > 0 && bufexists(a:buf) && pollux#Host('TerminalPid', a:buf) > 0
endfunction

" Returns the command that starts an agent without a name.
function! s:Chosen() abort
  let cli = pollux#Option('cli')
  return type(cli) == v:t_string ? [cli] : cli
endfunction

function! s:DefaultName() abort
  let cli = s:Chosen()
  return empty(cli) ? '' : fnamemodify(cli[0], ':t')
endfunction

" Returns the terminal of an agent, or {}.
function! s:Find(name) abort
  return get(filter(copy(s:terminals), {_, t -> t.name ==# a:name}), 0, {})
endfunction

" Returns the terminals in which agents run.
function! s:Alive() abort
  return filter(copy(s:terminals), {_, t -> s:Running(t.buf)})
endfunction

" Returns the last used terminal, preferably of an agent that runs; {} if there is none.
function! s:Last() abort
  return get(s:Alive(), 0, get(s:terminals, 0, {}))
endfunction

function! s:LastName() abort
  return get(s:Last(), 'name', s:DefaultName())
endfunction

function! s:Split() abort
  let t = pollux#Option('terminal')
  execute t.position 'split'
  let vertical = t.position =~# 'vert'
  let size = t.size < 1 ? float2nr((vertical ? &columns : &lines) * t.size) : float2nr(t.size * 1.0)
  execute (vertical ? 'vertical resize' : 'resize') size
endfunction

function! s:Argv(name, args) abort
  let argv = [pollux#Program(), 'run', '--attach']
  let cli = a:name ==# '' || a:name ==# s:DefaultName() ? s:Chosen() : [a:name]
  return empty(cli) ? argv : argv + ['--'] + cli + a:args
endfunction

" Shows the terminal of an agent, without a name of the last used one, and goes to it. Starts
" the agent, with the arguments in a list, if it is not running. Reports whether the terminal
" is open.
function! pollux#terminal#Open(...) abort
  let name = a:0 ? a:1 : s:LastName()
  let args = get(a:000, 1, [])
  let buf = get(s:Find(name), 'buf', 0)
  let win = buf > 0 ? bufwinid(buf) : -1
  let running = s:Running(buf)
  if running && !empty(args)
    call pollux#client#Say(name .. ' is running: its arguments count when it starts', 'warning')
  endif
  if !running && !pollux#client#Ready()
    call pollux#client#SayNotRunning()
    return 0
  endif
  if win > 0
    call win_gotoid(win)
  else
    call s:Split()
  endif
  if !running
    let buf = s:Start(name, args, buf)
  elseif win <= 0
    execute 'buffer' buf
  endif
  call filter(s:terminals, {_, other -> other.name !=# name})
  call insert(s:terminals, {'name': name, 'buf': buf})
  if s:Running(buf)
    call pollux#Host('TerminalFocus')
  endif
  return buf > 0
endfunction

" Starts an agent in the current window and returns the terminal's buffer. old is the buffer
" of its last process, or 0.
function! s:Start(name, args, old) abort
  let title = 'pollux://agent' .. (a:name ==# '' ? '' : '/' .. a:name)
  let buf = pollux#Host('TerminalStart', s:Argv(a:name, a:args), pollux#context#Roots()[0], title,
        \ a:old, {code -> s:Ended(a:name, code)})
  call setbufvar(buf, '&bufhidden', 'hide')
  call setbufvar(buf, '&buflisted', 0)
  return buf
endfunction

function! s:Ended(name, code) abort
  let gone = get(s:Find(a:name), 'buf', 0)
  if a:code == 0 && gone > 0
    call timer_start(0, {-> execute('silent! bwipeout! ' .. gone)})
  endif
endfunction

function! pollux#terminal#Toggle() abort
  let buf = get(s:Last(), 'buf', 0)
  let win = buf > 0 ? bufwinid(buf) : -1
  if win < 0
    call pollux#terminal#Open()
    return
  endif
  try
    call win_execute(win, 'close!')
  catch /E444:\|E5601:/
    call pollux#client#Say('cannot hide the terminal: it is in the only window')
  endtry
endfunction

" Returns what the terminal shows.
function! s:Screen(buf) abort
  return join(pollux#Host('TerminalLines', a:buf), "\n")
endfunction

" Reports whether the agent shows an input line that is empty and ready.
function! s:Waits(buf, prompt) abort
  return stridx(s:Screen(a:buf), a:prompt.ready) >= 0
endfunction

" Returns how often the terminal shows the beginning or the end of a prompt, or what agents show
" in place of a long paste. Spaces do not count: agents wrap lines.
function! s:Seen(buf, prompt) abort
  let shown = substitute(s:Screen(a:buf), '\_s', '', 'g')
  let text = substitute(a:prompt.text, '\_s', '', 'g')
  let times = 0
  for part in [strcharpart(text, 0, s:SEEN), strcharpart(text, max([0, strchars(text) - s:SEEN])), '[Past']
    let times += count(shown, part)
  endfor
  return times
endfunction

" Presses Enter once the agent shows the pasted prompt: it reads its input late while it
" starts, and a question that it asks would take Enter for the answer. before is the result of
" s:Seen before the paste.
function! s:Enter(buf, prompt, before, polls) abort
  if !s:Running(a:buf)
    return
  elseif s:Seen(a:buf, a:prompt) > a:before
    let late = s:POLL_INTERVAL * (s:MAX_POLLS - a:polls)
    call timer_start(s:ENTER_DELAY + 2 * late, {-> s:Confirm(a:buf, a:prompt, a:before)})
  elseif a:polls > 0
    call timer_start(s:POLL_INTERVAL, {-> s:Enter(a:buf, a:prompt, a:before, a:polls - 1)})
  else
    call pollux#client#Say('the agent does not show your question. Look at its terminal before you press Enter: '
          \ .. a:prompt.text, 'warning')
  endif
endfunction

function! s:Confirm(buf, prompt, before) abort
  if s:Running(a:buf) && s:Seen(a:buf, a:prompt) > a:before
    call pollux#Host('TerminalPut', a:buf, "\r")
  else
    call s:Enter(a:buf, a:prompt, a:before, 0)
  endif
endfunction

function! s:TypeIn(buf, prompt) abort
  let before = s:Seen(a:buf, a:prompt)
  call pollux#Host('TerminalPut', a:buf, a:prompt.paste)
  if a:prompt.submit
    call s:Enter(a:buf, a:prompt, before, s:MAX_POLLS)
  endif
endfunction

" Sets how often an agent that was started is checked, for tests.
function! pollux#terminal#MaxWaits(times) abort
  let s:max_waits = a:times
  return a:times
endfunction

" Types a prompt when the agent, which has just been started, is ready.
function! s:TypeWhenReady(buf, prompt, waits) abort
  if !s:Running(a:buf)
    call pollux#client#Say('the agent has ended; your question was: ' .. a:prompt.text, 'warning')
  elseif s:Waits(a:buf, a:prompt)
    call s:TypeIn(a:buf, a:prompt)
  elseif a:waits > 0
    call timer_start(s:POLL_INTERVAL, {-> s:TypeWhenReady(a:buf, a:prompt, a:waits - 1)})
  else
    call pollux#client#Say('the agent is still not ready: send your question again when it is. It was not sent: '
          \ .. a:prompt.text, 'warning')
  endif
endfunction

" Sends a file, lines or a question to an agent. Starts one if none is running.
function! pollux#terminal#Send(params) abort
  let running = map(s:Alive(), {_, t -> {'pid': pollux#Host('TerminalPid', t.buf), 'agent': t.name}})
  let [error, result] = pollux#client#Call('send', extend({'start': s:LastName(), 'terminals': running}, a:params))
  if error !=# ''
    call pollux#client#Say(error, 'error')
  elseif result.status ==# 'terminal'
    let t = get(filter(s:Alive(), {_, t -> pollux#Host('TerminalPid', t.buf) == result.pid}), 0, {})
    if empty(t)
      call pollux#client#Say('the agent has ended; your question was: ' .. result.prompt.text, 'warning')
    elseif pollux#terminal#Open(t.name)
      call s:TypeIn(t.buf, result.prompt)
    endif
  elseif result.status ==# 'start'
    if pollux#terminal#Open(result.agent ==# '' ? s:LastName() : result.agent)
      call s:TypeWhenReady(s:terminals[0].buf, result.prompt, s:max_waits)
    endif
  else
    call pollux#client#Say('sent to ' .. result.agent .. (has_key(result, 'pane') ? ' in tmux pane ' .. result.pane : ''))
  endif
endfunction

let &cpo = s:cpo
