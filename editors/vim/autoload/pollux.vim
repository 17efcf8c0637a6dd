vim9script
# Functions for the user's configuration; :help pollux-vim describes them.

const here = expand('<sfile>:p:h:h')

const defaults = {
  command: '',
  cli: [],
  autostart: true,
  layout: 'auto',
  include_ignored: false,
  review_page: false,
  terminal: {position: 'botright vertical', size: 0.4},
  keys: true,
}

# Returns the value of an option: from g:pollux, otherwise the default.
export def Option(name: string): any
  return extend(copy(defaults), get(g:, 'pollux', {}))[name]
enddef

# Returns what is wrong with g:pollux, or an empty string.
export def WrongOption(): string
  var options = get(g:, 'pollux', {})
  for name in keys(options)
    if !has_key(defaults, name)
      return printf('unknown option "%s" in g:pollux; see :help pollux-options', name)
    endif
  endfor
  if index(['auto', 'side-by-side', 'inline'], get(options, 'layout', 'auto')) < 0
    return 'layout in g:pollux must be auto, side-by-side or inline'
  endif
  return ''
enddef

# Returns the binary: from the option, otherwise as `pollux install` recorded it, otherwise
# the one on the PATH.
export def Command(): string
  var command = Option('command')
  if command != ''
    return command
  endif
  var noted = here .. '/command'
  return filereadable(noted) ? readfile(noted, '', 1)[0] : 'pollux'
enddef

# Returns the full path of the binary, or an empty string if it is not installed. On Windows,
# job_start() finds no batch files, such as those of npm, and would start a program in the
# current directory.
export def Program(): string
  const variable = 'NoDefaultCurrentDirectoryInExePath'
  const before = getenv(variable)
  setenv(variable, '1')
  const path = exepath(Command())
  setenv(variable, before)
  return path
enddef

# Returns a short text for 'statusline': the number of pending changes, or that an agent is
# connected; otherwise an empty string.
export def Statusline(): string
  if !exists('*pollux#client#Ready')
    return ''
  endif
  var waiting = len(pollux#diff#Waiting())
  if waiting > 0
    return printf('Pollux: %d pending', waiting)
  endif
  return empty(pollux#client#Agents()) ? '' : 'Pollux'
enddef
