vim9script
# The parts of the plugin that differ between Vim and Neovim: processes, terminals, marks and
# questions to the user. nvim.vim has the same functions.

var job: job # the companion

# Returns the names that the companion receives, and the version for the log.
export def About(): dict<any>
  return {client: 'pollux.vim', editor: {name: 'vim', displayName: 'Vim'}, version: 'Vim ' .. v:versionlong}
enddef

# Starts the companion. Vim does the framing of messages.
export def Start(argv: list<string>)
  job = job_start(argv, {
    in_mode: 'lsp', out_mode: 'lsp', err_mode: 'nl', noblock: 1,
    out_cb: (_, message) => Received(message),
    err_cb: (_, line) => pollux#client#Complained(line),
    exit_cb: (_, code) => pollux#client#Ended(code),
    stoponexit: '', # the end of its input ends it; Windows has no gentle signal
  })
  Verify(job)
enddef

# Throws an error if a process was not started. job_status() would call exit_cb here if it has
# ended already.
def Verify(started: job)
  if string(started) =~ 'fail$'
    throw 'no process'
  endif
enddef

def Received(message: dict<any>)
  if has_key(message, 'method')
    pollux#client#Received(message)
  endif
enddef

# Ends the companion's input, and kills it if it is still running after a time in
# milliseconds.
export def Stop(timeout: number)
  var ending = job
  ch_close_in(job)
  timer_start(timeout, (_) => job_stop(ending))
enddef

# Sends a notification or an answer.
export def Send(message: dict<any>)
  Try(() => ch_sendexpr(job, message))
enddef

# Sends a request, and calls Done with the answer.
export def Request(message: dict<any>, Done: func(any): any)
  Try(() => ch_sendexpr(job, message, {callback: (_, answer) => Done(answer)}))
enddef

# Sends a request and returns the answer. Without one, it is an empty string or dictionary.
export def Call(message: dict<any>): any
  var answer = Try(() => ch_evalexpr(job, message, {timeout: 5000}))
  redraw # otherwise messages received meanwhile can make Vim 9.2 wait for Enter
  return answer
enddef

# Writes to a process that may have ended before Vim noticed. If the error were not caught, the
# user would have to press Enter, and Vim would not run timers.
def Try(Write: func(): any): any
  try
    return Write()
  catch
    pollux#client#Note(v:exception)
    return {}
  endtry
enddef

# Runs a command in a directory. Calls Out with its output, and then Done with its exit code.
# Returns the job.
export def Run(argv: list<string>, directory: string, input: string, Out: func, Done: func): job
  var code = 0
  var open = 2 # the process and its output
  var End = () => {
    open -= 1
    if open == 0
      Done(code)
    endif
  }
  var started = job_start(argv, {
    cwd: directory, in_mode: 'raw', out_mode: 'raw', err_mode: 'nl', stoponexit: 'term',
    out_cb: (_, text) => Out(text),
    err_cb: (_, line) => Out("\n" .. line .. "\n"),
    exit_cb: (_, status) => {
      code = status
      End()
    },
    close_cb: (_) => End(),
  })
  Verify(started)
  Try(() => {
    ch_sendraw(started, input)
    return {}
  })
  ch_close_in(started)
  return started
enddef

export def Kill(running: job)
  job_stop(running)
enddef

# Shows the user a message.
export def Show(text: string, level: string)
  if mode() == 't'
    # A user who types in a terminal does not look at the command line.
    popup_notification(text, {highlight: level == 'info' ? 'Normal' : 'WarningMsg', time: 5000})
    return
  elseif mode(1) == 'r?'
    timer_start(200, (_) => Show(text, level)) # it would hide the question that Vim asks
    return
  endif
  redraw # otherwise Vim asks for Enter after a second message
  execute 'echohl' {warning: 'WarningMsg', error: 'ErrorMsg'}->get(level, 'None')
  echomsg pollux#client#Fitting(text)
  echohl None
enddef

# Lets the user choose one of several lines, and calls Done with its index.
export def Choose(title: string, lines: list<string>, Done: func(number): any)
  popup_menu(lines, {title: ' ' .. title .. ' ', callback: (_, choice) => {
    if choice > 0
      Done(choice - 1)
    endif
  }})
enddef

# Returns directories that belong to the workspace in addition to the working directories.
export def Roots(): list<string>
  return []
enddef

# Turns the autocommands for keys on or off.
export def FollowKeys(on: bool)
  augroup pollux_keys
    autocmd!
    if on
      if exists('##KeyInputPre')
        autocmd KeyInputPre * pollux#diff#Pressed()
      endif
      # Without KeyInputPre: the events that most keys trigger.
      autocmd CursorMoved,CursorMovedI,InsertEnter,InsertCharPre,TextChanged,TextChangedI pollux://* pollux#diff#Pressed()
      autocmd CmdlineEnter,CmdlineChanged,ModeChanged * pollux#diff#Pressed()
    endif
  augroup END
enddef

# Highlights the hunks of an inline view.
export def Draw(buf: number, hunks: list<dict<any>>)
  if empty(prop_type_get('PolluxAdd'))
    prop_type_add('PolluxAdd', {highlight: 'PolluxAdd', combine: true})
    prop_type_add('PolluxDelete', {highlight: 'PolluxDelete'})
    sign_define('PolluxAdd', {text: '+', texthl: 'PolluxAdd'})
  endif
  sign_unplace('pollux', {buffer: buf})
  for type in ['PolluxAdd', 'PolluxDelete']
    prop_remove({type: type, bufnr: buf, all: true})
  endfor
  var last = getbufinfo(buf)[0].linecount
  for h in hunks
    for n in range(h.line, min([h.line + h.lines - 1, last]))
      prop_add(n, 1, {type: 'PolluxAdd', bufnr: buf, length: len(getbufline(buf, n)[0])})
      sign_place(0, 'pollux', 'PolluxAdd', buf, {lnum: n})
    endfor
    # Removed lines are below the line before: above a line, they would get its sign. Those
    # of the first line are below the added ones.
    var line = h.line > 1 ? h.line - 1 : min([h.lines, last])
    for text in has('patch-9.0.0121') ? h.removed : [] # virtual text
      prop_add(max([1, line]), 0, {type: 'PolluxDelete', bufnr: buf,
        text: '- ' .. substitute(substitute(text, "\t", '    ', 'g'), "\r", '', 'g') .. ' ',
        text_align: line > 0 ? 'below' : 'above'})
    endfor
  endfor
enddef

# Scrolls the removed lines above the first line into view: nothing to do in Vim.
export def Reveal(buf: number)
enddef

# Sets the syntax of a buffer in a window as for the file at a path. target is the file's
# buffer or 0. Not 'filetype': its plugins expect real files.
export def Highlight(buf: number, win: number, path: string, target: number)
  var filetype = target > 0 ? getbufvar(target, '&filetype') : ''
  if filetype == ''
    var ignore = &eventignore
    try
      set eventignore=FileType,Syntax
      win_execute(win, 'silent! doautocmd <nomodeline> filetypedetect BufRead ' .. fnameescape(path))
      filetype = getbufvar(buf, '&filetype')
      setbufvar(buf, '&filetype', '')
    finally
      &eventignore = ignore
    endtry
  endif
  if filetype != ''
    setbufvar(buf, '&syntax', filetype)
  endif
enddef

# Starts a command in a terminal in the current window. Returns the terminal's buffer. Calls
# Done with the exit code. old is the buffer of an ended terminal with the same title, or 0.
export def TerminalStart(argv: list<string>, directory: string, title: string, old: number, Done: func(number): any): number
  return term_start(argv, {
    curwin: true, cwd: directory, term_name: title, term_kill: 'term', env: {COLORTERM: $COLORTERM},
    exit_cb: (_, code) => Done(code),
  })
enddef

# Returns the process in a terminal, or 0 if it has ended.
export def TerminalPid(buf: number): number
  return term_getstatus(buf) =~ 'running' ? job_info(term_getjob(buf)).process : 0
enddef

# Sends the keys of the user to the terminal in the current window.
export def TerminalFocus()
  if mode() != 't' && term_getstatus(bufnr()) =~ 'normal'
    normal! i
  endif
enddef

# Returns the lines that a terminal shows.
export def TerminalLines(buf: number): list<string>
  return range(1, term_getsize(buf)[0])->mapnew((_, n) => term_getline(buf, n))
enddef

# Sends bytes to a terminal. term_sendkeys() sends keys: it turns the Esc in a paste into
# CSI 27 u if the agent has requested that encoding.
export def TerminalPut(buf: number, text: string)
  ch_sendraw(job_getchannel(term_getjob(buf)), text)
enddef
