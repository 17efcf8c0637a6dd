vim9script
# Reports the diagnostics of ALE, coc.nvim and vim-lsp, if they are loaded.

const SEVERITIES = ['error', 'warning', 'information', 'hint'] # by the numbers of the LSP

# What coc.nvim reported last: it answers too slowly to be asked for each request.
var coc_found: list<dict<any>> = []

# The last messages of vim-lsp's servers about each file.
var lsp_messages: dict<list<dict<any>>> = {}

# Returns a position in a buffer. The byte counts from 1; 0 is unknown.
def Position(buf: number, lnum: number, byte: number): dict<number>
  var line = getbufline(buf, lnum)->get(0, '')
  return {line: max([lnum, 1]), character: pollux#context#Utf16(line, max([byte - 1, 0]))}
enddef

# Returns a diagnostic of the Language Server Protocol in the form of Pollux.
def FromServer(d: dict<any>, severity: string): dict<any>
  var found: dict<any> = {severity: severity, message: d.message, range: {}}
  for end in ['start', 'end']
    found.range[end] = {line: d.range[end].line + 1, character: d.range[end].character + 1}
  endfor
  for field in ['source', 'code']
    if index([v:t_string, v:t_number], type(get(d, field, v:null))) >= 0
      found[field] = '' .. d[field]
    endif
  endfor
  return found
enddef

# Each of these functions adds what a plugin has found in a buffer, and returns whether
# the plugin checks the buffer.

def Ale(buf: number, found: list<dict<any>>): bool
  if getbufvar(buf, 'ale_linted', 0) == 0
    return false
  endif
  for e in call('ale#engine#GetLoclist', [buf])
    if e.bufnr != buf
      continue
    endif
    var d: dict<any> = {
      severity: {E: 'error', W: 'warning'}->get(e.type, 'information'), message: e.text, source: e.linter_name,
      range: {
        start: Position(buf, e.lnum, e.col),
        # ALE's end is the last character.
        end: Position(buf, get(e, 'end_lnum', e.lnum), get(e, 'end_col', e.col - 1) + 1),
      },
    }
    if has_key(e, 'code')
      d.code = '' .. e.code
    endif
    add(found, d)
  endfor
  return true
enddef

def CocChecks(buf: number): bool
  return !!get(g:, 'coc_service_initialized') && !!get(g:, 'coc_enabled', 1) && !!getbufvar(buf, 'coc_enabled', 1)
enddef

def Coc(buf: number, found: list<dict<any>>): bool
  if !CocChecks(buf)
    return false
  endif
  var tail = fnamemodify(bufname(buf), ':t')
  var same: dict<bool> = {} # by path: on Windows, coc.nvim writes drives in lower case
  for e in coc_found
    if !has_key(same, e.file)
      same[e.file] = fnamemodify(e.file, ':t') ==? tail && index(pollux#context#Buffers(e.file), buf) >= 0
    endif
    if same[e.file]
      add(found, FromServer(extend({range: e.location.range}, e, 'keep'), tolower(e.severity)))
    endif
  endfor
  return true
enddef

# Returns the last messages of vim-lsp's servers about a buffer.
def LspMessages(buf: number): list<dict<any>>
  var uri = call('lsp#utils#get_buffer_uri', [buf])
  return values(call('lsp#internal#diagnostics#state#_get_all_diagnostics_grouped_by_server_for_uri', [uri]))
enddef

def VimLsp(buf: number, found: list<dict<any>>): bool
  if !exists('*lsp#get_allowed_servers') || empty(call('lsp#get_allowed_servers', [buf]))
    return false
  endif
  for message in LspMessages(buf)
    for d in message.params.diagnostics
      add(found, FromServer(d, SEVERITIES->get(get(d, 'severity', 1) - 1, 'error')))
    endfor
  endfor
  return true
enddef

# Returns the diagnostics of a buffer, and adds to it whether anything checks the buffer.
def Check(buf: number): dict<any>
  var found: list<dict<any>> = []
  var checked = false
  for Add in [Ale, Coc, VimLsp]
    checked = Add(buf, found) || checked
  endfor
  return {checked: checked, found: found}
enddef

# Returns the files that are open, by buffer: only the one at the path, unless it is empty.
def Files(path = ''): dict<string>
  var files: dict<string> = {}
  for buf in path == '' ? getbufinfo({bufloaded: 1})->mapnew((_, b) => b.bufnr) : pollux#context#Buffers(path)
    var name = getbufinfo(buf)[0].name
    if name != '' && getbufvar(buf, '&buftype') == '' && name !~ '^\a[[:alnum:]+.-]\+://'
      files[buf] = fnamemodify(name, ':p')
    endif
  endfor
  return files
enddef

# Returns the entries for the current buffer in the location list, otherwise in the quickfix
# list, as parameters of Pollux.
export def Problems(): list<dict<any>>
  var entries = getloclist(0)->filter((_, e) => e.bufnr == bufnr() && e.lnum > 0)
  if empty(entries)
    entries = getqflist()->filter((_, e) => e.bufnr == bufnr() && e.lnum > 0)
  endif
  const severities = {E: 'error', W: 'warning', I: 'info', N: 'hint'}
  return entries->mapnew((_, e) => ({line: e.lnum, severity: get(severities, toupper(e.type), ''), message: e.text}))
enddef

# Returns what Pollux asks for: the diagnostics of a file, or of all files.
export def Report(path: string): dict<any>
  var files: list<dict<any>> = []
  for [buf, file] in items(Files(path))
    var result = Check(str2nr(buf))
    if result.checked
      add(files, {path: file, diagnostics: result.found})
    endif
  endfor
  return {files: files}
enddef

# Announces that the diagnostics of some files may have changed. The plugins' events do not
# name a file: Changed decides for each buffer.
def Announce(Changed: func(number, string): bool)
  var paths = Files()->filter((buf, file) => Changed(str2nr(buf), file))->values()
  if !empty(paths)
    pollux#client#Notify('diagnostics/changed', {paths: paths})
  endif
enddef

# Also runs when no server has sent anything.
def LspUpdated()
  Announce((buf, file) => {
    var messages = LspMessages(buf)
    var known = get(lsp_messages, file, [])
    lsp_messages[file] = messages
    return len(messages) < len(known) || !empty(copy(messages)->filter((i, m) => m isnot get(known, i, {})))
  })
enddef

# Makes vim-lsp send the servers a file that was read again. It would wait until the user
# types something. Before a request it sends what is new. The answer is not needed.
export def Reloaded(path: string)
  if !exists('*lsp#get_allowed_servers')
    return
  endif
  for buf in keys(Files(path))->map((_, b) => str2nr(b))
    for server in call('lsp#get_allowed_servers', [buf])
      call('lsp#send_request', [server, {
        method: 'textDocument/documentSymbol', bufnr: buf,
        params: {textDocument: {uri: call('lsp#utils#get_buffer_uri', [buf])}},
      }])
    endfor
  endfor
enddef

def AskCoc()
  call('g:CocActionAsync', ['diagnosticList', (error, list) => {
    if type(list) == v:t_list
      coc_found = list
      Announce((buf, _) => CocChecks(buf))
    endif
  }])
enddef

export def Start()
  augroup pollux_diagnostics
    autocmd!
    autocmd User ALELintPost Announce((buf, _) => Ale(buf, []))
    autocmd User CocDiagnosticChange AskCoc()
    autocmd User lsp_diagnostics_updated LspUpdated()
  augroup END
  if exists('*g:CocActionAsync') && get(g:, 'coc_service_initialized')
    AskCoc()
  endif
enddef

export def Stop()
  augroup pollux_diagnostics
    autocmd!
  augroup END
enddef
