-- Reports the diagnostics of vim.diagnostic, which language servers and linters fill.
local M = {}

local SEVERITIES = { "error", "warning", "information", "hint" } -- by Neovim's numbers

local group
local seen = {} -- buffers that something has checked
local changed -- paths to announce, while there are any

local function path_of(buf)
  local name = vim.api.nvim_buf_get_name(buf)
  if name == "" or vim.bo[buf].buftype ~= "" or name:find("^%a[%w+.-]+://") then
    return nil
  end
  return vim.fn.fnamemodify(name, ":p")
end

local function servers(buf)
  if vim.lsp.get_clients then
    return vim.lsp.get_clients({ bufnr = buf })
  end
  return vim.lsp.buf_get_clients(buf)
end

local function checked(buf)
  return vim.api.nvim_buf_is_loaded(buf) and (seen[buf] or next(servers(buf)) ~= nil)
end

-- Returns the diagnostics of a buffer, in the form of Pollux.
local function found_in(buf)
  local loaded = vim.api.nvim_buf_is_loaded(buf)
  local function position(lnum, col)
    local line = loaded and vim.api.nvim_buf_get_lines(buf, lnum, lnum + 1, false)[1]
    line = line and line:gsub("%z", " ") -- a string with NUL bytes would reach Vim script as a Blob
    return { line = lnum + 1, character = line and vim.fn["pollux#context#Utf16"](line, col) or col + 1 }
  end
  local found = {}
  for _, d in ipairs(vim.diagnostic.get(buf)) do
    local code = d.code or vim.tbl_get(d, "user_data", "lsp", "code") -- the latter before Neovim 0.8
    table.insert(found, {
      range = {
        start = position(d.lnum, d.col),
        ["end"] = position(d.end_lnum or d.lnum, d.end_col or d.col),
      },
      severity = SEVERITIES[d.severity],
      message = d.message,
      source = d.source,
      code = (type(code) == "string" or type(code) == "number") and tostring(code) or nil,
    })
  end
  return found
end

--- Returns the diagnostics of the current buffer, as parameters of Pollux.
function M.problems()
  local problems = {}
  for _, d in ipairs(found_in(vim.api.nvim_get_current_buf())) do
    local severity = d.severity == "information" and "info" or d.severity
    local line = d.range.start.line
    table.insert(problems, { line = line, severity = severity, message = d.message, source = d.source })
  end
  return problems
end

--- Returns what Pollux asks for: the diagnostics of the file at a path, or of all files if it
--- is empty.
function M.report(path)
  local files = {}
  local bufs = path ~= "" and vim.fn["pollux#context#Buffers"](path, 1) or vim.api.nvim_list_bufs()
  for _, buf in ipairs(bufs) do
    local file = path_of(buf)
    if file then
      local found = found_in(buf)
      if #found > 0 or checked(buf) then
        table.insert(files, { path = file, diagnostics = found })
      end
    end
  end
  return { files = files }
end

local function announce()
  local paths = vim.tbl_keys(changed)
  changed = nil
  vim.fn["pollux#client#Notify"]("diagnostics/changed", { paths = paths })
end

function M.start()
  group = vim.api.nvim_create_augroup("pollux_diagnostics", {})
  vim.api.nvim_create_autocmd("DiagnosticChanged", {
    group = group,
    callback = function(args)
      local path = path_of(args.buf)
      if not path then
        return
      end
      seen[args.buf] = true
      if not changed then
        changed = {}
        vim.schedule(announce)
      end
      changed[path] = true
    end,
  })
  vim.api.nvim_create_autocmd("BufWipeout", {
    group = group,
    callback = function(args)
      seen[args.buf] = nil
    end,
  })
end

function M.stop()
  if group then
    pcall(vim.api.nvim_del_augroup_by_id, group)
    group = nil
  end
end

return M
