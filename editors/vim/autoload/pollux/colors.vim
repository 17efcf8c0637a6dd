vim9script
# The highlight groups of the inline view. A user's or a colour scheme's own definition
# wins.

# Vim's colours for DiffDelete, which many colour schemes leave as they are. They suit
# filler lines, but a text in blue on cyan cannot be read.
const STOCK = {dark: 'Blue on DarkCyan', light: 'Blue on LightCyan'}
const READABLE = {
  dark: 'ctermfg=224 ctermbg=52 guifg=#ffd7d7 guibg=#5f0000',
  light: 'ctermfg=52 ctermbg=224 guifg=#5f0000 guibg=#ffd7d7',
}
const FEW_COLORS = 'ctermfg=White ctermbg=DarkRed'

def Color(what: string): string
  return synIDattr(synIDtrans(hlID('DiffDelete')), what, 'gui')
enddef

export def Define()
  highlight default link PolluxAdded DiffAdd
  if Color('fg') .. ' on ' .. Color('bg') != STOCK[&background]
    highlight default link PolluxRemoved DiffDelete
  elseif &termguicolors || has('gui_running') || str2nr(&t_Co) >= 256
    execute 'highlight default PolluxRemoved' READABLE[&background]
  else
    execute 'highlight default PolluxRemoved' FEW_COLORS
  endif
enddef

# Defines the groups, now and after each change of the colour scheme.
export def Start()
  Define()
  augroup pollux_colors
    autocmd!
    autocmd ColorScheme * Define()
  augroup END
enddef
