-- The plugin's public functions; :help pollux-lua describes them.
local M = {}

--- Sets options. Not needed for the defaults.
function M.setup(opts)
  require("pollux.config").set(opts)
end

--- Returns a short text for the statusline: the number of pending changes, or that
--- an agent is connected; otherwise an empty string.
function M.statusline()
  local client = package.loaded["pollux.client"]
  local waiting = package.loaded["pollux.diff"] and #require("pollux.diff").waiting() or 0
  if waiting > 0 then
    return ("Pollux: %d pending"):format(waiting)
  end
  if client and #client.agents > 0 then
    return "Pollux"
  end
  return ""
end

return M
