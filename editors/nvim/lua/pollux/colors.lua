-- The highlight groups of the inline view. A user's or a colour scheme's own definition
-- wins.
local M = {}

-- Neovim's colours for DiffDelete up to 0.9, which many colour schemes leave as they are.
-- They suit filler lines, but a text in blue on cyan cannot be read.
local STOCK = { dark = "Blue on DarkCyan", light = "Blue on LightCyan" }
local READABLE = {
  dark = "ctermfg=224 ctermbg=52 guifg=#ffd7d7 guibg=#5f0000",
  light = "ctermfg=52 ctermbg=224 guifg=#5f0000 guibg=#ffd7d7",
}

local function define()
  local function color(what)
    return vim.fn.synIDattr(vim.fn.synIDtrans(vim.fn.hlID("DiffDelete")), what, "gui")
  end
  local background = vim.o.background
  vim.cmd("highlight default link PolluxAdded DiffAdd")
  if color("fg") .. " on " .. color("bg") == STOCK[background] then
    vim.cmd("highlight default PolluxRemoved " .. READABLE[background])
  else
    vim.cmd("highlight default link PolluxRemoved DiffDelete")
  end
end

--- Defines the groups, now and after each change of the colour scheme.
function M.start()
  define()
  vim.api.nvim_create_autocmd("ColorScheme", {
    group = vim.api.nvim_create_augroup("pollux_colors", {}),
    callback = define,
  })
end

return M
