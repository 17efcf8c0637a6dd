" The command :Pollux.

let s:cpo = &cpo | set cpo&vim

" The functions below receive the first and the last line of a command's range, or an empty
" list, and the rest of the command.

" Returns Pollux's parameters for a command's range or the whole file.
function! s:Target(lines) abort
  if &buftype !=# '' || bufname() ==# ''
    return {}
  endif
  let params = {'path': expand('%:p')}
  return empty(a:lines) ? params : extend(params, {'line': a:lines[0], 'endLine': a:lines[1]})
endfunction

function! s:Deliver(params, question) abort
  if has_key(a:params, 'path') && &modified
    call pollux#client#Say('the agent reads the file as last saved', 'warning')
  endif
  call pollux#terminal#Send(extend({'question': a:question}, a:params))
endfunction

function! s:Send(lines, rest) abort
  let params = s:Target(a:lines)
  let named = matchlist(a:rest, '^--agent\s\+\(\S\+\)\s*\(.*\)$')
  let question = get(named, 2, a:rest)
  if !empty(named)
    let params.agent = named[1]
  endif
  if !has_key(params, 'path') && question ==# ''
    call pollux#client#Say('this buffer is not a file: add a question, :Pollux send QUESTION', 'error')
  else
    call s:Deliver(params, question)
  endif
endfunction

function! s:Ask(lines, rest) abort
  let agent = matchstr(a:rest, '^\S\+\ze\s')
  if index(pollux#ask#Agents(), agent) >= 0
    call pollux#ask#Ask(agent, trim(a:rest[len(agent) :]), a:lines)
  else
    call pollux#ask#Ask('', a:rest, a:lines)
  endif
endfunction

function! s:Diagnostics(lines, question) abort
  let params = s:Target(a:lines)
  if empty(params)
    call pollux#client#Say('this buffer is not a file', 'error')
    return
  endif
  let problems = pollux#Host('diagnostics#Problems')
  if !empty(a:lines)
    call filter(problems, {_, p -> p.line >= a:lines[0] && p.line <= a:lines[1]})
  endif
  if empty(problems)
    call pollux#client#Say(has('nvim') ? 'no diagnostics here'
          \ : 'no entries for this file in the location list or the quickfix list')
    return
  endif
  let params.problems = sort(problems, {a, b -> a.line - b.line})
  call s:Deliver(params, a:question ==# '' ? 'Fix these.' : a:question)
endfunction

function! s:Status() abort
  let [error, s] = pollux#client#Call('status', {'commands': ':Pollux '})
  if error !=# ''
    call pollux#client#Say(error, 'error')
    return
  endif
  " A Pollux of another version may send no text.
  echo trim(get(s, 'text', printf('Pollux %s, port %d', get(s, 'version', ''), get(s, 'port', 0))))
endfunction

function! s:Log() abort
  botright new
  setlocal buftype=nofile bufhidden=wipe noswapfile
  call setline(1, split(join(pollux#client#Log(), "\n"), "\n", 1))
  setlocal nomodifiable
  normal! G
endfunction

function! s:List() abort
  let choices = pollux#diff#Waiting() + pollux#client#Outside()
  if empty(choices)
    call pollux#client#Say('no pending changes')
    return
  endif
  call pollux#Host('Choose', 'Review', map(copy(choices), {_, c -> s:Line(c)}), {n -> s:Chosen(choices[n])})
endfunction

" Returns the line for a pending change, or a file that changed outside Pollux.
function! s:Line(choice) abort
  if !has_key(a:choice, 'diff')
    return fnamemodify(a:choice.path, ':~:.') .. '  ' .. a:choice.change .. ' outside Pollux'
  endif
  return pollux#diff#Name(a:choice) .. '  ' .. pollux#diff#Agent(a:choice)
        \ .. (a:choice.diff.state ==# 'orphaned' ? '  (disconnected)' : '')
endfunction

function! s:Chosen(choice) abort
  if !has_key(a:choice, 'diff')
    let [error, _] = pollux#client#Call('outside/open', {'path': a:choice.path})
    if error !=# ''
      call pollux#client#Say(error, 'error')
    endif
  elseif !a:choice.ended
    call pollux#diff#Go(a:choice)
  endif
endfunction

let s:COMMANDS = {
      \ 'open': {-> pollux#terminal#Open()},
      \ 'toggle': {-> pollux#terminal#Toggle()},
      \ 'send': function('s:Send'),
      \ 'ask': function('s:Ask'),
      \ 'diagnostics': function('s:Diagnostics'),
      \ 'accept': {-> pollux#diff#Accept()},
      \ 'reject': {-> pollux#diff#Reject()},
      \ 'next': {-> pollux#diff#Next()},
      \ 'next-hunk': {-> pollux#diff#Hunk(0)},
      \ 'previous-hunk': {-> pollux#diff#Hunk(1)},
      \ 'redo-hunk': {-> pollux#diff#Take('proposed')},
      \ 'undo-hunk': {-> pollux#diff#Take('original')},
      \ 'list': {-> s:List()},
      \ 'status': {-> s:Status()},
      \ 'log': {-> s:Log()},
      \ 'start': {-> pollux#client#Start()},
      \ 'stop': {-> pollux#client#Stop()},
      \ }

" Returns the commands of the agents that the user can name, the installed ones first.
function! s:Agents() abort
  let all = map(copy(get(pollux#client#Info(), 'agents', [])), {_, agent -> agent.command})
  return filter(copy(all), {_, name -> executable(name) == 1}) + filter(copy(all), {_, name -> executable(name) != 1})
endfunction

function! pollux#command#Complete(lead, line, _) abort
  let all = []
  if a:line =~# 'Pollux\s\+ask\s\+\S*$'
    let all = pollux#ask#Agents()
  elseif a:line =~# 'Pollux\s\+send\s\+--agent\s\+\S*$'
    let all = s:Agents()
  elseif a:line =~# '^\S*\s\+\S*$'
    let all = sort(keys(s:COMMANDS)) + s:Agents()
  endif
  return filter(all, {_, name -> stridx(name, a:lead) == 0})
endfunction

" Runs the command :Pollux with its arguments, as they were typed and as words.
function! pollux#command#Run(args, range, line1, line2, words) abort
  let given = matchstr(a:args, '^\S*')
  let rest = trim(a:args[len(given) :])
  let name = get({'': 'status', 'accept-hunk': 'redo-hunk'}, given, given) " accept-hunk: its older name
  if has_key(s:COMMANDS, name)
    call s:COMMANDS[name](a:range > 0 ? [a:line1, a:line2] : [], rest)
  elseif index(s:Agents(), name) >= 0
    call pollux#terminal#Open(name, a:words[1 :])
  elseif !pollux#client#Ready()
    call pollux#client#SayNotRunning()
  else
    call pollux#client#Say(printf('unknown command "%s": press Tab after :Pollux for a list', name), 'error')
  endif
endfunction

let &cpo = s:cpo
