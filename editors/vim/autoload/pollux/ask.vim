" Asks an agent a question, and shows its answer in a buffer.

let s:cpo = &cpo | set cpo&vim

" The agents that can be asked.
let s:AGENTS = ['gemini', 'codex', 'claude', 'copilot', 'qwen', 'opencode']

let s:NAME = 'pollux://answer'
let s:job = 0 " of the question in progress
let s:question = 0 " its number
let s:directory = '' " of the conversation in the buffer
let s:answered = 0 " whether the conversation can be continued

function! pollux#ask#Agents() abort
  return copy(s:AGENTS)
endfunction

function! s:Append(buf, text) abort
  if !bufloaded(a:buf)
    return
  endif
  let lines = split(a:text, "\n", 1)
  let last = getbufline(a:buf, '$')[0]
  call setbufvar(a:buf, '&modifiable', 1)
  call setbufline(a:buf, '$', last .. lines[0])
  call appendbufline(a:buf, '$', lines[1 :])
  call setbufvar(a:buf, '&modifiable', 0)
endfunction

" Ends the question of a closed buffer.
function! s:Closed() abort
  let job = s:job
  let s:job = 0
  let s:question += 1
  if job isnot 0
    call pollux#Host('Kill', job)
  endif
endfunction

" Handles the end of the answering process.
function! s:Answered(buf, question, code) abort
  call s:Append(a:buf, "\n* * *\n")
  if a:question == s:question
    let s:job = 0
    let s:answered = s:answered || a:code == 0
  endif
endfunction

" Shows the buffer with the answers, and returns it. It is empty before the first question.
function! s:Answers() abort
  let buf = bufnr('^' .. s:NAME .. '$')
  if buf > 0 && bufwinid(buf) > 0
    return buf
  endif
  let before = win_getid()
  botright new
  if buf > 0
    execute 'buffer' buf
  else
    execute 'file' s:NAME
    setlocal buftype=nofile bufhidden=wipe noswapfile nobuflisted filetype=markdown wrap nomodifiable
    nnoremap <buffer> q <Cmd>bwipeout!<CR>
    autocmd BufWipeout <buffer> call s:Closed()
    let s:directory = getcwd()
    let s:answered = 0
  endif
  let buf = bufnr()
  call win_gotoid(before)
  return buf
endfunction

" Asks a question. agent may be empty. range is the first and the last line of a part of the
" question, or empty. A question continues the conversation in the buffer.
function! pollux#ask#Ask(agent, question, range) abort
  if a:question ==# ''
    call pollux#client#Say('add a question: :Pollux ask QUESTION', 'error')
    return
  endif
  if s:job isnot 0
    call pollux#client#Say('a question is still being answered: press q in its window to end it', 'error')
    return
  endif
  let program = pollux#Program()
  if program ==# ''
    call pollux#client#Say(printf('`%s` is not installed, or not on the PATH: see :help pollux-install',
          \ pollux#Command()), 'error')
    return
  endif
  let prompt = a:question
  if !empty(a:range)
    let path = bufname() ==# '' ? 'unsaved text' : fnamemodify(bufname(), ':.')
    let prompt = printf("%s, lines %d to %d:\n\n```\n%s\n```\n\n%s", path, a:range[0], a:range[1],
          \ join(getline(a:range[0], a:range[1]), "\n"), a:question)
  endif
  let buf = s:Answers()
  let command = [program, 'ask', '--stream']
  if a:agent !=# ''
    let command += ['--agent', a:agent]
  endif
  if s:answered
    call add(command, '--continue')
  endif
  call s:Append(buf, (len(getbufline(buf, 1, '$')) > 1 ? "\n" : '') .. '> ' .. a:question .. "\n\n")
  let s:question += 1
  try
    let s:job = pollux#Host('Run', command, s:directory, prompt, function('s:Append', [buf]),
          \ function('s:Answered', [buf, s:question]))
  catch
    call s:Append(buf, printf("cannot start `%s`\n", program))
    return
  endtry
  for window in win_findbuf(buf)
    call win_execute(window, 'normal! G')
  endfor
endfunction

let &cpo = s:cpo
