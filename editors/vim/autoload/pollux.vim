vim9script
# What the user's own configuration may call; :help pollux-vim describes it.

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

# The value of an option: g:pollux's, else the default.
export def Option(name: string): any
  return extend(copy(defaults), get(g:, 'pollux', {}))[name]
enddef

# What is wrong with g:pollux; empty if nothing.
export def WrongOption(): string
  var options = get(g:, 'pollux', {})
  for name in keys(options)
    if !has_key(defaults, name)
      return printf('unknown option "%s" in g:pollux; :help pollux-options has them', name)
    endif
  endfor
  if index(['auto', 'side-by-side', 'inline'], get(options, 'layout', 'auto')) < 0
    return 'layout in g:pollux is auto, side-by-side or inline'
  endif
  return ''
enddef

# The binary: the option's, else what `pollux install` noted, else the PATH's.
export def Command(): string
  var command = Option('command')
  if command != ''
    return command
  endif
  var noted = here .. '/command'
  return filereadable(noted) ? readfile(noted, '', 1)[0] : 'pollux'
enddef

# A short text for 'statusline': how many changes wait for you, and that a CLI
# is connected. Empty without one.
export def Statusline(): string
  if !exists('*pollux#client#Ready')
    return ''
  endif
  var waiting = len(pollux#diff#Waiting())
  if waiting > 0
    return printf('Gemini: %d to review', waiting)
  endif
  return empty(pollux#client#Clis()) ? '' : 'Gemini'
enddef
