vim9script
# The command :Pollux.

import autoload 'pollux/ask.vim'
import autoload 'pollux/client.vim'
import autoload 'pollux/diff.vim'
import autoload 'pollux/terminal.vim'

# The functions below receive the first and the last line of a command's range, or an empty
# list, and the rest of the command.

# Returns Pollux's parameters for a command's range or the whole file.
def Target(lines: list<number>): dict<any>
  if &buftype != '' || bufname() == ''
    return {}
  endif
  var params: dict<any> = {path: expand('%:p')}
  return empty(lines) ? params : extend(params, {line: lines[0], endLine: lines[1]})
enddef

def Deliver(params: dict<any>, question: string)
  if has_key(params, 'path') && &modified
    client.Say('the agent reads the file as last saved', 'warning')
  endif
  terminal.Send(extend({question: question}, params))
enddef

# Returns the entries for this buffer in the location list, otherwise in the quickfix list.
def Problems(params: dict<any>): list<dict<any>>
  var found: list<dict<any>> = []
  var entries = getloclist(0)->filter((_, e) => e.bufnr == bufnr())
  if empty(entries)
    entries = getqflist()->filter((_, e) => e.bufnr == bufnr())
  endif
  for e in entries
    if e.lnum > 0 && (!has_key(params, 'line') || e.lnum >= params.line && e.lnum <= params.endLine)
      var severity = {E: 'error', W: 'warning', I: 'info', N: 'hint'}->get(toupper(e.type), '')
      add(found, {line: e.lnum, severity: severity, message: e.text})
    endif
  endfor
  return found->sort((a, b) => a.line - b.line)
enddef

def Send(lines: list<number>, rest: string)
  var params = Target(lines)
  var named = matchlist(rest, '^--agent\s\+\(\S\+\)\s*\(.*\)$')
  var question = get(named, 2, rest)
  if !empty(named)
    params.agent = named[1]
  endif
  if !has_key(params, 'path') && question == ''
    client.Say('this buffer is not a file: add a question, :Pollux send QUESTION', 'error')
  else
    Deliver(params, question)
  endif
enddef

def Ask(lines: list<number>, rest: string)
  var agent = matchstr(rest, '^\S\+\ze\s')
  if index(ask.AGENTS, agent) >= 0
    ask.Ask(agent, trim(rest[len(agent) :]), lines)
  else
    ask.Ask('', rest, lines)
  endif
enddef

def Diagnostics(lines: list<number>, question: string)
  var params = Target(lines)
  if empty(params)
    client.Say('this buffer is not a file', 'error')
    return
  endif
  var problems = Problems(params)
  if empty(problems)
    client.Say('no entries for this file in the location list or the quickfix list')
    return
  endif
  Deliver(extend({problems: problems}, params), question ?? 'Fix these.')
enddef

def Status()
  var [error, s] = client.Call('status', {commands: ':Pollux '})
  if error != ''
    client.Say(error, 'error')
    return
  endif
  # A Pollux of another version may send no text.
  echo trim(get(s, 'text', printf('Pollux %s, port %d', s.version, s.port)))
enddef

def Log()
  botright new
  setlocal buftype=nofile bufhidden=wipe noswapfile
  setline(1, client.Log()->join("\n")->split("\n", true))
  setlocal nomodifiable
  normal! G
enddef

def List()
  var waiting = diff.Waiting()
  var outside = client.Outside()
  if empty(waiting) && empty(outside)
    client.Say('no pending changes')
    return
  endif
  var choices = waiting->mapnew((_, d) => diff.Name(d) .. '  ' .. diff.Agent(d)
    .. (d.diff.state == 'orphaned' ? '  (agent has ended)' : ''))
  extend(choices, outside->mapnew((_, f) => fnamemodify(f.path, ':~:.') .. '  ' .. f.change .. ' outside Pollux'))
  popup_menu(choices, {title: ' Review ', callback: (_, choice) => {
    if choice > len(waiting)
      var [error, _] = client.Call('outside/open', {path: outside[choice - len(waiting) - 1].path})
      if error != ''
        client.Say(error, 'error')
      endif
    elseif choice > 0 && !waiting[choice - 1].ended
      diff.Go(waiting[choice - 1])
    endif
  }})
enddef

const COMMANDS: dict<func> = {
  open: (_, _) => terminal.Open(),
  toggle: (_, _) => terminal.Toggle(),
  send: Send,
  ask: Ask,
  diagnostics: Diagnostics,
  accept: (_, _) => diff.Accept(),
  reject: (_, _) => diff.Reject(),
  next: (_, _) => diff.Next(),
  'next-hunk': (_, _) => diff.Hunk(false),
  'previous-hunk': (_, _) => diff.Hunk(true),
  'redo-hunk': (_, _) => diff.Take('proposed'),
  'undo-hunk': (_, _) => diff.Take('original'),
  list: (_, _) => List(),
  status: (_, _) => Status(),
  log: (_, _) => Log(),
  start: (_, _) => client.Start(),
  stop: (_, _) => client.Stop(),
}

# Returns the commands of the agents that the user can name, those that are installed
# first.
def Agents(): list<string>
  var all = get(client.Info(), 'agents', [])->mapnew((_, agent) => agent.command)
  return copy(all)->filter((_, name) => executable(name) == 1)
    + copy(all)->filter((_, name) => executable(name) == 0)
enddef

export def Complete(lead: string, line: string, _: number): list<string>
  var all: list<string> = []
  if line =~ 'Pollux\s\+ask\s\+\S*$'
    all = copy(ask.AGENTS)
  elseif line =~ 'Pollux\s\+send\s\+--agent\s\+\S*$'
    all = Agents()
  elseif line =~ '^\S*\s\+\S*$'
    all = sort(keys(COMMANDS)) + Agents()
  endif
  return filter(all, (_, n) => stridx(n, lead) == 0)
enddef

export def Run(args: string, range: number, line1: number, line2: number)
  var given = matchstr(args, '^\S*')
  var rest = trim(args[len(given) :])
  var name = {'': 'status', 'accept-hunk': 'redo-hunk'}->get(given, given) # accept-hunk: its older name
  if has_key(COMMANDS, name)
    call(COMMANDS[name], [range > 0 ? [line1, line2] : [], rest])
  elseif index(Agents(), name) >= 0
    terminal.Open(name, split(rest))
  elseif !client.Ready()
    client.Say('Pollux is not running: run :Pollux start; if that fails, see :Pollux log', 'error')
  else
    client.Say(printf('unknown command "%s": press Tab after :Pollux for a list', name), 'error')
  endif
enddef
