-- The options and their defaults; :help pollux-options describes them.
local M = {}

-- Returns the binary that `pollux install` recorded, if the PATH has a different one or none.
local function installed_command()
  local root = vim.fn.fnamemodify(debug.getinfo(1, "S").source:sub(2), ":p:h:h:h")
  local file = root .. "/command"
  return vim.fn.filereadable(file) == 1 and vim.fn.readfile(file, "", 1)[1] or "pollux"
end

local defaults = {
  command = installed_command(),
  cli = nil,
  autostart = true,
  layout = "auto",
  include_ignored = false,
  review_page = false,
  terminal = { position = "botright vertical", size = 0.4 },
  keys = true,
}

local options

local function check(opts)
  for key in pairs(opts) do
    if defaults[key] == nil and key ~= "cli" then
      error(("pollux: unknown option %q; see :help pollux-options"):format(key), 0)
    end
  end
  if opts.layout and not vim.tbl_contains({ "auto", "side-by-side", "inline" }, opts.layout) then
    error("pollux: layout must be auto, side-by-side or inline", 0)
  end
  return opts
end

--- Returns the options: from setup(), otherwise from g:pollux, otherwise the defaults.
function M.get()
  if not options then
    options = vim.tbl_deep_extend("force", defaults, check(vim.g.pollux or {}))
  end
  return options
end

--- Returns the full path of the binary, or an empty string if it is not installed. On
--- Windows, Neovim would start a program in the current directory.
function M.program()
  local variable = "NoDefaultCurrentDirectoryInExePath"
  local before = vim.env[variable]
  vim.env[variable] = "1"
  local path = vim.fn.exepath(M.get().command)
  vim.env[variable] = before
  return path
end

function M.set(opts)
  options = vim.tbl_deep_extend("force", defaults, check(vim.g.pollux or {}), check(opts or {}))
end

return M
