-- The highlight groups of the view. A user's own definitions win. The groups link to those of
-- diff mode if the colour scheme defines them.
local M = {}

-- Neovim's colours for diff mode up to 0.9, which many colour schemes leave as they are. They
-- cover the colours of the language, and blue on cyan cannot be read.
local STOCK = {
  dark = { DiffAdd = "DarkBlue", DiffChange = "DarkMagenta", DiffDelete = "DarkCyan", DiffText = "Red" },
  light = { DiffAdd = "LightBlue", DiffChange = "LightMagenta", DiffDelete = "LightCyan", DiffText = "Red" },
}
local OWN = {
  dark = {
    PolluxAdd = "ctermbg=22 guibg=#1f3a2a",
    PolluxDelete = "ctermbg=52 guibg=#472529",
    PolluxChange = "ctermbg=237 guibg=#2a303c",
    PolluxText = "cterm=bold ctermbg=24 gui=bold guibg=#2c5170",
  },
  light = {
    PolluxAdd = "ctermbg=194 guibg=#d7f2da",
    PolluxDelete = "ctermbg=224 guibg=#fadcdc",
    PolluxChange = "ctermbg=254 guibg=#e7ebf1",
    PolluxText = "cterm=bold ctermbg=153 gui=bold guibg=#b9d6f2",
  },
}
local LINKS = {
  PolluxAdd = "DiffAdd",
  PolluxDelete = "DiffDelete",
  PolluxChange = "DiffChange",
  PolluxText = "DiffText",
}

--- For 'winhighlight' in diff mode. What only the left side has is removed.
M.left = "DiffAdd:PolluxDelete,DiffChange:PolluxChange,DiffText:PolluxText,DiffDelete:PolluxFill"
M.right = "DiffAdd:PolluxAdd,DiffChange:PolluxChange,DiffText:PolluxText,DiffDelete:PolluxFill"

local function define()
  local background = vim.o.background
  local stock = false
  for group, color in pairs(STOCK[background]) do
    stock = stock or vim.fn.synIDattr(vim.fn.synIDtrans(vim.fn.hlID(group)), "bg", "gui") == color
  end
  for group, link in pairs(LINKS) do
    if stock then
      vim.cmd(("highlight default %s %s"):format(group, OWN[background][group]))
    else
      vim.cmd(("highlight default link %s %s"):format(group, link))
    end
  end
  vim.cmd("highlight default link PolluxFill NonText")
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
