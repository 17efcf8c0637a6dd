vim9script
# Asks an agent a question, and shows its answer in a buffer.

import autoload 'pollux.vim' as options
import autoload 'pollux/client.vim'

# The agents that can be asked.
export const AGENTS = ['gemini', 'codex', 'claude', 'copilot', 'qwen', 'opencode']

const name = 'pollux://answer'
var job: job # of the question in progress
var directory = '' # of the conversation in the buffer
var answered = false # whether the conversation can be continued

def Running(): bool
  return job_status(job) == 'run'
enddef

def Append(buf: number, text: string)
  if !bufloaded(buf)
    return
  endif
  var lines = split(text, "\n", true)
  var last = getbufline(buf, '$')[0]
  setbufvar(buf, '&modifiable', 1)
  setbufline(buf, '$', last .. lines[0])
  appendbufline(buf, '$', lines[1 :])
  setbufvar(buf, '&modifiable', 0)
enddef

# Ends the question of a closed buffer.
export def Closed()
  if Running()
    job_stop(job)
  endif
  job = null_job
enddef

# Shows the buffer with the answers, and returns it. It is empty before the first question.
def Answers(): number
  var buf = bufnr('^' .. name .. '$')
  if buf > 0 && bufwinid(buf) > 0
    return buf
  endif
  var before = win_getid()
  botright new
  if buf > 0
    execute 'buffer' buf
  else
    execute 'file' name
    setlocal buftype=nofile bufhidden=wipe noswapfile filetype=markdown wrap nomodifiable
    nnoremap <buffer> q <Cmd>bwipeout!<CR>
    autocmd BufWipeout <buffer> pollux#ask#Closed()
    directory = getcwd()
    answered = false
  endif
  buf = bufnr()
  win_gotoid(before)
  return buf
enddef

# Asks a question. agent may be empty. range is the first and the last line of a part of the
# question, or empty. A question continues the conversation in the buffer.
export def Ask(agent: string, question: string, range: list<number>)
  if question == ''
    client.Say('add a question: :Pollux ask QUESTION', 'error')
    return
  endif
  if Running()
    client.Say('a question is still being answered: press q in its window to end it', 'error')
    return
  endif
  var program = options.Program()
  if program == ''
    client.Say(printf('`%s` is not installed, or not on the PATH: see :help pollux-install', options.Command()), 'error')
    return
  endif
  var prompt = question
  if !empty(range)
    prompt = printf("%s, lines %d to %d:\n\n```\n%s\n```\n\n%s", fnamemodify(bufname(), ':.') ?? 'unsaved text',
      range[0], range[1], getline(range[0], range[1])->join("\n"), question)
  endif
  var buf = Answers()
  var command = [program, 'ask', '--stream']
  if agent != ''
    extend(command, ['--agent', agent])
  endif
  if answered
    add(command, '--continue')
  endif
  Append(buf, (len(getbufline(buf, 1, '$')) > 1 ? "\n" : '') .. '> ' .. question .. "\n\n")
  var started: job
  started = job_start(command, {
    cwd: directory, in_mode: 'raw', out_mode: 'raw', err_mode: 'nl', stoponexit: 'term',
    out_cb: (_, text) => Append(buf, text),
    err_cb: (_, line) => Append(buf, "\n" .. line .. "\n"),
    exit_cb: (_, code) => {
      answered = answered || code == 0 && job == started
    },
    close_cb: (_) => Append(buf, "\n* * *\n"),
  })
  job = started
  if !Running()
    Append(buf, printf("cannot start `%s`\n", program))
    return
  endif
  ch_sendraw(job, prompt)
  ch_close_in(job)
  for window in win_findbuf(buf)
    win_execute(window, 'normal! G')
  endfor
enddef
