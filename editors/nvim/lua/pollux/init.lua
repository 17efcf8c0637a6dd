-- The plugin's public functions; :help pollux-lua describes them.
local M = {}

--- Sets options; not needed for the defaults.
function M.setup(opts)
  require("pollux.config").set(opts)
end

--- A short text for the statusline: how many changes wait for you, and that a
--- CLI is connected. Empty without one.
function M.statusline()
  local client = package.loaded["pollux.client"]
  local waiting = package.loaded["pollux.diff"] and #require("pollux.diff").waiting() or 0
  if waiting > 0 then
    return ("Gemini: %d to review"):format(waiting)
  end
  if client and #client.clis > 0 then
    return "Gemini"
  end
  return ""
end

return M
