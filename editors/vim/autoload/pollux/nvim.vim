" The parts of the plugin that differ between Neovim and Vim: processes, terminals, marks and
" questions to the user. vim.vim has the same functions. lua/pollux/nvim.lua has the parts
" that need Lua.

let s:cpo = &cpo | set cpo&vim

let s:EXIT_TIMEOUT = 3000 " ms until Pollux is killed when Neovim exits; Pollux needs up to 2000

let s:job = 0 " the companion
let s:next_id = 0
let s:pending = {} " what handles the answers, by id of the request
let s:part = '' " the beginning of a line
let s:lines = [] " received messages
let s:Chosen = 0 " what handles the user's choice

function! s:Lua(name, ...) abort
  return luaeval('require("pollux.nvim")[_A[1]](unpack(_A[2]))', [a:name, a:000])
endfunction

" Returns the names that the companion receives, and the version for the log.
function! pollux#nvim#About() abort
  let editor = {'name': 'neovim', 'displayName': 'Neovim'}
  let v = luaeval('vim.version()')
  return {'client': 'pollux.nvim', 'editor': editor, 'version': printf('Neovim %d.%d', v.major, v.minor)}
endfunction

" Starts the companion. Without 'detach', Neovim never ends if its terminal is closed while it
" handles the end of this job. On Windows, 'detach' would open console windows.
function! pollux#nvim#Start(argv) abort
  let s:part = ''
  let s:lines = []
  let s:pending = {}
  let s:job = jobstart(a:argv, {
        \ 'on_stdout': {_, data -> s:Output(data)},
        \ 'on_stderr': {_, data -> s:Complaints(data)},
        \ 'on_exit': {_, code -> s:Exited(code)},
        \ 'detach': has('unix'),
        \ })
  augroup pollux_nvim
    autocmd!
    autocmd VimLeavePre * call s:Leave()
  augroup END
endfunction

" Handles a part of the output: lines, of which the first continues the last one of the part
" before.
function! s:Output(data) abort
  let a:data[0] = s:part .. a:data[0]
  let s:part = remove(a:data, -1)
  call extend(s:lines, a:data)
  while !empty(s:lines)
    let line = remove(s:lines, 0)
    if line !=# ''
      call s:Received(line)
    endif
  endwhile
endfunction

function! s:Received(line) abort
  try
    let message = json_decode(a:line)
  catch
    call pollux#client#Note('cannot parse a message of ' .. len(a:line) .. ' bytes')
    return
  endtry
  if has_key(message, 'method')
    call pollux#client#Received(message)
  elseif has_key(s:pending, get(message, 'id', 0))
    call call(remove(s:pending, message.id), [message])
  endif
endfunction

function! s:Complaints(data) abort
  for line in filter(a:data, {_, line -> line !=# ''})
    call pollux#client#Complained(line)
  endfor
endfunction

function! s:Exited(code) abort
  let pending = pollux#client#Ready() ? values(s:pending) : []
  let s:pending = {}
  let s:job = 0
  call pollux#client#Ended(a:code)
  for Done in pending
    call Done({'error': {'message': 'Pollux has exited: see :Pollux log'}})
  endfor
endfunction

" Waits for the companion. Neovim kills running jobs; on Windows there is no gentle signal.
" With jobwait(), Neovim never ends if its terminal is closed meanwhile.
function! s:Leave() abort
  if s:job > 0
    call chanclose(s:job, 'stdin')
    call wait(s:EXIT_TIMEOUT, {-> s:job == 0}, 10)
  endif
endfunction

" Ends the companion's input, and kills it if it is still running after a time in
" milliseconds.
function! pollux#nvim#Stop(timeout) abort
  let ending = s:job
  call chanclose(ending, 'stdin')
  call timer_start(a:timeout, {-> s:job == ending ? jobstop(ending) : 0})
endfunction

" Sends a notification or an answer. json_encode() refuses invalid UTF-8.
function! pollux#nvim#Send(message) abort
  let a:message.jsonrpc = '2.0'
  try
    call chansend(s:job, v:lua.vim.json.encode(a:message) .. "\n")
  catch
    call pollux#client#Note(v:exception)
  endtry
endfunction

" Sends a request, and calls Done with the answer.
function! pollux#nvim#Request(message, Done) abort
  let s:next_id += 1
  let s:pending[s:next_id] = a:Done
  call pollux#nvim#Send(extend({'id': s:next_id}, a:message))
endfunction

" Sends a request and returns the answer, or {} if there is none.
function! pollux#nvim#Call(message) abort
  let answers = []
  call pollux#nvim#Request(a:message, {answer -> add(answers, answer)})
  let id = s:next_id
  call wait(5000, {-> !empty(answers)}, 5)
  if empty(answers) && has_key(s:pending, id)
    call remove(s:pending, id)
  endif
  return get(answers, 0, {})
endfunction

" Runs a command in a directory. Calls Out with its output, and then Done with its exit code.
" Returns the job.
function! pollux#nvim#Run(argv, directory, input, Out, Done) abort
  let job = jobstart(a:argv, {
        \ 'cwd': a:directory,
        \ 'on_stdout': {_, data -> a:Out(join(data, "\n"))},
        \ 'stderr_buffered': v:true,
        \ 'on_stderr': {_, data -> data ==# [''] ? 0 : a:Out("\n" .. join(data, "\n"))},
        \ 'on_exit': {_, code -> a:Done(code)},
        \ })
  call chansend(job, a:input)
  call chanclose(job, 'stdin')
  return job
endfunction

function! pollux#nvim#Kill(job) abort
  call jobstop(a:job)
endfunction

" Shows the user a message.
function! pollux#nvim#Show(text, level) abort
  call s:Lua('notify', a:text, a:level)
endfunction

" Lets the user choose one of several lines, and calls Done with its index.
function! pollux#nvim#Choose(title, lines, Done) abort
  let s:Chosen = a:Done
  call s:Lua('choose', a:title, a:lines)
endfunction

function! pollux#nvim#Chosen(index) abort
  call s:Chosen(a:index)
endfunction

" Returns directories that belong to the workspace in addition to the working directories.
function! pollux#nvim#Roots() abort
  return s:Lua('roots')
endfunction

function! pollux#nvim#FollowKeys(on) abort
  call s:Lua('follow_keys', a:on)
endfunction

" Highlights the hunks of an inline view.
function! pollux#nvim#Draw(buf, hunks) abort
  call s:Lua('draw', a:buf, a:hunks)
endfunction

" Scrolls the removed lines above the first line into view.
function! pollux#nvim#Reveal(buf) abort
  call s:Lua('reveal', a:buf)
endfunction

" Sets the colours of a buffer as for the file at a path. target is the file's buffer or 0.
function! pollux#nvim#Highlight(buf, win, path, target) abort
  silent! call s:Lua('highlight', a:buf, a:path, a:target)
endfunction

" Starts a command in a terminal in the current window. Returns the terminal's buffer. Calls
" Done with the exit code. old is the buffer of an ended terminal with the same title, or 0.
function! pollux#nvim#TerminalStart(argv, directory, title, old, Done) abort
  let buf = nvim_create_buf(v:false, v:true)
  call nvim_win_set_buf(0, buf)
  if bufexists(a:old)
    execute 'silent! bwipeout!' a:old
  endif
  let options = {'cwd': a:directory, 'on_exit': {_, code -> a:Done(code)}}
  if has('nvim-0.11')
    call jobstart(a:argv, extend(options, {'term': v:true}))
  else
    call termopen(a:argv, options)
  endif
  silent! call nvim_buf_set_name(buf, a:title)
  return buf
endfunction

" Returns the process in a terminal, or 0 if it has ended.
function! pollux#nvim#TerminalPid(buf) abort
  let job = getbufvar(a:buf, 'terminal_job_id')
  return job isnot '' && jobwait([job], 0)[0] == -1 ? getbufvar(a:buf, 'terminal_job_pid') : 0
endfunction

" Sends the keys of the user to the terminal in the current window.
function! pollux#nvim#TerminalFocus() abort
  startinsert
endfunction

" Returns the lines that a terminal shows.
function! pollux#nvim#TerminalLines(buf) abort
  return nvim_buf_get_lines(a:buf, -1 - &lines, -1, v:false)
endfunction

" Sends bytes to a terminal.
function! pollux#nvim#TerminalPut(buf, text) abort
  call chansend(getbufvar(a:buf, 'terminal_job_id'), a:text)
endfunction

let &cpo = s:cpo
