vim9script
# The highlight groups of the view. A user's own definitions win. The groups link to those of
# diff mode if the colour scheme defines them.

# Vim's colours for diff mode, which many colour schemes leave as they are. They cover the
# colours of the language, and blue on cyan cannot be read.
const STOCK = {
  dark: {DiffAdd: 'DarkBlue', DiffChange: 'DarkMagenta', DiffDelete: 'DarkCyan', DiffText: 'Red'},
  light: {DiffAdd: 'LightBlue', DiffChange: 'LightMagenta', DiffDelete: 'LightCyan', DiffText: 'Red'},
}
const OWN = {
  dark: {
    PolluxAdd: 'ctermbg=22 guibg=#1f3a2a',
    PolluxDelete: 'ctermbg=52 guibg=#472529',
    PolluxChange: 'ctermbg=237 guibg=#2a303c',
    PolluxText: 'cterm=bold ctermbg=24 gui=bold guibg=#2c5170',
  },
  light: {
    PolluxAdd: 'ctermbg=194 guibg=#d7f2da',
    PolluxDelete: 'ctermbg=224 guibg=#fadcdc',
    PolluxChange: 'ctermbg=254 guibg=#e7ebf1',
    PolluxText: 'cterm=bold ctermbg=153 gui=bold guibg=#b9d6f2',
  },
}
const FEW_COLORS = {
  PolluxAdd: 'ctermfg=White ctermbg=DarkGreen',
  PolluxDelete: 'ctermfg=White ctermbg=DarkRed',
  PolluxChange: 'cterm=underline',
  PolluxText: 'cterm=bold ctermfg=White ctermbg=DarkBlue',
}
const LINKS = {PolluxAdd: 'DiffAdd', PolluxDelete: 'DiffDelete', PolluxChange: 'DiffChange', PolluxText: 'DiffText'}

var own = false # the colour scheme has no colours for diff mode
var lent: list<dict<any>> = [] # those of diff mode while it has ours

def Define()
  own = !STOCK[&background]->copy()->filter((group, color) => synIDattr(synIDtrans(hlID(group)), 'bg', 'gui') == color)->empty()
  var many = &termguicolors || has('gui_running') || str2nr(&t_Co) >= 256
  for [group, link] in items(LINKS)
    if own
      execute 'highlight default' group (many ? OWN[&background] : FEW_COLORS)[group]
    else
      execute 'highlight default link' group link
    endif
  endfor
  highlight default link PolluxFill NonText
enddef

# Gives diff mode our colours while a view uses it: Vim has no colours for one window.
export def Lend()
  if own && empty(lent)
    lent = values(LINKS)->mapnew((_, group) => hlget(group)[0])
    for [group, link] in items(LINKS)
      execute 'highlight! link' link link == 'DiffDelete' ? 'PolluxFill' : group
    endfor
  endif
enddef

# Gives diff mode its own colours back.
export def Return()
  for group in lent
    execute 'highlight! link' group.name 'NONE'
  endfor
  hlset(lent)
  lent = []
enddef

# Defines the groups, now and after each change of the colour scheme.
export def Start()
  Define()
  augroup pollux_colors
    autocmd!
    autocmd ColorScheme * Changed()
  augroup END
enddef

def Changed()
  var again = !empty(lent)
  lent = [] # the colour scheme has replaced them
  Define()
  if again
    Lend()
  endif
enddef
