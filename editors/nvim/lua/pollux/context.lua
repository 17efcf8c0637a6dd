-- Sends Pollux a snapshot of the open files, the cursor and the selection at each
-- event. Pollux debounces snapshots and drops those without a difference, so this code
-- is simple.
local client = require("pollux.client")

local M = {}

-- The size of a selection in bytes; Pollux enforces the exact limit.
local MAX_SELECTION = 20000
-- Leaving visual mode and entering a terminal are two events in one tick. The selection
-- is kept for this time in between. It is also kept while a command line is typed and
-- executed: the command may be about the selection.
local SELECTION_DELAY = 40 -- ms

local group
local others = {} -- path by buffer
local focused = {} -- when each buffer last had the focus, in ms
local active -- { buf, cursor, selection, range }
local list_dirty, push_due = true, false
local held -- a value while the terminal may still want a selection that has ended
local last_roots

local function now()
  local s, us = vim.loop.gettimeofday()
  return s * 1000 + math.floor(us / 1000)
end

--- Returns the path of a buffer that is a file on disk, otherwise nil.
local function file_of(buf)
  -- Without 'hidden', a buffer that is not shown is not loaded.
  if not vim.api.nvim_buf_is_loaded(buf) and not focused[buf] then
    return nil
  end
  if vim.bo[buf].buftype ~= "" or not vim.bo[buf].buflisted then
    return nil
  end
  local name = vim.api.nvim_buf_get_name(buf)
  if name == "" or name:find("^%a[%w+.-]+://") or vim.fn.filereadable(name) == 0 then
    return nil
  end
  return vim.fn.fnamemodify(name, ":p")
end

-- Returns a path without links, in one spelling.
local function resolved(path)
  local real = vim.fn.resolve(vim.fn.fnamemodify(path, ":p"))
  if vim.fn.has("win32") == 1 then
    real = real:gsub("\\", "/")
  end
  return vim.o.fileignorecase and vim.fn.tolower(real) or real
end

--- Returns the loaded buffers of the file at a path; with all, also those not loaded. Agents
--- may spell the path in another way. Neovim compares files as the system does, but takes a
--- replaced file for another one until it reads it again.
function M.buffers(path, all)
  local real, same, found = resolved(path), {}, {}
  for _, name in ipairs({ path, vim.fn.resolve(path) }) do
    if vim.fn.bufexists(name) == 1 then
      same[vim.fn.bufadd(name)] = true -- bufnr() would take the path for a pattern
    end
  end
  for _, buf in ipairs(vim.api.nvim_list_bufs()) do
    local name = vim.api.nvim_buf_get_name(buf)
    if
      (all or vim.api.nvim_buf_is_loaded(buf))
      and vim.bo[buf].buftype == ""
      and name ~= ""
      and (same[buf] or resolved(name) == real)
    then
      table.insert(found, buf)
    end
  end
  return found
end

--- Returns the workspace: the working directories of Neovim and its tabs, and the roots
--- of its language servers.
function M.roots()
  local roots, seen = {}, {}
  local separators = vim.fn.has("win32") == 1 and "[/\\]+$" or "/+$"
  local function add(dir)
    dir = dir and vim.fn.fnamemodify(dir, ":p")
    local bare = dir and dir:gsub(separators, "") or ""
    if bare ~= "" and not bare:find("^%a:$") then -- C: is the working directory of that drive
      dir = bare
    end
    if dir and not seen[dir] and vim.fn.isdirectory(dir) == 1 then
      seen[dir] = true
      table.insert(roots, dir)
    end
  end
  add(vim.fn.getcwd(-1, -1))
  for _, tab in ipairs(vim.api.nvim_list_tabpages()) do
    add(vim.fn.getcwd(-1, vim.api.nvim_tabpage_get_number(tab)))
  end
  local servers = {}
  if vim.lsp then
    servers = (vim.lsp.get_clients or vim.lsp.get_active_clients)()
  end
  for _, server in ipairs(servers) do
    add(server.config and server.config.root_dir)
  end
  return roots
end

--- Returns the column in UTF-16 code units, from 1, of a byte in a line, from 0.
function M.utf16(line, byte)
  byte = math.min(byte, #line)
  if vim.fn.has("nvim-0.11") == 1 then
    return vim.str_utfindex(line, "utf-16", byte, false) + 1
  end
  local _, units = vim.str_utfindex(line, byte)
  return units + 1
end

local function char_at(line, byte) -- returns the character that starts at byte, from 1
  return vim.fn.matchstr(line:sub(byte), "^.")
end

-- Returns where the part of a line between two screen columns, from 1, both included, starts
-- and ends, in bytes from 0.
local function cells(line, left, right)
  local first, last, column = nil, 0, 1
  for _, char in ipairs(vim.fn.split(line, "\\zs")) do
    local width = vim.fn.strdisplaywidth(char, column - 1)
    if column > right then
      break
    end
    if not first and column + width > left then
      first = last
    end
    last, column = last + #char, column + width
  end
  return first or last, last
end

--- Returns the selection in visual or select mode: the text, and the range for Pollux. The
--- range of a block is the smallest one that contains it.
local function selection(mode)
  local kind = ({ v = "v", s = "v", V = "V", S = "V", ["\22"] = "b", ["\19"] = "b" })[mode:sub(1, 1)]
  if not kind then
    return nil
  end
  local from, to = vim.fn.getpos("v"), vim.fn.getpos(".")
  if from[2] > to[2] or from[2] == to[2] and from[3] > to[3] then
    from, to = to, from
  end
  local exclusive = vim.o.selection == "exclusive"
  local left, right
  if kind == "b" then
    local a, b = vim.fn.virtcol("v"), vim.fn.virtcol(".")
    local function start(pos) -- the first cell of a wide character
      return vim.fn.strdisplaywidth(vim.fn.getline(pos[2]):sub(1, pos[3] - 1)) + 1
    end
    left, right = math.min(start(from), start(to)), math.max(a, b)
    if vim.fn.getcurpos()[5] == vim.v.maxcol or vim.fn.getcurpos()[5] >= 2147483647 then
      right = math.huge
    elseif exclusive then
      right = right - 1
    end
  end
  -- Returns where the selection starts and ends in a line, in bytes from 0. If the line end
  -- is selected too, the end is after it.
  local function part(nr, line)
    if kind == "b" then
      return cells(line, left, right)
    end
    local first, last = 0, #line
    if kind == "v" then
      if nr == from[2] then
        first = from[3] - 1
      end
      if nr == to[2] then
        last = to[3] - 1 + (exclusive and 0 or #char_at(line, to[3]))
        if not exclusive and to[3] > #line and nr < vim.fn.line("$") then
          last = #line + 1
        end
      end
    end
    return first, last
  end
  local top, bottom = vim.fn.getline(from[2]), vim.fn.getline(to[2])
  local first = part(from[2], top)
  local _, last = part(to[2], bottom)
  local range = {
    start = { line = from[2], character = M.utf16(top, first) },
    ["end"] = { line = to[2], character = M.utf16(bottom, last) },
  }
  if last > #bottom then
    range["end"] = { line = to[2] + 1, character = 1 }
  end
  if kind == "b" and right ~= math.huge and vim.fn.exists("*getregion") == 1 and to[2] - from[2] < 1000 then
    local lines = vim.fn.getregion(vim.fn.getpos("v"), vim.fn.getpos("."), { type = "\22" })
    return table.concat(lines, "\n"), range
  end
  local lines, size = {}, 0
  for nr = from[2], to[2] do
    local line = vim.fn.getline(nr)
    local a, b = part(nr, line)
    line = (line .. "\n"):sub(a + 1, b)
    table.insert(lines, line)
    size = size + #line + 1
    if size > MAX_SELECTION then
      break
    end
  end
  return table.concat(lines, "\n"), range
end

local function rebuild()
  others = {}
  for _, buf in ipairs(vim.api.nvim_list_bufs()) do
    others[buf] = file_of(buf)
  end
  for buf in pairs(focused) do
    if not others[buf] then
      focused[buf] = nil
    end
  end
  list_dirty = false
end

-- Records the cursor and selection of the current window. In a terminal or another
-- buffer that is not a file it keeps the last ones: the user is asking the agent about
-- that file.
local function sample()
  local buf = vim.api.nvim_get_current_buf()
  if list_dirty then
    rebuild()
  end
  if active and not others[active.buf] then
    active = nil
  end
  if not others[buf] then
    return
  end
  local mode = vim.api.nvim_get_mode().mode
  if mode:sub(1, 1) == "c" or mode:sub(1, 1) == "t" then
    return
  end
  local same = active and active.buf == buf
  local pos = vim.api.nvim_win_get_cursor(0)
  local line = vim.api.nvim_buf_get_lines(buf, pos[1] - 1, pos[1], false)[1] or ""
  local selected, range = selection(mode)
  if not selected and same and held then
    selected, range = active.selection, active.range
  end
  focused[buf] = now()
  local cursor = { line = pos[1], character = M.utf16(line, pos[2]) }
  active = { buf = buf, cursor = cursor, selection = selected, range = range }
end

local function push()
  push_due = false
  if not client.ready() then
    return
  end
  sample()
  local files = {}
  for buf, path in pairs(others) do
    local file = { path = path, focused = focused[buf] }
    if active and active.buf == buf then
      file.active, file.cursor = true, active.cursor
      file.selection, file.range = active.selection, active.range
    end
    table.insert(files, file)
  end
  local update = { files = #files > 0 and files or nil }
  local roots = M.roots_changed()
  if roots then
    update.roots = roots
  end
  client.notify("context/update", next(update) and update or vim.empty_dict())
end

function M.roots_changed()
  if last_roots and not M.roots_due then
    return nil
  end
  M.roots_due = false
  local roots = M.roots()
  if last_roots and vim.deep_equal(roots, last_roots) then
    return nil
  end
  last_roots = roots
  return roots
end

local function soon()
  if not push_due then
    push_due = true
    vim.schedule(push)
  end
end

--- Sends the current state soon.
M.soon = soon

-- Keeps a selection that has ended until a terminal had the time to get the focus, or
-- until a command line begins.
local function hold()
  local token = {}
  held = token
  vim.defer_fn(function()
    if held ~= token then
      return
    elseif client.waiting > 0 then
      return hold() -- a command is being executed
    end
    held = nil
    soon()
  end, SELECTION_DELAY)
end

--- Starts to report the context. roots is what Pollux was started with; the workspace may
--- have changed since.
function M.start(roots)
  M.stop()
  list_dirty, last_roots, M.roots_due, held = true, roots, true, nil
  group = vim.api.nvim_create_augroup("pollux_context", {})
  local function on(events, f)
    vim.api.nvim_create_autocmd(events, { group = group, callback = f })
  end
  on({ "CursorMoved", "CursorMovedI", "WinEnter", "TabEnter", "TextChanged", "InsertLeave" }, function()
    if not held then
      sample()
    end
    soon()
  end)
  on(
    { "BufEnter", "BufReadPost", "BufWritePost", "BufFilePost", "BufDelete", "BufWipeout", "BufAdd", "BufHidden" },
    function()
      list_dirty = true
      soon()
    end
  )
  on({ "BufWritePost" }, function(args)
    if vim.bo[args.buf].buftype == "" then
      client.notify("file/saved", { path = vim.fn.fnamemodify(args.match, ":p") })
    end
  end)
  on({ "DirChanged", "TabNewEntered", "TabClosed", "BufReadPost" }, function()
    M.roots_due = true
    soon()
  end)
  if vim.fn.exists("##LspAttach") == 1 then
    on({ "LspAttach", "LspDetach" }, function()
      M.roots_due = true
      soon()
    end)
  end
  on("ModeChanged", function()
    local old, new = vim.v.event.old_mode, vim.v.event.new_mode
    local visual, command = "^[vVsS\22\19]", "^c"
    if old:find(visual) and not new:find(visual) or held and old:find(command) then
      hold()
    end
    if new:find(command) and held then
      held = {} -- until it ends: Neovim 0.7 reports that after it has executed the command
    elseif new:find(visual) or not held then
      held = nil
      sample()
      soon()
    end
  end)
  soon()
end

function M.stop()
  if group then
    pcall(vim.api.nvim_del_augroup_by_id, group)
    group = nil
  end
end

return M
