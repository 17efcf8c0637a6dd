-- The plugin's public functions; :help pollux-lua describes them.
local M = {}

--- Sets options. Not needed for the defaults.
function M.setup(opts)
  local wrong = vim.fn["pollux#Setup"](vim.tbl_extend("force", vim.empty_dict(), opts or {}))
  if wrong ~= "" then
    error("pollux: " .. wrong, 0)
  end
end

--- Returns a short text for the statusline: the number of pending changes, or that
--- an agent is connected; otherwise an empty string.
function M.statusline()
  return vim.fn["pollux#Statusline"]()
end

return M
